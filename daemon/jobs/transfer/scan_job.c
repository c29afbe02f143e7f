/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/transfer/scan_job.h"

#include <assert.h>
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/table/table_answer.h"
#include "proto/control.pb-c.h"

static struct scan_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct scan_job, job);
}

static void free_job(struct job *job)
{
    struct scan_job *const scan = of(job);

    if (scan->account) {
        account_give(scan->account, ACCOUNT_SCANS, 1);
        account_close(scan->account);
    }
    free(scan);
}

/* ---- Open ---- */

static enum embtier_err run_open(struct job *job, const struct job_parts *parts,
                                 const struct progress_sink *progress, struct err_msg *msg)
{
    struct checkpoints *const checkpoints = parts->checkpoints;

    (void)progress;
    return scan_open(checkpoints_store(checkpoints), checkpoints, checkpoints_memory(checkpoints),
                     &of(job)->order, &of(job)->scan, msg);
}

static enum embtier_err reply_open(struct job *job, const struct job_client *client,
                                   struct err_msg *msg)
{
    const struct scan *const scan = of(job)->scan;
    const struct table_info info = { .spec = *scan_spec(scan), .state = TABLE_LIVE };
    Embtier__ScanInfo body = EMBTIER__SCAN_INFO__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;
    Embtier__TableSpec spec;
    Embtier__TableInfo table;

    (void)msg;
    table_info_to_wire(&info, &spec, &table);
    body.checkpoint = scan_checkpoint(scan);
    body.table = &table;
    body.rows = scan_row_count(scan);
    reply.body_case = EMBTIER__REPLY__BODY_SCAN;
    reply.scan = &body;
    answer(client, &reply);
    return EMBTIER_OK;
}

const struct job_kind scan_open_job = {
    .word = "export",
    .line = LINE_SCANS,
    .transfer = TRANSFER_EXPORT,
    .run = run_open,
    .reply = reply_open,
    .free = free_job,
};

/* ---- Next ---- */

static enum embtier_err run_next(struct job *job, const struct job_parts *parts,
                                 const struct progress_sink *progress, struct err_msg *msg)
{
    struct scan_job *const next = of(job);

    (void)progress;
    return scan_fill(next->scan, next->dest, next->bytes, checkpoints_stopping(parts->checkpoints),
                     &next->filled, msg);
}

static void answer_rows(const struct job_client *client, const struct scan_filled *filled)
{
    Embtier__ScanRows body = EMBTIER__SCAN_ROWS__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    body.rows = filled->rows;
    body.first_id = filled->first_id;
    body.ids_at = filled->ids_at;
    body.rows_at = filled->rows_at;
    reply.body_case = EMBTIER__REPLY__BODY_SCAN_ROWS;
    reply.scan_rows = &body;
    answer(client, &reply);
}

void answer_scan_over(const struct job_client *client)
{
    answer_rows(client, &(struct scan_filled){ 0 });
}

static enum embtier_err reply_rows(struct job *job, const struct job_client *client,
                                   struct err_msg *msg)
{
    (void)msg;
    answer_rows(client, &of(job)->filled);
    return EMBTIER_OK;
}

const struct job_kind scan_next_job = {
    .word = "export",
    .line = LINE_SCANS,
    .transfer = TRANSFER_EXPORT,
    .uses_arena = true,
    .run = run_next,
    .reply = reply_rows,
    .free = free_job,
};

/* ---- Close ---- */

static enum embtier_err run_close(struct job *job, const struct job_parts *parts,
                                  const struct progress_sink *progress, struct err_msg *msg)
{
    (void)parts, (void)msg, (void)progress;
    scan_free(TAKE(of(job)->scan));
    return EMBTIER_OK;
}

const struct job_kind scan_close_job = {
    .word = "export",
    .line = LINE_SCANS,
    .transfer = TRANSFER_EXPORT,
    .stays = true,
    .run = run_close,
    .reply = reply_rows,
    .free = free_job,
};

/* ---- Making them ---- */

struct job *scan_job_open(const struct scan_order *order)
{
    struct scan_job *const open = calloc(1, sizeof(*open));

    if (!open)
        return NULL;
    open->job.kind = &scan_open_job;
    open->order = *order;
    job_set_table(&open->job, order->name);
    return &open->job;
}

struct job *scan_job_next(struct scan *scan, void *dest, uint64_t bytes)
{
    struct scan_job *const next = calloc(1, sizeof(*next));

    if (!next)
        return NULL;
    next->job.kind = &scan_next_job;
    next->scan = scan;
    next->dest = dest;
    next->bytes = bytes;
    job_set_table(&next->job, scan_spec(scan)->name);
    return &next->job;
}

struct job *scan_job_final(void)
{
    struct scan_job *const final = calloc(1, sizeof(*final));

    if (!final)
        return NULL;
    final->job.kind = &scan_close_job;
    return &final->job;
}

void scan_job_close(struct job *job, struct scan *scan)
{
    of(job)->scan = scan;
    job_set_table(job, scan_spec(scan)->name);
}

void scan_job_reset(struct job *job)
{
    *of(job) = (struct scan_job){ .job.kind = &scan_close_job };
}

void scan_job_count(struct job *job, struct account *account)
{
    of(job)->account = account;
}

struct scan *scan_job_take(struct job *job)
{
    assert(job->kind->transfer == TRANSFER_EXPORT);
    return TAKE(of(job)->scan);
}
