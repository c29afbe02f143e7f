/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h: the resources of this process, as a value that tests can make up. */
#ifndef EMBTIER_CONFIG_MACHINE_H
#define EMBTIER_CONFIG_MACHINE_H

#include <stdint.h>

struct machine {
    uint64_t memory_bytes;     /* installed, or the control group's limit if that is less */
    uint64_t available_bytes;  /* available now, by machine_available_bytes(); 0: unknown */
    uint32_t core_count;       /* that this process may run on, at least 1 */
    uint64_t descriptor_limit; /* the most that this process may have; 0: unknown */
};

/* Returns the memory that the kernel, the control group and each group above it could give now
 * without swapping. UINT64_MAX if neither tells. */
uint64_t machine_available_bytes(void);
/* Returns the memory that the kernel could give from NUMA node @node alone; UINT64_MAX if it does
 * not tell. */
uint64_t machine_node_available_bytes(unsigned node);
/* Return the least memory that the control group and each group above it allow, and the least that
 * they have left. UINT64_MAX: no group limits it. @root is where /proc and /sys lie: "" but for
 * tests. */
uint64_t machine_group_limit_bytes(const char *root);
uint64_t machine_group_room_bytes(const char *root);
void machine_read(struct machine *ret_machine);

#endif
