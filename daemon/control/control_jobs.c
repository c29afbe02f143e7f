/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as clients see them: lists those that wait or run, and cancels one. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "daemon/access/access.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/jobs/transfer/load.h"
#include "daemon/jobs/transfer/scan.h"
#include "daemon/jobs/worker.h"
#include "proto/frame.h"

/* A job, and the name of its user in the access file. */
struct named_job {
    struct job_info info;
    char user[ACCESS_NAME_MAX + 1]; /* "": a Unix user's */
};

/* Borrows the item. */
static void fill_job(void *item, void *wire)
{
    struct named_job *const named = item;
    struct job_info *const info = &named->info;
    Embtier__Job *const job = wire;

    embtier__job__init(job);
    job->id = info->id;
    job->kind = (char *)(uintptr_t)info->kind;
    job->what = info->what;
    job->uid = (uint32_t)info->uid;
    job->pid = (uint64_t)info->pid;
    job->is_own = info->is_own;
    job->runs = info->runs;
    job->age_ms = info->age_ms;
    job->done = info->progress.done;
    job->total = info->progress.total;
    if (info->progress.unit)
        job->unit = (char *)(uintptr_t)info->progress.unit;
    job->user = named->user;
}

/* Returns the jobs with the names of their users, malloced, or NULL. */
static struct named_job *name_users(struct control *control, const struct job_info *infos,
                                    uint32_t count)
{
    struct named_job *const jobs = calloc((size_t)count + 1, sizeof(*jobs));

    for (uint32_t i = 0; jobs && i < count; i++) {
        jobs[i].info = infos[i];
        if (!infos[i].is_own)
            access_account_name(control->parts->access, infos[i].user, jobs[i].user);
    }
    return jobs;
}

static void reply_jobs(struct control *control, struct connection *connection, uint32_t id,
                       struct named_job *jobs, uint32_t count, bool more)
{
    const struct page page = { .items = jobs,
                               .item_bytes = sizeof(*jobs),
                               .wire_bytes = sizeof(Embtier__Job),
                               .fill = fill_job,
                               .count = count,
                               .more = more };
    Embtier__JobListReply body = EMBTIER__JOB_LIST_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    _cleanup_(freep) void **pointers = control_new_page(control, connection, id, &page);

    if (!pointers)
        return;
    body.n_jobs = count;
    body.jobs = (Embtier__Job **)pointers;
    body.more = more;
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_JOB_LIST;
    message.job_list = &body;
    control_reply(control, connection, &message);
}

/* Describes a transfer between two of its jobs, or after one that has ended unknown
 * to this thread. */
static struct job_info describe_transfer(const struct connection *connection,
                                         const struct transfer *transfer)
{
    const struct job *const job = connection->job;
    const bool loads = transfer == &connection->loading;
    const char *name = job ? job->what : "";
    struct job_info info = {
        .id = transfer->job_id,
        .kind = transfer->word,
        .user = connection->user,
        .uid = connection->peer_uid,
        .pid = connection->peer_pid,
        .runs = true,
        .age_ms = clock_since(clock_now_ns(&clock_monotonic), transfer->since_ns) / 1000000,
    };

    if (loads && connection->load) {
        name = load_table(connection->load)->spec.name;
        info.progress =
            (struct job_progress){ load_rows(connection->load), transfer->rows, "rows" };
    } else if (!loads && connection->scan) {
        name = scan_spec(connection->scan)->name;
    } else if (job && job->is_step) {
        info.progress = job->moved;
    }
    if (table_name_is_valid(name))
        snprintf(info.what, sizeof(info.what), "%s", name);
    return info;
}

struct list {
    uint64_t user; /* whose jobs are listed; UINT64_MAX: those of all */
    struct job_info *infos;
    uint32_t count;
    uint32_t jobs; /* how many of them are the worker's, which are in order */
    uint64_t after;
};

static bool sees(const struct list *list, uint64_t user)
{
    return list->user == UINT64_MAX || list->user == user;
}

/* Leaves out the jobs of others, and returns how many are left. */
static uint32_t keep_seen(const struct list *list, struct job_info *infos, uint32_t count)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (sees(list, infos[i].user) && (list->user == UINT64_MAX || !infos[i].is_own))
            infos[kept++] = infos[i];
    return kept;
}

/* Takes the worker's next page of which the client may see some jobs, or the last page. */
static enum embtier_err take_jobs(struct control *control, struct list *list, uint32_t most,
                                  bool *ret_more)
{
    uint64_t after = list->after;
    uint32_t found = 0;

    do {
        free(TAKE(list->infos));
        TRY(worker_list(control->worker, after, most, &list->infos, &found, ret_more));
        if (found > 0)
            after = list->infos[found - 1].id;
        list->jobs = keep_seen(list, list->infos, found);
    } while (list->jobs == 0 && *ret_more);
    list->count = list->jobs;
    return EMBTIER_OK;
}

static bool has_id(const struct list *list, uint64_t id)
{
    const struct job_info wanted = { .id = id };

    return list->jobs > 0 &&
           bsearch(&wanted, list->infos, list->jobs, sizeof(wanted), job_info_compare);
}

