/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/table/table_create_job.h"

#include <stdlib.h>

#include "base/macros.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/table/table_answer.h"
#include "proto/control.pb-c.h"
#include "proto/table_spec_wire.h"

struct table_create_job {
    struct job job;
    struct table_spec spec;
    bool if_not_exists;
    bool makes_none;        /* the client may not: the table must be there */
    struct err_msg refusal; /* then, if it is not */
    struct table_info info; /* the result */
};

static struct table_create_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct table_create_job, job);
}

static const char *table(const struct job *job, uint32_t i)
{
    return i == 0 ? of(job)->spec.name : NULL;
}

/* The table was there when the client asked for it. */
static enum embtier_err find(struct table_create_job *create, const struct job_parts *parts,
                             struct err_msg *msg)
{
    const enum embtier_err err =
        tables_find_equal(parts->tables, &create->spec, &create->info, msg);

    return err == EMBTIER_NO_TABLE ? err_set(msg, EMBTIER_PERMISSION, "%s", create->refusal.text)
                                   : err;
}

static enum embtier_err run(struct job *job, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg)
{
    struct table_create_job *const create = of(job);

    if (create->makes_none)
        return find(create, parts, msg);
    return tables_create(parts->tables, &create->spec, job->uid, create->if_not_exists, progress,
                         &create->info, msg);
}

static enum embtier_err reply(struct job *job, const struct job_client *client, struct err_msg *msg)
{
    (void)msg;
    answer_table(client, &of(job)->info);
    return EMBTIER_OK;
}

static void free_job(struct job *job)
{
    free(of(job));
}

static const struct job_kind create_kind = {
    .word = "table create",
    .line = LINE_TABLES,
    .table = table,
    .run = run,
    .reply = reply,
    .free = free_job,
};

static const struct job_kind fill_kind = {
    .word = "table create",
    .line = LINE_FILLS,
    .stops = true,
    .table = table,
    .run = run,
    .reply = reply,
    .free = free_job,
};

enum embtier_err table_create_job_new(const struct job_request *request, struct job **ret_job,
                                      struct err_msg *msg)
{
    const Embtier__TableCreate *const wire = request->wire->table_create;
    _cleanup_(freep) struct table_create_job *create = calloc(1, sizeof(*create));

    if (!create)
        return EMBTIER_NO_MEMORY;
    TRY(table_spec_from_wire(wire->spec, &create->spec, msg));
    create->job.kind = create->spec.eager ? &fill_kind : &create_kind;
    create->if_not_exists = wire->if_not_exists;
    create->makes_none = request->refusal != NULL;
    if (request->refusal)
        create->refusal = *request->refusal;
    job_set_table(&create->job, create->spec.name);
    *ret_job = &TAKE(create)->job;
    return EMBTIER_OK;
}
