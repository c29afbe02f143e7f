/* SPDX-License-Identifier: Apache-2.0 */
/* split_fit.h: tells whether bytes alone rule out every row-wise placement, and what lacks room.
 * Thread: any. */
#ifndef EMBTIER_PLACEMENT_SPLIT_SPLIT_FIT_H
#define EMBTIER_PLACEMENT_SPLIT_SPLIT_FIT_H

#include "placement/split/split_instance.h"

/* INVALID: the tables that rules keep in one room, or out of the rest, take more bytes than there
 * are. @msg names the room, the bytes, and the largest of the tables. OK proves nothing. */
MUST_CHECK enum embtier_err split_fit_check(const struct split_instance *x, struct err_msg *msg);

#endif
