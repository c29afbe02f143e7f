/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h: one contiguous region of addresses of one kind of memory, in slabs that are there or
 * not. A slab that is there has been reserved and touched.
 *
 * DRAM (default or huge pages) comes from memkind, or from mmap where there is no memkind.
 * Persistent memory used as system memory, and memory of a NUMA node (CXL), come through hwloc.
 * Persistent memory used as a file is a file without a name, on a DAX or any other file system.
 * Thread: any thread makes and frees arenas, and one at a time fills and empties slabs; their owner
 * decides which threads use the bytes. */
#ifndef EMBTIER_TIERS_ARENA_ARENA_H
#define EMBTIER_TIERS_ARENA_ARENA_H

#include <stdint.h>

#include "base/err.h"
#include "base/spec/array_shape.h"
#include "base/spec/tier_spec.h"

/* Arenas start on a slab boundary and are a whole number of slabs. */
#define ARENA_SLAB_BYTES ARRAY_SLAB_BYTES

struct arena;

/* Reserves @bytes (rounded up to a slab) of memory of @spec's kind; ignores @spec->bytes. Touches
 * every page before it returns, so that missing memory is an error here and not a SIGBUS later.
 * Fails with NO_MEMORY, NO_SPACE, NOT_FOUND (path, node), UNSUPPORTED (no such memory on this
 * machine), PERMISSION (path, or memory of chosen nodes). */
MUST_CHECK enum embtier_err arena_new(const struct tier_spec *spec, uint64_t bytes,
                                      struct arena **ret_arena, struct err_msg *msg);
/* Reserves only addresses; no slab is there. */
MUST_CHECK enum embtier_err arena_new_empty(const struct tier_spec *spec, uint64_t bytes,
                                            struct arena **ret_arena, struct err_msg *msg);
/* OK if the machine has @bytes more of the arena's kind of memory now, as far as it tells. */
MUST_CHECK enum embtier_err arena_check_available(const struct arena *arena, uint64_t bytes,
                                                  struct err_msg *msg);
/* Makes slabs be there, and touches every page, as arena_new(). After an error none of them is. */
MUST_CHECK enum embtier_err arena_fill(struct arena *arena, uint64_t first_slab,
                                       uint64_t slab_count, struct err_msg *msg);
/* Gives slabs back to the system; nobody uses their bytes. May wait for the disk of a file. Returns
 * an error if the system keeps the memory; then it is still there, and arena_fill() may be called
 * again. */
MUST_CHECK enum embtier_err arena_empty(struct arena *arena, uint64_t first_slab,
                                        uint64_t slab_count, struct err_msg *msg);
/* OK if this build and this machine have memory of @spec's kind; fails like arena_new(). Reserves
 * memory only briefly, and does not check the amount. */
MUST_CHECK enum embtier_err arena_check(const struct tier_spec *spec, struct err_msg *msg);
void arena_free(struct arena *arena);
DEFINE_CLEANUP(struct arena, arena_free)

/* Returns the source of unnamed memory in this build: "memkind", "mmap" or "malloc". */
const char *arena_library(void);

void *arena_base(const struct arena *arena);
/* Returns the size of all its addresses. */
uint64_t arena_bytes(const struct arena *arena);

/* Copies @bytes from DRAM into the arena. Uses libpmem's non-temporal stores where the arena is
 * persistent or far memory, and memcpy elsewhere. After arena_drain() any thread may read the
 * bytes. */
void arena_copy_in(const struct arena *arena, void *dest, const void *src, uint64_t bytes);
void arena_drain(const struct arena *arena);

#endif
