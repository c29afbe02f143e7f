/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a group's pushes equal, bit for bit, each member's gradients reduced alone and added
 * up in member order. A step that cannot be applied must be refused to all members, with no row
 * changed. */
#include "tests/unit/engine/ops/group_fixture.h"

/* Only member @m was at fault: the others learn that it was @m, and why. Then a step succeeds with
 * the ticket that member 0 still has. */
static void assert_refused_to_all(struct training *t, uint32_t m, enum embtier_err why,
                                  const uint32_t *numbers)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const struct op_completion *const done = answer(t, i, numbers[i]);

        assert_int_equal(done->err, i == m ? why : EMBTIER_GROUP_REFUSED);
        if (i == m)
            continue;
        assert_int_equal(done->value, m);
        assert_int_equal(done->limit, why);
    }
}

static void test_a_step_is_the_sum_of_its_members_reduced_one_by_one(void **state)
{
    for (size_t s = SHAPES_FIRST; s < ARRAY_LEN(shapes); s += SHAPES_STEP) {
        struct training *const t = calloc(1, sizeof(*t));
        struct group_stats stats;

        assert_non_null(t);
        training_start(t, *state, &shapes[s]);
        for (uint32_t step = 0; step < 12; step++)
            take_step(t, step % 3 ? TABLE_ROWS : 50, step % 4 ? 200 : 2);
        assert_rows(&t->p);
        groups_stats(t->groups, &stats);
        assert_int_equal(stats.steps, 12);
        assert_int_equal(stats.refused_steps, 0);
        training_stop(t);
        free(t);
    }
}

static void test_a_push_that_is_refused_is_refused_to_all(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    uint32_t numbers[MEMBERS] = { 0 };

    for (uint32_t at = 0; at < 2; at++) { /* before the others' pushes, then after them */
        struct op_push_segment *segments;

        if (at > 0)
            *submission_of(&t->p.p.client, t->p.p.client.submitted) = first;
        segments = lay_rows_out(t, 1, 50);
        ((float *)(client_region(&t->others[1]) + segments[1].gradients_offset))[5] = NAN;
        if (at == 0) {
            numbers[1] = send_push(t, 1);
            assert_int_equal(answer(t, 1, numbers[1])->err, EMBTIER_NONFINITE);
        }
        lay_rows_out(t, 2, 50);
        numbers[2] = send_push(t, 2);
        numbers[0] = send_push(t, 0);
        if (at > 0)
            numbers[1] = send_push(t, 1);
        assert_refused_to_all(t, 1, EMBTIER_NONFINITE, numbers);
    }
    assert_rows(&t->p);
    again(t, &first);
    end(t);
}

/* Each member's gradients for the row are finite, but their sum is not. */
static void test_a_step_that_would_ruin_a_row_is_refused_to_all_and_not_made(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    const struct shadow *const shadow = &t->p.tables[1];
    uint32_t numbers[MEMBERS] = { 0 };

    for (uint32_t i = 0; i < 2; i++) {
        *submission_of(&t->p.p.client, t->p.p.client.submitted) = first;
        for (uint32_t m = 1; m < MEMBERS; m++) {
            const struct op_push_segment *const segment = &lay_rows_out(t, m, 50)[1];
            uint8_t *const arena = client_region(&t->others[m]);

            *(uint64_t *)(arena + segment->ids_offset) = 49;
            *(float *)(arena + segment->gradients_offset) = 3e38f;
        }
        for (uint32_t m = 0; m < MEMBERS; m++)
            numbers[m] = send_push(t, m);
        for (uint32_t m = 0; m < MEMBERS; m++) {
            const struct op_completion *const done = answer(t, m, numbers[m]);

            assert_int_equal(done->err, EMBTIER_NONFINITE);
            assert_int_equal(done->segment, UINT32_MAX);
            assert_int_equal(done->value, shadow->handle >> 32);
            assert_int_equal(done->limit, 49);
        }
    }
    assert_rows(&t->p);
    again(t, &first);
    end(t);
}

/* One member is refused three times before the others push for the first time. Each refusal counts
 * as a round. */
