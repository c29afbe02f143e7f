/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/memory/ticket_memory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/memory/block_pool.h"
#include "daemon/engine/memory/reserved.h"

struct ticket_memory {
    uint8_t *base;
    uint64_t bytes;
    pthread_mutex_t lock; /* held for some tens of nanoseconds, twice per ticket */
    struct block_pool pool;
};

enum embtier_err ticket_memory_new(uint64_t bytes, uint64_t pinned_bytes, struct accounts *accounts,
                                   struct ticket_memory **ret_memory, struct err_msg *msg)
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
    accounts_limit(accounts, ACCOUNT_TICKET_BYTES, bytes, 0);
    accounts_limit(accounts, ACCOUNT_PINNED_BYTES, pinned_bytes, 0);
    *ret_memory = TAKE(memory);
    return EMBTIER_OK;
}

void ticket_memory_free(struct ticket_memory *memory)
{
    if (!memory)
        return;
    assert(memory->pool.taken_bytes == 0);
    reserved_free(memory->base, memory->bytes);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

/* Says if the session may have @bytes more, given the bytes of the user's other sessions. */
static enum account_answer ask(const struct ticket_share *share, uint64_t bytes)
{
    const uint64_t users = account_has(share->account, ACCOUNT_TICKET_BYTES);
    const uint64_t part = account_part(share->account, ACCOUNT_TICKET_BYTES);
    const uint64_t others = users - share->bytes;
    const enum account_answer answer = account_ask(share->account, ACCOUNT_TICKET_BYTES, bytes);

    assert(share->bytes <= users);
    if (answer != ACCOUNT_TAKEN)
        return answer;
    return users == 0 || share->bytes + bytes <= (part - MIN(part, others)) / 4 * 3
               ? ACCOUNT_TAKEN
               : ACCOUNT_USER_HAS;
}

/* Returns the quota, if the user's part is that, and is the reason for the answer. */
static uint64_t quota_behind(const struct ticket_share *share, enum account_row row,
                             enum account_answer answer)
{
    return answer == ACCOUNT_USER_HAS ? account_quota(share->account, row) : 0;
}

void *ticket_memory_take(struct ticket_memory *memory, struct ticket_share *share, uint64_t bytes,
                         uint64_t *ret_quota)
{
    enum account_answer answer;
    void *place = NULL;

    pthread_mutex_lock(&memory->lock);
    answer = ask(share, block_pool_cost(bytes));
    *ret_quota = quota_behind(share, ACCOUNT_TICKET_BYTES, answer);
    if (answer == ACCOUNT_TAKEN)
        place = block_pool_take(&memory->pool, bytes, share);
    if (place) {
        const uint64_t taken = block_pool_block_bytes(place); /* may be a little more */

        share->bytes += taken;
        account_add(share->account, ACCOUNT_TICKET_BYTES, taken);
    }
    pthread_mutex_unlock(&memory->lock);
    return place;
}

void ticket_memory_give(struct ticket_memory *memory, void *place)
{
    struct ticket_share *share;
    uint64_t bytes;

    pthread_mutex_lock(&memory->lock);
    share = block_pool_owner(place);
    bytes = block_pool_block_bytes(place);
    assert(share->bytes >= bytes);
    share->bytes -= bytes;
    account_give(share->account, ACCOUNT_TICKET_BYTES, bytes);
    block_pool_give(&memory->pool, place);
    pthread_mutex_unlock(&memory->lock);
}

bool ticket_memory_pin(struct ticket_memory *memory, struct ticket_share *share, uint64_t bytes,
                       uint64_t *ret_part, uint64_t *ret_quota)
{
    enum account_answer answer;

    pthread_mutex_lock(&memory->lock);
    answer = account_take(share->account, ACCOUNT_PINNED_BYTES, bytes);
    *ret_part = account_part(share->account, ACCOUNT_PINNED_BYTES);
    *ret_quota = quota_behind(share, ACCOUNT_PINNED_BYTES, answer);
    pthread_mutex_unlock(&memory->lock);
    return answer == ACCOUNT_TAKEN;
}

void ticket_memory_unpin(struct ticket_memory *memory, struct ticket_share *share, uint64_t bytes)
{
    pthread_mutex_lock(&memory->lock);
    account_give(share->account, ACCOUNT_PINNED_BYTES, bytes);
    pthread_mutex_unlock(&memory->lock);
}

uint64_t ticket_memory_largest(const struct ticket_memory *memory)
{
    return (memory->bytes / 4 * 3 - BLOCK_POOL_HEAD_BYTES) / CACHE_LINE * CACHE_LINE;
}
