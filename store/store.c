/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config_memory.h"
#include "store/catalog.h"
#include "store/checkpoint/checkpoint.h"
#include "store/checkpoint/checkpoint_advice.h"
#include "store/database/compaction_scheduler.h"
#include "store/database/database.h"
#include "store/database/database_seal.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/files/space.h"
#include "store/files/summed_json.h"
#include "store/open_progress.h"
#include "store/rocksdb/rocksdb_ext.h"
#include "store/rocksdb/rocksdb_options.h"
#include "store/rocksdb/rocksdb_setup.h"
#include "store/store_identity.h"

/* What an urgent shard (compaction_scheduler.c) may need to catch up; only a disk that hangs needs
 * longer. */
#define HOLD_PATIENCE_MS (10 * 60 * 1000)

#define RESTORE_FILE "restore.json"
#define CLOSED_FILE  "closed.json"
/* For all flushes before a checkpoint, which could as well be left. */
#define SHORTEN_PATIENCE_NS (UINT64_C(15) * 1000 * 1000 * 1000)

/* For compactions that run on a full disk, which end or fail soon; and for databases that stopped
 * on one, once there is space. */
#define RESUME_PATIENCE_NS (UINT64_C(30) * 1000 * 1000 * 1000)
#define RESUME_PAUSE_NS    10000000L
/* A stored row has, beside its own bytes: key and head, and its part of filters and indexes. */
#define STORED_ROW_MORE_BYTES 48
/* So much may change in memory beside cache and queues before the space on disk is looked at again.
 */
#define CHANGE_BYTES (256 * MIB)

struct store {
    struct store_identity *identity;
    struct checkpoint_shelf shelf;
    struct store_recovery recovery;
    struct rocksdb_setup *setup;
    struct rocksdb_ext_activity *activity;
    struct compaction_scheduler *scheduler;
    pthread_mutex_t reserve_lock; /* who begins or ends to use the reserve, and pauses compaction */
    struct space *space;
    struct row_hasher hasher;
    bool direct_io; /* in all directories */
    uint64_t capacity_bytes;
    uint64_t memtable_bytes; /* of the configuration */
    uint32_t shards_per_directory;
    uint32_t read_files; /* of a checkpoint's database */
    uint32_t shard_count;
    struct database **databases; /* see database_of(); NULL from the first that was not opened */
    uint32_t database_count;
    bool is_open;                   /* to the end */
    struct open_progress *progress; /* until then */
    pthread_mutex_t lock;           /* of the file that this is about: */
    _Atomic bool
        closed_file; /* no row of a `replay` table was written since the last clean close */
    _Atomic int replay_refusal; /* an enum embtier_err */
};

/* Two a shard. */
enum database_kind { DATABASE_REPLAY, DATABASE_LOGGED, DATABASE_KINDS };
_Static_assert(DATABASE_KINDS == STORE_DATABASES_PER_SHARD, "each has its write buffers");

static struct database *database_of(const struct store *store, uint32_t shard, bool logged)
{
    return store->databases[shard * DATABASE_KINDS + (logged ? DATABASE_LOGGED : DATABASE_REPLAY)];
}

static const char *directory_of(const struct store *store, uint32_t shard)
{
    return store_identity_directory(store->identity, shard / store->shards_per_directory);
}

/* A malloced path; NULL when out of memory. */
static char *shard_folder_of(const struct store *store, uint32_t shard)
{
    char *path = NULL;

    return asprintf(&path, "%s/shard-%04u", directory_of(store, shard), shard) < 0 ? NULL : path;
}

/* Whether a database has been put back to that, or emptied. */
static bool is_put_back(const struct store *store, enum database_kind kind)
{
    return store->recovery.happened && (kind == DATABASE_REPLAY || !store->recovery.after_crash);
}

/* Of a database that is damaged. What a person has had put back is that person's choice. */
static void add_way_out(const struct store *store, enum database_kind kind, struct err_msg *msg)
{
    if (!is_put_back(store, kind))
        checkpoint_advise(&store->shelf, msg);
    else if (store->recovery.after_crash)
        checkpoint_advise_after_crash(msg);
}

