/* SPDX-License-Identifier: Apache-2.0 */
#include "store/members/reshard_directory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/log/log.h"
#include "store/files/written.h"
#include "store/members/join_leave.h"
#include "store/resharding/reshard_facts.h"
#include "store/resharding/reshard_plan.h"
#include "store/resharding/shard_new.h"
#include "store/store_impl.h"

/* Room that is left free beside the rows: for the map, logs and write buffers of new shards. */
#define ROOM_BYTES (64 * MIB)
#define ROOM_PART  16

/* ---- Shards ---- */

uint32_t reshard_directory_shards(const struct bucket_map *map, uint32_t place, bool with_buckets)
{
    uint32_t count = 0;

    for (uint32_t s = 0; s < map->shard_count; s++)
        count += bucket_map_has(map, s) && map->places[s] == place &&
                 (!with_buckets || map->bucket_counts[s] > 0);
    return count;
}

static uint32_t keep_if(const struct bucket_map *map, enum reshard_order order, uint32_t place,
                        bool with_empty, bool *kept)
{
    uint32_t count = 0;

    memset(kept, 0, BUCKET_MAP_SHARDS_MAX * sizeof(*kept));
    for (uint32_t s = 0; s < map->shard_count; s++) {
        const bool is_here = map->places[s] == place;

        if (!bucket_map_has(map, s) || (is_here && order == RESHARD_REMOVE))
            continue;
        kept[s] = is_here || with_empty || map->bucket_counts[s] > 0;
        count += kept[s];
    }
    return count;
}

uint32_t reshard_directory_keep(const struct bucket_map *map, enum reshard_order order,
                                uint32_t place, bool *kept)
{
    const uint32_t count = keep_if(map, order, place, false, kept);

    return count > 0 ? count : keep_if(map, order, place, true, kept);
}

/* ---- Room ---- */

static uint64_t stored_bytes(const struct store *store, uint32_t shard)
{
    struct store_stats stats = { 0 };

    for (uint32_t kind = 0; kind < DATABASE_KINDS; kind++)
        if (store_database_of(store, shard, kind == DATABASE_LOGGED))
            database_add_stats(store_database_of(store, shard, kind == DATABASE_LOGGED), &stats);
    return stats.stored_bytes;
}

/* @path: on the file system that gets the rows. */
static enum embtier_err check_room_at(const char *path, uint64_t bytes, struct err_msg *msg)
{
    const uint64_t needed = bytes + bytes / ROOM_PART + ROOM_BYTES;
    struct statvfs info;
    uint64_t room;

    if (statvfs(path, &info) != 0)
        return err_set_errno(msg, errno, "%s", path);
    room = (uint64_t)info.f_bavail * info.f_frsize;
    if (room >= needed)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_NO_SPACE,
                   "%s: rows that move there need %" PRIu64 " MiB, and %" PRIu64 " MiB are free",
                   path, div_round_up(needed, MIB), room / MIB);
}

enum embtier_err reshard_directory_check_room(struct store *store, const struct bucket_map *map,
                                              const struct bucket_map *after, struct err_msg *msg)
{
    uint64_t bytes[CONFIG_DIRECTORIES_MAX] = { 0 }; /* by device */
    const uint32_t count = store_identity_directory_count(store->identity);

    for (uint32_t s = 0; s < map->shard_count; s++) {
        uint32_t moves[CONFIG_DIRECTORIES_MAX] = { 0 };

        if (!bucket_map_has(map, s) || map->bucket_counts[s] == 0)
            continue;
        for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
            if (map->shards[bucket] == s && after->shards[bucket] != s)
                moves[store->devices[after->places[after->shards[bucket]]]]++;
        for (uint32_t d = 0; d < CONFIG_DIRECTORIES_MAX; d++)
            if (moves[d] > 0) /* one more, for rows that are not yet in files */
                bytes[d] += stored_bytes(store, s) / map->bucket_counts[s] * moves[d] + 1;
    }
    for (uint32_t d = 0; d < count; d++)
        if (store_identity_takes_shards(store->identity, d) && bytes[store->devices[d]] > 0)
            TRY(check_room_at(store_identity_directory(store->identity, d),
                              bytes[store->devices[d]], msg));
    return EMBTIER_OK;
}

