/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a row that leaves the cache can always be found, and that its last version reaches the
 * disk. The tests use the queue of a lane that has nothing else to do. */
#include "tests/forms.h"
#include "tests/unit/engine/lane/lane_fixture.h"

#include "daemon/engine/lane/lane_impl.h"
#include "daemon/engine/rows/write_queue.h"

#define TABLE_ID 9

static const struct lanes_shape idle_lane = {
    .lane_count = 1, .slabs_per_lane = 2, .readers = 1, .write_queue_bytes = 256 * KIB
};

struct queue_fixture {
    struct lanes_fixture x;
    struct table table;
    struct table async; /* for the last test */
    uint8_t row[FIXTURE_ROW_BYTES];

    /* Input and result of the next call. */
    struct table *into;
    uint64_t id;
    uint64_t end_id;
    uint32_t version;
    uint64_t mark;
    bool passed;
};

static void table_start(struct table *table)
{
    atomic_store(&table->table_id, TABLE_ID);
    table->weight_bytes = FIXTURE_WEIGHT_BYTES;
    table->state_bytes = FIXTURE_STATE_BYTES;
    table->row_bytes = FIXTURE_ROW_BYTES;
}

static void queue_start(struct queue_fixture *q, struct store_fixture *f)
{
    memset(q, 0, sizeof(*q));
    lanes_start(&q->x, f, &idle_lane);
    table_start(&q->table);
    q->into = &q->table;
}

static uint64_t hash_of(const struct queue_fixture *q, uint64_t id)
{
    return row_hash(store_hasher(q->x.f->store), TABLE_ID, id);
}

static const void *find(struct queue_fixture *q, struct lane *lane, uint64_t id)
{
    return write_queue_find(lane->rows.write_queue, q->table.index, hash_of(q, id), id);
}

/* An older row is either found in its last version, or has been written. */
static void check_older(struct queue_fixture *q, struct lane *lane)
{
    const void *found;

    if (q->id < 7)
        return;
    found = find(q, lane, q->id - 7);
    fixture_row_bytes(TABLE_ID, q->id - 7, q->version, q->row);
    if (found)
        assert_memory_equal(found, q->row, FIXTURE_ROW_BYTES);
}

/* Puts rows until all are in or there is no room. */
static void call_put(struct lane *lane, void *argument)
{
    struct queue_fixture *const q = argument;

    for (; q->id < q->end_id; q->id++) {
        const void *found;

        fixture_row_bytes(TABLE_ID, q->id, q->version, q->row);
        if (!write_queue_put(lane->rows.write_queue, q->into, hash_of(q, q->id), q->id, q->row))
            return;
        found = find(q, lane, q->id);
        assert_non_null(found);
        assert_memory_equal(found, q->row, FIXTURE_ROW_BYTES);
        check_older(q, lane);
    }
}

static void call_mark(struct lane *lane, void *argument)
{
    struct queue_fixture *const q = argument;

    q->mark = write_queue_mark(lane->rows.write_queue);
}

static void call_passed(struct lane *lane, void *argument)
{
    struct queue_fixture *const q = argument;

    q->passed = write_queue_passed(lane->rows.write_queue, q->mark);
}

static void drain(struct queue_fixture *q)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;

    lane_call(q->x.lanes[0], call_mark, q);
    do {
        assert_true(now_ns() < until);
        lane_call(q->x.lanes[0], call_passed, q);
    } while (!q->passed);
}

/* The ring of 256 KiB wraps some 200 times, or 50. */
static void test_last_version_of_each_row_is_found_and_then_on_disk(void **state)
{
    struct queue_fixture q;
    const uint32_t rounds = BY_BUILD(150, 150, 40);
    struct lane_stats stats;

    queue_start(&q, *state);
    q.end_id = 2000;
    for (q.version = 1; q.version <= rounds; q.version++)
        for (q.id = 0; q.id < q.end_id;)
            lane_call(q.x.lanes[0], call_put, &q);
    drain(&q);
    stats = fixture_stats(&q.x);
    assert_int_equal(stats.write_queue.rows, 0);
    assert_int_equal(stats.write_queue.rows_written, q.end_id * rounds);
    assert_int_equal(fixture_count_right(q.x.f, TABLE_ID, 0, q.end_id, rounds), q.end_id);
    lanes_stop(&q.x);
}

/* Puts several versions of a row before the writer can take any, so that one batch has them all. */
struct burst {
    struct queue_fixture *q;
    uint32_t versions;
};

static void call_put_versions(struct lane *lane, void *argument)
{
    struct queue_fixture *const q = ((struct burst *)argument)->q;

    for (q->version = 1; q->version <= ((struct burst *)argument)->versions; q->version++)
        for (q->id = 0; q->id < q->end_id;)
            call_put(lane, q);
}

static void test_the_last_of_several_versions_of_a_row_in_a_batch_is_on_disk(void **state)
{
    struct queue_fixture q;
    struct burst burst = { .q = &q, .versions = 40 };

    queue_start(&q, *state);
    q.end_id = 10;
    for (uint32_t i = 0; i < 50; i++) {
        lane_call(q.x.lanes[0], call_put_versions, &burst);
        drain(&q);
        assert_int_equal(fixture_count_right(q.x.f, TABLE_ID, 0, q.end_id, burst.versions),
                         q.end_id);
    }
    lanes_stop(&q.x);
}

static void call_put_long(struct lane *lane, void *argument)
{
    struct queue_fixture *const q = argument;

    assert_true(write_queue_put(lane->rows.write_queue, &q->table, hash_of(q, q->id), q->id,
                                lane->rows.scratch_row));
    assert_non_null(find(q, lane, q->id));
}

