/* SPDX-License-Identifier: Apache-2.0 */
/* lane_cost.h: what a lane's work costs, to be shared out between sessions.
 *
 * Estimates, not measurements: a clock would charge a session for what else the machine did
 * meanwhile, and make the order of turns a matter of chance. The unit is about what it takes to
 * copy, check and hash an id: some 4 to 8 ns. */
#ifndef EMBTIER_DAEMON_LANE_COST_H
#define EMBTIER_DAEMON_LANE_COST_H

#include <stdint.h>

#include "base/macros.h"

#define LANE_COST_REQUEST 64 /* to begin it, and to answer */
#define LANE_COST_SEGMENT                                                                          \
    4                     /* to copy and check it; and to come to it, when its rows are looked up */
#define LANE_COST_ID    1 /* taken, or dealt out to a lane */
#define LANE_COST_ROW   4 /* looked up, beside its bytes */
#define LANE_COST_MISS  20  /* a row that is not cached, each time it is dealt with */
#define LANE_COST_PAIR  4   /* cast, with some others */
#define LANE_COST_BYTES 128 /* that many, moved or computed with, cost 1 */
/* The same of rows of a request that moves more than LANE_CACHED_BYTES: neither these rows nor the
 * memory that they go to is in a core's cache. */
#define LANE_COST_COLD_BYTES 12
#define LANE_CACHED_BYTES    (UINT64_C(1) << 20)

/* A turn's, about: less than the time in which a small request and its answer go to and fro, so
 * that one that comes in the meantime keeps half of its rate. */
#define LANE_TURN_COST 192
/* After a round that cost more, a lane looks at the clock. */
#define LANE_ROUND_COST 512
/* A turn's while nobody is there that asks for as little: short turns cost some of the lane's
 * speed, since each begins with rows that were not asked of memory before. */
#define LANE_TURN_COST_LONG 4096
/* The same if its session is alone on the lane. */
#define LANE_TURN_COST_ALONE 24576

/* For one row of @bytes that is looked up, for a request that looks up @count like it. */
static inline uint32_t lane_row_cost(uint64_t bytes, uint64_t count)
{
    const uint64_t cost = bytes * count <= LANE_CACHED_BYTES
                              ? div_round_up(bytes, LANE_COST_BYTES)
                              : div_round_up(bytes, LANE_COST_COLD_BYTES);

    return LANE_COST_ROW + (uint32_t)cost;
}

#endif
