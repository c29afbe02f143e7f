/* SPDX-License-Identifier: Apache-2.0 */
/* begin.h: how every request begins, whatever its operation. Thread: the session's home lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_BEGIN_H
#define EMBTIER_DAEMON_ENGINE_OPS_BEGIN_H

#include "daemon/engine/ops/op.h"

/* Copies and checks request @number of @session, and lets its operation begin it. AGAIN: there is
 * no memory now, or the session has its share of it. Nothing has changed then. The caller tries
 * again when memory_share is told, or when one of the session's requests is done. By then the
 * needed size is known, and is reserved before the request is looked at again. Any other error: the
 * request is refused, and *@ret_refusal says why. If it is a push, its group has been told. */
MUST_CHECK enum embtier_err op_begin(struct op_lane *lane, struct session *session, uint32_t number,
                                     struct taking *ret_taking, struct refusal *ret_refusal);

#endif
