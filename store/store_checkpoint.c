/* SPDX-License-Identifier: Apache-2.0 */
/* store_checkpoint.c: captures all databases for a checkpoint. Puts them back to one at a start,
 * after a crash or when a user asks for it. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/paths.h"
#include "store/catalog.h"
#include "store/checkpoint/checkpoint_advice.h"
#include "store/database/database_seal.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/files/summed_json.h"
#include "store/resharding/map_back.h"
#include "store/store_impl.h"

#define RESTORE_FILE "restore.json"

const struct checkpoint_shelf *store_shelf(const struct store *store)
{
    return &store->shelf;
}

static enum embtier_err take_map(struct store *store, struct checkpoint_draft *draft,
                                 struct err_msg *msg)
{
    struct store_view *const view = store_view_get(&store->views);
    const enum embtier_err err = checkpoint_take_map(draft, view->map, msg);

    store_view_put(&store->views, view);
    return err;
}

enum embtier_err store_capture(struct store *store, struct checkpoint_draft *draft, bool logged,
                               uint64_t until_ns, const _Atomic bool *give_up, struct err_msg *msg)
{
    uint32_t shard_count = store->shard_count;

    for (uint32_t s = 0; s < shard_count && !logged; s++) {
        if (give_up && atomic_load(give_up))
            return err_shutdown(msg);
        if (store_database_of(store, s, logged))
            TRY(database_flush(store_database_of(store, s, logged), msg));
    }
    TRY(take_map(store, draft, msg));
    /* A shard that was made meanwhile is counted before the map has it (add_shard()). So these are
     * all of the map's. */
    shard_count = store->shard_count;
    for (uint32_t s = 0; s < shard_count; s++) {
        if (give_up && atomic_load(give_up))
            return err_shutdown(msg);
        if (clock_now_ns(&clock_monotonic) > until_ns)
            return EMBTIER_AGAIN;
        if (store_database_of(store, s, logged))
            TRY(checkpoint_capture(draft, s, logged, store_database_of(store, s, logged), msg));
    }
    return EMBTIER_OK;
}

bool store_has_changed_since(const struct store *store, const struct checkpoint_record *record)
{
    for (uint32_t s = 0; s < store->shard_count; s++) {
        struct database *const database = store_database_of(store, s, false);

        if (database && !(record && checkpoint_record_has(record, s)) &&
            database_sequence(database) > 0)
            return true;
    }
    for (uint32_t i = 0; record && i < record->database_count; i++) {
        const struct checkpoint_database *const then = &record->databases[i];

        struct database *const database = store_database_of(store, then->shard, false);

        if (!then->logged && database && database_sequence(database) != then->sequence)
            return true;
    }
    return false;
}

/* Finds out if all databases without a log are as after a clean close. A start that was cut short
 * has opened some of them, and changed none. */
static enum embtier_err was_closed(const struct store *store, bool *ret_closed, struct err_msg *msg)
{
    *ret_closed = true;
    if (atomic_load(&store->closed_file))
        return EMBTIER_OK;
    for (uint32_t s = 0; s < store->map->shard_count; s++) {
        _cleanup_(freep) char *path = NULL;
        bool sealed = false;

        if (!bucket_map_has(store->map, s))
            continue;
        path = store_database_path_of(store, s, false);
        if (!path)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        TRY(database_is_sealed(path, &sealed, msg));
        *ret_closed = *ret_closed && sealed;
    }
    return EMBTIER_OK;
}

/* Makes the replacements of all databases of a kind, next to these. */
static enum embtier_err make_replacements(const struct store *store,
                                          const struct checkpoint_record *record, bool logged,
                                          struct err_msg *msg)
{
    for (uint32_t s = 0; s < store->map->shard_count; s++) {
        _cleanup_(freep) char *path = NULL;

        if (!bucket_map_has(store->map, s) || !checkpoint_record_has(record, s))
            continue;
        path = store_database_path_of(store, s, logged);
        if (!path)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        open_progress_set(store->progress, "files", s, store->map->shard_count);
        TRY(checkpoint_make_replacement(&store->shelf, record, s, logged, path, msg));
    }
    return EMBTIER_OK;
}

static void remove_replacements(const struct store *store, bool logged)
{
    for (uint32_t s = 0; s < store->map->shard_count; s++) {
        _cleanup_(freep) char *path =
            bucket_map_has(store->map, s) ? store_database_path_of(store, s, logged) : NULL;

        if (path)
            checkpoint_remove_replacement(path);
    }
}

