/* SPDX-License-Identifier: Apache-2.0 */
/* Scans and loads of a connection (scan.h, load.h): many rows, through its arena, some at a time.
 * While a job has the scan or load, the connection has none; it comes back with the answer. If the
 * connection has gone meanwhile, the transfer is closed then, and its arena freed after that. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "daemon/access/access.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/knobs/knobs.h"
#include "daemon/jobs/transfer/load_job.h"
#include "daemon/jobs/transfer/scan_job.h"
#include "proto/frame.h"
#include "proto/table_spec_wire.h"

/* ---- A connection's transfers ---- */

/* Counts one more of @row in the user's account, and sets *@counts. */
static enum embtier_err count_one(const struct control *control, struct account *account,
                                  enum account_row row, bool *counts, struct err_msg *msg)
{
    const bool loads = row == ACCOUNT_LOADS;
    const uint32_t most = loads ? CONTROL_LOADS_MAX : control_scans_most(control->parts->config);

    assert(!*counts);
    if (account_take(account, row, 1) != ACCOUNT_TAKEN)
        return err_set(msg, EMBTIER_BUSY,
                       "%" PRIu64 " tables are being %s, %" PRIu64
                       " of them by this user; at most %" PRIu32 " may be at once, and %" PRIu64
                       " for this user%s",
                       accounts_used(control->parts->accounts, row),
                       loads ? "imported" : "exported", account_has(account, row), most,
                       account_part(account, row), account_rule(account, row));
    *counts = true;
    return EMBTIER_OK;
}

/* Gives back the counts of transfers that neither the connection nor a job has any more. */
static void give_back_counts(struct connection *connection)
{
    if (connection->counts_scan && !connection->scan) {
        account_give(connection->account, ACCOUNT_SCANS, 1);
        connection->counts_scan = false;
    }
    if (connection->counts_load && !connection->load) {
        account_give(connection->account, ACCOUNT_LOADS, 1);
        connection->counts_load = false;
    }
}

static struct job *final_job_of_scan(struct connection *connection)
{
    struct job *const job = TAKE(connection->scan_final_job);

    scan_job_close(job, TAKE(connection->scan));
    return job;
}

/* Returns the job that publishes the table, or abandons it. */
static struct job *final_job_of_load(struct connection *connection, bool publishes)
{
    struct job *const job = TAKE(connection->load_final_job);

    (publishes ? load_job_end : load_job_close)(job, TAKE(connection->load));
    return job;
}

/* Returns the account, opened again, in which a transfer counts until it is closed: that may take
 * long, and the connection may go before. */
static struct account *pass_count(struct control *control, const struct connection *connection,
                                  bool *counts)
{
    struct account *const account = account_open(control->parts->accounts, connection->user);

    assert(*counts && account == connection->account); /* it is open, so no memory is needed */
    *counts = false;
    return account;
}

static void submit_close(struct control *control, const struct connection *connection,
                         struct job *final)
{
    final->user = connection->user;
    final->uid = connection->peer_uid;
    final->pid = connection->peer_pid;
    control_submit_job(control, NULL, 0, final);
}

static void close_scan(struct control *control, struct connection *connection)
{
    struct job *final;

    if (!connection->scan || !connection->scan_final_job)
        return;
    final = final_job_of_scan(connection);
    scan_job_count(final, pass_count(control, connection, &connection->counts_scan));
    submit_close(control, connection, final);
}

static void close_load(struct control *control, struct connection *connection)
{
    struct job *final;

    if (!connection->load || !connection->load_final_job)
        return;
    final = final_job_of_load(connection, false);
    load_job_count(final, pass_count(control, connection, &connection->counts_load));
    submit_close(control, connection, final);
}

/* A transfer that comes back from a withdrawn job is closed when that job is over. */
void control_close_transfers(struct control *control, struct connection *connection)
{
    close_scan(control, connection);
    close_load(control, connection);
    if (!connection->job)
        give_back_counts(connection);
}

