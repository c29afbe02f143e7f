/* SPDX-License-Identifier: Apache-2.0 */
/* arena_pmem.c: arenas of every kind: files by libpmem, others by arena_system.h and arena_nodes.h.
 *
 * Files are mapped by libpmem, not by memkind_create_pmem(). pmem_map_file() allocates the file's
 * blocks before it maps them, so a full file system is ENOSPC here. memkind leaves the file sparse
 * and lets its heap write first, which on a full file system is SIGBUS. pmem_map_file() also tells
 * if the mapping is persistent memory. The file has no name (PMEM_FILE_TMPFILE), so it disappears
 * however the process ends. Its content need not survive, so nothing is ever flushed with msync. */
#include <errno.h>
#include <libpmem.h>

#include "tiers/arena/arena.h"
#include "tiers/arena/arena_memory.h"
#include "tiers/arena/arena_nodes.h"
#include "tiers/arena/arena_system.h"

static enum embtier_err map_file(const struct tier_spec *spec, uint64_t bytes, void **ret_mapping,
                                 size_t *ret_bytes, struct err_msg *msg)
{
    void *mapping;
    int is_pmem, saved;

    errno = 0;
    mapping = pmem_map_file(spec->path, bytes, PMEM_FILE_CREATE | PMEM_FILE_TMPFILE, 0600,
                            ret_bytes, &is_pmem);
    if (mapping) {
        *ret_mapping = mapping;
        return EMBTIER_OK;
    }
    saved = errno ? errno : EIO;
    return err_set_errno(msg, saved, "tier %s: cannot map %llu bytes in %s", spec->name,
                         (unsigned long long)bytes, spec->path);
}

static enum embtier_err reserve_file(const struct tier_spec *spec, uint64_t bytes,
                                     struct arena_memory *ret_memory, struct err_msg *msg)
{
    size_t mapping_bytes = 0;
    void *mapping = NULL;

    TRY(map_file(spec, bytes, &mapping, &mapping_bytes, msg));
    if ((uintptr_t)mapping % ARENA_SLAB_BYTES) {
        /* libpmem aligns only large mappings: for a small one, map one slab more. */
        pmem_unmap(mapping, mapping_bytes);
        TRY(map_file(spec, bytes + ARENA_SLAB_BYTES, &mapping, &mapping_bytes, msg));
    }
    *ret_memory = (struct arena_memory){
        .base = (void *)align_up((uintptr_t)mapping, ARENA_SLAB_BYTES),
        .bytes = bytes,
        .kind = spec->kind,
        .far = true,
        .mapping = mapping,
        .mapping_bytes = mapping_bytes,
    };
    return EMBTIER_OK;
}

enum embtier_err arena_memory_check_nodes(const struct tier_spec *spec, uint64_t bytes,
                                          struct err_msg *msg)
{
    if (spec->kind == TIER_KIND_NUMA || spec->kind == TIER_KIND_DAX_KMEM)
        return arena_nodes_check(spec, bytes, msg);
    return EMBTIER_OK;
}

enum embtier_err arena_memory_reserve(const struct tier_spec *spec, uint64_t bytes,
                                      struct arena_memory *ret_memory, struct err_msg *msg)
{
    switch (spec->kind) {
    case TIER_KIND_DRAM:
    case TIER_KIND_DRAM_HUGE:
        return arena_system_reserve(spec, bytes, ret_memory, msg);
    case TIER_KIND_FILE:
        return reserve_file(spec, bytes, ret_memory, msg);
    case TIER_KIND_DAX_KMEM:
    case TIER_KIND_NUMA:
        return arena_nodes_reserve(spec, bytes, ret_memory, msg);
    case TIER_KIND_COUNT:
        break;
    }
    return err_set(msg, EMBTIER_INVALID, "tier %s: no such kind of memory", spec->name);
}

void arena_memory_release(struct arena_memory *memory)
{
    switch (memory->kind) {
    case TIER_KIND_FILE:
        pmem_unmap(memory->mapping, memory->mapping_bytes);
        return;
    case TIER_KIND_DAX_KMEM:
    case TIER_KIND_NUMA:
        arena_nodes_release(memory);
        return;
    default:
        arena_system_release(memory);
        return;
    }
}

const char *arena_memory_library(void)
{
    return arena_system_library();
}

void arena_memory_copy_past_caches(void *dest, const void *src, uint64_t bytes)
{
    pmem_memcpy(dest, src, bytes, PMEM_F_MEM_NONTEMPORAL | PMEM_F_MEM_NODRAIN);
}

void arena_memory_drain(void)
{
    pmem_drain();
}
