/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resharding/reshard.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "store/members/join_leave.h"
#include "store/members/reshard_directory.h"
#include "store/resharding/reshard_plan.h"
#include "store/resharding/reshard_record.h"
#include "store/resharding/shard_new.h"
#include "store/resharding/wave.h"
#include "store/resharding/wave_copy.h"
#include "store/store_impl.h"

#define NS_PER_S UINT64_C(1000000000)
/* Rests between two tries, about a second. */
#define RETRY_RESTS 200
/* So often in a row a wave may fail because its targets take no rows. */
#define BUSY_TRIES 20

/* One run. */
struct reshard {
    struct store *store;
    const struct reshard_opts *opts;
    bool kept[BUCKET_MAP_SHARDS_MAX];
    struct bucket_map *goal;
    uint32_t total;               /* buckets to move */
    uint32_t place;               /* of the directory that is added or removed */
    bool is_written;              /* the order is on disk, and a start goes on with it */
    struct reshard_record before; /* another order that failed, whose place it took */
};

static void reshard_clear(struct reshard *reshard)
{
    bucket_map_free(reshard->goal);
}

static uint32_t count_moves(const struct bucket_map *map, const struct bucket_map *goal)
{
    uint32_t count = 0;

    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        count += map->shards[bucket] != goal->shards[bucket];
    return count;
}

static void report(const struct reshard *reshard, enum reshard_step step)
{
    struct reshard_facts *facts;
    uint32_t left;

    if (!reshard) /* a test switches by itself */
        return;
    facts = &reshard->store->moves.facts;
    left = reshard->goal ? count_moves(reshard->store->map, reshard->goal) : 0;
    pthread_mutex_lock(&reshard->store->moves.facts_lock);
    facts->step = step;
    facts->moved = reshard->total - left;
    facts->total = reshard->total;
    pthread_mutex_unlock(&reshard->store->moves.facts_lock);
    move_pace_stir(reshard->opts->pace);
    if (reshard->opts->report)
        reshard->opts->report(reshard->opts->context, step, reshard->total - left, reshard->total);
}

static struct bucket_map *copy_of(const struct store *store, struct err_msg *msg)
{
    struct bucket_map *const map = bucket_map_copy(store->map);

    if (map)
        map->format = BUCKET_MAP_FORMAT_VERSION;
    else
        (void)err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return map;
}

static void set_view(struct store *store, struct store_view *view)
{
    store_view_set(&store->views, view);
    store->map = view->map;
}

/* Makes a view of a map that is to be written. All memory is taken before that: afterwards nothing
 * may fail. */
static enum embtier_err prepare(struct store *store, const struct bucket_map *map,
                                struct store_view **ret_view, struct err_msg *msg)
{
    _cleanup_(bucket_map_freep) struct bucket_map *shown = bucket_map_copy(map);

    if (!shown)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return store_view_new(&store->views, &shown, NULL, ret_view, msg);
}

/* Puts a map in force that is on disk. On failure *@map stays the caller's. */
static enum embtier_err put_in_force(struct store *store, struct bucket_map **map,
                                     struct wave *wave, struct err_msg *msg)
{
    struct store_view *view = NULL;

    TRY(store_view_new(&store->views, map, wave, &view, msg));
    set_view(store, view);
    return EMBTIER_OK;
}

/* Writes a map whose buckets lie where they do now, then puts it in force. Such a map is right
 * whether or not it is on disk. */
static enum embtier_err change_map(struct store *store, struct bucket_map **map,
                                   struct err_msg *msg)
{
    bool is_unknown;

    TRY(bucket_map_change(store->identity, store->map, *map, &store->map_generation, &is_unknown,
                          msg));
    return put_in_force(store, map, NULL, msg);
}

/* ---- Shards and strays ---- */

/* Shards on their way into the map: all of them, or none. */
struct new_shards {
    struct shard_new *list;
    uint32_t count;
};

static void new_shards_clear(struct new_shards *shards)
{
    for (uint32_t i = 0; i < shards->count; i++)
        shard_new_clear(&shards->list[i]);
    free(shards->list);
}

static enum embtier_err give_shards(struct store *store, struct new_shards *shards,
                                    struct bucket_map *map, struct err_msg *msg)
{
    bool is_unknown;
    enum embtier_err err;