void control_close_cancelled(struct control *control, struct connection *connection)
{
    if (connection->scanning.ended == EMBTIER_CANCELLED)
        close_scan(control, connection);
    if (connection->loading.ended == EMBTIER_CANCELLED)
        close_load(control, connection);
    if (!connection->job)
        give_back_counts(connection);
}

/* Submits the first job of a transfer, whose number becomes the transfer's. */
static void submit_first(struct control *control, struct connection *connection, uint32_t id,
                         struct job *job, struct transfer *transfer)
{
    transfer->since_ns = clock_now_ns(&clock_monotonic);
    transfer->word = job->kind->word;
    control_submit_job(control, connection, id, job);
    transfer->job_id = job->id; /* this thread frees the job, and no other changes its id */
}

static void submit_step(struct control *control, struct connection *connection, uint32_t id,
                        struct job *job, const struct transfer *transfer)
{
    job->is_step = true;
    job->id = transfer->job_id;
    job->since_ns = transfer->since_ns;
    control_submit_job(control, connection, id, job);
}

void control_expire_transfers(struct control *control, struct connection *connection,
                              uint64_t now_ns)
{
    const uint64_t seconds = knobs_limit(control->parts->knobs, KNOB_TRANSFER_IDLE_SECONDS);

    if (connection->fd < 0 || connection->job || (!connection->scan && !connection->load) ||
        seconds == 0 || clock_since(now_ns, connection->heard_ns) < seconds * UINT64_C(1000000000))
        return;
    if (connection->scan)
        connection->scanning.ended = EMBTIER_TIMEOUT;
    if (connection->load)
        connection->loading.ended = EMBTIER_TIMEOUT;
    if (control_may_warn(control))
        log_warn("an import or export was ended: its client sent nothing",
                 "table=%s session=%" PRIu64 " %s user=%s seconds=%" PRIu64,
                 connection->load ? load_table(connection->load)->spec.name
                                  : scan_spec(connection->scan)->name,
                 connection->number, CONNECTION_ORIGIN(connection),
                 access_member_name(connection->member), seconds);
    control_close_transfers(control, connection);
}

/* Sets the error of a request for a transfer that the connection does not have. */
static enum embtier_err has_none(const struct control *control, enum embtier_err ended,
                                 const char *what, struct err_msg *msg)
{
    if (ended == EMBTIER_OK)
        return err_set(msg, EMBTIER_INVALID, "this connection has no %s open", what);
    if (ended == EMBTIER_CANCELLED)
        return err_set(msg, ended, "the %s was cancelled with `embtier jobs cancel`", what);
    return err_set(msg, EMBTIER_TIMEOUT,
                   "the server ended the %s: its client sent nothing for %" PRIu64 " seconds "
                   "(checkpoints.transfer_idle_seconds); start it again",
                   what, knobs_limit(control->parts->knobs, KNOB_TRANSFER_IDLE_SECONDS));
}

/* Keeps a final job that was withdrawn, so that it can end the transfer another time. */
void control_job_over(struct connection *connection, struct job *job)
{
    const enum job_transfer transfer = job->kind->transfer;

    if (transfer == TRANSFER_IMPORT && connection->load && !connection->load_final_job) {
        load_job_reset(job);
        connection->load_final_job = job;
    } else if (transfer == TRANSFER_EXPORT && connection->scan && !connection->scan_final_job) {
        scan_job_reset(job);
        connection->scan_final_job = job;
    } else {
        job_free(job);
    }
}

void control_transfer_done(struct connection *connection, struct job *job)
{
    struct scan *scan = NULL;
    struct load *load = NULL;

    if (job->kind->transfer == TRANSFER_EXPORT)
        scan = scan_job_take(job);
    else if (job->kind->transfer == TRANSFER_IMPORT)
        load = load_job_take(job);
    if (scan)
        connection->scan = scan;
    if (load)
        connection->load = load;
    give_back_counts(connection);
}

