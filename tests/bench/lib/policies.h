/* SPDX-License-Identifier: Apache-2.0 */
/* policies.h: simulations of cache policies, one id at a time: each decides which row leaves a
 * full cache.
 *
 * LRU. LFU: the fewest accesses since the row came; among equals, the one accessed longest ago.
 * S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, figure 5):
 * a small queue of a tenth for newcomers, a main one, and a memory of ids that left the small
 * one. Thread: one. */
#ifndef EMBTIER_TESTS_BENCH_LIB_POLICIES_H
#define EMBTIER_TESTS_BENCH_LIB_POLICIES_H

#include <stdbool.h>
#include <stdint.h>

struct policy {
    const char *name;
    /* Makes a cache for ids below @ids, @capacity of which fit. */
    void *(*make)(uint32_t ids, uint32_t capacity);
    /* True if @id was there; it is there afterwards. */
    bool (*access)(void *state, uint32_t id);
    /* True if @id is there; does not count as an access. */
    bool (*has)(const void *state, uint32_t id);
    void (*end)(void *state);
};

extern const struct policy policy_lru;
extern const struct policy policy_lfu;
extern const struct policy policy_s3_fifo;

#endif
