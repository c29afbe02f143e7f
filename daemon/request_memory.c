/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks with their lengths at both ends, free ones in a list per power of two, merged with their
 * neighbours as they come back: so that once everything is given back the region is in one piece
 * again, whatever happened before. A general allocator does not promise that: jemalloc, which is in
 * memkind, keeps what it once cut for small blocks, until no large request fits any more though
 * none is under way.
 *
 * The lock is held for some tens of nanoseconds, by lanes only, twice per request.
 *
 * The line matters only when its first has stood in it for PATIENCE_NS: until then whatever fits
 * may pass it, so that memory that is short now and then costs no time. A first that does not try
 * any more (its client died, or took the request back) must not keep others out: after LOST_NS
 * without a try it loses its place. */
#include "daemon/request_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "daemon/reserved.h"

#define REGION_BYTES_MIN (16 * MIB)
/* 32-bit links of 8 bytes each. */
#define REGION_BYTES_MAX (UINT64_C(32) << 30)

#define PATIENCE_NS (UINT64_C(5) * 1000 * 1000)
#define LOST_NS     (UINT64_C(100) * 1000 * 1000)

#define BIN_COUNT 40
/* Blocks of the fitting bin that are tried before a larger one is cut. */
#define BIN_LOOKS 8

/* In front of what is handed out. */
struct block {
    uint64_t bytes;        /* head included, a multiple of CACHE_LINE */
    uint64_t before_bytes; /* of the block in front of this one, 0: this is the first */
    struct block *next;    /* free: in its bin */
    struct block *previous;
    struct request_memory_share *share; /* taken: by whom */
    bool is_free;
    uint8_t pad[23];
};
_Static_assert(sizeof(struct block) == CACHE_LINE, "what follows is aligned");

struct request_memory {
    uint8_t *base;
    uint64_t bytes;
    uint64_t taken_bytes;
    pthread_mutex_t lock;
    struct block *bins[BIN_COUNT]; /* bin b: blocks of 2^b to 2^(b + 1) - 1 bytes */
    const struct clock *clock;
    struct request_memory_share *first; /* in line */
    struct request_memory_share *last;
};

static uint32_t bin_of(uint64_t bytes)
{
    return 63u - (uint32_t)__builtin_clzll(bytes);
}

static struct block *block_behind(const struct request_memory *memory, struct block *block)
{
    uint8_t *const behind = (uint8_t *)block + block->bytes;

    return behind == memory->base + memory->bytes ? NULL : (struct block *)behind;
}

static void bin_add(struct request_memory *memory, struct block *block)
{
    struct block **const bin = &memory->bins[bin_of(block->bytes)];

    block->is_free = true;
    block->previous = NULL;
    block->next = *bin;
    if (block->next)
        block->next->previous = block;
    *bin = block;
}

static void bin_remove(struct request_memory *memory, struct block *block)
{
    block->is_free = false;
    if (block->next)
        block->next->previous = block->previous;
    if (block->previous)
        block->previous->next = block->next;
    else
        memory->bins[bin_of(block->bytes)] = block->next;
}

static void set_bytes(struct request_memory *memory, struct block *block, uint64_t bytes)
{
    struct block *behind;

    block->bytes = bytes;
    behind = block_behind(memory, block);
    if (behind)
        behind->before_bytes = bytes;
}

enum embtier_err request_memory_new(uint64_t bytes, const struct clock *clock,
                                    struct request_memory **ret_memory, struct err_msg *msg)
{
    _cleanup_(request_memory_freep) struct request_memory *memory = calloc(1, sizeof(*memory));
    struct block *all;

    if (!memory)
        return err_set(msg, EMBTIER_NO_MEMORY, "request memory: out of memory");
    pthread_mutex_init(&memory->lock, NULL);
    memory->clock = clock;
    bytes = MIN(bytes, REGION_BYTES_MAX);
    bytes = align_up(MAX(bytes, REGION_BYTES_MIN), 2 * MIB);
    memory->base = reserved_new(bytes);
    if (!memory->base)
        return err_set_errno(msg, errno, "request memory: cannot reserve %" PRIu64 " bytes", bytes);
    memory->bytes = bytes;
    all = (struct block *)memory->base;
    *all = (struct block){ .bytes = bytes };
    bin_add(memory, all);
    *ret_memory = TAKE(memory);
    return EMBTIER_OK;
}

