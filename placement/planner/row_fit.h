/* SPDX-License-Identifier: Apache-2.0 */
/* row_fit.h: cuts that fill arrays, which are whole slabs. A server has the hot rows of a table in
 * one tier at most, so no table gets parts in several. Thread: one. */
#ifndef EMBTIER_PLACEMENT_PLANNER_ROW_FIT_H
#define EMBTIER_PLACEMENT_PLANNER_ROW_FIT_H

#include "placement/planner/row_planning.h"

/* Makes the table's rows in a level those of so many slabs more or less, at the cost of the rest
 * and of slower levels. False: nothing changes. */
bool row_fit_resize(const struct row_planning *rows, uint32_t table, uint32_t level, int64_t slabs,
                    struct split_cut *cut);
/* Makes them as many as fit beside the other tables; all, if they do. */
bool row_fit_fill(const struct row_planning *rows, uint32_t table, uint32_t level,
                  struct split_cut *cuts);
/* Rounds each part to slabs. Then takes slabs that gain least where there are too many, and gives
 * those that gain most where some are left, by the times of the model. @room_bytes is indexed by
 * level and GPU; shared levels use GPU 0. */
void row_fit(const struct row_planning *rows, uint64_t (*room_bytes)[MODEL_GPUS_MAX],
             struct split_cut *cuts);

#endif
