/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/plans/bench_solver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/lib/bench.h"

const struct milp_solver *bench_solver_find(struct bench_solver *solver)
{
    char here[PATH_MAX / 2] = { 0 };

    solver->child = (struct child_solver)CHILD_SOLVER_INIT;
    solver->child.library = getenv("EMBTIER_SOLVER_LIBRARY");
    if (!solver->child.library || readlink("/proc/self/exe", here, sizeof(here) - 1) <= 0)
        return NULL;
    *strrchr(here, '/') = '\0';
    snprintf(solver->program, sizeof(solver->program), "%s/../../tools/embtier-solve", here);
    solver->child.program = solver->program;
    solver->solver = child_solver(&solver->child);
    return &solver->solver;
}

/* The kernel ends a solver by SIGKILL that has used up its processor time. */
void bench_solver_check(const struct bench_solver *solver, const struct solve_answer *answer)
{
    if (strstr(answer->solver_says.text, "ended by signal 9"))
        bench_die("the solver took more than %u s of processor time", solver->child.processor_s);
}
