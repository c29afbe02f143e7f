/* SPDX-License-Identifier: Apache-2.0 */
/* bench_compaction.c: how far compaction lowers the rate of lookups.
 *
 * compaction-dip: the lowest rate of GET in any second in which a shard compacts, over the mean
 * rate when all is compacted. There are 4 M rows of 512 bytes in 8 shards. Ids are uniform and
 * nothing is cached, so every row is a read from the device. All shards are due at the same time:
 * rows were stored, compacted, and then written again while compaction was put off, until a
 * database had 22 files in level 0. Each turn begins with a copy of these shards. When filters and
 * indexes have been read, the shards catch up (embtier_compaction_run()).
 *
 * The reference is the same server, with as many compactions at a time allowed as there are
 * shards. RocksDB then schedules them by itself: each shard compacts when it is due. Both have a
 * background thread for each shard. With fewer threads than shards, RocksDB's own pool limits
 * the compactions: compaction-dip-2-threads, without a bar, has the default of two.
 *
 * compaction-dip-limited: the same lowest rate where rocksdb.compaction_bytes_per_second holds,
 * over the mean rate of the same shards just before, while compaction is put off. Each lookup then
 * asks the filters of as many files as during the compactions. Each database has eight files in
 * level 0: it is due, but not so far behind that the limit is raised. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/lib/bench_server.h"

#define DIM          128
#define ROW_BYTES    (DIM * sizeof(float))
#define BATCH_ROWS   1024 /* some fifty batches a second */
#define IN_FLIGHT    4
#define SHARDS       8
#define READERS      4
#define THREADS      (SHARDS + SHARDS / 2) /* a fourth of RocksDB's threads flush */
#define DRAM_BYTES   (8 * MIB)
#define MEMTABLE     (64 * MIB)
#define LEVEL0_FILES 22 /* two less than what makes a shard urgent */
#define FEWER_FILES  5
#define LIMIT        (24 * MIB)
#define MEAN_SECONDS 8
#define SECONDS_MAX  300
#define TURNS_MAX    3

struct series {
    double times[SECONDS_MAX], rates[SECONDS_MAX];
    uint32_t count;
};

struct dip {
    struct bench_server server;
    uint64_t rows;
    uint64_t random;
    struct embtier_batch *batches[IN_FLIGHT];
    struct series last[2];  /* ours, the reference's */
    struct embtier *caller; /* that has the shards catch up */
    atomic_bool caught_up;
};

/* ---- The shards with which all turns begin ---- */

static struct bench_server_shape shape_of(uint32_t threads, uint32_t parallel)
{
    return (struct bench_server_shape){ .readers_per_lane = READERS,
                                        .shards = SHARDS,
                                        .dram_bytes = DRAM_BYTES,
                                        .memtable_bytes = MEMTABLE,
                                        .metadata_cache_bytes = 128 * MIB,
                                        .background_threads = threads,
                                        .compaction_parallel = parallel };
}

/* Runs @words in the server's directory. */
static void shell(const struct dip *dip, const char *words)
{
    char text[512];

    snprintf(text, sizeof(text), "cd '%s' && %s", dip->server.harness.directory, words);
    if (system(text) != 0) // NOLINT(cert-env33-c): the benchmark's own words
        bench_die("%s: failed", text);
}

static void check(enum embtier_err err)
{
    if (err != EMBTIER_OK)
        bench_die("%s", embtier_message(NULL));
}

static void make_batches(struct dip *dip)
{
    const struct embtier_part part = { dip->server.tables[0], BATCH_ROWS };

    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        dip->batches[i] = bench_batch(&dip->server, &part, 1);
        bench_fill_rows(&dip->random, dip->batches[i], (uint64_t)BATCH_ROWS * DIM);
    }
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

/* Returns the most files that a database has in level 0. */
static uint32_t level0_files(struct dip *dip)
{
    struct embtier_compaction_list *list;
    uint32_t most = 0;

    check(embtier_compaction_show(dip->server.connection, &list));
    for (size_t i = 0; i < embtier_compaction_list_count(list); i++)
        most = MAX(most, embtier_compaction_list_at(list, i)->level0_files);
    embtier_compaction_list_free(list);
    return most;
}

