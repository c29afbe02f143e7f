/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/top/latencies.h"

#include <math.h>
#include <string.h>

#include "base/latency.h"

/* Returns the earlier state of the same operation and transport. NULL: there was none. */
static const struct embtier_latency *before_of(const struct rates *rates,
                                               const struct embtier_latency *latency)
{
    const struct embtier_status *const status = rates->before->reading.status;

    for (size_t i = 0; i < embtier_status_latency_count(status); i++) {
        const struct embtier_latency *const other = embtier_status_latency_at(status, i);

        if (strcmp(other->op, latency->op) == 0 &&
            strcmp(other->transport, latency->transport) == 0 &&
            other->bound_count == latency->bound_count)
            return other;
    }
    return NULL;
}

double latencies_quantile(const struct rates *rates, const char *operation, double quantile)
{
    const struct embtier_status *const status = rates->now->reading.status;
    const struct embtier_latency *first = NULL;
    uint64_t counts[LATENCY_RANGES] = { 0 };

    for (size_t i = 0; rates->before && i < embtier_status_latency_count(status); i++) {
        const struct embtier_latency *const latency = embtier_status_latency_at(status, i);
        const struct embtier_latency *before;

        if (strcmp(latency->op, operation) != 0 || latency->bound_count >= LATENCY_RANGES ||
            (first && first->bound_count != latency->bound_count))
            continue;
        first = first ? first : latency;
        before = before_of(rates, latency);
        for (size_t r = 0; r <= latency->bound_count; r++)
            counts[r] += latency->counts[r] - (before ? before->counts[r] : 0);
    }
    return first ? latency_quantile(counts, first->bounds, (uint32_t)first->bound_count, quantile)
                 : (double)NAN;
}
