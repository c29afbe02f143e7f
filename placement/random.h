/* SPDX-License-Identifier: Apache-2.0 */
/* random.h: pseudo-random numbers from a seed (SplitMix64: Steele, Lea and Flood, "Fast Splittable
 * Pseudorandom Number Generators", OOPSLA 2014). The same seed gives the same numbers. Thread: the
 * owner of the state. */
#ifndef EMBTIER_PLACEMENT_RANDOM_H
#define EMBTIER_PLACEMENT_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
};

static inline uint64_t random_u64(struct random *random)
{
    uint64_t bits = random->state += UINT64_C(0x9e3779b97f4a7c15);

    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return bits ^ bits >> 31;
}

/* Returns a number from 0 up to, but without, 1. */
static inline double random_unit(struct random *random)
{
    return (double)(random_u64(random) >> 11) * 0x1p-53;
}

/* Returns a number above 0, at most 1: one whose logarithm is finite. */
static inline double random_share(struct random *random)
{
    return 1 - random_unit(random);
}

/* Returns a number below @limit, which is not 0; its bias is below @limit / 2^64. */
static inline uint64_t random_below(struct random *random, uint64_t limit)
{
    return (uint64_t)((unsigned __int128)random_u64(random) * limit >> 64);
}

#endif
