/* SPDX-License-Identifier: Apache-2.0 */
/* arena_system.h: unnamed memory from any node: kinds DRAM and DRAM_HUGE.
 *
 * arena_memkind.c takes it from memkind; arena_mmap.c takes it from mmap where there is no memkind
 * (Debian 13 has none). Meson chooses. Thread: any. */
#ifndef EMBTIER_TIERS_ARENA_ARENA_SYSTEM_H
#define EMBTIER_TIERS_ARENA_ARENA_SYSTEM_H

#include "base/err.h"
#include "base/spec/tier_spec.h"
#include "tiers/arena/arena_memory.h"

/* Like arena_memory_reserve(). UNSUPPORTED: this machine has no memory of that kind. NO_MEMORY. */
MUST_CHECK enum embtier_err arena_system_reserve(const struct tier_spec *spec, uint64_t bytes,
                                                 struct arena_memory *ret_memory,
                                                 struct err_msg *msg);
void arena_system_release(struct arena_memory *memory);
/* Returns "memkind" or "mmap". */
const char *arena_system_library(void);

#endif
