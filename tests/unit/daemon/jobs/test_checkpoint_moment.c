/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a checkpoint gives up a moment that lasts too long and looks for another, and that the
 * later one yields a whole checkpoint. The linker wraps checkpoint_capture() to make the capture of
 * a database slow. */
#include "tests/unit/engine/lane/lane_fixture.h"

#include "daemon/engine/lane/checkpoint_gate.h"
#include "daemon/jobs/checkpoint/checkpoint_making.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "store/rocksdb/rocksdb_setup.h"

#define DIM        4
#define IDS        100
#define SLOT_BYTES (256 * KIB)

static unsigned slow_captures; /* slow captures still to come */
static struct client client;
static uint64_t table;
static uint32_t set_between; /* number of the SET that is submitted in the first moment, when
                                updates are held */
static bool was_set;         /* whether it was done when the last moment came */

static void submit_set(float value);

enum embtier_err __real_checkpoint_capture(struct checkpoint_draft *draft, uint32_t shard,
                                           bool logged, struct database *database,
                                           struct err_msg *msg);
enum embtier_err __wrap_checkpoint_capture(struct checkpoint_draft *draft, uint32_t shard,
                                           bool logged, struct database *database,
                                           struct err_msg *msg);

enum embtier_err __wrap_checkpoint_capture(struct checkpoint_draft *draft, uint32_t shard,
                                           bool logged, struct database *database,
                                           struct err_msg *msg)
{
    was_set = set_between > 0 && client_is_done(&client, set_between);
    if (logged && slow_captures > 0) {
        if (set_between == 0) {
            set_between = client.submitted;
            submit_set(2);
        }
        /* If the lane is late, the SET is not done yet. This moment is then made late too. */
        slow_captures -= was_set;
        if (slow_captures > 0)
            usleep(GATE_CLOSED_NS / 1000 + 1000);
    }
    return __real_checkpoint_capture(draft, shard, logged, database, msg);
}

/* Sets all ids of the table to @value. */
static void submit_set(float value)
{
    const uint32_t number = client.submitted;
    float *const rows = (float *)client_rows(&client, number, IDS);

    for (uint32_t i = 0; i < IDS; i++)
        client_ids(&client, number)[i] = i;
    for (uint32_t i = 0; i < IDS * DIM; i++)
        rows[i] = value;
    (void)client_submit(&client, OP_SET, table, IDS);
}

/* Does the same, and waits for the answer. */
static void set_all(float value)
{
    submit_set(value);
    assert_int_equal(client_wait(&client, client.submitted - 1)->err, EMBTIER_OK);
}

static void test_a_late_moment_is_given_up_and_the_next_one_taken(void **state)
{
    const struct lanes_shape shape = {
        .lane_count = 2, .slabs_per_lane = 3, .readers = 1, .write_queue_bytes = MIB
    };
    const _Atomic bool stopping = false;
    struct making_counts counts = { 0 };
    struct checkpoint_record *record;
    struct err_msg msg = { { 0 } };
    struct lanes_fixture x;

    lanes_start(&x, *state, &shape);
    assert_true(store_shard_count(x.f->store) > 1);
    table = fixture_durable_table(&x, "logged", EMBTIER_UNBOUNDED, DIM, EMBTIER_OPTIMIZER_NONE,
                                  EMBTIER_DURABILITY_SYNC);
    client = client_attach(&x, SLOT_BYTES);
    set_all(1);
    {
        const struct checkpoints_opts opts = {
            .store = x.f->store, .tables = x.tables, .lanes = x.lanes, .lane_count = x.lane_count
        };
        struct checkpoint_making making = { .opts = &opts,
                                            .stopping = &stopping,
                                            .counts = &counts };

        slow_captures = 1;
        checkpoint_pace_init(&making.pace, &clock_monotonic, false);
        must(checkpoint_making_run(&making, &msg), &msg);
        assert_int_equal(slow_captures, 0);
        assert_true(making.info.tries >= 2);
        assert_true(was_set); /* updates went on between the two tries */
        assert_int_equal(counts.tries, making.info.tries);
        checkpoint_making_end(&making);
    }
    set_all(3);
    must(checkpoint_read_newest(store_shelf(x.f->store), &record, &msg), &msg);
    /* Each database is there once: captures of the late moment are forgotten. */
    assert_int_equal(record->database_count,
                     store_shard_count(x.f->store) * STORE_DATABASES_PER_SHARD);
    must(checkpoint_verify(store_shelf(x.f->store), record, NULL, NULL, NULL, &msg), &msg);
    checkpoint_record_free(record);
    client_detach(&client);
    lanes_write_back(&x);
    lanes_stop(&x);
}

/* Otherwise no checkpoint could be made on a slow disk. */
static void test_the_last_try_takes_as_long_as_it_has_to(void **state)
{
    struct gate_search search;

    (void)state;
    gate_search_init(&search, NULL, 0, NULL);
    for (unsigned i = 0; i < GATE_LATE_TRIES; i++) {
        assert_true(gate_until_ns(&search) < UINT64_MAX);
        gate_note_late(&search);
    }
    assert_true(gate_until_ns(&search) == UINT64_MAX);
}

/* A late try does not count as a try in vain: it makes the next tries no harder, and does not end
 * the search. */
static void test_a_late_try_is_not_counted_with_those_in_vain(void **state)
{
    const _Atomic bool stopping = false;
    struct gate_search search;

    (void)state;
    gate_search_init(&search, NULL, 0, &stopping);
    search.began_ns -= GATE_SEARCH_NS + 1;
    assert_true(gate_until_ns(&search) == UINT64_MAX);
    assert_int_equal(gate_close(&search, NULL), EMBTIER_OK);
    gate_note_late(&search);
    gate_open(&search, false);
    assert_int_equal(search.tries - search.late_tries, 0);
    assert_int_equal(gate_rest(&search, NULL), EMBTIER_OK);
    assert_int_equal(gate_close(&search, NULL), EMBTIER_OK);
    gate_open(&search, true);
    assert_int_equal(gate_rest(&search, NULL), EMBTIER_BUSY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_late_moment_is_given_up_and_the_next_one_taken,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test(test_the_last_try_takes_as_long_as_it_has_to),
        cmocka_unit_test(test_a_late_try_is_not_counted_with_those_in_vain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
