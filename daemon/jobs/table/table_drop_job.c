/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/table/table_drop_job.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/table/table_answer.h"
#include "proto/control.pb-c.h"

struct table_drop_job {
    struct job job;
    char name[EMBTIER_TABLE_NAME_MAX + 1];
    struct table_info info; /* the result */
};

static struct table_drop_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct table_drop_job, job);
}

static const char *table(const struct job *job, uint32_t i)
{
    return i == 0 ? of(job)->name : NULL;
}

static enum embtier_err run(struct job *job, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg)
{
    struct table_drop_job *const drop = of(job);

    return tables_drop(parts->tables, drop->name, progress, &drop->info, msg);
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

static const struct job_kind drop_kind = {
    .word = "table drop",
    .line = LINE_DROPS,
    .table = table,
    .run = run,
    .reply = reply,
    .free = free_job,
};

enum embtier_err table_drop_job_new(const struct job_request *request, struct job **ret_job,
                                    struct err_msg *msg)
{
    struct table_drop_job *drop;
    struct table_info info;

    TRY(tables_find(request->parts->tables, request->wire->table_drop->name, &info, msg));
    drop = calloc(1, sizeof(*drop));
    if (!drop)
        return EMBTIER_NO_MEMORY;
    drop->job.kind = &drop_kind;
    memcpy(drop->name, info.spec.name, sizeof(drop->name));
    job_set_table(&drop->job, drop->name);
    tables_end_move(request->parts->tables, drop->name); /* it would keep the drop waiting */
    *ret_job = &drop->job;
    return EMBTIER_OK;
}
