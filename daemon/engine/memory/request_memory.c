/* SPDX-License-Identifier: Apache-2.0 */
/* An eighth of the memory is for small requests. A session that has no request there finds room for
 * a small one, however large and slow others' requests are.
 *
 * Each part has its own line. A small request queues for the small part, and takes memory of the
 * other part if no session queues there. Memory that is given back is handed on
 * to the first in line, as long as there is room for that one. So a request costs its lane nothing
 * while it waits. A session that has been told of its memory has it, even if others ask meanwhile.
 *
 * Only lanes take the lock, twice per request, for some tens of nanoseconds. */
#include "daemon/engine/memory/request_memory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "config/config.h"
#include "daemon/engine/memory/block_pool.h"
#include "daemon/engine/memory/reserved.h"

#define REGION_BYTES_MIN CONFIG_REQUEST_BYTES_LEAST
/* Links are 32 bits, and count units of 8 bytes. */
#define REGION_BYTES_MAX (UINT64_C(32) << 30)

/* One part in SMALL_SHARE is for small requests. A small request is at most one part in SMALL_PART:
 * at 64 MiB, 256 KiB, some thousand ids. */
#define SMALL_SHARE 8
#define SMALL_PART  256

struct memory_part {
    struct block_pool blocks;
    struct turns line;
};

struct request_memory {
    uint8_t *base;
    uint64_t bytes;
    uint64_t small_bytes;
    pthread_mutex_t lock; /* guards all below */
    struct memory_part parts[REQUEST_MEMORY_PARTS];
};

enum embtier_err request_memory_new(uint64_t bytes, struct request_memory **ret_memory,
                                    struct err_msg *msg)
{
    _cleanup_(request_memory_freep) struct request_memory *memory = calloc(1, sizeof(*memory));
    uint64_t small_part;

    if (!memory)
        return err_set(msg, EMBTIER_NO_MEMORY, "request memory: out of memory");
    pthread_mutex_init(&memory->lock, NULL);
    bytes = MIN(bytes, REGION_BYTES_MAX);
    bytes = align_up(MAX(bytes, REGION_BYTES_MIN), 2 * MIB);
    memory->base = reserved_new(bytes);
    if (!memory->base)
        return err_set_errno(msg, errno, "request memory: cannot reserve %" PRIu64 " bytes", bytes);
    memory->bytes = bytes;
    memory->small_bytes = bytes / SMALL_PART;
    small_part = bytes / SMALL_SHARE;
    block_pool_init(&memory->parts[REQUEST_MEMORY_SMALL].blocks, memory->base, small_part);
    block_pool_init(&memory->parts[REQUEST_MEMORY_MAIN].blocks, memory->base + small_part,
                    bytes - small_part);
    *ret_memory = TAKE(memory);
    return EMBTIER_OK;
}

