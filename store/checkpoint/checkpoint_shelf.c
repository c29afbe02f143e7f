/* SPDX-License-Identifier: Apache-2.0 */
#include "store/checkpoint/checkpoint_shelf.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/catalog.h"
#include "store/database/database.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/store_identity.h"

#define DRAFT_FILE "draft"

/* ---- Places ---- */

char *checkpoint_folder(const struct checkpoint_shelf *shelf, uint64_t id, uint32_t directory)
{
    char *path = NULL;

    if (asprintf(&path, "%s/" CHECKPOINT_SHELF_FOLDER "/%06" PRIu64,
                 store_identity_directory(shelf->identity, directory), id) < 0)
        return NULL;
    return path;
}

char *checkpoint_shard_folder(const struct checkpoint_shelf *shelf, uint64_t id,
                              const struct checkpoint_database *database)
{
    char *path = NULL;

    if (asprintf(&path, "%s/" CHECKPOINT_SHELF_FOLDER "/%06" PRIu64 "/shard-%04" PRIu32,
                 store_identity_directory(shelf->identity, database->place), id,
                 database->shard) < 0)
        return NULL;
    return path;
}

char *checkpoint_database_path(const struct checkpoint_shelf *shelf, uint64_t id,
                               const struct checkpoint_database *database)
{
    _cleanup_(freep) char *folder = checkpoint_shard_folder(shelf, id, database);

    return folder ? path_join(folder, database_name(database->logged)) : NULL;
}

static enum embtier_err no_memory(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
}

static bool parse_id(const char *name, uint64_t *ret_id)
{
    char *end;

    if (name[0] < '0' || name[0] > '9')
        return false;
    errno = 0;
    *ret_id = strtoull(name, &end, 10);
    return *end == '\0' && errno == 0 && *ret_id > 0;
}

/* ---- What is there ---- */

/* The head of the header explains these states. */
enum folder_state {
    FOLDER_DRAFT, /* or missing: no checkpoint */
    FOLDER_COMPLETE,
    FOLDER_DAMAGED, /* its record is gone */
};

static enum embtier_err is_there(const char *folder, const char *name, bool *ret_there,
                                 struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(folder, name);

    if (!path)
        return no_memory(msg);
    return path_is_there(path, ret_there, msg);
}

static enum embtier_err state_of(const struct checkpoint_shelf *shelf, uint64_t id,
                                 enum folder_state *ret_state, struct err_msg *msg)
{
    _cleanup_(freep) char *folder = checkpoint_folder(shelf, id, 0);
    bool has_mark = false, has_record = false, is_empty = true;

    if (!folder)
        return no_memory(msg);
    TRY(is_there(folder, DRAFT_FILE, &has_mark, msg));
    TRY(is_there(folder, CHECKPOINT_RECORD_FILE, &has_record, msg));
    if (!has_mark && !has_record) {
        TRY(folder_is_empty(folder, &is_empty, msg));
        TRY(is_there(folder, DRAFT_FILE, &has_mark, msg)); /* another thread may have begun */
    }
    *ret_state = has_mark || (!has_record && is_empty) ? FOLDER_DRAFT
                 : has_record                          ? FOLDER_COMPLETE
                                                       : FOLDER_DAMAGED;
    return EMBTIER_OK;
}

enum embtier_err checkpoint_mark(const struct checkpoint_shelf *shelf, uint64_t id,
                                 struct err_msg *msg)
{
    _cleanup_(freep) char *folder = checkpoint_folder(shelf, id, 0);
    _cleanup_(freep) char *path = folder ? path_join(folder, DRAFT_FILE) : NULL;
    bool has_folder;
    uint32_t sum;

    if (!path)
        return no_memory(msg);
    TRY(path_is_there(folder, &has_folder, msg));
    if (!has_folder)
        return err_set(msg, EMBTIER_NOT_FOUND,
                       "there is no checkpoint %" PRIu64
                       ": `embtier checkpoint list` lists those that exist",
                       id);
    TRY(file_make(path, "", 0, &sum, msg));
    return directory_sync(folder, msg);
}

