/* SPDX-License-Identifier: Apache-2.0 */
/* waves.h: the waves of one pooled lookup or push. Each is a block of request memory for a piece of
 * its rows.
 *
 * A request that goes on by itself always has one block, inside the request's block. So it
 * never waits for memory. It takes more blocks while no other session queues for memory.
 * When no more waves are to come, each block except its own is given back as its wave ends.
 *
 *   idle -- waves_begin() --> under way -- waves_end() --> idle, or given back
 *
 * Thread: the home lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_WAVES_H
#define EMBTIER_DAEMON_ENGINE_OPS_WAVES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct request_memory;
struct request_rules;
struct session;

/* The most blocks of one request at a time. */
#define WAVES_MAX 8

struct waves {
    void *blocks[WAVES_MAX];
    uint32_t count;
    uint32_t own;       /* leading blocks that lie in the request's own block: one, or none */
    uint32_t busy;      /* bit i: blocks[i] is under way */
    uint32_t under_way; /* number of blocks under way */
};

/* @own: the request's own block, or NULL if it has none. */
void waves_init(struct waves *waves, void *own);

/* Returns a block that is not under way, or NULL. */
static inline void *waves_idle(const struct waves *waves)
{
    const uint32_t idle = ~waves->busy & ((UINT32_C(1) << waves->count) - 1);

    return idle ? waves->blocks[__builtin_ctz(idle)] : NULL;
}

/* Returns one more block of @bytes. NULL: not now. A request that has a block takes only memory
 * that no other session queues for. A request that has none queues itself. It leads a group, whose
 * members all wait for it. */
void *waves_take(struct waves *waves, const struct request_rules *rules, struct session *session,
                 uint64_t bytes);
void waves_begin(struct waves *waves, const void *block);
/* Ends the wave in @block. @more false: no more waves are to come, so the block is given back,
 * unless it is the request's own. */
void waves_end(struct waves *waves, struct request_memory *memory, void *block, bool more);
/* Gives all blocks back except the request's own. None is under way. */
void waves_give(struct waves *waves, struct request_memory *memory);

#endif