static void test_refusals_are_rounds(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    uint32_t numbers[MEMBERS] = { 0 };

    for (uint32_t i = 0; i < 3; i++) {
        lay_rows_out(t, 2, 50)->dim = DIM + 1;
        assert_int_equal(answer(t, 2, send_push(t, 2))->err, EMBTIER_SHAPE);
    }
    lay_rows_out(t, 2, 50);
    numbers[2] = send_push(t, 2);
    for (uint32_t i = 0; i < 3; i++) {
        *submission_of(&t->p.p.client, t->p.p.client.submitted) = first;
        lay_rows_out(t, 1, 50);
        numbers[0] = send_push(t, 0);
        numbers[1] = send_push(t, 1);
        for (uint32_t m = 0; m < 2; m++)
            assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_GROUP_REFUSED);
    }
    assert_rows(&t->p);
    assert_false(client_is_done(&t->others[2], numbers[2]));
    *submission_of(&t->p.p.client, t->p.p.client.submitted) = first;
    lay_rows_out(t, 1, 50);
    numbers[0] = send_push(t, 0);
    numbers[1] = send_push(t, 1);
    for (uint32_t m = 0; m < MEMBERS; m++)
        assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_OK);
    step_to_shadows(t);
    end(t);
}

static void test_members_that_disagree_are_refused(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    uint32_t numbers[MEMBERS] = { 0 };

    /* They disagree on the step: one member is too late, then too early. */
    for (uint32_t i = 0; i < 2; i++) {
        *submission_of(&t->p.p.client, t->p.p.client.submitted) = first;
        lay_rows_out(t, 1, 50);
        lay_rows_out(t, 2, 50);
        submission_of(&t->others[2], t->others[2].submitted)->step += i ? 1 : -1ull;
        for (uint32_t m = 0; m < MEMBERS; m++)
            numbers[m] = send_push(t, m);
        assert_refused_to_all(t, 2, EMBTIER_GROUP_STEP, numbers);
        assert_int_equal(answer(t, 2, numbers[2])->limit, t->p.step);
    }
    /* They disagree on a table's learning rate. */
    *submission_of(&t->p.p.client, t->p.p.client.submitted) = first;
    lay_rows_out(t, 1, 50)[1].learning_rate = 0.02;
    lay_rows_out(t, 2, 50);
    push_all(t, EMBTIER_MISMATCH);
    assert_rows(&t->p);
    again(t, &first);
    end(t);
}

/* A request behind a push waits for the step, and sees its result. */
static void test_a_lookup_of_the_next_step_waits_for_this_one(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    struct client *const client = &t->others[1];
    const struct shadow *const shadow = &t->p.tables[1];
    uint32_t numbers[MEMBERS] = { 0 }, get;

    lay_rows_out(t, 1, 50);
    numbers[1] = send_push(t, 1);
    *client_ids(client, client->submitted) = t->ids[1][1][0];
    client_fill(client, client->submitted, OP_GET, 0, shadow->handle, 1);
    submission_of(client, client->submitted)->group = t->handles[1];
    submission_of(client, client->submitted)->step = t->p.step + 1;
    get = send_push(t, 1);
    lay_rows_out(t, 2, 50);
    numbers[2] = send_push(t, 2);
    usleep(20000);
    assert_false(client_is_done(client, get));
    numbers[0] = send_push(t, 0);
    for (uint32_t m = 0; m < MEMBERS; m++)
        assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_OK);
    step_to_shadows(t);
    assert_int_equal(answer(t, 1, get)->err, EMBTIER_OK);
    assert_memory_equal(client_rows(client, get, 1), row_of(shadow, t->ids[1][1][0]),
                        DIM * sizeof(float));
    /* A lookup for a step whose push has not been sent would wait for ever, so it is refused. */
    *client_ids(client, client->submitted) = 1;
    client_fill(client, client->submitted, OP_GET, 0, shadow->handle, 1);
    submission_of(client, client->submitted)->group = t->handles[1];
    submission_of(client, client->submitted)->step = t->p.step + 2;
    get = send_push(t, 1);
    assert_int_equal(answer(t, 1, get)->err, EMBTIER_GROUP_STEP);
    assert_int_equal(answer(t, 1, get)->limit, t->p.step + 1);
    end(t);
}

