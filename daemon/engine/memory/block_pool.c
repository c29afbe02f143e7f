/* SPDX-License-Identifier: Apache-2.0 */
/* Each block has its own length and that of the block in front of it. Free blocks are in bins by
 * their length, four of them for each power of two, and merge with their neighbours as they come
 * back. A general allocator does not promise that the region is in one piece again. jemalloc, which
 * memkind uses, keeps the pieces that it once cut for small blocks. In the end no large block fits,
 * although none is taken. */
#include "daemon/engine/memory/block_pool.h"

#include <assert.h>
#include <stddef.h>

#include "base/macros.h"

/* Blocks that are tried in the bin of a length, whose blocks may be shorter than it. */
#define BIN_LOOKS 8

/* The head in front of each block that is handed out. */
struct pool_block {
    uint64_t bytes;          /* head included, a multiple of CACHE_LINE */
    uint64_t before_bytes;   /* of the block in front of this one; 0: this is the first */
    struct pool_block *next; /* if free: in its bin */
    struct pool_block *previous;
    void *owner; /* if taken */
    bool is_free;
    uint8_t pad[23];
};
_Static_assert(sizeof(struct pool_block) == CACHE_LINE, "what follows is aligned");
_Static_assert(sizeof(struct pool_block) == BLOCK_POOL_HEAD_BYTES, "as the header says");

static uint32_t bin_of(uint64_t bytes)
{
    const uint32_t power = 63u - (uint32_t)__builtin_clzll(bytes);

    return power * BLOCK_POOL_PARTS + (uint32_t)(bytes >> (power - 2) & (BLOCK_POOL_PARTS - 1));
}

static struct pool_block *block_behind(const struct block_pool *pool, struct pool_block *block)
{
    uint8_t *const behind = (uint8_t *)block + block->bytes;

    return behind == pool->base + pool->bytes ? NULL : (struct pool_block *)behind;
}

static void bin_add(struct block_pool *pool, struct pool_block *block)
{
    const uint32_t index = bin_of(block->bytes);
    struct pool_block **const bin = &pool->bins[index];

    assert(block->bytes >= sizeof(*block));
    pool->filled[index / 64] |= UINT64_C(1) << index % 64;
    block->is_free = true;
    block->previous = NULL;
    block->next = *bin;
    if (block->next)
        block->next->previous = block;
    *bin = block;
}

static void bin_remove(struct block_pool *pool, struct pool_block *block)
{
    const uint32_t index = bin_of(block->bytes);

    assert(block->is_free);
    block->is_free = false;
    if (block->next)
        block->next->previous = block->previous;
    if (block->previous)
        block->previous->next = block->next;
    else
        pool->bins[index] = block->next;
    if (!pool->bins[index])
        pool->filled[index / 64] &= ~(UINT64_C(1) << index % 64);
}

static void set_bytes(struct block_pool *pool, struct pool_block *block, uint64_t bytes)
{
    struct pool_block *behind;

    assert(bytes >= sizeof(*block) && bytes <= pool->bytes);
    block->bytes = bytes;
    behind = block_behind(pool, block);
    if (behind)
        behind->before_bytes = bytes;
}

/* Returns a block of the first bin from @bin on that has one, or NULL. */
static struct pool_block *block_from(const struct block_pool *pool, uint32_t bin)
{
    uint32_t word = bin / 64;
    uint64_t bits;

    assert(bin < BLOCK_POOL_BINS);
    bits = pool->filled[word] & UINT64_MAX << bin % 64;
    while (!bits && ++word < BLOCK_POOL_BIN_WORDS)
        bits = pool->filled[word];
    return bits ? pool->bins[word * 64 + (uint32_t)__builtin_ctzll(bits)] : NULL;
}

/* Returns a free block of at least @bytes, or NULL. Prefers a near fit among the first few blocks,
 * then any block of a larger bin. The rest of the bin of @bytes may have thousands of blocks, and
 * is not searched. */
static struct pool_block *find_block(const struct block_pool *pool, uint64_t bytes)
{
    const uint32_t bin = bin_of(bytes);
    struct pool_block *block = pool->bins[bin];

    for (uint32_t looks = 0; block && looks < BIN_LOOKS; looks++, block = block->next)
        if (block->bytes >= bytes)
            return block;
    return block_from(pool, bin + 1);
}

/* Takes @block out of its bin. Makes a free block of the rest beyond @bytes. */
static void cut_block(struct block_pool *pool, struct pool_block *block, uint64_t bytes)
{
    const uint64_t rest_bytes = block->bytes - bytes;
    struct pool_block *rest;

    bin_remove(pool, block);
    if (rest_bytes < 2 * sizeof(struct pool_block))
        return;
    set_bytes(pool, block, bytes);
    rest = block_behind(pool, block);
    rest->before_bytes = bytes;
    set_bytes(pool, rest, rest_bytes);
    bin_add(pool, rest);
}

void block_pool_init(struct block_pool *pool, uint8_t *base, uint64_t bytes)
{
    struct pool_block *const all = (struct pool_block *)base;

    *pool = (struct block_pool){ .base = base, .bytes = bytes };
    *all = (struct pool_block){ .bytes = bytes };
    bin_add(pool, all);
}

static struct pool_block *block_of(const void *place)
{
    return (struct pool_block *)place - 1;
}

uint64_t block_pool_cost(uint64_t bytes)
{
    return align_up(bytes, CACHE_LINE) + sizeof(struct pool_block);
}

void *block_pool_take(struct block_pool *pool, uint64_t bytes, void *owner)
{
    struct pool_block *const block = find_block(pool, block_pool_cost(bytes));

    if (!block)
        return NULL;
    cut_block(pool, block, block_pool_cost(bytes));
    block->owner = owner;
    pool->taken_bytes += block->bytes;
    assert(!block->is_free && pool->taken_bytes <= pool->bytes);
    return block + 1;
}

void block_pool_give(struct block_pool *pool, void *place)
{
    struct pool_block *block = block_of(place);
    struct pool_block *const behind = block_behind(pool, block);

    assert(block_pool_holds(pool, place) && !block->is_free);
    assert(pool->taken_bytes >= block->bytes);
    assert(!behind || behind->before_bytes == block->bytes);
    pool->taken_bytes -= block->bytes;
    if (behind && behind->is_free) {
        bin_remove(pool, behind);
        set_bytes(pool, block, block->bytes + behind->bytes);
    }
    if (block->before_bytes > 0) {
        struct pool_block *const before =
            (struct pool_block *)((uint8_t *)block - block->before_bytes);

        assert(before->bytes == block->before_bytes);
        if (before->is_free) {
            bin_remove(pool, before);
            set_bytes(pool, before, before->bytes + block->bytes);
            block = before;
        }
    }
    bin_add(pool, block);
}

bool block_pool_has(const struct block_pool *pool, uint64_t bytes)
{
    return find_block(pool, block_pool_cost(bytes)) != NULL;
}

bool block_pool_holds(const struct block_pool *pool, const void *place)
{
    return (const uint8_t *)place > pool->base && (const uint8_t *)place < pool->base + pool->bytes;
}

void *block_pool_owner(const void *place)
{
    return block_of(place)->owner;
}

uint64_t block_pool_block_bytes(const void *place)
{
    return block_of(place)->bytes;
}