static enum embtier_err open_database(struct store *store, const char *folder, uint32_t index,
                                      bool direct_io, struct err_msg *msg)
{
    const enum database_kind kind = index % DATABASE_KINDS;
    const bool put_back = is_put_back(store, kind);
    _cleanup_(freep) char *path = path_join(folder, database_name(kind == DATABASE_LOGGED));

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", folder);
    return database_open(
        &(struct database_opts){ .setup = store->setup,
                                 .activity = store->activity,
                                 .path = path,
                                 .marks = { store->hasher, index / DATABASE_KINDS },
                                 .make = store_identity_is_making(store->identity) ||
                                         (put_back && store->recovery.checkpoint.id == 0),
                                 .put_back = put_back,
                                 .logged = kind == DATABASE_LOGGED,
                                 .direct_io = direct_io },
        &store->databases[index], msg);
}

static enum embtier_err open_shard(struct store *store, uint32_t shard, bool direct_io,
                                   struct err_msg *msg)
{
    const bool make = store_identity_is_making(store->identity);
    const char *const directory = directory_of(store, shard);
    _cleanup_(freep) char *folder = shard_folder_of(store, shard);
    enum embtier_err err;

    if (!folder)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    if (make && mkdir(folder, 0700) != 0 && errno != EEXIST)
        return err_set_errno(msg, errno, "%s", folder);
    for (uint32_t kind = 0; kind < DATABASE_KINDS; kind++) {
        err = open_database(store, folder, shard * DATABASE_KINDS + kind, direct_io, msg);
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
    const uint32_t directories = store_identity_directory_count(store->identity);

    store->direct_io = true;
    for (uint32_t d = 0; d < directories; d++) {
        const uint32_t first = d * store->shards_per_directory;
        bool direct_io;

        TRY(direct_io_probe(store_identity_directory(store->identity, d), config->rocksdb.direct_io,
                            &direct_io, msg));
        store->direct_io = store->direct_io && direct_io;
        for (uint32_t s = first; s < first + store->shards_per_directory; s++) {
            open_progress_set(store->progress, "shards", s, store->shard_count);
            TRY(open_shard(store, s, direct_io, msg)); /* which reads its logs */
        }
    }
    return EMBTIER_OK;
}

/* ---- Putting back ---- */

/* A malloced path; NULL when out of memory. */
static char *database_path_of(const struct store *store, uint32_t shard, bool logged)
{
    _cleanup_(freep) char *folder = shard_folder_of(store, shard);

    return folder ? path_join(folder, database_name(logged)) : NULL;
}

static enum embtier_err read_closed_file(struct store *store, struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(store_first_directory(store), CLOSED_FILE);
    bool is_there;

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(path_is_there(path, &is_there, msg));
    atomic_store(&store->closed_file, is_there);
    return EMBTIER_OK;
}

static enum embtier_err write_closed_file(struct store *store, struct err_msg *msg)
{
    TRY(durable_file_write(store_first_directory(store), CLOSED_FILE, "{}\n", msg));
    atomic_store(&store->closed_file, true);
    return EMBTIER_OK;
}

/* From here on, a crash goes back to a checkpoint. */
static enum embtier_err remove_closed_file(struct store *store, struct err_msg *msg)
{
    const char *const directory = store_first_directory(store);
    _cleanup_(freep) char *path = path_join(directory, CLOSED_FILE);

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (unlink(path) != 0 && errno != ENOENT)
        return err_set_errno(msg, errno, "%s", path);
    TRY(directory_sync(directory, msg));
    atomic_store(&store->closed_file, false);
    return EMBTIER_OK;
}

enum embtier_err store_serve(struct store *store, struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;

    if (LIKELY(!atomic_load_explicit(&store->closed_file, memory_order_relaxed)))
        return EMBTIER_OK;
    pthread_mutex_lock(&store->lock);
    if (store_replay_refusal(store) != EMBTIER_OK)
        err =
            err_set(msg, store_replay_refusal(store),
                    "no checkpoint could be made yet of what the last stop has left: before there "
                    "is one, `replay` tables are not changed");
    else if (atomic_load(&store->closed_file))
        err = remove_closed_file(store, msg);
    pthread_mutex_unlock(&store->lock);
    return err;
}

void store_refuse_replay(struct store *store, enum embtier_err err)
{
    atomic_store(&store->replay_refusal, (int)err);
}

enum embtier_err store_replay_refusal(const struct store *store)
{
    return (enum embtier_err)atomic_load_explicit(&store->replay_refusal, memory_order_relaxed);
}

/* Whether all databases without a log are as they were after a clean close. A start that was cut
 * short has opened some of them, and changed none. */
static enum embtier_err was_closed(const struct store *store, bool *ret_closed, struct err_msg *msg)
{
    *ret_closed = true;
    if (atomic_load(&store->closed_file))
        return EMBTIER_OK;
    for (uint32_t s = 0; s < store->shard_count; s++) {
        _cleanup_(freep) char *path = database_path_of(store, s, false);
        bool sealed = false;

        if (!path)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        TRY(database_is_sealed(path, &sealed, msg));
        *ret_closed = *ret_closed && sealed;
    }
    return EMBTIER_OK;
}

/* What will take the place of all databases of a kind: made beside them. */
static enum embtier_err make_beside(const struct store *store,
                                    const struct checkpoint_record *record, bool logged,
                                    struct err_msg *msg)
{
    for (uint32_t s = 0; s < store->shard_count; s++) {
        _cleanup_(freep) char *path = database_path_of(store, s, logged);

        if (!path)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        open_progress_set(store->progress, "files", s, store->shard_count);
        TRY(checkpoint_make_beside(&store->shelf, record, s, logged, path, msg));
    }
    return EMBTIER_OK;
}

static void forget_beside(const struct store *store, bool logged)
{
    for (uint32_t s = 0; s < store->shard_count; s++) {
        _cleanup_(freep) char *path = database_path_of(store, s, logged);

        if (path)
            checkpoint_forget_beside(path);
    }
}

static enum embtier_err take_places(const struct store *store, bool logged, bool emptied,
                                    struct err_msg *msg)
{
    for (uint32_t s = 0; s < store->shard_count; s++) {
        _cleanup_(freep) char *path = database_path_of(store, s, logged);

        if (!path)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        open_progress_set(store->progress, "places", s, store->shard_count);
        TRY(checkpoint_take_place(path, emptied, msg));
    }
    return EMBTIER_OK;
}

static enum embtier_err put_back_catalog(const struct store *store,
                                         const struct checkpoint_record *record,
                                         struct err_msg *msg)
{
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;
    _cleanup_(catalog_freep) struct catalog *then = NULL;