static void put_long(struct queue_fixture *q, uint32_t weight_bytes, uint32_t state_bytes)
{
    q->table.weight_bytes = weight_bytes;
    q->table.state_bytes = state_bytes;
    q->table.row_bytes = weight_bytes + state_bytes;
    q->id++;
    lane_call(q->x.lanes[0], call_put_long, q);
    drain(q);
}

/* The longest row fits wherever the tail of the shortest ring is. */
static void test_longest_row_always_finds_room_in_an_empty_queue(void **state)
{
    struct queue_fixture q;

    queue_start(&q, *state);
    for (uint32_t i = 0; i < 200; i++) {
        put_long(&q, EMBTIER_DIM_MAX * 4, EMBTIER_DIM_MAX * 8);
        put_long(&q, FIXTURE_WEIGHT_BYTES + i * 16, 0);
    }
    lanes_stop(&q.x);
}

static void test_ring_stays_within_its_budget(void **state)
{
    struct lanes_shape shape = idle_lane;
    struct lanes_fixture x;
    struct lane_stats stats;

    shape.write_queue_bytes = 3 * MIB;
    lanes_start(&x, *state, &shape);
    lane_stats(x.lanes[0], &stats);
    assert_int_equal(stats.write_queue.capacity_bytes, 2 * MIB);
    lanes_stop(&x);
}

static void call_fill(struct lane *lane, void *argument)
{
    struct queue_fixture *const q = argument;

    assert_int_equal(write_queue_refusal(lane->rows.write_queue, &q->table), EMBTIER_OK);
    call_put(lane, argument); /* the lane is busy with this call, so it cannot reap */
    assert_int_equal(write_queue_refusal(lane->rows.write_queue, &q->table), EMBTIER_OK);
}

static void test_full_queue_of_a_slow_store_is_no_error(void **state)
{
    struct queue_fixture q;

    queue_start(&q, *state);
    q.end_id = 100000;
    q.version = 1;
    lane_call(q.x.lanes[0], call_fill, &q);
    assert_true(q.id > 1000 && q.id < q.end_id);
    drain(&q);
    assert_int_equal(fixture_count_right(q.x.f, TABLE_ID, 0, q.id, 1), q.id);
    lanes_stop(&q.x);
}

/* ---- Synced tables ---- */

static _Atomic bool syncs_wait;
static _Atomic uint32_t syncs_begun;

enum embtier_err __real_store_sync_logs(struct store *store, const uint32_t *shards, uint32_t count,
                                        struct err_msg *msg);
enum embtier_err __wrap_store_sync_logs(struct store *store, const uint32_t *shards, uint32_t count,
                                        struct err_msg *msg);

enum embtier_err __wrap_store_sync_logs(struct store *store, const uint32_t *shards, uint32_t count,
                                        struct err_msg *msg)
{
    atomic_fetch_add(&syncs_begun, 1);
    while (atomic_load(&syncs_wait))
        nanosleep(&(struct timespec){ .tv_nsec = 1000000L }, NULL);
    return __real_store_sync_logs(store, shards, count, msg);
}

static void put_synced(struct queue_fixture *q, uint64_t rows)
{
    q->end_id = q->id + rows;
    lane_call(q->x.lanes[0], call_put, q);
    assert_int_equal(q->id, q->end_id);
}

static void wait_written(struct queue_fixture *q, uint64_t rows)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;

    while (fixture_stats(&q->x).write_queue.rows_written < rows)
        assert_true(now_ns() < until);
}

static bool has_passed(struct queue_fixture *q, uint64_t mark)
{
    q->mark = mark;
    lane_call(q->x.lanes[0], call_passed, q);
    return q->passed;
}

static void test_rows_are_written_while_logs_are_synced_and_pass_when_they_are(void **state)
{
    struct queue_fixture q;
    uint64_t first_mark;

    queue_start(&q, *state);
    table_start(&q.async);
    q.table.logged = q.async.logged = true;
    q.table.spec.durability = EMBTIER_DURABILITY_SYNC;
    q.async.spec.durability = EMBTIER_DURABILITY_ASYNC;
    q.version = 1;
    atomic_store(&syncs_begun, 0);
    atomic_store(&syncs_wait, true);
    put_synced(&q, 10);
    lane_call(q.x.lanes[0], call_mark, &q);
    first_mark = q.mark;
    wait_written(&q, 10);
    while (atomic_load(&syncs_begun) == 0)
        continue;
    /* No other sync can end before this one, so these rows wait for the next sync, … */
    for (uint32_t i = 0; i < 5; i++) {
        put_synced(&q, 10);
        wait_written(&q, 20 + 10 * i);
    }
    /* … as does a row behind them that needs no sync. */
    q.into = &q.async;
    put_synced(&q, 1);
    wait_written(&q, 61);
    assert_false(has_passed(&q, first_mark));
    assert_int_equal(atomic_load(&syncs_begun), 1);
    atomic_store(&syncs_wait, false);
    drain(&q);
    assert_int_equal(atomic_load(&syncs_begun), 2);
    lanes_stop(&q.x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_last_version_of_each_row_is_found_and_then_on_disk),
        T(test_the_last_of_several_versions_of_a_row_in_a_batch_is_on_disk),
        T(test_longest_row_always_finds_room_in_an_empty_queue),
        T(test_ring_stays_within_its_budget),
        T(test_full_queue_of_a_slow_store_is_no_error),
        T(test_rows_are_written_while_logs_are_synced_and_pass_when_they_are),
#undef T
    };

    return cmocka_run_group_tests_name("write queue", tests, NULL, NULL);
}
