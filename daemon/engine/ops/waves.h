/* SPDX-License-Identifier: Apache-2.0 */
/* waves.h: the waves of one pooled lookup or push: blocks of request memory, each for a piece of
 * its rows.
 *
 * A request that goes on by itself has one block of its own, which is a part of the request's
 * block. So it never waits for memory. More blocks are taken while no other session stands in line
 * for memory. When no more waves are to come, each block but the own one is given back as its wave
 * ends.
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

/* Blocks of one request at a time. */
#define WAVES_MAX 8

struct waves {
    void *blocks[WAVES_MAX];
    uint32_t count;
    uint32_t own;       /* the first ones, which lie in the request's own block: one, or none */
    uint32_t busy;      /* bit i: blocks[i] is under way */
    uint32_t under_way; /* so many are */
};

/* @own: the request's own block; NULL: it has none. */
void waves_init(struct waves *waves, void *own);

/* A block that is not under way, or NULL. */
static inline void *waves_idle(const struct waves *waves)
{
    const uint32_t idle = ~waves->busy & ((UINT32_C(1) << waves->count) - 1);

    return idle ? waves->blocks[__builtin_ctz(idle)] : NULL;
}

/* One block more, of @bytes; NULL: not now. A request that has a block takes only memory that no
 * other session stands in line for. One that has none stands in line itself. That one leads a
 * group, whose members all wait for it. */
void *waves_take(struct waves *waves, const struct request_rules *rules, struct session *session,
                 uint64_t bytes);
void waves_begin(struct waves *waves, const void *block);
/* False for @more: no more waves are to come, so the block is given back, unless it is the own one.
 */
void waves_end(struct waves *waves, struct request_memory *memory, void *block, bool more);
/* Gives all blocks back but the own one; none is under way. */
void waves_give(struct waves *waves, struct request_memory *memory);

#endif
