/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h: the counter-based generator Philox4x32-10 (Salmon et al., "Parallel random numbers: as
 * easy as 1, 2, 3", SC 2011, section 4.3). It makes four random words as a pure function of a
 * 128-bit counter and a 64-bit key. It has no state, so a block is the same on any thread at any
 * time.
 *
 * Straight-line integer code, so that a loop over counters vectorises. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_INIT_PHILOX_H
#define EMBTIER_KERNELS_CPU_INIT_PHILOX_H

#include <stdint.h>

#include "kernels/cpu/inline.h"

#define PHILOX_MULTIPLIER_0 UINT32_C(0xD2511F53)
#define PHILOX_MULTIPLIER_1 UINT32_C(0xCD9E8D57)
#define PHILOX_WEYL_0       UINT32_C(0x9E3779B9)
#define PHILOX_WEYL_1       UINT32_C(0xBB67AE85)

struct philox_block {
    uint32_t word[4];
};

KERNEL_INLINE struct philox_block philox_round(struct philox_block c, uint32_t key_0,
                                               uint32_t key_1, uint32_t round)
{
    const uint64_t product_0 = (uint64_t)PHILOX_MULTIPLIER_0 * c.word[0];
    const uint64_t product_1 = (uint64_t)PHILOX_MULTIPLIER_1 * c.word[2];

    return (struct philox_block){ {
        (uint32_t)(product_1 >> 32) ^ c.word[1] ^ (key_0 + round * PHILOX_WEYL_0),
        (uint32_t)product_1,
        (uint32_t)(product_0 >> 32) ^ c.word[3] ^ (key_1 + round * PHILOX_WEYL_1),
        (uint32_t)product_0,
    } };
}

/* The rounds are written out, because compilers vectorise the caller's loop only if it contains no
 * other loop. */
KERNEL_INLINE struct philox_block philox4x32_10(struct philox_block counter, uint32_t key_0,
                                                uint32_t key_1)
{
    struct philox_block c = counter;

    c = philox_round(c, key_0, key_1, 0);
    c = philox_round(c, key_0, key_1, 1);
    c = philox_round(c, key_0, key_1, 2);
    c = philox_round(c, key_0, key_1, 3);
    c = philox_round(c, key_0, key_1, 4);
    c = philox_round(c, key_0, key_1, 5);
    c = philox_round(c, key_0, key_1, 6);
    c = philox_round(c, key_0, key_1, 7);
    c = philox_round(c, key_0, key_1, 8);
    c = philox_round(c, key_0, key_1, 9);
    return c;
}

#endif
