/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a lane's sessions when the disk takes no more rows, and when it does again. A limit on file
 * sizes plays the full disk: RocksDB's flushes fail, and go on once the limit is lifted. */
#include "tests/unit/engine/lane/lane_fixture.h"
#include "tests/unit/store/sync_counter.h"

#include "store/catalog.h"
#include "store/files/durable_file.h"

#define DIM        1024
#define ROW_COUNT  15000 /* 60 MB: cache, write queue and write buffers hold 28 */
#define SLOT_BYTES (64 * KIB)

static const struct lanes_shape one_lane = {
    .lane_count = 1, .slabs_per_lane = 3, .readers = 2, .write_queue_bytes = MIB
};

/* True if the disk cannot take even the little that a drop writes. */
static bool drops_fail;

enum embtier_err __real_store_drop_table(struct store *store, uint32_t table_id, bool logged,
                                         void (*progress)(void *, uint32_t, uint32_t),
                                         void *context, const _Atomic bool *give_up,
                                         struct err_msg *msg);
enum embtier_err __wrap_store_drop_table(struct store *store, uint32_t table_id, bool logged,
                                         void (*progress)(void *, uint32_t, uint32_t),
                                         void *context, const _Atomic bool *give_up,
                                         struct err_msg *msg);

enum embtier_err __wrap_store_drop_table(struct store *store, uint32_t table_id, bool logged,
                                         void (*progress)(void *, uint32_t, uint32_t),
                                         void *context, const _Atomic bool *give_up,
                                         struct err_msg *msg)
{
    if (drops_fail)
        return err_set(msg, EMBTIER_NO_SPACE, "the disk is full");
    return __real_store_drop_table(store, table_id, logged, progress, context, give_up, msg);
}

/* SETs rows until one fails. Puts the acknowledged values in @ret_values. */
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

/* Each request is for one row, and all slots are in use: waiting for each row takes ten times as
 * long. */
static void check_rows(struct client *client, uint64_t table, const float *values)
{
    const uint32_t first = client->submitted;

    for (uint64_t id = 0; id < ROW_COUNT + FIXTURE_SLOTS; id++) {
        if (id >= FIXTURE_SLOTS) {
            const uint32_t number = first + (uint32_t)(id - FIXTURE_SLOTS);
            const float wanted = values[id - FIXTURE_SLOTS];
            float value;

            assert_int_equal(client_wait(client, number)->err, EMBTIER_OK);
            value = *(float *)client_rows(client, number, 1);
            if (wanted != 0 && value != wanted)
                fail_msg("row %llu: %g, expected %g", (unsigned long long)(id - FIXTURE_SLOTS),
                         (double)value, (double)wanted);
        }
        if (id < ROW_COUNT) {
            *client_ids(client, client->submitted) = id;
            client_submit(client, OP_GET, table, 1);
        }
    }
}

static void full_disk(struct store_fixture *f, enum embtier_optimizer optimizer,
                      enum embtier_durability durability)
{
    float *const values = calloc(ROW_COUNT, sizeof(*values));
    struct lanes_fixture x;
    struct client client, other;
    uint64_t table, until;
    float value;

    lanes_start(&x, f, &one_lane);
    table = fixture_durable_table(&x, "t", ROW_COUNT, DIM, optimizer, durability);
    client = client_attach(&x, SLOT_BYTES);
    other = client_attach(&x, SLOT_BYTES);
    fixture_limit_files(64 * KIB);
    assert_int_not_equal(set_until_refused(&client, table, values), EMBTIER_OK);
    /* This client and others can read all rows. */
    check_rows(&other, table, values);
    assert_int_equal(client_get_one(&client, table, 0, &value), EMBTIER_OK);
    fixture_limit_files(RLIM_INFINITY);
    until = now_ns() + FIXTURE_WAIT_NS;
    while (client_set_one(&client, table, ROW_COUNT - 1, DIM, -1) != EMBTIER_OK)
        assert_true(now_ns() < until);
    values[ROW_COUNT - 1] = -1;
    check_rows(&other, table, values);
    client_detach(&client);
    client_detach(&other);
    lanes_write_back(&x);
    lanes_stop(&x);

