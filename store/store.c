/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: opens and closes the databases of all shards. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/paths.h"
#include "store/catalog.h"
#include "store/checkpoint/checkpoint_advice.h"
#include "store/files/drive_number.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/files/written.h"
#include "store/resharding/wave.h"
#include "store/rocksdb/rocksdb_options.h"
#include "store/store_impl.h"

/* Time that urgent shards (compaction_scheduler.c) may need to catch up; only a disk that hangs
 * needs longer. */
#define HOLD_PATIENCE_MS (10 * 60 * 1000)

char *store_shard_folder_in(const char *directory, uint32_t shard)
{
    char *path = NULL;

    return asprintf(&path, "%s/shard-%04u", directory, shard) < 0 ? NULL : path;
}

char *store_shard_folder_of(const struct store *store, uint32_t shard)
{
    return store_shard_folder_in(store_directory_of(store, shard), shard);
}

char *store_database_path_of(const struct store *store, uint32_t shard, bool logged)
{
    _cleanup_(freep) char *folder = store_shard_folder_of(store, shard);

    return folder ? path_join(folder, database_name(logged)) : NULL;
}

/* True if databases of this kind have been put back to the checkpoint, or emptied. */
static bool is_put_back(const struct store *store, enum database_kind kind)
{
    return store->recovery.happened && (kind == DATABASE_REPLAY || !store->recovery.after_crash);
}

/* Advises on a damaged database. A checkpoint that a user chose gets no advice. */
static void add_way_out(const struct store *store, enum database_kind kind, struct err_msg *msg)
{
    if (!is_put_back(store, kind))
        checkpoint_advise(&store->shelf, msg);
    else if (store->recovery.after_crash)
        checkpoint_advise_after_crash(msg);
}

static enum embtier_err open_database(const struct store *store, const char *folder, uint32_t shard,
                                      enum database_kind kind, bool make, bool direct_io,
                                      struct database **ret_database, struct err_msg *msg)
{
    const bool put_back = is_put_back(store, kind);
    _cleanup_(freep) char *path = path_join(folder, database_name(kind == DATABASE_LOGGED));

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", folder);
    return database_open(
        &(struct database_opts){ .setup = store->setup,
                                 .activity = store->activity,
                                 .path = path,
                                 .marks = { store->hasher, shard },
                                 .make = make || (put_back && (store->recovery.checkpoint.id == 0 ||
                                                               store->is_empty[shard])),
                                 .put_back = put_back && !make,
                                 .logged = kind == DATABASE_LOGGED,
                                 .direct_io = direct_io },
        ret_database, msg);
}

enum embtier_err store_open_shard(struct store *store, uint32_t shard, uint32_t place, bool make,
                                  struct database *ret_databases[DATABASE_KINDS],
                                  struct err_msg *msg)
{
    const char *const directory = store_identity_directory(store->identity, place);
    _cleanup_(freep) char *folder = store_shard_folder_in(directory, shard);
    enum embtier_err err;

    if (!folder)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    if (make && mkdir(folder, 0700) != 0 && errno != EEXIST)
        return err_set_errno(msg, errno, "%s", folder);
    for (uint32_t kind = 0; kind < DATABASE_KINDS; kind++) {
        err = open_database(store, folder, shard, kind, make, store->direct_io_of[place],
                            &ret_databases[kind], msg);
        if (err == EMBTIER_CORRUPT)
            add_way_out(store, kind, msg);
        TRY(err);
    }
    if (make) {
        TRY(directory_sync(folder, msg));
        TRY(directory_sync(directory, msg));
    }
    return EMBTIER_OK;
}

static enum embtier_err store_open_shards(struct store *store, const struct config *config,
                                          struct err_msg *msg)
{
    const bool make = store_identity_is_making(store->identity);
    const uint32_t shards = bucket_map_present(store->map);
    uint32_t opened = 0;

