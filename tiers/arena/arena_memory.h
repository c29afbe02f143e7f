/* SPDX-License-Identifier: Apache-2.0 */
/* arena_memory.h: the source of an arena's memory; one file per set of libraries.
 *
 * arena_pmem.c has all kinds (libpmem, hwloc, and memkind if available), arena_pmem_none.c only
 * ordinary memory; meson.build chooses. Neither touches the pages: arena.c does. Thread: any. */
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
    bool far;      /* persistent or far: copies bypass the processor's caches */
    void *mapping; /* the whole mapping: base and bytes, or slightly more for alignment */
    uint64_t mapping_bytes;
    void *owner; /* the library's handle, for memory of NUMA nodes */
    int fd;      /* of kind FILE */
};

/* NO_MEMORY: the NUMA nodes of @spec's kind have less than @bytes. Always OK for kinds without
 * nodes. */
MUST_CHECK enum embtier_err arena_memory_check_nodes(const struct tier_spec *spec, uint64_t bytes,
                                                     struct err_msg *msg);
/* Reserves addresses for exactly @bytes, a whole number of slabs. A file has no blocks yet. */
MUST_CHECK enum embtier_err arena_memory_reserve(const struct tier_spec *spec, uint64_t bytes,
                                                 struct arena_memory *ret_memory,
                                                 struct err_msg *msg);
void arena_memory_release(struct arena_memory *memory);
/* Give a file blocks, and take them from it; nothing to do for other kinds. Return 0 or an errno.
 */
int arena_memory_add_blocks(const struct arena_memory *memory, uint64_t at, uint64_t bytes);
int arena_memory_drop_blocks(const struct arena_memory *memory, uint64_t at, uint64_t bytes);

/* Returns the source of unnamed memory: "memkind", "mmap" or "malloc". */
const char *arena_memory_library(void);

/* Only for far memory. */
void arena_memory_copy_past_caches(void *dest, const void *src, uint64_t bytes);
void arena_memory_drain(void);

#endif
