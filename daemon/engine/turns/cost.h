/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h: the cost of each kind of a lane's work, by which sessions share the lane.
 *
 * These are estimates, not measurements. A clock would charge a session for other activity on the
 * machine, and would make the order of turns a matter of chance. One unit is about the time that it
 * takes to copy, check and hash an id: 3 to 8 ns. */
#ifndef EMBTIER_DAEMON_ENGINE_TURNS_COST_H
#define EMBTIER_DAEMON_ENGINE_TURNS_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

#define LANE_COST_REQUEST 64 /* to begin it, and to answer it */
#define LANE_COST_SEGMENT                                                                          \
    4 /* to copy and check it, and to reach it later when its rows are looked up */
#define LANE_COST_ID    1   /* to take it in, or to deal it out to a lane */
#define LANE_COST_ROW   4   /* to look it up, without its bytes */
#define LANE_COST_MISS  20  /* each time that a missing row is handled */
#define LANE_COST_PAIR  4   /* to cast it together with a few others */
#define LANE_COST_BYTES 128 /* the bytes, moved or computed with, that cost 1 */
/* The same for cold rows: neither the row nor its destination is in any core's cache. A cold row
 * counts as at least LANE_COLD_ROW_BYTES. GETs and SETs are cold if their session has lately asked
 * for more than LANE_CACHED_BYTES a lane. (On a 2.2 GHz core a row of 256 bytes takes 37 cycles if
 * it is cached, and 120 if not. The rest pays for the start of a turn, whose first rows are not
 * prefetched.) */
#define LANE_COST_COLD_BYTES 12
#define LANE_COLD_ROW_BYTES  128
#define LANE_CACHED_BYTES    (UINT64_C(1) << 20)

/* About the cost of one turn. A turn takes less time than the round trip of a small request. So a
 * client whose request arrives during another's turn keeps half of its rate. */
#define LANE_TURN_COST 192
/* A round of turns that costs more than this is long: the lane reads the clock after it. On a lane
 * with one session, a round costs about half of this. A request that costs more to begin is
 * dear. */
#define LANE_ROUND_COST 512
/* The cost of a turn while no session asks for as little as a short turn. Short turns make the lane
 * slower, since the first rows of each turn are not prefetched. */
#define LANE_TURN_COST_LONG 4096
/* The cost of a turn of a session that is alone on the lane. */
#define LANE_TURN_COST_ALONE 24576

/* Returns the cost of looking up one row of @bytes. */
static inline uint32_t lane_row_cost(uint64_t bytes, bool is_cold)
{
    const uint64_t cost =
        is_cold ? div_round_up(MAX(bytes, (uint64_t)LANE_COLD_ROW_BYTES), LANE_COST_COLD_BYTES)
                : div_round_up(bytes, LANE_COST_BYTES);

    return LANE_COST_ROW + (uint32_t)cost;
}

#endif