    lanes_start(&x, f, &one_lane);
    table = fixture_durable_table(&x, "t", ROW_COUNT, DIM, optimizer, durability);
    client = client_attach(&x, SLOT_BYTES);
    check_rows(&client, table, values);
    client_detach(&client);
    lanes_stop(&x);
    free(values);
}

static void test_full_disk_refuses_sets_serves_gets_and_heals(void **state)
{
    full_disk(*state, EMBTIER_OPTIMIZER_NONE, EMBTIER_DURABILITY_REPLAY);
}

/* SETs of rows with state read first. The rows find no place when they arrive. */
static void test_the_same_with_rows_that_have_state(void **state)
{
    full_disk(*state, EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD, EMBTIER_DURABILITY_REPLAY);
}

/* The log takes no more, but it has everything acknowledged. */
static void test_the_same_with_rows_that_are_logged(void **state)
{
    full_disk(*state, EMBTIER_OPTIMIZER_NONE, EMBTIER_DURABILITY_ASYNC);
}

static void test_the_same_with_rows_that_have_state_and_are_logged(void **state)
{
    full_disk(*state, EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD, EMBTIER_DURABILITY_SYNC);
}

/* A SET of a sync table is answered when its log is on disk. SETs of other tables do not wait for
 * that. */
static void test_updates_of_sync_tables_are_synced_and_of_others_not(void **state)
{
    struct store_fixture *const f = *state;
    struct lanes_fixture x;
    struct client client;

    f->config.rocksdb.io_uring = SWITCH_OFF;
    lanes_start(&x, f, &one_lane);
    client = client_attach(&x, SLOT_BYTES);
    for (int durability = EMBTIER_DURABILITY_REPLAY; durability <= EMBTIER_DURABILITY_SYNC;
         durability++) {
        const uint64_t table =
            fixture_durable_table(&x, durability_word(durability), 100, DIM, EMBTIER_OPTIMIZER_NONE,
                                  (enum embtier_durability)durability);
        const unsigned before = atomic_load(&log_syncs);

        for (uint64_t id = 0; id < 20; id++) {
            assert_int_equal(client_set_one(&client, table, id, DIM, 1), EMBTIER_OK);
            if (durability == EMBTIER_DURABILITY_SYNC)
                assert_true(atomic_load(&log_syncs) >= before + id + 1);
        }
        if (durability != EMBTIER_DURABILITY_SYNC)
            assert_int_equal(atomic_load(&log_syncs), before);
    }
    client_detach(&client);
    lanes_write_back(&x);
    lanes_stop(&x);
}

/* The table's rows cannot leave the queue. The drop reports that instead of waiting, and the next
 * start completes it. */
static void test_drop_on_a_full_disk_fails_and_is_ended_by_the_next_start(void **state)
{
    float *const values = calloc(ROW_COUNT, sizeof(*values));
    struct err_msg msg = { { 0 } };
    struct table_info info;
    struct lanes_fixture x;
    struct client client;
    enum embtier_err err;
    uint64_t table, until;
    float value;

    lanes_start(&x, *state, &one_lane);
    table = fixture_table(&x, "t", ROW_COUNT, DIM, EMBTIER_OPTIMIZER_NONE);
    client = client_attach(&x, SLOT_BYTES);
    fixture_limit_files(64 * KIB);
    assert_int_not_equal(set_until_refused(&client, table, values), EMBTIER_OK);
    free(values);
    err = tables_drop(x.tables, "t", NULL, &info, &msg);
    assert_int_not_equal(err, EMBTIER_OK);
    assert_int_not_equal(err, EMBTIER_SHUTDOWN);
    assert_non_null(strstr(msg.text, "next start"));
    assert_int_equal(client_get_one(&client, table, 0, &value), EMBTIER_DROPPED);
    client_detach(&client);
    fixture_limit_files(RLIM_INFINITY);
    until = now_ns() + FIXTURE_WAIT_NS;
    while (fixture_stats(&x).write_queue.rows > 0) {
        assert_true(now_ns() < until);
        usleep(1000);
    }
    lanes_stop(&x);

    lanes_start(&x, *state, &one_lane);
    table = fixture_table(&x, "t", ROW_COUNT, DIM, EMBTIER_OPTIMIZER_NONE);
    client = client_attach(&x, SLOT_BYTES);
    for (uint64_t id = 0; id < ROW_COUNT; id += 25) {
        assert_int_equal(client_get_one(&client, table, id, &value), EMBTIER_OK);
        assert_true(value == 0.5f); /* the initial value */
    }
    client_detach(&client);
    lanes_stop(&x);
}

