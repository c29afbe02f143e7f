/* SPDX-License-Identifier: Apache-2.0 */
/* begin.h: how every request begins, whatever its operation. Thread: the session's home lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_BEGIN_H
#define EMBTIER_DAEMON_ENGINE_OPS_BEGIN_H

#include "daemon/engine/ops/op.h"

/* Copies and checks request @number of @session and lets its operation begin it. AGAIN: no memory
 * now, or the session has its share of it; nothing has changed, try again when memory_share is
 * told, or one of the session's is done. How much it needs is known by then: it is asked for before
 * the request is looked at again. Any other error: the request is refused, *@ret_refusal says why;
 * of a push, its group has been told. */
MUST_CHECK enum embtier_err op_begin(struct op_lane *lane, struct session *session, uint32_t number,
                                     struct taking *ret_taking, struct refusal *ret_refusal);

#endif
