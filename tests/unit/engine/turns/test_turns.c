/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that flows get equal shares whatever their turns cost, and that none is passed over. A flow
 * must not be paid for time when it wanted nothing. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <string.h>

#include "base/macros.h"
#include "daemon/engine/turns/turns.h"

#define FLOWS 50

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Flows whose turns each cost a fixed amount, or a random amount up to that. */
struct shared {
    struct turns turns;
    struct turn_flow flows[FLOWS];
    uint64_t costs[FLOWS];
    uint64_t served[FLOWS];
    bool at_random;
    uint64_t random;
};

static uint32_t index_of(const struct shared *x, const struct turn_flow *flow)
{
    return (uint32_t)(flow - x->flows);
}

/* Serves one turn, after which the flow wants the next. Returns the flow's index. */
static uint32_t turn(struct shared *x)
{
    struct turn_flow *const flow = turns_next(&x->turns);
    const uint32_t i = index_of(x, flow);
    const uint64_t cost = x->at_random ? 1 + next_random(&x->random) % x->costs[i] : x->costs[i];

    assert_non_null(flow);
    turns_charge(&x->turns, flow, cost);
    turns_add(&x->turns, flow, 0);
    x->served[i] += cost;
    return i;
}

static void want(struct shared *x, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        turns_add(&x->turns, &x->flows[i], 0);
}

static void test_two_get_half_of_the_cost_each(void **state)
{
    struct shared x = { .costs = { 2000, 7 } };

    (void)state;
    want(&x, 2);
    for (uint32_t i = 0; i < 100000; i++) {
        (void)turn(&x);
        assert_true(x.served[0] <= x.served[1] + 2000 && x.served[1] <= x.served[0] + 2000);
    }
    assert_true(x.served[0] > 300000);
}

static void test_many_get_the_same_whatever_their_turns_cost(void **state)
{
    struct shared x = { .at_random = true, .random = 12345 };
    uint64_t most = 0, least = UINT64_MAX;

    (void)state;
    for (uint32_t i = 0; i < FLOWS; i++)
        x.costs[i] = 1 + (uint64_t)i * i;
    want(&x, FLOWS);
    for (uint32_t i = 0; i < 500000; i++)
        (void)turn(&x);
    for (uint32_t i = 0; i < FLOWS; i++) {
        most = MAX(most, x.served[i]);
        least = MIN(least, x.served[i]);
    }
    assert_true(least > 0 && most - least <= 2 * x.costs[FLOWS - 1]);
}

static void test_a_flow_that_asks_for_little_waits_for_one_turn_of_another(void **state)
{
    struct shared x = { .costs = { 1, 2000 } };

    (void)state;
    want(&x, 2);
    turns_remove(&x.turns, &x.flows[0]);
    for (uint32_t i = 0; i < 1000; i++) { /* it asks again in the middle of the other's turn */
        assert_int_equal(turn(&x), 1);
        turns_add(&x.turns, &x.flows[0], 0);
        assert_int_equal(turn(&x), 0);
        turns_remove(&x.turns, &x.flows[0]);
    }
}

/* The flow's turns cost a tenth of the others', and it asks again one turn after each. It then
 * waits for a tenth of the others, not for all. */
static void test_a_flow_that_asks_for_little_waits_for_as_little(void **state)
{
    struct shared x = { .at_random = true, .random = 4711 };
    uint32_t turns = 0;
    uint32_t own = 0;

    (void)state;
    for (uint32_t i = 0; i < FLOWS; i++)
        x.costs[i] = 2000;
    x.costs[0] = 200;
    want(&x, FLOWS);
    for (; own < 1000; turns++) {
        if (turn(&x) != 0)
            continue;
        own++;
        turns_remove(&x.turns, &x.flows[0]);
        (void)turn(&x);
        turns_add(&x.turns, &x.flows[0], 0);
    }
    assert_in_range(turns, 1000 * FLOWS / 20, 1000 * FLOWS / 7);
}

/* The result is the same if all others march in step, provided each flow announces its cost. */
static void test_a_flow_that_states_a_small_cost_is_before_the_others(void **state)
{
    struct shared x = { .costs = { 0 } };
    uint32_t own = 0;

    (void)state;
    for (uint32_t i = 0; i < FLOWS; i++)
        turns_add(&x.turns, &x.flows[i], i == 0 ? 200 : 2000);
    for (uint32_t i = 0; i < 10000; i++) {
        struct turn_flow *const flow = turns_next(&x.turns);
        const uint64_t cost = index_of(&x, flow) == 0 ? 200 : 2000;

        own += cost == 200;
        turns_charge(&x.turns, flow, cost);
        turns_add(&x.turns, flow, cost);
    }
    assert_in_range(own, 10000 / 8, 10000 / 5); /* ten turns per turn of each other flow */
}

