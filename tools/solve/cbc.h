/* SPDX-License-Identifier: Apache-2.0 */
/* cbc.h: the few functions of CBC (COIN-OR branch and cut) that embtier-solve calls, found at run
 * time.
 *
 * The name libCbcSolver.so.3 stands for the interface; a version is only shown. */
#ifndef EMBTIER_TOOLS_SOLVE_CBC_H
#define EMBTIER_TOOLS_SOLVE_CBC_H

#include <stddef.h>

#include "base/err.h"
#include "placement/solve/milp.h"

bool cbc_is_in(void *library);
/* Writes "CBC" and the version, if it tells one. */
void cbc_name(void *library, char *ret_name, size_t bytes);

/* Does what highs_solve() does (highs.h). */
MUST_CHECK enum embtier_err cbc_solve(void *library, const struct milp *milp, uint32_t nodes,
                                      double gap, double *ret_values, double *ret_bound,
                                      struct err_msg *msg);

#endif
