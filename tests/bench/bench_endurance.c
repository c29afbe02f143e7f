/* SPDX-License-Identifier: Apache-2.0 */
/* bench_endurance.c: the bytes to SSD and the memory that a long run of `mixed` (mixed_load.h)
 * costs.
 *
 * write-back: bytes that flush and compaction write for each distinct changed row, when every
 * second batch that is read is changed and written. The reference writes the other batches too,
 * unchanged, so that each row is written when it leaves the cache. Both change the same rows.
 * Flushes and compactions are rare, so the figure has the bytes of all turns together. (When
 * every batch is changed, as in `mixed` itself, no row that leaves is clean, and there is
 * nothing to save.)
 *
 * memory: the daemon's highest resident memory in ten minutes of `mixed`, next to the sum of the
 * budgets in its configuration. The pages of the client's arena that the daemon has touched
 * count, too.
 *
 * accounting: the bytes written in these ten minutes, for all causes, next to the bytes that the
 * system counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/lib/mixed_load.h"

#define DRAWS_OF_TURN       (UINT64_C(16) << 20) /* of write-back */
#define TURNS               4
#define RUN_SECONDS         2400       /* times --seconds: ten minutes */
#define SAMPLES             600        /* at most */
#define SAMPLE_LEAST_S      0.25       /* requests in flight end with each sample */
#define REQUEST_BYTES       (64 * MIB) /* the configuration's default */
#define WRITE_QUEUE_BYTES   (64 * MIB)
#define MEMTABLE_BYTES      (256 * MIB)
#define MEMORY_OVER_BUDGETS 1.05

/* ---- write-back ---- */

static double ssd_bytes(struct mixed_load *load)
{
    return bench_metric(&load->server, "store_written_bytes", "flush") +
           bench_metric(&load->server, "store_written_bytes", "compaction");
}

static uint64_t dirty_rows(const struct mixed_load *load)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < load->rows; i++)
        count += load->dirty[i / 8] >> i % 8 & 1;
    return count;
}

static void go_through(struct mixed_load *load, uint64_t draws)
{
    const uint64_t end = load->next_draw + draws;

    while (load->next_draw < end)
        (void)mixed_load_run(load, 0.1);
}

/* Each side has a server of its own, so that each has its own levels of files. */
struct write_back {
    struct mixed_load sides[2]; /* ours, and the one that writes all */
    double bytes[2], rows[2];   /* of all turns */
};

static void take_turn(struct write_back *x, uint32_t side, uint64_t draws)
{
    struct mixed_load *const load = &x->sides[side];
    const double before = ssd_bytes(load);

    memset(load->dirty, 0, load->rows / 8 + 1);
    go_through(load, draws);
    bench_server_settle(&load->server);
    x->bytes[side] += ssd_bytes(load) - before;
    x->rows[side] += (double)dirty_rows(load);
}

static void say_write_back(void *context, json_t *figure)
{
    static const char *const names[] = { "clean_rows_that_left", "reference_clean_rows_that_left" };
    static const char *const dirty[] = { "dirty_rows_that_left", "reference_dirty_rows_that_left" };
    struct write_back *const x = context;

    for (uint32_t i = 0; i < 2; i++) {
        struct bench_server *const server = &x->sides[i].server;

        json_object_set_new(figure, names[i],
                            json_real(bench_metric(server, "cache_evicted_clean_rows", NULL)));
        json_object_set_new(figure, dirty[i],
                            json_real(bench_metric(server, "cache_evicted_dirty_rows", NULL)));
    }
}

static void run_write_back(void)
{
    struct write_back *const x = bench_alloc(1, sizeof(*x));
    struct trace trace = mixed_trace();
    const uint64_t draws = bench_scaled(DRAWS_OF_TURN, 100000);
    double ours, reference;

    for (uint32_t i = 0; i < 2; i++) {
        mixed_load_start(&x->sides[i], &(struct bench_server_shape){ 0 }, &trace);
        x->sides[i].changed_of = 2;
        x->sides[i].writes_all = i == 1;
        x->sides[i].dirty = bench_alloc(x->sides[i].rows / 8 + 1, 1);
        take_turn(x, i, 2 * draws); /* until the cache and level 0 are in a steady state */
        x->bytes[i] = x->rows[i] = 0;
    }
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (uint32_t i = 0; i < 2; i++)
            take_turn(x, i, draws);
    ours = x->bytes[0] / x->rows[0];
    reference = x->bytes[1] / x->rows[1];
    bench_report(
        &(struct bench_figure){ .name = "write-back",
                                .unit = "B/row",
                                .lower_is_better = true,
                                .bar = 0.7,
                                .limit = "rows that are changed once before they leave the cache",
                                .reference_name = "every row that leaves the cache is written",
                                .reference_options = "mixed, but every second batch is only read" },
        &ours, &reference, 1, say_write_back, x);
    for (uint32_t i = 0; i < 2; i++) {
        mixed_load_done(&x->sides[i]);
        free(x->sides[i].dirty);
    }
    trace_free(&trace);
    free(x);
}

