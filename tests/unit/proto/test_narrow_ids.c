/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that ids which were packed are the same when they have been widened, in whatever pieces
 * they come, and that lists of narrow spans are as a message may have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "proto/narrow_ids.h"

#define IDS_MAX 100

/* Some ids have all bits of the width set. */
static uint64_t id_of(uint64_t i, uint32_t width)
{
    const uint64_t mask = UINT64_MAX >> (64 - 8 * width);

    return i % 7 == 3 ? mask : (i * UINT64_C(0x9e3779b97f4a7c15) >> 16) & mask;
}

/* Puts the numbers of @count ids where a receiver puts them. */
static void receive(uint64_t *ids, uint64_t count, uint32_t width)
{
    uint8_t numbers[IDS_MAX * NARROW_WIDTH_MAX + NARROW_PACK_MORE];
    uint64_t sent[IDS_MAX];

    for (uint64_t i = 0; i < count; i++)
        sent[i] = id_of(i, width);
    narrow_ids_pack(sent, count, width, numbers);
    memset(ids, 0xa5, (IDS_MAX + 1) * sizeof(*ids));
    memcpy((uint8_t *)ids + count * (ID_WIDTH - width), numbers, count * width);
}

static void must_be_wide(const uint64_t *ids, uint64_t count, uint32_t width)
{
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(ids[i], id_of(i, width));
    assert_int_equal(ids[count], UINT64_C(0xa5a5a5a5a5a5a5a5));
}

static void test_ids_come_back_from_two_pieces_of_any_length(void **state)
{
    uint64_t ids[IDS_MAX + 1];

    (void)state;
    for (uint32_t width = 1; width <= NARROW_WIDTH_MAX; width++)
        for (uint64_t count = 0; count <= IDS_MAX; count++)
            for (uint64_t first = 0; first <= count; first++) {
                receive(ids, count, width);
                narrow_ids_widen(ids, count, width, 0, first);
                narrow_ids_widen(ids, count, width, first, count);
                must_be_wide(ids, count, width);
            }
}

static void test_ids_come_back_one_by_one(void **state)
{
    uint64_t ids[IDS_MAX + 1];

    (void)state;
    for (uint32_t width = 1; width <= NARROW_WIDTH_MAX; width++) {
        receive(ids, IDS_MAX, width);
        for (uint64_t i = 0; i < IDS_MAX; i++)
            narrow_ids_widen(ids, IDS_MAX, width, i, i + 1);
        must_be_wide(ids, IDS_MAX, width);
    }
}

/* Numbers that have not come yet lie behind all that is widened, so a receiver may still put them
 * there. */
static void test_widening_leaves_the_numbers_that_follow(void **state)
{
    uint64_t ids[IDS_MAX + 1], before[IDS_MAX + 1];

    (void)state;
    for (uint32_t width = 1; width <= NARROW_WIDTH_MAX; width++)
        for (uint64_t end = 0; end <= IDS_MAX; end++) {
            const uint64_t left = (IDS_MAX - end) * width;

            receive(ids, IDS_MAX, width);
            memcpy(before, ids, sizeof(ids));
            narrow_ids_widen(ids, IDS_MAX, width, 0, end);
            assert_memory_equal((uint8_t *)(ids + IDS_MAX) - left,
                                (uint8_t *)(before + IDS_MAX) - left, left);
        }
}

/* The largest id anywhere says how wide all are. */
static void test_a_width_is_that_of_the_largest_id(void **state)
{
    static const struct {
        uint64_t id;
        uint32_t width;
    } cases[] = { { 0, 1 },          { 0xff, 1 },       { 0x100, 2 },
                  { 0xffff, 2 },     { 0x10000, 3 },    { 0xffffff, 3 },
                  { 0x1000000, 4 },  { UINT32_MAX, 4 }, { UINT64_C(1) << 32, ID_WIDTH },
                  { UINT64_MAX, 8 }, { 7, 1 } };
    uint64_t ids[IDS_MAX] = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (uint64_t count = 1; count <= IDS_MAX; count++)
            for (uint64_t at = 0; at < count; at++) {
                ids[at] = cases[i].id;
                assert_int_equal(narrow_ids_width(ids, count), cases[i].width);
                assert_int_equal(narrow_ids_width(ids, at), 1);
                ids[at] = 0;
            }
    assert_int_equal(narrow_ids_width(ids, 0), 1);
}

