/* SPDX-License-Identifier: Apache-2.0 */
/* arena_pmem.c: arenas of every kind, from memkind, libpmem and hwloc.
 *
 * DRAM, huge pages and system-memory PMEM are memkind kinds. Files are mapped by libpmem and not by
 * memkind_create_pmem(): pmem_map_file() allocates the file's blocks before it maps them, so that a
 * full file system is ENOSPC here; memkind leaves the file sparse and its heap writes to it first,
 * which on a full file system is SIGBUS. It also says whether the mapping is persistent memory. The
 * file has no name (PMEM_FILE_TMPFILE): it goes when the process does, however it ends, and what is
 * in it need not survive, so nothing is ever flushed with msync. */
#include <errno.h>
#include <hwloc.h>
#include <libpmem.h>
#include <memkind.h>
#include <string.h>

#include "tiers/arena.h"
#include "tiers/arena_memory.h"

static memkind_t kind_of(enum tier_kind kind)
{
    switch (kind) {
    case TIER_KIND_DRAM_HUGE:
        return MEMKIND_HUGETLB;
    case TIER_KIND_DAX_KMEM:
        return MEMKIND_DAX_KMEM;
    default:
        return MEMKIND_DEFAULT;
    }
}

static enum embtier_err reserve_memkind(const struct tier_spec *spec, uint64_t bytes,
                                        struct arena_memory *ret_memory, struct err_msg *msg)
{
    memkind_t kind = kind_of(spec->kind);
    void *base = NULL;
    int rc;

    if (spec->kind != TIER_KIND_DRAM && memkind_check_available(kind) != MEMKIND_SUCCESS)
        return err_set(
            msg, EMBTIER_UNSUPPORTED, "tier %s: this machine has no memory of kind %s", spec->name,
            spec->kind == TIER_KIND_DRAM_HUGE ? "dram_huge; is vm.nr_hugepages set?"
                                              : "dax_kmem; is a DAX device in system-ram mode?");
    rc = memkind_posix_memalign(kind, &base, ARENA_SLAB_BYTES, bytes);
    if (rc || !base)
        return err_set(msg, EMBTIER_NO_MEMORY, "tier %s: cannot reserve %llu bytes%s", spec->name,
                       (unsigned long long)bytes,
                       spec->kind == TIER_KIND_DRAM_HUGE ? " of huge pages (vm.nr_hugepages)" : "");
    *ret_memory = (struct arena_memory){
        .base = base, .bytes = bytes, .kind = spec->kind, .far = spec->kind == TIER_KIND_DAX_KMEM
    };
    return EMBTIER_OK;
}

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
        /* libpmem aligns large mappings only; one slab more, then, for small ones. */
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

static enum embtier_err reserve_numa(const struct tier_spec *spec, uint64_t bytes,
                                     struct arena_memory *ret_memory, struct err_msg *msg)
{
    uint64_t mapping_bytes = bytes + ARENA_SLAB_BYTES; /* hwloc aligns to pages only */
    hwloc_topology_t topology;
    hwloc_obj_t node;
    void *mapping;

    if (hwloc_topology_init(&topology))
        return err_set(msg, EMBTIER_NO_MEMORY, "tier %s: hwloc does not start", spec->name);
    if (hwloc_topology_load(topology)) {
        hwloc_topology_destroy(topology);
        return err_set(msg, EMBTIER_UNSUPPORTED, "tier %s: hwloc cannot read this machine's nodes",
                       spec->name);
    }
    node = spec->numa_node < 0
               ? NULL
               : hwloc_get_numanode_obj_by_os_index(topology, (unsigned)spec->numa_node);
    if (!node) {
        hwloc_topology_destroy(topology);
        return err_set(msg, EMBTIER_NOT_FOUND, "tier %s: this machine has no NUMA node %d",
                       spec->name, spec->numa_node);
    }
    mapping = hwloc_alloc_membind(topology, mapping_bytes, node->nodeset, HWLOC_MEMBIND_BIND,
                                  HWLOC_MEMBIND_BYNODESET);
    if (!mapping) {
        hwloc_topology_destroy(topology);
        return err_set(msg, EMBTIER_NO_MEMORY, "tier %s: cannot reserve %llu bytes on NUMA node %d",
                       spec->name, (unsigned long long)bytes, spec->numa_node);
    }
    *ret_memory = (struct arena_memory){
        .base = (void *)align_up((uintptr_t)mapping, ARENA_SLAB_BYTES),
        .bytes = bytes,
        .kind = spec->kind,
        .far = true,
        .mapping = mapping,
        .mapping_bytes = mapping_bytes,
        .owner = topology,
    };
    return EMBTIER_OK;
}

enum embtier_err arena_memory_reserve(const struct tier_spec *spec, uint64_t bytes,
                                      struct arena_memory *ret_memory, struct err_msg *msg)
{
    switch (spec->kind) {
    case TIER_KIND_DRAM:
    case TIER_KIND_DRAM_HUGE:
    case TIER_KIND_DAX_KMEM:
        return reserve_memkind(spec, bytes, ret_memory, msg);
    case TIER_KIND_FILE:
        return reserve_file(spec, bytes, ret_memory, msg);
    case TIER_KIND_NUMA:
        return reserve_numa(spec, bytes, ret_memory, msg);
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
    case TIER_KIND_NUMA:
        hwloc_free(memory->owner, memory->mapping, memory->mapping_bytes);
        hwloc_topology_destroy(memory->owner);
        return;
    default:
        memkind_free(kind_of(memory->kind), memory->base);
        return;
    }
}

void arena_memory_copy_past_caches(void *dest, const void *src, uint64_t bytes)
{
    pmem_memcpy(dest, src, bytes, PMEM_F_MEM_NONTEMPORAL | PMEM_F_MEM_NODRAIN);
}

void arena_memory_drain(void)
{
    pmem_drain();
}