/* @record NULL: all databases are emptied. */
static enum embtier_err take_places(const struct store *store,
                                    const struct checkpoint_record *record, bool logged,
                                    struct err_msg *msg)
{
    for (uint32_t s = 0; s < store->map->shard_count; s++) {
        _cleanup_(freep) char *path = NULL;

        if (!bucket_map_has(store->map, s))
            continue;
        path = store_database_path_of(store, s, logged);
        if (!path)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        open_progress_set(store->progress, "places", s, store->map->shard_count);
        store->is_empty[s] = !record || !checkpoint_record_has(record, s);
        TRY(record && store->is_empty[s] ? checkpoint_empty_place(path, msg)
                                         : checkpoint_take_place(path, !record, msg));
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
    /* This catalog may be lost; it is needed only for the ids that it has given out. */
    if (catalog_open(store_first_directory(store), &catalog, NULL) != EMBTIER_OK)
        return catalog_copy(then, store_first_directory(store), NULL, msg);
    return catalog_take_over(catalog, then, msg);
}

enum embtier_err store_wanted_checkpoint(const struct store *store, uint64_t *ret_id,
                                         struct err_msg *msg)
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
                       "%s: damaged: it names the checkpoint to restore; name that one again with "
                       "`embtierd --restore ID`",
                       path);
    TRY(err);
    *ret_id = (uint64_t)json_integer_value(json_object_get(root, "checkpoint"));
    return EMBTIER_OK;
}

/* Records the restore, so that a later start completes it if this one does not. */
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

/* Remakes a shard's folder that was lost with its contents. */
static enum embtier_err make_shard_folders(const struct store *store, struct err_msg *msg)
{
    for (uint32_t s = 0; s < store->map->shard_count; s++) {
        _cleanup_(freep) char *folder = NULL;
        bool is_there;

        if (!bucket_map_has(store->map, s))
            continue;
        folder = store_shard_folder_of(store, s);
        if (!folder)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        TRY(path_is_there(folder, &is_there, msg));
        if (is_there)
            continue;
        TRY(folder_make(folder, msg));
        TRY(directory_sync(store_directory_of(store, s), msg));
    }
    return EMBTIER_OK;
}

/* Makes all replacements, or none. */
static enum embtier_err make_all_replacements(const struct store *store,
                                              const struct checkpoint_record *record,
                                              struct err_msg *msg)
{
    enum embtier_err err = make_shard_folders(store, msg);

    if (err == EMBTIER_OK)
        err = make_replacements(store, record, false, msg);
    if (err == EMBTIER_OK)
        err = make_replacements(store, record, true, msg);
    if (err != EMBTIER_OK) {
        remove_replacements(store, false);
        remove_replacements(store, true);
    }
    return err;
}

static void verified(void *context, uint64_t done, uint64_t total)
{
    open_progress_set(context, "verify_mib", (uint32_t)(done / MIB), (uint32_t)(total / MIB));
}

/* @asked: the first try, so the data to be replaced is still there. */
static enum embtier_err put_back_all(struct store *store, uint64_t id, bool asked,
                                     struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    _cleanup_(catalog_freep) struct catalog *then = NULL;

    /* Every fault of the checkpoint is found before anything changes. */
    TRY(checkpoint_read_named(&store->shelf, id, &record, msg));
    TRY(checkpoint_catalog(&store->shelf, record, &then, msg));
    TRY(map_back_begin(store, record, msg));
    if (asked)
        TRY(checkpoint_verify(&store->shelf, record, verified, store->progress, NULL, msg));
    TRY(make_all_replacements(store, record, msg));
    TRY(write_down(store, id, msg));
    TRY(map_back_write(store, msg));
    TRY(store_remove_closed_file(store, msg));
    note_recovery(store, record, false);
    TRY(take_places(store, record, false, msg));
    TRY(take_places(store, record, true, msg));
    return put_back_catalog(store, record, msg);
}

/* Puts the tables back to the checkpoint of @record; NULL: to how they were made. */
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

static enum embtier_err make_newest_replacements(const struct store *store,
                                                 struct checkpoint_record **ret_record,
                                                 struct err_msg *msg)
{
    TRY(checkpoint_read_newest(&store->shelf, ret_record, msg));
    return *ret_record ? make_replacements(store, *ret_record, false, msg) : EMBTIER_OK;
}

static enum embtier_err put_back_after_crash(struct store *store, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    bool closed = true;
    enum embtier_err err;

    TRY(was_closed(store, &closed, msg));
    if (closed) /* by a process that died before it wrote the file, or that did not know of it */
        return atomic_load(&store->closed_file) ? EMBTIER_OK : store_write_closed_file(store, msg);
    err = make_newest_replacements(store, &record, msg);
    if (err == EMBTIER_OK)
        err = map_back_after_crash(store, record, msg);
    if (err != EMBTIER_OK)
        checkpoint_advise_after_crash(msg);
    TRY(err);
    note_recovery(store, record, true);
    TRY(go_back_in_catalog(store, record, msg));
    return take_places(store, record, false, msg);
}

enum embtier_err store_put_back(struct store *store, uint64_t restore_id, struct err_msg *msg)
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
    TRY(store_read_closed_file(store, msg));
    if (restore_id)
        id = restore_id;
    else
        TRY(store_wanted_checkpoint(store, &id, msg));
    /* These are left from a start that was cut short. */
    remove_replacements(store, false);
    remove_replacements(store, true);
    TRY(id ? put_back_all(store, id, restore_id != 0, msg) : put_back_after_crash(store, msg));
    store->recovery.spent_ns = clock_now_ns(&clock_monotonic) - began_ns;
    if (checkpoint_sweep(&store->shelf, &why) != EMBTIER_OK)
        log_warn("the remains of a checkpoint cannot be removed", "why=%s", LOG_QUOTED(why.text));
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
