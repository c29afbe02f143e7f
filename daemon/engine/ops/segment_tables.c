/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/segment_tables.h"

#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"

struct table *segment_table_enter(const struct request_rules *rules, uint32_t segment,
                                  uint64_t handle, struct refusal *refusal)
{
    uint32_t state = TABLE_FREE;
    struct table *const table = tables_enter(rules->tables, handle, &state);

    if (!table)
        (void)refuse(refusal, state == TABLE_DROPPING ? EMBTIER_DROPPED : EMBTIER_NO_TABLE, segment,
                     handle >> 32, 0);
    return table;
}

void segment_tables_leave(const struct request_rules *rules, uint32_t count)
{
    for (uint32_t s = 0; s < count; s++)
        if (rules->segment_tables[s])
            table_leave(rules->segment_tables[s]);
}
