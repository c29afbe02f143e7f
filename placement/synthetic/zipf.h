/* SPDX-License-Identifier: Apache-2.0 */
/* zipf.h: draws from a Zipf distribution over any number of ranks, without a table.
 *
 * Rank k, from 1 on, has a probability proportional to k^-exponent. The draws are exact: rejection
 * inversion, Hörmann and Derflinger, "Rejection-Inversion to Generate Variates from Monotone
 * Discrete Distributions", ACM TOMACS 6(3), 1996. */
#ifndef EMBTIER_PLACEMENT_SYNTHETIC_ZIPF_H
#define EMBTIER_PLACEMENT_SYNTHETIC_ZIPF_H

#include "placement/random.h"

struct zipf {
    double count;
    double exponent;
    double low;  /* integral of the density at 1.5, less the probability of rank 1 */
    double high; /* at count + 0.5 */
    double shortcut;
};

/* @count: 1 or more ranks. @exponent: 0 (all alike) to 10. */
struct zipf zipf_make(uint64_t count, double exponent);
/* Returns a rank from 0 on; 0 is the most probable. */
uint64_t zipf_draw(const struct zipf *zipf, struct random *random);

#endif