void request_memory_free(struct request_memory *memory)
{
    if (!memory)
        return;
    reserved_free(memory->base, memory->bytes);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

/* Locked. A free block of at least @bytes: a near fit if one is found at once, else any of a larger
 * bin, and if there is none the whole of the fitting bin is searched. */
static struct block *find_block(const struct request_memory *memory, uint64_t bytes)
{
    struct block *const first = memory->bins[bin_of(bytes)];
    struct block *block = first;

    for (uint32_t looks = 0; block && looks < BIN_LOOKS; looks++, block = block->next)
        if (block->bytes >= bytes)
            return block;
    for (uint32_t bin = bin_of(bytes) + 1; bin < BIN_COUNT; bin++)
        if (memory->bins[bin])
            return memory->bins[bin];
    for (; block; block = block->next)
        if (block->bytes >= bytes)
            return block;
    return NULL;
}

/* Locked. Takes @block out of its bin and gives back what it has over @bytes. */
static void cut_block(struct request_memory *memory, struct block *block, uint64_t bytes)
{
    const uint64_t rest_bytes = block->bytes - bytes;
    struct block *rest;

    bin_remove(memory, block);
    if (rest_bytes < 2 * sizeof(struct block))
        return;
    set_bytes(memory, block, bytes);
    rest = block_behind(memory, block);
    rest->before_bytes = bytes;
    set_bytes(memory, rest, rest_bytes);
    bin_add(memory, rest);
}

/* ---- The line, locked ---- */

static void line_join(struct request_memory *memory, struct request_memory_share *share,
                      uint64_t now_ns)
{
    share->tried_ns = now_ns;
    if (share->in_line)
        return;
    share->in_line = true;
    share->since_ns = now_ns;
    share->next = NULL;
    share->previous = memory->last;
    if (memory->last)
        memory->last->next = share;
    else
        memory->first = share;
    memory->last = share;
}

static void line_leave(struct request_memory *memory, struct request_memory_share *share)
{
    if (!share->in_line)
        return;
    share->in_line = false;
    if (share->next)
        share->next->previous = share->previous;
    else
        memory->last = share->previous;
    if (share->previous)
        share->previous->next = share->next;
    else
        memory->first = share->next;
}

/* Whether the first in line has waited long enough, and would hold less than @share with @bytes
 * more. */
static bool is_anothers_turn(struct request_memory *memory,
                             const struct request_memory_share *share, uint64_t bytes,
                             uint64_t now_ns)
{
    const struct request_memory_share *first;

    while (memory->first && now_ns - memory->first->tried_ns > LOST_NS)
        line_leave(memory, memory->first);
    first = memory->first;
    return first && first != share && now_ns - first->since_ns > PATIENCE_NS &&
           share->held_bytes + bytes > first->held_bytes;
}

static bool has_its_share(const struct request_memory *memory,
                          const struct request_memory_share *share, uint64_t bytes)
{
    return share->held_bytes > 0 && share->held_bytes + bytes > memory->bytes - memory->taken_bytes;
}

void *request_memory_take(struct request_memory *memory, struct request_memory_share *share,
                          uint64_t bytes)
{
    const uint64_t needed = align_up(bytes, CACHE_LINE) + sizeof(struct block);
    struct block *block = NULL;

    if (bytes > request_memory_largest(memory))
        return NULL;
    pthread_mutex_lock(&memory->lock);
    if (has_its_share(memory, share, needed)) {
        line_leave(memory, share); /* it waits for itself */
    } else {
        if (!memory->first || !is_anothers_turn(memory, share, needed, clock_now_ns(memory->clock)))
            block = find_block(memory, needed);
        if (!block)
            line_join(memory, share, clock_now_ns(memory->clock));
    }
    if (block) {
        cut_block(memory, block, needed);
        line_leave(memory, share);
        memory->taken_bytes += block->bytes;
        share->held_bytes += block->bytes;
        block->share = share;
    }
    pthread_mutex_unlock(&memory->lock);
    return block ? block + 1 : NULL;
}

void request_memory_leave(struct request_memory *memory, struct request_memory_share *share)
{
    pthread_mutex_lock(&memory->lock);
    line_leave(memory, share);
    pthread_mutex_unlock(&memory->lock);
}

void request_memory_give(struct request_memory *memory, void *place)
{
    struct block *block = (struct block *)place - 1;
    struct block *behind;

    pthread_mutex_lock(&memory->lock);
    memory->taken_bytes -= block->bytes;
    block->share->held_bytes -= block->bytes;
    behind = block_behind(memory, block);
    if (behind && behind->is_free) {
        bin_remove(memory, behind);
        set_bytes(memory, block, block->bytes + behind->bytes);
    }
    if (block->before_bytes > 0) {
        struct block *const before = (struct block *)((uint8_t *)block - block->before_bytes);

        if (before->is_free) {
            bin_remove(memory, before);
            set_bytes(memory, before, before->bytes + block->bytes);
            block = before;
        }
    }
    bin_add(memory, block);
    pthread_mutex_unlock(&memory->lock);
}

uint64_t request_memory_largest(const struct request_memory *memory)
{
    return memory->bytes - sizeof(struct block);
}

uint8_t *request_memory_base(const struct request_memory *memory)
{
    return memory->base;
}
