/* SPDX-License-Identifier: Apache-2.0 */
/* block_pool.h: blocks of any length cut from one region, which is in one piece again when all of
 * them are back, whatever happened before. Thread: whoever holds the owner's lock. */
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
    uint64_t taken_bytes;                     /* with heads */
    struct pool_block *bins[BLOCK_POOL_BINS]; /* bin b: free ones of 2^b to 2^(b + 1) - 1 bytes */
};

/* @base is of a cache line, @bytes whole ones; both stay the caller's. */
void block_pool_init(struct block_pool *pool, uint8_t *base, uint64_t bytes);

/* NULL: no piece is that long now. Aligned to a cache line. @owner is for block_pool_owner(). */
void *block_pool_take(struct block_pool *pool, uint64_t bytes, void *owner);
void block_pool_give(struct block_pool *pool, void *place);
bool block_pool_has(const struct block_pool *pool, uint64_t bytes);
bool block_pool_holds(const struct block_pool *pool, const void *place);

void *block_pool_owner(const void *place);
/* What it takes of the pool, now that it is taken. */
uint64_t block_pool_block_bytes(const void *place);
/* What @bytes would take. */
uint64_t block_pool_cost(uint64_t bytes);

#endif
