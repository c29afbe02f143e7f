/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/restore/restore_job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/restore/restore.h"
#include "daemon/jobs/table/table_answer.h"
#include "proto/control.pb-c.h"

struct restore_job {
    struct job job;
    struct restore_order order;
    struct restored_tables restored; /* the result */
};

static struct restore_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct restore_job, job);
}

/* Returns no names if all tables are restored, because their names are not known yet. */
static const char *table(const struct job *job, uint32_t i)
{
    const struct restore_order *const order = &of(job)->order;

    if (order->new_name)
        return i == 0 ? order->new_name : NULL;
    return i < order->name_count ? order->names[i] : NULL;
}

static enum embtier_err run(struct job *job, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg)
{
    struct restore_job *const restore = of(job);

    return restore_checkpoint(parts->checkpoints, &restore->order, progress, &restore->restored,
                              msg);
}

static enum embtier_err reply(struct job *job, const struct job_client *client, struct err_msg *msg)
{
    const struct restored_tables *const restored = &of(job)->restored;
    const uint32_t count = MIN(restored->count, (uint32_t)ANSWER_PAGE_MOST);

    if (count < restored->count && !client->knows_pages)
        return err_set(msg, EMBTIER_VERSION,
                       "all tables are restored, but their list does not fit into one answer, and "
                       "this version of the client cannot ask for the rest: use a newer client");
    return answer_tables(client, restored->infos, count, count < restored->count, msg);
}

static void free_job(struct job *job)
{
    struct restore_job *const restore = of(job);

    restore_order_clear(&restore->order);
    free(restore->restored.infos);
    free(restore);
}

static const struct job_kind restore_kind = {
    .word = "checkpoint restore",
    .line = LINE_FILLS,
    .stops = true,
    .table = table,
    .run = run,
    .reply = reply,
    .free = free_job,
};

/* Jobs are compared by table names, and the names are listed. So a job has at most this many, and
 * all are valid. */
#define RESTORE_NAMES_MAX 1024

static enum embtier_err copy_order(const Embtier__CheckpointRestore *wire,
                                   struct restore_order *order, struct err_msg *msg)
{
    if (wire->n_tables > RESTORE_NAMES_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%zu tables are named, and at most %d may be: restore the others with "
                       "another call, or name none to restore all",
                       wire->n_tables, RESTORE_NAMES_MAX);
    order->id = wire->id;
    order->names = calloc(wire->n_tables + 1, sizeof(*order->names));
    if (!order->names)
        return EMBTIER_NO_MEMORY;
    for (size_t i = 0; i < wire->n_tables; i++) {
        if (!table_name_is_valid(wire->tables[i]))
            return err_set(msg, EMBTIER_NO_TABLE,
                           "checkpoint %" PRIu64
                           " has no table '%s': `embtier checkpoint show %" PRIu64
                           "` lists its tables",
                           wire->id, wire->tables[i], wire->id);
        order->names[i] = strdup(wire->tables[i]);
        if (!order->names[i])
            return EMBTIER_NO_MEMORY;
        order->name_count++;
    }
    if (wire->name[0] != '\0' && !(order->new_name = strdup(wire->name)))
        return EMBTIER_NO_MEMORY;
    return EMBTIER_OK;
}

enum embtier_err restore_job_new(const struct job_request *request, struct job **ret_job,
                                 struct err_msg *msg)
{
    struct restore_job *const restore = calloc(1, sizeof(*restore));
    enum embtier_err err;

    if (!restore)
        return EMBTIER_NO_MEMORY;
    restore->job.kind = &restore_kind;
    err = copy_order(request->wire->checkpoint_restore, &restore->order, msg);
    if (err != EMBTIER_OK) {
        free_job(&restore->job);
        return err;
    }
    restore->order.uid = request->uid;
    job_set_checkpoint(&restore->job, restore->order.id);
    if (table(&restore->job, 0))
        job_set_table(&restore->job, table(&restore->job, 0));
    *ret_job = &restore->job;
    return EMBTIER_OK;
}
