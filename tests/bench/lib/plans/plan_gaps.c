/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/plans/plan_gaps.h"

#include <stdbool.h>
#include <stdlib.h>

#include "tests/bench/lib/bench.h"

void plan_gaps_new(uint32_t count, const struct plan_gaps *limits, struct plan_gaps *ret_gaps)
{
    *ret_gaps = (struct plan_gaps){ .count = count,
                                    .worst_gap_allowed = limits->worst_gap_allowed,
                                    .allowed_s = limits->allowed_s };
    ret_gaps->times_s = bench_alloc(count, sizeof(double));
    ret_gaps->bounds_s = bench_alloc(count, sizeof(double));
    ret_gaps->processor_s = bench_alloc(count, sizeof(double));
}

void plan_gaps_free(struct plan_gaps *gaps)
{
    free(gaps->times_s);
    free(gaps->bounds_s);
    free(gaps->processor_s);
}

/* The ratio was judged already; a figure without a bar has no verdict. */
static void judge(json_t *figure, bool is_within)
{
    const json_t *const met = json_object_get(figure, "met");

    if (met)
        json_object_set_new(figure, "met", json_boolean(json_is_true(met) && is_within));
}

static void add_worst_gap(const struct plan_gaps *gaps, double worst, json_t *figure)
{
    json_object_set_new(figure, "gap_worst", json_real(worst));
    if (gaps->worst_gap_allowed <= 0)
        return;
    json_object_set_new(figure, "gap_worst_allowed", json_real(gaps->worst_gap_allowed));
    judge(figure, worst <= gaps->worst_gap_allowed);
}

void plan_gaps_add(const struct plan_gaps *gaps, json_t *figure)
{
    const double worst_s = bench_quantile(gaps->processor_s, gaps->count, 1);
    double *const parts = bench_alloc(gaps->count, sizeof(*parts));
    json_t *const all = json_array();

    for (uint32_t i = 0; i < gaps->count; i++) {
        parts[i] = 1 - gaps->bounds_s[i] / gaps->times_s[i];
        json_array_append_new(all, json_real(parts[i]));
    }
    json_object_set_new(figure, "gaps", all);
    json_object_set_new(figure, "gap_median", json_real(bench_median(parts, gaps->count)));
    add_worst_gap(gaps, bench_quantile(parts, gaps->count, 1), figure);
    json_object_set_new(figure, "processor_seconds_worst", json_real(worst_s));
    json_object_set_new(figure, "processor_seconds_allowed", json_real(gaps->allowed_s));
    json_object_set_new(figure, "is_in_time", json_boolean(worst_s <= gaps->allowed_s));
    judge(figure, worst_s <= gaps->allowed_s);
    json_object_set_new(figure, "solver_won", json_integer(gaps->solver_won));
    free(parts);
}