    err = bucket_map_change(store->identity, store->map, map, &store->map_generation, &is_unknown,
                            msg);
    for (uint32_t i = 0; i < shards->count; i++)
        shards->list[i].may_be_in_map = is_unknown;
    TRY(err);
    for (uint32_t i = 0; i < shards->count; i++)
        shard_new_give(&shards->list[i]);
    return EMBTIER_OK;
}

/* Returns the directory for one more shard. */
static uint32_t place_for_shard(const struct reshard *reshard, const struct bucket_map *map)
{
    bool takes[CONFIG_DIRECTORIES_MAX];

    if (reshard->opts->order == RESHARD_ADD)
        return reshard->place;
    for (uint32_t d = 0; d < CONFIG_DIRECTORIES_MAX; d++)
        takes[d] = store_identity_takes_shards(reshard->store->identity, d);
    return reshard_plan_place(map, takes);
}

static enum embtier_err add_shards(struct reshard *reshard, uint32_t count, struct err_msg *msg)
{
    struct store *const store = reshard->store;
    _cleanup_(bucket_map_freep) struct bucket_map *map = copy_of(store, msg);
    _cleanup_(new_shards_clear) struct new_shards shards = { .list = calloc(count,
                                                                            sizeof(*shards.list)) };
    _cleanup_(store_view_freep) struct store_view *view = NULL;

    if (!map || !shards.list)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    while (shards.count < count) {
        struct shard_new *const shard = &shards.list[shards.count++];

        TRY(move_pace_look(reshard->opts->pace, msg));
        shard->store = store;
        TRY(shard_new_make(shard, map, place_for_shard(reshard, map), msg));
        report(reshard, RESHARD_SHARD_MADE);
    }
    TRY(prepare(store, map, &view, msg));
    TRY(give_shards(store, &shards, map, msg));
    view->map->generation = map->generation;
    set_view(store, TAKE(view));
    report(reshard, RESHARD_SHARD_ADDED);
    return EMBTIER_OK;
}

static enum embtier_err mark(struct store *store, const bool *shards, bool has_strays,
                             struct err_msg *msg)
{
    _cleanup_(bucket_map_freep) struct bucket_map *map = copy_of(store, msg);

    if (!map)
        return EMBTIER_NO_MEMORY;
    for (uint32_t s = 0; s < map->shard_count; s++)
        if (shards[s])
            map->strays[s] = has_strays;
    return change_map(store, &map, msg);
}

static bool has_strays(const struct reshard *reshard, uint32_t shard)
{
    const struct bucket_map *const map = reshard->store->map;

    return map->strays[shard] && bucket_map_has(map, shard) && reshard->kept[shard];
}

static enum embtier_err sweep_shard(struct reshard *reshard, uint32_t shard, struct err_msg *msg)
{
    struct store *const store = reshard->store;
    bool swept[BUCKET_MAP_SHARDS_MAX] = { false };

    if (!has_strays(reshard, shard))
        return EMBTIER_OK;
    TRY(strays_sweep(store, store->map, shard, reshard->opts->pace, msg));
    swept[shard] = true;
    report(reshard, RESHARD_SWEPT);
    return mark(store, swept, false, msg);
}

/* Removes the strays of all shards that have some. Those that have no bucket have nothing but
 * strays; only one that shall get buckets needs to be swept. */
static enum embtier_err sweep(struct reshard *reshard, struct err_msg *msg)
{
    for (uint32_t s = 0; s < reshard->store->map->shard_count; s++)
        TRY(sweep_shard(reshard, s, msg));
    return EMBTIER_OK;
}

/* Empties a shard that has no bucket, although there may be no space. */
static enum embtier_err drop_copies(struct reshard *reshard, uint32_t shard, struct err_msg *msg)
{
    struct store *const store = reshard->store;
    enum embtier_err err;

    if (!has_strays(reshard, shard) || store->map->bucket_counts[shard] > 0)
        return EMBTIER_OK;
    store_use_reserve(store);
    err = sweep_shard(reshard, shard, msg);
    store_end_reserve(store);
    return err;
}

/* Removes what a job that failed has copied in vain: a disk may be full of it. Shards without
 * buckets go first, as they give back more space than that takes. The next job would do the same,
 * so an error here is only logged. */