/* ---- Orders ---- */

static char *folder_of(const char *path)
{
    char *const folder = strdup(path);
    char *slash = folder ? strrchr(folder, '/') : NULL;

    while (slash && slash > folder && slash[1] == '\0') {
        *slash = '\0';
        slash = strrchr(folder, '/');
    }
    if (slash)
        slash[slash == folder] = '\0';
    return folder;
}

/* True if an order that was cancelled left the directory with less than its share. */
static bool find_rest(struct store *store, struct reshard_record *record)
{
    const struct bucket_map *const map = store->map;
    const uint32_t place = store_identity_find(store->identity, record->directory);
    uint32_t shards = 0, others = 0, mine, buckets = 0;

    if (place == DIRECTORY_NONE || place < store_identity_made_count(store->identity))
        return false;
    for (uint32_t d = 0; d < store_identity_directory_count(store->identity); d++)
        others += store_identity_has(store->identity, d) && d != place;
    for (uint32_t s = 0; s < map->shard_count; s++) {
        if (!bucket_map_has(map, s))
            continue;
        shards += map->places[s] != place && map->bucket_counts[s] > 0;
        buckets += map->places[s] == place ? map->bucket_counts[s] : 0;
    }
    mine = MAX((shards + others / 2) / MAX(others, 1u), 1u);
    record->shards = mine;
    return buckets < ROW_BUCKETS / (shards + mine) * mine;
}

static enum embtier_err check_add(struct store *store, struct reshard_record *record,
                                  struct err_msg *msg)
{
    const struct bucket_map *const map = store->map;
    _cleanup_(freep) char *folder = folder_of(record->directory);
    uint32_t sharer = DIRECTORY_NONE, shards = 0, directories = 0;
    uint64_t bytes = 0;
    struct stat info;

    if (!folder)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (find_rest(store, record))
        return EMBTIER_OK;
    TRY(store_identity_check_new(store->identity, record->directory, &sharer, msg));
    for (uint32_t d = 0; d < store_identity_directory_count(store->identity); d++)
        directories += store_identity_has(store->identity, d);
    for (uint32_t s = 0; s < map->shard_count; s++) {
        if (!bucket_map_has(map, s) || map->bucket_counts[s] == 0)
            continue;
        bytes += stored_bytes(store, s);
        shards++;
    }
    directories = MAX(directories, 1u);
    record->shards = MAX((shards + directories / 2) / directories, 1u);
    TRY(shard_new_check(map, record->shards, msg));
    bytes = bytes / (shards + record->shards) * record->shards;
    TRY(check_room_at(stat(record->directory, &info) == 0 ? record->directory : folder, bytes,
                      msg));
    if (sharer != DIRECTORY_NONE)
        log_info("the new data directory shares its file system with another one, so it adds no "
                 "space",
                 "directory=%s shares_with=%s", LOG_QUOTED(record->directory),
                 LOG_QUOTED(store_identity_directory(store->identity, sharer)));
    return EMBTIER_OK;
}

static bool needs(const struct checkpoint_record *record, uint32_t place)
{
    for (uint32_t i = 0; i < record->database_count; i++)
        if (record->databases[i].place == place)
            return true;
    return false;
}

/* True if the checkpoint cannot be restored whether or not the directory stays: it is damaged, or
 * has gone. One that only this server cannot read now is another matter. */
static bool is_useless(enum embtier_err err)
{
    return err == EMBTIER_NOT_FOUND || err == EMBTIER_CORRUPT || err == EMBTIER_MISMATCH;
}

/* Deletes each checkpoint that needs the directory; @freeing NULL: only looks for those of users.
 */