    TRY(checkpoint_catalog(&store->shelf, record, &then, msg));
    /* It may be what was lost; all there is to know of it is which ids it has given out. */
    if (catalog_open(store_first_directory(store), &catalog, NULL) != EMBTIER_OK)
        return catalog_copy(then, store_first_directory(store), NULL, msg);
    return catalog_take_over(catalog, then, msg);
}

/* The checkpoint that a user wanted all to be put back to at a start that was cut short; 0: none.
 */
static enum embtier_err wanted_id(const struct store *store, uint64_t *ret_id, struct err_msg *msg)
{
    const char *const directory = store_first_directory(store);
    _cleanup_(json_decrefp) json_t *root = NULL;
    _cleanup_(freep) char *path = path_join(directory, RESTORE_FILE);
    _cleanup_(freep) char *text = NULL;
    enum embtier_err err;

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    *ret_id = 0;
    err = durable_file_read(directory, RESTORE_FILE, &text, msg);
    if (err == EMBTIER_NOT_FOUND)
        return EMBTIER_OK;
    if (err == EMBTIER_OK)
        err = summed_json_check(path, text, true, msg);
    root = err == EMBTIER_OK ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (err == EMBTIER_OK && !json_is_integer(json_object_get(root, "checkpoint")))
        err = err_set(msg, EMBTIER_CORRUPT, "%s: damaged", path);
    if (err == EMBTIER_CORRUPT)
        return err_set(msg, err,
                       "%s: damaged: it says which checkpoint all was to be put back to; `embtierd "
                       "--restore ID` says so again",
                       path);
    TRY(err);
    *ret_id = (uint64_t)json_integer_value(json_object_get(root, "checkpoint"));
    return EMBTIER_OK;
}

/* What is written down is done, even if this start does not come to its end. */
static enum embtier_err write_down(const struct store *store, uint64_t id, struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root =
        json_pack("{s:s, s:I}", SUMMED_JSON_KEY, SUMMED_JSON_NONE, "checkpoint", (json_int_t)id);

    return summed_json_write(store_first_directory(store), RESTORE_FILE, root, msg);
}

static void note_recovery(struct store *store, const struct checkpoint_record *record,
                          bool after_crash)
{
    store->recovery = (struct store_recovery){ .happened = true, .after_crash = after_crash };
    if (!record)
        return;
    store->recovery.checkpoint = record->info;
}

/* One that was lost with all that was in it is put back too. */
static enum embtier_err make_shard_folders(const struct store *store, struct err_msg *msg)
{
    for (uint32_t s = 0; s < store->shard_count; s++) {
        _cleanup_(freep) char *folder = shard_folder_of(store, s);
        bool is_there;

        if (!folder)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        TRY(path_is_there(folder, &is_there, msg));
        if (is_there)
            continue;
        TRY(folder_make(folder, msg));
        TRY(directory_sync(directory_of(store, s), msg));
    }
    return EMBTIER_OK;
}

/* Or none. */
static enum embtier_err make_all_beside(const struct store *store,
                                        const struct checkpoint_record *record, struct err_msg *msg)
{
    enum embtier_err err = make_shard_folders(store, msg);

    if (err == EMBTIER_OK)
        err = make_beside(store, record, false, msg);
    if (err == EMBTIER_OK)
        err = make_beside(store, record, true, msg);
    if (err != EMBTIER_OK) {
        forget_beside(store, false);
        forget_beside(store, true);
    }
    return err;
}

static void verified(void *context, uint64_t done, uint64_t total)
{
    open_progress_set(context, "verify_mib", (uint32_t)(done / MIB), (uint32_t)(total / MIB));
}

/* @asked: for the first time, so that what will be replaced is still there. */
static enum embtier_err put_back_all(struct store *store, uint64_t id, bool asked,
                                     struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    _cleanup_(catalog_freep) struct catalog *then = NULL;

    /* All that can be wrong with it is found out first. */
    TRY(checkpoint_read_named(&store->shelf, id, &record, msg));
    TRY(checkpoint_catalog(&store->shelf, record, &then, msg));
    if (asked)
        TRY(checkpoint_verify(&store->shelf, record, verified, store->progress, NULL, msg));
    TRY(make_all_beside(store, record, msg));
    TRY(write_down(store, id, msg));
    TRY(remove_closed_file(store, msg));
    note_recovery(store, record, false);
    TRY(take_places(store, false, false, msg));
    TRY(take_places(store, true, false, msg));
    return put_back_catalog(store, record, msg);
}

/* Its tables, to the checkpoint of @record, or, if that is NULL, to how they were made. */
static enum embtier_err go_back_in_catalog(const struct store *store,
                                           const struct checkpoint_record *record,
                                           struct err_msg *msg)
{
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;
    _cleanup_(catalog_freep) struct catalog *then = NULL;
    enum embtier_err err;

