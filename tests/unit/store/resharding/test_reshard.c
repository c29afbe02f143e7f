/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that buckets move to other shards while rows are read and written, and that no row is lost
 * or taken for a newer one, whatever cuts a job short. The linker wraps some functions, so that a
 * test can act in the middle of a job. */
#include <pthread.h>

#include "store/resharding/reshard_plan.h"
#include "tests/forms.h"
#include "tests/unit/store/resharding/reshard_fixture.h"

#define STEP UINT64_C(77)

/* ---- Hooks ---- */

static void (*before_take)(void);
static const char *failing_path; /* of a database; its writes fail */
static bool synced_shards[BUCKET_MAP_SHARDS_MAX];
static const char *unsynced_path; /* syncs of this database fail */

enum embtier_err __real_move_pace_take(struct move_pace *pace, uint64_t bytes, struct err_msg *msg);
enum embtier_err __wrap_move_pace_take(struct move_pace *pace, uint64_t bytes, struct err_msg *msg);
enum embtier_err __wrap_move_pace_take(struct move_pace *pace, uint64_t bytes, struct err_msg *msg)
{
    if (before_take)
        before_take();
    return __real_move_pace_take(pace, bytes, msg);
}

enum embtier_err __real_database_write_now(struct database *database, const struct store_row *rows,
                                           uint32_t count, struct err_msg *msg);
enum embtier_err __wrap_database_write_now(struct database *database, const struct store_row *rows,
                                           uint32_t count, struct err_msg *msg);
enum embtier_err __wrap_database_write_now(struct database *database, const struct store_row *rows,
                                           uint32_t count, struct err_msg *msg)
{
    if (failing_path && strstr(database_path(database), failing_path))
        return err_set(msg, EMBTIER_IO, "%s: fails for a test", database_path(database));
    return __real_database_write_now(database, rows, count, msg);
}

enum embtier_err __real_databases_sync_logs(struct database *const *databases, uint32_t count,
                                            bool by_syncer, struct err_msg *msg);
enum embtier_err __wrap_databases_sync_logs(struct database *const *databases, uint32_t count,
                                            bool by_syncer, struct err_msg *msg);
enum embtier_err __wrap_databases_sync_logs(struct database *const *databases, uint32_t count,
                                            bool by_syncer, struct err_msg *msg)
{
    for (uint32_t i = 0; by_syncer && i < count; i++) {
        const char *const path = database_path(databases[i]);

        synced_shards[strtoul(strstr(path, "/shard-") + 7, NULL, 10)] = true;
        if (unsynced_path && strstr(path, unsynced_path))
            return err_set(msg, EMBTIER_IO, "%s: fails for a test", path);
    }
    return __real_databases_sync_logs(databases, count, by_syncer, msg);
}

/* ---- The plan ---- */

static void test_a_plan_moves_as_few_buckets_as_can_be(void **state)
{
    static const struct {
        uint32_t from, to, moves;
    } cases[] = {
        { 4, 8, ROW_BUCKETS / 2 },
        { 8, 4, ROW_BUCKETS / 2 },
        { 4, 4, 0 },
        { 1, 1024, 16384 - 16 },
        { 1024, 1, 16384 - 16 },
        { 3, 4, ROW_BUCKETS / 4 },
        { 16, 17, 963 /* 16384/17 */ },
        { 17, 16, 964 /* the fullest directory gives a shard up */ },
    };
    struct bucket_map *const map = test_malloc(sizeof(*map));
    struct bucket_map *const goal = test_malloc(sizeof(*goal));
    struct bucket_map *const after = test_malloc(sizeof(*after));
    bool *const kept = test_malloc(BUCKET_MAP_SHARDS_MAX);
    const bool takes[CONFIG_DIRECTORIES_MAX] = { true, true };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t moves = 0, source;

        bucket_map_balance(map, cases[i].from);
        bucket_map_place(map, (cases[i].from + 1) / 2);
        while (map->shard_count < cases[i].to) {
            const uint32_t place = reshard_plan_place(map, takes);

            map->places[map->shard_count++] = (uint8_t)place;
        }
        assert_int_equal(reshard_plan_keep(map, cases[i].to, kept), cases[i].to);
        reshard_plan_balance(map, kept, goal);
        for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++) {
            assert_true(kept[goal->shards[bucket]]);
            moves += goal->shards[bucket] != map->shards[bucket];
        }
        assert_int_equal(moves, cases[i].moves);
        for (uint32_t s = 0; s < map->shard_count; s++)
            assert_true(!kept[s] || goal->bucket_counts[s] == ROW_BUCKETS / cases[i].to ||
                        goal->bucket_counts[s] == ROW_BUCKETS / cases[i].to + 1);
        while ((source = reshard_plan_next(map, goal, after)) != RESHARD_PLAN_DONE) {
            for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
                if (after->shards[bucket] != map->shards[bucket]) {
                    assert_int_equal(map->shards[bucket], source);
                    moves--;
                }
            *map = *after;
            /* A job that goes on chooses the same. */
            assert_int_equal(reshard_plan_keep(map, cases[i].to, kept), cases[i].to);
            reshard_plan_balance(map, kept, after);
            for (uint32_t s = 0; s < map->shard_count; s++)
                assert_int_equal(after->bucket_counts[s] > 0, goal->bucket_counts[s] > 0);
        }
        assert_int_equal(moves, 0);
    }
    test_free(map);
    test_free(goal);
    test_free(after);
    test_free(kept);
}