/* ---- Lists ---- */

static const uint64_t spans[] = { 64, 16, 128, 5, 192, 24, 7, 8, 256, 12 };

static enum embtier_err read_list(const uint32_t *numbers, size_t count, struct narrow_spans *ret)
{
    struct err_msg msg = { { 0 } };
    const enum embtier_err err =
        narrow_spans_read(numbers, count, spans, ARRAY_LEN(spans), ret, &msg);

    assert_int_equal(err != EMBTIER_OK, msg.text[0] != '\0');
    return err;
}

static void test_a_list_comes_back(void **state)
{
    const uint32_t numbers[] = { 0 * 8 + 4, 2 * 8 + 3 };
    struct narrow_spans narrow;
    uint32_t written[RPC_SPANS_MAX];

    (void)state;
    assert_int_equal(read_list(numbers, 2, &narrow), EMBTIER_OK);
    assert_int_equal(narrow_spans_payload(&narrow, spans, ARRAY_LEN(spans)), 8 + 5 + 9 + 8 + 12);
    assert_int_equal(narrow_spans_write(&narrow, ARRAY_LEN(spans) / 2, written), 2);
    assert_memory_equal(written, numbers, sizeof(numbers));
    assert_int_equal(read_list(NULL, 0, &narrow), EMBTIER_OK);
    assert_int_equal(narrow_spans_write(&narrow, ARRAY_LEN(spans) / 2, written), 0);
}

static void test_each_span_of_a_full_list_has_its_own_width(void **state)
{
    struct narrow_spans narrow = { { 0 } };
    uint32_t written[RPC_SPANS_MAX];

    (void)state;
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t span = 0; span < RPC_SPANS_MAX; span++)
            narrow_spans_set(&narrow, span, 1 + (span + round) % NARROW_WIDTH_MAX);
        assert_int_equal(narrow_spans_write(&narrow, RPC_SPANS_MAX, written), RPC_SPANS_MAX);
        for (uint32_t span = 0; span < RPC_SPANS_MAX; span++)
            assert_int_equal(written[span], 8 * span + 1 + (span + round) % NARROW_WIDTH_MAX);
    }
    for (uint32_t span = 0; span + 1 < RPC_SPANS_MAX; span++)
        narrow_spans_set(&narrow, span, ID_WIDTH);
    assert_int_equal(narrow_spans_write(&narrow, RPC_SPANS_MAX, written), 1);
    assert_int_equal(written[0] / 8, RPC_SPANS_MAX - 1);
}

static void test_wrong_lists_are_refused(void **state)
{
    static const struct {
        uint32_t numbers[2];
        size_t count;
    } wrong[] = {
        { { 5 * 8 + 4 }, 1 },             /* no such span */
        { { UINT32_MAX - 3 }, 1 },        /* nor this */
        { { 0 }, 1 },                     /* no bytes */
        { { 5 }, 1 },                     /* too many */
        { { 7 }, 1 },                     /* likewise */
        { { 1 * 8 + 4 }, 1 },             /* a span of 5 bytes */
        { { 4 * 8 + 4 }, 1 },             /* of 12 */
        { { 3 * 8 + 4 }, 1 },             /* at 7 */
        { { 2 * 8 + 4, 0 * 8 + 4 }, 2 },  /* not ascending */
        { { 2 * 8 + 3, 2 * 8 + 4 }, 2 },  /* twice the same */
        { { 0 * 8 + 4, UINT32_MAX }, 2 }, /* the second one is wrong */
    };
    struct narrow_spans narrow;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(read_list(wrong[i].numbers, wrong[i].count, &narrow), EMBTIER_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_come_back_from_two_pieces_of_any_length),
        cmocka_unit_test(test_ids_come_back_one_by_one),
        cmocka_unit_test(test_widening_leaves_the_numbers_that_follow),
        cmocka_unit_test(test_a_width_is_that_of_the_largest_id),
        cmocka_unit_test(test_a_list_comes_back),
        cmocka_unit_test(test_each_span_of_a_full_list_has_its_own_width),
        cmocka_unit_test(test_wrong_lists_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
