/* SPDX-License-Identifier: Apache-2.0 */
/* parts_search.h: the search for the part of each tier's bytes that arrays have.
 *
 * The times of a model hold for one size of the cache, and arrays and cache share a tier's bytes.
 * So models are solved for several parts of each tier: eighths first, then sixteenths beside the
 * best one. The caller solves them, and knows the best answer so far. Thread: the caller's. */
#ifndef EMBTIER_PLACEMENT_PLANNER_PARTS_SEARCH_H
#define EMBTIER_PLACEMENT_PLANNER_PARTS_SEARCH_H

#include <stdint.h>

#include "base/macros.h"
#include "placement/planner/planning.h"

#define PARTS             16
#define PARTS_COARSE_STEP 2
#define PARTS_TRIES       (PARTS / PARTS_COARSE_STEP + 4) /* of each tier, in one search */

/* Prices of SSD's reads and writes, as multiples of the time for which they use up its limits. A
 * search without a price comes first. */
#define PARTS_PRICES 4
extern const double parts_prices[PARTS_PRICES];

struct parts_search {
    uint32_t tier_count;
    uint32_t parts[TIERS_MAX]; /* of each tier's bytes, for arrays */
    /* Solves models with these parts, and keeps the best answer. */
    enum embtier_err (*try)(void *ctx);
    /* Returns the evaluation of the best answer; NULL: there is none. */
    const struct evaluation *(*best)(const void *ctx);
    void *ctx;
};

static inline uint64_t parts_of(uint64_t bytes, uint32_t part)
{
    return part == PARTS ? bytes : bytes / PARTS * part;
}

/* Gives arrays all bytes. */
void parts_fill(struct parts_search *search);

/* Begins with all bytes, and keeps the parts with which the best answer was found. */
MUST_CHECK enum embtier_err parts_search(struct parts_search *search);

#endif
