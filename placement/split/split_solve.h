/* SPDX-License-Identifier: Apache-2.0 */
/* split_solve.h: cuts tables by hotness so that the slowest GPU's lookup time is least, and proves
 * how good the answer is.
 *
 * 1. Weights of the GPUs and prices of the bytes bound the time (split_bound.h).
 * 2. At these prices each table has a best cut. Tables are dealt to GPUs so that times and bytes
 *    are even (split_deal.h).
 * 3. For these GPUs, the best cuts are those of a linear program (split_cuts.h), rounded to whole
 *    rows (split_round.h).
 * 4. Tables are moved and exchanged, as the prices of the cuts promise (split_moves.h), as long as
 *    that helps and the number of trials allows. If there are few combinations of GPUs and modes,
 * all are tried instead.
 *
 * split_check() judges each answer. Counts of steps end the work, never a clock, so equal input
 * gives equal output on one machine. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SPLIT_SPLIT_SOLVE_H
#define EMBTIER_PLACEMENT_SPLIT_SPLIT_SOLVE_H

#include "placement/split/split_model.h"

struct split_opts {
    uint64_t seed;
    double gap;    /* good enough; 0: as near as possible */
    uint64_t work; /* trials of step 4 times tables, at most; 0: a number that suits most models */
};

struct split_answer {
    struct split_cut *cuts; /* for each table */
    bool *hulls;      /* for each table: its curve has a cliff, and the bound takes its hull */
    double largest_s; /* lookup time of the slowest GPU, of the true curves */
    double bound_s;   /* no placement is faster */
};

/* INVALID: the model is wrong, or cannot be placed: @msg names the level or table that lacks room,
 * and how many bytes. NO_SPACE: no placement was found, but there may be one. NO_MEMORY. */
MUST_CHECK enum embtier_err split_solve(const struct split_model *model,
                                        const struct split_opts *opts,
                                        struct split_answer **ret_answer, struct err_msg *msg);
void split_answer_free(struct split_answer *answer);
DEFINE_CLEANUP(struct split_answer, split_answer_free)

/* (largest - bound) / largest; 0 if nothing is looked up. */
double split_gap(const struct split_answer *answer);

#endif
