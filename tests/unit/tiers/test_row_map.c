/* SPDX-License-Identifier: Apache-2.0 */
/* test_row_map.c: tests that maps have their room to themselves, and that their stamps stay young
 * enough to compare. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "tiers/cache/row_map.h"

#define PAGE_SPOTS  (ROW_MAP_PAGE_BYTES / sizeof(struct row_spot))
#define PAGES       150
#define BYTES       ((uint64_t)PAGES * ROW_MAP_PAGE_BYTES)
#define ROUND_TICKS 16384
#define MAPS_MAX    PAGES
#define STAMPS      65536 /* as many as exist */

struct fixture {
    struct row_maps maps;
    uint8_t *memory;
};

/* The maps' memory was used before. */
static void open_maps(struct fixture *f, uint64_t bytes)
{
    f->memory = aligned_alloc(ROW_MAP_PAGE_BYTES, BYTES);
    assert_non_null(f->memory);
    memset(f->memory, 0xa5, BYTES);
    row_maps_init(&f->maps, f->memory, bytes);
    for (uint64_t i = bytes; i < BYTES; i++)
        if (f->memory[i] != 0xa5)
            fail_msg("byte %u behind the memory was written", (unsigned)(i - bytes));
}

static void close_maps(struct fixture *f)
{
    free(f->memory);
}

static uint16_t add(struct fixture *f, uint64_t rows)
{
    const uint16_t number = row_maps_add(&f->maps, rows);

    assert_int_not_equal(number, ROW_MAP_NONE);
    return number;
}

/* Adds maps of one page until there is no room. Returns how many. */
static uint32_t fill_up(struct fixture *f, uint16_t *ret_numbers)
{
    uint32_t count = 0;

    for (;;) {
        const uint16_t number = row_maps_add(&f->maps, PAGE_SPOTS);

        if (number == ROW_MAP_NONE)
            return count;
        assert_true(count < MAPS_MAX);
        ret_numbers[count++] = number;
    }
}

static void test_maps_do_not_overlap(void **state)
{
    static const uint64_t rows[] = {
        1, PAGE_SPOTS - 1, PAGE_SPOTS, PAGE_SPOTS + 1, 5 * PAGE_SPOTS, 20000,
    };
    const uint32_t count = sizeof(rows) / sizeof(rows[0]);
    uint16_t numbers[sizeof(rows) / sizeof(rows[0])];
    struct fixture f;

    (void)state;
    open_maps(&f, BYTES);
    for (uint32_t i = 0; i < count; i++) {
        numbers[i] = add(&f, rows[i]);
        for (uint32_t j = 0; j < i; j++)
            assert_int_not_equal(numbers[i], numbers[j]);
        for (uint64_t id = 0; id < rows[i]; id++) {
            struct row_spot *spot = &row_maps_spots(&f.maps, numbers[i])[id];
            const struct row_spot none = { 0 };

            assert_true((uint8_t *)spot >= f.memory);
            assert_true((uint8_t *)(spot + 1) <= f.memory + BYTES);
            assert_memory_equal(spot, &none, sizeof(none));
            *spot = (struct row_spot){ .slot_and_1 = (uint32_t)(1 + id), .stamp = numbers[i] };
        }
    }
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t id = 0; id < rows[i]; id++) {
            const struct row_spot *spot = &row_maps_spots(&f.maps, numbers[i])[id];

            assert_int_equal(spot->slot_and_1, 1 + id);
            assert_int_equal(spot->stamp, numbers[i]);
        }
    assert_int_equal(row_maps_bytes(&f.maps), (1 + 1 + 1 + 2 + 5 + 40) * ROW_MAP_PAGE_BYTES);
    assert_int_equal(row_maps_count_rows(&f.maps),
                     1 + PAGE_SPOTS - 1 + PAGE_SPOTS + PAGE_SPOTS + 1 + 5 * PAGE_SPOTS + 20000);
    close_maps(&f);
}

