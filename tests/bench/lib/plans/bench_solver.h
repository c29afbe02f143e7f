/* SPDX-License-Identifier: Apache-2.0 */
/* bench_solver.h: the outside solver that benchmarks of placements use: HiGHS or CBC, as
 * EMBTIER_SOLVER_LIBRARY names its library. Thread: one. */
#ifndef EMBTIER_TESTS_BENCH_LIB_PLANS_BENCH_SOLVER_H
#define EMBTIER_TESTS_BENCH_LIB_PLANS_BENCH_SOLVER_H

#include <limits.h>

#include "placement/solve/milp.h"
#include "placement/solve/solve.h"
#include "tools/solve/child_solver.h"

struct bench_solver {
    struct child_solver child;
    struct milp_solver solver;
    char program[PATH_MAX];
};

/* Returns NULL without that variable. @solver is borrowed, and stays where it is. */
const struct milp_solver *bench_solver_find(struct bench_solver *solver);
/* Ends the program if the limit of processor time ended the solver: nodes are meant to, and the
 * figure would depend on the machine. */
void bench_solver_check(const struct bench_solver *solver, const struct solve_answer *answer);

#endif
