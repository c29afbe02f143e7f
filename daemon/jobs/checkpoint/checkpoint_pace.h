/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_pace.h: how fast a checkpoint writes the dirty rows, so that clients that ask for rows
 * meanwhile do not wait for a core.
 *
 * Where cores are few and clients have asked for something recently, rows are written in small
 * steps, and for one sixth of the time only. A step that takes long has waited for the disk or for
 * a core. The next one is then larger, or the checkpoint would never end. While rows are held up
 * (struct lane_stats) the checkpoint hurries, because they wait for its end.
 *
 * Thread: that of the checkpoint. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINT_PACE_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINT_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

struct lane_saved;

#define CHECKPOINT_STEP_ROWS       256 /* of a lane, in one step */
#define CHECKPOINT_PACED_STEP_ROWS 32  /* at first, while others ask */

struct checkpoint_pace {
    const struct clock *clock;
    bool few_cores;
    uint64_t began_ns; /* when the present step began */
    uint64_t asked_ns; /* when the last request was seen */
    uint64_t requests; /* of all lanes, so far */
    uint64_t held_rows;
    uint32_t step_rows; /* in one step while others ask */
    bool has_looked;
    bool has_asked;
    bool yields; /* others had just asked when the step began */
    bool holds;  /* rows were held up since the step before */
};

/* @few_cores: fewer than lanes, writers and clients can use. */
void checkpoint_pace_init(struct checkpoint_pace *pace, const struct clock *clock, bool few_cores);
/* Begins to measure how long a step takes. */
void checkpoint_pace_begin(struct checkpoint_pace *pace);
/* Returns how many rows each lane hands over next. @idle: all handed over so far are written. */
uint32_t checkpoint_pace_step(struct checkpoint_pace *pace, bool idle);
/* Takes note of all lanes' reports of the step, added up. */
void checkpoint_pace_look(struct checkpoint_pace *pace, const struct lane_saved *step);
/* Returns for how many nanoseconds the caller leaves the cores to others. It calls
 * checkpoint_pace_begin() after that. */
uint64_t checkpoint_pace_rest_ns(struct checkpoint_pace *pace, const struct lane_saved *step);

#endif
