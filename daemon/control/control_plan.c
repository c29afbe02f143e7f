/* SPDX-License-Identifier: Apache-2.0 */
/* Placement plans: lets one client at a time apply one, and tells which is in force. */
#include <assert.h>
#include <inttypes.h>

#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/jobs/plan/plan_end_job.h"
#include "daemon/jobs/plan/plan_record.h"

static struct plan_applying applying_of(const struct control *control)
{
    const struct connection *const connection = control->applying;

    return (struct plan_applying){ .pid = connection ? connection->peer_pid : 0,
                                   .generation = connection ? control->plan.generation : 0 };
}

static void reply_state(struct control *control, struct connection *connection, uint32_t id)
{
    const struct control_client client = control_client(control, connection, id);
    const struct plan_state state = plan_record_get(control->parts->plan_record);
    const struct plan_applying applying = applying_of(control);

    answer_plan(&client.client, &state, &applying);
}

static enum embtier_err begin(struct control *control, struct connection *connection,
                              const Embtier__PlanBegin *wire, struct err_msg *msg)
{
    const struct plan_applying applying = applying_of(control);

    if (control->applying && (control->applying != connection || control->plan_job))
        return err_set(msg, EMBTIER_BUSY,
                       "process %" PRIu64 " is applying the plan of generation %" PRIu64,
                       (uint64_t)applying.pid, applying.generation);
    TRY(plan_record_check(control->parts->plan_record, wire->generation, wire->hash, msg));
    control->applying = connection;
    control->plan = (struct plan_state){ .generation = wire->generation,
                                         .hash = wire->hash,
                                         .tables = wire->tables };
    return EMBTIER_OK;
}

static void end(struct control *control, struct connection *connection, uint32_t id)
{
    struct err_msg msg = { { 0 } };
    struct job *job = NULL;
    enum embtier_err err = EMBTIER_OK;

    if (control->applying != connection || control->plan_job)
        err = err_set(&msg, EMBTIER_INVALID, "this connection has not begun to apply a plan");
    else
        err = plan_end_job_new(control->parts->plan_record, &control->plan, &job);
    if (err != EMBTIER_OK) {
        control_reply_error(control, connection, id, err, &msg);
        return;
    }
    /* Until the record is written, it would let an older plan begin. */
    control->plan_job = job;
    control_submit_job(control, connection, id, job);
}

void control_end_applying(struct control *control, const struct connection *connection)
{
    if (control->applying == connection && !control->plan_job)
        control->applying = NULL;
}

void control_plan_job_done(struct control *control, const struct job *job)
{
    if (control->plan_job != job)
        return;
    control->applying = NULL;
    control->plan_job = NULL;
}

void control_handle_plan(struct control *control, struct connection *connection,
                         const Embtier__Request *request)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err = EMBTIER_OK;

    if (request->body_case == EMBTIER__REQUEST__BODY_PLAN_END) {
        end(control, connection, request->id);
        return;
    }
    if (request->body_case == EMBTIER__REQUEST__BODY_PLAN_BEGIN)
        err = begin(control, connection, request->plan_begin, &msg);
    if (err != EMBTIER_OK)
        control_reply_error(control, connection, request->id, err, &msg);
    else
        reply_state(control, connection, request->id);
}
