/* SPDX-License-Identifier: Apache-2.0 */
/* milp.h: the mixed-integer program that an outside solver gets, and how its answer becomes places.
 *
 * Columns: the largest time, then one for each item and place that may be part of a better
 * placement. Rows: each item has one place; each GPU's load is at most the largest time; each room
 * holds its bytes; and the time of one item bounds the largest, which makes the relaxation far
 * tighter. Times are in units of the known answer, and bytes in units of the room.
 *
 * Left out are places where the item alone takes as long as the known answer (Lenstra, Shmoys and
 * Tardos), and those whose cost at the bound's weights and prices proves that no better placement
 * uses them. The places of the known answer stay, so that it can be the solver's start.
 *
 * Thread: any. */
#ifndef EMBTIER_PLACEMENT_SOLVE_MILP_H
#define EMBTIER_PLACEMENT_SOLVE_MILP_H

#include "placement/solve/bound.h"
#include "placement/solve/placing.h"

#define MILP_COLUMNS_MAX (UINT32_C(1) << 21)

/* Column 0 is minimised, and lies between @lower and 1. The others are 0 or 1. Rows are stored one
 * after the other. */
struct milp {
    uint32_t column_count, row_count, entry_count;
    double lower;
    double *start;        /* column_count: the known answer */
    double *row_lower;    /* row_count; -INFINITY: none */
    double *row_upper;    /* row_count */
    uint32_t *row_starts; /* row_count + 1, into the entries */
    uint32_t *columns;    /* entry_count */
    double *values;       /* entry_count */
    uint32_t *items;      /* column_count: the item of a column; nothing at 0 */
    uint32_t *places;     /* column_count: its place; nothing at 0 */
};

/* A solver outside of this library. solve() fills @ret_values, one for each column, and @ret_bound,
 * which is -INFINITY if there is none. Any error and any numbers may come back: an answer is only a
 * proposal. */
struct milp_solver {
    void *ctx;
    enum embtier_err (*solve)(void *ctx, const struct milp *milp, double *ret_values,
                              double *ret_bound, struct err_msg *msg);
};

/* @known is whole and fits; its largest time is above 0. NO_MEMORY. TOO_LARGE: more places remain
 * than MILP_COLUMNS_MAX. */
MUST_CHECK enum embtier_err milp_new(const struct placing *known, const struct bound *bound,
                                     struct milp **ret_milp);
void milp_free(struct milp *milp);
DEFINE_CLEANUP(struct milp, milp_free)

/* Gives each item the place whose column is above a half. False: an item has none. Loads and rooms
 * are not checked. */
bool milp_decode(const struct milp *milp, const double *values, struct placing *placing);

#endif