/* Leaves the catalog as a crash would in the middle of creating "made" and dropping "dropped". */
static void leave_half_done(const struct store_fixture *f)
{
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;
    struct err_msg msg = { { 0 } };
    const struct {
        const char *name;
        enum catalog_state state;
    } left[] = { { "made", CATALOG_CREATING }, { "dropped", CATALOG_DROPPING } };

    must(catalog_open(f->made[0], &catalog, &msg), &msg);
    for (size_t i = 0; i < ARRAY_LEN(left); i++)
        must(catalog_set_state(catalog, catalog_find(catalog, left[i].name)->table_id,
                               left[i].state, &msg),
             &msg);
}

static uint32_t count_entries(const struct store_fixture *f)
{
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;
    struct err_msg msg = { { 0 } };

    must(catalog_open(f->made[0], &catalog, &msg), &msg);
    return catalog_count(catalog);
}

/* In every table of @names, each 25th row is @value. */
static void check_tables(struct lanes_fixture *x, const char *const *names, size_t count,
                         float expected)
{
    struct client client = client_attach(x, SLOT_BYTES);

    for (size_t i = 0; i < count; i++) {
        struct table_info info;
        struct err_msg msg = { { 0 } };

        must(tables_find(x->tables, names[i], &info, &msg), &msg);
        for (uint64_t id = 0; id < 1500; id += 25) {
            float value = 0;

            assert_int_equal(client_get_one(&client, info.handle, id, &value), EMBTIER_OK);
            if (value != expected)
                fail_msg("table %s, row %llu: %g", names[i], (unsigned long long)id, (double)value);
        }
    }
    client_detach(&client);
}

static void fill_tables(struct lanes_fixture *x, const char *const *names, size_t count)
{
    struct client client = client_attach(x, SLOT_BYTES);

    for (size_t i = 0; i < count; i++) {
        const uint64_t table = fixture_table(x, names[i], 1500, DIM, EMBTIER_OPTIMIZER_NONE);

        for (uint64_t id = 0; id < 1500; id++)
            assert_int_equal(client_set_one(&client, table, id, DIM, 7), EMBTIER_OK);
    }
    client_detach(&client);
}

static void wait_until_stored(struct store_fixture *f)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;

    for (uint32_t shard = 0; shard < store_shard_count(f->store); shard++)
        while (store_flush(f->store, shard, NULL) != EMBTIER_OK) {
            assert_true(now_ns() < until);
            usleep(1000);
        }
}

/* While the disk is full, the leftover tables' rows cannot be removed. Other tables are not
 * affected. The names can go to new tables, which see none of the old rows. */