/* Each new flow begins at the current virtual time, and never returns. */
static void test_new_flows_without_end_keep_no_flow_waiting_for_ever(void **state)
{
    struct turns turns = { 0 };
    struct turn_flow large = { 0 };
    uint64_t passed = 0;

    (void)state;
    turns_add(&turns, &large, 10000);
    for (;; passed += 10) {
        struct turn_flow fresh = { 0 };
        struct turn_flow *first;

        turns_add(&turns, &fresh, 10);
        first = turns_next(&turns);
        if (first == &large)
            break;
        turns_charge(&turns, first, 10);
        assert_true(passed < (uint64_t)2 * 10000 * TURNS_SHARERS);
    }
    assert_true(passed > 10000);
}

static void test_a_flow_that_wanted_nothing_is_not_paid_for_that(void **state)
{
    struct shared x = { .costs = { 100, 100 } };

    (void)state;
    turns_add(&x.turns, &x.flows[0], 0);
    for (uint32_t i = 0; i < 10000; i++)
        (void)turn(&x);
    turns_add(&x.turns, &x.flows[1], 0);
    x.served[0] = 0;
    for (uint32_t i = 0; i < 100; i++)
        (void)turn(&x);
    assert_in_range(x.served[0], 4900, 5100);
}

/* Work done for a flow outside its turns counts too, whether or not it wants a turn then. */
static void test_what_is_charged_between_turns_counts(void **state)
{
    struct shared x = { .costs = { 100, 100 } };

    (void)state;
    want(&x, 2);
    for (uint32_t i = 0; i < 1000; i++) {
        (void)turn(&x);
        if (i % 2)
            continue;
        turns_charge(&x.turns, &x.flows[0], 50);
        x.served[0] += 50;
    }
    assert_true(x.served[0] <= x.served[1] + 200 && x.served[1] <= x.served[0] + 200);
}

static void test_all_are_even_when_no_flow_is_left(void **state)
{
    struct shared x = { .costs = { 100, 100 } };

    (void)state;
    want(&x, 2);
    turns_charge(&x.turns, &x.flows[0], 1000000);
    turns_remove(&x.turns, &x.flows[0]);
    turns_remove(&x.turns, &x.flows[1]);
    assert_null(turns_next(&x.turns));
    want(&x, 2);
    for (uint32_t i = 0; i < 100; i++)
        (void)turn(&x);
    assert_in_range(x.served[0], 4900, 5100);
}

/* Compares with the plainest equivalent: a linear search for the least due. */
static void test_it_is_always_the_one_furthest_behind(void **state)
{
    struct shared x = { .random = 99 };
    bool wants[FLOWS] = { false };

    (void)state;
    for (uint32_t round = 0; round < 200000; round++) {
        const uint32_t i = (uint32_t)(next_random(&x.random) % FLOWS);
        struct turn_flow *const flow = &x.flows[i];
        uint64_t least = UINT64_MAX;

        switch (next_random(&x.random) % 4) {
        case 0:
        case 1:
            turns_add(&x.turns, flow, 0);
            wants[i] = true;
            break;
        case 2:
            turns_charge(&x.turns, flow, next_random(&x.random) % 1000);
            break;
        default:
            turns_remove(&x.turns, flow);
            wants[i] = false;
            break;
        }
        assert_int_equal(turns_has(flow), wants[i]);
        for (uint32_t j = 0; j < FLOWS; j++)
            if (wants[j])
                least = MIN(least, x.flows[j].due);
        if (round % 3 == 0 && least != UINT64_MAX) {
            struct turn_flow *const first = turns_next(&x.turns);

            assert_non_null(first);
            assert_int_equal(first->due, least);
            assert_true(wants[index_of(&x, first)]);
            wants[index_of(&x, first)] = false;
        } else if (least == UINT64_MAX) {
            assert_null(turns_first(&x.turns));
            assert_true(turns_is_empty(&x.turns));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_get_half_of_the_cost_each),
        cmocka_unit_test(test_many_get_the_same_whatever_their_turns_cost),
        cmocka_unit_test(test_a_flow_that_asks_for_little_waits_for_one_turn_of_another),
        cmocka_unit_test(test_a_flow_that_asks_for_little_waits_for_as_little),
        cmocka_unit_test(test_a_flow_that_states_a_small_cost_is_before_the_others),
        cmocka_unit_test(test_new_flows_without_end_keep_no_flow_waiting_for_ever),
        cmocka_unit_test(test_a_flow_that_wanted_nothing_is_not_paid_for_that),
        cmocka_unit_test(test_what_is_charged_between_turns_counts),
        cmocka_unit_test(test_all_are_even_when_no_flow_is_left),
        cmocka_unit_test(test_it_is_always_the_one_furthest_behind),
    };

    return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
