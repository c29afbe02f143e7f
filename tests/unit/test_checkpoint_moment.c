/* SPDX-License-Identifier: Apache-2.0 */
/* Is the moment of a checkpoint given up, and another looked for, when what is done in it takes
 * long; and is a whole checkpoint made of the later one? Capturing a database is slow here
 * (checkpoint_capture() is wrapped by the linker). */
#include "lane_fixture.h"

#include "daemon/checkpoint_gate.h"
#include "daemon/checkpoint_making.h"
#include "daemon/checkpoints.h"
#include "store/rocksdb_setup.h"

#define DIM        4
#define IDS        100
#define SLOT_BYTES (256 * KIB)

static unsigned slow_captures; /* so many are still to come */

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
    if (logged && slow_captures > 0) {
        slow_captures--;
        usleep(GATE_CLOSED_NS / 1000 + 1000);
    }
    return __real_checkpoint_capture(draft, shard, logged, database, msg);
}

/* All ids of @table get @value; returns when that is acknowledged. */
static void set_all(struct client *client, uint64_t table, float value)
{
    const uint32_t number = client->submitted;
    float *const rows = (float *)client_rows(client, number, IDS);

    for (uint32_t i = 0; i < IDS; i++)
        client_ids(client, number)[i] = i;
    for (uint32_t i = 0; i < IDS * DIM; i++)
        rows[i] = value;
    (void)client_submit(client, SHM_OP_SET, table, IDS);
    assert_int_equal(client_wait(client, number)->err, EMBTIER_OK);
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
    struct client client;
    uint64_t table;

    lanes_start(&x, *state, &shape);
    assert_true(store_shard_count(x.f->store) > 1);
    table = fixture_durable_table(&x, "logged", EMBTIER_UNBOUNDED, DIM, EMBTIER_OPTIMIZER_NONE,
                                  EMBTIER_DURABILITY_SYNC);
    client = client_attach(&x, SLOT_BYTES);
    set_all(&client, table, 1);
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
        assert_int_equal(counts.tries, making.info.tries);
        checkpoint_making_end(&making);
    }
    set_all(&client, table, 2); /* updates go on */
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
        assert_int_equal(gate_until_ns(&search), search.closed_ns + GATE_CLOSED_NS);
        gate_note_late(&search);
    }
    assert_true(gate_until_ns(&search) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_late_moment_is_given_up_and_the_next_one_taken,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test(test_the_last_try_takes_as_long_as_it_has_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
