/* SPDX-License-Identifier: Apache-2.0 */
/* bench_compaction.c: how far compaction lowers the rate of lookups.
 *
 * compaction-dip: the lowest rate of GET in any second in which a shard compacts, over the mean
 * rate when all is compacted. There are 4 M rows of 512 bytes in 8 shards. Ids are uniform and
 * nothing is cached, so every row is a read from the device. All shards urgently need a
 * compaction at the same time: rows were stored, compacted, and then written again until each
 * shard had some 28 files in level 0. Each turn begins with a copy of these shards.
 *
 * The reference is the same server, with as many compactions at a time allowed as there are
 * shards. RocksDB then schedules them by itself: each shard compacts when it is due. Both have a
 * background thread for each shard. With fewer threads than shards, RocksDB's own pool limits
 * the compactions: compaction-dip-2-threads, without a bar, has the default of two. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/lib/bench_server.h"

#define DIM           128
#define ROW_BYTES     (DIM * sizeof(float))
#define BATCH_ROWS    1024 /* some fifty batches a second */
#define IN_FLIGHT     4
#define SHARDS        8
#define READERS       4
#define THREADS       (SHARDS + SHARDS / 2) /* a fourth of RocksDB's threads flush */
#define DRAM_BYTES    (8 * MIB)
#define MEMTABLE      (64 * MIB)
#define LEVEL0_FILES  28
#define FILE_BYTES    (MEMTABLE / SHARDS / 2)
#define QUIET_SECONDS 4 /* without a compaction, after which none will follow */
#define MEAN_SECONDS  15
#define SECONDS_MAX   300
#define TURNS_MAX     3

#define NO_COMPACTION "level0_file_num_compaction_trigger=1000"

struct series {
    double times[SECONDS_MAX], rates[SECONDS_MAX];
    uint32_t count;
};

struct dip {
    struct bench_server server;
    uint64_t rows;
    uint64_t random;
    struct embtier_batch *batches[IN_FLIGHT];
    struct series last[2]; /* ours, the reference's */
};

/* ---- The shards with which all turns begin ---- */

static struct bench_server_shape shape_of(const char *options, uint32_t threads, uint32_t parallel)
{
    return (struct bench_server_shape){ .readers_per_lane = READERS,
                                        .shards = SHARDS,
                                        .dram_bytes = DRAM_BYTES,
                                        .memtable_bytes = MEMTABLE,
                                        .metadata_cache_bytes = 128 * MIB,
                                        .background_threads = threads,
                                        .compaction_parallel = parallel,
                                        .rocksdb_options = options };
}

/* Runs @words in the server's directory. */
static void shell(const struct dip *dip, const char *words)
{
    char text[512];

    snprintf(text, sizeof(text), "cd '%s' && %s", dip->server.harness.directory, words);
    if (system(text) != 0) // NOLINT(cert-env33-c): the benchmark's own words
        bench_die("%s: failed", text);
}

static void make_batches(struct dip *dip)
{
    const struct embtier_part part = { dip->server.tables[0], BATCH_ROWS };

    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        dip->batches[i] = bench_batch(&dip->server, &part, 1);
}

static void draw_ids(struct dip *dip, uint32_t slot)
{
    for (uint32_t i = 0; i < BATCH_ROWS; i++)
        embtier_batch_ids(dip->batches[slot], 0)[i] = bench_random(&dip->random) % dip->rows;
}

static void begin_set(void *context, uint32_t slot)
{
    struct dip *const dip = context;

    draw_ids(dip, slot);
    bench_submit(dip->batches[slot], EMBTIER_SET);
}

static void begin_get(void *context, uint32_t slot)
{
    struct dip *const dip = context;

    draw_ids(dip, slot);
    bench_submit(dip->batches[slot], EMBTIER_GET);
}

static void end(void *context, uint32_t slot)
{
    bench_wait(((struct dip *)context)->batches[slot]);
}

