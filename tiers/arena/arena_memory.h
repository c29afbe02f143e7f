/* SPDX-License-Identifier: Apache-2.0 */
/* arena_memory.h: where the memory of an arena comes from; one file per set of libraries.
 *
 * arena_pmem.c has all kinds (libpmem, hwloc, and memkind where it is), arena_pmem_none.c ordinary
 * memory only; meson.build chooses. Neither touches the pages: arena.c does. Thread: any. */
#ifndef EMBTIER_TIERS_ARENA_ARENA_MEMORY_H
#define EMBTIER_TIERS_ARENA_ARENA_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/spec/tier_spec.h"

struct arena_memory {
    void *base; /* on a slab boundary */
    uint64_t bytes;
    enum tier_kind kind;
    bool far;      /* persistent or far: copy past the processor's caches */
    void *mapping; /* what was mapped: base and bytes, or a little more for alignment */
    uint64_t mapping_bytes;
    void *owner; /* the library's, of memory of NUMA nodes */
};

/* NO_MEMORY: memory of @spec's kind comes from NUMA nodes that have less than @bytes. Passes for
 * kinds that know no nodes. */
MUST_CHECK enum embtier_err arena_memory_check_nodes(const struct tier_spec *spec, uint64_t bytes,
                                                     struct err_msg *msg);
/* Reserves exactly @bytes, a whole number of slabs. */
MUST_CHECK enum embtier_err arena_memory_reserve(const struct tier_spec *spec, uint64_t bytes,
                                                 struct arena_memory *ret_memory,
                                                 struct err_msg *msg);
void arena_memory_release(struct arena_memory *memory);

/* Where memory without a name comes from: "memkind", "mmap" or "malloc". */
const char *arena_memory_library(void);

/* Only for memory that is far. */
void arena_memory_copy_past_caches(void *dest, const void *src, uint64_t bytes);
void arena_memory_drain(void);

#endif
