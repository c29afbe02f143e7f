/* SPDX-License-Identifier: Apache-2.0 */
/* store_tuning.c: options of RocksDB that change while the store is open. */
#include "store/store_impl.h"

/* RocksDB counts ten more files for itself (rocksdb_setup.c). */
#define OWN_FILES 10

/* Tunes one database after the other, also behind one that refuses. So few are left to a caller
 * that tries again, and the error is the first one. */
struct tuning_round {
    enum rocksdb_ext_tuning tuning;
    int64_t value;
    uint32_t asked, refused;
    enum embtier_err err;
    struct err_msg msg; /* of the first that refused */
};

static void tune_one(struct tuning_round *round, struct database *database)
{
    struct err_msg msg = { { 0 } };
    const enum embtier_err err = database_tune(database, round->tuning, round->value, &msg);

    round->asked++;
    if (err == EMBTIER_OK || round->refused++ > 0)
        return;
    round->err = err;
    round->msg = msg;
}

static enum embtier_err end_round(const struct tuning_round *round, struct err_msg *msg)
{
    if (round->refused == 0)
        return EMBTIER_OK;
    return err_set(msg, round->err, "%u of %u databases did not take it; the first: %s",
                   round->refused, round->asked, round->msg.text);
}

static enum embtier_err tune_all(struct store *store, enum rocksdb_ext_tuning tuning, int64_t value,
                                 struct err_msg *msg)
{
    struct tuning_round round = { .tuning = tuning, .value = value };

    pthread_mutex_lock(&store->tuned.lock);
    for (uint32_t i = 0; i < store_database_count(store); i++)
        if (store_database_at(store, i))
            tune_one(&round, store_database_at(store, i));
    if (round.refused == 0) {
        store->tuned.values[tuning] = value;
        store->tuned.is_set[tuning] = true;
    }
    pthread_mutex_unlock(&store->tuned.lock);
    return end_round(&round, msg);
}

enum embtier_err store_tune_new(const struct store *store, struct database *database,
                                struct err_msg *msg)
{
    for (uint32_t i = 0; i < ROCKSDB_EXT_TUNING_COUNT; i++) {
        const enum rocksdb_ext_tuning tuning = (enum rocksdb_ext_tuning)i;

        if (store->tuned.is_set[i] && database_tuned(database, tuning) != store->tuned.values[i])
            TRY(database_tune(database, tuning, store->tuned.values[i], msg));
    }
    return EMBTIER_OK;
}

enum embtier_err store_check_memtables(const struct config *config, uint32_t shards,
                                       struct err_msg *msg)
{
    uint64_t bytes;

    return rocksdb_buffer_bytes(config, shards, &bytes, msg);
}

/* The reserve on disk must hold all write buffers, so it grows first. */
enum embtier_err store_set_memtables(struct store *store, const struct config *config,
                                     struct err_msg *msg)
{
    const uint64_t total = config->rocksdb.memtable_bytes;
    struct store_view *const view = store_view_get(&store->views);
    const uint32_t shards = bucket_map_present(view->map);
    uint64_t bytes = 0;

    store_view_put(&store->views, view);
    TRY(rocksdb_buffer_bytes(config, shards, &bytes, msg));
    if (total > atomic_load(&store->memtable_bytes))
        space_set_memtables(store->space, total, shards * STORE_DATABASES_PER_SHARD);
    TRY(tune_all(store, ROCKSDB_EXT_TUNING_WRITE_BUFFER_BYTES, (int64_t)bytes, msg));
    rocksdb_ext_set_write_buffers(store->setup->options, total);
    atomic_store(&store->memtable_bytes, total);
    space_set_memtables(store->space, total, shards * STORE_DATABASES_PER_SHARD);
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

enum embtier_err store_set_trigger_files(struct store *store, uint32_t files, struct err_msg *msg)
{
    return tune_all(store, ROCKSDB_EXT_TUNING_TRIGGER_FILES, files, msg);
}

uint32_t store_trigger_files(const struct store *store)
{
    for (uint32_t i = 0; i < store_database_count(store); i++)
        if (store_database_at(store, i))
            return (uint32_t)database_tuned(store_database_at(store, i),
                                            ROCKSDB_EXT_TUNING_TRIGGER_FILES);
    return 0;
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
    struct tuning_round round = { .tuning = ROCKSDB_EXT_TUNING_OPEN_FILES,
                                  .value = (int64_t)config->descriptors.table_files + OWN_FILES };

    pthread_mutex_lock(&store->tuned.lock);
    for (uint32_t i = 0; i < store_database_count(store); i++) {
        struct database *const database = store_database_at(store, i);

        if (database && round.value < database_tuned(database, round.tuning))
            tune_one(&round, database);
    }
    pthread_mutex_unlock(&store->tuned.lock);
    TRY(end_round(&round, msg));
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

void store_computed(struct store *store, struct store_computed *ret_computed)
{
    struct space_stats space;

    space_stats(store->space, &space);
    *ret_computed = (struct store_computed){ .reserve_bytes = space.least_bytes,
                                             .capacity_bytes = store->capacity_bytes };
}