static void test_start_on_a_full_disk_serves_all_but_the_half_dropped(void **state)
{
    static const char *const names[] = { "kept", "made", "dropped" };
    struct err_msg msg = { { 0 } };
    struct table_info info;
    struct lanes_fixture x;

    lanes_start(&x, *state, &one_lane);
    fill_tables(&x, names, 3);
    lanes_write_back(&x);
    lanes_stop(&x);
    leave_half_done(*state);

    fixture_limit_files(64 * KIB);
    drops_fail = true;
    lanes_start(&x, *state, &one_lane);
    assert_int_equal(count_entries(*state), 3);
    assert_int_equal(tables_count(x.tables), 1);
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(tables_find(x.tables, names[i], &info, &msg), EMBTIER_NO_TABLE);
        assert_int_equal(tables_drop(x.tables, names[i], NULL, &info, &msg), EMBTIER_NO_TABLE);
        fixture_table(&x, names[i], 1500, DIM, EMBTIER_OPTIMIZER_NONE);
        must(tables_find(x.tables, names[i], &info, &msg), &msg);
        assert_int_equal(info.table_id, 3 + i);
    }
    fixture_limit_files(RLIM_INFINITY); /* the limit also applies to clients' memory */
    drops_fail = false;
    check_tables(&x, names, 1, 7);
    check_tables(&x, names + 1, 2, 0.5f); /* the initial value */
    wait_until_stored(*state);
    lanes_stop(&x);
    assert_int_equal(count_entries(*state), 5);

    lanes_start(&x, *state, &one_lane);
    assert_int_equal(count_entries(*state), 3);
    check_tables(&x, names, 1, 7);
    check_tables(&x, names + 1, 2, 0.5f);
    lanes_stop(&x);
}

/* A folder where the new catalog would first be written plays a disk that cannot take even the
 * catalog. */
static void test_start_serves_all_tables_when_the_catalog_cannot_be_written(void **state)
{
    static const char *const names[] = { "kept", "made", "dropped" };
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    struct table_info info;
    struct lanes_fixture x;
    char path[400];

    lanes_start(&x, f, &one_lane);
    fill_tables(&x, names, 3);
    lanes_write_back(&x);
    lanes_stop(&x);
    leave_half_done(f);
    snprintf(path, sizeof(path), "%s/catalog.json%s", f->made[0], DURABLE_FILE_SUFFIX);
    assert_int_equal(mkdir(path, 0700), 0);

    lanes_start(&x, f, &one_lane);
    check_tables(&x, names, 1, 7);
    for (size_t i = 1; i < 3; i++) {
        const struct table_spec spec = {
            .rows = 1500, .dim = DIM, .dtype = EMBTIER_DTYPE_F32, .init = EMBTIER_INIT_CONSTANT
        };
        struct table_spec named = spec;

        snprintf(named.name, sizeof(named.name), "%s", names[i]);
        assert_int_equal(tables_find(x.tables, names[i], &info, &msg), EMBTIER_NO_TABLE);
        assert_int_equal(tables_drop(x.tables, names[i], NULL, &info, &msg), EMBTIER_NO_TABLE);
        assert_int_not_equal(tables_create(x.tables, &named, FIXTURE_UID, true, NULL, &info, &msg),
                             EMBTIER_OK);
    }
    assert_int_equal(rmdir(path), 0);
    for (size_t i = 1; i < 3; i++)
        fixture_table(&x, names[i], 1500, DIM, EMBTIER_OPTIMIZER_NONE);
    check_tables(&x, names + 1, 2, 0.5f);
    lanes_stop(&x);

    lanes_start(&x, f, &one_lane);
    assert_int_equal(count_entries(f), 3);
    check_tables(&x, names, 1, 7);
    check_tables(&x, names + 1, 2, 0.5f);
    lanes_stop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_full_disk_refuses_sets_serves_gets_and_heals),
        T(test_the_same_with_rows_that_have_state),
        T(test_the_same_with_rows_that_are_logged),
        T(test_the_same_with_rows_that_have_state_and_are_logged),
        T(test_updates_of_sync_tables_are_synced_and_of_others_not),
        T(test_drop_on_a_full_disk_fails_and_is_ended_by_the_next_start),
        T(test_start_on_a_full_disk_serves_all_but_the_half_dropped),
        T(test_start_serves_all_tables_when_the_catalog_cannot_be_written),
#undef T
    };

    return cmocka_run_group_tests_name("lane on a full disk", tests, NULL, NULL);
}