/* ---- memory, accounting ---- */

struct long_run {
    struct mixed_load load;
    double budgets;
    uint32_t sample_count;
    double times[SAMPLES], resident[SAMPLES], rates[SAMPLES];
};

/* The bytes written to storage for the daemon, as the system counts them. */
static double system_written_bytes(const struct mixed_load *load)
{
    unsigned long long bytes;
    char path[64], line[64];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/io", (int)load->server.harness.pid);
    file = fopen(path, "re");
    if (!file)
        bench_die("cannot read %s", path);
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "write_bytes: %llu", &bytes) == 1) {
            fclose(file);
            return (double)bytes;
        }
    bench_die("%s has no write_bytes", path);
}

static void say_memory(void *context, json_t *figure)
{
    const struct long_run *const run = context;
    json_t *const memory = bench_plot(figure, "resident memory in a long run of mixed", "s", "B");
    const double ends[] = { 0, run->times[run->sample_count - 1] };
    const double budgets[] = { run->budgets, run->budgets };
    const double allowed[] = { run->budgets * MEMORY_OVER_BUDGETS,
                               run->budgets * MEMORY_OVER_BUDGETS };

    bench_plot_line(memory, "embtierd", run->times, run->resident, run->sample_count);
    bench_plot_line(memory, "sum of the budgets", ends, budgets, 2);
    bench_plot_line(memory, "asked: at most", ends, allowed, 2);
    bench_plot_line(bench_plot(figure, "rows/s in a long run of mixed", "s", "rows/s"), "embtier",
                    run->times, run->rates, run->sample_count);
}

static void report_memory(struct long_run *run)
{
    const double most = bench_quantile(run->resident, run->sample_count, 1);

    bench_report(&(struct bench_figure){ .name = "memory",
                                         .unit = "B",
                                         .lower_is_better = true,
                                         .bar = MEMORY_OVER_BUDGETS,
                                         .limit = "budgets are reserved and touched at the start",
                                         .reference_name = "the sum of the budgets",
                                         .reference_options =
                                             "tiers, requests, write queues, memtables, metadata" },
                 &most, &run->budgets, 1, say_memory, run);
}

static void report_accounting(double ours, double system)
{
    bench_report(&(struct bench_figure){ .name = "accounting",
                                         .unit = "B",
                                         .tolerance = 0.02,
                                         .limit = "none",
                                         .reference_name = "write_bytes of /proc/PID/io",
                                         .reference_options = "the run of memory" },
                 &ours, &system, 1, NULL, NULL);
}

static void run_long(void)
{
    struct long_run *const run = bench_alloc(1, sizeof(*run));
    const double seconds = bench_settings.seconds * RUN_SECONDS;
    struct trace trace = mixed_trace();
    double began, ours, system;

    mixed_load_start(&run->load,
                     &(struct bench_server_shape){ .write_queue_bytes = WRITE_QUEUE_BYTES,
                                                   .memtable_bytes = MEMTABLE_BYTES },
                     &trace);
    run->budgets = (double)(run->load.shape.dram_bytes + REQUEST_BYTES + WRITE_QUEUE_BYTES +
                            MEMTABLE_BYTES + MIXED_METADATA_BYTES);
    run->sample_count = (uint32_t)MIN(MAX(seconds / SAMPLE_LEAST_S, 2.0), (double)SAMPLES);
    bench_say("%.0f s of mixed", seconds);
    ours = bench_metric(&run->load.server, "store_written_bytes", NULL);
    system = system_written_bytes(&run->load);
    began = bench_now();
    for (uint32_t i = 0; i < run->sample_count; i++) {
        run->rates[i] = mixed_load_run(&run->load, seconds / run->sample_count);
        run->times[i] = bench_now() - began;
        run->resident[i] = bench_metric(&run->load.server, "process_resident_bytes", NULL);
    }
    bench_server_settle(&run->load.server);
    report_memory(run);
    report_accounting(bench_metric(&run->load.server, "store_written_bytes", NULL) - ours,
                      system_written_bytes(&run->load) - system);
    mixed_load_done(&run->load);
    trace_free(&trace);
    free(run);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "write-back", run_write_back }, { "memory", run_long }, /* runs accounting too */
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