void request_memory_free(struct request_memory *memory)
{
    if (!memory)
        return;
    for (uint32_t part = 0; part < REQUEST_MEMORY_PARTS; part++) {
        assert(memory->parts[part].blocks.taken_bytes == 0);
        assert(turns_is_empty(&memory->parts[part].line));
    }
    reserved_free(memory->base, memory->bytes);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

/* ---- Locked ---- */

static bool may_be_small(const struct request_memory *memory,
                         const struct request_memory_share *share, uint64_t bytes,
                         enum request_memory_use use)
{
    return use == REQUEST_MEMORY_ENDS && bytes <= memory->small_bytes &&
           share->held_bytes[REQUEST_MEMORY_SMALL] == 0;
}

static bool has_its_share(const struct request_memory *memory,
                          const struct request_memory_share *share, uint64_t bytes,
                          enum request_memory_use use)
{
    const struct block_pool *const main = &memory->parts[REQUEST_MEMORY_MAIN].blocks;
    const uint64_t held = share->held_bytes[REQUEST_MEMORY_MAIN];

    return use != REQUEST_MEMORY_LEADS && held > 0 &&
           held + block_pool_cost(bytes) > main->bytes - main->taken_bytes;
}

/* Takes memory of a part, even if other sessions queue for it. NULL: no room. */
static void *take_of(struct request_memory *memory, struct request_memory_share *share,
                     uint32_t part, uint64_t bytes)
{
    struct turns *const line = &memory->parts[part].line;
    void *const place = block_pool_take(&memory->parts[part].blocks, bytes, share);

    if (!place)
        return NULL;
    turns_catch_up(line, &share->flows[part]);
    turns_charge(line, &share->flows[part], bytes);
    share->held_bytes[part] += block_pool_block_bytes(place);
    assert(share->held_bytes[part] <= memory->bytes);
    return place;
}

static void leave_line(struct request_memory *memory, struct request_memory_share *share)
{
    for (uint32_t part = 0; part < REQUEST_MEMORY_PARTS; part++)
        turns_remove(&memory->parts[part].line, &share->flows[part]);
}

static void tell(struct request_memory_share *share)
{
    if (!share->wake || share->is_told)
        return;
    share->is_told = true;
    share->wake(share);
}

/* Hands free memory of part @from to those in line for @part, in their order, as long as there is
 * room for the first. @asks need not be told, since it is asking. */
static void serve_line(struct request_memory *memory, uint32_t part, uint32_t from,
                       const struct request_memory_share *asks)
{
    struct turns *const line = &memory->parts[part].line;
    struct turn_flow *flow;

    while ((flow = turns_first(line))) {
        struct request_memory_share *const share =
            CONTAINER_OF(flow, struct request_memory_share, flows[part]);
        const bool has_share = from == REQUEST_MEMORY_MAIN &&
                               has_its_share(memory, share, share->wanted_bytes, share->wanted_use);

        if (has_share && part != from)
            return; /* it gets memory of that part only */
        if (!has_share && !block_pool_has(&memory->parts[from].blocks, share->wanted_bytes))
            return;
        assert(!share->granted);
        (void)turns_next(line);
        if (!has_share) /* else it waits for its own requests to end */
            share->granted = take_of(memory, share, from, share->wanted_bytes);
        if (share != asks)
            tell(share);
    }
}

static void serve(struct request_memory *memory, const struct request_memory_share *asks)
{
    serve_line(memory, REQUEST_MEMORY_SMALL, REQUEST_MEMORY_SMALL, asks);
    serve_line(memory, REQUEST_MEMORY_MAIN, REQUEST_MEMORY_MAIN, asks);
    if (turns_is_empty(&memory->parts[REQUEST_MEMORY_MAIN].line))
        serve_line(memory, REQUEST_MEMORY_SMALL, REQUEST_MEMORY_MAIN, asks);
}

static void give(struct request_memory *memory, void *place)
{
    struct request_memory_share *const share = block_pool_owner(place);
    const uint32_t part = block_pool_holds(&memory->parts[REQUEST_MEMORY_SMALL].blocks, place)
                              ? REQUEST_MEMORY_SMALL
                              : REQUEST_MEMORY_MAIN;

    assert(share->held_bytes[part] >= block_pool_block_bytes(place));
    share->held_bytes[part] -= block_pool_block_bytes(place);
    block_pool_give(&memory->parts[part].blocks, place);
}

static void leave(struct request_memory *memory, struct request_memory_share *share)
{
    leave_line(memory, share);
    share->wanted_bytes = 0;
    if (share->granted)
        give(memory, TAKE(share->granted));
}

/* Takes memory that no session queues for. */
static void *take_spare(struct request_memory *memory, struct request_memory_share *share,
                        uint32_t part, uint64_t bytes, enum request_memory_use use)
{
    if (turns_first(&memory->parts[part].line) ||
        (part == REQUEST_MEMORY_MAIN && has_its_share(memory, share, bytes, use)))
        return NULL;
    return take_of(memory, share, part, bytes);
}

static bool is_in_line(const struct request_memory_share *share)
{
    return turns_has(&share->flows[REQUEST_MEMORY_SMALL]) ||
           turns_has(&share->flows[REQUEST_MEMORY_MAIN]);
}

static bool reserve(struct request_memory *memory, struct request_memory_share *share,
                    uint64_t bytes, enum request_memory_use use)
{
    const bool is_small = may_be_small(memory, share, bytes, use);
    const uint32_t part = is_small ? REQUEST_MEMORY_SMALL : REQUEST_MEMORY_MAIN;

    if (share->wanted_bytes != 0 && (share->wanted_bytes != bytes || share->wanted_use != use)) {
        leave(memory, share); /* it asks for something else now */
        serve(memory, NULL);
    }
    if (share->granted)
        return true;
    if (!turns_has(&share->flows[part])) {
        /* It may have been first, as its small block has since ended. Then the next is served. */
        const bool was_in_line = is_in_line(share);

        leave_line(memory, share);
        share->wanted_bytes = bytes;
        share->wanted_use = use;
        share->granted = take_spare(memory, share, part, bytes, use);
        if (!share->granted && is_small)
            share->granted = take_spare(memory, share, REQUEST_MEMORY_MAIN, bytes, use);
        if (share->granted && !was_in_line)
            return true;
        if (!share->granted)
            turns_add(&memory->parts[part].line, &share->flows[part], bytes);
    }
    serve(memory, share);
    return share->granted;
}

/* ---- Any thread ---- */

bool request_memory_reserve(struct request_memory *memory, struct request_memory_share *share,
                            uint64_t bytes, enum request_memory_use use)
{
    bool reserved = false;

    pthread_mutex_lock(&memory->lock);
    if (bytes <= request_memory_largest(memory))
        reserved = reserve(memory, share, bytes, use);
    pthread_mutex_unlock(&memory->lock);
    return reserved;
}

void *request_memory_take(struct request_memory *memory, struct request_memory_share *share,
                          uint64_t bytes, enum request_memory_use use)
{
    void *place = NULL;

    pthread_mutex_lock(&memory->lock);
    if (bytes <= request_memory_largest(memory) && reserve(memory, share, bytes, use)) {
        place = TAKE(share->granted);
        share->wanted_bytes = 0;
    }
    pthread_mutex_unlock(&memory->lock);
    return place;
}

void *request_memory_take_spare(struct request_memory *memory, struct request_memory_share *share,
                                uint64_t bytes)
{
    void *place;

    pthread_mutex_lock(&memory->lock);
    place = take_spare(memory, share, REQUEST_MEMORY_MAIN, bytes, REQUEST_MEMORY_ENDS);
    pthread_mutex_unlock(&memory->lock);
    return place;
}

void request_memory_give(struct request_memory *memory, void *place)
{
    pthread_mutex_lock(&memory->lock);
    give(memory, place);
    serve(memory, NULL);
    pthread_mutex_unlock(&memory->lock);
}

void request_memory_heard(struct request_memory *memory, struct request_memory_share *share)
{
    pthread_mutex_lock(&memory->lock);
    assert(share->is_told);
    share->is_told = false;
    pthread_mutex_unlock(&memory->lock);
}

bool request_memory_waits(struct request_memory *memory, const struct request_memory_share *share)
{
    bool waits;

    pthread_mutex_lock(&memory->lock);
    waits = is_in_line(share);
    pthread_mutex_unlock(&memory->lock);
    return waits;
}

void request_memory_leave(struct request_memory *memory, struct request_memory_share *share)
{
    pthread_mutex_lock(&memory->lock);
    leave(memory, share);
    serve(memory, NULL);
    pthread_mutex_unlock(&memory->lock);
}

uint64_t request_memory_largest(const struct request_memory *memory)
{
    return memory->parts[REQUEST_MEMORY_MAIN].blocks.bytes - BLOCK_POOL_HEAD_BYTES;
}

uint64_t request_memory_small(const struct request_memory *memory)
{
    return memory->small_bytes;
}

uint8_t *request_memory_base(const struct request_memory *memory)
{
    return memory->base;
}