static void remove_copies(struct reshard *reshard)
{
    struct store *const store = reshard->store;
    struct err_msg why = { { 0 } };
    enum embtier_err err = EMBTIER_OK;

    if (store->moves.wave) /* which map is on disk is not known: rows are in both shards */
        return;
    for (uint32_t s = 0; s < store->map->shard_count && err == EMBTIER_OK; s++)
        err = drop_copies(reshard, s, &why);
    if (err == EMBTIER_OK)
        err = sweep(reshard, &why);
    if (err != EMBTIER_OK && err != EMBTIER_CANCELLED && err != EMBTIER_SHUTDOWN)
        log_warn("copies of rows that did not move stay until the next move begins", "why=%s",
                 LOG_QUOTED(why.text));
}

/* ---- A wave ---- */

static void note_wave(struct store *store, struct wave *wave)
{
    pthread_mutex_lock(&store->moves.lock);
    store->moves.wave = wave;
    for (uint32_t i = 0; wave && i < store->moves.drop_count; i++)
        wave_note_drop(wave, store->moves.drops[i]);
    pthread_mutex_unlock(&store->moves.lock);
}

/* Ends a wave whose map is not in force. Its targets keep strays. */
static enum embtier_err cancel(struct store *store, struct err_msg *msg)
{
    _cleanup_(bucket_map_freep) struct bucket_map *map = bucket_map_copy(store->map);
    struct wave *const wave = store->moves.wave;

    if (!map)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(put_in_force(store, &map, NULL, msg));
    note_wave(store, NULL);
    wave_free(wave);
    return EMBTIER_OK;
}

static enum embtier_err begin(struct reshard *reshard, const struct bucket_map *after,
                              uint32_t source, struct err_msg *msg)
{
    struct store *const store = reshard->store;
    _cleanup_(wave_freep) struct wave *wave = NULL;
    _cleanup_(bucket_map_freep) struct bucket_map *map = NULL;

    TRY(store_serve(store, msg));
    TRY(wave_new(store, store->map, after, source, &wave, msg));
    TRY(mark(store, wave->is_target, true, msg));
    report(reshard, RESHARD_MARKED);
    map = bucket_map_copy(store->map);
    if (!map)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    note_wave(store, wave);
    if (put_in_force(store, &map, wave, msg) != EMBTIER_OK) {
        note_wave(store, NULL);
        return EMBTIER_NO_MEMORY;
    }
    wave = NULL; /* store.moves has it */
    report(reshard, RESHARD_BEGUN);
    return EMBTIER_OK;
}

/* Rows of the source may be synced, so the copies must be, before the map leads to them. */
static enum embtier_err sync_targets(struct store *store, const struct wave *wave,
                                     struct err_msg *msg)
{
    for (uint32_t s = 0; s < store->map->shard_count; s++) {
        struct database *const database = store_database_of(store, s, true);

        if (wave->is_target[s])
            TRY(databases_sync_logs(&database, 1, false, msg));
    }
    return EMBTIER_OK;
}

static enum embtier_err copy(struct reshard *reshard, struct err_msg *msg)
{
    struct store *const store = reshard->store;
    struct wave *const wave = store->moves.wave;

    do {
        TRY(wave_copy(wave, reshard->opts->pace, msg));
        TRY(sync_targets(store, wave, msg));
        TRY(checkpoint_id_after(&store->shelf, &wave->fits_from, msg));
    } while (!wave_end_copying(wave));
    TRY(wave_check(wave, msg));
    report(reshard, RESHARD_COPIED);
    return EMBTIER_OK;
}

/* True if the store has the checkpoint, made when all rows were in both shards; or none at all. */
static enum embtier_err check_fits(struct store *store, const struct wave *wave, uint64_t id,
                                   struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;

    if (id != 0)
        TRY(checkpoint_read(&store->shelf, id, &record, msg));
    else
        TRY(checkpoint_read_newest(&store->shelf, &record, msg));
    if (id == 0 ? record == NULL : id >= wave->fits_from)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_MISMATCH,
                   "buckets cannot move: checkpoint %" PRIu64 " was begun before their rows were "
                   "copied",
                   record->info.id);
}

