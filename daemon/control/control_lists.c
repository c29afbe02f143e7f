/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that are lists. None is longer than a page, so that no client has the server keep more
 * for it (ACCOUNT_ANSWER_BYTES); it asks again for what comes after the page. */
#include <stddef.h>
#include <stdlib.h>

#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/engine/sessions/accounts.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/worker.h"
#include "proto/frame.h"

uint32_t control_page(uint32_t most)
{
    return most == 0 ? CONTROL_PAGE_MOST : MIN(most, (uint32_t)CONTROL_PAGE_MOST);
}

void **control_new_page(struct control *control, struct connection *connection, uint32_t id,
                        const struct page *page)
{
    const size_t pointer_bytes = align_up(page->count * sizeof(void *) + 1, _Alignof(max_align_t));
    void **pointers = NULL;
    struct err_msg msg = { { 0 } };

    if (page->more && !connection->knows_pages) {
        err_write(&msg, "the list is longer than one answer, and the client's version does not ask "
                        "for the rest: use a newer one");
        control_reply_error(control, connection, id, EMBTIER_VERSION, &msg);
        return NULL;
    }
    pointers = calloc(1, pointer_bytes + page->count * page->wire_bytes);
    if (!pointers) {
        control_reply_error(control, connection, id, EMBTIER_NO_MEMORY, &msg);
        return NULL;
    }
    for (uint32_t i = 0; i < page->count; i++) {
        pointers[i] = (char *)pointers + pointer_bytes + i * page->wire_bytes;
        page->fill((char *)page->items + i * page->item_bytes, pointers[i]);
    }
    return pointers;
}

/* ---- Tables ---- */

struct table_wire {
    Embtier__TableInfo info; /* first */
    Embtier__TableSpec spec;
};

static void fill_table(void *item, void *wire)
{
    struct table_wire *const table = wire;

    control_fill_table(item, &table->spec, &table->info);
}

static void reply_tables(struct control *control, struct connection *connection, uint32_t id,
                         struct table_info *infos, uint32_t count, bool more)
{
    const struct page page = { .items = infos,
                               .item_bytes = sizeof(*infos),
                               .wire_bytes = sizeof(struct table_wire),
                               .fill = fill_table,
                               .count = count,
                               .more = more };
    Embtier__TableListReply body = EMBTIER__TABLE_LIST_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    _cleanup_(freep) void **pointers = control_new_page(control, connection, id, &page);

    if (!pointers)
        return;
    body.n_tables = count;
    body.tables = (Embtier__TableInfo **)pointers;
    body.more = more;
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_TABLE_LIST;
    message.table_list = &body;
    control_reply(control, connection, &message);
}

void control_handle_table_list(struct control *control, struct connection *connection, uint32_t id,
                               const Embtier__TableList *wire)
{
    struct table_info *infos = NULL;
    uint32_t count = 0;
    bool more = false;
    const enum embtier_err err =
        tables_page(control->parts->tables, wire ? wire->after : 0,
                    control_page(wire ? wire->most : 0), &infos, &count, &more);

    if (err != EMBTIER_OK)
        control_reply_error(control, connection, id, err, &(struct err_msg){ { 0 } });
    else
        reply_tables(control, connection, id, infos, count, more);
    free(infos);
}

void control_reply_restored(struct control *control, struct connection *connection,
                            const struct job *job)
{
    const uint32_t count = MIN(job->restored.count, (uint32_t)CONTROL_PAGE_MOST);
    struct err_msg msg = { { 0 } };

    if (count < job->restored.count && !connection->knows_pages) {
        err_write(&msg, "all tables are restored, and are too many for one answer: the client's "
                        "version does not ask for the rest, use a newer one");
        control_reply_error(control, connection, job->request_id, EMBTIER_VERSION, &msg);
        return;
    }
    reply_tables(control, connection, job->request_id, job->restored.infos, count,
                 count < job->restored.count);
}

/* ---- Checkpoints ---- */

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

static void reply_checkpoint(struct control *control, struct connection *connection, uint32_t id,
                             struct checkpoint_info *info, struct checkpoint_tables *tables)
{
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    Embtier__Checkpoint body;

    fill_checkpoint(info, tables, &body);
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_CHECKPOINT;
    message.checkpoint = &body;
    control_reply(control, connection, &message);
}

