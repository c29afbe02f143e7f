/* SPDX-License-Identifier: Apache-2.0 */
/* fit.h: finds what keeps a model from being placed, and by how many bytes (an elastic model).
 *
 * Items may be cut, so the question is one of flow from items to rooms (Ford and Fulkerson,
 * "Maximal flow through a network", 1956). Bytes that find no room prove that there is no
 * placement. The rooms that the last search reached are full, and all items that must share them
 * are named with them. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SOLVE_FIT_H
#define EMBTIER_PLACEMENT_SOLVE_FIT_H

#include "placement/model/instance.h"

/* OK: bytes do not rule out a placement. INVALID: @msg names the table or the rooms, and the bytes
 * that are missing. NO_MEMORY. */
MUST_CHECK enum embtier_err fit_check(const struct instance *x, struct err_msg *msg);

#endif
