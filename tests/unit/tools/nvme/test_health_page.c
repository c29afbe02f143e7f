/* SPDX-License-Identifier: Apache-2.0 */
/* Which figures and warnings do the log pages of NVMe drives give, and which pages are refused? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/nvme/health_json.h"
#include "tools/nvme/health_page.h"

/* Bytes at an offset of a page. The last piece has none. */
struct piece {
    size_t at;
    size_t count;
    uint8_t bytes[16];
};

struct page {
    uint8_t bytes[NVME_PAGE_BYTES];
};

static struct page page_of(const struct piece *pieces)
{
    struct page page = { { 0 } };

    for (; pieces->count > 0; pieces++)
        memcpy(page.bytes + pieces->at, pieces->bytes, pieces->count);
    return page;
}

/* A drive of a data centre after two years: 40 °C, spare 100 % over 10 %, 3 % used, 1,234,567,890
 * units written, 17,520 hours, 12 unsafe shutdowns. */
static const struct piece good[] = {
    { 0, 6, { 0x00, 0x39, 0x01, 100, 10, 3 } },
    { 32, 8, { 0x15, 0xcd, 0x5b, 0x07 } },
    { 48, 8, { 0xd2, 0x02, 0x96, 0x49 } },
    { 128, 2, { 0x70, 0x44 } },
    { 144, 1, { 12 } },
    { 0 },
};

/* An old drive fills in its temperature only. */
static const struct piece old[] = { { 1, 2, { 0x2f, 0x01 } }, { 0 } };

static struct health decode(const struct page *page)
{
    struct health health;
    struct err_msg msg = { { 0 } };

    assert_int_equal(health_decode(page->bytes, sizeof(page->bytes), &health, &msg), EMBTIER_OK);
    assert_string_equal(msg.text, "");
    return health;
}

static void assert_figure(const struct health_figure *figure, uint64_t value)
{
    assert_true(figure->is_reported);
    assert_int_equal(figure->value, value);
}

static void assert_refused(const uint8_t *page, size_t bytes, const char *words)
{
    const struct health untouched = { .warnings = 77 };
    struct health health = untouched;
    struct err_msg msg = { { 0 } };

    assert_int_equal(health_decode(page, bytes, &health, &msg), EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, words));
    assert_memory_equal(&health, &untouched, sizeof(health));
}

static void test_a_good_page_gives_every_figure(void **state)
{
    const struct page page = page_of(good);
    const struct health health = decode(&page);

    (void)state;
    assert_int_equal(health.warnings, 0);
    assert_false(health.is_failing);
    assert_figure(&health.temperature_kelvin, 313);
    assert_figure(&health.spare_percent, 100);
    assert_figure(&health.spare_threshold_percent, 10);
    assert_figure(&health.used_percent, 3);
    assert_figure(&health.read_units, 123456789);
    assert_figure(&health.written_units, 1234567890);
    assert_figure(&health.power_on_hours, 17520);
    assert_figure(&health.unsafe_shutdowns, 12);
    assert_figure(&health.media_errors, 0);
    assert_true(health_written_bytes(&health) == 1234567890.0 * 512000);
}

static void test_a_worn_out_drive_may_have_used_more_than_its_life(void **state)
{
    struct page page = page_of(good);
    struct health health;

    (void)state;
    page.bytes[5] = 255;
    page.bytes[0] = HEALTH_RELIABILITY;
    page.bytes[3] = 87;
    health = decode(&page);
    assert_figure(&health.used_percent, 255);
    assert_false(health.is_failing); /* the spare is above its threshold */
    page.bytes[3] = 10;
    assert_true(decode(&page).is_failing);
    page.bytes[3] = 9;
    assert_true(decode(&page).is_failing);
    page.bytes[0] = 0;
    assert_true(decode(&page).is_failing); /* even if the drive sets no bit */
}

