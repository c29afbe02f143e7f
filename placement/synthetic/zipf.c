/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/synthetic/zipf.h"

#include <math.h>

#include "base/macros.h"

/* Returns (exp(x) - 1) / x and log(1 + x) / x, also near 0. */
static double expm1_by(double x)
{
    return fabs(x) > 1e-8 ? expm1(x) / x : 1 + x / 2;
}

static double log1p_by(double x)
{
    return fabs(x) > 1e-8 ? log1p(x) / x : 1 - x / 2;
}

static double density(double exponent, double x)
{
    return exp(-exponent * log(x));
}

/* The density's integral from 1 to @x, and its inverse. */
static double integral(double exponent, double x)
{
    const double log_x = log(x);

    return expm1_by((1 - exponent) * log_x) * log_x;
}

static double integral_inverse(double exponent, double y)
{
    const double t = MAX(y * (1 - exponent), -1.0);

    return exp(log1p_by(t) * y);
}

struct zipf zipf_make(uint64_t count, double exponent)
{
    return (struct zipf){
        .count = (double)count,
        .exponent = exponent,
        .low = integral(exponent, 1.5) - 1,
        .high = integral(exponent, (double)count + 0.5),
        .shortcut = 2 - integral_inverse(exponent, integral(exponent, 2.5) - density(exponent, 2)),
    };
}

uint64_t zipf_draw(const struct zipf *zipf, struct random *random)
{
    for (;;) {
        const double y = zipf->high + random_unit(random) * (zipf->low - zipf->high);
        const double x = integral_inverse(zipf->exponent, y);
        const double rank = MAX(1.0, MIN(floor(x + 0.5), zipf->count));

        if (rank - x <= zipf->shortcut ||
            y >= integral(zipf->exponent, rank + 0.5) - density(zipf->exponent, rank))
            return (uint64_t)rank - 1;
    }
}
