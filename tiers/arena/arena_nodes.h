/* SPDX-License-Identifier: Apache-2.0 */
/* arena_nodes.h: memory of chosen NUMA nodes, through hwloc.
 *
 * Kind NUMA names its node. Kind DAX_KMEM uses all nodes whose memory is a DAX device in system-ram
 * mode, which hwloc learns from the kernel's DAX bus (attribute "DAXDevice"). memkind would give
 * DAX_KMEM only the nearest of these nodes, and no reason where it cannot bind memory.
 *
 * Memory is bound to its nodes. If they are full, the kernel gives none, and its OOM killer ends a
 * process. So call arena_nodes_check() first. Thread: any. */
#ifndef EMBTIER_TIERS_ARENA_ARENA_NODES_H
#define EMBTIER_TIERS_ARENA_ARENA_NODES_H

#include "base/err.h"
#include "base/spec/tier_spec.h"
#include "tiers/arena/arena_memory.h"

/* NO_MEMORY: the nodes of @spec's kind have less than @bytes. OK if the kernel does not tell, or if
 * there are no such nodes. */
MUST_CHECK enum embtier_err arena_nodes_check(const struct tier_spec *spec, uint64_t bytes,
                                              struct err_msg *msg);
/* Like arena_memory_reserve(). NOT_FOUND: no such node, or none that this process may use.
 * UNSUPPORTED: no node of a DAX device, hwloc cannot read this machine's nodes, or this kernel
 * binds no memory. PERMISSION: the kernel binds none for this process. NO_MEMORY. */
MUST_CHECK enum embtier_err arena_nodes_reserve(const struct tier_spec *spec, uint64_t bytes,
                                                struct arena_memory *ret_memory,
                                                struct err_msg *msg);
void arena_nodes_release(struct arena_memory *memory);

#endif