static void test_what_does_not_fit_gets_no_map(void **state)
{
    uint16_t numbers[MAPS_MAX];
    struct fixture f;
    uint32_t count;

    (void)state;
    open_maps(&f, BYTES);
    assert_int_equal(row_maps_add(&f.maps, 0), ROW_MAP_NONE);
    assert_int_equal(row_maps_add(&f.maps, BYTES / sizeof(struct row_spot)), ROW_MAP_NONE);
    assert_int_equal(row_maps_add(&f.maps, UINT32_MAX), ROW_MAP_NONE);
    assert_int_equal(row_maps_add(&f.maps, UINT64_MAX), ROW_MAP_NONE);
    assert_int_equal(row_maps_bytes(&f.maps), 0);
    row_maps_remove(&f.maps, add(&f, 1));
    (void)add(&f, 1);
    assert_int_equal(row_maps_add(&f.maps, 0), ROW_MAP_NONE);
    close_maps(&f);
    open_maps(&f, BYTES);
    count = fill_up(&f, numbers);
    /* The accounts take the rest: 9 bytes per page. */
    assert_int_equal(count, PAGES - 1);
    assert_int_equal(row_maps_bytes(&f.maps), (PAGES - 1) * ROW_MAP_PAGE_BYTES);
    assert_int_equal(row_maps_add(&f.maps, 1), ROW_MAP_NONE);
    for (uint32_t i = 0; i < count; i++)
        row_maps_remove(&f.maps, numbers[i]);
    assert_int_equal(row_maps_bytes(&f.maps), 0);
    assert_int_equal(row_maps_add(&f.maps, (PAGES - 1) * PAGE_SPOTS + 1), ROW_MAP_NONE);
    (void)add(&f, (PAGES - 1) * PAGE_SPOTS);
    close_maps(&f);
}

static void test_maps_stay_within_any_memory(void **state)
{
    uint16_t numbers[MAPS_MAX];
    struct fixture f;

    (void)state;
    for (uint64_t bytes = 0; bytes <= BYTES; bytes += bytes < 3 * ROW_MAP_PAGE_BYTES ? 512 : 9999) {
        uint32_t count;

        open_maps(&f, bytes);
        count = fill_up(&f, numbers);
        if (bytes < 2 * (uint64_t)ROW_MAP_PAGE_BYTES)
            assert_int_equal(count, 0);
        else
            assert_int_equal(count, bytes / ROW_MAP_PAGE_BYTES - 1);
        for (uint32_t i = 0; i < count; i++) {
            struct row_spot *spots = row_maps_spots(&f.maps, numbers[i]);

            assert_true((uint8_t *)spots >= f.maps.page_used + f.maps.page_count);
            assert_true((uint8_t *)(spots + PAGE_SPOTS) <= f.memory + bytes);
            for (uint32_t j = 0; j < i; j++)
                assert_ptr_not_equal(spots, row_maps_spots(&f.maps, numbers[j]));
        }
        row_maps_sweep(&f.maps, ROUND_TICKS, ROUND_TICKS, 7);
        assert_int_equal(row_maps_count_rows(&f.maps), 0);
        close_maps(&f);
    }
}

static void test_no_memory_gives_no_maps(void **state)
{
    struct row_maps maps;

    (void)state;
    row_maps_init(&maps, NULL, 0);
    assert_int_equal(row_maps_add(&maps, 1), ROW_MAP_NONE);
    assert_int_equal(row_maps_add(&maps, 0), ROW_MAP_NONE);
    row_maps_sweep(&maps, ROUND_TICKS, ROUND_TICKS, 7);
    assert_int_equal(row_maps_bytes(&maps), 0);
    assert_int_equal(row_maps_count_rows(&maps), 0);
}

static void test_room_of_a_map_that_is_gone_is_used_again(void **state)
{
    struct row_spot *at[4], *spots;
    uint16_t numbers[4], number;
    struct fixture f;

    (void)state;
    open_maps(&f, BYTES);
    for (uint32_t i = 0; i < 4; i++) {
        numbers[i] = add(&f, 3 * PAGE_SPOTS);
        at[i] = row_maps_spots(&f.maps, numbers[i]);
    }
    row_maps_remove(&f.maps, numbers[1]);
    row_maps_remove(&f.maps, numbers[3]);
    assert_int_equal(row_maps_bytes(&f.maps), 6 * ROW_MAP_PAGE_BYTES);
    /* Too long for the first hole. */
    number = add(&f, 3 * PAGE_SPOTS + 1);
    assert_ptr_equal(row_maps_spots(&f.maps, number), at[3]);
    assert_true(number != numbers[0] && number != numbers[2]);
    row_maps_remove(&f.maps, number);
    /* The first hole is the first that fits. */
    number = add(&f, PAGE_SPOTS);
    assert_ptr_equal(row_maps_spots(&f.maps, number), at[1]);
    numbers[1] = add(&f, 2 * PAGE_SPOTS);
    assert_ptr_equal(row_maps_spots(&f.maps, numbers[1]), at[1] + PAGE_SPOTS);
    assert_int_not_equal(numbers[1], number);
    numbers[3] = add(&f, 1);
    spots = row_maps_spots(&f.maps, numbers[3]);
    assert_ptr_equal(spots, at[3]);
    assert_int_equal(row_maps_bytes(&f.maps), 10 * ROW_MAP_PAGE_BYTES);
    /* The other maps have not moved. */
    assert_ptr_equal(row_maps_spots(&f.maps, numbers[0]), at[0]);
    assert_ptr_equal(row_maps_spots(&f.maps, numbers[2]), at[2]);
    close_maps(&f);
}

