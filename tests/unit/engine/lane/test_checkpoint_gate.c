/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that updates go on while a checkpoint looks for its moment and one update does not end.
 * After some tries a large update is cut, and in the end a small one too. The test holds reads of
 * SSD (the linker wraps store_read()). That holds every SET that needs the state of an uncached
 * row. The linker also wraps lane_gate_holder(), so that an update can seem to end just before the
 * lane is asked for it. */
#include "tests/unit/engine/lane/lane_fixture.h"

#include "daemon/engine/lane/checkpoint_gate.h"

#define DIM        4
#define SLOT_BYTES (256 * KIB)
#define LARGE      (UPDATE_WHOLE_ROWS + 1)

static _Atomic bool hold;
static _Atomic bool stopping;
static bool has_just_ended;

enum embtier_err __real_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg);
enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg);

enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg)
{
    while (atomic_load(&hold))
        usleep(100);
    return __real_store_read(store, shard, rows, count, msg);
}

bool __real_lane_gate_holder(struct lane *lane, struct lane_holder *ret_holder);
bool __wrap_lane_gate_holder(struct lane *lane, struct lane_holder *ret_holder);

bool __wrap_lane_gate_holder(struct lane *lane, struct lane_holder *ret_holder)
{
    return !has_just_ended && __real_lane_gate_holder(lane, ret_holder);
}

struct gate_test {
    struct lanes_fixture x;
    struct client slow, other;
    uint64_t with_state; /* a SET of weights alone must first read the row */
    uint64_t without;
    struct gate_search search;
};

static void start(struct gate_test *t, struct store_fixture *f, uint32_t lanes)
{
    const struct lanes_shape shape = {
        .lane_count = lanes, .slabs_per_lane = 3, .readers = 2, .write_queue_bytes = MIB
    };

    memset(t, 0, sizeof(*t));
    lanes_start(&t->x, f, &shape);
    t->with_state = fixture_table(&t->x, "s", EMBTIER_UNBOUNDED, DIM, EMBTIER_OPTIMIZER_ADAM);
    t->without = fixture_table(&t->x, "w", EMBTIER_UNBOUNDED, DIM, EMBTIER_OPTIMIZER_NONE);
    t->slow = client_attach(&t->x, SLOT_BYTES);
    t->slow.session->pid = 4321;
    t->slow.session->uid = 1234;
    t->other = client_attach(&t->x, SLOT_BYTES);
    atomic_store(&hold, true);
    gate_search_init(&t->search, t->x.lanes, lanes, &stopping);
}

static void stop(struct gate_test *t)
{
    client_detach(&t->slow);
    client_detach(&t->other);
    lanes_write_back(&t->x);
    lanes_stop(&t->x);
}

/* Sends a SET that waits for its rows to be read. */
static uint32_t set_slowly(struct client *client, uint64_t table, uint64_t first_id, uint32_t count)
{
    const uint32_t number = client->submitted;
    float *const rows = (float *)client_rows(client, number, count);

    for (uint32_t i = 0; i < count; i++)
        client_ids(client, number)[i] = first_id + i;
    for (uint32_t i = 0; i < count * DIM; i++)
        rows[i] = 2;
    return client_submit(client, OP_SET, table, count);
}

static void await_reads(struct gate_test *t)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    uint32_t reading = 0;

    while (reading == 0) {
        assert_true(now_ns() < until);
        for (uint32_t i = 0; i < t->x.lane_count; i++) {
            struct lane_stats stats;

            lane_stats(t->x.lanes[i], &stats);
            reading += stats.reading_rows;
        }
    }
}

static void end_slowly(struct gate_test *t, uint32_t number)
{
    atomic_store(&hold, false);
    assert_int_equal(client_wait(&t->slow, number)->err, EMBTIER_OK);
}

/* Does the same as try_moment(). Returns gate_close()'s result. */
static enum embtier_err try_once(struct gate_test *t, uint32_t *ret_cut)
{
    const enum embtier_err err = gate_close(&t->search, NULL);

    *ret_cut = 0;
    for (uint32_t i = 0; err == EMBTIER_OK && i < t->x.lane_count; i++)
        *ret_cut += lane_count_updates(t->x.lanes[i]);
    for (uint32_t i = 0; err == EMBTIER_OK && i < t->x.lane_count; i++)
        lane_begin_epoch(t->x.lanes[i]);
    gate_open(&t->search, err == EMBTIER_AGAIN);
    for (uint32_t i = 0; err == EMBTIER_OK && i < t->x.lane_count; i++)
        (void)!lane_end_epoch(t->x.lanes[i]);
    for (uint32_t i = 0; err == EMBTIER_OK && i < t->x.lane_count; i++)
        lane_forget_epoch(t->x.lanes[i]);
    return err;
}