/* The writes of the wave's rows go to both shards while the map is written, and an error of either
 * is the writer's. So the next start is right with either map. */
static enum embtier_err write_map(struct store *store, struct wave *wave, struct bucket_map *map,
                                  struct err_msg *msg)
{
    bool is_unknown;
    enum embtier_err err;

    TRY(wave_begin_switch(wave, msg));
    err = bucket_map_change(store->identity, store->map, map, &store->map_generation, &is_unknown,
                            msg);
    if (err == EMBTIER_OK || is_unknown)
        return err;
    wave_end_switch(wave);
    return err;
}

/* Returns the map with the wave's buckets in their targets; NULL: out of memory. */
static struct bucket_map *switched_map(const struct store *store, const struct wave *wave,
                                       uint64_t checkpoint_from, struct err_msg *msg)
{
    struct bucket_map *const map = copy_of(store, msg);

    if (!map)
        return NULL;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        if (wave_target(wave, bucket) != WAVE_NO_TARGET)
            map->shards[bucket] = (uint16_t)wave_target(wave, bucket);
    bucket_map_count(map);
    for (uint32_t s = 0; s < map->shard_count; s++)
        if (wave->is_target[s])
            map->strays[s] = false;
    map->strays[wave->source] = true;
    map->checkpoint_from = checkpoint_from;
    return map;
}

enum embtier_err reshard_check_copied(struct store *store, struct err_msg *msg)
{
    struct wave *const wave = store->moves.wave;

    return wave ? wave_check_copied(wave, msg) : EMBTIER_OK;
}

enum embtier_err reshard_switch(struct store *store, uint64_t checkpoint_id, struct err_msg *msg)
{
    struct wave *const wave = store->moves.wave;
    const uint64_t from = checkpoint_id != 0 ? checkpoint_id : wave->fits_from;
    _cleanup_(bucket_map_freep) struct bucket_map *map = switched_map(store, wave, from, msg);
    _cleanup_(store_view_freep) struct store_view *view = NULL;

    if (!map)
        return EMBTIER_NO_MEMORY;
    TRY(wave_check_copied(wave, msg)); /* or another checkpoint would be made in vain */
    TRY(check_fits(store, wave, checkpoint_id, msg));
    TRY(prepare(store, map, &view, msg));
    report(store->moves.job, RESHARD_CHECKPOINTED);
    TRY(write_map(store, wave, map, msg));
    report(store->moves.job, RESHARD_WRITTEN);
    view->map->generation = map->generation;
    set_view(store, TAKE(view));
    note_wave(store, NULL);
    wave_free(wave);
    report(store->moves.job, RESHARD_SWITCHED);
    return EMBTIER_OK;
}

static enum embtier_err copy_and_commit(struct reshard *reshard, struct err_msg *msg)
{
    TRY(copy(reshard, msg));
    return reshard->opts->commit(reshard->opts->context, msg);
}

/* Copies the rows of a wave that has begun, and puts its map in force. If it cannot be told which
 * map is on disk, this goes on until it can: rows are in both shards as long as it lasts. */
static enum embtier_err finish(struct reshard *reshard, struct err_msg *msg)
{
    struct store *const store = reshard->store;
    const struct reshard_opts *const opts = reshard->opts;
    uint32_t tries = 0;
    enum embtier_err err;

    if (wave_is_switching(store->moves.wave))
        err = opts->commit(opts->context, msg);
    else
        while ((err = copy_and_commit(reshard, msg)) == EMBTIER_AGAIN && ++tries < BUSY_TRIES)
            ;
    while (err != EMBTIER_OK && wave_is_switching(store->moves.wave)) {
        log_error("the map of buckets cannot be written; this is retried until it succeeds",
                  "err=%s why=%s", err_name(err), msg ? LOG_QUOTED(msg->text) : "");
        for (uint32_t i = 0; i < RETRY_RESTS; i++)
            TRY(move_pace_rest(opts->pace, msg));
        err = opts->commit(opts->context, msg);
    }
    if (err != EMBTIER_OK)
        TRY(cancel(store, msg));
    return err == EMBTIER_AGAIN ? EMBTIER_BUSY : err; /* another try of the wave */
}

/* ---- The job ---- */

