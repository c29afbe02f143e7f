/* SPDX-License-Identifier: Apache-2.0 */
/* Is the moment of a checkpoint given up, and another looked for, when what is done in it takes
 * long; and is a whole checkpoint made of the later one? Capturing a database is slow here
 * (checkpoint_capture() is wrapped by the linker). */
#include "tests/unit/engine/lane/lane_fixture.h"

#include "daemon/engine/lane/checkpoint_gate.h"
#include "daemon/jobs/checkpoint/checkpoint_making.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "store/rocksdb/rocksdb_setup.h"

#define DIM        4
#define IDS        100
#define SLOT_BYTES (256 * KIB)

static unsigned slow_captures; /* so many are still to come */
static struct client client;
static uint64_t table;
static uint32_t set_between; /* its number: submitted in the first moment, when updates are held */
static bool was_set;         /* when the last moment came */

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
        /* A lane that is late has not done it: then this moment is late too. */
        slow_captures -= was_set;
        if (slow_captures > 0)
            usleep(GATE_CLOSED_NS / 1000 + 1000);
    }
    return __real_checkpoint_capture(draft, shard, logged, database, msg);
}

/* All ids of the table get @value. */
static void submit_set(float value)
{
    const uint32_t number = client.submitted;
    float *const rows = (float *)client_rows(&client, number, IDS);

    for (uint32_t i = 0; i < IDS; i++)
        client_ids(&client, number)[i] = i;
    for (uint32_t i = 0; i < IDS * DIM; i++)
        rows[i] = value;
    (void)client_submit(&client, SHM_OP_SET, table, IDS);
}

/* The same; returns when that is acknowledged. */
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
        assert_true(was_set); /* updates went on between two tries */
        assert_int_equal(counts.tries, making.info.tries);
        checkpoint_making_end(&making);
    }
    set_all(3);
    must(checkpoint_read_newest(store_shelf(x.f->store), &record, &msg), &msg);
    /* Each database once: what the late one has captured is forgotten. */
    assert_int_equal(record->database_count,
                     store_shard_count(x.f->store) * STORE_DATABASES_PER_SHARD);
    must(checkpoint_verify(store_shelf(x.f->store), record, NULL, NULL, NULL, &msg), &msg);
    checkpoint_record_free(record);
    client_detach(&client);
    lanes_write_back(&x);
    lanes_stop(&x);
}

/* Else no checkpoint would be made on a slow disk. */
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

/* A late try is none in vain: it makes the next ones no harder, and does not end the search. */
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
