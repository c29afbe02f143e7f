/* SPDX-License-Identifier: Apache-2.0 */
/* bench_durability.c: the cost of losing nothing.
 *
 * sync: rows a second of SETs into a table of durability `sync`. The reference is RocksDB's own
 * group commit in process. It has as many threads as we keep requests in flight. They write
 * equally large batches to as many databases with WriteOptions.sync, one write for each
 * database. Neither side reads, and neither has too small a cache. A turn ends with everything
 * on disk.
 *
 * async-cost, sync-cost: the load of `mixed` (mixed_load.h) on an `async`, or `sync`, table
 * compared with the same load on a `replay` table. Each has a server of its own, and one server
 * idles while the other works. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/lib/bench_server.h"
#include "tests/bench/lib/mixed_load.h"
#include "tests/bench/lib/rocksdb_alone.h"

#define DIM        64
#define ROW_BYTES  (DIM * sizeof(float))
#define BATCH_ROWS 256
#define IN_FLIGHT  8
#define SHARDS     4
#define ROW_COUNT  1000000

/* ---- sync ---- */

struct sync {
    struct bench_server server;
    struct bench_server_shape shape;
    struct harness twin; /* the reference writes to its empty shards */
    struct rocksdb_alone alone;
    struct embtier_batch *batches[IN_FLIGHT];
    uint64_t rows;
    uint64_t random;
};

static void begin(void *context, uint32_t slot)
{
    struct sync *const sync = context;

    for (uint32_t i = 0; i < BATCH_ROWS; i++)
        embtier_batch_ids(sync->batches[slot], 0)[i] = bench_random(&sync->random) % sync->rows;
    bench_submit(sync->batches[slot], EMBTIER_SET);
}

static void end(void *context, uint32_t slot)
{
    struct sync *const sync = context;

    bench_wait(sync->batches[slot]);
}

static double ours(void *context)
{
    return BATCH_ROWS * bench_pipeline(IN_FLIGHT, bench_settings.seconds, begin, end, context);
}

struct writer {
    const struct sync *sync;
    struct rocksdb_alone_batch *batch;
    char *rows;
    uint64_t random;
};

static uint64_t write_batch(void *context)
{
    struct writer *const writer = context;
    uint64_t ids[BATCH_ROWS];

    for (uint32_t i = 0; i < BATCH_ROWS; i++)
        ids[i] = bench_random(&writer->random) % writer->sync->rows;
    rocksdb_alone_sort(&writer->sync->alone, ids, BATCH_ROWS, writer->batch);
    rocksdb_alone_set(&writer->sync->alone, writer->batch, writer->rows);
    return BATCH_ROWS;
}

static double group_commit(void *context)
{
    struct sync *const sync = context;
    struct writer writers[IN_FLIGHT];
    double rate;

    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        writers[i] = (struct writer){ .sync = sync,
                                      .batch = bench_alloc(1, sizeof(*writers[i].batch)),
                                      .rows = bench_alloc(BATCH_ROWS, ROW_BYTES),
                                      .random = bench_random(&sync->random) };
    rate =
        bench_threads(IN_FLIGHT, bench_settings.seconds, write_batch, writers, sizeof(writers[0]));
    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        free(writers[i].batch);
        free(writers[i].rows);
    }
    return rate;
}

/* Makes and closes a store. */
static void make_twin(struct sync *sync, struct rocksdb_alone_opts *opts)
{
    static char path[256];
    struct bench_server server;

    bench_server_start(&server, &sync->shape);
    bench_server_tables(&server, 1, sync->rows, DIM);
    *opts = (struct rocksdb_alone_opts){
        .shard_count = SHARDS,
        .table_id = embtier_table_info(server.tables[0])->table_id,
        .row_bytes = ROW_BYTES,
        .writes = true,
        .logged = true,
    };
    bench_server_stop(&server);
    sync->twin = server.harness;
    snprintf(path, sizeof(path), "%s/rows", sync->twin.directory);
    opts->harness = &sync->twin;
    opts->rows = path;
}

static void run_sync(void)
{
    struct sync *const sync = bench_alloc(1, sizeof(*sync));
    struct rocksdb_alone_opts opts;
    struct embtier_part part;

    sync->random = 42;
    sync->rows = bench_scaled(ROW_COUNT, 10000);
    sync->shape = (struct bench_server_shape){ .shards = SHARDS,
                                               .dram_bytes = 1024 * MIB,
                                               .durability = EMBTIER_DURABILITY_SYNC };
    make_twin(sync, &opts);
    rocksdb_alone_open(&sync->alone, &opts);
    bench_server_start(&sync->server, &sync->shape);
    bench_server_tables(&sync->server, 1, sync->rows, DIM);
    part = (struct embtier_part){ sync->server.tables[0], BATCH_ROWS };
    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        sync->batches[i] = bench_batch(&sync->server, &part, 1);
    bench_compare(
        &(struct bench_figure){ .name = "sync",
                                .unit = "rows/s",
                                .bar = 0.9,
                                .limit = "flushes of the device's cache a second",
                                .reference_name = "RocksDB's group commit in process",
                                .reference_options =
                                    "4 databases, WriteOptions.sync; 8 threads, or requests under "
                                    "way, of 256 rows" },
        ours, group_commit, sync, NULL);
    rocksdb_alone_close(&sync->alone);
    harness_done(&sync->twin);
    bench_server_done(&sync->server);
    free(sync);
}

/* ---- async-cost, sync-cost ---- */

struct cost {
    struct mixed_load logged, replay;
};

static double logged(void *context)
{
    struct cost *const cost = context;

    return mixed_load_turn(&cost->logged);
}

static double replay(void *context)
{
    struct cost *const cost = context;

    return mixed_load_turn(&cost->replay);
}

static void say_bytes(void *context, json_t *figure)
{
    struct cost *const cost = context;
    struct bench_server *const server = &cost->logged.server;

    json_object_set_new(figure, "log_bytes",
                        json_real(bench_metric(server, "store_written_bytes", "log")));
    json_object_set_new(figure, "written_bytes",
                        json_real(bench_metric(server, "store_written_bytes", NULL)));
    json_object_set_new(figure, "reference_written_bytes",
                        json_real(bench_metric(&cost->replay.server, "store_written_bytes", NULL)));
}

static void run_cost(const char *name, enum embtier_durability durability)
{
    struct cost *const cost = bench_alloc(1, sizeof(*cost));
    struct trace trace = mixed_trace();

    mixed_load_start(&cost->replay, &(struct bench_server_shape){ 0 }, &trace);
    mixed_load_start(&cost->logged, &(struct bench_server_shape){ .durability = durability },
                     &trace);
    mixed_load_warm_up(&cost->replay);
    mixed_load_warm_up(&cost->logged);
    bench_compare(
        &(struct bench_figure){ .name = name,
                                .unit = "rows/s",
                                .limit = "RocksDB's writes on one thread, flush and compaction",
                                .reference_name = "the same with durability replay",
                                .reference_options = "the load of mixed; 1 lane, 8 shards" },
        logged, replay, cost, say_bytes);
    mixed_load_done(&cost->logged);
    mixed_load_done(&cost->replay);
    trace_free(&trace);
    free(cost);
}

static void run_async_cost(void)
{
    run_cost("async-cost", EMBTIER_DURABILITY_ASYNC);
}

static void run_sync_cost(void)
{
    run_cost("sync-cost", EMBTIER_DURABILITY_SYNC);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "sync", run_sync },
        { "async-cost", run_async_cost },
        { "sync-cost", run_sync_cost },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
