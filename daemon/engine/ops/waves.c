/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/waves.h"

#include <assert.h>

#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/rows/request.h"

_Static_assert(WAVES_MAX < 32, "a bit each");

void waves_init(struct waves *waves, void *own)
{
    *waves = (struct waves){ .blocks = { own }, .count = own != NULL, .own = own != NULL };
}

void *waves_take(struct waves *waves, const struct request_rules *rules, struct session *session,
                 uint64_t bytes)
{
    void *block;

    if (waves->count == WAVES_MAX)
        return NULL;
    block = waves->count > 0
                ? request_memory_take_spare(rules->memory, &session->memory_share, bytes)
                : request_memory_for(rules, session, bytes, REQUEST_MEMORY_LEADS);
    if (block)
        waves->blocks[waves->count++] = block;
    return block;
}

static uint32_t index_of(const struct waves *waves, const void *block)
{
    uint32_t i = 0;

    while (i < waves->count && waves->blocks[i] != block)
        i++;
    assert(i < waves->count);
    return i;
}

void waves_begin(struct waves *waves, const void *block)
{
    const uint32_t bit = UINT32_C(1) << index_of(waves, block);

    assert(!(waves->busy & bit));
    waves->busy |= bit;
    waves->under_way++;
}

/* Removes block @i; the last block takes its place. */
static void *remove_block(struct waves *waves, uint32_t i)
{
    const uint32_t last = waves->count - 1;
    void *const block = waves->blocks[i];

    assert(i <= last && last >= waves->own);
    waves->count = last;
    waves->blocks[i] = waves->blocks[last];
    waves->busy |= (waves->busy >> last & 1) << i;
    waves->busy &= ~(UINT32_C(1) << last);
    return block;
}

void waves_end(struct waves *waves, struct request_memory *memory, void *block, bool more)
{
    const uint32_t i = index_of(waves, block);

    assert(waves->busy >> i & 1);
    waves->busy &= ~(UINT32_C(1) << i);
    assert(waves->under_way > 0);
    waves->under_way--;
    if (!more && i >= waves->own)
        request_memory_give(memory, remove_block(waves, i));
}

void waves_give(struct waves *waves, struct request_memory *memory)
{
    assert(waves->under_way == 0);
    while (waves->count > waves->own)
        request_memory_give(memory, waves->blocks[--waves->count]);
}
