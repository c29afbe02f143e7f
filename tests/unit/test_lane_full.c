/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a lane's sessions when the disk takes no more rows, and when it does again? The
 * limit on the size of files plays the full disk: RocksDB's flushes fail, and go on once it is
 * lifted. */
#include "lane_fixture.h"

#include <signal.h>
#include <sys/resource.h>

#define DIM        256
#define ROW_COUNT  60000 /* 60 MB: cache, write queue and write buffers have 28 */
#define SLOT_BYTES (64 * KIB)

static const struct lanes_shape one_lane = {
    .lane_count = 1, .slabs_per_lane = 3, .readers = 2, .write_queue_bytes = MIB
};

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = MIN(bytes, limit.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* SETs until one fails; what was acknowledged is in @ret_values. */
static enum embtier_err set_until_refused(struct client *client, uint64_t table, float *ret_values)
{
    for (uint64_t id = 0; id < ROW_COUNT; id++) {
        const enum embtier_err err = client_set_one(client, table, id, DIM, (float)(id + 1));

        if (err != EMBTIER_OK)
            return err;
        ret_values[id] = (float)(id + 1);
    }
    return EMBTIER_OK;
}

static void check_rows(struct client *client, uint64_t table, const float *values)
{
    for (uint64_t id = 0; id < ROW_COUNT; id++) {
        float value = 0;

        assert_int_equal(client_get_one(client, table, id, &value), EMBTIER_OK);
        if (values[id] != 0 && value != values[id])
            fail_msg("row %llu: %g, expected %g", (unsigned long long)id, (double)value,
                     (double)values[id]);
    }
}

static void full_disk(struct store_fixture *f, enum embtier_optimizer optimizer)
{
    float *const values = calloc(ROW_COUNT, sizeof(*values));
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    struct lanes_fixture x;
    struct client client, other;
    uint64_t table;
    float value;

    signal(SIGXFSZ, SIG_IGN);
    lanes_start(&x, f, &one_lane);
    table = fixture_table(&x, "t", ROW_COUNT, DIM, optimizer);
    client = client_attach(&x, SLOT_BYTES);
    other = client_attach(&x, SLOT_BYTES);
    limit_files(64 * KIB);
    assert_int_not_equal(set_until_refused(&client, table, values), EMBTIER_OK);
    /* All rows can be read, by this client and by others. */
    check_rows(&other, table, values);
    assert_int_equal(client_get_one(&client, table, 0, &value), EMBTIER_OK);
    limit_files(RLIM_INFINITY);
    while (client_set_one(&client, table, ROW_COUNT - 1, DIM, -1) != EMBTIER_OK)
        assert_true(now_ns() < until);
    values[ROW_COUNT - 1] = -1;
    check_rows(&other, table, values);
    client_detach(&client);
    client_detach(&other);
    lanes_write_back(&x);
    lanes_stop(&x);

    lanes_start(&x, f, &one_lane);
    table = fixture_table(&x, "t", ROW_COUNT, DIM, optimizer);
    client = client_attach(&x, SLOT_BYTES);
    check_rows(&client, table, values);
    client_detach(&client);
    lanes_stop(&x);
    free(values);
}

static void test_full_disk_refuses_sets_serves_gets_and_heals(void **state)
{
    full_disk(*state, EMBTIER_OPTIMIZER_NONE);
}

/* SETs of rows with state read first: they have no place when they come. */
static void test_the_same_with_rows_that_have_state(void **state)
{
    full_disk(*state, EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD);
}

/* Its rows cannot leave the queue: the drop says so instead of waiting, and the next start ends it.
 */
static void test_drop_on_a_full_disk_fails_and_is_ended_by_the_next_start(void **state)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    float *const values = calloc(ROW_COUNT, sizeof(*values));
    struct err_msg msg = { { 0 } };
    struct table_info info;
    struct lanes_fixture x;
    struct client client;
    enum embtier_err err;
    uint64_t table;
    float value;

    signal(SIGXFSZ, SIG_IGN);
    lanes_start(&x, *state, &one_lane);
    table = fixture_table(&x, "t", ROW_COUNT, DIM, EMBTIER_OPTIMIZER_NONE);
    client = client_attach(&x, SLOT_BYTES);
    limit_files(64 * KIB);
    assert_int_not_equal(set_until_refused(&client, table, values), EMBTIER_OK);
    free(values);
    err = tables_drop(x.tables, "t", NULL, &info, &msg);
    assert_int_not_equal(err, EMBTIER_OK);
    assert_int_not_equal(err, EMBTIER_SHUTDOWN);
    assert_non_null(strstr(msg.text, "next start"));
    assert_int_equal(client_get_one(&client, table, 0, &value), EMBTIER_DROPPED);
    client_detach(&client);
    limit_files(RLIM_INFINITY);
    while (fixture_stats(&x).write_queue.rows > 0) {
        assert_true(now_ns() < until);
        usleep(1000);
    }
    lanes_stop(&x);

    lanes_start(&x, *state, &one_lane);
    table = fixture_table(&x, "t", ROW_COUNT, DIM, EMBTIER_OPTIMIZER_NONE);
    client = client_attach(&x, SLOT_BYTES);
    for (uint64_t id = 0; id < ROW_COUNT; id += 100) {
        assert_int_equal(client_get_one(&client, table, id, &value), EMBTIER_OK);
        assert_true(value == 0.5f); /* the initial value */
    }
    client_detach(&client);
    lanes_stop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_full_disk_refuses_sets_serves_gets_and_heals),
        T(test_the_same_with_rows_that_have_state),
        T(test_drop_on_a_full_disk_fails_and_is_ended_by_the_next_start),
#undef T
    };

    return cmocka_run_group_tests_name("lane on a full disk", tests, NULL, NULL);
}
