/* SPDX-License-Identifier: Apache-2.0 */
/* node_memory.h: estimates the memory that the kernel could give from one NUMA node, from its text
 * files.
 *
 * The estimate follows the rule for MemAvailable (si_mem_available() in the kernel's
 * mm/show_mem.c), which the kernel applies only to the whole machine. */
#ifndef EMBTIER_BASE_SYSTEM_NODE_MEMORY_H
#define EMBTIER_BASE_SYSTEM_NODE_MEMORY_H

#include <stdint.h>
#include <stdio.h>

/* @meminfo is the node's (/sys/devices/system/node/node*), @zoneinfo is /proc/zoneinfo; either may
 * be NULL. Returns UINT64_MAX if @meminfo does not say. Without @zoneinfo, the kernel is assumed to
 * keep nothing for itself. */
uint64_t node_memory_available_bytes(FILE *meminfo, FILE *zoneinfo, unsigned node,
                                     uint64_t page_bytes);

#endif
