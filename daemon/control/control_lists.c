/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that are lists (answer.h). */
#include <stdlib.h>

#include "base/clock.h"
#include "daemon/access/access.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/endurance/endurance.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/table/table_answer.h"
#include "proto/frame.h"
#include "proto/quota.h"

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

/* Finds the next page of which the client may see some tables, or the last one. */
static enum embtier_err granted_page(struct control *control, const struct connection *connection,
                                     const Embtier__TableList *wire, struct table_info **ret_infos,
                                     uint32_t *ret_count, bool *ret_more)
{
    const uint32_t most = control_page(wire ? wire->most : 0);
    uint32_t after = wire ? wire->after : 0;
    uint32_t found = 0;

    *ret_count = 0;
    do {
        free(TAKE(*ret_infos));
        TRY(tables_page(control->parts->tables, after, most, ret_infos, &found, ret_more));
        if (found > 0)
            after = (*ret_infos)[found - 1].table_id;
        *ret_count = control_granted_tables(control, connection, *ret_infos, found);
    } while (*ret_count == 0 && *ret_more);
    return EMBTIER_OK;
}

void control_add_rates(struct control *control, struct table_info *info)
{
    const uint64_t now_ms = clock_wall_ms();
    struct written_figures figures;

    if (!control->parts->endurance ||
        !endurance_get_table(control->parts->endurance, info->table_id, now_ms, &figures))
        return;
    info->rates = (struct table_rates){ .is_known = figures.has_rates,
                                        .now = write_rate_daily(&figures.rates[WRITE_NOW]),
                                        .hour = write_rate_daily(&figures.rates[WRITE_HOUR]),
                                        .day = write_rate_daily(&figures.rates[WRITE_DAY]),
                                        .week = write_rate_daily(&figures.rates[WRITE_WEEK]),
                                        .history_ms = figures.age_ms,
                                        .history_bytes = figures.total_bytes };
}

void control_handle_table_list(struct control *control, struct connection *connection, uint32_t id,
                               const Embtier__TableList *wire)
{
    const struct control_client client = control_client(control, connection, id);
    _cleanup_(freep) struct table_info *infos = NULL;
    struct err_msg msg = { { 0 } };
    uint32_t count = 0;
    bool more = false;
    enum embtier_err err = granted_page(control, connection, wire, &infos, &count, &more);

    for (uint32_t i = 0; err == EMBTIER_OK && i < count; i++)
        control_add_rates(control, &infos[i]);
    if (err == EMBTIER_OK)
        err = answer_tables(&client.client, infos, count, more, &msg);
    if (err != EMBTIER_OK)
        control_reply_error(control, connection, id, err, &msg);
}

/* ---- Accounts ---- */

/* Most users of a page; each takes about 45 bytes for each amount. */
#define ACCOUNTS_PAGE 32

/* The rows of an account, and the bytes of requests under way, which the lanes count. */
#define AMOUNTS_MAX (ACCOUNT_ROWS + 1)

struct account_wire {
    Embtier__Account account; /* first */
    Embtier__Amount amounts[AMOUNTS_MAX];
    Embtier__Amount *pointers[AMOUNTS_MAX];
};

/* An account, and what the access file adds, if its user is in that. */
struct named_account {
    struct account_info info;
    char name[ACCESS_NAME_MAX + 1];
    bool has_bytes; /* counted, because a quota limits them */
    uint64_t bytes, most_bytes;
};

static void fill_amount(struct account_wire *account, const char *name, const char *word,
                        bool is_bytes, uint64_t used, uint64_t most)
{
    const size_t i = account->account.n_amounts++;
    Embtier__Amount *const amount = &account->amounts[i];

    embtier__amount__init(amount);
    amount->name = (char *)(uintptr_t)name;
    amount->what = (char *)(uintptr_t)word;
    amount->is_bytes = is_bytes;
    amount->used = used;
    amount->most = most;
    account->pointers[i] = amount;
}

/* Borrows the name. */
static void fill_account(void *item, void *wire)
{
    struct named_account *const named = item;
    const struct account_info *const info = &named->info;
    struct account_wire *const account = wire;

    embtier__account__init(&account->account);
    account->account.uid = (uint32_t)MIN(info->user, (uint64_t)UINT32_MAX);
    if (info->user > UINT32_MAX) {
        account->account.number = info->user;
        account->account.user = named->name;
    }
    account->account.amounts = account->pointers;
    for (uint32_t row = 0; row < ACCOUNT_ROWS; row++)
        fill_amount(account, account_row_name(row), account_row_word(row),
                    account_row_is_bytes(row), info->has[row], info->part[row]);
    if (named->has_bytes)
        fill_amount(account, quota_key(QUOTA_bytes_in_flight), "requests under way", true,
                    named->bytes, named->most_bytes);
}

static void reply_accounts(struct control *control, struct connection *connection, uint32_t id,
                           struct named_account *accounts, uint32_t count, bool more)
{
    const struct page page = { .items = accounts,
                               .item_bytes = sizeof(*accounts),
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

/* Lists accounts from number @from on. A client that may not see those of others gets its own. */
static enum embtier_err find_accounts(struct control *control, const struct connection *connection,
                                      const Embtier__AccountList *wire,
                                      struct account_info **ret_infos, uint32_t *ret_count,
                                      bool *ret_more)
{
    const uint64_t from = wire ? wire->from : 0;
    const uint32_t most = MIN(control_page(wire ? wire->most : 0), (uint32_t)ACCOUNTS_PAGE);

    if (control_sees_all(control, connection))
        return accounts_page(control->parts->accounts, from, most, ret_infos, ret_count, ret_more);
    TRY(accounts_page(control->parts->accounts, connection->user, 1, ret_infos, ret_count,
                      ret_more));
    *ret_count = from <= connection->user ? *ret_count : 0;
    *ret_more = false;
    return EMBTIER_OK;
}

/* Returns the accounts with their names, malloced, or NULL. */
static struct named_account *name_accounts(struct control *control,
                                           const struct account_info *infos, uint32_t count)
{
    struct named_account *const accounts = calloc((size_t)count + 1, sizeof(*accounts));

    for (uint32_t i = 0; accounts && i < count; i++) {
        accounts[i].info = infos[i];
        access_account_name(control->parts->access, infos[i].user, accounts[i].name);
        accounts[i].has_bytes = access_account_bytes(control->parts->access, infos[i].user,
                                                     &accounts[i].bytes, &accounts[i].most_bytes);
    }
    return accounts;
}

void control_handle_accounts(struct control *control, struct connection *connection, uint32_t id,
                             const Embtier__AccountList *wire)
{
    _cleanup_(freep) struct account_info *infos = NULL;
    _cleanup_(freep) struct named_account *accounts = NULL;
    bool more = false;
    uint32_t count = 0;

    if (find_accounts(control, connection, wire, &infos, &count, &more) == EMBTIER_OK)
        accounts = name_accounts(control, infos, count);
    if (accounts)
        reply_accounts(control, connection, id, accounts, count, more);
    else
        control_reply_error(control, connection, id, EMBTIER_NO_MEMORY, &(struct err_msg){ { 0 } });
}
