/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/table/table_answer.h"

#include <stdlib.h>

#include "base/macros.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/answer.h"
#include "proto/control.pb-c.h"
#include "proto/table_spec_wire.h"

static void rates_to_wire(const struct table_rates *rates, Embtier__TableInfo *table)
{
    table->has_rates = rates->is_known;
    table->daily_bytes_now = rates->now;
    table->daily_bytes_hour = rates->hour;
    table->daily_bytes_day = rates->day;
    table->daily_bytes_week = rates->week;
    table->history_ms = rates->history_ms;
    table->history_bytes = rates->history_bytes;
}

void table_info_to_wire(const struct table_info *info, Embtier__TableSpec *spec,
                        Embtier__TableInfo *ret_table)
{
    embtier__table_info__init(ret_table);
    embtier__table_spec__init(spec);
    table_spec_to_wire(&info->spec, spec);
    ret_table->handle = info->handle;
    ret_table->table_id = info->table_id;
    ret_table->spec = spec;
    ret_table->weight_bytes = table_spec_weight_bytes(&info->spec);
    ret_table->state_bytes = table_spec_state_bytes(&info->spec);
    ret_table->state = (char *)(uintptr_t)table_state_word(info->state);
    ret_table->updated_rows = info->updated_rows;
    ret_table->flush_bytes = info->written.flush_bytes;
    ret_table->compaction_bytes = info->written.compaction_bytes;
    ret_table->import_bytes = info->written.import_bytes;
    ret_table->log_bytes = info->written.log_bytes;
    ret_table->initial_bytes = info->initial_bytes;
    rates_to_wire(&info->rates, ret_table);
    ret_table->lookup_rows = info->lookups.rows;
    ret_table->missed_lookup_rows = info->lookups.missed_rows;
    ret_table->read_lookup_rows = info->lookups.read_rows;
    ret_table->lookup_ns = info->lookups.lane_ns;
}

void answer_table(const struct job_client *client, const struct table_info *info)
{
    Embtier__TableSpec spec;
    Embtier__TableInfo table;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    table_info_to_wire(info, &spec, &table);
    reply.body_case = EMBTIER__REPLY__BODY_TABLE;
    reply.table = &table;
    answer(client, &reply);
}

struct table_wire {
    Embtier__TableInfo info; /* first */
    Embtier__TableSpec spec;
};

static void fill_table(void *item, void *wire)
{
    struct table_wire *const table = wire;

    table_info_to_wire(item, &table->spec, &table->info);
}

enum embtier_err answer_tables(const struct job_client *client, struct table_info *infos,
                               uint32_t count, bool more, struct err_msg *msg)
{
    const struct page page = { .items = infos,
                               .item_bytes = sizeof(*infos),
                               .wire_bytes = sizeof(struct table_wire),
                               .fill = fill_table,
                               .count = count,
                               .more = more };
    Embtier__TableListReply body = EMBTIER__TABLE_LIST_REPLY__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;
    _cleanup_(freep) void **pointers = NULL;

    TRY(page_new(&page, client->knows_pages, &pointers, msg));
    body.n_tables = count;
    body.tables = (Embtier__TableInfo **)pointers;
    body.more = more;
    reply.body_case = EMBTIER__REPLY__BODY_TABLE_LIST;
    reply.table_list = &body;
    answer(client, &reply);
    return EMBTIER_OK;
}