    err = catalog_open(store_first_directory(store), &catalog, msg);
    if (err == EMBTIER_CORRUPT)
        checkpoint_advise(&store->shelf, msg);
    TRY(err);
    err = record ? checkpoint_catalog(&store->shelf, record, &then, msg) : EMBTIER_OK;
    if (err != EMBTIER_OK)
        checkpoint_advise_after_crash(msg);
    TRY(err);
    return catalog_go_back(catalog, then, msg);
}

static enum embtier_err go_back_beside(const struct store *store,
                                       struct checkpoint_record **ret_record, struct err_msg *msg)
{
    TRY(checkpoint_read_newest(&store->shelf, ret_record, msg));
    return *ret_record ? make_beside(store, *ret_record, false, msg) : EMBTIER_OK;
}

static enum embtier_err put_back_after_crash(struct store *store, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    bool closed = true;
    enum embtier_err err;

    TRY(was_closed(store, &closed, msg));
    if (closed) /* by a process that died before it could say so, or did not know of that file */
        return atomic_load(&store->closed_file) ? EMBTIER_OK : write_closed_file(store, msg);
    err = go_back_beside(store, &record, msg);
    if (err != EMBTIER_OK)
        checkpoint_advise_after_crash(msg);
    TRY(err);
    note_recovery(store, record, true);
    TRY(go_back_in_catalog(store, record, msg));
    return take_places(store, false, record == NULL, msg);
}

/* Before any database is opened. */
static enum embtier_err store_put_back(struct store *store, uint64_t restore_id,
                                       struct err_msg *msg)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    struct err_msg why = { { 0 } };
    uint64_t id = 0;

