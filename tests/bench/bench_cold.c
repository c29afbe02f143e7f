/* SPDX-License-Identifier: Apache-2.0 */
/* bench_cold.c: reads of rows that no cache has.
 *
 * cold-get: GET of stored rows, uniform, past the page cache.
 * first-touch: the first GET of rows never written, with ids between those of the stored ones.
 * The reference is the GET of stored rows. Nothing may be written to SSD.
 *
 * One table of 8 M ids, dim 128 f32; the even ids are stored, 2 GiB. The cache is as small as it
 * can be, and each turn starts the server anew. The reference of cold-get opens the same shards
 * with the same options, with one thread for each of the server's readers. Each thread calls
 * rocksdb_batched_multi_get_cf() with the ids of equally large batches, by shard and sorted, and
 * copies the rows out. It reads with pread(), RocksDB's default. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/lib/bench_server.h"
#include "tests/bench/lib/rocksdb_alone.h"

#define DIM         128
#define ROW_BYTES   (DIM * sizeof(float))
#define BATCH_ROWS  4096
#define IN_FLIGHT   4
#define SHARDS      8
#define READERS     4
#define PATIENCE    6  /* makes turns longer: they start cold */
#define CHECK_EVERY 16 /* in batches */

struct cold {
    struct bench_server server;
    struct bench_server_shape shape;
    uint64_t rows; /* stored; their ids are 0, 2, 4, … */
    uint32_t table_id;
    uint64_t random;
    uint64_t odd; /* 1: takes ids never written */
    struct embtier_batch *batches[IN_FLIGHT];
    uint64_t asked, hits;
    double written_bytes; /* by the server, in turns of first-touch */
    double processor_s;   /* of the server, in our turns */
};

static uint64_t any_id(const struct cold *cold, uint64_t *random)
{
    return bench_random(random) % cold->rows * 2 + cold->odd;
}

static void store_rows(struct cold *cold)
{
    const struct embtier_part part = { cold->server.tables[0], BATCH_ROWS };
    struct embtier_batch *const batch = bench_batch(&cold->server, &part, 1);
    float *const rows = embtier_batch_rows(batch, 0);

    bench_say("storing %llu rows", (unsigned long long)cold->rows);
    for (uint64_t first = 0; first < cold->rows; first += BATCH_ROWS) {
        for (uint32_t i = 0; i < BATCH_ROWS; i++) {
            const uint64_t id = (first + i) % cold->rows * 2;

            embtier_batch_ids(batch, 0)[i] = id;
            for (uint32_t j = 0; j < DIM; j++)
                rows[(uint64_t)i * DIM + j] = (float)(id + j);
        }
        bench_do(batch, EMBTIER_SET);
    }
    if (embtier_batch_free(batch) != EMBTIER_OK)
        bench_die("a batch is still in flight");
}

static void set_up(struct cold *cold)
{
    memset(cold, 0, sizeof(*cold));
    cold->random = 42;
    cold->rows = bench_scaled(4000000, 100000);
    cold->shape = (struct bench_server_shape){ .readers_per_lane = READERS,
                                               .shards = SHARDS,
                                               .dram_bytes = 8 * MIB,
                                               .metadata_cache_bytes = 128 * MIB };
    bench_server_start(&cold->server, &cold->shape);
    bench_server_tables(&cold->server, 1, cold->rows * 2, DIM);
    cold->table_id = embtier_table_info(cold->server.tables[0])->table_id;
    store_rows(cold);
    bench_server_stop(&cold->server); /* flushes everything */
    bench_server_again(&cold->server, &cold->shape);
    bench_server_settle(&cold->server);
    bench_server_stop(&cold->server);
}

static void clear(struct cold *cold)
{
    harness_done(&cold->server.harness);
    free(cold);
}

/* ---- Ours ---- */

static void check(const struct cold *cold, struct embtier_batch *batch)
{
    const float *const rows = embtier_batch_rows(batch, 0);

    for (uint32_t i = 0; i < BATCH_ROWS && !cold->odd; i++)
        if (rows[(uint64_t)i * DIM] != (float)embtier_batch_ids(batch, 0)[i])
            bench_die("a row is not what was stored");
}

static void begin(void *context, uint32_t slot)
{
    struct cold *const cold = context;

    for (uint32_t i = 0; i < BATCH_ROWS; i++)
        embtier_batch_ids(cold->batches[slot], 0)[i] = any_id(cold, &cold->random);
    bench_submit(cold->batches[slot], EMBTIER_GET);
}

static void end(void *context, uint32_t slot)
{
    struct cold *const cold = context;
    struct embtier_batch *const batch = cold->batches[slot];

    bench_wait(batch);
    if (cold->asked % (BATCH_ROWS * CHECK_EVERY) == 0)
        check(cold, batch);
    cold->asked += BATCH_ROWS;
    cold->hits += embtier_batch_hit_rows(batch);
}

