/* SPDX-License-Identifier: Apache-2.0 */
/* block_pool.h: cuts blocks of any length from one region. When all blocks are back, the region is
 * in one piece again, whatever happened before. Each function looks at a few blocks at most,
 * however many there are, since threads wait for the owner's lock. Thread: any that holds that
 * lock. */
#ifndef EMBTIER_DAEMON_ENGINE_MEMORY_BLOCK_POOL_H
#define EMBTIER_DAEMON_ENGINE_MEMORY_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#define BLOCK_POOL_POWERS     40
#define BLOCK_POOL_PARTS      4 /* bins of each power of two */
#define BLOCK_POOL_BINS       (BLOCK_POOL_POWERS * BLOCK_POOL_PARTS)
#define BLOCK_POOL_BIN_WORDS  ((BLOCK_POOL_BINS + 63) / 64)
#define BLOCK_POOL_HEAD_BYTES 64 /* in front of each block */

struct pool_block;

struct block_pool {
    uint8_t *base;
    uint64_t bytes;
    uint64_t taken_bytes; /* heads included */
    /* Bin 4p + i: free blocks from (4 + i) / 4 of 2^p bytes on, up to the next bin's. */
    struct pool_block *bins[BLOCK_POOL_BINS];
    uint64_t filled[BLOCK_POOL_BIN_WORDS]; /* bit b: bin b has a block */
};

/* @base is aligned to a cache line, and @bytes is a multiple of one. The region stays the
 * caller's. */
void block_pool_init(struct block_pool *pool, uint8_t *base, uint64_t bytes);

/* Returns a place aligned to a cache line, or NULL if no free piece is found now. A free piece that
 * is a quarter longer than block_pool_cost() is always found; a shorter one may be passed over.
 * @owner is for block_pool_owner(). */
void *block_pool_take(struct block_pool *pool, uint64_t bytes, void *owner);
void block_pool_give(struct block_pool *pool, void *place);
bool block_pool_has(const struct block_pool *pool, uint64_t bytes);
bool block_pool_holds(const struct block_pool *pool, const void *place);

void *block_pool_owner(const void *place);
/* Returns how much of the pool a taken block uses, its head included. */
uint64_t block_pool_block_bytes(const void *place);
/* Returns how much of the pool a block of @bytes would use. */
uint64_t block_pool_cost(uint64_t bytes);

#endif
