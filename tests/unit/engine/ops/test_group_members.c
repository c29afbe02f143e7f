/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that no member waits for one that is gone, late or far ahead, and that each step is then
 * made whole or not at all. */
#include "tests/unit/engine/ops/group_fixture.h"

/* The linker puts this in place of the readers' function. */
enum embtier_err __real_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg);
enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg);

static _Atomic bool reads_wait;

enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg)
{
    while (atomic_load(&reads_wait))
        usleep(100);
    return __real_store_read(store, shard, rows, count, msg);
}

static void call_nothing(struct lane *lane, void *argument)
{
    (void)lane;
    (void)argument;
}

/* Ends the session's process. When this returns, the lane has heard of it; the lane finishes the
 * steps that the session leads. */
static void die(struct training *t, const struct session *session)
{
    struct lane *const home = t->p.p.x.lanes[session->home];

    atomic_store(&((struct session *)session)->gone, true);
    lane_detach(home, (struct session *)session);
    lane_call(home, call_nothing, NULL);
}

/* All members push a row that must be read for its trial. With their gradients the row stays
 * finite, or does not. The others are answered as if the leader were still there. */
static void test_a_leader_that_dies_while_rows_are_tried(void **state)
{
    for (uint32_t fails = 0; fails < 2; fails++) {
        struct op_submission first;
        struct training *const t = begin_with(state, &shapes[fails ? 1 : 3], &first);
        struct client *const leader = &t->p.p.client;
        const uint64_t slot_bytes = leader->slot_bytes;
        uint32_t numbers[MEMBERS] = { 0 };

        for (uint32_t m = 1; m < MEMBERS; m++) {
            const struct op_push_segment *const segment = &lay_rows_out(t, m, 50)[1];
            uint8_t *const arena = client_region(&t->others[m]);
            const float gradient = fails ? 3e38f : 1e38f;

            t->ids[m][1][0] = *(uint64_t *)(arena + segment->ids_offset) = TABLE_ROWS - 1;
            t->gradients[m][1][0] = *(float *)(arena + segment->gradients_offset) = gradient;
        }
        atomic_store(&reads_wait, true);
        for (uint32_t m = 0; m < MEMBERS; m++)
            numbers[m] = send_push(t, m);
        await_stage(t, 0, PUSH_TRYING);
        die(t, leader->session);
        for (uint32_t m = 1; m < MEMBERS; m++)
            assert_false(client_is_done(&t->others[m], numbers[m]));
        atomic_store(&reads_wait, false);
        for (uint32_t m = 1; m < MEMBERS; m++)
            assert_int_equal(answer(t, m, numbers[m])->err, fails ? EMBTIER_NONFINITE : EMBTIER_OK);
        fixture_await_mail(&t->p.p.x, &leader->session->gone_message);
        groups_forget(leader->session);
        client_free(leader);
        if (!fails)
            step_to_shadows(t);
        for (uint32_t m = 1; m < MEMBERS; m++) {
            lay_rows_out(t, m, 50);
            numbers[m] = send_push(t, m);
            assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_GROUP_BROKEN);
            assert_int_equal(answer(t, m, numbers[m])->value, 0);
        }
        *leader = client_attach(&t->p.p.x, slot_bytes);
        end(t);
    }
}

/* The group gives up a member that is refused without end while the others do not come. */
static void test_a_member_far_ahead_of_the_others_breaks_the_group(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    const uint32_t waiting = send_push(t, 0);

    for (uint32_t i = 0; i < OP_SLOTS_MAX; i++) {
        lay_rows_out(t, 2, 50)->dim = DIM + 1;
        assert_int_equal(answer(t, 2, send_push(t, 2))->err, EMBTIER_SHAPE);
    }
    assert_false(client_is_done(&t->p.p.client, waiting));
    lay_rows_out(t, 2, 50)->dim = DIM + 1;
    assert_int_equal(answer(t, 2, send_push(t, 2))->err, EMBTIER_SHAPE);
    assert_int_equal(answer(t, 0, waiting)->err, EMBTIER_GROUP_BROKEN);
    assert_int_equal(answer(t, 0, waiting)->value, 2);
    end(t);
}

