/* SPDX-License-Identifier: Apache-2.0 */
/* philox_vector.h: philox.h for a vector of counters, bit for bit. Each word lies in the low half
 * of a 64-bit lane. The processor's multiplication takes its factors there and leaves its product
 * there; the high half is ignored. This takes a third of the instructions that compilers make of a
 * loop over philox4x32_10(). */
#ifndef EMBTIER_KERNELS_CPU_INIT_PHILOX_VECTOR_H
#define EMBTIER_KERNELS_CPU_INIT_PHILOX_VECTOR_H

#include "kernels/cpu/init/philox.h"
#include "kernels/cpu/vector.h"

struct philox_vector {
    vector_u64 word[4];
};

KERNEL_INLINE struct philox_vector philox_vector_round(struct philox_vector c, uint32_t key_0,
                                                       uint32_t key_1)
{
    const vector_u64 product_0 = vector_multiply_u32(c.word[0], PHILOX_MULTIPLIER_0);
    const vector_u64 product_1 = vector_multiply_u32(c.word[2], PHILOX_MULTIPLIER_1);

    return (struct philox_vector){ {
        (product_1 >> 32) ^ c.word[1] ^ key_0,
        product_1,
        (product_0 >> 32) ^ c.word[3] ^ key_1,
        product_0,
    } };
}

KERNEL_INLINE struct philox_vector philox_vector(struct philox_vector counters, uint32_t key_0,
                                                 uint32_t key_1)
{
#pragma GCC unroll 10
    for (uint32_t round = 0; round < 10; round++)
        counters = philox_vector_round(counters, key_0 + round * PHILOX_WEYL_0,
                                       key_1 + round * PHILOX_WEYL_1);
    return counters;
}

#endif
