/* SPDX-License-Identifier: Apache-2.0 */
/* store_impl.h: declarations shared by the files of the store.
 *
 * store.c opens, closes and counts, store_rows.c reads and writes rows, store_space.c asks for room
 * on disk, store_tuning.c changes options of the open databases. store_closed.c notes clean closes,
 * store_checkpoint.c captures all databases for checkpoints and goes back to them. */
#ifndef EMBTIER_STORE_STORE_IMPL_H
#define EMBTIER_STORE_STORE_IMPL_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/row_hash.h"
#include "store/buckets/bucket_map.h"
#include "store/checkpoint/checkpoint.h"
#include "store/database/compaction_scheduler.h"
#include "store/database/database.h"
#include "store/files/space.h"
#include "store/open_progress.h"
#include "store/resharding/reshard_facts.h"
#include "store/resharding/view.h"
#include "store/rocksdb/rocksdb_ext.h"
#include "store/rocksdb/rocksdb_setup.h"
#include "store/store.h"
#include "store/store_identity.h"

/* Limits for compactions on a full disk, which soon end or fail, and for databases that stopped on
 * one, once there is space. */
#define RESUME_PATIENCE_NS (UINT64_C(30) * 1000 * 1000 * 1000)
#define RESUME_PAUSE_NS    10000000L

struct store {
    struct store_identity *identity;
    /* Where buckets lie now. Once the store is open it is the view's, and only for the thread that
     * moves buckets: others take a view. */
    struct bucket_map *map;
    uint8_t place_of[BUCKET_MAP_SHARDS_MAX]; /* the directory of each open shard; never changes */
    struct bucket_map *routes; /* the same with numbers of routes, as the engine sees shards */
    uint16_t route_shards[CONFIG_SHARDS_MAX]; /* of each route, when the store was opened */
    struct checkpoint_shelf shelf;
    struct store_recovery recovery;
    struct rocksdb_setup *setup;
    struct rocksdb_ext_activity *activity;
    struct compaction_scheduler *scheduler;
    pthread_mutex_t reserve_lock; /* held while a use of the reserve begins or ends */
    struct space *space;
    struct row_hasher hasher;
    bool direct_io; /* in all directories */
    enum config_switch direct_io_wanted;
    _Atomic uint64_t capacity_bytes;
    _Atomic uint64_t memtable_bytes;          /* as RocksDB has it */
    _Atomic uint32_t background_threads;      /* as the configuration counts them */
    uint32_t shards_per_directory;            /* as the store was made */
    uint32_t devices[CONFIG_DIRECTORIES_MAX]; /* number of the file system of each directory */
    uint32_t drives[CONFIG_DIRECTORIES_MAX];  /* number of the drive beneath each directory */
    struct store_tuned {
        pthread_mutex_t lock; /* held while databases are tuned, and while the store gets others */
        int64_t values[ROCKSDB_EXT_TUNING_COUNT]; /* of all databases */
        bool is_set[ROCKSDB_EXT_TUNING_COUNT];    /* since the store was opened */
    } tuned;
    _Atomic uint32_t read_files; /* open table files of a checkpoint's database, at most */
    /* Two for each number of a shard, see store_database_of(); NULL: not open, or the shard is
     * gone. */
    struct database *_Atomic *databases;
    _Atomic uint32_t shard_count;   /* numbers of shards that @databases has; only grows */
    bool *is_empty;                 /* shards that the checkpoint gone back to did not have */
    bool is_open;                   /* opened completely */
    struct open_progress *progress; /* until is_open */
    pthread_mutex_t lock;           /* guards the closed file */
    struct store_views views;
    struct store_moves {
        pthread_mutex_t lock; /* of the next three; whoever has it may wait for the wave's */
        struct wave *wave;    /* under way; NULL: none */
        uint32_t *drops;      /* tables whose rows are being dropped */
        uint32_t drop_count;
        pthread_mutex_t facts_lock; /* of the members that follow; nobody waits with it */
        struct reshard_facts facts;
        struct reshard *job; /* while facts.runs; only the thread that moves buckets sets it */
    } moves;
    bool is_watched[CONFIG_DIRECTORIES_MAX]; /* by @space; thread: the same as the next */
    uint64_t map_generation; /* the highest given out; thread: the one that moves buckets */
    bool direct_io_of[CONFIG_DIRECTORIES_MAX];
    struct store_reading {
        pthread_mutex_t lock;
        uint32_t running;  /* reads of rows, now */
        uint64_t since_ns; /* when the first of them began */
        uint64_t busy_ns;  /* for which any ran, up to then */
    } reading;
    struct store_hold {
        _Atomic bool is_held;
        _Atomic int64_t left_bytes;  /* of rows that may be written back */
    } holds[CONFIG_DIRECTORIES_MAX]; /* by the place in the store */
    /* closed.json exists: no row of a `replay` table was written since the last clean close. */
    _Atomic bool closed_file;
    _Atomic int replay_refusal; /* an enum embtier_err */
};

