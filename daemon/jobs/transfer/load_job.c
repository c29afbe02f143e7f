/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/transfer/load_job.h"

#include <assert.h>
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/table/table_answer.h"
#include "proto/control.pb-c.h"

static struct load_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct load_job, job);
}

static void free_job(struct job *job)
{
    struct load_job *const load = of(job);

    if (load->account) {
        account_give(load->account, ACCOUNT_LOADS, 1);
        account_close(load->account);
    }
    free(load);
}

/* ---- Open ---- */

static const char *opened_table(const struct job *job, uint32_t i)
{
    return i == 0 ? of(job)->order.spec.name : NULL;
}

static enum embtier_err run_open(struct job *job, const struct job_parts *parts,
                                 const struct progress_sink *progress, struct err_msg *msg)
{
    (void)progress;
    return load_open(parts->tables, checkpoints_memory(parts->checkpoints), &of(job)->order,
                     &of(job)->load, msg);
}

static enum embtier_err reply_open(struct job *job, const struct job_client *client,
                                   struct err_msg *msg)
{
    (void)msg;
    answer_table(client, load_table(of(job)->load));
    return EMBTIER_OK;
}

const struct job_kind load_open_job = {
    .word = "import",
    .line = LINE_TABLES,
    .transfer = TRANSFER_IMPORT,
    .table = opened_table,
    .run = run_open,
    .reply = reply_open,
    .free = free_job,
};

/* ---- Rows ---- */

static enum embtier_err run_rows(struct job *job, const struct job_parts *parts,
                                 const struct progress_sink *progress, struct err_msg *msg)
{
    (void)parts;
    return load_add(of(job)->load, &of(job)->batch, progress, msg);
}

static bool has_more_rows(const struct job *job)
{
    return of(job)->batch.count > 0;
}

static void answer_rows(const struct job_client *client, uint64_t rows)
{
    Embtier__LoadedRows body = EMBTIER__LOADED_ROWS__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    body.rows = rows;
    reply.body_case = EMBTIER__REPLY__BODY_LOADED_ROWS;
    reply.loaded_rows = &body;
    answer(client, &reply);
}

void answer_load_over(const struct job_client *client)
{
    answer_rows(client, 0);
}

static enum embtier_err reply_rows(struct job *job, const struct job_client *client,
                                   struct err_msg *msg)
{
    (void)msg;
    answer_rows(client, load_rows(of(job)->load));
    return EMBTIER_OK;
}

const struct job_kind load_rows_job = {
    .word = "import",
    .line = LINE_LOADS,
    .transfer = TRANSFER_IMPORT,
    .stops = true,
    .uses_arena = true,
    .run = run_rows,
    .has_more = has_more_rows,
    .reply = reply_rows,
    .free = free_job,
};

/* ---- End ---- */

static enum embtier_err run_end(struct job *job, const struct job_parts *parts,
                                const struct progress_sink *progress, struct err_msg *msg)
{
    struct load *const load = TAKE(of(job)->load);
    const enum embtier_err err =
        load_publish(load, parts->checkpoints, progress, &of(job)->info, msg);

    load_free(load);
    return err;
}

static enum embtier_err reply_end(struct job *job, const struct job_client *client,
                                  struct err_msg *msg)
{
    (void)msg;
    answer_table(client, &of(job)->info);
    return EMBTIER_OK;
}

const struct job_kind load_end_job = {
    .word = "import",
    .line = LINE_ENDS,
    .transfer = TRANSFER_IMPORT,
    .publishes = true,
    .stops = true,
    .run = run_end,
    .reply = reply_end,
    .free = free_job,
};

/* ---- Close ---- */

static enum embtier_err run_close(struct job *job, const struct job_parts *parts,
                                  const struct progress_sink *progress, struct err_msg *msg)
{
    (void)parts, (void)msg, (void)progress;
    load_free(TAKE(of(job)->load));
    return EMBTIER_OK;
}

static enum embtier_err reply_close(struct job *job, const struct job_client *client,
                                    struct err_msg *msg)
{
    (void)job, (void)msg;
    answer_load_over(client);
    return EMBTIER_OK;
}

const struct job_kind load_close_job = {
    .word = "import",
    .line = LINE_DROPS,
    .transfer = TRANSFER_IMPORT,
    .stays = true,
    .run = run_close,
    .reply = reply_close,
    .free = free_job,
};

/* ---- Making them ---- */

struct job *load_job_open(const struct load_order *order)
{
    struct load_job *const open = calloc(1, sizeof(*open));

    if (!open)
        return NULL;
    open->job.kind = &load_open_job;
    open->order = *order;
    job_set_table(&open->job, order->spec.name);
    return &open->job;
}

struct job *load_job_rows(struct load *load, const struct load_batch *batch, uint64_t total)
{
    struct load_job *const rows = calloc(1, sizeof(*rows));

    if (!rows)
        return NULL;
    rows->job.kind = &load_rows_job;
    rows->job.moved =
        (struct job_progress){ .done = load_rows(load), .total = total, .unit = "rows" };
    rows->load = load;
    rows->batch = *batch;
    job_set_table(&rows->job, load_table(load)->spec.name);
    return &rows->job;
}

struct job *load_job_final(void)
{
    struct load_job *const final = calloc(1, sizeof(*final));

    if (!final)
        return NULL;
    final->job.kind = &load_close_job;
    return &final->job;
}

static void set_final(struct job *job, const struct job_kind *kind, struct load *load)
{
    job->kind = kind;
    of(job)->load = load;
    job_set_table(job, load_table(load)->spec.name);
}

void load_job_end(struct job *job, struct load *load)
{
    set_final(job, &load_end_job, load);
}

void load_job_close(struct job *job, struct load *load)
{
    set_final(job, &load_close_job, load);
}

void load_job_reset(struct job *job)
{
    *of(job) = (struct load_job){ .job.kind = &load_close_job };
}

void load_job_count(struct job *job, struct account *account)
{
    of(job)->account = account;
}

struct load *load_job_take(struct job *job)
{
    assert(job->kind->transfer == TRANSFER_IMPORT);
    return TAKE(of(job)->load);
}
