/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/arena_nodes.h"

#include <hwloc.h>
#include <inttypes.h>

#include "base/macros.h"
#include "tiers/arena.h"

static enum embtier_err read_topology(const struct tier_spec *spec, hwloc_topology_t *ret_topology,
                                      struct err_msg *msg)
{
    if (hwloc_topology_init(ret_topology))
        return err_set(msg, EMBTIER_NO_MEMORY, "tier %s: hwloc does not start", spec->name);
    if (hwloc_topology_load(*ret_topology) == 0)
        return EMBTIER_OK;
    hwloc_topology_destroy(*ret_topology);
    return err_set(msg, EMBTIER_UNSUPPORTED, "tier %s: hwloc cannot read this machine's nodes",
                   spec->name);
}

/* Adds the nodes of @spec's kind to @nodes. */
static enum embtier_err choose_nodes(const struct tier_spec *spec, hwloc_topology_t topology,
                                     hwloc_nodeset_t nodes, struct err_msg *msg)
{
    if (spec->kind == TIER_KIND_NUMA) {
        const hwloc_obj_t node =
            spec->numa_node < 0
                ? NULL
                : hwloc_get_numanode_obj_by_os_index(topology, (unsigned)spec->numa_node);

        if (!node)
            return err_set(msg, EMBTIER_NOT_FOUND, "tier %s: this machine has no NUMA node %d",
                           spec->name, spec->numa_node);
        hwloc_bitmap_copy(nodes, node->nodeset);
        return EMBTIER_OK;
    }
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node));)
        if (hwloc_obj_get_info_by_name(node, "DAXDevice"))
            hwloc_bitmap_or(nodes, nodes, node->nodeset);
    if (hwloc_bitmap_iszero(nodes))
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "tier %s: this machine has no memory of kind dax_kmem; is a DAX device in "
                       "system-ram mode?",
                       spec->name);
    return EMBTIER_OK;
}

static enum embtier_err reserve(const struct tier_spec *spec, hwloc_topology_t topology,
                                hwloc_nodeset_t nodes, uint64_t bytes,
                                struct arena_memory *ret_memory, struct err_msg *msg)
{
    const uint64_t mapping_bytes = bytes + ARENA_SLAB_BYTES; /* hwloc aligns to pages only */
    void *mapping;

    TRY(choose_nodes(spec, topology, nodes, msg));
    mapping = hwloc_alloc_membind(topology, mapping_bytes, nodes, HWLOC_MEMBIND_BIND,
                                  HWLOC_MEMBIND_BYNODESET);
    if (!mapping)
        return err_set(msg, EMBTIER_NO_MEMORY, "tier %s: cannot reserve %" PRIu64 " bytes of %s %d",
                       spec->name, bytes,
                       spec->kind == TIER_KIND_NUMA ? "NUMA node" : "DAX devices, with node",
                       hwloc_bitmap_first(nodes));
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

enum embtier_err arena_nodes_reserve(const struct tier_spec *spec, uint64_t bytes,
                                     struct arena_memory *ret_memory, struct err_msg *msg)
{
    hwloc_nodeset_t nodes = hwloc_bitmap_alloc();
    hwloc_topology_t topology;
    enum embtier_err err;

    if (!nodes)
        return err_set(msg, EMBTIER_NO_MEMORY, "tier %s: out of memory", spec->name);
    err = read_topology(spec, &topology, msg);
    if (err == EMBTIER_OK) {
        err = reserve(spec, topology, nodes, bytes, ret_memory, msg);
        if (err != EMBTIER_OK)
            hwloc_topology_destroy(topology);
    }
    hwloc_bitmap_free(nodes);
    return err;
}

void arena_nodes_release(struct arena_memory *memory)
{
    hwloc_free(memory->owner, memory->mapping, memory->mapping_bytes);
    hwloc_topology_destroy(memory->owner);
}
