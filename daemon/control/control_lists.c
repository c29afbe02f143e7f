/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that are lists (answer.h). */
#include <stdlib.h>

#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/table/table_answer.h"
#include "proto/frame.h"

uint32_t control_page(uint32_t most)
{
    return most == 0 ? ANSWER_PAGE_MOST : MIN(most, (uint32_t)ANSWER_PAGE_MOST);
}

void **control_new_page(struct control *control, struct connection *connection, uint32_t id,
                        const struct page *page)
{
    struct err_msg msg = { { 0 } };
    void **pointers = NULL;
    const enum embtier_err err = page_new(page, connection->knows_pages, &pointers, &msg);

    if (err != EMBTIER_OK)
        control_reply_error(control, connection, id, err, &msg);
    return pointers;
}

void control_handle_table_list(struct control *control, struct connection *connection, uint32_t id,
                               const Embtier__TableList *wire)
{
    const struct control_client client = control_client(control, connection, id);
    struct table_info *infos = NULL;
    struct err_msg msg = { { 0 } };
    uint32_t count = 0;
    bool more = false;
    enum embtier_err err = tables_page(control->parts->tables, wire ? wire->after : 0,
                                       control_page(wire ? wire->most : 0), &infos, &count, &more);

    if (err == EMBTIER_OK)
        err = answer_tables(&client.client, infos, count, more, &msg);
    if (err != EMBTIER_OK)
        control_reply_error(control, connection, id, err, &msg);
    free(infos);
}

/* ---- Accounts ---- */

/* Most users of a page; each takes about 45 bytes for each row. */
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
