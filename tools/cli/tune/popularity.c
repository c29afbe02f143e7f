/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/tune/popularity.h"

#include <math.h>

#include "base/macros.h"

#define STEP       0.01
#define HEAD_RANKS 16

static double integral(double low, double high, double exponent)
{
    if (fabs(exponent - 1) < STEP / 2)
        return log(high / low);
    return (pow(high, 1 - exponent) - pow(low, 1 - exponent)) / (1 - exponent);
}

/* The sum of k^-exponent for k up to @rows; of the first ranks one by one, as it falls steeply. */
static double weight(double rows, double exponent)
{
    double sum = 0;

    for (uint32_t k = 1; k <= HEAD_RANKS && k <= rows; k++)
        sum += pow(k, -exponent);
    return rows > HEAD_RANKS ? sum + integral(HEAD_RANKS + 0.5, rows + 0.5, exponent) : sum;
}

static double squares(const struct access_cdf *cdf, double rows, double exponent)
{
    const double all = weight(rows, exponent);
    double sum = 0;

    for (uint32_t i = 0; i < cdf->point_count; i++) {
        const double share = weight(MIN(cdf->rows[i], rows), exponent) / all;

        sum += (share - cdf->shares[i]) * (share - cdf->shares[i]);
    }
    return sum;
}

double popularity_exponent(const struct access_cdf *cdf, double rows)
{
    double best = 0, least = squares(cdf, rows, 0);

    for (uint32_t i = 1; i * STEP <= POPULARITY_EXPONENT_MOST; i++) {
        const double sum = squares(cdf, rows, i * STEP);

        if (sum < least) {
            least = sum;
            best = i * STEP;
        }
    }
    return best;
}
