/* SPDX-License-Identifier: Apache-2.0 */
/* highs.h: the few functions of HiGHS that embtier-solve calls, found at run time.
 *
 * HiGHS is no dependency of the build: its library is loaded if there is one. Its C interface of
 * version 1 is declared here; another version is refused. */
#ifndef EMBTIER_TOOLS_SOLVE_HIGHS_H
#define EMBTIER_TOOLS_SOLVE_HIGHS_H

#include <stddef.h>

#include "base/err.h"
#include "placement/solve/milp.h"

bool highs_is_in(void *library);
/* Writes "HiGHS" and the version, if it tells one. */
void highs_name(void *library, char *ret_name, size_t bytes);

/* Solves @milp with @library, of dlopen(). UNSUPPORTED: it is of another version, or lacks
 * something. NOT_FOUND: it has no placement. @ret_values and @ret_bound are as HiGHS gave them. */
MUST_CHECK enum embtier_err highs_solve(void *library, const struct milp *milp, uint32_t nodes,
                                        double gap, double *ret_values, double *ret_bound,
                                        struct err_msg *msg);

#endif
