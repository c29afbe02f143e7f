/* SPDX-License-Identifier: Apache-2.0 */
/* solve.h: places tables so that the slowest GPU's lookup time is least, and proves how good the
 * answer is.
 *
 * 1. A start of our own (start.h), made to fit (anneal.h).
 * 2. The bound of Lenstra, Shmoys and Tardos (bound.h).
 * 3. Bisection between both: anneal.h searches a placement within a limit. A second pass begins at
 * the bound again.
 * 4. Branch and bound over all placements, if they are few (search.h).
 * 5. After both passes, a solver of mixed-integer programs, if the caller has one (milp.h).
 *
 * assignment_check() judges each answer, and the best one is returned. Equal input gives equal
 * output on one machine, since only counts of steps end the work; libraries of other machines may
 * round logarithms differently. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SOLVE_SOLVE_H
#define EMBTIER_PLACEMENT_SOLVE_SOLVE_H

#include "placement/model/model.h"

struct milp_solver;

struct solve_opts {
    uint64_t seed;
    uint64_t steps;    /* of one search within a limit; 0: as many as suit the model's size */
    uint32_t searches; /* within a limit, at most; 0: a number that suits most models */
    uint64_t nodes;    /* of step 4, at most; 0: 2^25 */
    const struct milp_solver *solver; /* borrowed; NULL: none */
    double gap;                       /* good enough; 0: as near as possible */
};

struct solve_answer {
    uint32_t *places; /* for each table */
    double largest_s; /* lookup time of the slowest GPU */
    double bound_s;   /* no placement is faster; proven without the solver */
    bool solver_won;  /* the placement is the solver's */
    /* The solver's bound, in seconds. It is not checked. -INFINITY: there is none, or it
     * contradicts the answer. */
    double solver_bound_s;
    struct err_msg solver_says; /* why its answer was not taken; empty: it was, or none was asked */
};

/* INVALID: the model is wrong, or cannot be placed: @msg names what lacks room, and how many bytes.
 * NO_SPACE: no placement was found, but there may be one. NO_MEMORY. */
MUST_CHECK enum embtier_err solve_model(const struct model *model, const struct solve_opts *opts,
                                        struct solve_answer **ret_answer, struct err_msg *msg);
void solve_answer_free(struct solve_answer *answer);
DEFINE_CLEANUP(struct solve_answer, solve_answer_free)

/* (largest - bound) / largest; 0 if nothing is read. */
double solve_gap(const struct solve_answer *answer);

#endif
