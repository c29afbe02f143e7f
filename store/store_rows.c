/* SPDX-License-Identifier: Apache-2.0 */
/* store_rows.c: passes rows to the databases of their shard, syncs and shortens logs, and drops
 * tables. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "store/resharding/moved_rows.h"
#include "store/resharding/wave.h"
#include "store/store_impl.h"
#include "store/store_reserved.h"

/* Limit for all flushes before a checkpoint, which are optional. */
#define SHORTEN_PATIENCE_NS (UINT64_C(15) * 1000 * 1000 * 1000)

/* Returns how many rows from the first on lie in the same database. Tables are sorted. */
static uint32_t rows_of_one(const struct store_row *rows, uint32_t count)
{
    uint32_t i = 1;

    while (i < count && rows[i].logged == rows[0].logged)
        i++;
    return i;
}

/* ---- Reads ---- */

/* Overlapping reads count once: their sum would be more than the time that lookups waited. */
static void reading_begin(struct store_reading *reading)
{
    pthread_mutex_lock(&reading->lock);
    if (reading->running++ == 0)
        reading->since_ns = clock_now_ns(&clock_monotonic);
    pthread_mutex_unlock(&reading->lock);
}

static void reading_end(struct store_reading *reading)
{
    pthread_mutex_lock(&reading->lock);
    assert(reading->running > 0);
    if (--reading->running == 0)
        reading->busy_ns += clock_since(clock_now_ns(&clock_monotonic), reading->since_ns);
    pthread_mutex_unlock(&reading->lock);
}

uint64_t store_reading_ns(struct store *store)
{
    struct store_reading *const reading = &store->reading;
    uint64_t ns;

    pthread_mutex_lock(&reading->lock);
    ns = reading->busy_ns;
    if (reading->running > 0)
        ns += clock_since(clock_now_ns(&clock_monotonic), reading->since_ns);
    pthread_mutex_unlock(&reading->lock);
    return ns;
}

enum embtier_err store_read(struct store *store, uint32_t route, struct store_row *rows,
                            uint32_t count, struct err_msg *msg)
{
    struct store_view *const view = store_view_get(&store->views);
    const uint32_t shard = store_shard_of(store, route);
    enum embtier_err first = EMBTIER_OK;

    reading_begin(&store->reading);
    for (uint32_t done = 0; done < count;) {
        const uint32_t some = rows_of_one(rows + done, count - done);
        struct err_msg *const some_msg = first == EMBTIER_OK ? msg : NULL;
        const enum embtier_err err =
            view->is_plain ? database_read(store_database_of(store, shard, rows[done].logged),
                                           rows + done, some, some_msg)
                           : moved_rows_read(store, view, rows + done, some, some_msg);

        if (first == EMBTIER_OK)
            first = err;
        done += some;
    }
    reading_end(&store->reading);
    store_view_put(&store->views, view);
    return first;
}

enum embtier_err store_write(struct store *store, uint32_t route, const struct store_row *rows,
                             uint32_t count, struct err_msg *msg)
{
    struct store_view *view;
    enum embtier_err err;

    if (count == 0)
        return EMBTIER_OK;
    if (!rows[0].logged)
        TRY(store_serve(store, msg));
    view = store_view_get(&store->views);
    err =
        view->is_plain
            ? database_write(store_database_of(store, store_shard_of(store, route), rows[0].logged),
                             rows, count, msg)
            : moved_rows_write(store, view, rows, count, msg);
    store_view_put(&store->views, view);
    return err;
}

/* ---- Holding write-back ---- */

static uint64_t bytes_of(const struct store_row *rows, uint32_t count)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++)
        bytes += (uint64_t)rows[i].weight_bytes + rows[i].state_bytes;
    return bytes;
}

static bool is_any_held(struct store *store)
{
    for (uint32_t d = 0; d < store_identity_directory_count(store->identity); d++)
        if (atomic_load_explicit(&store->holds[d].is_held, memory_order_relaxed))
            return true;
    return false;
}

