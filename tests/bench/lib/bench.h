/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h: shared parts of the benchmarks: figures measured against a reference, in turn, in one
 * run.
 *
 * A figure is one JSON object on a line of standard output (tools/bench makes a table of them).
 * It has name, unit, better ("higher", "lower" or "equal"), ours, reference, reference_name,
 * reference_options, ratio, bar or tolerance, n, limit, and the benchmark's own additions.
 * `ours`, `reference` and `ratio` are medians over n turns. The ratio is the median of the
 * turns' ratios, not the ratio of the medians. A slow phase of the machine thus slows both sides
 * of a turn. A figure that promises something of each turn has the worst ratio instead. Progress
 * goes to standard error.
 *
 * Thread: one. Failures of set-up end the program. */
#ifndef EMBTIER_TESTS_BENCH_LIB_BENCH_H
#define EMBTIER_TESTS_BENCH_LIB_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

#define BENCH_TURNS_MAX 1000

struct bench_figure {
    const char *name;
    const char *unit;
    bool lower_is_better;
    bool has_worst_ratio; /* the ratio is the worst of all turns */
    double bar;           /* the required ratio; 0: none */
    double tolerance;     /* instead of a bar: how far from 1 the ratio may be; 0: any */
    const char *limit;    /* the limiting resource: memory bandwidth, device IOPS, … */
    const char *reference_name;
    const char *reference_options;
};

/* Runs one turn of one side; returns its rate, or latency. */
typedef double bench_side(void *context);

/* Takes turns and prints the figure. One turn of each side, which does not count, comes first;
 * then the sides take turns at going first. At the end @extra (may be NULL) is called to add
 * more fields. Returns the ratio. */
double bench_compare(const struct bench_figure *figure, bench_side *ours, bench_side *reference,
                     void *context, void (*extra)(void *context, json_t *figure));
/* The same with numbers at hand: @count of each. Sorts nothing. */
double bench_report(const struct bench_figure *figure, const double *ours, const double *reference,
                    uint32_t count, void (*extra)(void *context, json_t *figure), void *context);

/* Keeps @count requests in flight for @seconds. begin() starts one in a slot, end() waits for
 * its answer; the oldest is waited for first. Returns answers a second. */
double bench_pipeline(uint32_t count, double seconds, void (*begin)(void *context, uint32_t slot),
                      void (*end)(void *context, uint32_t slot), void *context);

/* Calls step() again and again for @seconds in each of @count threads, the i-th with the i-th of
 * @contexts, which are @context_bytes long each. step() returns the number of rows it did.
 * Returns rows a second, all threads together. */
double bench_threads(uint32_t count, double seconds, uint64_t (*step)(void *context),
                     void *contexts, uint64_t context_bytes);

/* Seconds of every request of both sides, ours first. Zeroed: none. */
struct bench_latencies {
    double *seconds[2];
    uint32_t count[2];
};

/* Calls step() again and again for bench_settings.seconds, and notes how long each call takes.
 * Returns the median of this turn in microseconds. */
double bench_latency(struct bench_latencies *latencies, uint32_t side,
                     uint64_t (*step)(void *context), void *context);
/* Adds the 99th percentiles of all turns, in microseconds, to a figure. */
void bench_add_tails(const struct bench_latencies *latencies, json_t *figure);
void bench_latencies_free(struct bench_latencies *latencies);

/* Adds a plot to a figure, for the report, and lines to a plot. */
json_t *bench_plot(json_t *figure, const char *title, const char *x_label, const char *y_label);
void bench_plot_line(json_t *plot, const char *name, const double *x, const double *y,
                     uint32_t count);

double bench_median(const double *values, uint32_t count);
/* Returns the value that @share of all values do not exceed. */
double bench_quantile(const double *values, uint32_t count, double share);

/* Seconds of a monotonic clock. */
double bench_now(void);

PRINTF_LIKE(1, 2) _Noreturn void bench_die(const char *format, ...);
/* Prints a line on standard error. */
PRINTF_LIKE(1, 2) void bench_say(const char *format, ...);

/* Returns a port of loopback that no program has now. */
uint16_t bench_free_port(void);

/* calloc() that ends the program on failure. */
void *bench_alloc(uint64_t count, uint64_t bytes);
/* Memory of the kind and page size that the server's tiers of kind `dram` have, touched. */
void *bench_pages(uint64_t bytes);

static inline uint64_t bench_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* ---- Arguments ---- */

/* The arguments of a benchmark: PROGRAM [--turns N] [--seconds S] [--scale X] [NAME...]. */
struct bench_settings {
    uint32_t turns;
    bool has_turns; /* they were given */
    double seconds; /* of one side's turn */
    double scale;   /* of all sizes: 1 for real figures, little to see whether the benchmark
                     * still works */
};
extern struct bench_settings bench_settings;

struct bench_entry {
    const char *name;
    void (*run)(void);
};
/* Parses arguments and runs the figures named, or all. */
int bench_main(int argc, char **argv, const struct bench_entry *entries, uint32_t count);

/* Returns @value times the scale, and at least @least. */
uint64_t bench_scaled(uint64_t value, uint64_t least);
/* Returns the number of seeds of a figure that takes no time of its own: the turns if they were
 * given, else @value times the scale; at most @most. */
uint32_t bench_seeds(uint32_t value, uint32_t most);

#endif