    store->direct_io = true;
    store->direct_io_wanted = config->rocksdb.direct_io;
    for (uint32_t d = 0; d < store_identity_directory_count(store->identity); d++) {
        if (!store_identity_has(store->identity, d))
            continue;
        TRY(direct_io_probe(store_identity_directory(store->identity, d), config->rocksdb.direct_io,
                            &store->direct_io_of[d], msg));
        store->direct_io = store->direct_io && store->direct_io_of[d];
    }
    for (uint32_t s = 0; s < store->map->shard_count; s++) {
        struct database *databases[DATABASE_KINDS] = { NULL };
        enum embtier_err err;

        if (!bucket_map_has(store->map, s))
            continue;
        store->place_of[s] = store->map->places[s];
        open_progress_set(store->progress, "shards", opened++, shards);
        err = store_open_shard(store, s, store->map->places[s], make, databases,
                               msg); /* reads the shard's logs */
        for (uint32_t kind = 0; kind < DATABASE_KINDS; kind++)
            atomic_store(&store->databases[s * DATABASE_KINDS + kind], databases[kind]);
        TRY(err);
    }
    return EMBTIER_OK;
}

/* Makes the catalog with the store, so that a lost one is noticed. */
static enum embtier_err store_finish_making(struct store *store, struct err_msg *msg)
{
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;

    if (store_identity_is_making(store->identity))
        TRY(catalog_open(store_first_directory(store), &catalog, msg));
    return store_identity_commit(store->identity, msg);
}

/* Returns the number of the file system of a directory: that of an earlier one, or a new one. */
static uint32_t device_of(const struct store *store, uint32_t directory, dev_t device)
{
    uint32_t next = 0;

    for (uint32_t d = 0; d < directory; d++) {
        struct stat info;

        if (!store_identity_has(store->identity, d))
            continue;
        if (stat(store_identity_directory(store->identity, d), &info) == 0 && info.st_dev == device)
            return store->devices[d];
        next = MAX(next, store->devices[d] + 1);
    }
    return next;
}

/* Returns the number of the drive beneath a directory. */
static uint32_t drive_of(const struct store *store, uint32_t directory, const char *path)
{
    struct drive_place places[CONFIG_DIRECTORIES_MAX];
    uint32_t count = 0;

    for (uint32_t d = 0; d < directory; d++)
        if (store_identity_has(store->identity, d))
            places[count++] = (struct drive_place){
                .path = store_identity_directory(store->identity, d),
                .number = store->drives[d],
            };
    return drive_number(&host_files, places, count, path);
}

void store_note_device(struct store *store, uint32_t directory, const char *path)
{
    struct stat info;

    if (stat(path, &info) == 0)
        store->devices[directory] = device_of(store, directory, info.st_dev);
    store->drives[directory] = drive_of(store, directory, path);
}

void store_count_capacity(struct store *store, uint32_t directory)
{
    struct statvfs fs;

    for (uint32_t d = 0; d < directory; d++)
        if (store_identity_has(store->identity, d) &&
            store->devices[d] == store->devices[directory])
            return;
    if (statvfs(store_identity_directory(store->identity, directory), &fs) == 0)
        atomic_fetch_add(&store->capacity_bytes, (uint64_t)fs.f_blocks * fs.f_frsize);
}

/* Numbers the file systems and drives of the data directories, and sums up their bytes. Each counts
 * once. */
static void find_devices(struct store *store)
{
    for (uint32_t d = 0; d < store_identity_directory_count(store->identity); d++) {
        if (!store_identity_has(store->identity, d))
            continue;
        store_note_device(store, d, store_identity_directory(store->identity, d));
        store_count_capacity(store, d);
    }
}

bool store_is_in_use(const struct config *config)
{
    return store_identity_is_in_use(config->data.directories[0]);
}

enum embtier_err store_check(const struct config *config, struct err_msg *msg)
{
    _cleanup_(rocksdb_setup_freep) struct rocksdb_setup *setup = NULL;
    _cleanup_(store_identity_freep) struct store_identity *identity = NULL;
    const uint32_t shards = config->data.directory_count * config->data.shards_per_directory;

    TRY(store_identity_look(config, &identity, msg));
    TRY(bucket_map_check(
        identity, store_identity_made_count(identity) * config->data.shards_per_directory, msg));
    TRY(rocksdb_setup_new(config, shards, &setup, msg));
    if (config->rocksdb.options)
        TRY(rocksdb_options_try(setup->options, config, msg));
    for (uint32_t d = 0; config->rocksdb.direct_io == SWITCH_ON && d < config->data.directory_count;
         d++) {
        bool direct_io;

        TRY(direct_io_probe(config->data.directories[d], SWITCH_ON, &direct_io, msg));
    }
    return EMBTIER_OK;
}

static uint64_t buffer_bytes(const void *context)
{
    const struct store *const store = context;

    return rocksdb_ext_write_buffer_bytes(store->setup->options);
}

const char *store_rocksdb_version(void)
{
    return rocksdb_ext_version();
}