static void fill_listed(void *item, void *wire)
{
    fill_checkpoint(item, NULL, wire);
}

static void reply_page(struct control *control, struct connection *connection, uint32_t id,
                       struct checkpoint_page *listed)
{
    const struct page page = { .items = listed->infos,
                               .item_bytes = sizeof(*listed->infos),
                               .wire_bytes = sizeof(Embtier__Checkpoint),
                               .fill = fill_listed,
                               .count = listed->count,
                               .more = listed->more };
    Embtier__CheckpointListReply body = EMBTIER__CHECKPOINT_LIST_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    _cleanup_(freep) void **pointers = control_new_page(control, connection, id, &page);

    if (!pointers)
        return;
    body.n_checkpoints = listed->count;
    body.checkpoints = (Embtier__Checkpoint **)pointers;
    body.more = listed->more;
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_CHECKPOINT_LIST;
    message.checkpoint_list = &body;
    control_reply(control, connection, &message);
}

void control_reply_checkpoints(struct control *control, struct connection *connection,
                               struct job *job)
{
    struct err_msg msg = { { 0 } };

    if (job->kind == JOB_CHECKPOINT_LIST) {
        reply_page(control, connection, job->request_id, &job->listed);
    } else if (job->kind == JOB_CHECKPOINT_SHOW && job->tables.more && !connection->knows_pages) {
        err_write(&msg, "its tables are too many for one answer, and the client's version does not "
                        "ask for the rest: use a newer one");
        control_reply_error(control, connection, job->request_id, EMBTIER_VERSION, &msg);
    } else {
        reply_checkpoint(control, connection, job->request_id, &job->checkpoint,
                         job->tables.names ? &job->tables : NULL);
    }
}

/* ---- Accounts ---- */

/* Users of a page: each has some 45 bytes for each row. */
#define ACCOUNTS_PAGE 32

struct account_wire {
    Embtier__Account account; /* first */
    Embtier__Amount amounts[ACCOUNT_ROWS];
    Embtier__Amount *pointers[ACCOUNT_ROWS];
};

static void fill_account(void *item, void *wire)
{
    const struct account_info *const info = item;
    struct account_wire *const account = wire;

    embtier__account__init(&account->account);
    account->account.uid = (uint32_t)info->uid;
    account->account.n_amounts = ACCOUNT_ROWS;
    account->account.amounts = account->pointers;
    for (uint32_t row = 0; row < ACCOUNT_ROWS; row++) {
        Embtier__Amount *const amount = &account->amounts[row];

        embtier__amount__init(amount);
        amount->name = (char *)(uintptr_t)account_row_name(row);
        amount->what = (char *)(uintptr_t)account_row_word(row);
        amount->is_bytes = account_row_is_bytes(row);
        amount->used = info->has[row];
        amount->most = info->part[row];
        account->pointers[row] = amount;
    }
}

static void reply_accounts(struct control *control, struct connection *connection, uint32_t id,
                           struct account_info *infos, uint32_t count, bool more)
{
    const struct page page = { .items = infos,
                               .item_bytes = sizeof(*infos),
                               .wire_bytes = sizeof(struct account_wire),
                               .fill = fill_account,
                               .count = count,
                               .more = more };
    Embtier__AccountListReply body = EMBTIER__ACCOUNT_LIST_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    _cleanup_(freep) void **pointers = control_new_page(control, connection, id, &page);

    if (!pointers)
        return;
    body.n_accounts = count;
    body.accounts = (Embtier__Account **)pointers;
    body.more = more;
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_ACCOUNT_LIST;
    message.account_list = &body;
    control_reply(control, connection, &message);
}

void control_handle_accounts(struct control *control, struct connection *connection, uint32_t id,
                             const Embtier__AccountList *wire)
{
    struct account_info *infos = NULL;
    bool more = false;
    uint32_t count = 0;
    const uint32_t most = MIN(control_page(wire ? wire->most : 0), (uint32_t)ACCOUNTS_PAGE);
    const enum embtier_err err =
        accounts_page(control->parts->accounts, wire ? wire->from : 0, most, &infos, &count, &more);

    if (err != EMBTIER_OK)
        control_reply_error(control, connection, id, err, &(struct err_msg){ { 0 } });
    else
        reply_accounts(control, connection, id, infos, count, more);
    free(infos);
}
