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

static uint64_t id_of(uint64_t i)
{
    return (i * UINT64_C(0x9e3779b9) + 1) & UINT32_MAX;
}

/* Puts the numbers of @count ids where a receiver puts them. */
static void receive(uint64_t *ids, uint64_t count)
{
    uint64_t sent[IDS_MAX];
    uint32_t numbers[IDS_MAX];

    for (uint64_t i = 0; i < count; i++)
        sent[i] = id_of(i);
    narrow_ids_pack(sent, count, numbers);
    memset(ids, 0xa5, (IDS_MAX + 1) * sizeof(*ids));
    memcpy((uint32_t *)ids + count, numbers, count * sizeof(uint32_t));
}

static void must_be_wide(const uint64_t *ids, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(ids[i], id_of(i));
    assert_int_equal(ids[count], UINT64_C(0xa5a5a5a5a5a5a5a5));
}

static void test_ids_come_back_from_two_pieces_of_any_length(void **state)
{
    uint64_t ids[IDS_MAX + 1];

    (void)state;
    for (uint64_t count = 0; count <= IDS_MAX; count++)
        for (uint64_t first = 0; first <= count; first++) {
            receive(ids, count);
            narrow_ids_widen(ids, count, 0, first);
            narrow_ids_widen(ids, count, first, count);
            must_be_wide(ids, count);
        }
}

static void test_ids_come_back_one_by_one(void **state)
{
    uint64_t ids[IDS_MAX + 1];

    (void)state;
    receive(ids, IDS_MAX);
    for (uint64_t i = 0; i < IDS_MAX; i++)
        narrow_ids_widen(ids, IDS_MAX, i, i + 1);
    must_be_wide(ids, IDS_MAX);
}

/* Numbers that have not come yet lie behind all that is widened, so a receiver may still put them
 * there. */
static void test_widening_leaves_the_numbers_that_follow(void **state)
{
    uint64_t ids[IDS_MAX + 1], before[IDS_MAX + 1];

    (void)state;
    for (uint64_t end = 0; end <= IDS_MAX; end++) {
        receive(ids, IDS_MAX);
        memcpy(before, ids, sizeof(ids));
        narrow_ids_widen(ids, IDS_MAX, 0, end);
        assert_memory_equal((uint32_t *)ids + IDS_MAX + end, (uint32_t *)before + IDS_MAX + end,
                            (IDS_MAX - end) * sizeof(uint32_t));
    }
}

static void test_one_large_id_anywhere_is_seen(void **state)
{
    uint64_t ids[IDS_MAX];

    (void)state;
    for (uint64_t count = 1; count <= IDS_MAX; count++) {
        for (uint64_t i = 0; i < count; i++)
            ids[i] = UINT32_MAX - i;
        assert_true(narrow_ids_fit(ids, count));
        for (uint64_t large = 0; large < count; large++) {
            ids[large] = UINT64_C(1) << 32;
            assert_false(narrow_ids_fit(ids, count));
            assert_true(narrow_ids_fit(ids, large));
            ids[large] = large;
        }
    }
    assert_true(narrow_ids_fit(ids, 0));
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
    const uint32_t numbers[] = { 0, 2 };
    struct narrow_spans narrow;
    uint32_t written[RPC_SPANS_MAX];

    (void)state;
    assert_int_equal(read_list(numbers, 2, &narrow), EMBTIER_OK);
    assert_int_equal(narrow_spans_payload(&narrow, spans, ARRAY_LEN(spans)), 8 + 5 + 12 + 8 + 12);
    assert_int_equal(narrow_spans_write(&narrow, ARRAY_LEN(spans) / 2, written), 2);
    assert_memory_equal(written, numbers, sizeof(numbers));
    assert_int_equal(read_list(NULL, 0, &narrow), EMBTIER_OK);
    assert_false(narrow_spans_any(&narrow));
}

static void test_the_last_span_of_a_full_list_may_be_narrow(void **state)
{
    struct narrow_spans narrow = { { 0 } };
    uint32_t written[RPC_SPANS_MAX];

    (void)state;
    for (size_t span = 0; span < RPC_SPANS_MAX; span++)
        narrow_spans_set(&narrow, span, true);
    assert_int_equal(narrow_spans_write(&narrow, RPC_SPANS_MAX, written), RPC_SPANS_MAX);
    for (size_t span = 0; span + 1 < RPC_SPANS_MAX; span++)
        narrow_spans_set(&narrow, span, false);
    assert_true(narrow_spans_any(&narrow));
    assert_int_equal(narrow_spans_write(&narrow, RPC_SPANS_MAX, written), 1);
    assert_int_equal(written[0], RPC_SPANS_MAX - 1);
}

static void test_wrong_lists_are_refused(void **state)
{
    static const struct {
        uint32_t numbers[2];
        size_t count;
    } wrong[] = {
        { { 5 }, 1 },             /* no such span */
        { { UINT32_MAX }, 1 },    /* nor this */
        { { 1 }, 1 },             /* 5 bytes */
        { { 4 }, 1 },             /* 12 bytes */
        { { 3 }, 1 },             /* at 7 */
        { { 2, 0 }, 2 },          /* not ascending */
        { { 2, 2 }, 2 },          /* twice the same */
        { { 0, UINT32_MAX }, 2 }, /* the second one is wrong */
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
        cmocka_unit_test(test_one_large_id_anywhere_is_seen),
        cmocka_unit_test(test_a_list_comes_back),
        cmocka_unit_test(test_the_last_span_of_a_full_list_may_be_narrow),
        cmocka_unit_test(test_wrong_lists_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
