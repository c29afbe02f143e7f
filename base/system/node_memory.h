/* SPDX-License-Identifier: Apache-2.0 */
/* node_memory.h: the memory of one NUMA node that the kernel could give, from the texts it shows.
 *
 * It is an estimate by the rule for MemAvailable (si_mem_available() in the kernel's
 * mm/show_mem.c), which the kernel applies to the whole machine only. */
#ifndef EMBTIER_BASE_SYSTEM_NODE_MEMORY_H
#define EMBTIER_BASE_SYSTEM_NODE_MEMORY_H

#include <stdint.h>
#include <stdio.h>

/* @meminfo is the node's (/sys/devices/system/node/node*), @zoneinfo that of /proc; either may be
 * NULL. UINT64_MAX: @meminfo does not say. Without @zoneinfo the kernel is taken to keep nothing
 * for itself. */
uint64_t node_memory_available_bytes(FILE *meminfo, FILE *zoneinfo, unsigned node,
                                     uint64_t page_bytes);

#endif