enum embtier_err checkpoint_unmark(const struct checkpoint_shelf *shelf, uint64_t id,
                                   struct err_msg *msg)
{
    _cleanup_(freep) char *folder = checkpoint_folder(shelf, id, 0);
    _cleanup_(freep) char *path = folder ? path_join(folder, DRAFT_FILE) : NULL;

    if (!path)
        return no_memory(msg);
    if (unlink(path) != 0 && errno != ENOENT)
        return err_set_errno(msg, errno, "%s", path);
    return directory_sync(folder, msg);
}

/* ---- Lists ---- */

struct ids {
    uint64_t *ids;
    uint32_t count;
};

static enum embtier_err ids_add(struct ids *ids, uint64_t id, struct err_msg *msg)
{
    uint64_t *const more = realloc(ids->ids, (ids->count + 1) * sizeof(*more));

    if (!more)
        return no_memory(msg);
    ids->ids = more;
    ids->ids[ids->count++] = id;
    return EMBTIER_OK;
}

static int compare_ids(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

/* Adds all folders in a data directory to @ids, complete or not, and sorts these. */
static enum embtier_err list_folders(const char *directory, struct ids *ids, struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(directory, CHECKPOINT_SHELF_FOLDER);
    enum embtier_err err = EMBTIER_OK;
    const struct dirent *entry;
    DIR *folder;

    if (!path)
        return no_memory(msg);
    folder = opendir(path);
    if (!folder)
        return errno == ENOENT ? EMBTIER_OK : err_set_errno(msg, errno, "%s", path);
    while (err == EMBTIER_OK && (entry = folder_next(folder, path, &err, msg))) {
        uint64_t id;

        if (entry->d_type != DT_REG && parse_id(entry->d_name, &id))
            err = ids_add(ids, id, msg);
    }
    closedir(folder);
    if (ids->count > 0)
        qsort(ids->ids, ids->count, sizeof(*ids->ids), compare_ids);
    return err;
}

/* Drops folders that are no checkpoints from the list. */
static enum embtier_err keep_checkpoints(const struct checkpoint_shelf *shelf, struct ids *ids,
                                         struct err_msg *msg)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < ids->count; i++) {
        enum folder_state state = FOLDER_DRAFT;

        TRY(state_of(shelf, ids->ids[i], &state, msg));
        if (state != FOLDER_DRAFT)
            ids->ids[kept++] = ids->ids[i];
    }
    ids->count = kept;
    return EMBTIER_OK;
}

enum embtier_err checkpoint_list(const struct checkpoint_shelf *shelf, uint64_t **ret_ids,
                                 uint32_t *ret_count, struct err_msg *msg)
{
    struct ids ids = { 0 };
    enum embtier_err err = list_folders(store_identity_directory(shelf->identity, 0), &ids, msg);

    if (err == EMBTIER_OK)
        err = keep_checkpoints(shelf, &ids, msg);
    if (err != EMBTIER_OK) {
        free(ids.ids);
        return err;
    }
    *ret_ids = ids.ids;
    *ret_count = ids.count;
    return EMBTIER_OK;
}

/* Takes those databases out of the record that lie in directories which are not there, and have no
 * row that counts. */
static void drop_empty(const struct checkpoint_shelf *shelf, struct checkpoint_record *record)
{
    uint32_t kept = 0;

    for (uint32_t s = 0; record->map && s < record->map->shard_count; s++) {
        if (!bucket_map_has(record->map, s) || record->map->bucket_counts[s] > 0 ||
            store_identity_has(shelf->identity, record->map->places[s]))
            continue;
        record->map->places[s] = BUCKET_MAP_GONE;
        record->map->strays[s] = false;
    }
    for (uint32_t i = 0; record->map && i < record->database_count; i++) {
        struct checkpoint_database *const database = &record->databases[i];

        if (bucket_map_has(record->map, database->shard) ||
            store_identity_has(shelf->identity, database->place))
            record->databases[kept++] = *database;
        else
            free(database->files);
    }
    if (record->map)
        record->database_count = kept;
}