/* The two databases of a shard. */
enum database_kind { DATABASE_REPLAY, DATABASE_LOGGED, DATABASE_KINDS };
_Static_assert(DATABASE_KINDS == STORE_DATABASES_PER_SHARD, "each has its write buffers");

/* NULL: the shard is gone. */
static inline struct database *store_database_of(const struct store *store, uint32_t shard,
                                                 bool logged)
{
    return atomic_load_explicit(
        &store->databases[shard * DATABASE_KINDS + (logged ? DATABASE_LOGGED : DATABASE_REPLAY)],
        memory_order_acquire);
}

/* Returns the shard that a route led to when the store was opened. */
static inline uint32_t store_shard_of(const struct store *store, uint32_t route)
{
    assert(route < store->routes->shard_count);
    return store->route_shards[route];
}

/* Walks over all open databases: @index from 0 to store_database_count(). */
static inline uint32_t store_database_count(const struct store *store)
{
    return atomic_load_explicit(&store->shard_count, memory_order_acquire) * DATABASE_KINDS;
}

static inline struct database *store_database_at(const struct store *store, uint32_t index)
{
    return store_database_of(store, index / DATABASE_KINDS, index % DATABASE_KINDS);
}

/* Returns the time for which at least one read of rows ran; store_rows.c. */
uint64_t store_reading_ns(struct store *store);

static inline const char *store_directory_of(const struct store *store, uint32_t shard)
{
    return store_identity_directory(store->identity, store->map->places[shard]);
}

/* Returns the number of the drive that the shard lies on, for the compaction scheduler. */
static inline uint32_t store_drive_of(const struct store *store, uint32_t shard)
{
    return store->drives[store->place_of[shard]];
}

/* Return malloced paths; NULL if out of memory. */
char *store_shard_folder_of(const struct store *store, uint32_t shard);
char *store_database_path_of(const struct store *store, uint32_t shard, bool logged);

/* store.c: opens the databases of a shard; makes them if @make. */
MUST_CHECK enum embtier_err store_open_shard(struct store *store, uint32_t shard, uint32_t place,
                                             bool make,
                                             struct database *ret_databases[DATABASE_KINDS],
                                             struct err_msg *msg);
/* store.c: notes the file system and the drive of a directory, before other threads see the
 * directory; counts the file system's bytes, once. */
void store_note_device(struct store *store, uint32_t directory, const char *path);
void store_count_capacity(struct store *store, uint32_t directory);
/* Returns a malloced path; NULL if out of memory. */
char *store_shard_folder_in(const char *directory, uint32_t shard);

/* resharding/shards_retire.c: removes shards that have no bucket, before databases are opened: in
 * an open store many threads use them. Failures are logged, and a later start tries again. */
void store_retire_shards(struct store *store);
/* store_checkpoint.c: returns the checkpoint that a user named for a restore that was cut short; 0:
 * none. */
MUST_CHECK enum embtier_err store_wanted_checkpoint(const struct store *store, uint64_t *ret_id,
                                                    struct err_msg *msg);
/* members/leave_out.c: removes the directory that --without-directory names from the store: ends
 * the order that adds or removes it, takes its shards out of the map, then it out of the list. A
 * start after each step accepts the option, or the directory. The map has been opened, which
 * refuses a directory with buckets. MISMATCH: the checkpoint to go back to needs it: the newest
 * one, or @restore_id if it is not 0. Does nothing if no directory is left out. */
MUST_CHECK enum embtier_err store_leave_out(struct store *store, uint64_t restore_id,
                                            struct err_msg *msg);

/* store_closed.c. */
MUST_CHECK enum embtier_err store_read_closed_file(struct store *store, struct err_msg *msg);
MUST_CHECK enum embtier_err store_write_closed_file(struct store *store, struct err_msg *msg);
/* From here on, a crash goes back to a checkpoint. */
MUST_CHECK enum embtier_err store_remove_closed_file(struct store *store, struct err_msg *msg);

/* store_checkpoint.c: puts the store back as a crash or @restore_id requires, before any database
 * is opened. */
MUST_CHECK enum embtier_err store_put_back(struct store *store, uint64_t restore_id,
                                           struct err_msg *msg);

/* store_tuning.c: gives a database that was just opened the values that the others have by now.
 * The caller holds the lock of struct store_tuned. */
MUST_CHECK enum embtier_err store_tune_new(const struct store *store, struct database *database,
                                           struct err_msg *msg);

/* store_space.c: pauses a database that the store has got just now, if all others are paused. */
void store_pause_new(struct store *store, struct database *database);
MUST_CHECK enum embtier_err store_open_space(struct store *store, const struct config *config,
                                             struct err_msg *msg);

#endif
