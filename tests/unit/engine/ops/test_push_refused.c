/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a malformed push is refused with the error that says why, with no row changed, and
 * that tickets keep their promises. Builds that lack a check of daemon/engine/ops/push/ or
 * segment_copies.c (meson.build) must fail this test. */
#include "tests/unit/engine/ops/push_fixture.h"

#include <math.h>

/* The refusal names the gradient itself, not the row that the update would ruin. */
static void assert_gradient_is_refused(struct pushing *t, uint32_t segment, uint64_t row)
{
    const uint32_t number = t->p.client.submitted;

    assert_push_ends_with(t, EMBTIER_NONFINITE, segment);
    assert_int_equal(client_wait(&t->p.client, number)->value, row);
    assert_true(client_wait(&t->p.client, number)->limit != OP_LIMIT_OF_UPDATE);
}

static void test_what_is_out_of_place_is_refused_and_changes_nothing(void **state)
{
    struct pushing t;
    uint64_t end;

    pushing_start(&t, *state, &shapes[1]);
    end = t.p.client.session->channel.region_bytes;
    good_push(&t);
    next_submission(&t)->flags = 1;
    assert_push_ends_with(&t, EMBTIER_UNSUPPORTED, UINT32_MAX);
    good_push(&t);
    next_submission(&t)->step = 0;
    assert_push_ends_with(&t, EMBTIER_INVALID, UINT32_MAX);
    good_push(&t);
    next_submission(&t)->step = OPTIMIZER_STEP_MAX + 1;
    assert_push_ends_with(&t, EMBTIER_INVALID, UINT32_MAX);
    good_rows(&t);
    next_submission(&t)->segment_count = OP_POOL_SEGMENTS_MAX + 1;
    assert_push_ends_with(&t, EMBTIER_TOO_LARGE, UINT32_MAX);
    good_push(&t);
    next_submission(&t)->segments_offset = end - sizeof(struct op_push_segment);
    assert_push_ends_with(&t, EMBTIER_OFFSET_RANGE, UINT32_MAX);
    good_push(&t);
    next_submission(&t)->segment_count = 1;
    assert_push_ends_with(&t, EMBTIER_SHAPE, UINT32_MAX);
    good_rows(&t)[1].count = 1 << 20;
    assert_push_ends_with(&t, EMBTIER_TOO_LARGE, UINT32_MAX);
    good_push(&t)[1].flags = 1;
    assert_push_ends_with(&t, EMBTIER_UNSUPPORTED, 1);
    good_push(&t)[1].learning_rate = NAN;
    assert_push_ends_with(&t, EMBTIER_INVALID, 1);
    good_push(&t)[1].table = t.tables[0].handle;
    assert_push_ends_with(&t, EMBTIER_MISMATCH, 1);
    good_push(&t)[1].count = 1;
    assert_push_ends_with(&t, EMBTIER_SHAPE, 1);
    good_push(&t)[1].ids_offset = 4096;
    assert_push_ends_with(&t, EMBTIER_INVALID, 1);
    good_push(&t)[1].weights_offset = t.p.client.session->channel.payload;
    assert_push_ends_with(&t, EMBTIER_UNSUPPORTED, 1);
    good_push(&t)[0].weights_offset = end - 3 * sizeof(float);
    assert_push_ends_with(&t, EMBTIER_OFFSET_RANGE, 0);
    good_rows(&t)[0].weights_offset = 4096;
    assert_push_ends_with(&t, EMBTIER_UNSUPPORTED, 0);
    good_rows(&t)[1].ids_offset = end - sizeof(uint64_t);
    assert_push_ends_with(&t, EMBTIER_OFFSET_RANGE, 1);
    good_rows(&t)[1].table += UINT64_C(1) << 32;
    assert_push_ends_with(&t, EMBTIER_NO_TABLE, 1);
    good_rows(&t)[1].table = t.p.table; /* has no optimizer */
    assert_push_ends_with(&t, EMBTIER_UNSUPPORTED, 1);
    good_push(&t)[1].dim = DIM - 1;
    assert_push_ends_with(&t, EMBTIER_SHAPE, 1);
    good_push(&t)[1].gradients_offset = end - 2 * DIM * sizeof(float) + 4;
    assert_push_ends_with(&t, EMBTIER_OFFSET_RANGE, 1);
    good_rows(&t)[1].gradients_offset = 0;
    assert_push_ends_with(&t, EMBTIER_OFFSET_RANGE, 1);
    good_rows(&t)[1].table = t.tables[0].handle;
    ((struct op_push_segment *)client_segment(&t.p.client, t.p.client.submitted))[1].learning_rate =
        1;
    assert_push_ends_with(&t, EMBTIER_INVALID, 1);
    ((uint64_t *)(good_rows(&t) + SEGMENTS + 1))[1] = TABLE_ROWS;
    assert_push_ends_with(&t, EMBTIER_ID_RANGE, 1);
    t.has_infinite_weight = true;
    good_push(&t);
    assert_push_ends_with(&t, EMBTIER_NONFINITE, 0);
    t.has_infinite_weight = false;
    gradient_at(&t, &good_push(&t)[1])[2 * DIM - 1] = NAN;
    assert_gradient_is_refused(&t, 1, 1);
    gradient_at(&t, &good_rows(&t)[0])[0] = INFINITY;
    assert_gradient_is_refused(&t, 0, 0);
    assert_rows(&t);
    /* Service goes on. */
    for (uint32_t i = 0; i < 2; i++) {
        good_push(&t);
        assert_push_ends_with(&t, EMBTIER_OK, UINT32_MAX);
        push_to_shadows(&t, t.p.bags, NULL, 0.01);
    }
    assert_rows(&t);
    pushing_stop(&t);
}

