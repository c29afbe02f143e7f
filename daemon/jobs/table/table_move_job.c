/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/table/table_move_job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "base/spec/home_rules.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/table/table_answer.h"
#include "proto/control.pb-c.h"

struct table_move_job {
    struct job job;
    char name[EMBTIER_TABLE_NAME_MAX + 1];
    char tier[TIER_NAME_MAX + 2]; /* a name that is too long is cut to one that is still too long */
    struct table_move_opts opts;
    struct table_moved moved; /* the result */
};

static struct table_move_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct table_move_job, job);
}

static const char *table(const struct job *job, uint32_t i)
{
    return i == 0 ? of(job)->name : NULL;
}

static enum embtier_err run(struct job *job, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg)
{
    struct table_move_job *const move = of(job);

    return tables_move(parts->tables, &move->opts, progress, &move->moved, msg);
}

static enum embtier_err reply(struct job *job, const struct job_client *client, struct err_msg *msg)
{
    const struct table_moved *const moved = &of(job)->moved;
    Embtier__TableSpec spec;
    Embtier__TableInfo info;
    Embtier__TableMoved body = EMBTIER__TABLE_MOVED__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    (void)msg;
    table_info_to_wire(&moved->info, &spec, &info);
    body.table = &info;
    body.rows = moved->rows;
    body.was_there = moved->was_there;
    message.body_case = EMBTIER__REPLY__BODY_TABLE_MOVED;
    message.table_moved = &body;
    answer(client, &message);
    return EMBTIER_OK;
}

static void free_job(struct job *job)
{
    free(of(job));
}

static const struct job_kind move_kind = {
    .word = "table move",
    .line = LINE_MOVES,
    .stops = true,
    .table = table,
    .run = run,
    .reply = reply,
    .free = free_job,
};

/* The same with ids of hot rows in the client's arena, which the job reads at its beginning. */
static const struct job_kind split_kind = {
    .word = "table move",
    .line = LINE_MOVES,
    .stops = true,
    .uses_arena = true,
    .table = table,
    .run = run,
    .reply = reply,
    .free = free_job,
};

/* Finds the ids of hot rows in the client's arena. */
static enum embtier_err find_hot_ids(const struct job_request *request, struct hot_ids *ret_ids,
                                     struct err_msg *msg)
{
    const Embtier__TableMove *const wire = request->wire->table_move;

    if (wire->hot_rows > UINT64_MAX / sizeof(uint64_t))
        return err_set(msg, EMBTIER_OFFSET_RANGE, "%" PRIu64 " hot rows do not lie in any arena",
                       wire->hot_rows);
    TRY(session_check_bytes(request->session, wire->hot_rows_at, wire->hot_rows * sizeof(uint64_t),
                            msg));
    *ret_ids =
        (struct hot_ids){ request->session->channel.region + wire->hot_rows_at, wire->hot_rows };
    return EMBTIER_OK;
}

enum embtier_err table_move_job_new(const struct job_request *request, struct job **ret_job,
                                    struct err_msg *msg)
{
    const Embtier__TableMove *const wire = request->wire->table_move;
    _cleanup_(freep) struct table_move_job *move = calloc(1, sizeof(*move));

    if (!move)
        return EMBTIER_NO_MEMORY;
    if (wire->home > INT32_MAX)
        return err_set(msg, EMBTIER_INVALID, "home %u is not known", wire->home);
    move->job.kind = &move_kind;
    snprintf(move->name, sizeof(move->name), "%s", wire->name);
    snprintf(move->tier, sizeof(move->tier), "%s", wire->home_tier);
    move->opts = (struct table_move_opts){ .name = move->name,
                                           .home = (enum embtier_home)wire->home,
                                           .tier = move->tier,
                                           .rate_bytes = wire->rate_bytes };
    if (home_has_hot_rows((int)wire->home) && wire->hot_rows > 0) {
        move->job.kind = &split_kind;
        TRY(find_hot_ids(request, &move->opts.hot, msg));
    }
    TRY(tables_check_move(request->parts->tables, &move->opts, msg));
    job_set_table(&move->job, move->name);
    *ret_job = &TAKE(move)->job;
    return EMBTIER_OK;
}
