/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "store/catalog.h"
#include "store/compaction_scheduler.h"
#include "store/durable_file.h"
#include "store/rocksdb_ext.h"
#include "store/rocksdb_setup.h"
#include "store/shard.h"
#include "store/store_identity.h"

/* What an urgent shard (compaction_scheduler.c) may need to catch up; only a disk that hangs needs
 * longer. */
#define HOLD_PATIENCE_MS (10 * 60 * 1000)

struct store {
    struct store_identity *identity;
    struct rocksdb_setup *setup;
    struct rocksdb_ext_activity *activity;
    struct compaction_scheduler *scheduler;
    struct row_hasher hasher;
    bool direct_io; /* in all directories */
    uint64_t capacity_bytes;
    uint32_t shards_per_directory;
    uint32_t shard_count;
    struct shard **shards; /* NULL from the first one that could not be opened */
};

static enum embtier_err store_open_shard(struct store *store, uint32_t index, bool direct_io,
                                         struct err_msg *msg)
{
    const bool make = store_identity_is_making(store->identity);
    const char *directory =
        store_identity_directory(store->identity, index / store->shards_per_directory);
    _cleanup_(freep) char *folder = NULL;
    _cleanup_(freep) char *path = NULL;

    if (asprintf(&folder, "%s/shard-%04u", directory, index) < 0 ||
        !(path = path_join(folder, "replay")))
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    if (make && mkdir(folder, 0700) != 0 && errno != EEXIST)
        return err_set_errno(msg, errno, "%s", folder);
    TRY(shard_open(&(struct shard_opts){ .setup = store->setup,
                                         .activity = store->activity,
                                         .path = path,
                                         .make = make,
                                         .direct_io = direct_io },
                   &store->shards[index], msg));
    if (make) {
        TRY(directory_sync(folder, msg));
        TRY(directory_sync(directory, msg));
    }
    return EMBTIER_OK;
}

static enum embtier_err store_open_shards(struct store *store, const struct config *config,
                                          struct err_msg *msg)
{
    const uint32_t directories = store_identity_directory_count(store->identity);

    store->direct_io = true;
    for (uint32_t d = 0; d < directories; d++) {
        const uint32_t first = d * store->shards_per_directory;
        bool direct_io;

        TRY(direct_io_probe(store_identity_directory(store->identity, d), config->rocksdb.direct_io,
                            &direct_io, msg));
        store->direct_io = store->direct_io && direct_io;
        for (uint32_t s = first; s < first + store->shards_per_directory; s++)
            TRY(store_open_shard(store, s, direct_io, msg));
    }
    return EMBTIER_OK;
}

/* Every store has a catalog from the beginning, so that a lost one is noticed. */
static enum embtier_err store_finish_making(struct store *store, struct err_msg *msg)
{
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;

    if (store_identity_is_making(store->identity))
        TRY(catalog_open(store_first_directory(store), &catalog, msg));
    return store_identity_commit(store->identity, msg);
}

/* Of the file systems of the data directories, each counted once. */
static uint64_t capacity_bytes(const struct store *store)
{
    const uint32_t directories = store_identity_directory_count(store->identity);
    dev_t seen[CONFIG_DIRECTORIES_MAX];
    uint32_t seen_count = 0;
    uint64_t bytes = 0;

    for (uint32_t d = 0; d < directories; d++) {
        const char *const path = store_identity_directory(store->identity, d);
        struct statvfs fs;
        struct stat info;
        uint32_t i = 0;

        if (stat(path, &info) != 0 || statvfs(path, &fs) != 0)
            continue;
        while (i < seen_count && seen[i] != info.st_dev)
            i++;
        if (i < seen_count)
            continue;
        seen[seen_count++] = info.st_dev;
        bytes += (uint64_t)fs.f_blocks * fs.f_frsize;
    }
    return bytes;
}

enum embtier_err store_open(const struct store_opts *opts, struct store **ret_store,
                            struct err_msg *msg)
{
    _cleanup_(store_freep) struct store *store = calloc(1, sizeof(*store));
    const struct config *config = opts->config;

    if (!store)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(store_identity_open(config, &store->identity, msg));
    row_hasher_init(&store->hasher, store_identity_hash_key(store->identity));
    store->shards_per_directory = config->data.shards_per_directory;
    store->shard_count = config->data.directory_count * config->data.shards_per_directory;
    store->shards = calloc(store->shard_count, sizeof(struct shard *));
    store->activity = rocksdb_ext_activity_new();
    if (!store->shards || !store->activity)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(rocksdb_setup_new(config, store->shard_count, &store->setup, msg));
    TRY(store_open_shards(store, config, msg));
    store->capacity_bytes = capacity_bytes(store);
    TRY(store_finish_making(store, msg));
    TRY(compaction_scheduler_new(
        &(struct compaction_scheduler_opts){ .shards = store->shards,
                                             .shard_count = store->shard_count,
                                             .parallel = config->rocksdb.compaction_parallel,
                                             .hold_patience_ms = HOLD_PATIENCE_MS },
        &store->scheduler, msg));
    *ret_store = TAKE(store);
    return EMBTIER_OK;
}

