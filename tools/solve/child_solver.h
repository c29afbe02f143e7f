/* SPDX-License-Identifier: Apache-2.0 */
/* child_solver.h: asks a solver that runs in a process of its own (embtier_solve.c).
 *
 * The child may crash, print rubbish, sleep, spin, or take memory without end. Limits of memory and
 * processor time end it, and so does standing still: a child that used less than 1 % of a processor
 * for stall_s seconds is killed. Time that it waited for a processor counts as used, so load on the
 * machine does not end it. Each such end is an error, after which the caller's own answer stays.
 * The count of nodes is meant to end a healthy child before that.
 *
 * Limits are the wishes below, or the hard limits of the caller where those are lower.
 *
 * Thread: one; a call blocks until the child has ended. */
#ifndef EMBTIER_TOOLS_SOLVE_CHILD_SOLVER_H
#define EMBTIER_TOOLS_SOLVE_CHILD_SOLVER_H

#include "placement/solve/milp.h"
#include "tools/solve/solve_wire.h"

struct child_solver {
    const char *program;   /* path of embtier-solve */
    const char *library;   /* path or name of the solver's library; NULL: HiGHS, else CBC */
    uint64_t memory_bytes; /* of its address space; 0: no limit, as sanitizers need */
    uint32_t processor_s;
    uint32_t stall_s;
    uint32_t nodes; /* of HiGHS's branch and bound, at most; CBC may have up to 50 for each */
    double gap;     /* relative; good enough */
    uint32_t answers;
    /* Plain text of the last answer, as the child tells. "": there was none. */
    char solver[SOLVE_NAME_BYTES];     /* the solver and its version */
    char refused[SOLVE_REFUSED_BYTES]; /* why libraries that come before it were not taken */
};

#define CHILD_SOLVER_INIT                                                                          \
    {                                                                                              \
        .memory_bytes = 2 * GIB, .processor_s = 120, .stall_s = 60, .nodes = 20, .gap = 1e-4       \
    }

/* Makes a solver of @child, which is borrowed. */
struct milp_solver child_solver(struct child_solver *child);

#endif