    store->shelf = (struct checkpoint_shelf){ store->identity, store->shards_per_directory,
                                              store->read_files };
    if (store_identity_is_making(store->identity))
        return restore_id ? err_set(msg, EMBTIER_NOT_FOUND,
                                    "there is no checkpoint %" PRIu64 ": the store in %s is new",
                                    restore_id, store_first_directory(store))
                          : EMBTIER_OK;
    TRY(read_closed_file(store, msg));
    if (restore_id)
        id = restore_id;
    else
        TRY(wanted_id(store, &id, msg));
    /* Of a start that was cut short. */
    forget_beside(store, false);
    forget_beside(store, true);
    TRY(id ? put_back_all(store, id, restore_id != 0, msg) : put_back_after_crash(store, msg));
    store->recovery.spent_ns = clock_now_ns(&clock_monotonic) - began_ns;
    if (checkpoint_sweep(&store->shelf, &why) != EMBTIER_OK)
        log_warn("what is left of a checkpoint cannot be removed", "why=%s", LOG_QUOTED(why.text));
    return EMBTIER_OK;
}

void store_recovery(const struct store *store, struct store_recovery *ret_recovery)
{
    *ret_recovery = store->recovery;
}

enum embtier_err store_restore_done(struct store *store, struct err_msg *msg)
{
    const char *const directory = store_first_directory(store);
    _cleanup_(freep) char *path = path_join(directory, RESTORE_FILE);

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (unlink(path) != 0 && errno != ENOENT)
        return err_set_errno(msg, errno, "%s", path);
    return directory_sync(directory, msg);
}

/* ---- Checkpoints ---- */

const struct checkpoint_shelf *store_shelf(const struct store *store)
{
    return &store->shelf;
}

/* On disk: UINT64_MAX if it is no number. A logged row is in the log and in the write buffer. */
static uint64_t stored_bytes_of(uint64_t row_count, uint64_t row_bytes, bool logged)
{
    const uint64_t each = (row_bytes + STORED_ROW_MORE_BYTES) * (logged ? 2 : 1);
    uint64_t bytes;

    return __builtin_mul_overflow(row_count, each, &bytes) ? UINT64_MAX : bytes;
}

static uint64_t sum_of(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

void store_demand_add(struct store_demand *demand, uint64_t row_count, uint64_t row_bytes,
                      bool logged)
{
    const uint64_t bytes = stored_bytes_of(row_count, row_bytes, false);

    demand->row_count = sum_of(demand->row_count, row_count);
    demand->bytes = sum_of(demand->bytes, bytes);
    if (logged)
        demand->log_bytes = sum_of(demand->log_bytes, bytes);
}

enum embtier_err store_check_demand(const struct store *store, const struct store_demand *demand,
                                    const char *what, struct err_msg *msg)
{
    /* Many rows are not all in logs at a time. */
    const uint64_t log_bytes = MIN(demand->log_bytes, store->memtable_bytes);

    return space_check(store->space, sum_of(demand->bytes, log_bytes), what, msg);
}

enum embtier_err store_check_room(const struct store *store, uint64_t row_count, uint64_t row_bytes,
                                  bool logged, struct err_msg *msg)
{
    struct store_demand demand = { 0 };
    char what[64];

    store_demand_add(&demand, row_count, row_bytes, logged);
    snprintf(what, sizeof(what), "no space for %" PRIu64 " rows", row_count);
    return store_check_demand(store, &demand, what, msg);
}

enum embtier_err store_admit(const struct store *store, uint64_t row_count, uint64_t row_bytes,
                             bool logged)
{
    return space_admit(store->space, stored_bytes_of(row_count, row_bytes, logged));
}

void store_report_unwritten(struct store *store, uint64_t row_count, uint64_t row_bytes)
{
    space_report(store->space, row_bytes + row_count * STORED_ROW_MORE_BYTES);
}

static bool has_failed_database(const struct store *store)
{
    for (uint32_t i = 0; i < store->database_count; i++)
        if (database_is_failed(store->databases[i]))
            return true;
    return false;
}

static bool compacts(const struct store *store)
{
    struct database_debt debt;

    for (uint32_t i = 0; i < store->database_count; i++) {
        database_poll_debt(store->databases[i], &debt);
        if (debt.running > 0)
            return true;
    }
    return false;
}

static void wait_while(const struct store *store, bool (*does)(const struct store *store))
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);

    while (does(store) && clock_now_ns(&clock_monotonic) - began_ns < RESUME_PATIENCE_NS)
        nanosleep(&(struct timespec){ .tv_nsec = RESUME_PAUSE_NS }, NULL);
}