static void refuse_memory(struct control *control, struct connection *connection, uint32_t id)
{
    control_reply_error(control, connection, id, EMBTIER_NO_MEMORY, &(struct err_msg){ { 0 } });
}

/* ---- Scans ---- */

static bool ensure_scan_final_job(struct connection *connection)
{
    if (!connection->scan_final_job)
        connection->scan_final_job = scan_job_final();
    return connection->scan_final_job != NULL;
}

static void handle_scan_open(struct control *control, struct connection *connection, uint32_t id,
                             const Embtier__ScanOpen *wire)
{
    struct scan_order order = { .checkpoint_id = wire->checkpoint,
                                .with_state = wire->with_state,
                                .user = connection->user,
                                .all_rows = wire->all_rows };
    struct err_msg msg = { "this connection has a scan open" };
    enum embtier_err err = EMBTIER_BUSY;
    struct job *job;

    if (!connection->scan)
        err = ensure_scan_final_job(connection)
                  ? count_one(control, connection->account, ACCOUNT_SCANS, &connection->counts_scan,
                              &msg)
                  : err_set(&msg, EMBTIER_NO_MEMORY, "out of memory");
    if (err != EMBTIER_OK) {
        control_reply_error(control, connection, id, err, &msg);
        return;
    }
    strncpy(order.name, wire->table, sizeof(order.name) - 1);
    job = scan_job_open(&order);
    if (!job) {
        refuse_memory(control, connection, id);
        give_back_counts(connection);
        return;
    }
    connection->scanning = (struct transfer){ .job_id = 0 };
    submit_first(control, connection, id, job, &connection->scanning);
}

static void handle_scan_next(struct control *control, struct connection *connection, uint32_t id,
                             const Embtier__ScanNext *next)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err =
        session_check_bytes(connection->session, next->offset, next->bytes, &msg);
    struct job *job;

    if (err == EMBTIER_OK && !connection->scan)
        err = has_none(control, connection->scanning.ended, "scan", &msg);
    if (err != EMBTIER_OK) {
        control_reply_error(control, connection, id, err, &msg);
        return;
    }
    job = scan_job_next(connection->scan, connection->session->channel.region + next->offset,
                        next->bytes);
    if (!job) {
        refuse_memory(control, connection, id);
        return;
    }
    connection->scan = NULL;
    submit_step(control, connection, id, job, &connection->scanning);
}

static void handle_scan_close(struct control *control, struct connection *connection, uint32_t id)
{
    const struct control_client client = control_client(control, connection, id);

    if (connection->scan)
        submit_step(control, connection, id, final_job_of_scan(connection), &connection->scanning);
    else /* closed already */
        answer_scan_over(&client.client);
}

/* ---- Loads ---- */

static bool ensure_load_final_job(struct connection *connection)
{
    if (!connection->load_final_job)
        connection->load_final_job = load_job_final();
    return connection->load_final_job != NULL;
}

static void handle_load_open(struct control *control, struct connection *connection, uint32_t id,
                             const Embtier__LoadOpen *wire)
{
    struct err_msg msg = { { 0 } };
    struct load_order order = { .with_state = wire->with_state,
                                .row_count = wire->row_count,
                                .uid = connection->peer_uid,
                                .user = connection->user };
    enum embtier_err err = table_spec_from_wire(wire->spec, &order.spec, &msg);
    struct job *job;

    if (err == EMBTIER_OK && connection->load)
        err = err_set(&msg, EMBTIER_BUSY, "this connection already has a load open");
    if (err == EMBTIER_OK && !ensure_load_final_job(connection))
        err = err_set(&msg, EMBTIER_NO_MEMORY, "out of memory");
    if (err == EMBTIER_OK)
        err =
            count_one(control, connection->account, ACCOUNT_LOADS, &connection->counts_load, &msg);
    if (err != EMBTIER_OK) {
        control_reply_error(control, connection, id, err, &msg);
        return;
    }
    job = load_job_open(&order);
    if (!job) {
        refuse_memory(control, connection, id);
        give_back_counts(connection);
        return;
    }
    connection->loading = (struct transfer){ .rows = order.row_count };
    submit_first(control, connection, id, job, &connection->loading);
}

