/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_fixture.h: jobs that move buckets of the fixture's store, and where its rows lie then.
 * Each test program includes it once. */
#ifndef EMBTIER_TESTS_UNIT_STORE_RESHARDING_RESHARD_FIXTURE_H
#define EMBTIER_TESTS_UNIT_STORE_RESHARDING_RESHARD_FIXTURE_H

#include <stdatomic.h>

#include "store/checkpoint/table_scan.h"
#include "store/resharding/reshard.h"
#include "store/store_impl.h"
#include "tests/unit/store/store_fixture.h"

#define SHARDS 4
#define ROWS   1500
#define TABLE  1

/* ---- Jobs ---- */

struct job {
    struct store_fixture *f;
    struct move_pace pace;
    struct reshard_opts opts;
    _Atomic bool gives_up;
    uint32_t steps; /* that it has reached */
    uint32_t stop_at;
    enum reshard_step stop_step;
    bool stops_at_step;
    uint32_t moved, total;
    void (*act)(struct job *job, enum reshard_step step);
    void *context;
};

static inline enum embtier_err commit(void *context, struct err_msg *msg)
{
    struct job *const job = context;

    TRY(reshard_check_copied(job->f->store, msg));
    return reshard_switch(job->f->store, fixture_checkpoint(job->f), msg);
}

static inline void reached(void *context, enum reshard_step step, uint32_t moved, uint32_t total)
{
    struct job *const job = context;

    job->steps++;
    job->moved = moved;
    job->total = total;
    if (job->steps == job->stop_at || (job->stops_at_step && step == job->stop_step))
        atomic_store(&job->gives_up, true);
    if (job->act)
        job->act(job, step);
}

static inline enum embtier_err look(void *context, struct err_msg *msg)
{
    struct job *const job = context;

    return atomic_load(&job->gives_up) ? err_shutdown(msg) : EMBTIER_OK;
}

static inline void job_init(struct job *job, struct store_fixture *f, uint32_t shards)
{
    memset(job, 0, sizeof(*job));
    job->f = f;
    job->pace.look = look;
    job->pace.context = job;
    job->opts = (struct reshard_opts){
        .shards = shards, .pace = &job->pace, .commit = commit, .report = reached, .context = job
    };
}

static inline enum embtier_err try_reshard(struct store_fixture *f, uint32_t shards,
                                           struct err_msg *msg)
{
    struct job job;

    job_init(&job, f, shards);
    TRY(reshard_run(f->store, &job.opts, msg));
    if (job.moved != job.total)
        return err_set(msg, EMBTIER_INTERNAL, "%" PRIu32 " of %" PRIu32 " buckets moved", job.moved,
                       job.total);
    return EMBTIER_OK;
}

static inline void reshard(struct store_fixture *f, uint32_t shards)
{
    struct err_msg msg = { { 0 } };

    must(try_reshard(f, shards, &msg), &msg);
}

/* Asserts that @shards shards have buckets, as many each, give or take one. */
static inline void assert_spread(const struct store_fixture *f, uint32_t shards)
{
    const struct bucket_map *const map = f->store->map;
    uint32_t count = 0;

    for (uint32_t s = 0; s < map->shard_count; s++) {
        if (map->bucket_counts[s] == 0)
            continue;
        count++;
        assert_true(map->bucket_counts[s] == ROW_BUCKETS / shards ||
                    map->bucket_counts[s] == ROW_BUCKETS / shards + 1);
        assert_false(map->strays[s]);
    }
    assert_int_equal(count, shards);
}

/* Asserts that each shard has exactly the rows that the map gives it. */
static inline void assert_no_strays(struct store_fixture *f, uint32_t table, uint64_t rows)
{
    const struct bucket_map *const map = f->store->map;

    for (uint64_t id = 0; id < rows; id++) {
        const uint32_t owner = map->shards[row_bucket(row_hash(store_hasher(f->store), table, id))];

        for (uint32_t s = 0; s < map->shard_count; s++) {
            unsigned char bytes[FIXTURE_ROW_BYTES];
            struct store_row row = { .table_id = table,
                                     .logged = table >= FIXTURE_LOGGED,
                                     .id = id,
                                     .weight_bytes = FIXTURE_WEIGHT_BYTES,
                                     .state_bytes = FIXTURE_STATE_BYTES,
                                     .bytes = bytes };
            struct err_msg msg = { { 0 } };

            if (!bucket_map_has(map, s) || map->bucket_counts[s] == 0)
                continue;
            must(database_read(store_database_of(f->store, s, row.logged), &row, 1, &msg), &msg);
            assert_int_equal(row.found, s == owner);
        }
    }
}

static inline void write_both(struct store_fixture *f, uint32_t version)
{
    fixture_write_all(f, TABLE, 0, ROWS, version);
    fixture_write_all(f, FIXTURE_LOGGED, 0, ROWS, version);
}

static inline void assert_both(struct store_fixture *f, uint32_t version)
{
    assert_int_equal(fixture_count_right(f, TABLE, 0, ROWS, version), ROWS);
    assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, ROWS, version), ROWS);
}

static inline void reopen(struct store_fixture *f, bool complete)
{
    struct err_msg msg = { { 0 } };

    must(store_close(TAKE(f->store), complete, &msg), &msg);
    fixture_open(f);
}

/* Asserts that a scan of the newest checkpoint gives each row once. */
static inline void assert_scan(struct store_fixture *f, uint32_t table, uint32_t version)
{
    const struct store_row like = { .table_id = table,
                                    .logged = table >= FIXTURE_LOGGED,
                                    .weight_bytes = FIXTURE_WEIGHT_BYTES,
                                    .state_bytes = FIXTURE_STATE_BYTES };
    struct checkpoint_record *record = NULL;
    struct err_msg msg = { { 0 } };
    struct table_scan *scan = NULL;

    must(checkpoint_read_newest(store_shelf(f->store), &record, &msg), &msg);
    must(checkpoint_verify(store_shelf(f->store), record, NULL, NULL, NULL, &msg), &msg);
    must(table_scan_open(store_shelf(f->store), record, &like, &scan, &msg), &msg);
    for (uint64_t row = 0; row < ROWS; row++) {
        unsigned char expected[FIXTURE_ROW_BYTES];
        uint64_t found = UINT64_MAX;
        const void *const bytes = table_scan_row(scan, &found);

        assert_non_null(bytes);
        assert_int_equal(found, row);
        fixture_row_bytes(table, row, version, expected);
        assert_memory_equal(bytes, expected, sizeof(expected));
        must(table_scan_step(scan, &msg), &msg);
    }
    assert_null(table_scan_row(scan, &(uint64_t){ 0 }));
    table_scan_free(scan);
    checkpoint_record_free(record);
}

#endif