/* ---- Jobs that come to their end ---- */

/* Shards without buckets are gone after a start. */
static void assert_folders(const struct store_fixture *f, uint32_t shards)
{
    char output[16] = { 0 };

    assert_int_equal(bucket_map_present(f->store->map), shards);
    assert_true(fixture_shell(output, sizeof(output), "ls -d %s/d?/shard-* | wc -l", f->root) > 0);
    assert_int_equal(strtoul(output, NULL, 10), shards);
}

static void test_buckets_move_to_more_shards_and_back(void **state)
{
    static const uint32_t counts[] = { 6, 7, 3, 1, 5 };
    const uint32_t jobs = BY_BUILD(ARRAY_LEN(counts), ARRAY_LEN(counts), 3);
    struct store_fixture *const f = *state;

    fixture_open(f);
    write_both(f, 1);
    for (uint32_t i = 0; i < jobs; i++) {
        reshard(f, counts[i]);
        assert_spread(f, counts[i]);
        assert_both(f, 2 * i + 1);
        assert_no_strays(f, TABLE, 100);
        assert_no_strays(f, FIXTURE_LOGGED, 100);
        assert_scan(f, TABLE, 2 * i + 1);
        assert_scan(f, FIXTURE_LOGGED, 2 * i + 1);
        write_both(f, 2 * i + 2);
        assert_both(f, 2 * i + 2);
        fixture_flush_all(f);
        reopen(f, true);
        assert_int_equal(store_shard_count(f->store), counts[i]);
        assert_folders(f, counts[i]);
        assert_both(f, 2 * i + 2);
        write_both(f, 2 * i + 3);
    }
    assert_both(f, 2 * jobs + 1);
}

static void test_a_job_that_has_nothing_to_do_changes_nothing(void **state)
{
    struct store_fixture *const f = *state;

    fixture_open(f);
    write_both(f, 1);
    reshard(f, SHARDS);
    assert_int_equal(f->store->map->format, BUCKET_MAP_FORMAT_FIXED);
    assert_true(f->store->views.now->is_plain);
}

/* The new shard lies in d0, and gets rows of all routes. */
static void test_a_hold_counts_where_rows_lie_now(void **state)
{
    struct store_fixture *const f = *state;
    struct fixture_batch *const batch = calloc(1, sizeof(*batch));
    const uint32_t route = SHARDS - 1; /* in d1 */
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    assert_non_null(batch);
    (void)fixture_gather(f, route, TABLE, 0, ROWS, batch);
    store_hold(f->store, f->directories[0], true, 0);
    must(store_write_back(f->store, route, batch->rows, batch->count, &msg), &msg);
    reshard(f, SHARDS + 1);
    assert_int_equal(f->store->map->places[SHARDS], 0);
    assert_int_equal(store_write_back(f->store, route, batch->rows, batch->count, &msg),
                     EMBTIER_BUSY);
    store_hold(f->store, f->directories[0], false, 0);
    must(store_write_back(f->store, route, batch->rows, batch->count, &msg), &msg);
    free(batch);
}

/* ---- Jobs among writes ---- */

static void write_more(struct job *job, enum reshard_step step)
{
    uint32_t *const version = job->context;

    (void)step;
    assert_both(job->f, *version);
    write_both(job->f, ++*version);
    assert_both(job->f, *version);
}