/* Rows in memory have to find a place all the same. */
static void pause_compaction(struct store *store, bool is_paused)
{
    compaction_scheduler_pause(store->scheduler, is_paused);
    for (uint32_t i = 0; i < store->database_count; i++)
        database_set_paused(store->databases[i], is_paused);
}

void store_use_reserve(struct store *store)
{
    bool is_short;

    pthread_mutex_lock(&store->reserve_lock);
    is_short = space_begin_use(store->space);
    if (is_short)
        pause_compaction(store, true);
    pthread_mutex_unlock(&store->reserve_lock);
    /* They would take it all, and fail for want of more: also those that are running. */
    if (is_short)
        wait_while(store, compacts);
    if (space_use(store->space)) {
        pause_compaction(store, true); /* it may have become short since */
        wait_while(store, has_failed_database);
    }
}

void store_end_reserve(struct store *store)
{
    pthread_mutex_lock(&store->reserve_lock);
    if (space_end_use(store->space))
        pause_compaction(store, false);
    pthread_mutex_unlock(&store->reserve_lock);
}

enum embtier_err store_capture(struct store *store, struct checkpoint_draft *draft, bool logged,
                               uint64_t until_ns, const _Atomic bool *give_up, struct err_msg *msg)
{
    for (uint32_t s = 0; s < store->shard_count && !logged; s++) {
        if (give_up && atomic_load(give_up))
            return err_set(msg, EMBTIER_SHUTDOWN, "the server is shutting down");
        TRY(database_flush(database_of(store, s, logged), msg));
    }
    for (uint32_t s = 0; s < store->shard_count; s++) {
        if (give_up && atomic_load(give_up))
            return err_set(msg, EMBTIER_SHUTDOWN, "the server is shutting down");
        if (clock_now_ns(&clock_monotonic) > until_ns)
            return EMBTIER_AGAIN;
        TRY(checkpoint_capture(draft, s, logged, database_of(store, s, logged), msg));
    }
    return EMBTIER_OK;
}

bool store_has_changed_since(const struct store *store, const struct checkpoint_record *record)
{
    for (uint32_t s = 0; !record && s < store->shard_count; s++)
        if (database_sequence(database_of(store, s, false)) > 0)
            return true;
    for (uint32_t i = 0; record && i < record->database_count; i++) {
        const struct checkpoint_database *const then = &record->databases[i];

        if (!then->logged &&
            database_sequence(database_of(store, then->shard, false)) != then->sequence)
            return true;
    }
    return false;
}

/* ---- Opening and closing ---- */

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

bool store_is_in_use(const struct config *config)
{
    return store_identity_is_in_use(config->data.directories[0]);
}

enum embtier_err store_check(const struct config *config, struct err_msg *msg)
{
    _cleanup_(rocksdb_setup_freep) struct rocksdb_setup *setup = NULL;

    TRY(store_identity_check(config, msg));
    TRY(rocksdb_setup_new(config, config->data.directory_count * config->data.shards_per_directory,
                          &setup, msg));
    if (config->rocksdb.options)
        TRY(rocksdb_options_try(setup->options, config, msg));
    for (uint32_t d = 0; config->rocksdb.direct_io == SWITCH_ON && d < config->data.directory_count;
         d++) {
        bool direct_io;

        TRY(direct_io_probe(config->data.directories[d], SWITCH_ON, &direct_io, msg));
    }
    return EMBTIER_OK;
}

