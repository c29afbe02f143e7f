/* SPDX-License-Identifier: Apache-2.0 */
/* tier_spec.h: one tier of memory for rows, as the configuration describes it. A plain value. */
#ifndef EMBTIER_BASE_SPEC_TIER_SPEC_H
#define EMBTIER_BASE_SPEC_TIER_SPEC_H

#include <stdint.h>

#include "base/macros.h"
#include "base/spec/array_shape.h"

#define TIER_NAME_MAX 31
#define TIER_PATH_MAX 4095
#define TIERS_MAX     4

/* The row cache works in slabs of as many bytes as those of arrays, and each lane has its own. */
#define TIER_SLAB_BYTES ARRAY_SLAB_BYTES

/* Rows lie on 16 bytes in a lane's cache whose tiers together may grow to so many bytes, on 32 in
 * one twice as large, and so on. */
#define TIER_FINE_LANE_BYTES (UINT64_C(64) << 30)

/* X(name, word, description) */
#define TIER_KIND_TABLE(X)                                                                         \
    X(DRAM, "dram", "ordinary memory")                                                             \
    X(DRAM_HUGE, "dram_huge", "ordinary memory in huge pages reserved by the administrator")       \
    X(DAX_KMEM, "dax_kmem", "persistent memory that the kernel shows as system memory")            \
    X(FILE, "file", "a file in `path`, on a DAX file system (persistent memory) or any other")     \
    X(NUMA, "numa", "the memory of NUMA node `numa_node`, such as CXL memory")

enum tier_kind {
#define X(name, word, text) TIER_KIND_##name,
    TIER_KIND_TABLE(X)
#undef X
        TIER_KIND_COUNT
};

struct tier_spec {
    char name[TIER_NAME_MAX + 1];
    enum tier_kind kind;
    uint64_t bytes;               /* of the whole daemon, arrays included */
    uint64_t max_bytes;           /* that a running server may set `bytes` to */
    uint64_t array_bytes;         /* the part for tables in arrays; lanes share the rest */
    char path[TIER_PATH_MAX + 1]; /* a directory; only for kind FILE */
    int numa_node;                /* only for kind NUMA */
};

/* Returns the bytes of a tier that arrays must leave to the row cache of @lanes. The first tier has
 * tier number 0; it also holds the index of each lane. */
static inline uint64_t tier_cache_least_bytes(uint32_t tier, uint32_t lanes)
{
    return lanes * (tier == 0 ? 2 : 1) * TIER_SLAB_BYTES;
}

/* Returns how many slabs each of @lanes has of a tier of @bytes, of which arrays have their part.
 */
static inline uint32_t tier_lane_slabs(const struct tier_spec *tier, uint64_t bytes, uint32_t lanes)
{
    return (uint32_t)((div_round_up(bytes, TIER_SLAB_BYTES) - tier->array_bytes / TIER_SLAB_BYTES) /
                      lanes);
}

#endif