static enum embtier_err walk_checkpoints(struct store *store, uint32_t place,
                                         bool deletes_checkpoints,
                                         const struct reshard_freeing *freeing, struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = NULL;
    uint32_t count = 0;

    TRY(checkpoint_list(&store->shelf, &ids, &count, msg));
    for (uint32_t i = 0; i < count; i++) {
        _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
        const enum embtier_err err = checkpoint_read(&store->shelf, ids[i], &record, msg);

        if (is_useless(err))
            continue;
        TRY(err);
        if (!needs(record, place))
            continue;
        if (!record->info.automatic && !deletes_checkpoints)
            return err_set(msg, EMBTIER_EXISTS,
                           "checkpoint %" PRIu64
                           ", which a user made, has files in %s and could not be restored "
                           "without it: delete it, or have the command do that "
                           "(--delete-checkpoints)",
                           ids[i], store_identity_directory(store->identity, place));
        if (freeing)
            TRY(freeing->drop(freeing->context, ids[i], msg));
    }
    return EMBTIER_OK;
}

/* A link to it may be gone when a start goes on with the order. */
static enum embtier_err note_path(const char *path, struct reshard_record *record,
                                  struct err_msg *msg)
{
    _cleanup_(freep) char *real = realpath(path, NULL);

    if (!real)
        return err_set_errno(msg, errno, "%s", path);
    if (strlen(real) < sizeof(record->directory))
        memcpy(record->directory, real, strlen(real) + 1);
    return EMBTIER_OK;
}

static enum embtier_err check_remove(struct store *store, struct reshard_record *record,
                                     struct err_msg *msg)
{
    const uint32_t place = store_identity_find(store->identity, record->directory);
    _cleanup_(freep) bool *kept = calloc(BUCKET_MAP_SHARDS_MAX, sizeof(*kept));
    _cleanup_(bucket_map_freep) struct bucket_map *goal = bucket_map_copy(store->map);
    uint32_t others = 0;

    if (!kept || !goal)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (record->directory[0] != '/')
        return err_set(msg, EMBTIER_INVALID, "`%s` is relative; allowed: an absolute path",
                       record->directory);
    for (uint32_t d = 0; d < store_identity_directory_count(store->identity); d++)
        others += store_identity_has(store->identity, d) && d != place;
    if (place == DIRECTORY_NONE)
        return err_set(msg, EMBTIER_NOT_FOUND,
                       "%s is no data directory of this store: `embtier data list` lists them",
                       record->directory);
    if (others == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "%s is the only data directory: add another one first (`embtier data add`)",
                       record->directory);
    if (place == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "%s is the store's first data directory, which has its catalog and the "
                       "records of its checkpoints, so it stays. A new store elsewhere can be made "
                       "of a checkpoint: embtierd --init --restore-from",
                       record->directory);
    TRY(note_path(store_identity_directory(store->identity, place), record, msg));
    TRY(walk_checkpoints(store, place, record->deletes_checkpoints, NULL, msg));
    record->shards = MAX(reshard_directory_keep(store->map, RESHARD_REMOVE, place, kept), 1u);
    if (reshard_directory_keep(store->map, RESHARD_REMOVE, place, kept) == 0)
        return EMBTIER_OK; /* the room is checked when shards have been made */
    reshard_plan_balance(store->map, kept, goal);
    return reshard_directory_check_room(store, store->map, goal, msg);
}

enum embtier_err reshard_directory_check(struct store *store, struct reshard_record *record,
                                         struct err_msg *msg)
{
    return record->order == RESHARD_ADD ? check_add(store, record, msg)
                                        : check_remove(store, record, msg);
}

/* ---- Joining ---- */

/* The directory has embtier.json, and does not count yet. */
static enum embtier_err fill(struct store *store, const char *path, bool *ret_direct_io,
                             struct err_msg *msg)
{
    TRY(direct_io_probe(path, store->direct_io_wanted, ret_direct_io, msg));
    return bucket_map_write(path, store_identity_uuid(store->identity), store->map, msg);
}

