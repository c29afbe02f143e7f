/* SPDX-License-Identifier: Apache-2.0 */
/* chosen_rows.h: rows that a hostile trace chooses by their hash. */
#ifndef EMBTIER_TESTS_UNIT_PLACEMENT_CHOSEN_ROWS_H
#define EMBTIER_TESTS_UNIT_PLACEMENT_CHOSEN_ROWS_H

#include <stdint.h>

static inline uint64_t unshift(uint64_t hash)
{
    return hash ^ hash >> 33;
}

/* Returns the row that tracked_rows_hash() turns into @hash. */
static inline uint64_t row_of_hash(uint64_t seed, uint64_t hash)
{
    hash = unshift(hash) * UINT64_C(0x9cb4b2f8129337db);
    hash = unshift(hash) * UINT64_C(0x4f74430c22a54005);
    return unshift(hash) ^ seed;
}

#endif
