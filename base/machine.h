/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h: what this process has to run on, as a value that tests can invent. */
#ifndef EMBTIER_BASE_MACHINE_H
#define EMBTIER_BASE_MACHINE_H

#include <stdint.h>

struct machine {
    uint64_t memory_bytes;     /* installed, or what the control group allows if that is less */
    uint32_t core_count;       /* that this process may run on, at least 1 */
    uint64_t descriptor_limit; /* that this process may have at most; 0: not known */
};

void machine_read(struct machine *ret_machine);

#endif