static void set_up(struct dip *dip)
{
    const struct bench_server_shape compacts = shape_of(NULL, THREADS, 1);
    const struct bench_server_shape piles_up = shape_of(NO_COMPACTION, THREADS, 1);
    const double bytes = bench_scaled(LEVEL0_FILES * FILE_BYTES * SHARDS, 8 * MIB);

    dip->random = 42;
    dip->rows = bench_scaled(4000000, 100000);
    bench_server_start(&dip->server, &compacts);
    bench_server_tables(&dip->server, 1, dip->rows, DIM);
    bench_say("storing %llu rows", (unsigned long long)dip->rows);
    bench_touch_all(&dip->server, EMBTIER_SET);
    bench_server_stop(&dip->server);
    bench_server_again(&dip->server, &compacts);
    bench_server_settle(&dip->server);
    bench_server_stop(&dip->server);
    bench_server_again(&dip->server, &piles_up);
    make_batches(dip);
    bench_say("writing %.0f MiB again", bytes / MIB);
    while (bench_metric(&dip->server, "store_written_bytes", "flush") < bytes)
        (void)bench_pipeline(IN_FLIGHT, 0.05, begin_set, end, dip);
    bench_server_stop(&dip->server);
    shell(dip, "mv rows due");
}

/* ---- A turn ---- */

static bool compacts(struct dip *dip)
{
    return bench_metric(&dip->server, "store_compacting_shards", NULL) > 0;
}

static double rate_of_second(struct dip *dip)
{
    return BATCH_ROWS * bench_pipeline(IN_FLIGHT, bench_settings.seconds * 4, begin_get, end, dip);
}

/* Returns the lowest rate of a second in which a shard compacted. */
static double lowest(struct dip *dip, struct series *series)
{
    const double began = bench_now();
    double rate = INFINITY;
    uint32_t quiet = 0;

    for (series->count = 0; quiet < QUIET_SECONDS && series->count < SECONDS_MAX; series->count++) {
        const bool before = compacts(dip);
        const double now = rate_of_second(dip);

        series->times[series->count] = bench_now() - began;
        series->rates[series->count] = now;
        if (before || compacts(dip)) {
            rate = MIN(rate, now);
            quiet = 0;
        } else {
            quiet++;
        }
    }
    if (isinf(rate) || quiet < QUIET_SECONDS)
        bench_die(isinf(rate) ? "no shard compacted" : "compactions do not end");
    return rate;
}

static double mean(struct dip *dip)
{
    double sum = 0;

    bench_server_settle(&dip->server);
    for (uint32_t i = 0; i < MEAN_SECONDS; i++)
        sum += rate_of_second(dip);
    return sum / MEAN_SECONDS;
}

static double turn(struct dip *dip, uint32_t threads, uint32_t parallel, struct series *series)
{
    const struct bench_server_shape shape = shape_of(NULL, threads, parallel);
    double least, most;

    shell(dip, "rm -rf rows && cp -a due rows && sync -f rows");
    bench_server_again(&dip->server, &shape);
    make_batches(dip);
    least = lowest(dip, series);
    most = mean(dip);
    bench_server_stop(&dip->server);
    bench_say("%u at a time: lowest %.0f rows/s of %.0f, after %.0f s", parallel, least, most,
              series->times[series->count - 1]);
    return least / most;
}

static void say_more(void *context, json_t *figure)
{
    static const char *const names[] = { "one shard at a time", "all at once" };
    struct dip *const dip = context;
    json_t *const plot =
        bench_plot(figure, "GET while all shards are due for compaction", "s", "rows/s");

    for (uint32_t i = 0; i < ARRAY_LEN(names); i++)
        bench_plot_line(plot, names[i], dip->last[i].times, dip->last[i].rates, dip->last[i].count);
}

static void compare(struct dip *dip, const char *name, uint32_t threads, double bar)
{
    const uint32_t turns = MIN(bench_settings.turns, TURNS_MAX);
    double ours[TURNS_MAX], reference[TURNS_MAX];
    char options[96];

    for (uint32_t i = 0; i < turns; i++) {
        ours[i] = turn(dip, threads, 1, &dip->last[0]);
        reference[i] = turn(dip, threads, SHARDS, &dip->last[1]);
    }
    snprintf(options, sizeof(options), "%u shards, all due, %u background threads", SHARDS,
             threads);
    bench_report(&(struct bench_figure){ .name = name,
                                         .unit = "of mean",
                                         .bar = bar,
                                         .limit = "what compaction leaves of the device",
                                         .reference_name = "RocksDB's own scheduling",
                                         .reference_options = options },
                 ours, reference, turns, bar > 0 ? say_more : NULL, dip);
}

static void compaction_dip(void)
{
    struct dip *const dip = bench_alloc(1, sizeof(*dip));

    set_up(dip);
    compare(dip, "compaction-dip", THREADS, 1);
    compare(dip, "compaction-dip-2-threads", 2, 0);
    harness_done(&dip->server.harness);
    free(dip);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "compaction-dip", compaction_dip },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
