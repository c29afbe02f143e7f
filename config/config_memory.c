/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_memory.h"

#include "base/text/bytes.h"
#include "base/yaml/yaml_doc.h"

struct part {
    char key[40];
    uint64_t bytes;
};

bool config_tier_kind_is_memory(const struct tier_spec *tier)
{
    /* The kernel counts persistent and CXL memory that it shows as NUMA nodes as its own. So it is
     * in the machine's memory as well as in this sum. */
    return tier->kind != TIER_KIND_FILE;
}

static struct config_unbudgeted unbudgeted_of(const struct config *config, uint32_t lane_count)
{
    struct config_unbudgeted unbudgeted;

    config->unbudgeted(config, lane_count, &unbudgeted);
    return unbudgeted;
}

static uint64_t transfer_least(const struct config *config)
{
    return unbudgeted_of(config, MAX(config->lanes.count, 1u)).transfer_least_bytes;
}

uint64_t config_transfer_default(const struct config *config)
{
    return MAX(transfer_least(config), MIN(256 * MIB, config->machine.memory_bytes / 16));
}

enum embtier_err config_transfer_check(const struct config *config, struct err_msg *msg)
{
    const uint64_t bytes = config->checkpoints.transfer_bytes;

    if (bytes >= transfer_least(config))
        return EMBTIER_OK;
    return yaml_doc_mistake(
        config->doc, "checkpoints.transfer_bytes", msg,
        "%s is too little to export a table of %u shard%s; allowed: at least %s", BYTES_TEXT(bytes),
        config_shard_count(config), PLURAL(config_shard_count(config)),
        BYTES_TEXT(transfer_least(config)));
}

uint64_t config_memory_fixed(const struct config *config, uint32_t lane_count)
{
    return config->lanes.request_bytes + config->lanes.ticket_bytes +
           config->lanes.write_queue_bytes + config->rocksdb.memtable_bytes +
           config->rocksdb.metadata_cache_bytes + config->checkpoints.transfer_bytes +
           unbudgeted_of(config, lane_count).bytes;
}

enum embtier_err config_memory_check(const struct config *config,
                                     bool (*is_memory)(const struct tier_spec *tier),
                                     struct err_msg *msg)
{
    struct part parts[TIERS_MAX + 7] = {
        { "lanes.request_bytes", config->lanes.request_bytes },
        { "lanes.ticket_bytes", config->lanes.ticket_bytes },
        { "lanes.write_queue_bytes", config->lanes.write_queue_bytes },
        { "rocksdb.memtable_bytes", config->rocksdb.memtable_bytes },
        { "rocksdb.metadata_cache_bytes", config->rocksdb.metadata_cache_bytes },
        { "socket.max_total_arena_bytes", config->socket.max_total_arena_bytes },
        { "checkpoints.transfer_bytes", config->checkpoints.transfer_bytes },
    };
    const struct config_unbudgeted unbudgeted = unbudgeted_of(config, config->lanes.count);
    const struct part *largest = parts;
    uint64_t tier_bytes = 0;
    uint64_t sum = unbudgeted.bytes;
    uint32_t count = 7;

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
        "%s, shared arenas %s, exports and imports %s; plus lanes %u x %s, databases %u x %s, "
        "compaction %s, sessions %s, the rest %s); allowed: at most the machine's %s: lower %s "
        "or another budget",
        BYTES_TEXT(sum), BYTES_TEXT(tier_bytes), BYTES_TEXT(config->lanes.request_bytes),
        BYTES_TEXT(config->lanes.ticket_bytes), BYTES_TEXT(config->lanes.write_queue_bytes),
        BYTES_TEXT(config->rocksdb.memtable_bytes + config->rocksdb.metadata_cache_bytes),
        BYTES_TEXT(config->socket.max_total_arena_bytes),
        BYTES_TEXT(config->checkpoints.transfer_bytes), unbudgeted.lanes,
        BYTES_TEXT(unbudgeted.lane_bytes), unbudgeted.databases,
        BYTES_TEXT(unbudgeted.database_bytes), BYTES_TEXT(unbudgeted.compaction_bytes),
        BYTES_TEXT(unbudgeted.session_bytes), BYTES_TEXT(unbudgeted.rest_bytes),
        BYTES_TEXT(config->machine.memory_bytes), largest->key);
}

/* Huge pages are set aside; the available memory does not include them. */
static uint64_t tiers_from_available(const struct config *config,
                                     bool (*is_memory)(const struct tier_spec *tier))
{
    uint64_t bytes = 0;

    for (uint32_t t = 0; t < config->cache.tier_count; t++)
        if (is_memory(&config->cache.tiers[t]) &&
            config->cache.tiers[t].kind != TIER_KIND_DRAM_HUGE)
            bytes += config->cache.tiers[t].bytes;
    return bytes;
}

enum embtier_err config_memory_check_start(const struct config *config,
                                           bool (*is_memory)(const struct tier_spec *tier),
                                           struct err_msg *msg)
{
    const struct part parts[] = {
        { "cache.tiers", tiers_from_available(config, is_memory) },
        { "lanes.request_bytes", MAX(config->lanes.request_bytes, CONFIG_REQUEST_BYTES_LEAST) },
        { "lanes.ticket_bytes", config->lanes.ticket_bytes },
        { "lanes.write_queue_bytes", config->lanes.write_queue_bytes },
        { "lanes.count",
          config->lanes.count * unbudgeted_of(config, config->lanes.count).lane_reserved_bytes },
    };
    const struct part *largest = parts;
    const uint64_t available = config->machine.available_bytes;
    uint64_t sum = 0;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        sum += parts[i].bytes;
        if (parts[i].bytes > largest->bytes)
            largest = &parts[i];
    }
    if (available == 0 || sum <= available)
        return EMBTIER_OK;
    return yaml_doc_mistake(
        config->doc, largest->key, msg,
        "a start reserves %s (tiers %s, requests %s, tickets %s, write queue %s, lanes %s); "
        "allowed: at most the %s available now: lower %s, or end other programs",
        BYTES_TEXT(sum), BYTES_TEXT(parts[0].bytes), BYTES_TEXT(parts[1].bytes),
        BYTES_TEXT(parts[2].bytes), BYTES_TEXT(parts[3].bytes), BYTES_TEXT(parts[4].bytes),
        BYTES_TEXT(available), largest->key);
}
