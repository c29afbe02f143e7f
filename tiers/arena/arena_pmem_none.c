/* SPDX-License-Identifier: Apache-2.0 */
/* arena_pmem_none.c: arenas of ordinary memory, for builds without libpmem and hwloc. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/arena/arena.h"
#include "tiers/arena/arena_memory.h"

enum embtier_err arena_memory_check_nodes(const struct tier_spec *spec, uint64_t bytes,
                                          struct err_msg *msg)
{
    (void)spec;
    (void)bytes;
    (void)msg;
    return EMBTIER_OK;
}

enum embtier_err arena_memory_reserve(const struct tier_spec *spec, uint64_t bytes,
                                      struct arena_memory *ret_memory, struct err_msg *msg)
{
    void *base;
    int rc;

    if (spec->kind != TIER_KIND_DRAM)
        return err_set(
            msg, EMBTIER_UNSUPPORTED,
            "tier %s: this build knows ordinary memory only (built with -Dpmem=disabled)",
            spec->name);
    rc = posix_memalign(&base, ARENA_SLAB_BYTES, bytes);
    if (rc)
        return err_set_errno(msg, rc, "tier %s: cannot reserve %llu bytes", spec->name,
                             (unsigned long long)bytes);
    *ret_memory = (struct arena_memory){ .base = base, .bytes = bytes, .kind = spec->kind };
    return EMBTIER_OK;
}

void arena_memory_release(struct arena_memory *memory)
{
    free(memory->base);
}

int arena_memory_add_blocks(const struct arena_memory *memory, uint64_t at, uint64_t bytes)
{
    (void)memory;
    (void)at;
    (void)bytes;
    return 0;
}

int arena_memory_drop_blocks(const struct arena_memory *memory, uint64_t at, uint64_t bytes)
{
    (void)memory;
    (void)at;
    (void)bytes;
    return 0;
}

const char *arena_memory_library(void)
{
    return "malloc";
}

void arena_memory_copy_past_caches(void *dest, const void *src, uint64_t bytes)
{
    memcpy(dest, src, bytes);
}

void arena_memory_drain(void)
{
}
