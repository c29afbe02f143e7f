/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ticket_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/block_pool.h"
#include "daemon/reserved.h"

struct ticket_memory {
    uint8_t *base;
    uint64_t bytes;
    pthread_mutex_t lock; /* for some tens of nanoseconds, twice per ticket */
    struct block_pool pool;
};

enum embtier_err ticket_memory_new(uint64_t bytes, struct ticket_memory **ret_memory,
                                   struct err_msg *msg)
{
    _cleanup_(ticket_memory_freep) struct ticket_memory *memory = calloc(1, sizeof(*memory));

    if (!memory)
        return err_set(msg, EMBTIER_NO_MEMORY, "memory of tickets: out of memory");
    pthread_mutex_init(&memory->lock, NULL);
    bytes = align_up(bytes, CACHE_LINE);
    memory->base = reserved_new(bytes);
    if (!memory->base)
        return err_set_errno(msg, errno, "memory of tickets: cannot reserve %" PRIu64 " bytes",
                             bytes);
    memory->bytes = bytes;
    block_pool_init(&memory->pool, memory->base, bytes);
    *ret_memory = TAKE(memory);
    return EMBTIER_OK;
}

void ticket_memory_free(struct ticket_memory *memory)
{
    if (!memory)
        return;
    reserved_free(memory->base, memory->bytes);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

static uint64_t part_bytes(const struct ticket_memory *memory)
{
    return memory->bytes / 4 * 3;
}

void *ticket_memory_take(struct ticket_memory *memory, uint64_t *held, uint64_t bytes)
{
    void *place = NULL;

    pthread_mutex_lock(&memory->lock);
    if (*held + block_pool_cost(bytes) <= part_bytes(memory))
        place = block_pool_take(&memory->pool, bytes, held);
    if (place)
        *held += block_pool_block_bytes(place);
    pthread_mutex_unlock(&memory->lock);
    return place;
}

void ticket_memory_give(struct ticket_memory *memory, void *place)
{
    pthread_mutex_lock(&memory->lock);
    *(uint64_t *)block_pool_owner(place) -= block_pool_block_bytes(place);
    block_pool_give(&memory->pool, place);
    pthread_mutex_unlock(&memory->lock);
}

uint64_t ticket_memory_largest(const struct ticket_memory *memory)
{
    return (part_bytes(memory) - BLOCK_POOL_HEAD_BYTES) / CACHE_LINE * CACHE_LINE;
}
