/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "store/catalog.h"
#include "store/compaction_scheduler.h"
#include "store/database.h"
#include "store/durable_file.h"
#include "store/rocksdb_ext.h"
#include "store/rocksdb_setup.h"
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
    struct database **databases; /* see database_of(); NULL from the first that was not opened */
    uint32_t database_count;
};

/* Two a shard. */
enum database_kind { DATABASE_REPLAY, DATABASE_LOGGED, DATABASE_KINDS };
_Static_assert(DATABASE_KINDS == STORE_DATABASES_PER_SHARD, "each has its write buffers");
static const char *const database_names[] = { "replay", "logged" };

static struct database *database_of(const struct store *store, uint32_t shard, bool logged)
{
    return store->databases[shard * DATABASE_KINDS + (logged ? DATABASE_LOGGED : DATABASE_REPLAY)];
}

static enum embtier_err open_database(struct store *store, const char *folder, uint32_t index,
                                      bool direct_io, struct err_msg *msg)
{
    const enum database_kind kind = index % DATABASE_KINDS;
    _cleanup_(freep) char *path = path_join(folder, database_names[kind]);

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", folder);
    return database_open(&(struct database_opts){ .setup = store->setup,
                                                  .activity = store->activity,
                                                  .path = path,
                                                  .make = store_identity_is_making(store->identity),
                                                  .logged = kind == DATABASE_LOGGED,
                                                  .direct_io = direct_io },
                         &store->databases[index], msg);
}

static enum embtier_err open_shard(struct store *store, uint32_t shard, bool direct_io,
                                   struct err_msg *msg)
{
    const bool make = store_identity_is_making(store->identity);
    const char *directory =
        store_identity_directory(store->identity, shard / store->shards_per_directory);
    _cleanup_(freep) char *folder = NULL;

    if (asprintf(&folder, "%s/shard-%04u", directory, shard) < 0) {
        folder = NULL;
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    }
    if (make && mkdir(folder, 0700) != 0 && errno != EEXIST)
        return err_set_errno(msg, errno, "%s", folder);
    for (uint32_t kind = 0; kind < DATABASE_KINDS; kind++)
        TRY(open_database(store, folder, shard * DATABASE_KINDS + kind, direct_io, msg));
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
            TRY(open_shard(store, s, direct_io, msg));
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
    store->database_count = store->shard_count * DATABASE_KINDS;
    store->databases = calloc(store->database_count, sizeof(struct database *));
    store->activity = rocksdb_ext_activity_new();
    if (!store->databases || !store->activity)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(rocksdb_setup_new(config, store->shard_count, &store->setup, msg));
    TRY(store_open_shards(store, config, msg));
    store->capacity_bytes = capacity_bytes(store);
    TRY(store_finish_making(store, msg));
    TRY(compaction_scheduler_new(
        &(struct compaction_scheduler_opts){ .databases = store->databases,
                                             .database_count = store->database_count,
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
    for (uint32_t i = 0; store->databases && i < store->database_count; i++) {
        enum embtier_err err;

        if (!store->databases[i])
            continue;
        err = database_close(store->databases[i], complete, first == EMBTIER_OK ? msg : NULL);
        if (first == EMBTIER_OK)
            first = err;
    }
    free(store->databases);
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
    for (uint32_t i = 0; store->databases && i < store->database_count; i++)
        clean = clean && (!store->databases[i] || database_was_clean(store->databases[i]));
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

/* How many rows from the first on are of its database: tables are sorted. */
static uint32_t rows_of_one(const struct store_row *rows, uint32_t count)
{
    uint32_t i = 1;

    while (i < count && rows[i].logged == rows[0].logged)
        i++;
    return i;
}

enum embtier_err store_read(struct store *store, uint32_t shard, struct store_row *rows,
                            uint32_t count, struct err_msg *msg)
{
    enum embtier_err first = EMBTIER_OK;

    for (uint32_t done = 0; done < count;) {
        const uint32_t some = rows_of_one(rows + done, count - done);
        const enum embtier_err err =
            database_read(database_of(store, shard, rows[done].logged), rows + done, some,
                          first == EMBTIER_OK ? msg : NULL);

        if (first == EMBTIER_OK)
            first = err;
        done += some;
    }
    return first;
}

enum embtier_err store_write(struct store *store, uint32_t shard, const struct store_row *rows,
                             uint32_t count, struct err_msg *msg)
{
    if (count == 0)
        return EMBTIER_OK;
    return database_write(database_of(store, shard, rows[0].logged), rows, count, msg);
}

enum embtier_err store_sync_logs(struct store *store, const uint32_t *shards, uint32_t count,
                                 struct err_msg *msg)
{
    struct database *databases[DATABASES_SYNC_MAX];

    for (uint32_t done = 0; done < count;) {
        const uint32_t some = MIN(count - done, (uint32_t)DATABASES_SYNC_MAX);

        for (uint32_t i = 0; i < some; i++)
            databases[i] = database_of(store, shards[done + i], true);
        TRY(databases_sync_logs(databases, some, msg));
        done += some;
    }
    return EMBTIER_OK;
}

enum embtier_err store_flush(struct store *store, uint32_t shard, struct err_msg *msg)
{
    TRY(database_flush(database_of(store, shard, false), msg));
    return database_flush(database_of(store, shard, true), msg);
}

enum embtier_err store_drop_table(struct store *store, uint32_t table_id, bool logged,
                                  void (*progress)(void *, uint32_t, uint32_t), void *context,
                                  const _Atomic bool *give_up, struct err_msg *msg)
{
    if (table_id == STORE_ALL_TABLES)
        return err_set(msg, EMBTIER_INVALID, "no table has the id %u", table_id);
    for (uint32_t s = 0; s < store->shard_count; s++) {
        struct database *const database = database_of(store, s, logged);
        enum embtier_err err;

        TRY(database_delete_table(database, table_id, msg));
        TRY(compaction_scheduler_hold(store->scheduler, give_up, msg));
        err = database_compact_table(database, table_id, msg);
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

    for (uint32_t i = 0; i < store->database_count; i++)
        database_add_stats(store->databases[i], &stats);
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
