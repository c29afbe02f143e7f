/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/begin.h"

#include "daemon/access/operations.h"
#include "daemon/access/rights.h"
#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/op_table.h"
#include "daemon/engine/sessions/client_bytes.h"

/* Begins a request whose memory is there, as far as its size is known. */
static enum embtier_err begin(struct op_lane *lane, struct session *session, uint32_t number,
                              struct taking *ret_taking, struct refusal *ret_refusal)
{
    struct op_submission submission;
    const struct op *op;

    copy_once(&submission, channel_submission(&session->channel, number), sizeof(submission));
    ret_taking->segment_count = MIN(submission.segment_count, (uint32_t)OP_SEGMENTS_MAX);
    op = op_of(submission.op);
    if (IS_BAD(CHECK_OP, !op))
        return refuse(ret_refusal, EMBTIER_INVALID, UINT32_MAX, submission.op, op_last());
    /* One that proto/ops.h does not name, such as a test's, has no series of its own. */
    session_time(session, number)->op = submission.op < LATENCY_OPS ? submission.op : 0;
    /* Without a rule an operation is refused. Roles are checked with the segments, so that the
     * group of a refused push is told. */
    if (IS_BAD(CHECK_RULE, !operation_of_op(submission.op, submission.flags)))
        return refuse(ret_refusal, EMBTIER_PERMISSION, UINT32_MAX, rights_role(session->rights),
                      ROLE_COUNT);
    ret_taking->op = op;
    return op->begin(lane, session, number, &submission, ret_taking, ret_refusal);
}

enum embtier_err op_begin(struct op_lane *lane, struct session *session, uint32_t number,
                          struct taking *ret_taking, struct refusal *ret_refusal)
{
    const struct request_rules *const rules = &lane->rules;
    enum embtier_err err;

    if (session->wanted_bytes != 0 &&
        !request_memory_reserve(rules->memory, &session->memory_share, session->wanted_bytes,
                                session->wanted_use))
        return EMBTIER_AGAIN;
    err = begin(lane, session, number, ret_taking, ret_refusal);
    if (UNLIKELY(session->begin_lines != 0))
        session_begun(session, number, err == EMBTIER_OK);
    if (err != EMBTIER_AGAIN) /* it is refused, or needs no more */
        request_memory_forget(rules, session);
    return err;
}

static void on_request_done(struct op_lane *lane, struct request *request)
{
    request->op->done(lane, request);
}

MESSAGE_KIND(message_request_done, on_request_done, ops, struct request, message)
