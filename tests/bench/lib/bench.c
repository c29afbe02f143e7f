/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/bench.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "tiers/arena/arena.h"

#define LATENCIES_MAX 1000000

struct bench_settings bench_settings = { .turns = 15, .seconds = 0.25, .scale = 1 };

double bench_now(void)
{
    return (double)clock_now_ns(&clock_monotonic) * 1e-9;
}

_Noreturn void bench_die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, args);
    fputs("\n", stderr);
    va_end(args);
    exit(1);
}

void bench_say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    fputs("\n", stderr);
    va_end(args);
}

uint16_t bench_free_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t bytes = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0)
        bench_die("no port: %s", strerror(errno));
    close(fd);
    return ntohs(address.sin_port);
}

void *bench_alloc(uint64_t count, uint64_t bytes)
{
    void *const memory = calloc(count, bytes);

    if (!memory)
        bench_die("out of memory");
    return memory;
}

void *bench_pages(uint64_t bytes)
{
    const struct tier_spec spec = { .name = "bench", .kind = TIER_KIND_DRAM };
    struct err_msg msg = { { 0 } };
    struct arena *arena;

    if (arena_new(&spec, bytes, &arena, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    return arena_base(arena); /* for the program's life */
}

uint64_t bench_scaled(uint64_t value, uint64_t least)
{
    return MAX((uint64_t)((double)value * bench_settings.scale), least);
}

uint32_t bench_seeds(uint32_t value, uint32_t most)
{
    const uint64_t seeds = bench_settings.has_turns ? bench_settings.turns : bench_scaled(value, 1);

    return (uint32_t)MAX(MIN(seeds, (uint64_t)most), UINT64_C(1));
}

/* ---- Figures ---- */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_quantile(const double *values, uint32_t count, double share)
{
    double *const sorted = bench_alloc(count, sizeof(*sorted));
    double value;

    memcpy(sorted, values, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare_doubles);
    value = sorted[MIN((uint32_t)(share * count), count - 1)];
    free(sorted);
    return value;
}

double bench_median(const double *values, uint32_t count)
{
    return bench_quantile(values, count, 0.5);
}

static void set_string(json_t *figure, const char *key, const char *value)
{
    if (value)
        json_object_set_new(figure, key, json_string(value));
}

static const char *better(const struct bench_figure *figure)
{
    if (figure->tolerance > 0)
        return "equal";
    return figure->lower_is_better ? "lower" : "higher";
}

/* Adds the bar or tolerance to the JSON figure, and whether @ratio meets it. */
static void judge(const struct bench_figure *figure, double ratio, json_t *json)
{
    bool met;

    if (figure->tolerance > 0) {
        json_object_set_new(json, "tolerance", json_real(figure->tolerance));
        met = fabs(ratio - 1) <= figure->tolerance;
    } else if (figure->bar > 0) {
        json_object_set_new(json, "bar", json_real(figure->bar));
        met = figure->lower_is_better ? ratio <= figure->bar : ratio >= figure->bar;
    } else {
        return;
    }
    json_object_set_new(json, "met", json_boolean(met));
}

static double ratio_of(const struct bench_figure *figure, const double *ratios, uint32_t count)
{
    if (!figure->has_worst_ratio)
        return bench_median(ratios, count);
    return bench_quantile(ratios, count, figure->lower_is_better ? 1 : 0);
}

double bench_report(const struct bench_figure *figure, const double *ours, const double *reference,
                    uint32_t count, void (*extra)(void *context, json_t *figure), void *context)
{
    double *const ratios = bench_alloc(count, sizeof(*ratios));
    json_t *const json = json_object();
    double ratio;

    for (uint32_t i = 0; i < count; i++)
        ratios[i] = ours[i] / reference[i];
    ratio = ratio_of(figure, ratios, count);
    if (!isfinite(ratio)) {
        bench_say("%s: the reference is 0, the run is too short", figure->name);
        json_decref(json);
        free(ratios);
        return ratio;
    }
    set_string(json, "name", figure->name);
    set_string(json, "unit", figure->unit);
    set_string(json, "better", better(figure));
    json_object_set_new(json, "ours", json_real(bench_median(ours, count)));
    json_object_set_new(json, "reference", json_real(bench_median(reference, count)));
    set_string(json, "reference_name", figure->reference_name);
    set_string(json, "reference_options", figure->reference_options);
    json_object_set_new(json, "ratio", json_real(ratio));
    judge(figure, ratio, json);
    json_object_set_new(json, "ratio_quartiles",
                        json_pack("[f,f]", bench_quantile(ratios, count, 0.25),
                                  bench_quantile(ratios, count, 0.75)));
    json_object_set_new(json, "n", json_integer(count));
    set_string(json, "limit", figure->limit);
    if (extra)
        extra(context, json);
    json_dumpf(json, stdout, JSON_REAL_PRECISION(6) | JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(json);
    free(ratios);
    return ratio;
}

double bench_compare(const struct bench_figure *figure, bench_side *ours, bench_side *reference,
                     void *context, void (*extra)(void *context, json_t *figure))
{
    const uint32_t turns = bench_settings.turns;
    double our_rates[BENCH_TURNS_MAX], reference_rates[BENCH_TURNS_MAX];

    (void)reference(context);
    (void)ours(context);
    for (uint32_t i = 0; i < turns; i++) {
        if (i % 2) {
            our_rates[i] = ours(context);
            reference_rates[i] = reference(context);
        } else {
            reference_rates[i] = reference(context);
            our_rates[i] = ours(context);
        }
    }
    return bench_report(figure, our_rates, reference_rates, turns, extra, context);
}

json_t *bench_plot(json_t *figure, const char *title, const char *x_label, const char *y_label)
{
    json_t *const plot =
        json_pack("{s:s, s:s, s:s, s:{}}", "title", title, "x", x_label, "y", y_label, "lines");
    json_t *plots = json_object_get(figure, "plots");

    if (!plots) {
        plots = json_array();
        json_object_set_new(figure, "plots", plots);
    }
    json_array_append_new(plots, plot);
    return plot;
}

void bench_plot_line(json_t *plot, const char *name, const double *x, const double *y,
                     uint32_t count)
{
    json_t *const line = json_array();

    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(line, json_pack("[f,f]", x[i], y[i]));
    json_object_set_new(json_object_get(plot, "lines"), name, line);
}

/* ---- Loops ---- */

double bench_pipeline(uint32_t count, double seconds, void (*begin)(void *context, uint32_t slot),
                      void (*end)(void *context, uint32_t slot), void *context)
{
    const double began = bench_now();
    uint64_t answered = 0;
    uint32_t oldest = 0;

    for (uint32_t slot = 0; slot < count; slot++)
        begin(context, slot);
    for (; bench_now() - began < seconds; answered++) {
        end(context, oldest);
        begin(context, oldest);
        oldest = oldest + 1 < count ? oldest + 1 : 0;
    }
    for (uint32_t i = 0; i < count; i++, answered++) {
        end(context, oldest);
        oldest = oldest + 1 < count ? oldest + 1 : 0;
    }
    return (double)answered / (bench_now() - began);
}

struct bench_thread {
    pthread_t id;
    double seconds;
    uint64_t (*step)(void *context);
    void *context;
    uint64_t rows;
};

static void *thread_main(void *context)
{
    struct bench_thread *const thread = context;
    const double began = bench_now();

    while (bench_now() - began < thread->seconds)
        thread->rows += thread->step(thread->context);
    return NULL;
}

double bench_threads(uint32_t count, double seconds, uint64_t (*step)(void *context),
                     void *contexts, uint64_t context_bytes)
{
    struct bench_thread *const threads = bench_alloc(count, sizeof(*threads));
    const double began = bench_now();
    uint64_t rows = 0;
    double spent;

    for (uint32_t i = 0; i < count; i++) {
        threads[i].seconds = seconds;
        threads[i].step = step;
        threads[i].context = (char *)contexts + i * context_bytes;
        if (pthread_create(&threads[i].id, NULL, thread_main, &threads[i]) != 0)
            bench_die("cannot start a thread");
    }
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(threads[i].id, NULL);
        rows += threads[i].rows;
    }
    spent = bench_now() - began;
    free(threads);
    return (double)rows / spent;
}

double bench_latency(struct bench_latencies *latencies, uint32_t side,
                     uint64_t (*step)(void *context), void *context)
{
    const uint32_t first = latencies->count[side];
    const double began = bench_now();
    double before = began, now;
    double *all;

    if (!latencies->seconds[side])
        latencies->seconds[side] = bench_alloc(LATENCIES_MAX, sizeof(double));
    all = latencies->seconds[side];
    do {
        (void)step(context);
        now = bench_now();
        if (latencies->count[side] < LATENCIES_MAX)
            all[latencies->count[side]++] = now - before;
        before = now;
    } while (now - began < bench_settings.seconds);
    return bench_median(all + first, latencies->count[side] - first) * 1e6;
}

void bench_add_tails(const struct bench_latencies *latencies, json_t *figure)
{
    static const char *const keys[] = { "ours_99th", "reference_99th" };

    for (uint32_t side = 0; side < 2; side++)
        json_object_set_new(
            figure, keys[side],
            json_real(bench_quantile(latencies->seconds[side], latencies->count[side], 0.99) *
                      1e6));
}

void bench_latencies_free(struct bench_latencies *latencies)
{
    for (uint32_t side = 0; side < 2; side++)
        free(TAKE(latencies->seconds[side]));
}

/* ---- Arguments ---- */

static _Noreturn void usage(const char *program, const struct bench_entry *entries, uint32_t count,
                            int status)
{
    FILE *const out = status ? stderr : stdout;

    fprintf(out, "Usage: %s [--turns N] [--seconds S] [--scale X] [NAME...]\n", program);
    for (uint32_t i = 0; i < count; i++)
        fprintf(out, "  %s\n", entries[i].name);
    exit(status);
}

static double number_argument(int argc, char **argv, int *at)
{
    char *end;
    double value;

    if (*at + 1 >= argc)
        bench_die("%s wants a number", argv[*at]);
    value = strtod(argv[*at + 1], &end);
    if (*end || end == argv[*at + 1] || !(value > 0))
        bench_die("%s: '%s' is not a number above 0", argv[*at], argv[*at + 1]);
    ++*at;
    return value;
}

int bench_main(int argc, char **argv, const struct bench_entry *entries, uint32_t count)
{
    bool named = false;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--turns") == 0) {
            bench_settings.turns =
                (uint32_t)MIN(number_argument(argc, argv, &i), (double)BENCH_TURNS_MAX);
            bench_settings.has_turns = true;
        } else if (strcmp(argv[i], "--seconds") == 0)
            bench_settings.seconds = number_argument(argc, argv, &i);
        else if (strcmp(argv[i], "--scale") == 0)
            bench_settings.scale = number_argument(argc, argv, &i);
        else if (argv[i][0] == '-')
            usage(argv[0], entries, count, strcmp(argv[i], "--help") == 0 ? 0 : 2);
    }
    for (int i = 1; i < argc; i++) {
        uint32_t e = 0;

        if (argv[i][0] == '-') {
            i++; /* skip its number */
            continue;
        }
        named = true;
        while (e < count && strcmp(entries[e].name, argv[i]) != 0)
            e++;
        if (e == count)
            usage(argv[0], entries, count, 2);
        entries[e].run();
    }
    for (uint32_t e = 0; !named && e < count; e++)
        entries[e].run();
    return 0;
}
