/* SPDX-License-Identifier: Apache-2.0 */
/* bench_mixed.c: reading and writing more rows than the cache holds.
 *
 * mixed: Zipf 1.05 over 8 M rows of 512 bytes, ids scrambled; a batch of 4,096 is read, changed and
 * written; DRAM for 15 % of the rows' bytes. The reference is RocksDB alone on a copy of the same
 * shards, with a block cache of the same bytes (and of those for index and filters), as many
 * threads as the server has readers, each doing the same with batches of its own; it compacts as it
 * likes.
 *
 * Both sides go through the same draws, in turns of some seconds each, after a warm-up; both write
 * without a log. Rows a second are rows read plus rows written. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench_server.h"
#include "tests/bench/rocksdb_alone.h"
#include "tests/bench/trace.h"

#define DIM            128
#define ROW_BYTES      (DIM * sizeof(float))
#define BATCH_ROWS     ALONE_BATCH_ROWS
#define READERS        4
#define SHARDS         8
#define EXPONENT       1.05
#define CACHED_SHARE   0.15
#define DRAWS          (UINT32_C(8) << 20) /* used round and round */
#define SCRAMBLE       UINT64_C(2654435761)
#define METADATA_BYTES (128 * MIB)
#define PATIENCE       16 /* turns are so many times as long: compaction comes and goes */
#define WARM_UP_TURNS  3

struct mixed {
    struct bench_server server;
    struct bench_server_shape shape;
    uint64_t rows;
    struct trace trace;
    _Atomic uint64_t next_draw;
    struct embtier_batch *batches[READERS];
    bool is_set[READERS]; /* what is in flight */
    uint64_t asked, hits; /* of GET */
    char copy[128];       /* the reference's data directory */
    struct rocksdb_alone alone;
};

static void next_ids(struct mixed *mixed, uint64_t *ids)
{
    const uint64_t first = atomic_fetch_add(&mixed->next_draw, BATCH_ROWS);

    for (uint32_t i = 0; i < BATCH_ROWS; i++)
        /* Scrambled, by a prime: neighbours in popularity are no neighbours on disk. */
        ids[i] = mixed->trace.draws[(first + i) % DRAWS] * SCRAMBLE % mixed->rows;
}

static void copy_rows(struct mixed *mixed)
{
    char command[512];

    snprintf(mixed->copy, sizeof(mixed->copy), "%s/copy", mixed->server.harness.directory);
    snprintf(command, sizeof(command), "cp -a '%s/rows' '%s'", mixed->server.harness.directory,
             mixed->copy);
    if (system(command) != 0) // NOLINT(cert-env33-c): the benchmark's own words
        bench_die("cannot copy the shards");
}

static void set_up(struct mixed *mixed)
{
    struct embtier_part part;
    uint32_t table_id;

    memset(mixed, 0, sizeof(*mixed));
    mixed->rows = bench_scaled(8000000, 200000);
    mixed->shape = (struct bench_server_shape){
        .readers_per_lane = READERS,
        .shards = SHARDS,
        .dram_bytes = (uint64_t)(CACHED_SHARE * (double)(mixed->rows * ROW_BYTES)),
        .metadata_cache_bytes = METADATA_BYTES,
    };
    bench_server_start(&mixed->server, &mixed->shape);
    bench_server_tables(&mixed->server, 1, mixed->rows, DIM);
    bench_say("storing %llu rows", (unsigned long long)mixed->rows);
    bench_touch_all(&mixed->server, EMBTIER_SET);
    table_id = embtier_table_info(mixed->server.tables[0])->table_id;
    bench_server_stop(&mixed->server);
    bench_server_again(&mixed->server, &mixed->shape);
    bench_server_settle(&mixed->server);
    bench_server_stop(&mixed->server);
    copy_rows(mixed);
    bench_server_again(&mixed->server, &mixed->shape);
    part = (struct embtier_part){ mixed->server.tables[0], BATCH_ROWS };
    for (uint32_t i = 0; i < READERS; i++)
        mixed->batches[i] = bench_batch(&mixed->server, &part, 1);
    rocksdb_alone_open(&mixed->alone, &(struct rocksdb_alone_opts){
                                          .harness = &mixed->server.harness,
                                          .rows = mixed->copy,
                                          .shard_count = SHARDS,
                                          .table_id = table_id,
                                          .row_bytes = ROW_BYTES,
                                          .cache_bytes = mixed->shape.dram_bytes + METADATA_BYTES,
                                          .writes = true,
                                      });
    mixed->trace = trace_zipf((uint32_t)mixed->rows, DRAWS, EXPONENT);
}