/* Finds the holds of all directories that rows of @route are written to. */
static void find_holds(struct store *store, uint32_t route, bool *holds)
{
    struct store_view *const view = store_view_get(&store->views);

    for (uint32_t at = view->first[route]; at < view->first[route + 1]; at++) {
        const uint32_t place = view->map->places[view->shards[at]];

        holds[place] = atomic_load_explicit(&store->holds[place].is_held, memory_order_relaxed);
    }
    store_view_put(&store->views, view);
}

/* Once buckets have moved, rows of a route may go to several directories. Each is then charged for
 * all of them: a hold may hold more than it should, but not less. */
static enum embtier_err write_held(struct store *store, uint32_t route,
                                   const struct store_row *rows, uint32_t count,
                                   struct err_msg *msg)
{
    const int64_t bytes = (int64_t)bytes_of(rows, count);
    bool holds[CONFIG_DIRECTORIES_MAX] = { false };

    find_holds(store, route, holds);
    for (uint32_t d = 0; d < CONFIG_DIRECTORIES_MAX; d++)
        if (holds[d] &&
            atomic_load_explicit(&store->holds[d].left_bytes, memory_order_relaxed) <= 0)
            return err_set(msg, EMBTIER_BUSY, "%s: endurance.max_dwpd holds write-back",
                           store_identity_directory(store->identity, d));
    TRY(store_write(store, route, rows, count, msg));
    for (uint32_t d = 0; d < CONFIG_DIRECTORIES_MAX; d++)
        if (holds[d])
            atomic_fetch_sub_explicit(&store->holds[d].left_bytes, bytes, memory_order_relaxed);
    return EMBTIER_OK;
}

enum embtier_err store_write_back(struct store *store, uint32_t route, const struct store_row *rows,
                                  uint32_t count, struct err_msg *msg)
{
    return is_any_held(store) ? write_held(store, route, rows, count, msg)
                              : store_write(store, route, rows, count, msg);
}

