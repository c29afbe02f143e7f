/* SPDX-License-Identifier: Apache-2.0 */
/* store_stats.c: counts. */
#include "base/macros.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/resharding/reshard.h"
#include "store/store_impl.h"

void store_written(struct store *store, uint32_t table_id, struct store_written *ret_written)
{
    struct rocksdb_ext_file_bytes files;
    struct rocksdb_ext_written rows;

    rocksdb_ext_activity_written(store->activity, table_id, &rows);
    *ret_written = (struct store_written){ .flush_bytes = rows.flush_bytes,
                                           .compaction_bytes = rows.compaction_bytes,
                                           .import_bytes = rows.import_bytes,
                                           .log_bytes = rows.log_bytes };
    if (table_id != STORE_ALL_TABLES)
        return;
    rocksdb_ext_file_bytes(&files);
    ret_written->log_bytes = files.log_bytes;
    ret_written->blob_bytes = files.blob_bytes;
    ret_written->checkpoint_bytes = file_tree_written_bytes();
    ret_written->other_bytes = files.other_bytes + durable_file_written_bytes();
}

void store_stats(struct store *store, struct store_stats *ret_stats)
{
    const rocksdb_options_t *options = store->setup->options;
    struct store_stats stats = { .direct_io = store->direct_io,
                                 .capacity_bytes = store->capacity_bytes,
                                 .io_uring = store->setup->io_uring,
                                 .reading_ns = store_reading_ns(store) };
    uint64_t read_bytes, compaction_read_bytes;
    struct space_stats space;

    space_stats(store->space, &space);
    stats.reserve_bytes = space.reserve_bytes;
    stats.reserve_held_bytes = space.held_bytes;
    stats.room_bytes = space.free_bytes;
    stats.space_refusals = space.refusals;
    stats.is_refusing = space.is_refusing;
    for (uint32_t i = 0; i < store_database_count(store); i++)
        if (store_database_at(store, i))
            database_add_stats(store_database_at(store, i), &stats);
    store_written(store, STORE_ALL_TABLES, &stats.written);
    read_bytes = rocksdb_ext_ticker(options, ROCKSDB_EXT_LAST_LEVEL_READ_BYTES) +
                 rocksdb_ext_ticker(options, ROCKSDB_EXT_NON_LAST_LEVEL_READ_BYTES);
    compaction_read_bytes = rocksdb_ext_ticker(options, ROCKSDB_EXT_COMPACT_READ_BYTES);
    stats.read_bytes = read_bytes - MIN(read_bytes, compaction_read_bytes);
    stats.metadata_hits = rocksdb_ext_ticker(options, ROCKSDB_EXT_BLOCK_CACHE_INDEX_HIT) +
                          rocksdb_ext_ticker(options, ROCKSDB_EXT_BLOCK_CACHE_FILTER_HIT);
    stats.metadata_misses = rocksdb_ext_ticker(options, ROCKSDB_EXT_BLOCK_CACHE_INDEX_MISS) +
                            rocksdb_ext_ticker(options, ROCKSDB_EXT_BLOCK_CACHE_FILTER_MISS);
    stats.memtable_bytes = rocksdb_ext_write_buffer_bytes(options);
    stats.metadata_cache_bytes = rocksdb_cache_get_usage(store->setup->metadata_cache);
    rocksdb_ext_activity_compactions(store->activity, &stats.shards_compacting,
                                     &stats.shards_compacting_peak, &stats.compactions_run);
    reshard_look(store, &stats.moves);
    *ret_stats = stats;
}