/* Finds the places of the databases. MISMATCH: the store has no such data directories. */
static enum embtier_err find_places(const struct checkpoint_shelf *shelf,
                                    struct checkpoint_record *record, const char *folder,
                                    struct err_msg *msg)
{
    drop_empty(shelf, record);
    for (uint32_t i = 0; i < record->database_count; i++) {
        struct checkpoint_database *const database = &record->databases[i];

        if (!record->map)
            database->place = database->shard / shelf->shards_per_directory;
        if (store_identity_has(shelf->identity, database->place))
            continue;
        if (store_identity_is_other(shelf->identity))
            return err_set(msg, EMBTIER_MISMATCH,
                           "--restore-from: %s has files in data directory %" PRIu32
                           " of its store, which is not named: name all that have files of this "
                           "checkpoint",
                           folder, database->place);
        return err_set(msg, EMBTIER_MISMATCH,
                       "%s: has files in a data directory that was removed from the store", folder);
    }
    return EMBTIER_OK;
}

/* Shards lie in the directories that the store was made with, unless there is a map. */
static bool shards_fit(const struct checkpoint_shelf *shelf, const struct checkpoint_record *record)
{
    return record->map || record->shard_count == store_identity_made_count(shelf->identity) *
                                                     shelf->shards_per_directory;
}

enum embtier_err checkpoint_read(const struct checkpoint_shelf *shelf, uint64_t id,
                                 struct checkpoint_record **ret_record, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    _cleanup_(freep) char *folder = checkpoint_folder(shelf, id, 0);
    enum folder_state state = FOLDER_DRAFT;

    if (!folder)
        return no_memory(msg);
    TRY(state_of(shelf, id, &state, msg));
    if (state == FOLDER_DRAFT)
        return err_set(msg, EMBTIER_NOT_FOUND,
                       "there is no checkpoint %" PRIu64
                       ": `embtier checkpoint list` lists those that exist",
                       id);
    if (state == FOLDER_DAMAGED)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s/" CHECKPOINT_RECORD_FILE
                       ": missing; without it the folder is useless and may be removed",
                       folder);
    TRY(checkpoint_record_read(folder, &record, msg));
    if (strcmp(record->store_uuid, store_identity_uuid(shelf->identity)) != 0)
        return err_set(msg, EMBTIER_MISMATCH, "%s: belongs to another store", folder);
    if (record->info.id != id || !shards_fit(shelf, record))
        return err_set(msg, EMBTIER_MISMATCH,
                       "%s: of checkpoint %" PRIu64 " with %" PRIu32 " shard%s", folder,
                       record->info.id, record->shard_count, PLURAL(record->shard_count));
    TRY(find_places(shelf, record, folder, msg));
    *ret_record = TAKE(record);
    return EMBTIER_OK;
}

enum embtier_err checkpoint_read_newest(const struct checkpoint_shelf *shelf,
                                        struct checkpoint_record **ret_record, struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = NULL;
    uint32_t count = 0;

    *ret_record = NULL;
    TRY(checkpoint_list(shelf, &ids, &count, msg));
    return count > 0 ? checkpoint_read(shelf, ids[count - 1], ret_record, msg) : EMBTIER_OK;
}

enum embtier_err checkpoint_catalog(const struct checkpoint_shelf *shelf,
                                    const struct checkpoint_record *record,
                                    struct catalog **ret_catalog, struct err_msg *msg)
{
    _cleanup_(freep) char *folder = checkpoint_folder(shelf, record->info.id, 0);
    _cleanup_(freep) char *path = folder ? path_join(folder, CATALOG_FILE) : NULL;
    uint32_t sum = 0;

