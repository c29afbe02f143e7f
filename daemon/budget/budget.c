/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/budget/budget.h"

#include "daemon/engine/memory/engine_reserved.h"
#include "daemon/engine/tables/tables_reserved.h"
#include "daemon/http/http_reserved.h"
#include "store/store_reserved.h"

/* Each part is a whole number of MiB. */
void budget_unbudgeted(const struct config *config, uint32_t lane_count,
                       struct config_unbudgeted *ret_unbudgeted)
{
    const uint32_t shards = config_shard_count(config);
    const uint64_t lane_bytes = engine_lane_reserved_bytes(config, lane_count);
    const uint64_t request_bytes = MAX(config->lanes.request_bytes, CONFIG_REQUEST_BYTES_LEAST);
    struct config_unbudgeted unbudgeted = {
        .lanes = lane_count,
        .lane_reserved_bytes = align_up(lane_bytes, MIB),
        .lane_bytes = align_up(lane_bytes + engine_lane_heap_bytes(config), MIB),
        .databases = shards * CONFIG_DATABASES_PER_SHARD,
        .database_bytes = store_database_reserved_bytes(),
        .compaction_bytes = store_compaction_reserved_bytes(config),
        .session_bytes = align_up(engine_session_reserved_bytes(config), MIB),
        .rest_bytes = BUDGET_PROGRAM_BYTES + ANSWER_BYTES + tables_eager_reserved_bytes(shards) +
                      request_bytes - config->lanes.request_bytes + http_reserved_bytes(config),
        .transfer_least_bytes = align_up(store_scan_with_logs_reserved_bytes(shards), MIB),
    };

    unbudgeted.bytes = unbudgeted.lanes * unbudgeted.lane_bytes +
                       unbudgeted.databases * unbudgeted.database_bytes +
                       unbudgeted.compaction_bytes + unbudgeted.session_bytes +
                       unbudgeted.rest_bytes;
    *ret_unbudgeted = unbudgeted;
}