/* Bytes that are left are not saved up. */
static void refill(struct store_hold *hold, uint64_t bytes)
{
    const int64_t more = (int64_t)MIN(bytes, (uint64_t)INT64_MAX / 2);
    int64_t left = atomic_load_explicit(&hold->left_bytes, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&hold->left_bytes, &left,
                                                  MIN(left, INT64_C(0)) + more,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void store_hold(struct store *store, const char *directory, bool is_held, uint64_t bytes)
{
    for (uint32_t d = 0; d < store_identity_directory_count(store->identity); d++) {
        struct store_hold *const hold = &store->holds[d];
        const char *const path = store_identity_directory(store->identity, d);

        if (!path || strcmp(path, directory) != 0) /* one that has left is let go, too */
            continue;
        if (is_held && atomic_load_explicit(&hold->is_held, memory_order_relaxed))
            refill(hold, bytes);
        else
            atomic_store_explicit(&hold->left_bytes, 0, memory_order_relaxed);
        atomic_store_explicit(&hold->is_held, is_held, memory_order_relaxed);
    }
}

enum embtier_err store_table_steps(struct store *store,
                                   void (*note)(void *context, uint32_t table_id, uint64_t step),
                                   void *context, struct err_msg *msg)
{
    enum embtier_err first = EMBTIER_OK;

    for (uint32_t s = 0; s < store->shard_count; s++) {
        struct database *const database = store_database_of(store, s, true);
        enum embtier_err err;

        if (!database)
            continue;
        err = database_table_steps(database, note, context, first == EMBTIER_OK ? msg : NULL);
        if (first == EMBTIER_OK)
            first = err;
    }
    return first;
}

/* Syncs the logs of the shards in @shards. They come in the order of their numbers, as several
 * syncers may come with the same ones. */
static enum embtier_err sync_shards(struct store *store, const bool *shards, struct err_msg *msg)
{
    struct database *databases[DATABASES_SYNC_MAX];
    const uint32_t shard_count = store->shard_count;
    uint32_t count = 0;

    for (uint32_t s = 0; s < shard_count; s++) {
        if (shards[s])
            databases[count++] = store_database_of(store, s, true);
        if (count == 0 || (count < DATABASES_SYNC_MAX && s + 1 < shard_count))
            continue;
        TRY(databases_sync_logs(databases, count, true, msg));
        count = 0;
    }
    return EMBTIER_OK;
}

/* A target that cannot be synced fails its wave, and no write of a client. */
static enum embtier_err sync_without_wave(struct store *store, const struct store_view *view,
                                          const uint32_t *routes, uint32_t count,
                                          const struct err_msg *why, enum embtier_err err,
                                          struct err_msg *msg)
{
    bool shards[BUCKET_MAP_SHARDS_MAX] = { false };
    bool is_wanted[CONFIG_SHARDS_MAX] = { false };

    for (uint32_t i = 0; i < count; i++)
        is_wanted[routes[i]] = true;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        if (is_wanted[store->routes->shards[bucket]])
            shards[view->map->shards[bucket]] = true;
    TRY(sync_shards(store, shards, msg));
    pthread_mutex_lock(&view->wave->lock);
    err = wave_fail(view->wave, err, why, msg);
    pthread_mutex_unlock(&view->wave->lock);
    return err;
}

enum embtier_err store_sync_logs(struct store *store, const uint32_t *routes, uint32_t count,
                                 struct err_msg *msg)
{
    struct store_view *const view = store_view_get(&store->views);
    bool shards[BUCKET_MAP_SHARDS_MAX] = { false };
    struct err_msg why = { { 0 } };
    enum embtier_err err;

    for (uint32_t i = 0; i < count; i++)
        for (uint32_t at = view->first[routes[i]]; at < view->first[routes[i] + 1]; at++)
            shards[view->shards[at]] = true;
    err = sync_shards(store, shards, &why);
    if (err != EMBTIER_OK && view->wave)
        err = sync_without_wave(store, view, routes, count, &why, err, msg);
    else if (err != EMBTIER_OK)
        err = err_set(msg, err, "%s", why.text);
    store_view_put(&store->views, view);
    return err;
}

void store_mark_log(struct store *store, uint32_t route)
{
    struct store_view *const view = store_view_get(&store->views);

    for (uint32_t at = view->first[route]; at < view->first[route + 1]; at++)
        database_mark_log(store_database_of(store, view->shards[at], true));
    store_view_put(&store->views, view);
}

enum embtier_err store_sync_all_logs(struct store *store, struct err_msg *msg)
{
    struct database *databases[DATABASES_SYNC_MAX];
    const uint32_t shard_count = store->shard_count;
    uint32_t count = 0;

    for (uint32_t s = 0; s < shard_count; s++) {
        if (store_database_of(store, s, true))
            databases[count++] = store_database_of(store, s, true);
        if (count < DATABASES_SYNC_MAX && s + 1 < shard_count)
            continue;
        if (count > 0)
            TRY(databases_sync_logs(databases, count, false, msg));
        count = 0;
    }
    return EMBTIER_OK;
}

enum embtier_err store_shorten_logs(struct store *store, const _Atomic bool *give_up,
                                    struct err_msg *msg)
{
    const uint64_t most_bytes =
        MIN(CHECKPOINT_LOG_BYTES / store->routes->shard_count, (uint64_t)CHECKPOINT_LOG_BYTES_EACH);
    const uint32_t shard_count = store->shard_count;
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    enum embtier_err first = EMBTIER_OK;

    for (uint32_t s = 0; s < shard_count; s++) {
        struct database *const database = store_database_of(store, s, true);
        enum embtier_err err;

        if (!database)
            continue;
        if (clock_now_ns(&clock_monotonic) - began_ns > SHORTEN_PATIENCE_NS)
            return first != EMBTIER_OK ? first
                                       : err_set(msg, EMBTIER_BUSY,
                                                 "flushes take too long: %" PRIu32 " of %" PRIu32
                                                 " shards are flushed",
                                                 s, shard_count);
        err = database_shorten_log(database, most_bytes, give_up, first == EMBTIER_OK ? msg : NULL);
        if (err == EMBTIER_SHUTDOWN)
            return err_shutdown(msg);
        if (first == EMBTIER_OK)
            first = err;
    }
    return first;
}

enum embtier_err store_flush(struct store *store, uint32_t route, struct err_msg *msg)
{
    struct store_view *const view = store_view_get(&store->views);
    enum embtier_err err = EMBTIER_OK;

    for (uint32_t at = view->first[route]; err == EMBTIER_OK && at < view->first[route + 1]; at++) {
        err = database_flush(store_database_of(store, view->shards[at], false), msg);
        if (err == EMBTIER_OK)
            err = database_flush(store_database_of(store, view->shards[at], true), msg);
    }
    store_view_put(&store->views, view);
    return err;
}

/* A wave copies no row of a table that is being dropped: it could come after the deletion. */
static enum embtier_err drop_begin(struct store *store, uint32_t table_id, struct err_msg *msg)
{
    uint32_t *more;

    pthread_mutex_lock(&store->moves.lock);
    more = realloc(store->moves.drops, (store->moves.drop_count + 1) * sizeof(*more));
    if (more) {
        store->moves.drops = more;
        more[store->moves.drop_count++] = table_id;
        if (store->moves.wave)
            wave_note_drop(store->moves.wave, table_id);
    }
    pthread_mutex_unlock(&store->moves.lock);
    return more ? EMBTIER_OK : err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

static void drop_end(struct store *store, uint32_t table_id)
{
    uint32_t i = 0;

    pthread_mutex_lock(&store->moves.lock);
    while (store->moves.drops[i] != table_id)
        i++;
    store->moves.drops[i] = store->moves.drops[--store->moves.drop_count];
    pthread_mutex_unlock(&store->moves.lock);
}

static enum embtier_err drop_from(struct store *store, uint32_t shard, bool logged,
                                  uint32_t table_id, const _Atomic bool *give_up,
                                  struct err_msg *msg)
{
    struct database *const database = store_database_of(store, shard, logged);
    const uint32_t device = store_drive_of(store, shard);
    enum embtier_err err;

    TRY(database_delete_table(database, table_id, msg));
    TRY(compaction_scheduler_hold(store->scheduler, device, give_up, msg));
    err = database_compact_table(database, table_id, msg);
    compaction_scheduler_release(store->scheduler, device);
    return err;
}

static enum embtier_err drop_everywhere(struct store *store, uint32_t table_id, bool logged,
                                        void (*progress)(void *, uint32_t, uint32_t), void *context,
                                        const _Atomic bool *give_up, struct err_msg *msg)
{
    const uint32_t shard_count = store->shard_count;

    for (uint32_t s = 0; s < shard_count; s++) {
        struct database *const database = store_database_of(store, s, logged);
        const uint64_t began_ns = clock_now_ns(&clock_monotonic);
        enum embtier_err err;

        if (!database)
            continue;
        /* The error may stem from an earlier refusal, before there was space. */
        while ((err = drop_from(store, s, logged, table_id, give_up, msg)) == EMBTIER_NO_SPACE &&
               !(give_up && atomic_load(give_up)) &&
               clock_now_ns(&clock_monotonic) - began_ns < RESUME_PATIENCE_NS)
            nanosleep(&(struct timespec){ .tv_nsec = RESUME_PAUSE_NS }, NULL);
        TRY(err);
        if (progress)
            progress(context, s + 1, shard_count);
    }
    rocksdb_ext_activity_forget(store->activity,
                                table_id); /* else its counts would stay for ever */
    return EMBTIER_OK;
}

enum embtier_err store_drop_table(struct store *store, uint32_t table_id, bool logged,
                                  void (*progress)(void *, uint32_t, uint32_t), void *context,
                                  const _Atomic bool *give_up, struct err_msg *msg)
{
    enum embtier_err err;

    if (table_id == STORE_ALL_TABLES)
        return err_set(msg, EMBTIER_INVALID, "no table has the id %u", table_id);
    TRY(drop_begin(store, table_id, msg));
    err = drop_everywhere(store, table_id, logged, progress, context, give_up, msg);
    drop_end(store, table_id);
    return err;
}