static void test_a_member_that_goes_breaks_the_group(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    uint32_t numbers[MEMBERS] = { 0 };

    lay_rows_out(t, 2, 50);
    numbers[0] = send_push(t, 0);
    numbers[2] = send_push(t, 2);
    leave(t, 1);
    for (uint32_t m = 0; m < MEMBERS; m += 2) {
        assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_GROUP_BROKEN);
        assert_int_equal(answer(t, m, numbers[m])->value, 1);
    }
    assert_rows(&t->p);
    lay_rows_out(t, 2, 50);
    assert_int_equal(answer(t, 2, send_push(t, 2))->err, EMBTIER_GROUP_BROKEN);
    /* The group's name is free, and the step has not moved. */
    t->others[1] = client_attach(&t->p.p.x, UINT64_C(1) << 20);
    for (uint32_t m = 0; m < MEMBERS; m++)
        join(t, m, t->p.step - 1);
    first.group = t->handles[0];
    again(t, &first);
    end(t);
}

static void test_a_member_that_leaves_keeps_its_session_and_joins_anew(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    const struct session *const session = member_client(t, 1)->session;
    struct err_msg msg = { { 0 } };
    struct group_joined left;
    uint32_t numbers[MEMBERS] = { 0 };

    lay_rows_out(t, 2, 50);
    numbers[0] = send_push(t, 0);
    numbers[2] = send_push(t, 2);
    assert_int_equal(groups_leave(t->groups, session, t->handles[2], &left, &msg),
                     EMBTIER_NO_GROUP);
    assert_true(msg.text[0]);
    for (uint32_t times = 0; times < 2; times++) {
        must(groups_leave(t->groups, session, t->handles[1], &left, &msg), &msg);
        assert_true(left.handle == t->handles[1] && left.step == t->p.step - 1);
    }
    for (uint32_t m = 0; m < MEMBERS; m += 2) {
        assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_GROUP_BROKEN);
        assert_int_equal(answer(t, m, numbers[m])->value, 1);
    }
    lay_rows_out(t, 1, 50);
    assert_int_equal(answer(t, 1, send_push(t, 1))->err, EMBTIER_GROUP_BROKEN);
    assert_rows(&t->p);
    for (uint32_t m = 0; m < MEMBERS; m++)
        join(t, m, t->p.step - 1);
    first.group = t->handles[0];
    again(t, &first);
    end(t);
}

/* The member that goes has sent a push, which is not kept. Then the leader pushes, too late. */
static void test_a_member_that_goes_while_it_waits(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    uint32_t numbers[MEMBERS] = { 0 };

    lay_rows_out(t, 1, 50);
    lay_rows_out(t, 2, 50);
    numbers[1] = send_push(t, 1);
    send_push(t, 2);
    leave(t, 2);
    assert_int_equal(answer(t, 1, numbers[1])->err, EMBTIER_GROUP_BROKEN);
    assert_int_equal(answer(t, 1, numbers[1])->value, 2);
    numbers[0] = send_push(t, 0);
    assert_int_equal(answer(t, 0, numbers[0])->err, EMBTIER_GROUP_BROKEN);
    end(t);
}

static void test_a_member_that_does_not_come_in_time_breaks_the_group(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    uint32_t numbers[MEMBERS] = { 0 };

    lay_rows_out(t, 1, 50);
    numbers[0] = send_push(t, 0);
    numbers[1] = send_push(t, 1);
    groups_expire(t->groups);
    await_arrival(t, 0); /* the pushes must arrive before time goes on */
    await_arrival(t, 1);
    t->clock_ns += 500;
    groups_expire(t->groups);
    assert_false(client_is_done(&t->others[1], numbers[1]));
    t->clock_ns += 501;
    groups_expire(t->groups);
    for (uint32_t m = 0; m < 2; m++) {
        assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_TIMEOUT);
        assert_int_equal(answer(t, m, numbers[m])->value, 2);
    }
    lay_rows_out(t, 2, 50);
    assert_int_equal(answer(t, 2, send_push(t, 2))->err, EMBTIER_GROUP_BROKEN);
    end(t);
}

static void test_no_member_waits_when_the_server_stops(void **state)
{
    struct op_submission first;
    struct training *const t = begin(state, &first);
    const uint32_t number = send_push(t, 0);

    await_arrival(t, 0);
    groups_stop(t->groups);
    assert_int_not_equal(answer(t, 0, number)->err, EMBTIER_OK);
    end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_a_leader_that_dies_while_rows_are_tried),
        T(test_a_member_far_ahead_of_the_others_breaks_the_group),
        T(test_a_member_that_goes_breaks_the_group),
        T(test_a_member_that_leaves_keeps_its_session_and_joins_anew),
        T(test_a_member_that_goes_while_it_waits),
        T(test_a_member_that_does_not_come_in_time_breaks_the_group),
        T(test_no_member_waits_when_the_server_stops),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
