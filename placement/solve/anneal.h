/* SPDX-License-Identifier: Apache-2.0 */
/* anneal.h: searches a placement in which no GPU takes longer than a limit (simulated annealing:
 * Kirkpatrick, Gelatt and Vecchi, 1983).
 *
 * A step moves an item to another place, or exchanges the places of two. Rooms may be too full and
 * loads too long on the way: the cost adds up by how much, as shares of capacity and limit. A large
 * table can so change places with many small ones, one after the other. The search ends when the
 * cost is 0.
 *
 * Rooms are weighed by the prices of the bound (bound.h). Near the optimum these make it equally
 * costly to be over in any room or load, so no kind of step is favoured.
 *
 * Random numbers come from a seed, and the search ends after a number of steps, so equal input
 * gives equal output. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SOLVE_ANNEAL_H
#define EMBTIER_PLACEMENT_SOLVE_ANNEAL_H

#include "placement/solve/placing.h"

struct anneal_opts {
    double limit_s;             /* INFINITY: only the rooms count */
    const double *room_weights; /* room_count; borrowed */
    double hot;                 /* the first temperature: a share of the limit or of a capacity */
    uint64_t seed;
    uint64_t steps; /* at most, rounded up to a few hundred */
};

/* Changes @placing, which is whole, and in which items have allowed places. True: it now fits, and
 * no load is above the limit. */
bool anneal_run(struct placing *placing, const struct anneal_opts *opts);

#endif