static void test_rows_written_at_each_step_are_kept(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    uint32_t version = 1;
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    for (uint32_t shards = SHARDS + 1; shards > 2; shards -= 2) {
        job_init(&job, f, shards);
        job.act = write_more;
        job.context = &version;
        must(reshard_run(f->store, &job.opts, &msg), &msg);
        assert_both(f, version);
    }
    reopen(f, true);
    assert_both(f, version);
    assert_true(version > 20);
}

struct writer {
    struct store_fixture *f;
    _Atomic bool ends;
    uint32_t table;
    pthread_t thread;
    /* The thread alone uses these until it has ended. */
    uint32_t version;     /* of all rows, at the end */
    enum embtier_err err; /* that ended it: the test's thread asserts that there was none */
    struct err_msg msg;
};

static enum embtier_err write_and_read(struct writer *w)
{
    uint64_t found = 0, right = 0;

    TRY(fixture_try_write_all(w->f, w->table, 0, ROWS, ++w->version, &w->msg));
    TRY(fixture_try_read_all(w->f, w->table, 0, ROWS, w->version, &found, &right, &w->msg));
    if (right == ROWS)
        return EMBTIER_OK;
    return err_set(&w->msg, EMBTIER_INTERNAL,
                   "table %" PRIu32 ": %" PRIu64 " rows hold version %" PRIu32, w->table, right,
                   w->version);
}

static void *write_all_the_time(void *context)
{
    struct writer *const w = context;

    while (!atomic_load(&w->ends) && w->err == EMBTIER_OK)
        w->err = write_and_read(w);
    return NULL;
}

static void test_threads_write_while_buckets_move(void **state)
{
    static const uint32_t tables[] = { TABLE, FIXTURE_LOGGED, FIXTURE_SYNCED };
    static const uint32_t counts[] = { 7, 2, 5 };
    struct store_fixture *const f = *state;
    struct writer writers[ARRAY_LEN(tables)];
    enum embtier_err err = EMBTIER_OK;
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    write_both(f, 1);
    fixture_write_all(f, FIXTURE_SYNCED, 0, ROWS, 1);
    for (uint32_t i = 0; i < ARRAY_LEN(tables); i++) {
        writers[i] = (struct writer){ .f = f, .table = tables[i], .version = 1 };
        if (pthread_create(&writers[i].thread, NULL, write_all_the_time, &writers[i]) != 0)
            abort(); /* the others use this function's memory */
    }
    for (uint32_t i = 0; i < ARRAY_LEN(counts) && err == EMBTIER_OK; i++)
        err = try_reshard(f, counts[i], &msg);
    for (uint32_t i = 0; i < ARRAY_LEN(tables); i++) {
        atomic_store(&writers[i].ends, true);
        pthread_join(writers[i].thread, NULL);
    }
    must(err, &msg);
    for (uint32_t i = 0; i < ARRAY_LEN(tables); i++) {
        must(writers[i].err, &writers[i].msg);
        assert_int_equal(fixture_count_right(f, tables[i], 0, ROWS, writers[i].version), ROWS);
    }
    assert_no_strays(f, FIXTURE_SYNCED, 100);
    reopen(f, true);
    for (uint32_t i = 0; i < ARRAY_LEN(tables); i++)
        assert_int_equal(fixture_count_right(f, tables[i], 0, ROWS, writers[i].version), ROWS);
}

static struct store_fixture *writing;
static uint32_t writes_at; /* calls of move_pace_take() until it writes */

static void write_once(void)
{
    if (writes_at > 0 && --writes_at == 0)
        write_both(writing, 2);
}

/* The batch that is on its way has older ones. */
static void test_rows_written_while_others_are_on_their_way_are_the_newer_ones(void **state)
{
    static const uint32_t takes[] = { 10, 300, 50, 600, 100, 400 };
    const uint32_t jobs = BY_BUILD(ARRAY_LEN(takes), 4, 2);
    struct store_fixture *const f = *state;

    fixture_open(f);
    writing = f;
    for (uint32_t i = 0; i < jobs; i++) {
        write_both(f, 1);
        writes_at = takes[i];
        before_take = write_once;
        reshard(f, i % 2 ? SHARDS : SHARDS + 2);
        before_take = NULL;
        assert_int_equal(writes_at, 0);
        assert_both(f, 2);
    }
}

#define LONG_BYTES (32 * KIB)
#define LONG_ROWS  600