/* Makes a map with all possible stamps, in which every second row is cached. It lies behind a
 * smaller one. */
static struct row_spot *set_stamps(struct fixture *f)
{
    struct row_spot *spots;

    open_maps(f, BYTES);
    (void)add(f, PAGE_SPOTS);
    spots = row_maps_spots(&f->maps, add(f, STAMPS));
    for (uint32_t i = 0; i < STAMPS; i++)
        if (i % 2 == 0)
            spots[i] =
                (struct row_spot){ .slot_and_1 = i + 1, .stamp = (uint16_t)i, .dirty = i / 2 % 2 };
    return spots;
}

/* Counts changed stamps of cached rows, and checks them. All other words must be unchanged. */
static uint32_t count_swept(const struct row_spot *spots, uint16_t now)
{
    uint32_t swept = 0;

    for (uint32_t i = 0; i < STAMPS; i++) {
        const struct row_spot none = { 0 };

        if (i % 2 == 1) {
            assert_memory_equal(&spots[i], &none, sizeof(none));
            continue;
        }
        assert_int_equal(spots[i].slot_and_1, i + 1);
        assert_int_equal(spots[i].dirty, i / 2 % 2);
        if (spots[i].stamp == (uint16_t)i)
            continue;
        assert_true((uint16_t)(now - i) > 0x8000);
        assert_int_equal((uint16_t)(now - spots[i].stamp), 0x8000);
        swept++;
    }
    return swept;
}

static void test_a_sweep_makes_old_stamps_half_as_old_as_can_be(void **state)
{
    static const uint16_t times[] = { 0, 1, 0x1234, 0x7fff, 0x8000, 0x8001, 0xffff };
    struct fixture f;

    (void)state;
    for (uint32_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        const struct row_spot *spots = set_stamps(&f);

        row_maps_sweep(&f.maps, ROUND_TICKS, ROUND_TICKS, times[i]);
        /* Every second age from 0x8001 to 0xffff. */
        assert_int_equal(count_swept(spots, times[i]), times[i] % 2 ? 0x4000 : 0x3fff);
        close_maps(&f);
    }
}

static void test_parts_of_a_sweep_make_a_whole_one(void **state)
{
    static const uint32_t ticks[] = { 1, 7, 100, 4095, 4096, 5000, 16383 };
    const uint16_t now = 0x4321;
    struct fixture f;

    (void)state;
    for (uint32_t i = 0; i < sizeof(ticks) / sizeof(ticks[0]); i++) {
        struct row_spot *spots = set_stamps(&f);

        for (uint32_t round = 0; round < 3; round++) {
            /* The first round begins with the first word, the others anywhere. */
            for (uint32_t t = 0; t < (round == 0 ? 1 : 2) * ROUND_TICKS; t += ticks[i])
                row_maps_sweep(&f.maps, ticks[i], ROUND_TICKS, now);
            assert_int_equal(count_swept(spots, now), 0x4000);
            for (uint32_t j = 0; j < STAMPS; j += 2)
                spots[j].stamp = (uint16_t)j;
        }
        /* A part of a round sweeps only a part of the words. */
        row_maps_sweep(&f.maps, 4096, ROUND_TICKS, now);
        assert_true(count_swept(spots, now) < 0x4000);
        close_maps(&f);
    }
}

/* There are fewer words than ticks. */
static void test_a_small_memory_is_swept_too(void **state)
{
    struct row_spot *spots;
    struct fixture f;

    (void)state;
    open_maps(&f, 2 * (uint64_t)ROW_MAP_PAGE_BYTES);
    spots = row_maps_spots(&f.maps, add(&f, PAGE_SPOTS));
    for (uint32_t i = 0; i < PAGE_SPOTS; i++)
        spots[i] = (struct row_spot){ .slot_and_1 = 1, .stamp = 1 };
    for (uint32_t t = 0; t < ROUND_TICKS; t++)
        row_maps_sweep(&f.maps, 1, ROUND_TICKS, 0x9000);
    for (uint32_t i = 0; i < PAGE_SPOTS; i++)
        assert_int_equal(spots[i].stamp, 0x1000);
    close_maps(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps_do_not_overlap),
        cmocka_unit_test(test_what_does_not_fit_gets_no_map),
        cmocka_unit_test(test_maps_stay_within_any_memory),
        cmocka_unit_test(test_no_memory_gives_no_maps),
        cmocka_unit_test(test_room_of_a_map_that_is_gone_is_used_again),
        cmocka_unit_test(test_a_sweep_makes_old_stamps_half_as_old_as_can_be),
        cmocka_unit_test(test_parts_of_a_sweep_make_a_whole_one),
        cmocka_unit_test(test_a_small_memory_is_swept_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
