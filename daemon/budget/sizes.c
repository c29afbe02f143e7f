/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/budget/sizes.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/spec/array_shape.h"
#include "base/text/bytes.h"
#include "daemon/budget/budget.h"
#include "daemon/engine/memory/engine_reserved.h"
#include "store/files/space_reserved.h"
#include "store/rocksdb/database_files.h"
#include "tiers/cache/length_class.h"

/* Slots of caches up to 64 GiB a lane are counted in granules of 16 bytes, those of larger ones in
 * larger granules (tiers/cache/row_cache_life.c). */
#define GRANULE_SHIFT 4

static uint32_t shard_count(const struct config *config)
{
    return config->data.directory_count * config->data.shards_per_directory;
}

static uint64_t cache_bytes_of(const struct tier_spec *tier)
{
    return tier->bytes - MIN(tier->bytes, tier->array_bytes);
}

/* ---- Tables ---- */

/* Rows are spread over shards by their hash, so each shard has every so manieth. */
static void measure_ssd(const struct config *config, struct size_table *table)
{
    const uint32_t shards = shard_count(config);
    const struct table_rows rows = { .rows = div_round_up(table->spec.rows, shards),
                                     .id_step = shards,
                                     .row_bytes = table->row_bytes,
                                     .filter_bits = config->rocksdb.bloom_bits_per_key,
                                     .is_apart = config->rocksdb.layout == LAYOUT_BLOB };
    const struct table_size one = table_size_of(&rows);

    table->ssd = (struct table_size){ one.data_bytes * shards, one.index_bytes * shards,
                                      one.filter_bytes * shards, one.blob_bytes * shards };
}

/* Chooses the tier as the server does: the named one, or the fastest with room. */
static void place_array(struct sizes *sizes, struct size_table *table)
{
    const struct config *const config = sizes->config;

    table->array_bytes = array_shape_of(table->spec.rows, table->row_bytes).bytes;
    table->tier = SIZE_NO_TIER;
    if (table->array_bytes == 0)
        return;
    for (size_t t = 0; t < config->cache.tier_count && table->tier == SIZE_NO_TIER; t++) {
        const struct tier_spec *const tier = &config->cache.tiers[t];
        const bool is_named = strcmp(table->spec.home_tier, tier->name) == 0;
        const bool has_room =
            sizes->tiers[t].needed_bytes + table->array_bytes <= tier->array_bytes;

        if (is_named || (table->spec.home_tier[0] == '\0' && has_room))
            table->tier = t;
    }
    if (table->tier != SIZE_NO_TIER)
        sizes->tiers[table->tier].needed_bytes += table->array_bytes;
}

static void measure_table(struct sizes *sizes, struct size_table *table)
{
    table->row_bytes = table_spec_weight_bytes(&table->spec) + table_spec_state_bytes(&table->spec);
    measure_ssd(sizes->config, table);
    if (table->spec.home == EMBTIER_HOME_ARRAY) {
        place_array(sizes, table);
        return;
    }
    table->tier = SIZE_NO_TIER;
    table->cached_bytes =
        table->spec.rows *
        length_class_bytes(length_class_of(table->row_bytes, GRANULE_SHIFT), GRANULE_SHIFT);
    sizes->cache.needed_bytes += table->cached_bytes;
}

/* ---- SSD ---- */

/* Databases with rows: one of a shard's two has those of `replay` tables, the other those of
 * `async` and `sync` ones. */
static uint32_t databases_with_rows(const struct sizes *sizes)
{
    bool has_replay = false, has_logged = false;

    for (size_t i = 0; i < sizes->table_count; i++) {
        const bool is_replay = sizes->tables[i].spec.durability == EMBTIER_DURABILITY_REPLAY;

        has_replay = has_replay || is_replay;
        has_logged = has_logged || !is_replay;
    }
    return shard_count(sizes->config) * ((uint32_t)has_replay + (uint32_t)has_logged);
}

static uint64_t buffer_bytes(const struct config *config)
{
    return MIN(
        config->rocksdb.memtable_bytes /
            ((uint64_t)shard_count(config) * CONFIG_DATABASES_PER_SHARD * DATABASE_WRITE_BUFFERS),
        WRITE_BUFFER_BYTES_MAX);
}

/* Bytes of old versions, as the layout lets them gather: in levels above the last, a tenth of it
 * and a tenth of that; in runs until all are merged; or as many as there are rows in files of their
 * own. */