enum embtier_err store_close(struct store *store, bool complete, struct err_msg *msg)
{
    enum embtier_err first = EMBTIER_OK;

    if (!store)
        return EMBTIER_OK;
    compaction_scheduler_free(store->scheduler);
    for (uint32_t s = 0; store->shards && s < store->shard_count; s++) {
        enum embtier_err err;

        if (!store->shards[s])
            continue;
        err = shard_close(store->shards[s], complete, first == EMBTIER_OK ? msg : NULL);
        if (first == EMBTIER_OK)
            first = err;
    }
    free(store->shards);
    rocksdb_setup_free(store->setup);
    rocksdb_ext_activity_free(store->activity);
    store_identity_free(store->identity);
    free(store);
    return first;
}

void store_free(struct store *store)
{
    bool clean = true;

    if (!store)
        return;
    for (uint32_t s = 0; store->shards && s < store->shard_count; s++)
        clean = clean && (!store->shards[s] || shard_was_clean(store->shards[s]));
    (void)store_close(store, clean, NULL);
}

uint32_t store_shard_count(const struct store *store)
{
    return store->shard_count;
}

const struct row_hasher *store_hasher(const struct store *store)
{
    return &store->hasher;
}

const char *store_first_directory(const struct store *store)
{
    return store_identity_directory(store->identity, 0);
}

void store_reader_begin(struct store *store)
{
    if (store->setup->io_uring)
        rocksdb_ext_io_uring_begin();
}

enum embtier_err store_read(struct store *store, uint32_t shard, struct store_row *rows,
                            uint32_t count, struct err_msg *msg)
{
    return shard_read(store->shards[shard], rows, count, msg);
}

enum embtier_err store_write(struct store *store, uint32_t shard, const struct store_row *rows,
                             uint32_t count, struct err_msg *msg)
{
    return shard_write(store->shards[shard], rows, count, msg);
}

enum embtier_err store_flush(struct store *store, uint32_t shard, struct err_msg *msg)
{
    return shard_flush(store->shards[shard], msg);
}

enum embtier_err store_drop_table(struct store *store, uint32_t table_id,
                                  void (*progress)(void *, uint32_t, uint32_t), void *context,
                                  const _Atomic bool *give_up, struct err_msg *msg)
{
    if (table_id == STORE_ALL_TABLES)
        return err_set(msg, EMBTIER_INVALID, "no table has the id %u", table_id);
    for (uint32_t s = 0; s < store->shard_count; s++) {
        enum embtier_err err;

        TRY(shard_delete_table(store->shards[s], table_id, msg));
        TRY(compaction_scheduler_hold(store->scheduler, give_up, msg));
        err = shard_compact_table(store->shards[s], table_id, msg);
        compaction_scheduler_release(store->scheduler);
        TRY(err);
        if (progress)
            progress(context, s + 1, store->shard_count);
    }
    return EMBTIER_OK;
}

void store_set_busy(struct store *store, bool busy)
{
    compaction_scheduler_set_busy(store->scheduler, busy);
}

void store_written(struct store *store, uint32_t table_id, struct store_written *ret_written)
{
    struct rocksdb_ext_written rows;

    rocksdb_ext_activity_written(store->activity, table_id, &rows);
    *ret_written = (struct store_written){ .flush_bytes = rows.flush_bytes,
                                           .compaction_bytes = rows.compaction_bytes,
                                           .import_bytes = rows.import_bytes };
    if (table_id != STORE_ALL_TABLES)
        return;
    rocksdb_ext_file_bytes(&ret_written->log_bytes, &ret_written->other_bytes);
    ret_written->other_bytes += durable_file_written_bytes();
}

void store_stats(struct store *store, struct store_stats *ret_stats)
{
    const rocksdb_options_t *options = store->setup->options;
    struct store_stats stats = { .direct_io = store->direct_io,
                                 .capacity_bytes = store->capacity_bytes,
                                 .io_uring = store->setup->io_uring };
    uint64_t read_bytes, compaction_read_bytes;

    for (uint32_t s = 0; s < store->shard_count; s++)
        shard_add_stats(store->shards[s], &stats);
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
    *ret_stats = stats;
}
