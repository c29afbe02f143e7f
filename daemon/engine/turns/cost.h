/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h: what a lane's work costs, to be shared out between sessions.
 *
 * Estimates, not measurements: a clock would charge a session for what else the machine did
 * meanwhile, and make the order of turns a matter of chance. The unit is about what it takes to
 * copy, check and hash an id: some 3 to 8 ns. */
#ifndef EMBTIER_DAEMON_ENGINE_TURNS_COST_H
#define EMBTIER_DAEMON_ENGINE_TURNS_COST_H

#include <stdbool.h>
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
/* The same of rows that are in no core's cache, nor is the memory that they go to, and as many
 * bytes at least: GETs and SETs of a session that asked for more than LANE_CACHED_BYTES
 * lately. (On a core of 2.2 GHz a row of 256 bytes takes 37 cycles where it is cached, and 120
 * where not; the rest is for turns, which begin with rows that nobody has waited for yet.) */
#define LANE_COST_COLD_BYTES 12
#define LANE_COLD_ROW_BYTES  128
#define LANE_CACHED_BYTES    (UINT64_C(1) << 20)

/* A turn's, about: less than the time in which a small request and its answer go to and fro, so
 * that one that comes in the meantime keeps half of its rate. */
#define LANE_TURN_COST 192
/* A round of turns that costs more is a long one, after which a lane looks at the clock; where
 * nobody shares the lane, one is about half of it. A request that costs more to begin is dear. */
#define LANE_ROUND_COST 512
/* A turn's while nobody is there that asks for as little: short turns cost some of the lane's
 * speed, since each begins with rows that were not asked of memory before. */
#define LANE_TURN_COST_LONG 4096
/* The same if its session is alone on the lane. */
#define LANE_TURN_COST_ALONE 24576

/* For one row of @bytes that is looked up. */
static inline uint32_t lane_row_cost(uint64_t bytes, bool is_cold)
{
    const uint64_t cost =
        is_cold ? div_round_up(MAX(bytes, (uint64_t)LANE_COLD_ROW_BYTES), LANE_COST_COLD_BYTES)
                : div_round_up(bytes, LANE_COST_BYTES);

    return LANE_COST_ROW + (uint32_t)cost;
}

#endif