enum embtier_err reshard_directory_join(struct store *store, const char *path,
                                        void (*prepared)(void *context), void *context,
                                        uint32_t *ret_place, struct err_msg *msg)
{
    const uint32_t place = store_identity_directory_count(store->identity);
    bool is_unknown = false, direct_io = false;
    enum embtier_err err;

    *ret_place = store_identity_find(store->identity, path);
    if (*ret_place != DIRECTORY_NONE)
        return EMBTIER_OK;
    if (place >= CONFIG_DIRECTORIES_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE, "the store can have no more data directories");
    TRY(store_identity_join_begin(store->identity, path, msg));
    err = fill(store, path, &direct_io, msg);
    if (err == EMBTIER_OK) {
        store->direct_io_of[place] = direct_io; /* before others see the directory */
        store_note_device(store, place, path);
        prepared(context);
        written_add_directory(path);
        err = store_identity_join_end(store->identity, &is_unknown, ret_place, msg);
    }
    if (err != EMBTIER_OK && !is_unknown) {
        written_leave_directory(path);
        store_identity_join_undo(store->identity);
    }
    TRY(err);
    store_count_capacity(store, place);
    log_info("a data directory has been added to the store", "directory=%s number=%" PRIu32,
             LOG_QUOTED(path), place);
    return EMBTIER_OK;
}

/* Rows fill the directory as they do the others. */
static void watch(struct store *store, uint32_t place)
{
    const char *const path = store_identity_directory(store->identity, place);
    struct err_msg why = { { 0 } };

    if (store->is_watched[place])
        return;
    if (space_add(store->space, path, &why) == EMBTIER_OK)
        store->is_watched[place] = true;
    else
        log_warn("the space of the new data directory is watched from the next start on",
                 "directory=%s why=%s", LOG_QUOTED(path), LOG_QUOTED(why.text));
}

/* ---- Leaving ---- */

enum embtier_err reshard_directory_part(struct store *store, const char *path, uint32_t *ret_place,
                                        struct err_msg *msg)
{
    *ret_place = store_identity_find(store->identity, path);
    if (*ret_place == DIRECTORY_NONE) /* it has left, and then the server stopped */
        return EMBTIER_OK;
    store_identity_set_leaving(store->identity, *ret_place, true);
    return store_identity_note(store->identity, msg);
}

enum embtier_err reshard_directory_free(struct store *store, const struct reshard_freeing *freeing,
                                        uint32_t place, struct err_msg *msg)
{
    TRY(freeing->checkpoint(freeing->context, msg));
    return walk_checkpoints(store, place, freeing->deletes_checkpoints, freeing, msg);
}

void reshard_directory_left(struct store *store, uint32_t place)
{
    const char *const path = store_identity_directory(store->identity, place);

    if (store->is_watched[place])
        space_remove(store->space, path);
    store->is_watched[place] = false;
    written_leave_directory(path);
    log_info("a data directory has been removed from the store; it can be taken away when the "
             "server has been restarted",
             "directory=%s", LOG_QUOTED(path));
}

/* ---- The end ---- */

void reshard_directory_end(struct store *store, enum reshard_order order, uint32_t place, bool done)
{
    if (place == DIRECTORY_NONE)
        return;
    if (order == RESHARD_REMOVE && !done)
        store_identity_set_leaving(store->identity, place, false);
    if (order == RESHARD_ADD && reshard_directory_shards(store->map, place, true) > 0)
        watch(store, place);
}

/* ---- Two orders at once ---- */

enum embtier_err reshard_refuse(const struct reshard_facts *facts, struct err_msg *msg)
{
    if (facts->moves_directory)
        return err_set(msg, EMBTIER_BUSY,
                       "a data directory is being added or removed: wait for that job, or cancel "
                       "it with `embtier jobs cancel`");
    return err_set(msg, EMBTIER_BUSY,
                   "buckets already move to %" PRIu32 " shard%s: wait for that job, or cancel it "
                   "with `embtier jobs cancel`",
                   facts->wanted, PLURAL(facts->wanted));
}
