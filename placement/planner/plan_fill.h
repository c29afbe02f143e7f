/* SPDX-License-Identifier: Apache-2.0 */
/* plan_fill.h: writes an evaluated assignment as a plan. Thread: any. */
#ifndef EMBTIER_PLACEMENT_PLANNER_PLAN_FILL_H
#define EMBTIER_PLACEMENT_PLANNER_PLAN_FILL_H

#include "placement/planner/row_search.h"

/* @planning holds the last evaluation, which is that of @homes. The plan has neither inputs nor
 * reasons. NO_MEMORY. */
MUST_CHECK enum embtier_err plan_fill(const struct planning *planning, const struct homes *homes,
                                      struct plan **ret_plan);

/* The same for cuts; @rows holds their evaluation. */
MUST_CHECK enum embtier_err plan_fill_rows(const struct row_planning *rows,
                                           const struct row_homes *homes, struct plan **ret_plan);

#endif