    if (!path)
        return no_memory(msg);
    TRY(file_sum(path, record->catalog_bytes, &sum, NULL, NULL, NULL, msg));
    if (sum != record->catalog_sum)
        return err_set(msg, EMBTIER_CORRUPT, "%s: damaged", path);
    return catalog_read(folder, ret_catalog, msg);
}

enum embtier_err checkpoint_remove_folders(const struct checkpoint_shelf *shelf, uint64_t id,
                                           struct err_msg *msg)
{
    _cleanup_(freep) char *first = checkpoint_folder(shelf, id, 0);
    bool is_there = false;

    if (!first)
        return no_memory(msg);
    for (uint32_t d = store_identity_directory_count(shelf->identity); d-- > 1;) {
        _cleanup_(freep) char *folder = NULL;

        if (!store_identity_has(shelf->identity, d))
            continue;
        folder = checkpoint_folder(shelf, id, d);
        if (!folder)
            return no_memory(msg);
        TRY(folder_remove(folder, msg));
    }
    TRY(path_is_there(first, &is_there, msg));
    TRY(folder_empty(first, DRAFT_FILE, msg));
    if (is_there)
        TRY(directory_sync(first, msg));
    return folder_remove(first, msg);
}

/* Marks the folder again: a mark that can be seen may not be on disk yet. */
static enum embtier_err sweep_one(const struct checkpoint_shelf *shelf, uint64_t id,
                                  struct err_msg *msg)
{
    enum folder_state state = FOLDER_DRAFT;
    enum embtier_err err;

    TRY(state_of(shelf, id, &state, msg));
    if (state != FOLDER_DRAFT)
        return EMBTIER_OK;
    err = checkpoint_mark(shelf, id, msg);
    if (err != EMBTIER_NOT_FOUND)
        TRY(err);
    return checkpoint_remove_folders(shelf, id, msg);
}

/* Goes on after a folder that cannot be removed. */
static enum embtier_err sweep_directory(const struct checkpoint_shelf *shelf, uint32_t directory,
                                        struct ids *ids, struct err_msg *msg)
{
    enum embtier_err first = EMBTIER_OK;

    TRY(list_folders(store_identity_directory(shelf->identity, directory), ids, msg));
    for (uint32_t i = 0; i < ids->count; i++) {
        const enum embtier_err err =
            sweep_one(shelf, ids->ids[i], first == EMBTIER_OK ? msg : NULL);

        if (first == EMBTIER_OK)
            first = err;
    }
    return first;
}

enum embtier_err checkpoint_sweep(const struct checkpoint_shelf *shelf, struct err_msg *msg)
{
    enum embtier_err first = EMBTIER_OK;

    for (uint32_t d = 0; d < store_identity_directory_count(shelf->identity); d++) {
        struct ids ids = { 0 };
        enum embtier_err err = EMBTIER_OK;

        if (store_identity_has(shelf->identity, d))
            err = sweep_directory(shelf, d, &ids, first == EMBTIER_OK ? msg : NULL);
        free(ids.ids);
        if (first == EMBTIER_OK)
            first = err;
    }
    return first;
}

enum embtier_err checkpoint_next_id(const struct checkpoint_shelf *shelf, uint64_t *ret_id,
                                    struct err_msg *msg)
{
    struct ids ids = { 0 };
    enum embtier_err err = EMBTIER_OK;

    for (uint32_t d = 0; d < store_identity_directory_count(shelf->identity) && err == EMBTIER_OK;
         d++)
        if (store_identity_has(shelf->identity, d))
            err = list_folders(store_identity_directory(shelf->identity, d), &ids, msg);
    *ret_id = ids.count > 0 ? ids.ids[ids.count - 1] + 1 : 1;
    free(ids.ids);
    return err;
}

enum embtier_err checkpoint_id_after(const struct checkpoint_shelf *shelf, uint64_t *ret_id,
                                     struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = NULL;
    uint32_t count = 0;

    TRY(checkpoint_list(shelf, &ids, &count, msg));
    *ret_id = count > 0 ? ids[count - 1] + 1 : 1;
    return EMBTIER_OK;
}
