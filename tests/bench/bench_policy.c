/* SPDX-License-Identifier: Apache-2.0 */
/* bench_policy.c: hit rates, not speed. Every run counts the same.
 *
 * lru: our row cache compared with exact LRU of as many rows as it holds. two-tier: the same with
 * two tiers of the same bytes, which should hit as one LRU of both would. policy: LFU and S3-FIFO
 * compared with LRU, simulated.
 *
 * The traces are Zipf's at three exponents. If EMBTIER_QUICKSTART_TRACE in the environment names
 * a file that quickstart_trace.py wrote, the accesses of tools/quickstart are the fourth. The
 * cache holds a tenth of the rows. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/lib/bench.h"
#include "tests/bench/lib/trace.h"

#define ROW_BYTES 512

#define TRACES     4
#define QUICKSTART 3 /* the last trace */

struct setting {
    struct trace trace;
    char name[32];
    uint32_t cached;
};

/* False if the trace does not exist. */
static bool setting_begin(struct setting *setting, uint32_t number)
{
    static const double exponents[] = { 0.8, 1.05, 1.2 };
    const uint32_t ids = (uint32_t)bench_scaled(2000000, 20000);
    const char *const path = getenv("EMBTIER_QUICKSTART_TRACE");

    *setting = (struct setting){ .name = "quickstart" };
    if (number < QUICKSTART) {
        snprintf(setting->name, sizeof(setting->name), "zipf-%g", exponents[number]);
        setting->trace = trace_zipf(ids, ids * 6, exponents[number]);
    } else if (path) {
        setting->trace = trace_read(path);
    } else {
        bench_say("EMBTIER_QUICKSTART_TRACE is not set, the trace of the quickstart is left out");
        return false;
    }
    setting->cached = setting->trace.ids / 10;
    return true;
}

static void setting_end(struct setting *setting)
{
    trace_free(&setting->trace);
}

static void say_setting(void *context, json_t *figure)
{
    const struct setting *const setting = context;

    json_object_set_new(figure, "ids", json_integer(setting->trace.ids));
    json_object_set_new(figure, "accesses", json_integer(setting->trace.count));
    json_object_set_new(figure, "cached_rows", json_integer(setting->cached));
}

static void compare_tiers(const char *name, uint32_t tier_count, double bar)
{
    struct setting setting;

    for (uint32_t i = 0; i < TRACES && setting_begin(&setting, i); i++, setting_end(&setting)) {
        const uint64_t bytes = (uint64_t)setting.cached * ROW_BYTES;
        const double ours =
            trace_row_cache(&setting.trace, tier_count, MAX(bytes / tier_count, 4 * MIB), ROW_BYTES,
                            &setting.cached);
        const double reference = trace_simulate(&setting.trace, &policy_lru, setting.cached);
        char full_name[64];

        snprintf(full_name, sizeof(full_name), "%s-%s", name, setting.name);
        bench_report(&(struct bench_figure){ .name = full_name,
                                             .unit = "hit rate",
                                             .bar = bar,
                                             .limit = "the policy: exact LRU is the most there is",
                                             .reference_name = "exact LRU, simulated",
                                             .reference_options = "as many rows" },
                     &ours, &reference, 1, say_setting, &setting);
    }
}

static void lru(void)
{
    compare_tiers("lru", 1, 0.99);
}

static void two_tier(void)
{
    compare_tiers("two-tier", 2, 0.99);
}

static const struct policy *const policies[] = { &policy_lru, &policy_lfu, &policy_s3_fifo };

/* Plots hit rates over the share of rows that the cache holds. */
static void plot_policies(struct setting *setting, json_t *figure)
{
    static const double percents[] = { 1, 2, 5, 10, 20, 50 };
    json_t *const plot = bench_plot(figure, setting->name, "% of the rows cached", "hit rate");
    double rates[ARRAY_LEN(percents)];

    for (uint32_t p = 0; p < ARRAY_LEN(policies); p++) {
        for (uint32_t i = 0; i < ARRAY_LEN(percents); i++)
            rates[i] = trace_simulate(&setting->trace, policies[p],
                                      (uint32_t)(setting->trace.ids * percents[i] / 100));
        bench_plot_line(plot, policies[p]->name, percents, rates, ARRAY_LEN(percents));
    }
}

static void say_policy(void *context, json_t *figure)
{
    say_setting(context, figure);
    plot_policies(context, figure);
}

static void policy(void)
{
    struct setting setting;

    for (uint32_t i = 0; i < TRACES && setting_begin(&setting, i); i++, setting_end(&setting)) {
        const double reference = trace_simulate(&setting.trace, policies[0], setting.cached);

        for (uint32_t p = 1; p < ARRAY_LEN(policies); p++) {
            const double ours = trace_simulate(&setting.trace, policies[p], setting.cached);
            const bool last = p + 1 == ARRAY_LEN(policies);
            char name[64];

            snprintf(name, sizeof(name), "policy-%s-%s", policies[p]->name, setting.name);
            bench_report(&(struct bench_figure){ .name = name,
                                                 .unit = "hit rate",
                                                 .limit = "what is known of the future",
                                                 .reference_name = "LRU, simulated",
                                                 .reference_options = "a tenth of the rows" },
                         &ours, &reference, 1, last ? say_policy : say_setting, &setting);
        }
    }
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "lru", lru },
        { "two-tier", two_tier },
        { "policy", policy },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