/* Rows that move are in two shards until the sweep has ended. */
static enum embtier_err check_room(const struct reshard *reshard, const struct bucket_map *after,
                                   uint32_t source, struct err_msg *msg)
{
    struct store *const store = reshard->store;
    const struct bucket_map *const map = store->map;
    const uint64_t moving = map->bucket_counts[source] - after->bucket_counts[source];
    struct store_stats stats = { 0 };
    struct store_demand demand = { 0 };

    if (reshard->opts->order != RESHARD_TO_SHARDS) /* the fullest of the others says nothing */
        return reshard_directory_check_room(store, map, after, msg);
    for (uint32_t kind = 0; kind < DATABASE_KINDS; kind++)
        database_add_stats(store_database_of(store, source, kind == DATABASE_LOGGED), &stats);
    demand.bytes = stats.stored_bytes * moving / map->bucket_counts[source];
    return store_check_demand(store, &demand, "no space to move rows to other shards", msg);
}

static enum embtier_err run_waves(struct reshard *reshard, struct err_msg *msg)
{
    struct store *const store = reshard->store;
    _cleanup_(bucket_map_freep) struct bucket_map *after = bucket_map_copy(store->map);
    uint32_t source, tries = 0;
    enum embtier_err err;

    if (!after)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (;;) {
        TRY(move_pace_look(reshard->opts->pace, msg));
        TRY(sweep(reshard, msg));
        source = reshard_plan_next(store->map, reshard->goal, after);
        if (source == RESHARD_PLAN_DONE)
            return EMBTIER_OK;
        TRY(check_room(reshard, after, source, msg));
        TRY(begin(reshard, after, source, msg));
        err = finish(reshard, msg);
        tries = err == EMBTIER_BUSY ? tries + 1 : 0;
        if (err == EMBTIER_BUSY)
            log_info("buckets of a shard could not move; they are tried again",
                     "shard=%" PRIu32 " tries=%" PRIu32 " why=%s", source, tries,
                     msg ? LOG_QUOTED(msg->text) : "");
        if (err != EMBTIER_OK && (err != EMBTIER_BUSY || tries == BUSY_TRIES))
            return err;
        for (uint32_t i = 0; err == EMBTIER_BUSY && i < RETRY_RESTS; i++)
            TRY(move_pace_rest(reshard->opts->pace, msg));
    }
}

/* Writes the order down, unless it is on disk. A new one is checked first. */
static enum embtier_err take_order(struct reshard *reshard, struct err_msg *msg)
{
    const struct reshard_opts *const opts = reshard->opts;
    const char *const directory = store_first_directory(reshard->store);
    struct reshard_record record = { .shards = opts->shards,
                                     .rate_bytes = atomic_load(&opts->pace->rate_bytes),
                                     .order = opts->order,
                                     .deletes_checkpoints = opts->deletes_checkpoints };
    struct reshard_record *const before = &reshard->before;

    if (opts->order == RESHARD_TO_SHARDS)
        return reshard_record_write(directory, &record, msg);
    if (strlen(opts->directory) >= sizeof(record.directory))
        return err_set(msg, EMBTIER_INVALID, "the path of the directory is too long");
    memcpy(record.directory, opts->directory, strlen(opts->directory) + 1);
    if (reshard_record_read(directory, before, NULL) == EMBTIER_OK &&
        before->order == opts->order && strcmp(before->directory, record.directory) == 0) {
        record.shards = before->shards;
        *before = (struct reshard_record){ 0 };
    } else {
        TRY(reshard_directory_check(reshard->store, &record, msg));
    }
    return reshard_record_write(directory, &record, msg);
}

static void report_prepared(void *context)
{
    report(context, RESHARD_PREPARED);
}

static void note_wanted(struct store *store, uint32_t shards)
{
    pthread_mutex_lock(&store->moves.facts_lock);
    store->moves.facts.wanted = shards;
    pthread_mutex_unlock(&store->moves.facts_lock);
}

/* Makes the shards that the order lacks, and chooses those that shall have buckets. */
static enum embtier_err make_shards_for_directory(struct reshard *reshard, struct err_msg *msg)
{
    const struct reshard_opts *const opts = reshard->opts;
    struct store *const store = reshard->store;
    struct reshard_record record = { 0 };
    uint32_t missing;

