/* SPDX-License-Identifier: Apache-2.0 */
/* random.h: random numbers of a search, from a seed (xorshift64*: Vigna, 2016). Thread: the owner
 * of the state. */
#ifndef EMBTIER_PLACEMENT_SOLVE_RANDOM_H
#define EMBTIER_PLACEMENT_SOLVE_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state; /* not 0 */
};

static inline uint32_t random_next(struct random *random)
{
    random->state ^= random->state >> 12;
    random->state ^= random->state << 25;
    random->state ^= random->state >> 27;
    return (uint32_t)((random->state * UINT64_C(0x2545f4914f6cdd1d)) >> 32);
}

static inline uint32_t random_below(struct random *random, uint32_t count)
{
    return (uint32_t)(((uint64_t)random_next(random) * count) >> 32);
}

/* Above 0, at most 1. */
static inline double random_share(struct random *random)
{
    return ((double)random_next(random) + 1) / 4294967296.0;
}

#endif
