/* SPDX-License-Identifier: Apache-2.0 */
/* popularity.h: the exponent of Zipf's law that comes nearest to measured curves of popularity.
 * Pure values. */
#ifndef EMBTIER_TOOLS_CLI_TUNE_POPULARITY_H
#define EMBTIER_TOOLS_CLI_TUNE_POPULARITY_H

#include "placement/profile/access_cdf.h"

#define POPULARITY_EXPONENT_MOST 3.0

/* Returns the exponent, 0 to POPULARITY_EXPONENT_MOST, whose curve over @rows rows, 1 or more, has
 * the least squares from the points of @cdf. 0 if that has none. */
double popularity_exponent(const struct access_cdf *cdf, double rows);

#endif