    TRY(reshard_record_read(store_first_directory(store), &record, msg));
    if (opts->order == RESHARD_ADD) {
        missing = reshard_directory_shards(store->map, reshard->place, false);
        missing = record.shards - MIN(record.shards, missing);
    } else {
        missing = reshard_directory_keep(store->map, opts->order, reshard->place, reshard->kept) > 0
                      ? 0
                      : reshard_directory_shards(store->map, reshard->place, true);
    }
    if (missing > 0)
        TRY(add_shards(reshard, missing, msg));
    note_wanted(store,
                reshard_directory_keep(store->map, opts->order, reshard->place, reshard->kept));
    return EMBTIER_OK;
}

static enum embtier_err make_shards(struct reshard *reshard, struct err_msg *msg)
{
    const struct reshard_opts *const opts = reshard->opts;
    struct store *const store = reshard->store;
    uint32_t kept;

    if (opts->order != RESHARD_TO_SHARDS)
        return make_shards_for_directory(reshard, msg);
    kept = reshard_plan_keep(store->map, opts->shards, reshard->kept);
    if (kept < opts->shards) {
        TRY(add_shards(reshard, opts->shards - kept, msg));
        (void)reshard_plan_keep(store->map, opts->shards, reshard->kept);
    }
    return EMBTIER_OK;
}

/* Takes the shards of the directory out of the map: they have no buckets. */
static enum embtier_err empty_directory(struct reshard *reshard, struct err_msg *msg)
{
    struct store *const store = reshard->store;
    _cleanup_(bucket_map_freep) struct bucket_map *map = copy_of(store, msg);

    if (!map)
        return EMBTIER_NO_MEMORY;
    if (reshard_directory_shards(map, reshard->place, false) == 0)
        return EMBTIER_OK;
    for (uint32_t s = 0; s < map->shard_count; s++) {
        if (!bucket_map_has(map, s) || map->places[s] != reshard->place)
            continue;
        assert(map->bucket_counts[s] == 0);
        map->places[s] = BUCKET_MAP_GONE;
        map->strays[s] = false;
    }
    return change_map(store, &map, msg);
}

/* All buckets have left the directory. */
static enum embtier_err leave(struct reshard *reshard, struct err_msg *msg)
{
    const struct reshard_opts *const opts = reshard->opts;
    struct store *const store = reshard->store;

    TRY(empty_directory(reshard, msg));
    report(reshard, RESHARD_EMPTIED);
    TRY(reshard_directory_free(store,
                               &(struct reshard_freeing){ opts->deletes_checkpoints,
                                                          opts->checkpoint, opts->drop,
                                                          opts->context },
                               reshard->place, msg));
    report(reshard, RESHARD_FREED);
    TRY(store_identity_leave(store->identity, reshard->place, msg));
    reshard_directory_left(store, reshard->place);
    report(reshard, RESHARD_LEFT);
    return EMBTIER_OK;
}

static enum embtier_err move_buckets(struct reshard *reshard, struct err_msg *msg)
{
    struct store *const store = reshard->store;

    if (store->moves.wave) /* of a job that was stopped while it switched */
        TRY(finish(reshard, msg));
    TRY(make_shards(reshard, msg));
    reshard->goal = bucket_map_copy(store->map);
    if (!reshard->goal)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    reshard_plan_balance(store->map, reshard->kept, reshard->goal);
    reshard->total = count_moves(store->map, reshard->goal);
    return run_waves(reshard, msg);
}

static enum embtier_err run_order(struct reshard *reshard, struct err_msg *msg)
{
    const struct reshard_opts *const opts = reshard->opts;
    struct store *const store = reshard->store;

    if (opts->order == RESHARD_ADD) {
        TRY(reshard_directory_join(store, opts->directory, report_prepared, reshard,
                                   &reshard->place, msg));
        report(reshard, RESHARD_JOINED);
    }
    if (opts->order != RESHARD_REMOVE)
        return move_buckets(reshard, msg);
    TRY(reshard_directory_part(store, opts->directory, &reshard->place, msg));
    if (reshard->place == DIRECTORY_NONE)
        return EMBTIER_OK;
    TRY(move_buckets(reshard, msg));
    return leave(reshard, msg);
}

