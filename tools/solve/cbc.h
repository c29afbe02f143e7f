/* SPDX-License-Identifier: Apache-2.0 */
/* cbc.h: the few functions of CBC (COIN-OR branch and cut) that embtier-solve calls, found at run
 * time.
 *
 * The names libCbcSolver.so.3 and, of the same interface, libCbcSolver.so.3.1 stand for the
 * functions; a version is only shown. Versions 2.10.8 to 2.10.12 have the same Cbc_C_Interface.cpp.
 */
#ifndef EMBTIER_TOOLS_SOLVE_CBC_H
#define EMBTIER_TOOLS_SOLVE_CBC_H

#include <stddef.h>

#include "base/err.h"
#include "placement/solve/milp.h"

bool cbc_is_in(void *library);
/* Writes "CBC" and the version, if it tells one. */
void cbc_name(void *library, char *ret_name, size_t bytes);

/* Does what highs_solve() does (highs.h), with up to 50 * @nodes nodes. */
MUST_CHECK enum embtier_err cbc_solve(void *library, const struct milp *milp, uint32_t nodes,
                                      double gap, double *ret_values, double *ret_bound,
                                      struct err_msg *msg);

#endif
