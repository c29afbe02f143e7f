/* SPDX-License-Identifier: Apache-2.0 */
/* seed.h: the seed of a test's random numbers. EMBTIER_TEST_SEED repeats a run. */
#ifndef EMBTIER_TESTS_SEED_H
#define EMBTIER_TESTS_SEED_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

/* For a test that might not pass with each seed, or whose runs are to be compared. */
#define SEED_USUAL UINT64_C(0x5eed0001)

/* Returns a number of 32 bits, another one in each run. */
static inline uint64_t seed_random(void)
{
    uint32_t seed;

    return getrandom(&seed, sizeof(seed), 0) == (ssize_t)sizeof(seed) ? seed : SEED_USUAL;
}

/* Returns the given seed; if none is given, @otherwise. */
static inline uint64_t seed_given(uint64_t otherwise)
{
    const char *const text = getenv("EMBTIER_TEST_SEED"); // NOLINT(concurrency-mt-unsafe)

    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* Does the same, and prints the seed. */
static inline uint64_t seed_of_test(const char *test, uint64_t otherwise)
{
    const uint64_t seed = seed_given(otherwise);

    printf("%s: EMBTIER_TEST_SEED=%#" PRIx64 "\n", test, seed);
    fflush(stdout); /* a crash would lose it */
    return seed;
}

#endif
