/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/checkpoint/checkpoint_pace.h"

#include "base/macros.h"
#include "daemon/engine/lane/lane.h"

#define PART         6 /* the checkpoint has one part of the time */
#define LONG_STEP_NS UINT64_C(2000000)
#define REST_MOST_NS UINT64_C(50000000)
#define ASKED_NS     UINT64_C(50000000) /* a client that asked longer ago has gone */

void checkpoint_pace_init(struct checkpoint_pace *pace, const struct clock *clock, bool few_cores)
{
    *pace = (struct checkpoint_pace){
        .clock = clock,
        .few_cores = few_cores,
        .step_rows = CHECKPOINT_PACED_STEP_ROWS,
    };
    checkpoint_pace_begin(pace);
}

void checkpoint_pace_begin(struct checkpoint_pace *pace)
{
    pace->began_ns = clock_now_ns(pace->clock);
}

uint32_t checkpoint_pace_step(struct checkpoint_pace *pace, bool idle)
{
    pace->yields =
        pace->few_cores && pace->has_asked && clock_now_ns(pace->clock) - pace->asked_ns < ASKED_NS;
    if (!pace->yields)
        return CHECKPOINT_STEP_ROWS;
    return idle ? pace->step_rows : 0;
}

void checkpoint_pace_look(struct checkpoint_pace *pace, const struct lane_saved *step)
{
    if (pace->has_looked && step->requests != pace->requests) {
        pace->asked_ns = clock_now_ns(pace->clock);
        pace->has_asked = true;
    }
    pace->holds = pace->has_looked && step->held_rows != pace->held_rows;
    pace->requests = step->requests;
    pace->held_rows = step->held_rows;
    pace->has_looked = true;
}

uint64_t checkpoint_pace_rest_ns(struct checkpoint_pace *pace, const struct lane_saved *step)
{
    const uint64_t spent_ns = clock_now_ns(pace->clock) - pace->began_ns;

    if (pace->holds)
        pace->step_rows = CHECKPOINT_STEP_ROWS;
    if (!pace->yields || !step->idle || step->done || pace->holds)
        return 0;
    if (spent_ns > LONG_STEP_NS)
        pace->step_rows = MIN(2 * pace->step_rows, CHECKPOINT_STEP_ROWS);
    else
        pace->step_rows = MAX(pace->step_rows / 2, CHECKPOINT_PACED_STEP_ROWS);
    return MIN(spent_ns * (PART - 1), REST_MOST_NS);
}