static uint64_t old_bytes(const struct sizes *sizes)
{
    const uint64_t levels = sizes->ssd.row_bytes / (TABLE_LEVEL_FACTOR - 1);

    switch (sizes->config->rocksdb.layout) {
    case LAYOUT_UNIVERSAL:
        return sizes->ssd.row_bytes / 100 * TABLE_UNIVERSAL_PERCENT;
    case LAYOUT_BLOB:
        return sizes->ssd.row_bytes;
    default:
        return levels;
    }
}

/* Bytes beyond one version of each row while clients update rows: old versions, new files, and the
 * output of compactions whose input is still there. */
static uint64_t working_bytes(const struct sizes *sizes)
{
    const struct config *const config = sizes->config;
    const uint32_t shards = shard_count(config);
    const uint64_t old = old_bytes(sizes);
    const uint64_t new_files = (uint64_t)databases_with_rows(sizes) *
                               config->rocksdb.compaction_trigger_files * buffer_bytes(config);
    const uint64_t shard_bytes = (sizes->ssd.row_bytes + old + new_files) / shards;
    const uint64_t compaction = config->rocksdb.layout == LAYOUT_UNIVERSAL
                                    ? shard_bytes
                                    : MIN(shard_bytes, TABLE_COMPACTION_FILES * TABLE_FILE_BYTES);

    return old + new_files + MIN(config->rocksdb.compaction_parallel, shards) * compaction;
}

static uint64_t reserve_bytes(const struct config *config)
{
    const uint64_t databases =
        (uint64_t)config->data.shards_per_directory * CONFIG_DATABASES_PER_SHARD;
    const uint64_t each =
        config->data.reserve_bytes > 0
            ? config->data.reserve_bytes
            : space_reserve_wanted_bytes(config->rocksdb.memtable_bytes,
                                         config->data.directory_count, databases) +
                  space_opening_bytes(databases);

    return config->data.directory_count * each;
}

static void measure_disk(struct sizes *sizes)
{
    const struct config *const config = sizes->config;
    const uint64_t databases = (uint64_t)shard_count(config) * CONFIG_DATABASES_PER_SHARD;

    for (size_t i = 0; i < sizes->table_count; i++)
        sizes->ssd.row_bytes += table_size_sum(&sizes->tables[i].ssd);
    sizes->ssd.database_bytes = databases * DATABASE_FILES_BYTES +
                                config->data.directory_count * (uint64_t)DIRECTORY_FILES_BYTES;
    sizes->ssd.reserve_bytes = reserve_bytes(config);
    sizes->ssd.bytes = sizes->ssd.row_bytes + sizes->ssd.database_bytes + sizes->ssd.reserve_bytes;
    sizes->ssd.working_bytes = working_bytes(sizes);
}

/* ---- Memory ---- */

/* Index and filter blocks are read once and kept, as far as their cache has room. */
static uint64_t metadata_in_use(const struct sizes *sizes)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < sizes->table_count; i++)
        bytes += sizes->tables[i].ssd.index_bytes + sizes->tables[i].ssd.filter_bytes;
    return MIN(bytes, sizes->config->rocksdb.metadata_cache_bytes);
}

static void measure_start(struct sizes *sizes, const struct config_unbudgeted *unbudgeted)
{
    const struct config *const config = sizes->config;

    for (size_t t = 0; t < config->cache.tier_count; t++) {
        sizes->tiers[t].is_memory = config_tier_kind_is_memory(&config->cache.tiers[t]);
        if (sizes->tiers[t].is_memory)
            sizes->memory.tier_bytes += config->cache.tiers[t].bytes;
        sizes->cache.capacity_bytes += cache_bytes_of(&config->cache.tiers[t]);
    }
    sizes->memory.request_bytes = MAX(config->lanes.request_bytes, CONFIG_REQUEST_BYTES_LEAST) +
                                  config->lanes.ticket_bytes + config->lanes.write_queue_bytes;
    sizes->memory.lane_bytes = unbudgeted->lanes * unbudgeted->lane_reserved_bytes;
    sizes->memory.program_bytes =
        BUDGET_PROGRAM_BYTES + unbudgeted->databases * unbudgeted->database_bytes;
    sizes->memory.start_bytes = sizes->memory.tier_bytes + sizes->memory.request_bytes +
                                sizes->memory.lane_bytes + sizes->memory.program_bytes;
}