static enum embtier_err open_space(struct store *store, const struct config *config,
                                   struct err_msg *msg)
{
    const char *directories[CONFIG_DIRECTORIES_MAX];
    struct space_opts opts = {
        .directories = directories,
        .directory_count = store_identity_directory_count(store->identity),
        .database_count = config->data.directory_count * config->data.shards_per_directory *
                          STORE_DATABASES_PER_SHARD,
        .reserve_bytes = config->data.reserve_bytes,
        .memtable_bytes = config->rocksdb.memtable_bytes,
        .plenty_bytes = CHANGE_BYTES + config->lanes.write_queue_bytes,
    };

    for (uint32_t i = 0; i < opts.directory_count; i++)
        directories[i] = store_identity_directory(store->identity, i);
    for (uint32_t i = 0; i < config->cache.tier_count; i++)
        opts.plenty_bytes += config->cache.tiers[i].bytes;
    return space_new(&opts, &store->space, msg);
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
    pthread_mutex_init(&store->reserve_lock, NULL);
    TRY(store_identity_open(config, &store->identity, msg));
    TRY(open_space(store, config, msg));
    row_hasher_init(&store->hasher, store_identity_hash_key(store->identity));
    store->shards_per_directory = config->data.shards_per_directory;
    store->read_files = config->descriptors.read_files;
    store->shard_count = config->data.directory_count * config->data.shards_per_directory;
    store->database_count = store->shard_count * DATABASE_KINDS;
    store->databases = calloc(store->database_count, sizeof(struct database *));
    store->activity = rocksdb_ext_activity_new();
    if (!store->databases || !store->activity)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(rocksdb_setup_new(config, store->shard_count, &store->setup, msg));
    TRY(store_put_back(store, opts->restore_id, msg));
    TRY(store_open_shards(store, config, msg));
    store->capacity_bytes = capacity_bytes(store);
    store->memtable_bytes = config->rocksdb.memtable_bytes;
    TRY(store_finish_making(store, msg));
    store->is_open = true;
    TRY(compaction_scheduler_new(
        &(struct compaction_scheduler_opts){ .databases = store->databases,
                                             .database_count = store->database_count,
                                             .parallel = config->rocksdb.compaction_parallel,
                                             .hold_patience_ms = HOLD_PATIENCE_MS },
        &store->scheduler, msg));
    TRY(space_start(store->space, buffer_bytes, store, msg));
    store->progress = NULL;
    *ret_store = TAKE(store);
    return EMBTIER_OK;
}

enum embtier_err store_close(struct store *store, bool complete, struct err_msg *msg)
{
    enum embtier_err first = EMBTIER_OK;

    if (!store)
        return EMBTIER_OK;
    complete = complete && store->is_open;
    compaction_scheduler_free(store->scheduler);
    for (uint32_t i = 0; store->databases && i < store->database_count; i++) {
        enum embtier_err err;

        if (!store->databases[i])
            continue;
        err = database_close(store->databases[i], complete, first == EMBTIER_OK ? msg : NULL);
        if (first == EMBTIER_OK)
            first = err;
    }
    if (first == EMBTIER_OK && complete && !atomic_load(&store->closed_file))
        first = write_closed_file(store, msg);
    pthread_mutex_destroy(&store->lock);
    pthread_mutex_destroy(&store->reserve_lock);
    space_free(store->space);
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
    if (!rows[0].logged)
        TRY(store_serve(store, msg));
    return database_write(database_of(store, shard, rows[0].logged), rows, count, msg);
}

enum embtier_err store_table_steps(struct store *store,
                                   void (*note)(void *context, uint32_t table_id, uint64_t step),
                                   void *context, struct err_msg *msg)
{
    enum embtier_err first = EMBTIER_OK;

    for (uint32_t s = 0; s < store->shard_count; s++) {
        const enum embtier_err err = database_table_steps(
            database_of(store, s, true), note, context, first == EMBTIER_OK ? msg : NULL);

        if (first == EMBTIER_OK)
            first = err;
    }
    return first;
}

static enum embtier_err sync_logs(struct store *store, const uint32_t *shards, uint32_t count,
                                  bool by_syncer, struct err_msg *msg)
{
    struct database *databases[DATABASES_SYNC_MAX];

    for (uint32_t done = 0; done < count;) {
        const uint32_t some = MIN(count - done, (uint32_t)DATABASES_SYNC_MAX);

        for (uint32_t i = 0; i < some; i++)
            databases[i] = database_of(store, shards[done + i], true);
        TRY(databases_sync_logs(databases, some, by_syncer, msg));
        done += some;
    }
    return EMBTIER_OK;
}