static void test_a_group_is_its_members_only(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    struct client guest = client_attach(&t->p.p.x, 4096);
    const struct client *const client = &t->others[1];
    uint64_t handle;

    /* Another member's handle, then a handle that does not exist. */
    for (uint32_t i = 0; i < 2; i++) {
        lay_rows_out(t, 1, 50);
        submission_of(client, client->submitted)->group = i ? t->handles[2] : 12;
        assert_int_equal(answer(t, 1, send_push(t, 1))->err, EMBTIER_NO_GROUP);
    }
    assert_int_equal(join_as(t, &guest, "g", MEMBERS, 2, 1, &handle), EMBTIER_GROUP_FULL);
    assert_int_equal(join_as(t, client, "g", MEMBERS, 2, 1, &handle), EMBTIER_EXISTS);
    assert_int_equal(join_as(t, client, "h", 2, 1, 4, &handle), EMBTIER_OK);
    assert_int_equal(join_as(t, &guest, "h", 2, 1, 4, &handle), EMBTIER_EXISTS);
    assert_int_equal(join_as(t, &guest, "h", 3, 0, 4, &handle), EMBTIER_MISMATCH);
    assert_int_equal(join_as(t, &guest, "h", 2, 0, 3, &handle), EMBTIER_MISMATCH);
    assert_int_equal(join_as(t, &guest, "h", 2, 2, 4, &handle), EMBTIER_INVALID);
    assert_int_equal(join_as(t, &guest, "i", 0, 0, 0, &handle), EMBTIER_INVALID);
    assert_int_equal(join_as(t, &guest, "i", 257, 0, 0, &handle), EMBTIER_INVALID);
    assert_int_equal(join_as(t, &guest, "a b", 2, 0, 0, &handle), EMBTIER_INVALID);
    assert_int_equal(join_as(t, &guest, "i", 2, 0, UINT64_MAX, &handle), EMBTIER_INVALID);
    for (uint32_t i = 0; i < SESSION_GROUPS_MAX; i++) {
        char name[16];

        snprintf(name, sizeof(name), "many-%u", i);
        assert_int_equal(join_as(t, &guest, name, 2, 0, 0, &handle), EMBTIER_OK);
    }
    assert_int_equal(join_as(t, &guest, "h", 2, 0, 4, &handle), EMBTIER_TOO_LARGE);
    client_detach(&guest);
    again(t, &first);
    end(t);
}

/* First all members push nothing, then a step follows as usual. */
static void test_empty_pushes(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);

    for (uint32_t m = 0; m < MEMBERS; m++) {
        const struct client *const client = member_client(t, m);

        *submission_of(client, client->submitted) = (struct op_submission){
            .op = OP_PUSH,
            .segments_offset = client_offset(client, client_segment(client, client->submitted)),
            .step = t->p.step,
            .group = t->handles[m]
        };
    }
    push_all(t, EMBTIER_OK);
    assert_rows(&t->p);
    first.step = ++t->p.step;
    again(t, &first);
    end(t);
}

/* A waiting push does not keep a table from being dropped. The step is then refused. */
static void test_a_table_is_dropped_while_a_push_waits(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    struct err_msg msg = { { 0 } };
    struct table_info info;
    uint32_t numbers[MEMBERS] = { 0 };

    for (uint32_t i = 0; i < 2; i++) {
        if (i == 0)
            numbers[0] = send_push(t, 0);
        else
            lay_rows_out(t, 0, 50);
        submission_of(&t->p.p.client, t->p.p.client.submitted)->segment_count = 1;
        for (uint32_t m = 1; m < MEMBERS; m++) {
            lay_rows_out(t, m, 50);
            submission_of(&t->others[m], t->others[m].submitted)->segment_count = 1;
        }
        if (i == 0) { /* before its push arrives, the drop would wait */
            await_arrival(t, 0);
            must(tables_drop(t->p.p.x.tables, t->p.tables[1].spec.name, NULL, &info, &msg), &msg);
        } else {
            numbers[0] = send_push(t, 0);
        }
        for (uint32_t m = 1; m < MEMBERS; m++)
            numbers[m] = send_push(t, m);
        for (uint32_t m = 0; m < MEMBERS; m++)
            assert_int_equal(answer(t, m, numbers[m])->err, i ? EMBTIER_OK : EMBTIER_NO_TABLE);
    }
    training_stop(t);
    free(t);
}

static void test_no_more_waits_than_there_is_room_for(void **state)
{
    struct training *const t = calloc(1, sizeof(*t));
    uint32_t number;

    assert_non_null(t);
    t->waiting_bytes_max = 1;
    training_start(t, *state, &shapes[0]);
    t->p.step = 1;
    lay_rows_out(t, 1, 50);
    number = send_push(t, 1);
    assert_int_equal(answer(t, 1, number)->err, EMBTIER_BUSY);
    training_stop(t);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_a_step_is_the_sum_of_its_members_reduced_one_by_one),
        T(test_a_push_that_is_refused_is_refused_to_all),
        T(test_a_step_that_would_ruin_a_row_is_refused_to_all_and_not_made),
        T(test_refusals_are_rounds),
        T(test_members_that_disagree_are_refused),
        T(test_a_lookup_of_the_next_step_waits_for_this_one),
        T(test_a_group_is_its_members_only),
        T(test_empty_pushes),
        T(test_a_table_is_dropped_while_a_push_waits),
        T(test_no_more_waits_than_there_is_room_for),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
