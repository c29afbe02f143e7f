/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h: the resources of this process, as a value that tests can invent. */
#ifndef EMBTIER_CONFIG_MACHINE_H
#define EMBTIER_CONFIG_MACHINE_H

#include <stdint.h>

struct machine {
    uint64_t memory_bytes;     /* installed, or the control group's limit if that is less */
    uint64_t available_bytes;  /* of it now, as machine_available_bytes(); 0: not known */
    uint32_t core_count;       /* that this process may run on, at least 1 */
    uint64_t descriptor_limit; /* that this process may have at most; 0: not known */
};

/* The memory that the kernel, and the control group and each above it, could give now without
 * swapping; UINT64_MAX if neither tells. */
uint64_t machine_available_bytes(void);
/* The memory that the kernel could give of NUMA node @node alone; UINT64_MAX if it does not say. */
uint64_t machine_node_available_bytes(unsigned node);
void machine_read(struct machine *ret_machine);

#endif
