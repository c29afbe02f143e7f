/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a push changes the rows of its lookup, or of its ids, as their optimizer says. Each
 * row changes once, by the sum of its gradients in the batch's order, to the bit. The number of
 * lanes and the place of the rows must not matter. */
#include "tests/unit/engine/ops/push_fixture.h"

/* Pushes gradients of ids, without a ticket. Each bag has one id. */
static void push_rows(struct pushing *t, struct bags *bags)
{
    struct client *const client = &t->p.client;
    struct op_push_segment *const segments = (void *)client_segment(client, client->submitted);
    uint8_t *at = (uint8_t *)(segments + SEGMENTS);

    for (uint32_t s = 0; s < SEGMENTS; s++) {
        struct bags *const b = &bags[s];

        b->table = t->tables[below(t, TABLES)].handle;
        b->mode = EMBTIER_POOL_SUM;
        b->weighted = false;
        b->id_count = b->bag_count = below(t, BAGS_MOST);
        segments[s] = (struct op_push_segment){
            .table = b->table, .learning_rate = 0.02, .count = b->id_count, .dim = DIM
        };
        for (uint32_t i = 0; i < b->id_count; i++) {
            b->ids[i] = below(t, 3) ? below(t, TABLE_ROWS) : below(t, 20);
            b->offsets[i + 1] = i + 1;
        }
        for (uint32_t i = 0; i < b->id_count * DIM; i++)
            t->gradients[s][i] = some_float(t);
        segments[s].ids_offset = client_offset(client, at);
        memcpy(at, b->ids, b->id_count * sizeof(b->ids[0]));
        at += b->id_count * sizeof(b->ids[0]);
        segments[s].gradients_offset = client_offset(client, at);
        memcpy(at, t->gradients[s], (size_t)b->id_count * DIM * sizeof(float));
        at += (size_t)b->id_count * DIM * sizeof(float);
    }
    *next_submission(t) =
        (struct op_submission){ .op = OP_PUSH,
                                .segment_count = SEGMENTS,
                                .segments_offset = client_offset(client, segments),
                                .step = ++t->step };
    assert_int_equal(submit_and_wait(t)->err, EMBTIER_OK);
    push_to_shadows(t, bags, NULL, 0.02);
}

/* ---- Tests ---- */

static void test_pushes_change_each_row_once_as_its_optimizer_says(void **state)
{
    for (size_t s = SHAPES_FIRST; s < ARRAY_LEN(shapes); s += SHAPES_STEP) {
        struct pushing t;

        pushing_start(&t, *state, &shapes[s]);
        for (uint32_t round = 0; round < rounds_of(40); round++) {
            const bool is_max = round % 3 == 0;
            const uint32_t other = round / 2 % 2; /* both segments in one table, or in two */
            struct op_pool_segment looked_up[SEGMENTS], *segments;
            uint64_t ticket;

            make_bags(&t, &t.p.bags[0], 0, is_max, round % 4 ? TABLE_ROWS : 500, 1 + round * 20);
            make_bags(&t, &t.p.bags[1], other, is_max, TABLE_ROWS, below(&t, 600));
            ticket = look_up(&t, t.p.bags, &segments);
            memcpy(looked_up, segments, sizeof(looked_up));
            lay_push_out(&t, t.p.bags, looked_up, ticket);
            assert_int_equal(submit_and_wait(&t)->err, EMBTIER_OK);
            push_to_shadows(&t, t.p.bags, looked_up, 0.01);
            if (round % 5 == 0)
                push_rows(&t, t.p.bags);
        }
        assert_rows(&t);
        pushing_stop(&t);
    }
}

/* Several lookups, then their pushes in another order, are all in flight at once. A request behind
 * a push sees its effect. */
static void test_pushes_and_what_comes_after_them_are_in_order(void **state)
{
    for (size_t s = SHAPES_FIRST; s < ARRAY_LEN(shapes); s += SHAPES_STEP) {
        enum { AT_ONCE = 3 };
        struct pushing t;
        struct bags *bags;

        pushing_start(&t, *state, &shapes[s]);
        bags = calloc(AT_ONCE * SEGMENTS, sizeof(*bags));
        assert_non_null(bags);
        for (uint32_t round = 0; round < 10; round++) {
            struct op_pool_segment *segments[AT_ONCE], looked_up[SEGMENTS];
            uint64_t tickets[AT_ONCE];

            for (uint32_t i = 0; i < AT_ONCE; i++) {
                for (uint32_t j = 0; j < SEGMENTS; j++)
                    make_bags(&t, &bags[i * SEGMENTS + j], j, false, 300, 100);
                tickets[i] = look_up(&t, bags + i * SEGMENTS, &segments[i]);
            }
            for (uint32_t i = AT_ONCE; i-- > 0;) {
                const uint32_t get = t.p.client.submitted + 1;
                const struct shadow *const shadow = &t.tables[0];
                const uint64_t id = bags[i * SEGMENTS].ids[0];

                memcpy(looked_up, segments[i], sizeof(looked_up));
                lay_push_out(&t, bags + i * SEGMENTS, looked_up, tickets[i]);
                client_publish(&t.p.client);
                client_ids(&t.p.client, get)[0] = id;
                client_submit_flags(&t.p.client, OP_GET, OP_FLAG_STATE, shadow->handle, 1);
                push_to_shadows(&t, bags + i * SEGMENTS, NULL, 0.01);
                assert_int_equal(client_wait(&t.p.client, get)->err, EMBTIER_OK);
                assert_memory_equal(client_rows(&t.p.client, get, 1), row_of(shadow, id),
                                    shadow->numbers * sizeof(float));
                assert_int_equal(client_wait(&t.p.client, get - 1)->err, EMBTIER_OK);
            }
        }
        assert_rows(&t);
        free(bags);
        pushing_stop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_pushes_change_each_row_once_as_its_optimizer_says),
        T(test_pushes_and_what_comes_after_them_are_in_order),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
