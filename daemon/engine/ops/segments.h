/* SPDX-License-Identifier: Apache-2.0 */
/* segments.h: requests of plain segments: ids of a table, and a place in the region for each id.
 *
 * Such an operation, as GET or SET, is a struct op with these functions, and the work on each row
 * (row_op.h). */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_SEGMENTS_H
#define EMBTIER_DAEMON_ENGINE_OPS_SEGMENTS_H

#include "daemon/engine/ops/op.h"

/* As the members of struct op; op->row_op has the work on the rows. */
MUST_CHECK enum embtier_err segments_begin(struct op_lane *lane, struct session *session,
                                           uint32_t number, const struct op_submission *submission,
                                           struct taking *ret_taking, struct refusal *refusal);
enum op_turn segments_turn(struct op_lane *lane, void *what, uint64_t *left);
void segments_done(struct op_lane *lane, struct request *request);

#endif