static enum embtier_err run_job(struct reshard *reshard, struct err_msg *msg)
{
    struct store *const store = reshard->store;
    enum embtier_err err;

    TRY(take_order(reshard, msg));
    reshard->is_written = true;
    report(reshard, RESHARD_PLANNED);
    err = run_order(reshard, msg);
    reshard_directory_end(store, reshard->opts->order, reshard->place, err == EMBTIER_OK);
    /* A directory that could not be added is as it was: there is nothing to go on with. */
    if (err != EMBTIER_OK && err != EMBTIER_SHUTDOWN && reshard->opts->order == RESHARD_ADD &&
        reshard->place == DIRECTORY_NONE && !store_identity_is_joining(store->identity))
        reshard->is_written =
            reshard_record_put_back(store_first_directory(store), &reshard->before);
    TRY(err);
    report(reshard, RESHARD_DONE);
    return reshard_record_remove(store_first_directory(store), msg);
}

static enum embtier_err run_begin(struct store *store, struct reshard *reshard, struct err_msg *msg)
{
    struct reshard_facts *const facts = &store->moves.facts;
    enum embtier_err err = EMBTIER_OK;

    pthread_mutex_lock(&store->moves.facts_lock);
    if (facts->runs)
        err = reshard_refuse(facts, msg);
    else
        *facts =
            (struct reshard_facts){ .runs = true,
                                    .moves_directory = reshard->opts->order != RESHARD_TO_SHARDS,
                                    .wanted = reshard->opts->shards };
    if (err == EMBTIER_OK) {
        move_pace_stir(reshard->opts->pace);
        store->moves.job = reshard;
    }
    pthread_mutex_unlock(&store->moves.facts_lock);
    return err;
}

/* An order that is refused, and changed nothing, has not failed. */
static void run_end(struct store *store, enum embtier_err err, bool is_written)
{
    struct reshard_facts *const facts = &store->moves.facts;

    pthread_mutex_lock(&store->moves.facts_lock);
    store->moves.job = NULL;
    facts->runs = false;
    facts->has_failed =
        is_written && err != EMBTIER_OK && err != EMBTIER_SHUTDOWN && err != EMBTIER_CANCELLED;
    pthread_mutex_unlock(&store->moves.facts_lock);
}

static uint64_t seconds_idle(struct move_pace *pace)
{
    const uint64_t since_ns = atomic_load_explicit(&pace->stirred_at_ns, memory_order_relaxed);

    return clock_since(clock_now_ns(&clock_monotonic), since_ns) / NS_PER_S;
}

void reshard_look(struct store *store, struct reshard_facts *ret_facts)
{
    struct store_view *const view = store_view_get(&store->views);

    pthread_mutex_lock(&store->moves.facts_lock);
    *ret_facts = store->moves.facts;
    if (ret_facts->runs)
        ret_facts->idle_s = seconds_idle(store->moves.job->opts->pace);
    pthread_mutex_unlock(&store->moves.facts_lock);
    ret_facts->shards = 0;
    ret_facts->open = bucket_map_present(view->map);
    for (uint32_t s = 0; s < view->map->shard_count; s++)
        ret_facts->shards += view->map->bucket_counts[s] > 0;
    store_view_put(&store->views, view);
}

enum embtier_err reshard_run(struct store *store, const struct reshard_opts *opts,
                             struct err_msg *msg)
{
    _cleanup_(reshard_clear) struct reshard reshard = { .store = store,
                                                        .opts = opts,
                                                        .place = DIRECTORY_NONE };
    enum embtier_err err;

    if (opts->order == RESHARD_TO_SHARDS && (opts->shards == 0 || opts->shards > CONFIG_SHARDS_MAX))
        return err_set(msg, EMBTIER_INVALID, "%" PRIu32 " shards, allowed: 1 to %d", opts->shards,
                       CONFIG_SHARDS_MAX);
    TRY(run_begin(store, &reshard, msg));
    err = run_job(&reshard, msg);
    if (reshard.is_written && err != EMBTIER_OK && err != EMBTIER_SHUTDOWN)
        remove_copies(&reshard);
    run_end(store, err, reshard.is_written);
    return err;
}
