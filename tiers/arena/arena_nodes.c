/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/arena/arena_nodes.h"

#include <errno.h>
#include <hwloc.h>
#include <inttypes.h>
#include <string.h>

#include "base/macros.h"
#include "config/machine.h"
#include "tiers/arena/arena.h"

struct nodes {
    hwloc_topology_t topology;
    hwloc_nodeset_t set;
    char text[64]; /* "NUMA node 1", "DAX devices' NUMA nodes 2-3" */
};

static void nodes_free(struct nodes *nodes)
{
    hwloc_bitmap_free(nodes->set);
    if (nodes->topology)
        hwloc_topology_destroy(nodes->topology);
}

static enum embtier_err read_topology(const struct tier_spec *spec, hwloc_topology_t *ret_topology,
                                      struct err_msg *msg)
{
    if (hwloc_topology_init(ret_topology))
        return err_set(msg, EMBTIER_NO_MEMORY, "tier %s: hwloc does not start", spec->name);
    if (hwloc_topology_load(*ret_topology) == 0)
        return EMBTIER_OK;
    hwloc_topology_destroy(TAKE(*ret_topology));
    return err_set(msg, EMBTIER_UNSUPPORTED, "tier %s: hwloc cannot read this machine's nodes",
                   spec->name);
}

/* Adds the nodes of @spec's kind to @nodes. */
static enum embtier_err choose_nodes(const struct tier_spec *spec, struct nodes *nodes,
                                     struct err_msg *msg)
{
    if (spec->kind == TIER_KIND_NUMA) {
        const hwloc_obj_t node =
            spec->numa_node < 0
                ? NULL
                : hwloc_get_numanode_obj_by_os_index(nodes->topology, (unsigned)spec->numa_node);

        if (!node)
            return err_set(msg, EMBTIER_NOT_FOUND,
                           "tier %s: this machine has no NUMA node %d, or this process may not use "
                           "it",
                           spec->name, spec->numa_node);
        hwloc_bitmap_copy(nodes->set, node->nodeset);
        return EMBTIER_OK;
    }
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(nodes->topology, HWLOC_OBJ_NUMANODE, node));)
        if (hwloc_obj_get_info_by_name(node, "DAXDevice"))
            hwloc_bitmap_or(nodes->set, nodes->set, node->nodeset);
    if (hwloc_bitmap_iszero(nodes->set))
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "tier %s: this machine has no memory of kind dax_kmem; is a DAX device in "
                       "system-ram mode?",
                       spec->name);
    return EMBTIER_OK;
}

/* The caller calls nodes_free() afterwards, even after an error. */
static enum embtier_err find_nodes(const struct tier_spec *spec, struct nodes *ret_nodes,
                                   struct err_msg *msg)
{
    char list[32];

    *ret_nodes = (struct nodes){ .set = hwloc_bitmap_alloc() };
    if (!ret_nodes->set)
        return err_set(msg, EMBTIER_NO_MEMORY, "tier %s: out of memory", spec->name);
    TRY(read_topology(spec, &ret_nodes->topology, msg));
    TRY(choose_nodes(spec, ret_nodes, msg));
    hwloc_bitmap_list_snprintf(list, sizeof(list), ret_nodes->set);
    snprintf(ret_nodes->text, sizeof(ret_nodes->text), "%sNUMA node%s %s",
             spec->kind == TIER_KIND_NUMA ? "" : "DAX devices' ",
             hwloc_bitmap_weight(ret_nodes->set) == 1 ? "" : "s", list);
    return EMBTIER_OK;
}

static uint64_t available_bytes(const struct nodes *nodes)
{
    uint64_t sum = 0;

    for (int node = hwloc_bitmap_first(nodes->set); node >= 0;
         node = hwloc_bitmap_next(nodes->set, node)) {
        const uint64_t bytes = machine_node_available_bytes((unsigned)node);

        if (bytes == UINT64_MAX)
            return bytes;
        sum += bytes;
    }
    return sum;
}

enum embtier_err arena_nodes_check(const struct tier_spec *spec, uint64_t bytes,
                                   struct err_msg *msg)
{
    struct nodes nodes;
    enum embtier_err err = EMBTIER_OK;
    uint64_t available;

    if (find_nodes(spec, &nodes, NULL) == EMBTIER_OK) {
        available = available_bytes(&nodes);
        if (bytes > available)
            err = err_set(msg, EMBTIER_NO_MEMORY,
                          "tier %s: %" PRIu64 " bytes are wanted, %" PRIu64 " of %s are available",
                          spec->name, bytes, available, nodes.text);
    }
    nodes_free(&nodes);
    return err;
}

static enum embtier_err not_bound(const struct tier_spec *spec, const struct nodes *nodes,
                                  uint64_t bytes, int errnum, struct err_msg *msg)
{
    static const struct {
        int errnum;
        enum embtier_err err;
        const char *reason;
    } reasons[] = {
        { EPERM, EMBTIER_PERMISSION,
          "; a container does not permit mbind() (capability SYS_NICE)" },
        { ENOSYS, EMBTIER_UNSUPPORTED, "; the kernel has no mbind(), or a container hides it" },
        { EINVAL, EMBTIER_NOT_FOUND,
          "; this process may not use the memory (cpuset), or there is none" },
    };
    enum embtier_err err = EMBTIER_NO_MEMORY;
    const char *reason = "";

    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (reasons[i].errnum == errnum) {
            err = reasons[i].err;
            reason = reasons[i].reason;
        }
    return err_set(msg, err, "tier %s: cannot bind %" PRIu64 " bytes to %s: %s%s", spec->name,
                   bytes, nodes->text, strerror(errnum), reason);
}

static enum embtier_err reserve(const struct tier_spec *spec, struct nodes *nodes, uint64_t bytes,
                                struct arena_memory *ret_memory, struct err_msg *msg)
{
    const uint64_t mapping_bytes = bytes + ARENA_SLAB_BYTES; /* hwloc aligns only to pages */
    void *mapping;

    errno = 0;
    mapping = hwloc_alloc_membind(nodes->topology, mapping_bytes, nodes->set, HWLOC_MEMBIND_BIND,
                                  HWLOC_MEMBIND_STRICT | HWLOC_MEMBIND_BYNODESET);
    if (!mapping)
        return not_bound(spec, nodes, bytes, errno ? errno : ENOMEM, msg);
    *ret_memory = (struct arena_memory){
        .base = (void *)align_up((uintptr_t)mapping, ARENA_SLAB_BYTES),
        .bytes = bytes,
        .kind = spec->kind,
        .far = true,
        .mapping = mapping,
        .mapping_bytes = mapping_bytes,
        .owner = TAKE(nodes->topology),
    };
    return EMBTIER_OK;
}

enum embtier_err arena_nodes_reserve(const struct tier_spec *spec, uint64_t bytes,
                                     struct arena_memory *ret_memory, struct err_msg *msg)
{
    struct nodes nodes;
    enum embtier_err err = find_nodes(spec, &nodes, msg);

    if (err == EMBTIER_OK)
        err = reserve(spec, &nodes, bytes, ret_memory, msg);
    nodes_free(&nodes);
    return err;
}

void arena_nodes_release(struct arena_memory *memory)
{
    hwloc_free(memory->owner, memory->mapping, memory->mapping_bytes);
    hwloc_topology_destroy(memory->owner);
}