/* The rows of one call fill the write buffers of each shard several times. */
static void test_a_write_of_more_than_the_write_buffers_ends(void **state)
{
    struct store_fixture *const f = *state;
    struct store_row *const rows = test_calloc(LONG_ROWS, sizeof(*rows));
    unsigned char *const bytes = test_calloc(1, LONG_BYTES);
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    struct err_msg msg = { { 0 } };
    uint32_t count = 0;

    f->config.rocksdb.memtable_bytes = 2 * MIB;
    fixture_open(f);
    reshard(f, SHARDS + 3);
    for (uint64_t id = 0; count < LONG_ROWS; id++)
        if (store_bucket_map(f->store)
                ->shards[row_bucket(row_hash(store_hasher(f->store), TABLE, id))] == 1)
            rows[count++] = (struct store_row){
                .table_id = TABLE, .id = id, .weight_bytes = LONG_BYTES, .bytes = bytes
            };
    for (uint32_t i = 0; i < 3; i++) {
        enum embtier_err err;

        while ((err = store_write(f->store, 1, rows, count, &msg)) == EMBTIER_BUSY) {
            assert_true(clock_now_ns(&clock_monotonic) - began_ns < FIXTURE_WAIT_NS);
            usleep(1000);
        }
        must(err, &msg);
    }
    test_free(rows);
    test_free(bytes);
}

/* ---- Values that were set since the start ---- */

/* The shard is made, and the store has not got it yet. */
static void tune_more(struct job *job, enum reshard_step step)
{
    struct err_msg msg = { { 0 } };

    if (step == RESHARD_SHARD_MADE)
        must(store_set_trigger_files(job->f->store, 9, &msg), &msg);
}

static void test_new_shards_have_the_values_that_were_set_meanwhile(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    struct job job;

    fixture_open(f);
    must(store_set_threads(f->store, 8, &msg), &msg);
    must(store_set_trigger_files(f->store, 7, &msg), &msg);
    reshard(f, SHARDS + 1);
    for (uint32_t i = 0; i < store_database_count(f->store); i++) {
        struct database *const database = store_database_at(f->store, i);

        assert_int_equal(database_tuned(database, ROCKSDB_EXT_TUNING_COMPACTIONS), 6);
        assert_int_equal(database_tuned(database, ROCKSDB_EXT_TUNING_TRIGGER_FILES), 7);
    }
    job_init(&job, f, SHARDS + 2);
    job.act = tune_more;
    must(reshard_run(f->store, &job.opts, &msg), &msg);
    for (uint32_t i = 0; i < store_database_count(f->store); i++)
        assert_int_equal(
            database_tuned(store_database_at(f->store, i), ROCKSDB_EXT_TUNING_TRIGGER_FILES), 9);
}

/* ---- Drops ---- */

static struct store_fixture *dropping;
static uint32_t takes_left;

static void drop_once(void)
{
    struct err_msg msg = { { 0 } };

    if (takes_left == 0 || --takes_left > 0)
        return;
    must(store_drop_table(dropping->store, 2, false, NULL, NULL, NULL, &msg), &msg);
    must(store_drop_table(dropping->store, FIXTURE_LOGGED + 1, true, NULL, NULL, NULL, &msg), &msg);
}

/* The walk over the source and its batch have rows of the tables when these are dropped. */
static void test_rows_of_a_table_dropped_meanwhile_do_not_come_back(void **state)
{
    struct store_fixture *const f = *state;

    fixture_open(f);
    write_both(f, 1);
    fixture_write_all(f, 2, 0, ROWS, 1);
    fixture_write_all(f, FIXTURE_LOGGED + 1, 0, ROWS, 1);
    dropping = f;
    /* Each shard has a fourth of the rows of two `replay` tables, then of two logged ones. */
    for (uint32_t at = 0; at < 4; at++) {
        static const uint32_t takes[] = { 10, 500, 900, 1300 };

        takes_left = takes[at];
        before_take = drop_once;
        reshard(f, at % 2 ? SHARDS : SHARDS + 2);
        before_take = NULL;
        assert_int_equal(takes_left, 0);
        assert_int_equal(fixture_count_found(f, 2, 0, ROWS), 0);
        assert_int_equal(fixture_count_found(f, FIXTURE_LOGGED + 1, 0, ROWS), 0);
        for (uint32_t s = 0; s < f->store->map->shard_count; s++)
            for (uint32_t i = 0; i < 50; i++) {
                unsigned char bytes[FIXTURE_ROW_BYTES];
                struct store_row row = { .table_id = 2,
                                         .id = i,
                                         .weight_bytes = FIXTURE_WEIGHT_BYTES,
                                         .state_bytes = FIXTURE_STATE_BYTES,
                                         .bytes = bytes };
                struct err_msg msg = { { 0 } };

                must(database_read(store_database_of(f->store, s, false), &row, 1, &msg), &msg);
                assert_false(row.found);
            }
        fixture_write_all(f, 2, 0, ROWS, 1);
        fixture_write_all(f, FIXTURE_LOGGED + 1, 0, ROWS, 1);
    }
    assert_both(f, 1);
}

