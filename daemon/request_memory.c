/* SPDX-License-Identifier: Apache-2.0 */
/* Small requests have an eighth of the memory for themselves: however large what others ask for and
 * however slow it is, a session that has none under way there finds room for a small one.
 *
 * The line for the rest matters only when its first has stood in it for PATIENCE_NS: until then
 * whatever fits may pass it, so that memory that is short now and then costs no time. Then what is
 * served must leave room for the first. A first that does not try any more (its client died, or
 * took the request back) must not keep others out: after LOST_NS without a try it loses its place.
 *
 * The lock is held for some tens of nanoseconds, by lanes only, twice per request. */
#include "daemon/request_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/config_memory.h"
#include "daemon/block_pool.h"
#include "daemon/reserved.h"

#define REGION_BYTES_MIN REQUEST_BYTES_LEAST
/* 32-bit links of 8 bytes each. */
#define REGION_BYTES_MAX (UINT64_C(32) << 30)

#define SMALL_BYTES (64 * KIB) /* some thousand ids */
#define SMALL_SHARE 8          /* one of so many parts is for them */

#define PATIENCE_NS (UINT64_C(5) * 1000 * 1000)
#define LOST_NS     (UINT64_C(100) * 1000 * 1000)

struct request_memory {
    uint8_t *base;
    uint64_t bytes;
    const struct clock *clock;
    pthread_mutex_t lock; /* of all below */
    struct block_pool small;
    struct block_pool main;
    struct request_memory_share *first; /* in line */
    struct request_memory_share *last;
};

enum embtier_err request_memory_new(uint64_t bytes, const struct clock *clock,
                                    struct request_memory **ret_memory, struct err_msg *msg)
{
    _cleanup_(request_memory_freep) struct request_memory *memory = calloc(1, sizeof(*memory));
    uint64_t small_bytes;

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
    small_bytes = bytes / SMALL_SHARE;
    block_pool_init(&memory->small, memory->base, small_bytes);
    block_pool_init(&memory->main, memory->base + small_bytes, bytes - small_bytes);
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

/* ---- The line, locked ---- */

static void line_join(struct request_memory *memory, struct request_memory_share *share,
                      uint64_t bytes)
{
    const uint64_t now_ns = clock_now_ns(memory->clock);

    share->tried_ns = now_ns;
    share->wanted_bytes = bytes;
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

/* Whether the first in line has waited long enough, and holds less than @share would with @bytes
 * more. */
static bool is_anothers_turn(struct request_memory *memory,
                             const struct request_memory_share *share, uint64_t bytes)
{
    const struct request_memory_share *first;
    uint64_t now_ns;

    if (!memory->first)
        return false;
    now_ns = clock_now_ns(memory->clock);
    while (memory->first && now_ns - memory->first->tried_ns > LOST_NS)
        line_leave(memory, memory->first);
    first = memory->first;
    return first && first != share && now_ns - first->since_ns > PATIENCE_NS &&
           share->held_bytes + block_pool_cost(bytes) > first->held_bytes;
}

static bool has_its_share(const struct request_memory *memory,
                          const struct request_memory_share *share, uint64_t bytes)
{
    return share->held_bytes > 0 && share->held_bytes + block_pool_cost(bytes) >
                                        memory->main.bytes - memory->main.taken_bytes;
}

static void *take_main(struct request_memory *memory, struct request_memory_share *share,
                       uint64_t bytes)
{
    void *place;

    if (has_its_share(memory, share, bytes)) {
        line_leave(memory, share); /* it waits for itself */
        return NULL;
    }
    place = block_pool_take(&memory->main, bytes, share);
    if (place && is_anothers_turn(memory, share, bytes) &&
        !block_pool_has(&memory->main, memory->first->wanted_bytes)) {
        block_pool_give(&memory->main, place);
        place = NULL;
    }
    if (!place) {
        line_join(memory, share, bytes);
        return NULL;
    }
    line_leave(memory, share);
    share->held_bytes += block_pool_block_bytes(place);
    return place;
}

static void *take_small(struct request_memory *memory, struct request_memory_share *share,
                        uint64_t bytes)
{
    void *place;

    if (bytes > SMALL_BYTES || share->small_bytes > 0)
        return NULL;
    place = block_pool_take(&memory->small, bytes, share);
    if (place) {
        line_leave(memory, share);
        share->small_bytes += block_pool_block_bytes(place);
    }
    return place;
}

void *request_memory_take(struct request_memory *memory, struct request_memory_share *share,
                          uint64_t bytes)
{
    void *place;

    if (bytes > request_memory_largest(memory))
        return NULL;
    pthread_mutex_lock(&memory->lock);
    place = take_small(memory, share, bytes);
    if (!place)
        place = take_main(memory, share, bytes);
    pthread_mutex_unlock(&memory->lock);
    return place;
}

void request_memory_give(struct request_memory *memory, void *place)
{
    struct request_memory_share *const share = block_pool_owner(place);

    pthread_mutex_lock(&memory->lock);
    if (block_pool_holds(&memory->small, place)) {
        share->small_bytes -= block_pool_block_bytes(place);
        block_pool_give(&memory->small, place);
    } else {
        share->held_bytes -= block_pool_block_bytes(place);
        block_pool_give(&memory->main, place);
    }
    pthread_mutex_unlock(&memory->lock);
}

void request_memory_leave(struct request_memory *memory, struct request_memory_share *share)
{
    pthread_mutex_lock(&memory->lock);
    line_leave(memory, share);
    pthread_mutex_unlock(&memory->lock);
}

uint64_t request_memory_largest(const struct request_memory *memory)
{
    return memory->main.bytes - BLOCK_POOL_HEAD_BYTES;
}

uint8_t *request_memory_base(const struct request_memory *memory)
{
    return memory->base;
}