static double ours(void *context)
{
    struct cold *const cold = context;
    struct embtier_part part;
    double processor_s, rate;

    bench_server_again(&cold->server, &cold->shape);
    part = (struct embtier_part){ cold->server.tables[0], BATCH_ROWS };
    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        cold->batches[i] = bench_batch(&cold->server, &part, 1);
    processor_s = bench_server_processor_s(&cold->server);
    rate =
        BATCH_ROWS * bench_pipeline(IN_FLIGHT, bench_settings.seconds * PATIENCE, begin, end, cold);
    cold->processor_s += bench_server_processor_s(&cold->server) - processor_s;
    cold->written_bytes += bench_metric(&cold->server, "store_written_bytes", "flush") +
                           bench_metric(&cold->server, "store_written_bytes", "compaction");
    bench_server_stop(&cold->server);
    return rate;
}

/* ---- The reference ---- */

struct reader {
    const struct cold *cold;
    struct rocksdb_alone *alone;
    struct rocksdb_alone_batch *batch;
    char *rows;
    uint64_t random;
};

static uint64_t read_batch(void *context)
{
    struct reader *const reader = context;
    uint64_t ids[BATCH_ROWS];

    for (uint32_t i = 0; i < BATCH_ROWS; i++)
        ids[i] = any_id(reader->cold, &reader->random);
    rocksdb_alone_sort(reader->alone, ids, BATCH_ROWS, reader->batch);
    rocksdb_alone_get(reader->alone, reader->batch, reader->rows);
    return BATCH_ROWS;
}

static double rocksdb_alone(void *context)
{
    struct cold *const cold = context;
    const struct harness *const harness = &cold->server.harness;
    struct reader readers[READERS];
    struct rocksdb_alone alone;
    char path[128];
    double rate;

    snprintf(path, sizeof(path), "%s/rows", harness->directory);
    rocksdb_alone_open(&alone, &(struct rocksdb_alone_opts){ .harness = harness,
                                                             .rows = path,
                                                             .shard_count = SHARDS,
                                                             .table_id = cold->table_id,
                                                             .row_bytes = ROW_BYTES });
    for (uint32_t i = 0; i < READERS; i++)
        readers[i] = (struct reader){ .cold = cold,
                                      .alone = &alone,
                                      .batch = bench_alloc(1, sizeof(*readers[i].batch)),
                                      .rows = bench_alloc(BATCH_ROWS, ROW_BYTES),
                                      .random = bench_random(&cold->random) };
    rate = bench_threads(READERS, bench_settings.seconds * PATIENCE, read_batch, readers,
                         sizeof(readers[0]));
    for (uint32_t i = 0; i < READERS; i++) {
        free(readers[i].batch);
        free(readers[i].rows);
    }
    rocksdb_alone_close(&alone);
    return rate;
}

static void say_more(void *context, json_t *figure)
{
    const struct cold *const cold = context;

    json_object_set_new(figure, "hit_rate", json_real((double)cold->hits / (double)cold->asked));
    json_object_set_new(figure, "stored_rows", json_integer((json_int_t)cold->rows));
    json_object_set_new(figure, "bytes_written_to_ssd", json_real(cold->written_bytes));
}

static void say_cost(void *context, json_t *figure)
{
    const struct cold *const cold = context;

    say_more(context, figure);
    json_object_set_new(figure, "server_processor_us_per_row",
                        json_real(cold->processor_s * 1e6 / (double)cold->asked));
}

static void cold_get(void)
{
    struct cold *const cold = bench_alloc(1, sizeof(*cold));

    set_up(cold);
    bench_compare(
        &(struct bench_figure){
            .name = "cold-get",
            .unit = "rows/s",
            .bar = 0.9,
            .limit = "device reads a second, and RocksDB's time on the processor for each",
            .reference_name = "rocksdb_batched_multi_get_cf in process",
            .reference_options = "8 shards, 4 threads, 4,096 ids a batch, direct I/O" },
        ours, rocksdb_alone, cold, say_cost);
    clear(cold);
}

static double never_written(void *context)
{
    struct cold *const cold = context;
    double rate;

    cold->odd = 1;
    rate = ours(cold);
    cold->odd = 0;
    return rate;
}

static void first_touch(void)
{
    struct cold *const cold = bench_alloc(1, sizeof(*cold));

    set_up(cold);
    bench_compare(&(struct bench_figure){ .name = "first-touch",
                                          .unit = "rows/s",
                                          .bar = 5,
                                          .limit = "Philox and bloom filters on the readers' cores",
                                          .reference_name = "cold-get of the stored rows",
                                          .reference_options = "the same server" },
                  never_written, ours, cold, say_more);
    clear(cold);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "cold-get", cold_get },
        { "first-touch", first_touch },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