static void test_each_warning_is_told_by_its_bit(void **state)
{
    static const struct {
        uint8_t bit;
        bool is_failing;
        const char *word; /* NULL: of a later version */
    } cases[] = {
        { 0x01, true, "spare_low" },
        { 0x02, false, "temperature" },
        { 0x04, false, "reliability" },
        { 0x08, true, "read_only" },
        { 0x10, false, "memory_backup" },
        { 0x20, false, "memory_region" },
        { 0x40, false, NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct page page = page_of(good);
        struct health health;
        json_t *json;
        const json_t *words;

        page.bytes[0] = cases[i].bit;
        health = decode(&page);
        assert_int_equal(health.warnings, cases[i].bit);
        assert_int_equal(health.is_failing, cases[i].is_failing);
        json = health_json("nvme0n1", &health, 0);
        words = json_object_get(json, "critical_warnings");
        assert_int_equal(json_array_size(words), cases[i].word != NULL);
        if (cases[i].word)
            assert_string_equal(json_string_value(json_array_get(words, 0)), cases[i].word);
        assert_int_equal(json_integer_value(json_object_get(json, "warnings")), cases[i].bit);
        json_decref(json);
    }
}

/* A reliability warning counts where nothing is known of the spare. */
static void test_an_unreliable_drive_without_a_threshold_is_failing(void **state)
{
    struct page page = page_of(good);

    (void)state;
    page.bytes[0] = HEALTH_RELIABILITY;
    page.bytes[4] = 0;
    assert_true(decode(&page).is_failing);
}

static void test_zeros_of_an_old_drive_are_not_reported(void **state)
{
    const struct page page = page_of(old);
    const struct health health = decode(&page);
    json_t *const json = health_json("nvme0n1", &health, 0);
    static const char *const nulls[] = { "used_percent",        "spare_percent",
                                         "written_units",       "spare_threshold_percent",
                                         "written_bytes",       "media_errors",
                                         "power_on_hours",      "unsafe_shutdowns",
                                         "drive_amplification", "media_written_bytes" };

    (void)state;
    assert_figure(&health.temperature_kelvin, 303);
    assert_false(health.is_failing);
    assert_true(health_written_bytes(&health) == 0);
    assert_non_null(json);
    for (size_t i = 0; i < ARRAY_LEN(nulls); i++)
        assert_true(json_is_null(json_object_get(json, nulls[i])));
    assert_int_equal(json_integer_value(json_object_get(json, "temperature_celsius")), 30);
    json_decref(json);
}

static void test_a_spare_of_zero_is_reported_where_there_is_a_threshold(void **state)
{
    struct page page = page_of(good);
    struct health health;

    (void)state;
    page.bytes[3] = 0;
    health = decode(&page);
    assert_figure(&health.spare_percent, 0);
    assert_true(health.is_failing);
}

static void test_a_counter_of_more_than_64_bits_is_not_believed(void **state)
{
    struct page page = page_of(good);
    struct health health;

    (void)state;
    memset(page.bytes + 48, 0xff, 16);
    page.bytes[160 + 8] = 1;
    health = decode(&page);
    assert_false(health.written_units.is_reported);
    assert_false(health.media_errors.is_reported);
    memset(page.bytes + 56, 0, 8); /* the most that fits does not overflow */
    health = decode(&page);
    assert_figure(&health.written_units, UINT64_MAX);
    assert_true(health_written_bytes(&health) > 9e24);
}

static void test_a_page_that_is_cut_short_is_refused(void **state)
{
    const struct page page = page_of(good);
    static const size_t lengths[] = { 0, 1, 5, 64, 511 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        uint8_t *const cut = malloc(lengths[i] ? lengths[i] : 1); /* a sanitizer sees its end */

        assert_non_null(cut);
        memcpy(cut, page.bytes, lengths[i]);
        assert_refused(cut, lengths[i], "cut short");
        free(cut);
    }
}

static void test_a_broken_page_is_refused(void **state)
{
    struct page page;

    (void)state;
    memset(page.bytes, 0, sizeof(page.bytes));
    assert_refused(page.bytes, sizeof(page.bytes), "nothing but bytes of 00");
    memset(page.bytes, 0xff, sizeof(page.bytes));
    assert_refused(page.bytes, sizeof(page.bytes), "nothing but bytes of ff");
    page = page_of(good);
    page.bytes[3] = 101;
    assert_refused(page.bytes, sizeof(page.bytes), "of a version that is not known");
    page = page_of(good);
    page.bytes[4] = 200;
    assert_refused(page.bytes, sizeof(page.bytes), "threshold of 200 %");
    page = page_of(good);
    page.bytes[2] = 0x7f;
    assert_refused(page.bytes, sizeof(page.bytes), "temperature of 32569 K");
}

/* ---- The vendor's page ---- */

static const struct piece media[] = {
    { 0, 8, { 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x03 } },
    { 494, 2, { 3, 0 } },
    { 496,
      16,
      { 0xc5, 0xaf, 0x10, 0x28, 0xea, 0xbf, 0xf2, 0xa4, 0x9c, 0x4f, 0x6f, 0x7c, 0xc9, 0x14, 0xd5,
        0xaf } },
    { 0 },
};

static void test_the_medium_s_bytes_are_known_from_a_known_page(void **state)
{
    const struct page good_page = page_of(good);
    const struct health health = decode(&good_page);
    const struct page page = page_of(media);
    double bytes = 0, amplification;
    json_t *json;

    (void)state;
    assert_true(media_page_decode(page.bytes, sizeof(page.bytes), &bytes));
    assert_true(bytes == (double)0x3800000000000);
    json = health_json("nvme0n1", &health, bytes);
    amplification = json_number_value(json_object_get(json, "drive_amplification"));
    assert_true(fabs(amplification - bytes / (1234567890.0 * 512000)) < 1e-9);
    json_decref(json);
}

static void test_a_vendor_s_page_that_is_not_known_gives_nothing(void **state)
{
    const struct page known = page_of(media);
    struct page page = known;
    double bytes = 7;

    (void)state;
    page.bytes[500]++; /* another vendor's */
    assert_false(media_page_decode(page.bytes, sizeof(page.bytes), &bytes));
    for (int version = 0; version <= 260; version += version < 8 ? 1 : 126) {
        page = known;
        page.bytes[494] = (uint8_t)version;
        page.bytes[495] = (uint8_t)(version >> 8);
        assert_int_equal(media_page_decode(page.bytes, sizeof(page.bytes), &bytes),
                         version >= 2 && version <= 4);
    }
    bytes = 7;
    assert_false(media_page_decode(known.bytes, sizeof(known.bytes) - 1, &bytes));
    page = known;
    memset(page.bytes, 0, 16);
    assert_false(media_page_decode(page.bytes, sizeof(page.bytes), &bytes));
    memset(page.bytes, 0xff, 16);
    assert_false(media_page_decode(page.bytes, sizeof(page.bytes), &bytes));
    assert_true(bytes == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_page_gives_every_figure),
        cmocka_unit_test(test_a_worn_out_drive_may_have_used_more_than_its_life),
        cmocka_unit_test(test_each_warning_is_told_by_its_bit),
        cmocka_unit_test(test_an_unreliable_drive_without_a_threshold_is_failing),
        cmocka_unit_test(test_zeros_of_an_old_drive_are_not_reported),
        cmocka_unit_test(test_a_spare_of_zero_is_reported_where_there_is_a_threshold),
        cmocka_unit_test(test_a_counter_of_more_than_64_bits_is_not_believed),
        cmocka_unit_test(test_a_page_that_is_cut_short_is_refused),
        cmocka_unit_test(test_a_broken_page_is_refused),
        cmocka_unit_test(test_the_medium_s_bytes_are_known_from_a_known_page),
        cmocka_unit_test(test_a_vendor_s_page_that_is_not_known_gives_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
