/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h: what the benchmarks share: figures measured beside a reference, in turn, in one run.
 *
 * A figure is one JSON object on a line of standard output (tools/bench makes a table of them):
 * name, unit, better ("higher", "lower" or "equal"), ours, reference, reference_name,
 * reference_options, ratio, bar or tolerance, n, limit, and what else the benchmark has to say.
 * `ours`, `reference` and `ratio` are medians over n turns; the ratio is that of the turns, not of
 * the medians, so that what slows the machine for a while slows both sides of a turn. Progress goes
 * to standard error.
 *
 * Thread: one. What cannot be set up ends the program. */
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
    double bar;        /* the ratio asked for, 0: none */
    double tolerance;  /* instead of it: how far from 1 the ratio may be, 0: any */
    const char *limit; /* what it is up against: memory bandwidth, device IOPS, … */
    const char *reference_name;
    const char *reference_options;
};

/* One turn of one side; returns its rate, or latency. */
typedef double bench_side(void *context);

/* Takes turns, ours and the reference's first by turns, after one of each that does not count, and
 * prints the figure. @extra (may be NULL) is called at the end and adds what else is to be said.
 * Returns the ratio. */
double bench_compare(const struct bench_figure *figure, bench_side *ours, bench_side *reference,
                     void *context, void (*extra)(void *context, json_t *figure));
/* The same with the numbers at hand: @count of each. Sorts nothing. */
double bench_report(const struct bench_figure *figure, const double *ours, const double *reference,
                    uint32_t count, void (*extra)(void *context, json_t *figure), void *context);

/* Keeps @count requests under way for @seconds: begin() starts one in a slot, end() waits for its
 * answer, and the oldest is waited for first. Returns answers a second. */
double bench_pipeline(uint32_t count, double seconds, void (*begin)(void *context, uint32_t slot),
                      void (*end)(void *context, uint32_t slot), void *context);

/* Calls step() again and again for @seconds in each of @count threads, the i-th with the i-th of
 * @contexts, which are @context_bytes long each. step() returns the rows it did. Returns rows a
 * second, all threads together. */
double bench_threads(uint32_t count, double seconds, uint64_t (*step)(void *context),
                     void *contexts, uint64_t context_bytes);

/* Adds a plot to a figure, for the report, and lines to a plot. */
json_t *bench_plot(json_t *figure, const char *title, const char *x_label, const char *y_label);
void bench_plot_line(json_t *plot, const char *name, const double *x, const double *y,
                     uint32_t count);

double bench_median(const double *values, uint32_t count);
/* The value that @share of all are not above. */
double bench_quantile(const double *values, uint32_t count, double share);

/* Seconds of a monotonic clock. */
double bench_now(void);

PRINTF_LIKE(1, 2) _Noreturn void bench_die(const char *format, ...);
/* A line on standard error. */
PRINTF_LIKE(1, 2) void bench_say(const char *format, ...);

/* calloc() that ends the program. */
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

/* Set by bench_begin(): PROGRAM [--turns N] [--seconds S] [--scale X] [NAME...]. */
struct bench_settings {
    uint32_t turns;
    double seconds; /* of a side's turn */
    double scale;   /* of all sizes: 1, or little to see whether the benchmark still works */
};
extern struct bench_settings bench_settings;

struct bench_entry {
    const char *name;
    void (*run)(void);
};
/* Parses arguments and runs the figures named, or all. */
int bench_main(int argc, char **argv, const struct bench_entry *entries, uint32_t count);

/* @value times the scale, and at least @least. */
uint64_t bench_scaled(uint64_t value, uint64_t least);

#endif