/* ---- Failures of a target ---- */

static void fail_and_write(struct job *job, enum reshard_step step)
{
    if (step != RESHARD_BEGUN)
        return;
    failing_path = "/shard-0004/";
    write_both(job->f, 2); /* no client hears of it */
    failing_path = NULL;
}

static void test_a_target_that_fails_ends_the_job_and_no_write(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    job_init(&job, f, SHARDS + 1);
    job.act = fail_and_write;
    assert_int_equal(reshard_run(f->store, &job.opts, &msg), EMBTIER_IO);
    assert_non_null(strstr(msg.text, "/shard-0004/"));
    assert_both(f, 2);
    write_both(f, 3);
    reshard(f, SHARDS + 1);
    assert_both(f, 3);
    assert_spread(f, SHARDS + 1);
}

static void fail_when_switching(struct job *job, enum reshard_step step)
{
    struct fixture_batch *batch;
    enum embtier_err err = EMBTIER_OK;
    struct err_msg msg;

    if (step != RESHARD_WRITTEN)
        return;
    failing_path = "/shard-0004/";
    batch = malloc(sizeof(*batch));
    for (uint32_t route = 0; route < SHARDS; route++) {
        (void)fixture_gather(job->f, route, TABLE, 0, ROWS, batch);
        for (uint32_t i = 0; i < batch->count; i++)
            fixture_row_bytes(TABLE, batch->rows[i].id, 2, batch->rows[i].bytes);
        if (store_write(job->f->store, route, batch->rows, batch->count, &msg) != EMBTIER_OK)
            err = EMBTIER_IO;
    }
    assert_int_equal(err, EMBTIER_IO);
    free(batch);
    failing_path = NULL;
    fixture_write_all(job->f, TABLE, 0, ROWS, 2);
    job->act = NULL;
}

/* Once the new map may be on disk, a row must be in its target. */
static void test_a_target_that_fails_after_the_switch_began_fails_writes(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    job_init(&job, f, SHARDS + 1);
    job.act = fail_when_switching;
    must(reshard_run(f->store, &job.opts, &msg), &msg);
    assert_null(job.act);
    assert_int_equal(fixture_count_right(f, TABLE, 0, ROWS, 2), ROWS);
    assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, ROWS, 1), ROWS);
}

/* ---- Logs ---- */

static void sync_all(struct job *job, enum reshard_step step)
{
    static const uint32_t routes[] = { 3, 0, 2, 1 };
    struct err_msg msg = { { 0 } };
    const bool has_new = step == RESHARD_BEGUN || step == RESHARD_COPIED ||
                         step == RESHARD_CHECKPOINTED || step == RESHARD_WRITTEN ||
                         step == RESHARD_SWITCHED;

    memset(synced_shards, 0, sizeof(synced_shards));
    must(store_sync_logs(job->f->store, routes, ARRAY_LEN(routes), &msg), &msg);
    for (uint32_t s = 0; s < SHARDS; s++)
        assert_true(synced_shards[s]);
    if (has_new || job->moved > 0)
        assert_true(synced_shards[SHARDS]);
    else
        assert_false(synced_shards[SHARDS]);
}

static void test_logs_of_targets_are_synced_with_those_of_their_sources(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    job_init(&job, f, SHARDS + 1);
    job.act = sync_all;
    must(reshard_run(f->store, &job.opts, &msg), &msg);
}

static void fail_a_sync(struct job *job, enum reshard_step step)
{
    static const uint32_t routes[] = { 0, 1, 2, 3 };
    struct err_msg msg = { { 0 } };

    if (step != RESHARD_BEGUN)
        return;
    unsynced_path = "/shard-0004/";
    must(store_sync_logs(job->f->store, routes, ARRAY_LEN(routes), &msg), &msg);
    unsynced_path = "/shard-0000/";
    assert_int_equal(store_sync_logs(job->f->store, routes, ARRAY_LEN(routes), &msg), EMBTIER_IO);
    unsynced_path = NULL;
}

