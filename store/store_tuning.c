/* SPDX-License-Identifier: Apache-2.0 */
/* store_tuning.c: options of RocksDB that change while the store is open. */
#include "store/store_impl.h"

/* RocksDB counts ten more files for itself (rocksdb_setup.c). */
#define OWN_FILES 10

static enum embtier_err tune_all(struct store *store, enum rocksdb_ext_tuning tuning, int64_t value,
                                 struct err_msg *msg)
{
    for (uint32_t i = 0; i < store->database_count; i++)
        TRY(database_tune(store->databases[i], tuning, value, msg));
    return EMBTIER_OK;
}

/* The reserve on disk must hold all write buffers, so it grows first. */
enum embtier_err store_set_memtables(struct store *store, const struct config *config,
                                     struct err_msg *msg)
{
    const uint64_t total = config->rocksdb.memtable_bytes;
    uint64_t bytes = 0;

    TRY(rocksdb_buffer_bytes(config, store->shard_count, &bytes, msg));
    if (total > atomic_load(&store->memtable_bytes))
        space_set_memtables(store->space, total);
    TRY(tune_all(store, ROCKSDB_EXT_TUNING_WRITE_BUFFER_BYTES, (int64_t)bytes, msg));
    rocksdb_ext_set_write_buffers(store->setup->options, total);
    atomic_store(&store->memtable_bytes, total);
    space_set_memtables(store->space, total);
    return EMBTIER_OK;
}

enum embtier_err store_set_threads(struct store *store, uint32_t threads, struct err_msg *msg)
{
    int compacting = 0;

    TRY(rocksdb_setup_threads(store->setup, threads, &compacting, msg));
    TRY(tune_all(store, ROCKSDB_EXT_TUNING_COMPACTIONS, compacting, msg));
    atomic_store(&store->background_threads, threads);
    return EMBTIER_OK;
}

void store_set_metadata_cache(struct store *store, uint64_t bytes)
{
    rocksdb_cache_set_capacity(store->setup->metadata_cache, bytes);
}

void store_set_compaction_parallel(struct store *store, uint32_t parallel)
{
    compaction_scheduler_set_parallel(store->scheduler, parallel);
}

void store_set_compaction_bytes(struct store *store, uint64_t bytes_per_second)
{
    compaction_scheduler_set_bytes(store->scheduler, bytes_per_second);
}

enum embtier_err store_share_files(struct store *store, const struct config *config,
                                   struct err_msg *msg)
{
    const int64_t files = (int64_t)config->descriptors.table_files + OWN_FILES;

    for (uint32_t i = 0; i < store->database_count; i++) {
        struct database *const database = store->databases[i];

        if (files < database_tuned(database, ROCKSDB_EXT_TUNING_OPEN_FILES))
            TRY(database_tune(database, ROCKSDB_EXT_TUNING_OPEN_FILES, files, msg));
    }
    if (config->descriptors.read_files < atomic_load(&store->read_files))
        atomic_store(&store->read_files, config->descriptors.read_files);
    return EMBTIER_OK;
}

/* One thread compacts and one flushes, even if the configuration has one in all. */
static uint32_t threads_in_force(const struct store *store)
{
    const uint32_t wanted = atomic_load(&store->background_threads);
    const uint32_t threads = rocksdb_threads(store->setup);

    return threads == MAX(wanted, 2u) ? wanted : threads;
}

void store_tuning(struct store *store, struct store_tuning *ret_tuning)
{
    *ret_tuning = (struct store_tuning){
        .memtable_bytes = rocksdb_ext_write_buffers_budget(store->setup->options),
        .metadata_cache_bytes = rocksdb_cache_get_capacity(store->setup->metadata_cache),
        .background_threads = threads_in_force(store),
        .compaction_parallel = compaction_scheduler_parallel(store->scheduler),
        .compaction_bytes_per_second = compaction_scheduler_bytes(store->scheduler),
    };
}