static enum embtier_err store_start_scheduler(struct store *store, const struct config *config,
                                              struct err_msg *msg)
{
    _cleanup_(freep) struct database **databases =
        calloc(store_database_count(store), sizeof(struct database *));
    _cleanup_(freep) uint32_t *devices = calloc(store_database_count(store), sizeof(*devices));
    struct compaction_scheduler_opts opts = {
        .databases = databases,
        .database_room = BUCKET_MAP_SHARDS_MAX * DATABASE_KINDS,
        .devices = devices,
        .parallel = config->rocksdb.compaction_parallel,
        .options = store->setup->options,
        .bytes_per_second = config->rocksdb.compaction_bytes_per_second,
        .hold_patience_ms = HOLD_PATIENCE_MS,
    };

    if (!databases || !devices)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < store_database_count(store); i++) {
        if (!store_database_at(store, i))
            continue;
        devices[opts.database_count] = store_drive_of(store, i / DATABASE_KINDS);
        databases[opts.database_count++] = store_database_at(store, i);
    }
    if (config->rocksdb.compaction_hours)
        TRY(day_hours_parse(config->rocksdb.compaction_hours, &opts.hours, msg));
    return compaction_scheduler_new(&opts, &store->scheduler, msg);
}

/* The engine has arrays by shard, and deals shards out to lanes. So it sees routes: the shards that
 * have buckets, without holes. In a store whose buckets have never moved they are the same. */
static enum embtier_err make_routes(struct store *store, struct err_msg *msg)
{
    _cleanup_(freep) uint16_t *route_of = calloc(BUCKET_MAP_SHARDS_MAX, sizeof(*route_of));
    struct bucket_map *const routes = bucket_map_copy(store->map);
    uint32_t count = 0;

    store->routes = routes;
    if (!routes || !route_of)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t s = 0; s < store->map->shard_count; s++) {
        if (store->map->bucket_counts[s] == 0)
            continue;
        assert(count < CONFIG_SHARDS_MAX);
        route_of[s] = (uint16_t)count;
        store->route_shards[count++] = (uint16_t)s;
    }
    routes->shard_count = count;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        routes->shards[bucket] = route_of[store->map->shards[bucket]];
    bucket_map_count(routes);
    return EMBTIER_OK;
}

/* From here on, the view has the map. */
static enum embtier_err make_view(struct store *store, struct err_msg *msg)
{
    struct bucket_map *map = store->map;
    struct store_view *view = NULL;

    store->map_generation = map->generation;
    store->views.routes = store->routes;
    store->views.route_shards = store->route_shards;
    TRY(store_view_new(&store->views, &map, NULL, &view, msg));
    store_view_set(&store->views, view);
    return EMBTIER_OK;
}

enum embtier_err store_open(const struct store_opts *opts, struct store **ret_store,
                            struct err_msg *msg)
{
    _cleanup_(store_freep) struct store *store = calloc(1, sizeof(*store));
    _cleanup_(open_progress_end) struct open_progress progress;
    const struct config *config = opts->config;

    open_progress_begin(&progress);
    if (!store)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    store->progress = &progress;
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->reading.lock, NULL);
    pthread_mutex_init(&store->reserve_lock, NULL);
    pthread_mutex_init(&store->moves.lock, NULL);
    pthread_mutex_init(&store->tuned.lock, NULL);
    pthread_mutex_init(&store->moves.facts_lock, NULL);
    store_views_init(&store->views);
    written_begin(config->data.directories, config->data.directory_count);
    TRY(store_identity_open(config, &store->identity, msg));
    TRY(bucket_map_open(store->identity,
                        store_identity_made_count(store->identity) *
                            config->data.shards_per_directory,
                        &store->map, msg));
    store->shards_per_directory = config->data.shards_per_directory;
    TRY(store_leave_out(store, opts->restore_id, msg));
    store_retire_shards(store);
    TRY(store_open_space(store, config, msg));
    row_hasher_init(&store->hasher, store_identity_hash_key(store->identity));
    store->read_files = config->descriptors.read_files;
    store->databases =
        calloc((size_t)BUCKET_MAP_SHARDS_MAX * DATABASE_KINDS, sizeof(*store->databases));
    store->is_empty = calloc(BUCKET_MAP_SHARDS_MAX, sizeof(*store->is_empty));
    store->activity = rocksdb_ext_activity_new();
    if (!store->databases || !store->is_empty || !store->activity)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(rocksdb_setup_new(config, bucket_map_present(store->map), &store->setup, msg));
    TRY(store_put_back(store, opts->restore_id, msg));
    TRY(make_routes(store, msg));
    atomic_store(&store->shard_count, store->map->shard_count);
    TRY(store_open_shards(store, config, msg));
    find_devices(store);
    store->memtable_bytes = config->rocksdb.memtable_bytes;
    store->background_threads = config->rocksdb.background_threads;
    TRY(store_finish_making(store, msg));
    TRY(make_view(store, msg));
    store->is_open = true;
    TRY(store_start_scheduler(store, config, msg));
    TRY(space_start(store->space, buffer_bytes, store, msg));
    store->progress = NULL;
    *ret_store = TAKE(store);
    return EMBTIER_OK;
}

