/* SPDX-License-Identifier: Apache-2.0 */
#include "base/latency.h"

#include <math.h>

uint64_t latency_count(const uint64_t *counts, uint32_t range_count)
{
    uint64_t all = 0;

    for (uint32_t r = 0; r < range_count; r++)
        all += counts[r];
    return all;
}

double latency_quantile(const uint64_t *counts, const double *bounds, uint32_t bound_count,
                        double quantile)
{
    const uint64_t all = latency_count(counts, bound_count + 1);
    const double wanted = quantile * (double)all;
    double before = 0;

    if (all == 0)
        return (double)NAN;
    for (uint32_t r = 0; r < bound_count; r++) {
        const double here = (double)counts[r];
        const double from = r > 0 ? bounds[r - 1] : 0;

        if (here > 0 && before + here >= wanted)
            return from + (bounds[r] - from) * (wanted - before) / here;
        before += here;
    }
    return bound_count > 0 ? bounds[bound_count - 1] : (double)NAN;
}