/* The sum for a row that occurs twice overflows, whatever the optimizer. */
static void test_a_push_that_would_ruin_a_row_changes_none(void **state)
{
    for (size_t n = 0; n < ARRAY_LEN(shapes); n++) {
        struct pushing t;

        pushing_start(&t, *state, &shapes[n]);
        for (uint32_t s = 0; s < SEGMENTS; s++) {
            struct op_push_segment *const segments = good_rows(&t);
            const uint32_t number = t.p.client.submitted;

            gradient_at(&t, &segments[s])[1] = gradient_at(&t, &segments[s])[DIM + 1] = 3e38f;
            assert_push_ends_with(&t, EMBTIER_NONFINITE, s);
            assert_int_equal(client_wait(&t.p.client, number)->value, 0);
            assert_true(client_wait(&t.p.client, number)->limit == OP_LIMIT_OF_UPDATE);
            assert_rows(&t);
        }
        good_push(&t);
        assert_push_ends_with(&t, EMBTIER_OK, UINT32_MAX);
        push_to_shadows(&t, t.p.bags, NULL, 0.01);
        assert_rows(&t);
        pushing_stop(&t);
    }
}

static void release(struct pushing *t, uint64_t ticket)
{
    *next_submission(t) = (struct op_submission){ .op = OP_RELEASE, .ticket = ticket };
}

static void test_a_ticket_is_good_once_and_for_its_client(void **state)
{
    struct pushing t, other;
    uint64_t ticket;

    pushing_start(&t, *state, &shapes[1]);
    other = t;
    other.p.client = client_attach(&t.p.x, SLOT_BYTES);
    good_push(&other);
    release(&t, next_submission(&other)->ticket);
    assert_push_ends_with(&t, EMBTIER_NO_TICKET, UINT32_MAX);
    good_push(&t);
    ticket = next_submission(&t)->ticket;
    release(&other, next_submission(&other)->ticket);
    assert_push_ends_with(&other, EMBTIER_OK, UINT32_MAX);
    assert_push_ends_with(&t, EMBTIER_OK, UINT32_MAX);
    push_to_shadows(&t, t.p.bags, NULL, 0.01);
    release(&t, ticket);
    assert_push_ends_with(&t, EMBTIER_TICKET_USED, UINT32_MAX);
    release(&t, ticket + 1);
    assert_push_ends_with(&t, EMBTIER_NO_TICKET, UINT32_MAX);
    good_push(&t);
    next_submission(&t)->ticket = ticket;
    assert_push_ends_with(&t, EMBTIER_TICKET_USED, UINT32_MAX);
    /* A prefetch's ticket is not a lookup's, nor the reverse. */
    good_push(&t);
    ticket = next_submission(&t)->ticket;
    next_submission(&t)->prefetch = ticket;
    assert_push_ends_with(&t, EMBTIER_NO_TICKET, UINT32_MAX);
    assert_rows(&t);
    client_detach(&other.p.client);
    pushing_stop(&t);
}

static void test_a_ticket_expires(void **state)
{
    struct lanes_shape shape = shapes[0];
    struct pushing t;
    uint64_t ticket;

    shape.ticket_ns = UINT64_C(50) * 1000 * 1000;
    pushing_start(&t, *state, &shape);
    good_push(&t);
    ticket = next_submission(&t)->ticket;
    while (fixture_stats(&t.p.x).expired_tickets == 0)
        usleep(200);
    next_submission(&t)->ticket = ticket;
    assert_push_ends_with(&t, EMBTIER_TICKET_EXPIRED, UINT32_MAX);
    release(&t, ticket);
    assert_push_ends_with(&t, EMBTIER_TICKET_EXPIRED, UINT32_MAX);
    assert_rows(&t);
    pushing_stop(&t);
}

/* A client that never pushes gets no more tickets than the memory allows. The memory is free when
 * the client is gone. */
static void test_tickets_have_a_budget(void **state)
{
    struct pushing t;
    const struct op_completion *done;
    uint32_t tickets = 0;

    pushing_start(&t, *state, &shapes[0]);
    for (uint32_t client = 0; client < 2; client++) {
        uint32_t got = 0;

        for (;; got++) {
            for (uint32_t s = 0; s < SEGMENTS; s++) {
                t.p.bags[s] = (struct bags){ .table = t.tables[s].handle,
                                             .mode = EMBTIER_POOL_SUM,
                                             .id_count = IDS_MOST,
                                             .bag_count = 1 };
                t.p.bags[s].offsets[1] = IDS_MOST;
            }
            lay_bags_out(&t.p, t.p.bags, SEGMENTS);
            next_submission(&t)->flags = OP_FLAG_TICKET;
            done = submit_and_wait(&t);
            if (done->err != EMBTIER_OK)
                break;
        }
        assert_int_equal(done->err, EMBTIER_TICKETS_FULL);
        assert_true(done->value > 2 * IDS_MOST * 20 && done->value < 2 * IDS_MOST * 22);
        /* A user gets three quarters of the memory, and one of its sessions three quarters of
         * that. */
        assert_true(got >= 10 && got <= 12);
        assert_true(client == 0 || got == tickets);
        tickets = got;
        client_detach(&t.p.client);
        t.p.client = client_attach(&t.p.x, SLOT_BYTES);
    }
    pushing_stop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_what_is_out_of_place_is_refused_and_changes_nothing),
        T(test_a_push_that_would_ruin_a_row_changes_none),
        T(test_a_ticket_is_good_once_and_for_its_client),
        T(test_a_ticket_expires),
        T(test_tickets_have_a_budget),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
