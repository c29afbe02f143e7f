/* SPDX-License-Identifier: Apache-2.0 */
/* RELEASE: ends a ticket that its client no longer needs. */
#include "daemon/engine/ops/op.h"
#include "daemon/engine/ops/op_table.h"
#include "daemon/engine/ops/tickets/ticket.h"
#include "daemon/engine/ops/tickets/tickets.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "proto/op_fields.h"

static enum embtier_err begin(struct op_lane *lane, struct session *session, uint32_t number,
                              const struct op_submission *submission, struct taking *ret_taking,
                              struct refusal *refusal)
{
    struct ticket *ticket = NULL;
    const enum embtier_err err = ticket_find(session, submission->ticket, &ticket);

    (void)number;
    if (err != EMBTIER_OK)
        return refuse(refusal, err, UINT32_MAX, submission->ticket,
                      lane->rules.ticket_ns / 1000000);
    TRY(check_fields(submission, op_form_of(submission), refusal));
    tickets_take(lane, ticket);
    tickets_end(lane, ticket);
    ret_taking->what = NULL;
    return EMBTIER_OK;
}

const struct op op_release = {
    .name = "RELEASE",
    .form = op_form_of,
    .begin = begin,
};