static enum embtier_err check_rows(const struct control *control,
                                   const struct connection *connection,
                                   const Embtier__LoadRows *wire, struct err_msg *msg)
{
    const uint64_t id_bytes = (uint64_t)wire->rows * sizeof(uint64_t);

    TRY(session_check_bytes(connection->session, wire->offset, wire->bytes, msg));
    if (!connection->load)
        return has_none(control, connection->loading.ended, "load", msg);
    if (id_bytes > wire->bytes || wire->rows_at > wire->bytes ||
        wire->rows > (wire->bytes - wire->rows_at) / load_row_bytes(connection->load))
        return err_set(msg, EMBTIER_OFFSET_RANGE,
                       "%" PRIu32 " rows and their ids do not fit in %" PRIu64 " bytes", wire->rows,
                       wire->bytes);
    return EMBTIER_OK;
}

static void handle_load_rows(struct control *control, struct connection *connection, uint32_t id,
                             const Embtier__LoadRows *wire)
{
    struct err_msg msg = { { 0 } };
    const enum embtier_err err = check_rows(control, connection, wire, &msg);
    struct load_batch batch;
    const uint8_t *bytes;
    struct job *job;

    if (err != EMBTIER_OK) {
        control_reply_error(control, connection, id, err, &msg);
        return;
    }
    bytes = connection->session->channel.region + wire->offset;
    batch = (struct load_batch){
        .ids = bytes,
        .rows = bytes + wire->rows_at,
        .row_bytes = load_row_bytes(connection->load),
        .count = wire->rows,
    };
    job = load_job_rows(connection->load, &batch, connection->loading.rows);
    if (!job) {
        refuse_memory(control, connection, id);
        return;
    }
    connection->load = NULL;
    submit_step(control, connection, id, job, &connection->loading);
}

/* Ends the load: publishes the table, or abandons it. */
static void handle_load_end(struct control *control, struct connection *connection, uint32_t id,
                            bool publishes)
{
    const struct control_client client = control_client(control, connection, id);
    struct err_msg msg = { { 0 } };

    if (connection->load)
        submit_step(control, connection, id, final_job_of_load(connection, publishes),
                    &connection->loading);
    else if (!publishes) /* closed already */
        answer_load_over(&client.client);
    else
        control_reply_error(control, connection, id,
                            has_none(control, connection->loading.ended, "load", &msg), &msg);
}

/* ---- Both ---- */

void control_handle_transfer(struct control *control, struct connection *connection,
                             const Embtier__Request *request)
{
    switch (request->body_case) {
    case EMBTIER__REQUEST__BODY_SCAN_OPEN:
        handle_scan_open(control, connection, request->id, request->scan_open);
        break;
    case EMBTIER__REQUEST__BODY_SCAN_NEXT:
        handle_scan_next(control, connection, request->id, request->scan_next);
        break;
    case EMBTIER__REQUEST__BODY_SCAN_CLOSE:
        handle_scan_close(control, connection, request->id);
        break;
    case EMBTIER__REQUEST__BODY_LOAD_OPEN:
        handle_load_open(control, connection, request->id, request->load_open);
        break;
    case EMBTIER__REQUEST__BODY_LOAD_ROWS:
        handle_load_rows(control, connection, request->id, request->load_rows);
        break;
    case EMBTIER__REQUEST__BODY_LOAD_END:
        handle_load_end(control, connection, request->id, true);
        break;
    default:
        handle_load_end(control, connection, request->id, false);
        break;
    }
}
