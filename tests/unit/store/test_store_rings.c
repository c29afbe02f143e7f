/* SPDX-License-Identifier: Apache-2.0 */
/* test_store_rings.c: tests that reads and syncs come right with each kind of ring that some kernel
 * has. A read must wait once for all its blocks. The store uses the first kind that the kernel
 * knows, so the test refuses the others in the kernel's place. Each test runs in its own thread,
 * since a ring belongs to its thread. */
#include "tests/unit/store/store_fixture.h"

#include <errno.h>
#include <liburing.h>
#include <pthread.h>

#define DEFERRED     (IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN)
#define COOPERATIVE  IORING_SETUP_COOP_TASKRUN
#define PLAIN        0U
#define REFUSED_ALL  UINT32_MAX
#define TABLE        1
#define ROWS         8000
#define ROWS_READ    16  /* from one shard, in a single MultiGet() */
#define ROWS_BETWEEN 120 /* several blocks: RocksDB reads adjacent ones as one */
#define SHARD        0   /* where the rows lie that are read */

static uint32_t refused_flags; /* rings with one of these flags, or REFUSED_ALL */
static _Thread_local struct {
    bool is_made;
    unsigned flags;
    unsigned waits;
    unsigned requests;
    unsigned unawaited; /* waits for fewer than all requests */
} ring;

int __real_io_uring_queue_init(unsigned entries, struct io_uring *made, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *made, unsigned flags);
int __real_io_uring_submit_and_wait(struct io_uring *waiting, unsigned count);
int __wrap_io_uring_submit_and_wait(struct io_uring *waiting, unsigned count);

int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *made, unsigned flags)
{
    int result;

    if (refused_flags == REFUSED_ALL)
        return -EPERM;
    if (flags & refused_flags)
        return -EINVAL;
    result = __real_io_uring_queue_init(entries, made, flags);
    if (result == 0) {
        ring.is_made = true;
        ring.flags = flags;
    }
    return result;
}

int __wrap_io_uring_submit_and_wait(struct io_uring *waiting, unsigned count)
{
    const unsigned pending = waiting->sq.sqe_tail - waiting->sq.sqe_head;

    ring.waits++;
    ring.requests += pending;
    ring.unawaited += count < pending;
    return __real_io_uring_submit_and_wait(waiting, count);
}

static void forget_waits(void)
{
    ring.waits = ring.requests = ring.unawaited = 0;
}

static void check_one_wait(unsigned least_requests)
{
    if (!ring.is_made) {
        assert_int_equal(ring.waits, 0);
        return;
    }
    assert_int_equal(ring.waits, 1);
    assert_true(ring.requests >= least_requests);
    assert_int_equal(ring.unawaited, 0);
}

static void check_syncs(struct store_fixture *f)
{
    const uint32_t shards[] = { 0, 1, 2, 3 };
    struct err_msg msg = { { 0 } };

    assert_int_equal(store_shard_count(f->store), ARRAY_LEN(shards));
    fixture_write_all(f, FIXTURE_LOGGED, 0, ROWS, 1);
    forget_waits();
    must(store_sync_logs(f->store, shards, ARRAY_LEN(shards), &msg), &msg);
    check_one_wait(ARRAY_LEN(shards));
}

/* Chooses at most ROWS_READ rows of SHARD that lie far apart. */
static uint32_t choose_rows(struct store_fixture *f, struct store_row *ret_rows)
{
    struct fixture_batch *const batch = malloc(sizeof(*batch));
    uint32_t seen = 0, count = 0;

    for (uint64_t id = 0; id < ROWS;) {
        id = fixture_gather(f, SHARD, TABLE, id, ROWS, batch);
        for (uint32_t i = 0; i < batch->count; i++)
            if (seen++ % ROWS_BETWEEN == 0 && count < ROWS_READ)
                ret_rows[count++] = batch->rows[i];
    }
    free(batch);
    return count;
}

static void check_reads(struct store_fixture *f)
{
    unsigned char bytes[ROWS_READ][FIXTURE_ROW_BYTES], expected[FIXTURE_ROW_BYTES];
    struct store_row rows[ROWS_READ];
    struct err_msg msg = { { 0 } };

    /* This puts all metadata in the cache. */
    assert_int_equal(fixture_count_right(f, TABLE, 0, ROWS, 1), ROWS);
    assert_int_equal(choose_rows(f, rows), ROWS_READ);
    for (uint32_t i = 0; i < ROWS_READ; i++)
        rows[i].bytes = bytes[i];
    forget_waits();
    must(store_read(f->store, SHARD, rows, ROWS_READ, &msg), &msg);
    for (uint32_t i = 0; i < ROWS_READ; i++) {
        fixture_row_bytes(TABLE, rows[i].id, 1, expected);
        assert_true(rows[i].found);
        assert_memory_equal(bytes[i], expected, sizeof(expected));
    }
    check_one_wait(ROWS_READ);
}

static void check_store(struct store_fixture *f, uint32_t refused)
{
    refused_flags = refused;
    fixture_open(f);
    fixture_write_all(f, TABLE, 0, ROWS, 1);
    check_syncs(f);
    fixture_close(f);
    fixture_open(f); /* one file per shard, and nothing in the write buffers */
    check_reads(f);
    fixture_close(f);
}

/* Refuses rings with @refused flags. The next kind in the store's order has flags @expected. */
static void check_ring(struct store_fixture *f, uint32_t refused, unsigned expected)
{
    struct io_uring probe;

    check_store(f, refused);
    if (ring.is_made && ring.flags == expected)
        return;
    if (__real_io_uring_queue_init(4, &probe, expected) == 0)
        fail_msg("the kernel has rings with flags %#x, and the store did not use them", expected);
    skip();
}

static void test_ring_whose_work_is_deferred(void **state)
{
    check_ring(*state, 0, DEFERRED);
}

static void test_ring_whose_work_interrupts_no_thread(void **state)
{
    check_ring(*state, DEFERRED, COOPERATIVE);
}

static void test_ring_without_flags(void **state)
{
    check_ring(*state, DEFERRED | COOPERATIVE, PLAIN);
}

static void test_no_ring(void **state)
{
    check_store(*state, REFUSED_ALL);
    assert_false(ring.is_made);
}

static void *run(void *arg)
{
    const struct CMUnitTest *const test = arg;
    const struct CMUnitTest tests[] = { *test };

    return (void *)(intptr_t)cmocka_run_group_tests_name(test->name, tests, NULL, NULL);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    struct CMUnitTest tests[] = {
        STORE_TEST(test_ring_whose_work_is_deferred),
        STORE_TEST(test_ring_whose_work_interrupts_no_thread),
        STORE_TEST(test_ring_without_flags),
        STORE_TEST(test_no_ring),
    };
    int failures = 0;

    for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
        pthread_t thread;
        void *result;

        if (pthread_create(&thread, NULL, run, &tests[i]) != 0 ||
            pthread_join(thread, &result) != 0)
            return 1;
        failures += result != NULL;
    }
    return failures;
}