/* Leaves each shard @files files in level 0, at most. */
static void set_up(struct dip *dip, uint32_t files)
{
    const struct bench_server_shape shape = shape_of(THREADS, 1);

    dip->random = 42;
    dip->rows = bench_scaled(4000000, 100000);
    bench_server_start(&dip->server, &shape);
    bench_server_tables(&dip->server, 1, dip->rows, DIM);
    bench_say("storing %llu rows", (unsigned long long)dip->rows);
    bench_touch_all(&dip->server, EMBTIER_SET);
    bench_server_stop(&dip->server);
    bench_server_again(&dip->server, &shape);
    bench_server_settle(&dip->server);
    check(embtier_compaction_put_off(dip->server.connection, 1));
    make_batches(dip);
    while (level0_files(dip) < files - 1) /* the stop flushes one more */
        (void)bench_pipeline(IN_FLIGHT, 0.05, begin_set, end, dip);
    bench_say("%.0f MiB written again",
              bench_metric(&dip->server, "store_written_bytes", "flush") / MIB);
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

static void *catch_up(void *context)
{
    struct dip *const dip = context;

    check(embtier_compaction_run(dip->caller, NULL, NULL));
    atomic_store(&dip->caught_up, true);
    return NULL;
}

/* Returns the lowest rate of a second in which a shard compacted, while all catch up. */
static double lowest(struct dip *dip, struct series *series)
{
    const double began = bench_now();
    double rate = INFINITY, least = INFINITY;
    pthread_t thread;

    dip->caller = bench_server_connect(&dip->server, BENCH_SHM, 0);
    atomic_store(&dip->caught_up, false);
    if (pthread_create(&thread, NULL, catch_up, dip) != 0)
        bench_die("no thread for the operator");
    for (series->count = 0;
         series->count == 0 || (!atomic_load(&dip->caught_up) && series->count < SECONDS_MAX);
         series->count++) {
        const bool before = compacts(dip);
        const double now = rate_of_second(dip);

        series->times[series->count] = bench_now() - began;
        series->rates[series->count] = now;
        least = MIN(least, now);
        if (before || compacts(dip))
            rate = MIN(rate, now);
    }
    pthread_join(thread, NULL);
    embtier_disconnect(dip->caller);
    if (isinf(rate) && bench_settings.scale >= 1)
        bench_die("no shard compacted");
    return isinf(rate) ? least : rate; /* small shards may be too quick to be seen */
}

/* The mean rate of some seconds. */
static double mean(struct dip *dip)
{
    double sum = 0;

    for (uint32_t i = 0; i < MEAN_SECONDS; i++)
        sum += rate_of_second(dip);
    return sum / MEAN_SECONDS;
}

/* Returns the mean rate while compaction is put off. The first seconds, in which filters and
 * indexes are read, do not count. */
static double mean_of_due(struct dip *dip)
{
    double rate;

    check(embtier_compaction_put_off(dip->server.connection, 1));
    while (compacts(dip))
        (void)rate_of_second(dip);
    (void)mean(dip);
    rate = mean(dip);
    check(embtier_compaction_put_off(dip->server.connection, 0));
    return rate;
}

/* Returns the lowest rate. At @ret_due is the mean before, and at @ret_mean the one when all is
 * compacted. */
static double lowest_of_turn(struct dip *dip, const struct bench_server_shape *shape,
                             struct series *series, double *ret_due, double *ret_mean)
{
    double least;

    shell(dip, "rm -rf rows && cp -a due rows && sync -f rows");
    bench_server_again(&dip->server, shape);
    make_batches(dip);
    *ret_due = mean_of_due(dip);
    least = lowest(dip, series);
    bench_server_settle(&dip->server);
    *ret_mean = mean(dip);
    bench_server_stop(&dip->server);
    bench_say(
        "%u at a time, limit %.0f MiB/s: lowest %.0f rows/s, in %.0f s; before %.0f, after %.0f",
        shape->compaction_parallel, (double)shape->compaction_bytes / MIB, least,
        series->times[series->count - 1], *ret_due, *ret_mean);
    return least;
}

static double turn(struct dip *dip, uint32_t threads, uint32_t parallel, struct series *series)
{
    const struct bench_server_shape shape = shape_of(threads, parallel);
    double due, most;
    const double least = lowest_of_turn(dip, &shape, series, &due, &most);

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

    set_up(dip, LEVEL0_FILES);
    compare(dip, "compaction-dip", THREADS, 1);
    compare(dip, "compaction-dip-2-threads", 2, 0);
    harness_done(&dip->server.harness);
    free(dip);
}

static void compaction_dip_limited(void)
{
    struct dip *const dip = bench_alloc(1, sizeof(*dip));
    const uint32_t turns = MIN(bench_settings.turns, TURNS_MAX);
    struct bench_server_shape shape = shape_of(2, 1);
    double ours[TURNS_MAX], reference[TURNS_MAX], after;

    shape.compaction_bytes = LIMIT;
    set_up(dip, FEWER_FILES);
    for (uint32_t i = 0; i < turns; i++)
        ours[i] = lowest_of_turn(dip, &shape, &dip->last[0], &reference[i], &after);
    bench_report(&(struct bench_figure){ .name = "compaction-dip-limited",
                                         .unit = "rows/s",
                                         .bar = 0.8,
                                         .limit = "CPU and device that compactions leave",
                                         .reference_name = "the mean while compaction is put off",
                                         .reference_options =
                                             "8 shards, all due, 24 MiB/s, 2 background threads" },
                 ours, reference, turns, NULL, dip);
    harness_done(&dip->server.harness);
    free(dip);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "compaction-dip", compaction_dip },
        { "compaction-dip-limited", compaction_dip_limited },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
