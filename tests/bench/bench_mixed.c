/* SPDX-License-Identifier: Apache-2.0 */
/* bench_mixed.c: reads and writes of more rows than the cache holds (mixed_load.h), in rows/s.
 *
 * mixed: the reference is RocksDB alone on a copy of the same shards. Its block cache has the
 * bytes of our cache and of our cache for index and filters. It has as many threads as the
 * server has readers, each doing the same with batches of its own, and compacts as it likes.
 * Both sides go through the same draws, in turns of some seconds each, after a warm-up. Both
 * write without a log.
 *
 * shards: 2, 4, 8, 16 and 32 shards compared with 1 (MTrainS, figure 8).
 *
 * two-tier-rate: DRAM and a second tier of the same size behind it (a file in memory where
 * possible), compared with the DRAM alone. The figure also has the hit rate of both, next to that
 * of one LRU of as many rows. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/lib/mixed_load.h"
#include "tests/bench/lib/rocksdb_alone.h"

#define SHARD_STEPS             6 /* 1, 2, 4, … */
#define REFERENCE_WARM_UP_TURNS 6

static double hit_rate(const struct mixed_load *load)
{
    return (double)load->hits / (double)load->asked;
}

/* ---- mixed ---- */

struct mixed {
    struct mixed_load load;
    double reads_before; /* rows looked up on SSD before the turns */
    char copy[128];      /* the reference's data directory */
    struct rocksdb_alone alone;
};

static void copy_rows(struct mixed *mixed)
{
    const char *const directory = mixed->load.server.harness.directory;
    char command[512];

    snprintf(mixed->copy, sizeof(mixed->copy), "%s/copy", directory);
    snprintf(command, sizeof(command), "cp -a '%s/rows' '%s'", directory, mixed->copy);
    if (system(command) != 0) // NOLINT(cert-env33-c): the benchmark's own words
        bench_die("cannot copy the shards");
}

static void mixed_set_up(struct mixed *mixed, const struct trace *trace)
{
    mixed_load_start(&mixed->load, &(struct bench_server_shape){ 0 }, trace);
    mixed_load_pause(&mixed->load);
    copy_rows(mixed);
    mixed_load_resume(&mixed->load);
    rocksdb_alone_open(&mixed->alone,
                       &(struct rocksdb_alone_opts){
                           .harness = &mixed->load.server.harness,
                           .rows = mixed->copy,
                           .shard_count = MIXED_SHARDS,
                           .table_id = mixed->load.table_id,
                           .row_bytes = MIXED_ROW_BYTES,
                           .cache_bytes = mixed->load.shape.dram_bytes + MIXED_METADATA_BYTES,
                           .writes = true,
                       });
}

static double ours(void *context)
{
    struct mixed *const mixed = context;

    return mixed_load_turn(&mixed->load);
}

struct user {
    struct mixed *mixed;
    struct rocksdb_alone_batch *batch;
    char *rows;
};

static uint64_t use_batch(void *context)
{
    struct user *const user = context;
    struct rocksdb_alone *const alone = &user->mixed->alone;
    uint64_t ids[MIXED_BATCH_ROWS];

    mixed_load_ids(&user->mixed->load, ids);
    rocksdb_alone_sort(alone, ids, MIXED_BATCH_ROWS, user->batch);
    rocksdb_alone_get(alone, user->batch, user->rows);
    mixed_change(user->rows);
    rocksdb_alone_set(alone, user->batch, user->rows);
    return UINT64_C(2) * MIXED_BATCH_ROWS;
}

static double alone(void *context)
{
    struct user users[MIXED_READERS];
    double rate;

    for (uint32_t i = 0; i < MIXED_READERS; i++)
        users[i] = (struct user){ .mixed = context,
                                  .batch = bench_alloc(1, sizeof(*users[i].batch)),
                                  .rows = bench_alloc(MIXED_BATCH_ROWS, MIXED_ROW_BYTES) };
    rate = bench_threads(MIXED_READERS, bench_settings.seconds * MIXED_PATIENCE, use_batch, users,
                         sizeof(users[0]));
    for (uint32_t i = 0; i < MIXED_READERS; i++) {
        free(users[i].batch);
        free(users[i].rows);
    }
    return rate;
}

static void say_mixed(void *context, json_t *figure)
{
    struct mixed *const mixed = context;
    struct bench_server *const server = &mixed->load.server;

    const double reads = bench_metric(server, "store_rows_read", NULL) - mixed->reads_before;

    json_object_set_new(figure, "hit_rate", json_real(hit_rate(&mixed->load)));
    json_object_set_new(figure, "rows_read_per_row", json_real(reads / (double)mixed->load.asked));
    json_object_set_new(
        figure, "reference_blocks_read_per_row",
        json_real((double)mixed->alone.read_blocks / (double)mixed->alone.got_rows));
    json_object_set_new(figure, "rows", json_integer((json_int_t)mixed->load.rows));
    json_object_set_new(figure, "cache_bytes", json_real((double)mixed->load.shape.dram_bytes));
    json_object_set_new(figure, "flush_bytes",
                        json_real(bench_metric(server, "store_written_bytes", "flush")));
    json_object_set_new(figure, "compaction_bytes",
                        json_real(bench_metric(server, "store_written_bytes", "compaction")));
}

