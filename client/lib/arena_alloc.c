/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/arena_alloc.h"

#include <assert.h>
#include <stdlib.h>

#include "proto/ops.h"

/* All blocks, free and taken, in order of address, without gaps. So freeing only flips a flag and
 * merges, and needs no memory. */
struct arena_alloc {
    struct arena_block *first;
};

enum embtier_err arena_alloc_new(uint64_t begin, uint64_t end, struct arena_alloc **ret_alloc)
{
    struct arena_alloc *alloc = calloc(1, sizeof(*alloc));
    struct arena_block *all = calloc(1, sizeof(*all));

    if (!alloc || !all) {
        free(alloc);
        free(all);
        return EMBTIER_NO_MEMORY;
    }
    all->offset = align_up(begin, OP_ALIGN);
    end = end / OP_ALIGN * OP_ALIGN;
    all->bytes = end > all->offset ? end - all->offset : 0;
    all->is_free = 1;
    alloc->first = all;
    *ret_alloc = alloc;
    return EMBTIER_OK;
}

void arena_alloc_free(struct arena_alloc *alloc)
{
    if (!alloc)
        return;
    while (alloc->first) {
        struct arena_block *block = alloc->first;

        alloc->first = block->next;
        free(block);
    }
    free(alloc);
}

/* Cuts @block to @bytes and makes a free block of the rest. */
static enum embtier_err split(struct arena_block *block, uint64_t bytes)
{
    struct arena_block *rest = calloc(1, sizeof(*rest));

    if (!rest)
        return EMBTIER_NO_MEMORY;
    rest->offset = block->offset + bytes;
    rest->bytes = block->bytes - bytes;
    rest->is_free = 1;
    rest->previous = block;
    rest->next = block->next;
    if (rest->next)
        rest->next->previous = rest;
    block->next = rest;
    block->bytes = bytes;
    return EMBTIER_OK;
}

enum embtier_err arena_alloc_take(struct arena_alloc *alloc, uint64_t bytes,
                                  struct arena_block **ret_block)
{
    struct arena_block *block = alloc->first;

    if (bytes > UINT64_MAX - OP_ALIGN)
        return EMBTIER_ARENA_FULL;
    bytes = bytes == 0 ? OP_ALIGN : align_up(bytes, OP_ALIGN);
    while (block && !(block->is_free && block->bytes >= bytes))
        block = block->next;
    if (!block)
        return EMBTIER_ARENA_FULL;
    if (block->bytes > bytes)
        TRY(split(block, bytes));
    block->is_free = 0;
    *ret_block = block;
    return EMBTIER_OK;
}

static void merge_with_next(struct arena_block *block)
{
    struct arena_block *next = block->next;

    block->bytes += next->bytes;
    block->next = next->next;
    if (block->next)
        block->next->previous = block;
    free(next);
}

void arena_alloc_give(struct arena_alloc *alloc, struct arena_block *block)
{
    (void)alloc;
    if (!block)
        return;
    assert(!block->is_free);
    block->is_free = 1;
    if (block->next && block->next->is_free)
        merge_with_next(block);
    if (block->previous && block->previous->is_free)
        merge_with_next(block->previous);
}

uint64_t arena_alloc_free_bytes(const struct arena_alloc *alloc)
{
    uint64_t bytes = 0;

    for (const struct arena_block *block = alloc->first; block; block = block->next)
        if (block->is_free)
            bytes += block->bytes;
    return bytes;
}

uint64_t arena_alloc_largest_bytes(const struct arena_alloc *alloc)
{
    uint64_t bytes = 0;

    for (const struct arena_block *block = alloc->first; block; block = block->next)
        if (block->is_free)
            bytes = MAX(bytes, block->bytes);
    return bytes;
}