/* Nothing is in the way now: the first try finds the moment unless a thread is late. */
static void find(struct gate_test *t, uint32_t *ret_cut)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;

    while (try_once(t, ret_cut) != EMBTIER_OK)
        assert_true(now_ns() < until);
}

static void test_updates_go_on_after_each_try_in_vain(void **state)
{
    struct gate_test t;
    struct err_msg msg = { { 0 } };
    uint32_t number, cut;

    start(&t, *state, 1);
    number = set_slowly(&t.slow, t.with_state, 0, 3);
    await_reads(&t);
    for (uint64_t i = 0; i < GATE_WHOLE_TRIES; i++) {
        assert_int_equal(try_once(&t, &cut), EMBTIER_AGAIN);
        assert_int_equal(client_set_one(&t.other, t.without, i, DIM, 1), EMBTIER_OK);
    }
    assert_false(client_is_done(&t.slow, number));
    t.search.began_ns = now_ns(); /* however long the tries took */
    assert_int_equal(gate_rest(&t.search, &msg), EMBTIER_OK);
    t.search.began_ns -= GATE_SEARCH_NS;
    assert_int_equal(gate_rest(&t.search, &msg), EMBTIER_BUSY);
    assert_non_null(strstr(msg.text, "session 1 (pid 4321, user 1234)"));
    end_slowly(&t, number);
    find(&t, &cut);
    assert_int_equal(cut, 0);
    stop(&t);
}

/* The session of an earlier try has nothing to do with the last one. */
static void test_no_session_is_blamed_if_the_last_tries_update_has_just_ended(void **state)
{
    struct err_msg msg = { { 0 } };
    struct gate_test t;
    uint32_t number, cut;

    start(&t, *state, 1);
    number = set_slowly(&t.slow, t.with_state, 0, 3);
    await_reads(&t);
    assert_int_equal(try_once(&t, &cut), EMBTIER_AGAIN);
    has_just_ended = true;
    assert_int_equal(try_once(&t, &cut), EMBTIER_AGAIN);
    has_just_ended = false;
    t.search.began_ns -= GATE_SEARCH_NS;
    assert_int_equal(gate_rest(&t.search, &msg), EMBTIER_BUSY);
    assert_non_null(strstr(msg.text, "no checkpoint: 2 tries in "));
    assert_null(strstr(msg.text, "session"));
    end_slowly(&t, number);
    find(&t, &cut);
    stop(&t);
}

static void test_a_small_update_is_cut_in_the_end(void **state)
{
    struct gate_test t;
    uint32_t number, cut;

    start(&t, *state, 1);
    number = set_slowly(&t.slow, t.with_state, 0, 3);
    await_reads(&t);
    for (uint64_t i = 0; i < GATE_SMALL_TRIES; i++) {
        assert_int_equal(try_once(&t, &cut), EMBTIER_AGAIN);
        assert_int_equal(client_set_one(&t.other, t.without, i, DIM, 1), EMBTIER_OK);
    }
    find(&t, &cut);
    assert_int_equal(cut, 1);
    assert_false(client_is_done(&t.slow, number));
    end_slowly(&t, number);
    stop(&t);
}

/* Large or small updates that were begun hold up the others until the gate opens again, and no
 * longer. */
static void begun_a_few_at_a_time(struct store_fixture *f, uint32_t tries, uint32_t rows)
{
    enum { CLIENTS = 8 };
    struct gate_test t;
    struct client clients[CLIENTS];
    uint32_t numbers[CLIENTS], cut;

    start(&t, f, 1);
    (void)set_slowly(&t.slow, t.with_state, 0, 3);
    await_reads(&t);
    for (uint32_t i = 0; i < tries; i++)
        assert_int_equal(try_once(&t, &cut), EMBTIER_AGAIN);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = client_attach(&t.x, SLOT_BYTES);
        numbers[i] = set_slowly(&clients[i], t.with_state, 10000 * (i + 1), rows);
    }
    for (uint32_t opened = 1; opened < 4; opened++) {
        const uint64_t until = now_ns() + FIXTURE_WAIT_NS;

        while (lane_count_updates(t.x.lanes[0]) < 1 + 2 * opened)
            assert_true(now_ns() < until);
        usleep(20000); /* more would have begun by now if allowed */
        assert_int_equal(lane_count_updates(t.x.lanes[0]), 1 + 2 * opened);
        assert_int_equal(try_once(&t, &cut), EMBTIER_AGAIN);
    }
    end_slowly(&t, 0);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(client_wait(&clients[i], numbers[i])->err, EMBTIER_OK);
        client_detach(&clients[i]);
    }
    stop(&t);
}

static void test_updates_are_begun_a_few_at_a_time(void **state)
{
    begun_a_few_at_a_time(*state, GATE_FREE_TRIES + 1, LARGE);
}

static void test_small_ones_are_so_while_large_ones_are_cut(void **state)
{
    begun_a_few_at_a_time(*state, GATE_WHOLE_TRIES + 1, 1);
}