static void measure_memory(struct sizes *sizes)
{
    const struct config *const config = sizes->config;
    struct config_unbudgeted unbudgeted;

    budget_unbudgeted(config, config->lanes.count, &unbudgeted);
    measure_start(sizes, &unbudgeted);
    sizes->memory.memtable_bytes = MIN(MIN(config->rocksdb.memtable_bytes, sizes->ssd.row_bytes),
                                       databases_with_rows(sizes) * buffer_bytes(config));
    sizes->memory.metadata_bytes = metadata_in_use(sizes);
    if (sizes->cache.needed_bytes > sizes->cache.capacity_bytes)
        sizes->memory.lane_heap_bytes =
            unbudgeted.lanes * (unbudgeted.lane_bytes - unbudgeted.lane_reserved_bytes);
    sizes->memory.loaded_bytes = sizes->memory.start_bytes + sizes->memory.memtable_bytes +
                                 sizes->memory.metadata_bytes + sizes->memory.lane_heap_bytes;
    sizes->memory.session_bytes = unbudgeted.session_bytes / MAX(config->socket.max_sessions, 1u);
    sizes->memory.arena_bytes = config->socket.max_total_arena_bytes;
    sizes->memory.most_bytes = config_memory_fixed(config, config->lanes.count) +
                               sizes->memory.tier_bytes + config->socket.max_total_arena_bytes;
}

void sizes_make(const struct config *config, struct size_table *tables, size_t table_count,
                struct sizes *ret_sizes)
{
    *ret_sizes = (struct sizes){ .config = config, .tables = tables, .table_count = table_count };
    for (size_t i = 0; i < table_count; i++)
        measure_table(ret_sizes, &tables[i]);
    measure_disk(ret_sizes);
    measure_memory(ret_sizes);
}

/* ---- What is too small ---- */

static void check_tables(const struct sizes *sizes, size_lack_fn *found, void *context)
{
    const struct config *const config = sizes->config;
    struct size_lack lack;

    for (size_t i = 0; i < sizes->table_count; i++) {
        const struct size_table *const table = &sizes->tables[i];

        if (table->spec.home != EMBTIER_HOME_ARRAY || table->tier != SIZE_NO_TIER)
            continue;
        if (table->array_bytes == 0)
            (void)snprintf(lack.text, sizeof(lack.text),
                           "table %s: no array can have so many rows; give it home cache",
                           table->spec.name);
        else
            (void)snprintf(
                lack.text, sizeof(lack.text),
                "table %s: no tier%s%s has %s left for its array; raise array_bytes of a "
                "tier, or give the table home cache",
                table->spec.name, table->spec.home_tier[0] ? " " : "", table->spec.home_tier,
                BYTES_TEXT(table->array_bytes));
        found(context, &lack);
    }
    for (size_t t = 0; t < config->cache.tier_count; t++) {
        const struct tier_spec *const tier = &config->cache.tiers[t];

        if (sizes->tiers[t].needed_bytes <= tier->array_bytes)
            continue;
        (void)snprintf(lack.text, sizeof(lack.text),
                       "tier %s keeps %s for arrays, and its tables need %s; raise array_bytes",
                       tier->name, BYTES_TEXT(tier->array_bytes),
                       BYTES_TEXT(sizes->tiers[t].needed_bytes));
        found(context, &lack);
    }
}

void sizes_check(const struct sizes *sizes, uint64_t free_bytes, size_lack_fn *found, void *context)
{
    const uint64_t wanted = sizes->ssd.bytes + sizes->ssd.working_bytes;
    const uint64_t memory = sizes->config->machine.memory_bytes;
    struct size_lack lack;

    check_tables(sizes, found, context);
    if (sizes->memory.most_bytes > memory) {
        (void)snprintf(lack.text, sizeof(lack.text),
                       "memory: all budgets together are %s, and the machine has %s; lower one",
                       BYTES_TEXT(sizes->memory.most_bytes), BYTES_TEXT(memory));
        found(context, &lack);
    }
    if (wanted > free_bytes) {
        (void)snprintf(lack.text, sizeof(lack.text),
                       "SSD: %s are needed, and the data directories have %s free; add a "
                       "directory, or shorten tables",
                       BYTES_TEXT(wanted), BYTES_TEXT(free_bytes));
        found(context, &lack);
    }
}