static void run_mixed(void)
{
    struct mixed *const mixed = bench_alloc(1, sizeof(*mixed));
    struct trace trace = mixed_trace();

    mixed_set_up(mixed, &trace);
    mixed_load_warm_up(&mixed->load);
    for (uint32_t i = 0; i < REFERENCE_WARM_UP_TURNS; i++)
        (void)alone(mixed);
    mixed->alone.got_rows = mixed->alone.read_blocks = 0;
    mixed->reads_before = bench_metric(&mixed->load.server, "store_rows_read", NULL);
    bench_compare(
        &(struct bench_figure){ .name = "mixed",
                                .unit = "rows/s",
                                .bar = 2,
                                .limit = "device reads a second for the misses; compaction's bytes",
                                .reference_name = "RocksDB with a block cache of the same bytes",
                                .reference_options =
                                    "8 shards, 4 threads, 4,096 ids a batch, direct I/O" },
        ours, alone, mixed, say_mixed);
    rocksdb_alone_close(&mixed->alone);
    mixed_load_done(&mixed->load);
    trace_free(&trace);
    free(mixed);
}

/* ---- shards ---- */

struct shards {
    struct mixed_load loads[SHARD_STEPS];
    double rates[SHARD_STEPS][BENCH_TURNS_MAX];
};

static void say_shards(void *context, json_t *figure)
{
    const struct shards *const shards = context;
    double counts[SHARD_STEPS], rates[SHARD_STEPS];

    for (uint32_t s = 0; s < SHARD_STEPS; s++) {
        counts[s] = 1u << s;
        rates[s] = bench_median(shards->rates[s], bench_settings.turns);
    }
    bench_plot_line(bench_plot(figure, "mixed over the number of shards", "shards", "rows/s"),
                    "embtier", counts, rates, SHARD_STEPS);
}

static void run_shards(void)
{
    struct shards *const shards = bench_alloc(1, sizeof(*shards));
    struct trace trace = mixed_trace();

    for (uint32_t s = 0; s < SHARD_STEPS; s++)
        mixed_load_start(&shards->loads[s], &(struct bench_server_shape){ .shards = 1u << s },
                         &trace);
    for (uint32_t s = 0; s < SHARD_STEPS; s++)
        mixed_load_warm_up(&shards->loads[s]);
    for (uint32_t turn = 0; turn < bench_settings.turns; turn++)
        for (uint32_t s = 0; s < SHARD_STEPS; s++)
            shards->rates[s][turn] = mixed_load_turn(&shards->loads[s]);
    for (uint32_t s = 1; s < SHARD_STEPS; s++) {
        char name[32];

        snprintf(name, sizeof(name), "shards-%u", 1u << s);
        bench_report(&(struct bench_figure){ .name = name,
                                             .unit = "rows/s",
                                             .limit = "device reads a second for the misses",
                                             .reference_name = "1 shard",
                                             .reference_options = "mixed, 4 readers" },
                     shards->rates[s], shards->rates[0], bench_settings.turns,
                     s + 1 == SHARD_STEPS ? say_shards : NULL, shards);
    }
    for (uint32_t s = 0; s < SHARD_STEPS; s++)
        mixed_load_done(&shards->loads[s]);
    trace_free(&trace);
    free(shards);
}

/* ---- two-tier-rate ---- */

struct tiers {
    struct mixed_load one, two;
    struct trace trace;
};

static double one_tier(void *context)
{
    struct tiers *const tiers = context;

    return mixed_load_turn(&tiers->one);
}

static double two_tiers(void *context)
{
    struct tiers *const tiers = context;

    return mixed_load_turn(&tiers->two);
}

static double simulated(struct tiers *tiers, struct mixed_load *load)
{
    const double rows = bench_metric(&load->server, "cache_rows", NULL);

    return trace_simulate(&tiers->trace, &policy_lru, (uint32_t)rows);
}

static void say_tiers(void *context, json_t *figure)
{
    struct tiers *const tiers = context;

    json_object_set_new(figure, "hit_rate", json_real(hit_rate(&tiers->two)));
    json_object_set_new(figure, "lru_hit_rate", json_real(simulated(tiers, &tiers->two)));
    json_object_set_new(figure, "reference_hit_rate", json_real(hit_rate(&tiers->one)));
    json_object_set_new(figure, "reference_lru_hit_rate", json_real(simulated(tiers, &tiers->one)));
    json_object_set_new(figure, "tier_bytes", json_real((double)tiers->one.shape.dram_bytes));
}

static void run_two_tier_rate(void)
{
    struct tiers *const tiers = bench_alloc(1, sizeof(*tiers));

    tiers->trace = mixed_trace();
    mixed_load_start(&tiers->one, &(struct bench_server_shape){ 0 }, &tiers->trace);
    mixed_load_start(&tiers->two,
                     &(struct bench_server_shape){ .pmem_bytes = mixed_cached_bytes() },
                     &tiers->trace);
    mixed_load_warm_up(&tiers->one);
    mixed_load_warm_up(&tiers->two);
    bench_compare(
        &(struct bench_figure){ .name = "two-tier-rate",
                                .unit = "rows/s",
                                .limit = "device reads a second for the misses; copies of rows "
                                         "that go from tier to tier",
                                .reference_name = "the first tier only",
                                .reference_options = "mixed" },
        two_tiers, one_tier, tiers, say_tiers);
    mixed_load_done(&tiers->one);
    mixed_load_done(&tiers->two);
    trace_free(&tiers->trace);
    free(tiers);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "mixed", run_mixed },
        { "shards", run_shards },
        { "two-tier-rate", run_two_tier_rate },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
