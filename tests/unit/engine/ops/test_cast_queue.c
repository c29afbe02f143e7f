/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that sessions share a caster by the number of pairs, and that each session's groups go
 * oldest first. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "base/macros.h"
#include "daemon/engine/ops/tickets/cast_queue.h"
#include "daemon/engine/ops/tickets/ticket.h"

#define LARGE UINT32_C(1000000)

static void put(struct cast_queue *queue, struct cast_line *line, struct ticket_group *groups,
                uint32_t count, uint32_t id_count)
{
    for (uint32_t i = 0; i < count; i++) {
        groups[i].id_count = id_count;
        cast_queue_put(queue, line, &groups[i]);
    }
}

static void test_groups_of_a_session_are_in_their_order(void **state)
{
    struct cast_queue queue;
    struct cast_line line = { .first = NULL };
    struct ticket_group groups[5] = { { .ticket = NULL } };

    (void)state;
    cast_queue_init(&queue);
    for (uint32_t round = 0; round < 2; round++) { /* the queue is empty in between */
        put(&queue, &line, groups, ARRAY_LEN(groups), LARGE);
        for (uint32_t i = 0; i < ARRAY_LEN(groups); i++)
            assert_ptr_equal(cast_queue_take(&queue), &groups[i]);
        assert_null(line.first);
        assert_true(turns_is_empty(&queue.turns));
    }
    cast_queue_destroy(&queue);
}

static void test_small_groups_pass_the_large_ones_of_others(void **state)
{
    struct cast_queue queue;
    struct cast_line lines[5] = { { .first = NULL } };
    struct ticket_group large[4][3] = { { { .ticket = NULL } } };
    struct ticket_group small[300] = { { .ticket = NULL } };

    (void)state;
    cast_queue_init(&queue);
    for (uint32_t i = 0; i < ARRAY_LEN(large); i++)
        put(&queue, &lines[i], large[i], ARRAY_LEN(large[i]), LARGE);
    for (uint32_t i = 0; i < ARRAY_LEN(large); i++) /* each has had one */
        (void)cast_queue_take(&queue);
    put(&queue, &lines[4], small, ARRAY_LEN(small), 1000);
    for (uint32_t i = 0; i < ARRAY_LEN(small); i++)
        assert_ptr_equal(cast_queue_take(&queue), &small[i]);
    for (uint32_t i = 0; i < 2 * ARRAY_LEN(large); i++)
        assert_int_equal(cast_queue_take(&queue)->id_count, LARGE);
    assert_true(turns_is_empty(&queue.turns));
    cast_queue_destroy(&queue);
}

static void test_sessions_that_ask_for_much_get_the_same(void **state)
{
    struct cast_queue queue;
    struct cast_line lines[2] = { { .first = NULL } };
    struct ticket_group halves[200] = { { .ticket = NULL } }, wholes[200] = { { .ticket = NULL } };
    uint64_t pairs[2] = { 0 };

    (void)state;
    cast_queue_init(&queue);
    put(&queue, &lines[0], halves, ARRAY_LEN(halves), LARGE / 2);
    put(&queue, &lines[1], wholes, ARRAY_LEN(wholes), LARGE);
    for (uint32_t i = 0; i < ARRAY_LEN(wholes); i++) {
        const struct ticket_group *const group = cast_queue_take(&queue);

        pairs[group->id_count == LARGE] += group->id_count;
    }
    assert_in_range(pairs[0], pairs[1] - 2 * LARGE, pairs[1] + 2 * LARGE);
    while (!turns_is_empty(&queue.turns))
        (void)cast_queue_take(&queue);
    cast_queue_destroy(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_of_a_session_are_in_their_order),
        cmocka_unit_test(test_small_groups_pass_the_large_ones_of_others),
        cmocka_unit_test(test_sessions_that_ask_for_much_get_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