static void test_a_target_that_cannot_be_synced_ends_the_job_and_no_sync(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    job_init(&job, f, SHARDS + 1);
    job.act = fail_a_sync;
    assert_int_equal(reshard_run(f->store, &job.opts, &msg), EMBTIER_IO);
    assert_both(f, 1);
}

/* ---- Steps of tables ---- */

static void note_step(void *context, uint32_t table_id, uint64_t step)
{
    if (table_id == FIXTURE_LOGGED)
        *(uint64_t *)context = MAX(*(uint64_t *)context, step);
}

static void test_the_steps_of_tables_move_with_their_rows(void **state)
{
    struct store_fixture *const f = *state;
    unsigned char bytes[FIXTURE_ROW_BYTES] = { 0 };
    struct store_row row = { .table_id = FIXTURE_LOGGED,
                             .logged = true,
                             .table_step = STEP,
                             .id = 1,
                             .weight_bytes = FIXTURE_WEIGHT_BYTES,
                             .state_bytes = FIXTURE_STATE_BYTES,
                             .bytes = bytes };
    struct err_msg msg = { { 0 } };
    uint64_t step = 0;

    fixture_open(f);
    /* All shards have the step. */
    for (row.id = 0; row.id < 100; row.id++)
        must(store_write(f->store,
                         store_bucket_map(f->store)->shards[row_bucket(
                             row_hash(store_hasher(f->store), row.table_id, row.id))],
                         &row, 1, &msg),
             &msg);
    reshard(f, SHARDS + 2);
    for (uint32_t s = SHARDS; s < SHARDS + 2; s++) {
        uint64_t one = 0;

        must(database_table_steps(store_database_of(f->store, s, true), note_step, &one, &msg),
             &msg);
        step = MAX(step, one);
    }
    assert_int_equal(step, STEP);
    must(store_drop_table(f->store, FIXTURE_LOGGED, true, NULL, NULL, NULL, &msg), &msg);
    step = 0;
    must(store_table_steps(f->store, note_step, &step, &msg), &msg);
    assert_int_equal(step, 0);
}

/* ---- A checkpoint while buckets switch ---- */

struct draft_job {
    struct checkpoint_draft *draft;
    enum embtier_err err;
};

static void capture_around(struct job *job, enum reshard_step step)
{
    struct draft_job *const draft = job->context;
    struct err_msg msg = { { 0 } };

    if (step == RESHARD_BEGUN && !draft->draft) {
        must(checkpoint_begin(store_shelf(job->f->store), &draft->draft, &msg), &msg);
        must(store_capture(job->f->store, draft->draft, true, UINT64_MAX, NULL, &msg), &msg);
    }
    if (step == RESHARD_SWITCHED && draft->err == EMBTIER_OK)
        draft->err = store_capture(job->f->store, draft->draft, false, UINT64_MAX, NULL, &msg);
}

static void test_a_checkpoint_does_not_span_a_switch(void **state)
{
    struct draft_job draft = { NULL, EMBTIER_OK };
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    job_init(&job, f, SHARDS + 1);
    job.act = capture_around;
    job.context = &draft;
    must(reshard_run(f->store, &job.opts, &msg), &msg);
    assert_int_equal(draft.err, EMBTIER_BUSY);
    checkpoint_draft_free(draft.draft);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_plan_moves_as_few_buckets_as_can_be),
        STORE_TEST(test_buckets_move_to_more_shards_and_back),
        STORE_TEST(test_a_job_that_has_nothing_to_do_changes_nothing),
        STORE_TEST(test_a_hold_counts_where_rows_lie_now),
        STORE_TEST(test_rows_written_at_each_step_are_kept),
        STORE_TEST(test_rows_written_while_others_are_on_their_way_are_the_newer_ones),
        STORE_TEST(test_threads_write_while_buckets_move),
        STORE_TEST(test_a_write_of_more_than_the_write_buffers_ends),
        STORE_TEST(test_new_shards_have_the_values_that_were_set_meanwhile),
        STORE_TEST(test_rows_of_a_table_dropped_meanwhile_do_not_come_back),
        STORE_TEST(test_a_target_that_fails_ends_the_job_and_no_write),
        STORE_TEST(test_a_target_that_fails_after_the_switch_began_fails_writes),
        STORE_TEST(test_logs_of_targets_are_synced_with_those_of_their_sources),
        STORE_TEST(test_a_target_that_cannot_be_synced_ends_the_job_and_no_sync),
        STORE_TEST(test_the_steps_of_tables_move_with_their_rows),
        STORE_TEST(test_a_checkpoint_does_not_span_a_switch),
    };

    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
