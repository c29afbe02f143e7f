/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_memory.h"
#include "base/text/bytes.h"

#include <string.h>

#include "base/embtier_types.h"
#include "config/yaml_doc.h"

struct part {
    char key[40];
    uint64_t bytes;
};

/* What is taken beside the budgets. */
struct beside {
    uint32_t lanes;
    uint32_t databases;
    uint64_t lane_bytes; /* each */
    uint64_t compaction_bytes;
    uint64_t session_bytes;
    uint64_t rest_bytes;
    uint64_t bytes; /* all together */
};

bool config_tier_kind_is_memory(const struct tier_spec *tier)
{
    /* The kernel counts persistent and CXL memory that it shows as NUMA nodes as its own: they are
     * in the machine's memory as well as in this sum. */
    return tier->kind != TIER_KIND_FILE;
}

static uint32_t shard_count(const struct config *config)
{
    return config->data.directory_count * config->data.shards_per_directory;
}

/* There from the start on. */
static uint64_t lane_reserved_bytes(const struct config *config, uint32_t lane_count)
{
    const uint64_t ring = config->lanes.write_queue_bytes / lane_count;
    const uint64_t ids = MIN(config->lanes.ticket_bytes / 4 * 3 / LANE_PAIR_TICKET,
                             (uint64_t)config->socket.max_batch_rows);

    return LANE_FIXED_BYTES + (uint64_t)shard_count(config) * LANE_SHARD_BYTES + LANE_QUEUE_BYTES +
           MAX(ring, LANE_QUEUE_LEAST) / LANE_QUEUE_INDEX +
           (ring < LANE_QUEUE_LEAST ? LANE_QUEUE_LEAST - ring : 0) + ids * LANE_PAIR_BYTES +
           config->lanes.readers_per_lane * LANE_READER_BYTES;
}

static uint64_t lane_bytes(const struct config *config, uint32_t lane_count)
{
    return lane_reserved_bytes(config, lane_count) +
           config->lanes.readers_per_lane * HEAP_READER_BYTES + HEAP_LANE_BYTES;
}

/* Each shard that may compact can have a full level 0; the other threads write a file or two. */
static uint64_t compaction_bytes(const struct config *config)
{
    const uint64_t threads = MAX(config->rocksdb.background_threads, 2u);
    const uint64_t compacting = threads - MAX(threads / 4, UINT64_C(1));
    const uint64_t shards = MIN(config->rocksdb.compaction_parallel, shard_count(config));

    return threads * HEAP_THREAD_BYTES + MIN(compacting, shards) * HEAP_INPUTS * HEAP_INPUT_BYTES;
}

/* For the tables that are made at a time with all their rows: f32, and two more numbers of state.
 */
static uint64_t eager_bytes(const struct config *config)
{
    const uint64_t longest = (uint64_t)EMBTIER_DIM_MAX * 12 + ROW_WRITER_ROW_BYTES;

    return MAX(
        ROW_WRITER_MOST,
        align_up(ROW_WRITER_FILLS * (shard_count(config) + ROW_WRITER_COPIES) * longest, MIB));
}

/* Parts are whole MiB. */
static struct beside beside_of(const struct config *config, uint32_t lane_count)
{
    struct beside beside = {
        .lanes = lane_count,
        .databases = shard_count(config) * CONFIG_DATABASES_PER_SHARD,
        .lane_bytes = align_up(lane_bytes(config, lane_count), MIB),
        .compaction_bytes = compaction_bytes(config),
        .session_bytes = align_up((uint64_t)config->socket.max_sessions * SESSION_BYTES, MIB),
        .rest_bytes = PROGRAM_BYTES + ANSWER_BYTES + eager_bytes(config) +
                      MAX(config->lanes.request_bytes, REQUEST_BYTES_LEAST) -
                      config->lanes.request_bytes,
    };

    beside.bytes = beside.lanes * beside.lane_bytes + beside.databases * HEAP_DATABASE_BYTES +
                   beside.compaction_bytes + beside.session_bytes + beside.rest_bytes;
    return beside;
}

static uint64_t transfer_least(const struct config *config)
{
    return align_up(SCAN_LEAST_BYTES(shard_count(config)) + SCAN_LOG_FACTOR * CHECKPOINT_LOG_BYTES,
                    MIB);
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
    return yaml_doc_mistake(config->doc, "checkpoints.transfer_bytes", msg,
                            "%s is too little to export a table of %u shards; allowed: at least %s",
                            BYTES_TEXT(bytes), shard_count(config),
                            BYTES_TEXT(transfer_least(config)));
}

uint64_t config_memory_beside(const struct config *config, uint32_t lane_count)
{
    return config->lanes.request_bytes + config->lanes.ticket_bytes +
           config->lanes.write_queue_bytes + config->rocksdb.memtable_bytes +
           config->rocksdb.metadata_cache_bytes + config->checkpoints.transfer_bytes +
           beside_of(config, lane_count).bytes;
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
    const struct beside beside = beside_of(config, config->lanes.count);
    const struct part *largest = parts;
    uint64_t tier_bytes = 0;
    uint64_t sum = beside.bytes;
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
        "%s, shared arenas %s, exports and imports %s; beside these lanes %u of %s, databases %u "
        "of %s, compaction %s, "
        "sessions %s, the rest %s), the machine has %s; allowed: at most that",
        BYTES_TEXT(sum), BYTES_TEXT(tier_bytes), BYTES_TEXT(config->lanes.request_bytes),
        BYTES_TEXT(config->lanes.ticket_bytes), BYTES_TEXT(config->lanes.write_queue_bytes),
        BYTES_TEXT(config->rocksdb.memtable_bytes + config->rocksdb.metadata_cache_bytes),
        BYTES_TEXT(config->socket.max_total_arena_bytes),
        BYTES_TEXT(config->checkpoints.transfer_bytes), beside.lanes, BYTES_TEXT(beside.lane_bytes),
        beside.databases, BYTES_TEXT(HEAP_DATABASE_BYTES), BYTES_TEXT(beside.compaction_bytes),
        BYTES_TEXT(beside.session_bytes), BYTES_TEXT(beside.rest_bytes),
        BYTES_TEXT(config->machine.memory_bytes));
}

/* Huge pages are set aside, and not in what is available. */
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
        { "lanes.request_bytes", MAX(config->lanes.request_bytes, REQUEST_BYTES_LEAST) },
        { "lanes.ticket_bytes", config->lanes.ticket_bytes },
        { "lanes.write_queue_bytes", config->lanes.write_queue_bytes },
        { "lanes.count",
          config->lanes.count * align_up(lane_reserved_bytes(config, config->lanes.count), MIB) },
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
        "a start reserves %s (tiers %s, requests %s, tickets %s, write queue %s, lanes %s), %s is "
        "available now; allowed: at most that, beside what other programs have",
        BYTES_TEXT(sum), BYTES_TEXT(parts[0].bytes), BYTES_TEXT(parts[1].bytes),
        BYTES_TEXT(parts[2].bytes), BYTES_TEXT(parts[3].bytes), BYTES_TEXT(parts[4].bytes),
        BYTES_TEXT(available));
}