static bool add_one(struct list *list, const struct connection *connection,
                    const struct transfer *transfer, bool is_open)
{
    struct job_info *larger;

    if (!is_open || transfer->job_id <= list->after || has_id(list, transfer->job_id))
        return true;
    larger = realloc(list->infos, ((size_t)list->count + 1) * sizeof(*larger));
    if (!larger)
        return false;
    list->infos = larger;
    larger[list->count++] = describe_transfer(connection, transfer);
    return true;
}

/* Adds the transfers of which the worker has no job just now. */
static enum embtier_err add_transfers(const struct control *control, struct list *list)
{
    for (const struct connection *c = control->connections; c; c = c->next)
        if (c->fd >= 0 && sees(list, c->user) &&
            (!add_one(list, c, &c->scanning, c->counts_scan) ||
             !add_one(list, c, &c->loading, c->counts_load)))
            return EMBTIER_NO_MEMORY;
    if (list->count > list->jobs)
        qsort(list->infos, list->count, sizeof(*list->infos), job_info_compare);
    return EMBTIER_OK;
}

static void handle_list(struct control *control, struct connection *connection, uint32_t id,
                        const Embtier__JobList *wire)
{
    const uint32_t most = control_page(wire ? wire->most : 0);
    struct list list = {
        .user = control_sees_all(control, connection) ? UINT64_MAX : connection->user,
        .after = wire ? wire->after : 0,
    };
    _cleanup_(freep) struct named_job *jobs = NULL;
    bool more = false;
    enum embtier_err err = take_jobs(control, &list, most, &more);

    if (err == EMBTIER_OK)
        err = add_transfers(control, &list);
    if (err == EMBTIER_OK)
        jobs = name_users(control, list.infos, MIN(list.count, most));
    if (jobs)
        reply_jobs(control, connection, id, jobs, MIN(list.count, most), more || list.count > most);
    else
        control_reply_error(control, connection, id, err == EMBTIER_OK ? EMBTIER_NO_MEMORY : err,
                            &(struct err_msg){ { 0 } });
    free(list.infos);
}

/* ---- Transfers ---- */

/* Finds the connection whose transfer has that number, and which of its transfers it is. */
static struct connection *find_transfer(const struct control *control, uint64_t job_id,
                                        struct transfer **ret_transfer)
{
    for (struct connection *c = control->connections; c; c = c->next) {
        const bool loads = c->counts_load && c->loading.job_id == job_id;

        if (c->fd < 0 || (!loads && !(c->counts_scan && c->scanning.job_id == job_id)))
            continue;
        *ret_transfer = loads ? &c->loading : &c->scanning;
        return c;
    }
    return NULL;
}

/* Cancels a transfer. A step that cannot stop goes on to its end, and the transfer ends with it. If
 * the job that publishes the table cannot be cancelled, the client gets that error. */
static enum embtier_err cancel_transfer(struct control *control, struct connection *connection,
                                        struct transfer *transfer, const struct connection *asker,
                                        bool *ret_waited, struct err_msg *msg)
{
    const struct job *const job = connection->job;
    const bool steps = job && job->id == transfer->job_id;
    struct err_msg why = { { 0 } };
    bool waited = false;
    enum embtier_err err;

    *ret_waited = false;
    transfer->ended = EMBTIER_CANCELLED;
    if (!steps) {
        control_close_cancelled(control, connection);
        return EMBTIER_OK;
    }
    err = worker_cancel(control->worker, transfer->job_id, asker->user, true, &waited, &why);
    *ret_waited = waited && !job->is_step;
    if (err == EMBTIER_OK || !job->kind->publishes)
        return EMBTIER_OK;
    *msg = why;
    return err;
}

static void handle_cancel(struct control *control, struct connection *connection, uint32_t id,
                          uint64_t job_id)
{
    const bool may_all = control_may_all(control, connection);
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    Embtier__Job job = EMBTIER__JOB__INIT;
    struct err_msg msg = { { 0 } };
    struct transfer *transfer = NULL;
    struct connection *const owner = find_transfer(control, job_id, &transfer);
    bool waited = false;
    enum embtier_err err;

    if (!owner)
        err = worker_cancel(control->worker, job_id, connection->user, may_all, &waited, &msg);
    else if (!may_all && owner->user != connection->user)
        err = job_refuse_cancel(job_id, &msg);
    else
        err = cancel_transfer(control, owner, transfer, connection, &waited, &msg);
    if (err != EMBTIER_OK) {
        control_reply_error(control, connection, id, err, &msg);
        return;
    }
    job.id = job_id;
    job.runs = !waited;
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_JOB;
    message.job = &job;
    control_reply(control, connection, &message);
}

void control_handle_jobs(struct control *control, struct connection *connection,
                         const Embtier__Request *request)
{
    if (request->body_case == EMBTIER__REQUEST__BODY_JOB_LIST)
        handle_list(control, connection, request->id, request->job_list);
    else
        handle_cancel(control, connection, request->id, request->job_cancel->id);
}
