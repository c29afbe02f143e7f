/* SPDX-License-Identifier: Apache-2.0 */
/* op_checksum.h: an operation for the tests. It returns a checksum of each whole row. */
#ifndef EMBTIER_TESTS_UNIT_ENGINE_OPS_OP_CHECKSUM_H
#define EMBTIER_TESTS_UNIT_ENGINE_OPS_OP_CHECKSUM_H

#include <stdint.h>

/* FNV-1a. */
static inline uint64_t op_checksum_of(const void *row, uint32_t bytes)
{
    const uint8_t *const in = row;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);

    for (uint32_t i = 0; i < bytes; i++)
        sum = (sum ^ in[i]) * UINT64_C(0x100000001b3);
    return sum;
}

#endif