static void large_is_cut(struct store_fixture *f, uint32_t lanes)
{
    struct gate_test t;
    uint32_t number, behind, cut;

    start(&t, f, lanes);
    number = set_slowly(&t.slow, t.with_state, 0, LARGE);
    await_reads(&t);
    for (uint32_t i = 0; i < GATE_WHOLE_TRIES; i++)
        assert_int_equal(try_once(&t, &cut), EMBTIER_AGAIN);
    find(&t, &cut);
    assert_int_equal(cut, 1);
    assert_false(client_is_done(&t.slow, number));
    assert_int_equal(client_set_one(&t.other, t.without, 1, DIM, 1), EMBTIER_OK);
    /* The gate is as before the search: a small update behind the large one begins. */
    behind = set_slowly(&t.slow, t.without, 7, 1);
    end_slowly(&t, number);
    assert_int_equal(client_wait(&t.slow, behind)->err, EMBTIER_OK);
    stop(&t);
}

static void test_a_large_update_is_cut_after_some_tries(void **state)
{
    large_is_cut(*state, 1);
}

static void test_the_same_with_lanes(void **state)
{
    large_is_cut(*state, 2);
}

/* Without this, a client that sends small updates one after another would leave no moment. */
static void test_a_small_update_behind_a_large_one_is_held_until_the_moment_is_found(void **state)
{
    struct gate_test t;
    uint32_t number, held, early, cut;

    start(&t, *state, 1);
    early = set_slowly(&t.other, t.with_state, LARGE, 1); /* keeps the moment from being found */
    await_reads(&t);
    number = set_slowly(&t.slow, t.with_state, 0, LARGE);
    for (uint32_t i = 0; i <= GATE_WHOLE_TRIES; i++)
        assert_int_equal(try_once(&t, &cut), EMBTIER_AGAIN);
    held = set_slowly(&t.slow, t.without, 7, 1);
    for (uint32_t i = 0; i < 5; i++) { /* the lane has seen the update by then */
        usleep(10000);
        assert_false(client_is_done(&t.slow, held));
    }
    end_slowly(&t, number);
    assert_int_equal(client_wait(&t.slow, held)->err, EMBTIER_OK);
    assert_int_equal(client_wait(&t.other, early)->err, EMBTIER_OK);
    find(&t, &cut);
    stop(&t);
}

static void test_a_client_that_goes_while_its_update_is_held(void **state)
{
    struct gate_test t;

    start(&t, *state, 1);
    while (gate_close(&t.search, NULL) != EMBTIER_OK)
        gate_open(&t.search, true);
    (void)set_slowly(&t.slow, t.without, 7, 1);
    (void)set_slowly(&t.other, t.without, 8, 1);
    client_detach(&t.slow);
    gate_open(&t.search, false);
    assert_int_equal(client_wait(&t.other, 0)->err, EMBTIER_OK);
    t.slow = client_attach(&t.x, SLOT_BYTES);
    stop(&t);
}

static void test_tries_come_less_often(void **state)
{
    (void)state;
    assert_int_equal(gate_try_mode(0), GATE_CUTS_NONE);
    assert_int_equal(gate_try_mode(GATE_FREE_TRIES - 1), GATE_CUTS_NONE);
    assert_int_equal(gate_try_mode(GATE_FREE_TRIES), GATE_THINS);
    assert_int_equal(gate_try_mode(GATE_WHOLE_TRIES), GATE_CUTS_LARGE);
    assert_int_equal(gate_try_mode(GATE_SMALL_TRIES), GATE_CUTS_ALL);
    assert_int_equal(gate_try_mode(UINT32_MAX), GATE_CUTS_ALL);
    assert_int_equal(gate_try_rest_ns(0), GATE_REST_NS);
    assert_int_equal(gate_try_rest_ns(1), 2 * GATE_REST_NS);
    assert_int_equal(gate_try_rest_ns(GATE_FREE_TRIES - 1), GATE_REST_MOST_NS);
    assert_int_equal(gate_try_rest_ns(GATE_FREE_TRIES), GATE_THIN_REST_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_updates_go_on_after_each_try_in_vain),
        T(test_no_session_is_blamed_if_the_last_tries_update_has_just_ended),
        T(test_a_small_update_is_cut_in_the_end),
        T(test_updates_are_begun_a_few_at_a_time),
        T(test_small_ones_are_so_while_large_ones_are_cut),
        T(test_a_large_update_is_cut_after_some_tries),
        T(test_the_same_with_lanes),
        T(test_a_small_update_behind_a_large_one_is_held_until_the_moment_is_found),
        T(test_a_client_that_goes_while_its_update_is_held),
        cmocka_unit_test(test_tries_come_less_often),
#undef T
    };

    return cmocka_run_group_tests_name("checkpoint gate", tests, NULL, NULL);
}
