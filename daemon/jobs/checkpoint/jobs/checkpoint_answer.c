/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/checkpoint/jobs/checkpoint_answer.h"

#include <stdlib.h>

#include "base/macros.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "proto/control.pb-c.h"

/* Borrows the texts of @info. */
static void fill_checkpoint(struct checkpoint_info *info, struct checkpoint_tables *tables,
                            Embtier__Checkpoint *ret_wire)
{
    embtier__checkpoint__init(ret_wire);
    ret_wire->id = info->id;
    ret_wire->created_ms = info->created_ms;
    ret_wire->automatic = info->automatic;
    if (info->has_step) {
        ret_wire->step_given_case = EMBTIER__CHECKPOINT__STEP_GIVEN_STEP;
        ret_wire->step = info->step;
    }
    ret_wire->metadata = info->metadata;
    ret_wire->uid = info->uid;
    ret_wire->user = info->user;
    ret_wire->table_count = info->table_count;
    ret_wire->bytes = info->bytes;
    ret_wire->new_bytes = info->new_bytes;
    ret_wire->pause_us = info->pause_us;
    ret_wire->tries = info->tries;
    ret_wire->cut_updates = info->cut_updates;
    ret_wire->held_rows = info->held_rows;
    ret_wire->spent_ms = info->spent_ms;
    if (tables) {
        ret_wire->tables = tables->names;
        ret_wire->n_tables = tables->count;
        ret_wire->more_tables = tables->more;
    }
}

void answer_checkpoint(const struct job_client *client, struct checkpoint_info *info,
                       struct checkpoint_tables *tables)
{
    Embtier__Reply reply = EMBTIER__REPLY__INIT;
    Embtier__Checkpoint body;

    fill_checkpoint(info, tables, &body);
    reply.body_case = EMBTIER__REPLY__BODY_CHECKPOINT;
    reply.checkpoint = &body;
    answer(client, &reply);
}

static void fill_listed(void *item, void *wire)
{
    fill_checkpoint(item, NULL, wire);
}

enum embtier_err answer_checkpoints(const struct job_client *client, struct checkpoint_page *listed,
                                    struct err_msg *msg)
{
    const struct page page = { .items = listed->infos,
                               .item_bytes = sizeof(*listed->infos),
                               .wire_bytes = sizeof(Embtier__Checkpoint),
                               .fill = fill_listed,
                               .count = listed->count,
                               .more = listed->more };
    Embtier__CheckpointListReply body = EMBTIER__CHECKPOINT_LIST_REPLY__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;
    _cleanup_(freep) void **pointers = NULL;

    TRY(page_new(&page, client->knows_pages, &pointers, msg));
    body.n_checkpoints = listed->count;
    body.checkpoints = (Embtier__Checkpoint **)pointers;
    body.more = listed->more;
    reply.body_case = EMBTIER__REPLY__BODY_CHECKPOINT_LIST;
    reply.checkpoint_list = &body;
    answer(client, &reply);
    return EMBTIER_OK;
}
