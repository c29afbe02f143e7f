/* SPDX-License-Identifier: Apache-2.0 */
/* row_moves.h: changes of one or two tables' parts, each evaluated exactly. Thread: one. */
#ifndef EMBTIER_PLACEMENT_PLANNER_ROW_MOVES_H
#define EMBTIER_PLACEMENT_PLANNER_ROW_MOVES_H

#include "placement/planner/row_planning.h"

struct row_moves {
    const struct row_planning *rows;
    const struct split_cut *best; /* the caller's; it changes when cuts are better */
    struct split_cut *cuts;       /* scratch */
    /* Evaluates cuts, and takes them as the best if they are. They may break a rule or a room. */
    enum embtier_err (*offer)(void *ctx, const struct split_cut *cuts, bool *ret_better);
    bool (*may_go_on)(const void *ctx);
    void *ctx;
};

/* Tries all changes of a table, alone and together with another one. */
MUST_CHECK enum embtier_err row_moves_try(struct row_moves *moves, uint32_t table);

#endif
