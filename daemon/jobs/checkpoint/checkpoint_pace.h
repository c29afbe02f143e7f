/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_pace.h: how fast a checkpoint writes the rows that were dirty, so that those who ask
 * for rows meanwhile do not wait for a core.
 *
 * Where cores are few, and while others have asked for something not so long ago, rows are written
 * some at a time only, and for one part of the time in six. A step that takes long has waited, for
 * the disk or for a core: then the next is a larger one, or there would be no end to it. While rows
 * are held up (struct lane_stats) it hurries, as these wait for its end.
 *
 * Thread: that of the checkpoint. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINT_PACE_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINT_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

struct lane_saved;

#define CHECKPOINT_STEP_ROWS       256 /* of a lane, at a time */
#define CHECKPOINT_PACED_STEP_ROWS 32  /* at first, while others ask */

struct checkpoint_pace {
    const struct clock *clock;
    bool few_cores;
    uint64_t began_ns; /* what is being written now */
    uint64_t asked_ns; /* when the last request was seen */
    uint64_t requests; /* of all lanes, so far */
    uint64_t held_rows;
    uint32_t step_rows; /* at a time while others ask */
    bool has_looked;
    bool has_asked;
    bool yields; /* others have asked when the step began */
    bool holds;  /* some rows up, since the step before */
};

/* @few_cores: fewer than lanes, writers and clients can use. */
void checkpoint_pace_init(struct checkpoint_pace *pace, const struct clock *clock, bool few_cores);
/* From here on it is measured how long a step takes. */
void checkpoint_pace_begin(struct checkpoint_pace *pace);
/* How many rows each lane is to hand over next; @idle: what it has so far is written. */
uint32_t checkpoint_pace_step(struct checkpoint_pace *pace, bool idle);
/* What all lanes together said of the step. */
void checkpoint_pace_look(struct checkpoint_pace *pace, const struct lane_saved *step);
/* For so long, in nanoseconds, the cores are others' now: after that, checkpoint_pace_begin(). */
uint64_t checkpoint_pace_rest_ns(struct checkpoint_pace *pace, const struct lane_saved *step);

#endif
