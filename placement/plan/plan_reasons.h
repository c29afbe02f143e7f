/* SPDX-License-Identifier: Apache-2.0 */
/* plan_reasons.h: why each table is where it is, in a sentence, from the plan's numbers alone.
 *
 * A sentence claims only what these numbers show: that a table fits nowhere faster, that no slower
 * memory holds hotter bytes, that the cache hits. Its figures are those of the columns of `embtier
 * plan show`, or follow from them. The planner's way to the plan is not told; that it was free to
 * cut tables only keeps a sentence from advising that.
 * Thread: any. */
#ifndef EMBTIER_PLACEMENT_PLAN_PLAN_REASONS_H
#define EMBTIER_PLACEMENT_PLAN_PLAN_REASONS_H

#include "placement/plan/plan.h"

/* Fills each reason that is "". The plan has passed plan_check(), and does so afterwards.
 * @is_row_wise: tables could be cut, so one that is whole was not worth a cut, also where the plan
 * cuts none. */
void plan_explain(struct plan *plan, bool is_row_wise);

#endif