/* True if the shard lies in a directory that has been removed. It has no row that counts. */
static bool has_left(const struct store *store, uint32_t shard)
{
    return !store_identity_has(store->identity, store->place_of[shard]);
}

enum embtier_err store_shut(struct store *store, bool complete, struct err_msg *msg)
{
    enum embtier_err first = EMBTIER_OK;

    complete = complete && store->is_open;
    store->is_open = false;
    compaction_scheduler_free(TAKE(store->scheduler));
    for (uint32_t i = 0; store->databases && i < store_database_count(store); i++) {
        struct database *const database = store_database_at(store, i);
        enum embtier_err err;

        if (!database)
            continue;
        atomic_store(&store->databases[i], NULL);
        err = database_close(database, complete, first == EMBTIER_OK ? msg : NULL);
        /* The drive of a directory that has left may be gone already. */
        if (first == EMBTIER_OK && !has_left(store, i / DATABASE_KINDS))
            first = err;
    }
    if (first == EMBTIER_OK && complete && !atomic_load(&store->closed_file))
        first = store_write_closed_file(store, msg);
    return first;
}

enum embtier_err store_close(struct store *store, bool complete, struct err_msg *msg)
{
    enum embtier_err err;

    if (!store)
        return EMBTIER_OK;
    err = store_shut(store, complete, msg);
    pthread_mutex_destroy(&store->lock);
    pthread_mutex_destroy(&store->reading.lock);
    pthread_mutex_destroy(&store->reserve_lock);
    pthread_mutex_destroy(&store->moves.lock);
    pthread_mutex_destroy(&store->tuned.lock);
    pthread_mutex_destroy(&store->moves.facts_lock);
    space_free(store->space);
    written_end();
    free(store->databases);
    free(store->is_empty);
    rocksdb_setup_free(store->setup);
    rocksdb_ext_activity_free(store->activity);
    if (!store->views.now) /* else it has the map */
        bucket_map_free(store->map);
    store_views_clear(&store->views);
    bucket_map_free(store->routes);
    free(store->moves.drops);
    wave_free(store->moves.wave); /* of a job that was stopped while it switched */
    store_identity_free(store->identity);
    free(store);
    return err;
}

void store_free(struct store *store)
{
    bool clean = true;

    if (!store)
        return;
    for (uint32_t i = 0; store->databases && i < store_database_count(store); i++)
        clean = clean && (!store_database_at(store, i) || has_left(store, i / DATABASE_KINDS) ||
                          database_was_clean(store_database_at(store, i)));
    (void)store_close(store, clean, NULL);
}

uint32_t store_shard_count(const struct store *store)
{
    return store->routes->shard_count;
}

const struct bucket_map *store_bucket_map(const struct store *store)
{
    return store->routes;
}

const struct row_hasher *store_hasher(const struct store *store)
{
    return &store->hasher;
}

const char *store_first_directory(const struct store *store)
{
    return store_identity_directory(store->identity, 0);
}

uint32_t store_directories(const struct store *store, const char **ret_paths)
{
    uint32_t count = 0;

    for (uint32_t d = 0; d < store_identity_directory_count(store->identity); d++)
        if (store_identity_has(store->identity, d))
            ret_paths[count++] = store_identity_directory(store->identity, d);
    return count;
}

void store_reader_begin(struct store *store)
{
    if (store->setup->io_uring)
        rocksdb_ext_io_uring_begin();
}

void store_set_busy(struct store *store, bool busy)
{
    compaction_scheduler_set_busy(store->scheduler, busy);
}

struct compaction_scheduler *store_compaction(const struct store *store)
{
    return store->scheduler;
}