static void clear(struct mixed *mixed)
{
    rocksdb_alone_close(&mixed->alone);
    bench_server_done(&mixed->server);
    trace_free(&mixed->trace);
    free(mixed);
}

/* What a trainer does to a row, in little. */
static void change(char *rows)
{
    for (uint32_t i = 0; i < BATCH_ROWS; i++)
        *(float *)(rows + i * ROW_BYTES) += 1;
}

/* ---- Ours ---- */

static void begin(void *context, uint32_t slot)
{
    struct mixed *const mixed = context;
    struct embtier_batch *const batch = mixed->batches[slot];

    mixed->is_set[slot] = !mixed->is_set[slot];
    if (mixed->is_set[slot])
        change(embtier_batch_rows(batch, 0));
    else
        next_ids(mixed, embtier_batch_ids(batch, 0));
    bench_submit(batch, mixed->is_set[slot] ? EMBTIER_SET : EMBTIER_GET);
}

static void end(void *context, uint32_t slot)
{
    struct mixed *const mixed = context;

    bench_wait(mixed->batches[slot]);
    if (!mixed->is_set[slot]) {
        mixed->asked += BATCH_ROWS;
        mixed->hits += embtier_batch_hit_rows(mixed->batches[slot]);
    }
}

static double ours(void *context)
{
    struct mixed *const mixed = context;

    for (uint32_t i = 0; i < READERS; i++)
        mixed->is_set[i] = true; /* so the turn begins with GETs */
    return BATCH_ROWS *
           bench_pipeline(READERS, bench_settings.seconds * PATIENCE, begin, end, mixed);
}

/* ---- The reference ---- */

struct user {
    struct mixed *mixed;
    struct rocksdb_alone_batch *batch;
    char *rows;
};

static uint64_t use_batch(void *context)
{
    struct user *const user = context;
    const struct rocksdb_alone *const alone = &user->mixed->alone;
    uint64_t ids[BATCH_ROWS];

    next_ids(user->mixed, ids);
    rocksdb_alone_sort(alone, ids, BATCH_ROWS, user->batch);
    rocksdb_alone_get(alone, user->batch, user->rows);
    change(user->rows);
    rocksdb_alone_set(alone, user->batch, user->rows);
    return UINT64_C(2) * BATCH_ROWS;
}

static double alone(void *context)
{
    struct user users[READERS];
    double rate;

    for (uint32_t i = 0; i < READERS; i++)
        users[i] = (struct user){ .mixed = context,
                                  .batch = bench_alloc(1, sizeof(*users[i].batch)),
                                  .rows = bench_alloc(BATCH_ROWS, ROW_BYTES) };
    rate = bench_threads(READERS, bench_settings.seconds * PATIENCE, use_batch, users,
                         sizeof(users[0]));
    for (uint32_t i = 0; i < READERS; i++) {
        free(users[i].batch);
        free(users[i].rows);
    }
    return rate;
}

static void say_more(void *context, json_t *figure)
{
    struct mixed *const mixed = context;

    json_object_set_new(figure, "hit_rate", json_real((double)mixed->hits / (double)mixed->asked));
    json_object_set_new(figure, "rows", json_integer((json_int_t)mixed->rows));
    json_object_set_new(figure, "cache_bytes", json_real((double)mixed->shape.dram_bytes));
    json_object_set_new(figure, "flush_bytes",
                        json_real(bench_metric(&mixed->server, "store_written_bytes", "flush")));
    json_object_set_new(
        figure, "compaction_bytes",
        json_real(bench_metric(&mixed->server, "store_written_bytes", "compaction")));
}

static void mixed_run(void)
{
    struct mixed *const mixed = bench_alloc(1, sizeof(*mixed));

    set_up(mixed);
    for (uint32_t i = 0; i < WARM_UP_TURNS; i++) {
        (void)ours(mixed);
        (void)alone(mixed);
    }
    mixed->asked = mixed->hits = 0;
    bench_compare(
        &(struct bench_figure){ .name = "mixed",
                                .unit = "rows/s",
                                .bar = 2,
                                .limit = "device reads a second for the misses; compaction's bytes",
                                .reference_name = "RocksDB with a block cache of the same bytes",
                                .reference_options =
                                    "8 shards, 4 threads, 4,096 ids a batch, direct I/O" },
        ours, alone, mixed, say_more);
    clear(mixed);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "mixed", mixed_run },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
