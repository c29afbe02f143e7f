/* SPDX-License-Identifier: Apache-2.0 */
/* bench_policy.c: hit rates, not speed. What is counted is the same in every run.
 *
 * lru: our row cache beside exact LRU of as many rows as it holds, at three Zipf exponents.
 * two-tier: the same with two tiers of the same bytes; they hit as one LRU of both would.
 * policy: LFU and S3-FIFO beside LRU, simulated. */
#include <stdio.h>

#include "tests/bench/bench.h"
#include "tests/bench/trace.h"

#define ROW_BYTES 512

static const double exponents[] = { 0.8, 1.05, 1.2 };

static struct trace any_trace(double exponent)
{
    const uint32_t ids = (uint32_t)bench_scaled(2000000, 20000);

    return trace_zipf(ids, ids * 6, exponent);
}

struct setting {
    double exponent;
    uint32_t ids, cached;
};

static void say_setting(void *context, json_t *figure)
{
    const struct setting *const setting = context;

    json_object_set_new(figure, "zipf", json_real(setting->exponent));
    json_object_set_new(figure, "ids", json_integer(setting->ids));
    json_object_set_new(figure, "cached_rows", json_integer(setting->cached));
}

static void compare_tiers(const char *name, uint32_t tier_count, double bar)
{
    for (uint32_t e = 0; e < ARRAY_LEN(exponents); e++) {
        struct trace trace = any_trace(exponents[e]);
        struct setting setting = { .exponent = exponents[e], .ids = trace.ids };
        const uint64_t bytes = (uint64_t)trace.ids / 10 * ROW_BYTES;
        const double ours = trace_row_cache(&trace, tier_count, MAX(bytes / tier_count, 4 * MIB),
                                            ROW_BYTES, &setting.cached);
        const double reference = trace_simulate(&trace, &policy_lru, setting.cached);
        char full_name[64];

        snprintf(full_name, sizeof(full_name), "%s-zipf-%g", name, exponents[e]);
        bench_report(&(struct bench_figure){ .name = full_name,
                                             .unit = "hit rate",
                                             .bar = bar,
                                             .limit = "the policy: exact LRU is the most there is",
                                             .reference_name = "exact LRU, simulated",
                                             .reference_options = "as many rows" },
                     &ours, &reference, 1, say_setting, &setting);
        trace_free(&trace);
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

static void policy(void)
{
    static const struct policy *const policies[] = { &policy_lfu, &policy_s3_fifo };

    for (uint32_t e = 0; e < ARRAY_LEN(exponents); e++) {
        struct trace trace = any_trace(exponents[e]);
        struct setting setting = { exponents[e], trace.ids, trace.ids / 10 };
        const double reference = trace_simulate(&trace, &policy_lru, setting.cached);

        for (uint32_t p = 0; p < ARRAY_LEN(policies); p++) {
            const double ours = trace_simulate(&trace, policies[p], setting.cached);
            char name[64];

            snprintf(name, sizeof(name), "policy-%s-zipf-%g", policies[p]->name, exponents[e]);
            bench_report(&(struct bench_figure){ .name = name,
                                                 .unit = "hit rate",
                                                 .limit = "what is known of the future",
                                                 .reference_name = "LRU, simulated",
                                                 .reference_options = "a tenth of the ids" },
                         &ours, &reference, 1, say_setting, &setting);
        }
        trace_free(&trace);
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
