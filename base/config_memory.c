/* SPDX-License-Identifier: Apache-2.0 */
#include "base/config_memory.h"

#include <string.h>

#include "base/yaml_doc.h"

struct part {
    char key[40];
    uint64_t bytes;
};

bool config_tier_kind_is_memory(const struct tier_spec *tier)
{
    /* The kernel counts persistent and CXL memory that it shows as NUMA nodes as its own: they are
     * in the machine's memory as well as in this sum. */
    return tier->kind != TIER_KIND_FILE;
}

enum embtier_err config_memory_check(const struct config *config,
                                     bool (*is_memory)(const struct tier_spec *tier),
                                     struct err_msg *msg)
{
    struct part parts[TIERS_MAX + 6] = {
        { "lanes.request_bytes", config->lanes.request_bytes },
        { "lanes.ticket_bytes", config->lanes.ticket_bytes },
        { "lanes.write_queue_bytes", config->lanes.write_queue_bytes },
        { "rocksdb.memtable_bytes", config->rocksdb.memtable_bytes },
        { "rocksdb.metadata_cache_bytes", config->rocksdb.metadata_cache_bytes },
        { "socket.max_total_arena_bytes", config->socket.max_total_arena_bytes },
    };
    const struct part *largest = parts;
    uint64_t tier_bytes = 0;
    uint64_t sum = 0;
    uint32_t count = 6;

    for (uint32_t t = 0; t < config->cache.tier_count; t++) {
        const struct tier_spec *tier = &config->cache.tiers[t];

        if (!is_memory(tier))
            continue;
        snprintf(parts[count].key, sizeof(parts[count].key), "cache.tiers[%u].bytes", t);
        parts[count++].bytes = tier->bytes;
        tier_bytes += tier->bytes;
    }
    for (uint32_t i = 0; i < count; i++) {
        sum += parts[i].bytes;
        if (parts[i].bytes > largest->bytes)
            largest = &parts[i];
    }
    if (sum <= config->machine.memory_bytes)
        return EMBTIER_OK;
    return yaml_doc_mistake(
        config->doc, largest->key, msg,
        "all memory together is %s (tiers %s, requests %s, tickets %s, write queue %s, RocksDB "
        "%s, shared arenas %s), the machine has %s; allowed: at most that",
        BYTES_TEXT(sum), BYTES_TEXT(tier_bytes), BYTES_TEXT(config->lanes.request_bytes),
        BYTES_TEXT(config->lanes.ticket_bytes), BYTES_TEXT(config->lanes.write_queue_bytes),
        BYTES_TEXT(config->rocksdb.memtable_bytes + config->rocksdb.metadata_cache_bytes),
        BYTES_TEXT(config->socket.max_total_arena_bytes), BYTES_TEXT(config->machine.memory_bytes));
}