enum embtier_err store_sync_logs(struct store *store, const uint32_t *shards, uint32_t count,
                                 struct err_msg *msg)
{
    return sync_logs(store, shards, count, true, msg);
}

void store_mark_log(struct store *store, uint32_t shard)
{
    database_mark_log(database_of(store, shard, true));
}

enum embtier_err store_sync_all_logs(struct store *store, struct err_msg *msg)
{
    uint32_t shards[DATABASES_SYNC_MAX];

    for (uint32_t first = 0; first < store->shard_count; first += DATABASES_SYNC_MAX) {
        const uint32_t some = MIN(store->shard_count - first, (uint32_t)DATABASES_SYNC_MAX);

        for (uint32_t i = 0; i < some; i++)
            shards[i] = first + i;
        TRY(sync_logs(store, shards, some, false, msg));
    }
    return EMBTIER_OK;
}

enum embtier_err store_shorten_logs(struct store *store, const _Atomic bool *give_up,
                                    struct err_msg *msg)
{
    const uint64_t most_bytes =
        MIN(CHECKPOINT_LOG_BYTES / store->shard_count, (uint64_t)CHECKPOINT_LOG_BYTES_EACH);
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    enum embtier_err first = EMBTIER_OK;

    for (uint32_t s = 0; s < store->shard_count; s++) {
        enum embtier_err err;

        if (clock_now_ns(&clock_monotonic) - began_ns > SHORTEN_PATIENCE_NS)
            return first != EMBTIER_OK ? first
                                       : err_set(msg, EMBTIER_BUSY,
                                                 "flushes take too long: %" PRIu32 " of %" PRIu32
                                                 " shards are flushed",
                                                 s, store->shard_count);
        err = database_shorten_log(database_of(store, s, true), most_bytes, give_up,
                                   first == EMBTIER_OK ? msg : NULL);

        if (err == EMBTIER_SHUTDOWN)
            return err_set(msg, err, "the server is shutting down");
        if (first == EMBTIER_OK)
            first = err;
    }
    return first;
}

enum embtier_err store_flush(struct store *store, uint32_t shard, struct err_msg *msg)
{
    TRY(database_flush(database_of(store, shard, false), msg));
    return database_flush(database_of(store, shard, true), msg);
}

static enum embtier_err drop_from(struct store *store, struct database *database, uint32_t table_id,
                                  const _Atomic bool *give_up, struct err_msg *msg)
{
    enum embtier_err err;

    TRY(database_delete_table(database, table_id, msg));
    TRY(compaction_scheduler_hold(store->scheduler, give_up, msg));
    err = database_compact_table(database, table_id, msg);
    compaction_scheduler_release(store->scheduler);
    return err;
}

enum embtier_err store_drop_table(struct store *store, uint32_t table_id, bool logged,
                                  void (*progress)(void *, uint32_t, uint32_t), void *context,
                                  const _Atomic bool *give_up, struct err_msg *msg)
{
    if (table_id == STORE_ALL_TABLES)
        return err_set(msg, EMBTIER_INVALID, "no table has the id %u", table_id);
    for (uint32_t s = 0; s < store->shard_count; s++) {
        const uint64_t began_ns = clock_now_ns(&clock_monotonic);
        enum embtier_err err;

        /* What keeps it may be what the same disk refused before there was space. */
        while ((err = drop_from(store, database_of(store, s, logged), table_id, give_up, msg)) ==
                   EMBTIER_NO_SPACE &&
               !(give_up && atomic_load(give_up)) &&
               clock_now_ns(&clock_monotonic) - began_ns < RESUME_PATIENCE_NS)
            nanosleep(&(struct timespec){ .tv_nsec = RESUME_PAUSE_NS }, NULL);
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
    struct space_stats space;

    space_stats(store->space, &space);
    stats.reserve_bytes = space.reserve_bytes;
    stats.reserve_held_bytes = space.held_bytes;
    stats.room_bytes = space.free_bytes;
    stats.space_refusals = space.refusals;
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
