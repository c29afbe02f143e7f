/* SPDX-License-Identifier: Apache-2.0 */
/* block_pool.h: cuts blocks of any length from one region. When all blocks are back, the region is
 * in one piece again, whatever happened before. Thread: any that holds the owner's lock. */
#ifndef EMBTIER_DAEMON_ENGINE_MEMORY_BLOCK_POOL_H
#define EMBTIER_DAEMON_ENGINE_MEMORY_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#define BLOCK_POOL_BINS       40
#define BLOCK_POOL_HEAD_BYTES 64 /* in front of each block */

struct pool_block;

struct block_pool {
    uint8_t *base;
    uint64_t bytes;
    uint64_t taken_bytes;                     /* heads included */
    struct pool_block *bins[BLOCK_POOL_BINS]; /* bin b: free blocks of 2^b to 2^(b + 1) - 1 bytes */
};

/* @base is aligned to a cache line, and @bytes is a multiple of one. The region stays the
 * caller's. */
void block_pool_init(struct block_pool *pool, uint8_t *base, uint64_t bytes);

/* Returns a place aligned to a cache line, or NULL if no free piece is that long now. @owner is for
 * block_pool_owner(). */
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
