/* SPDX-License-Identifier: Apache-2.0 */
#include "store/checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/catalog.h"
#include "store/database/database.h"
#include "store/database/database_seal.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/rocksdb/rocksdb_err.h"
#include "store/rocksdb/rocksdb_ext.h"
#include "store/store_identity.h"

#define NEW_SUFFIX  ".new"
#define LOST_SUFFIX ".lost"

static enum embtier_err no_memory(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
}

/* ---- Making ---- */

struct captured {
    struct database *database;
    struct rocksdb_ext_files *files;
};

struct checkpoint_draft {
    struct checkpoint_shelf shelf;
    struct checkpoint_record record;
    struct captured *captured;        /* as many as record.databases, in the same order */
    uint32_t room;                    /* of both arrays */
    struct bucket_map *map;           /* NULL: not yet taken */
    struct checkpoint_record *before; /* the newest checkpoint before this one, or NULL */
    bool is_complete;
};

/* Data directories may have joined since the draft was begun. */
static enum embtier_err make_folders(const struct checkpoint_draft *draft, bool begins,
                                     struct err_msg *msg)
{
    const struct checkpoint_shelf *const shelf = &draft->shelf;

    for (uint32_t d = 0; d < store_identity_directory_count(shelf->identity); d++) {
        _cleanup_(freep) char *all = NULL;
        _cleanup_(freep) char *folder = NULL;

        if (!store_identity_has(shelf->identity, d))
            continue;
        all = path_join(store_identity_directory(shelf->identity, d), CHECKPOINT_SHELF_FOLDER);
        folder = checkpoint_folder(shelf, draft->record.info.id, d);
        if (!all || !folder)
            return no_memory(msg);
        TRY(folder_make(all, msg));
        TRY(folder_make(folder, msg));
        if (d == 0 && begins) /* before there is anything else */
            TRY(checkpoint_mark(shelf, draft->record.info.id, msg));
    }
    return EMBTIER_OK;
}

enum embtier_err checkpoint_begin(const struct checkpoint_shelf *shelf,
                                  struct checkpoint_draft **ret_draft, struct err_msg *msg)
{
    _cleanup_(checkpoint_draft_freep) struct checkpoint_draft *draft = calloc(1, sizeof(*draft));

    if (!draft)
        return no_memory(msg);
    draft->shelf = *shelf;
    draft->is_complete = true; /* nothing to remove yet */
    memcpy(draft->record.store_uuid, store_identity_uuid(shelf->identity), STORE_UUID_CHARS + 1);
    TRY(checkpoint_next_id(shelf, &draft->record.info.id, msg));
    /* It only tells which files are new, so a damaged one is no reason to fail. */
    if (checkpoint_read_newest(shelf, &draft->before, NULL) != EMBTIER_OK)
        draft->before = NULL;
    draft->is_complete = false;
    TRY(make_folders(draft, true, msg));
    *ret_draft = TAKE(draft);
    return EMBTIER_OK;
}

static enum embtier_err make_room(struct checkpoint_draft *draft, uint32_t shards,
                                  struct err_msg *msg)
{
    const uint32_t room = shards * STORE_DATABASES_PER_SHARD;
    struct checkpoint_database *databases;
    struct captured *captured;

    if (room <= draft->room)
        return EMBTIER_OK;
    captured = realloc(draft->captured, room * sizeof(*captured));
    if (captured)
        draft->captured = captured;
    databases = realloc(draft->record.databases, room * sizeof(*databases));
    if (databases)
        draft->record.databases = databases;
    if (!captured || !databases)
        return no_memory(msg);
    memset(captured + draft->room, 0, (room - draft->room) * sizeof(*captured));
    memset(databases + draft->room, 0, (room - draft->room) * sizeof(*databases));
    draft->room = room;
    return EMBTIER_OK;
}

enum embtier_err checkpoint_take_map(struct checkpoint_draft *draft, const struct bucket_map *map,
                                     struct err_msg *msg)
{
    struct bucket_map *copy;

    TRY(make_room(draft, map->shard_count, msg));
    if (draft->map && memcmp(draft->map->shards, map->shards, sizeof(map->shards)) != 0)
        return err_set(msg, EMBTIER_BUSY,
                       "no checkpoint: buckets have moved to other shards meanwhile; the next one "
                       "will succeed");
    copy = bucket_map_copy(map);
    if (!copy)
        return no_memory(msg);
    /* A shard whose strays are gone by now may have had some when the first were captured. A shard
     * that is new since has only a part of its databases in the draft. */
    for (uint32_t s = 0; draft->map && s < copy->shard_count; s++) {
        copy->strays[s] |= draft->map->strays[s];
        if (!bucket_map_has(draft->map, s))
            copy->places[s] = BUCKET_MAP_GONE;
    }
    bucket_map_free(draft->map);
    draft->map = copy;
    draft->record.shard_count = copy->shard_count;
    draft->record.map = copy->format == BUCKET_MAP_FORMAT_FIXED ? NULL : copy;
    return EMBTIER_OK;
}

enum embtier_err checkpoint_capture(struct checkpoint_draft *draft, uint32_t shard, bool logged,
                                    struct database *database, struct err_msg *msg)
{
    struct captured *const captured = &draft->captured[draft->record.database_count];

    if (!bucket_map_has(draft->map, shard)) /* made since the first capture: it has no buckets */
        return EMBTIER_OK;
    TRY(database_files(database, &captured->files, msg));
    captured->database = database;
    draft->record.databases[draft->record.database_count++] =
        (struct checkpoint_database){ .shard = shard,
                                      .place = draft->map->places[shard],
                                      .logged = logged,
                                      .sequence = database_sequence(database) };
    return EMBTIER_OK;
}

void checkpoint_forget(struct checkpoint_draft *draft)
{
    for (uint32_t i = 0; i < draft->record.database_count; i++) {
        rocksdb_ext_files_free(TAKE(draft->captured[i].files));
        free(draft->record.databases[i].files);
    }
    draft->record.database_count = 0;
    bucket_map_free(TAKE(draft->map));
    draft->record.map = NULL;
}

/* Returns the same file, with the same name, in the checkpoint before; or NULL. */
static const struct checkpoint_file *find_before(const struct checkpoint_draft *draft,
                                                 const struct checkpoint_database *database,
                                                 const char *name, const char *path)
{
    const struct checkpoint_database *const before =
        draft->before ? checkpoint_record_database(draft->before, database->shard, database->logged)
                      : NULL;
    _cleanup_(freep) char *folder = NULL;
    _cleanup_(freep) char *other = NULL;
    struct stat mine, others;
    uint32_t i = 0;

    while (before && i < before->file_count && strcmp(before->files[i].name, name) != 0)
        i++;
    if (!before || i == before->file_count)
        return NULL;
    folder = checkpoint_database_path(&draft->shelf, draft->before->info.id, before);
    other = folder ? path_join(folder, name) : NULL;
    if (!other || stat(path, &mine) != 0 || stat(other, &others) != 0 ||
        mine.st_dev != others.st_dev || mine.st_ino != others.st_ino)
        return NULL;
    return &before->files[i];
}

/* Makes one file of a checkpoint. */
static enum embtier_err keep_file(struct checkpoint_draft *draft,
                                  struct checkpoint_database *database, const char *source,
                                  const char *folder, const struct rocksdb_ext_file *from,
                                  const _Atomic bool *give_up, struct err_msg *msg)
{
    struct checkpoint_file *const file = &database->files[database->file_count];
    _cleanup_(freep) char *path = path_join(source, from->name);
    _cleanup_(freep) char *copy = path_join(folder, from->name);
    const struct checkpoint_file *before = NULL;
    bool linked = false;

    if (!path || !copy)
        return no_memory(msg);
    /* When RocksDB resumes after a failed write of its MANIFEST, it forgets that it must keep these
     * files. */
    if (!from->contents && access(path, F_OK) != 0 && errno == ENOENT)
        return err_set(msg, EMBTIER_IO,
                       "%s: deleted by the database, which has recovered from a failed write "
                       "meanwhile; the next checkpoint will succeed",
                       path);
    if (strlen(from->name) >= sizeof(file->name))
        return err_set(msg, EMBTIER_INTERNAL, "%s: its name is too long", path);
    memcpy(file->name, from->name, strlen(from->name) + 1);
    file->bytes = from->bytes;
    file->is_table = from->is_table;
    if (from->is_table)
        TRY(file_link(path, copy, &linked, msg));
    if (from->contents)
        TRY(file_make(copy, from->contents, from->bytes, &file->sum, msg));
    else if (!linked)
        TRY(file_copy(path, copy, from->bytes, &file->sum, msg));
    /* A checksum of damaged bytes would call the file good for ever. */
    if (from->is_table && !linked && from->has_sum && file->sum != from->sum)
        return err_set(msg, EMBTIER_CORRUPT, "%s: damaged", path);
    if (linked)
        before = find_before(draft, database, file->name, copy);
    if (linked && from->has_sum)
        file->sum = from->sum;
    else if (before) /* an earlier version made the table file */
        file->sum = before->sum;
    else if (linked)
        TRY(file_sum(copy, from->bytes, &file->sum, NULL, NULL, give_up, msg));
    database->file_count++;
    draft->record.info.bytes += file->bytes;
    draft->record.info.new_bytes += before ? 0 : file->bytes;
    return EMBTIER_OK;
}

static enum embtier_err keep_database(struct checkpoint_draft *draft, uint32_t index,
                                      const _Atomic bool *give_up, struct err_msg *msg)
{
    struct checkpoint_database *const database = &draft->record.databases[index];
    struct captured *const captured = &draft->captured[index];
    const uint64_t id = draft->record.info.id;
    const size_t count = rocksdb_ext_files_count(captured->files);
    _cleanup_(freep) char *shard = checkpoint_shard_folder(&draft->shelf, id, database);
    _cleanup_(freep) char *folder = checkpoint_database_path(&draft->shelf, id, database);

    database->files = calloc(count + 1, sizeof(*database->files));
    if (!shard || !folder || !database->files)
        return no_memory(msg);
    TRY(folder_make(shard, msg));
    TRY(folder_make(folder, msg));
    for (size_t i = 0; i < count; i++) {
        struct rocksdb_ext_file file;

        if (give_up && atomic_load(give_up))
            return err_shutdown(msg);
        rocksdb_ext_files_at(captured->files, i, &file);
        TRY(keep_file(draft, database, database_path(captured->database), folder, &file, give_up,
                      msg));
    }
    TRY(rocksdb_err_take(rocksdb_ext_files_log_error(captured->files),
                         database_path(captured->database), msg));
    rocksdb_ext_files_free(TAKE(captured->files));
    TRY(directory_sync(folder, msg));
    return directory_sync(shard, msg);
}

static enum embtier_err sync_folders(const struct checkpoint_draft *draft, struct err_msg *msg)
{
    const struct checkpoint_shelf *const shelf = &draft->shelf;

    for (uint32_t d = 0; d < store_identity_directory_count(shelf->identity); d++) {
        _cleanup_(freep) char *all = NULL;
        _cleanup_(freep) char *folder = NULL;
        bool is_there = false;

        if (!store_identity_has(shelf->identity, d))
            continue;
        all = path_join(store_identity_directory(shelf->identity, d), CHECKPOINT_SHELF_FOLDER);
        folder = checkpoint_folder(shelf, draft->record.info.id, d);
        if (!all || !folder)
            return no_memory(msg);
        TRY(path_is_there(folder, &is_there, msg));
        if (!is_there) /* the directory has joined just now */
            continue;
        TRY(directory_sync(folder, msg));
        TRY(directory_sync(all, msg));
        TRY(directory_sync(store_identity_directory(shelf->identity, d), msg));
    }
    return EMBTIER_OK;
}

static enum embtier_err keep_catalog(struct checkpoint_draft *draft, const struct catalog *catalog,
                                     const struct catalog_made *made, const char *folder,
                                     struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(folder, CATALOG_FILE);
    struct stat info;

    if (!path)
        return no_memory(msg);
    TRY(catalog_copy(catalog, folder, made, msg));
    if (stat(path, &info) != 0)
        return err_set_errno(msg, errno, "%s", path);
    draft->record.catalog_bytes = (uint64_t)info.st_size;
    return file_sum(path, draft->record.catalog_bytes, &draft->record.catalog_sum, NULL, NULL, NULL,
                    msg);
}

enum embtier_err checkpoint_commit(struct checkpoint_draft *draft, const struct catalog *catalog,
                                   const struct catalog_made *made, struct checkpoint_info *info,
                                   void (*progress)(void *context, uint64_t done, uint64_t total),
                                   void *context, const _Atomic bool *give_up, struct err_msg *msg)
{
    struct checkpoint_record *const record = &draft->record;
    _cleanup_(freep) char *folder = checkpoint_folder(&draft->shelf, record->info.id, 0);

    if (!folder)
        return no_memory(msg);
    if (record->map &&
        record->database_count != bucket_map_present(record->map) * STORE_DATABASES_PER_SHARD)
        return err_set(msg, EMBTIER_BUSY,
                       "no checkpoint: it has %" PRIu32 " databases of %" PRIu32
                       " shards; the next one will succeed",
                       record->database_count, bucket_map_present(record->map));
    TRY(make_folders(draft, false, msg));
    for (uint32_t i = 0; i < record->database_count; i++) {
        TRY(keep_database(draft, i, give_up, msg));
        if (progress)
            progress(context, i + 1, record->database_count);
    }
    TRY(keep_catalog(draft, catalog, made, folder, msg));
    TRY(sync_folders(draft, msg));
    info->id = record->info.id;
    info->bytes = record->info.bytes;
    info->new_bytes = record->info.new_bytes;
    record->info = *info;
    TRY(checkpoint_record_write(record, folder, msg));
    TRY(checkpoint_unmark(&draft->shelf, record->info.id, msg));
    draft->is_complete = true;
    return EMBTIER_OK;
}

void checkpoint_draft_free(struct checkpoint_draft *draft)
{
    if (!draft)
        return;
    checkpoint_forget(draft);
    /* The mark may be removed already, and come back after a loss of power, or not. So files are
     * removed only once it is there for certain. The next sweep removes the files that stay. */
    if (!draft->is_complete &&
        checkpoint_mark(&draft->shelf, draft->record.info.id, NULL) == EMBTIER_OK)
        (void)!checkpoint_remove_folders(&draft->shelf, draft->record.info.id, NULL);
    free(draft->record.databases);
    free(draft->captured);
    checkpoint_record_free(draft->before);
    free(draft);
}

/* ---- Using ---- */

struct verifying {
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
    uint64_t done;
    uint64_t total;
};

static void verified(void *context, uint64_t bytes)
{
    struct verifying *const verifying = context;

    verifying->done += bytes;
    if (verifying->progress)
        verifying->progress(verifying->context, verifying->done, verifying->total);
}

/* Checks the length of a file at @path, which messages call @name. */
static enum embtier_err check_length(const char *path, const char *name, uint64_t bytes,
                                     struct err_msg *msg)
{
    struct stat info;

    if (stat(path, &info) != 0)
        return errno == ENOENT ? err_set(msg, EMBTIER_CORRUPT, "%s: missing", name)
                               : err_set_errno(msg, errno, "%s", name);
    if ((uint64_t)info.st_size != bytes)
        return err_set(msg, EMBTIER_CORRUPT, "%s: has %" PRIu64 " bytes instead of %" PRIu64, name,
                       (uint64_t)info.st_size, bytes);
    return EMBTIER_OK;
}

static enum embtier_err verify_database(const struct checkpoint_shelf *shelf, uint64_t id,
                                        const struct checkpoint_database *database,
                                        bool with_tables, struct verifying *verifying,
                                        const _Atomic bool *give_up, struct err_msg *msg)
{
    _cleanup_(freep) char *folder = checkpoint_database_path(shelf, id, database);

    if (!folder)
        return no_memory(msg);
    for (uint32_t i = 0; i < database->file_count; i++) {
        const struct checkpoint_file *const file = &database->files[i];
        _cleanup_(freep) char *path = path_join(folder, file->name);
        uint32_t sum = 0;

        if (!path)
            return no_memory(msg);
        if (file->is_table && !with_tables) {
            TRY(check_length(path, path, file->bytes, msg));
            continue;
        }
        TRY(file_sum(path, file->bytes, &sum, verified, verifying, give_up, msg));
        if (sum != file->sum)
            return err_set(msg, EMBTIER_CORRUPT,
                           "%s: damaged: its checksum is %08" PRIx32 " instead of %08" PRIx32, path,
                           sum, file->sum);
    }
    return EMBTIER_OK;
}

enum embtier_err checkpoint_check_logs(const struct checkpoint_shelf *shelf,
                                       const struct checkpoint_record *record, uint32_t shard,
                                       bool logged, struct err_msg *msg)
{
    const struct checkpoint_database *const database =
        checkpoint_record_database(record, shard, logged);
    struct verifying verifying = { 0 };

    if (!database)
        return err_set(msg, EMBTIER_CORRUPT,
                       "checkpoint %" PRIu64 ": lacks a database of shard %" PRIu32,
                       record->info.id, shard);
    return verify_database(shelf, record->info.id, database, false, &verifying, NULL, msg);
}

enum embtier_err checkpoint_verify(const struct checkpoint_shelf *shelf,
                                   const struct checkpoint_record *record,
                                   void (*progress)(void *context, uint64_t done, uint64_t total),
                                   void *context, const _Atomic bool *give_up, struct err_msg *msg)
{
    struct verifying verifying = { progress, context, 0, record->info.bytes };
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;

    TRY(checkpoint_catalog(shelf, record, &catalog, msg));
    if (!record->map && record->database_count != record->shard_count * STORE_DATABASES_PER_SHARD)
        return err_set(msg, EMBTIER_CORRUPT,
                       "checkpoint %" PRIu64 ": has %" PRIu32 " databases of %" PRIu32 " shard%s",
                       record->info.id, record->database_count, record->shard_count,
                       PLURAL(record->shard_count));
    for (uint32_t i = 0; i < record->database_count; i++)
        TRY(verify_database(shelf, record->info.id, &record->databases[i], true, &verifying,
                            give_up, msg));
    return EMBTIER_OK;
}

enum embtier_err checkpoint_delete(const struct checkpoint_shelf *shelf, uint64_t id,
                                   struct err_msg *msg)
{
    TRY(checkpoint_mark(shelf, id, msg));
    return checkpoint_remove_folders(shelf, id, msg);
}

/* RocksDB appends to some of its files, so only those that never change may have two names. */
static enum embtier_err put_back_file(const struct checkpoint_file *file, const char *folder,
                                      const char *to, struct err_msg *msg)
{
    _cleanup_(freep) char *from = path_join(folder, file->name);
    _cleanup_(freep) char *path = path_join(to, file->name);
    bool linked = false;
    uint32_t sum = 0;

    if (!from || !path)
        return no_memory(msg);
    if (file->is_table)
        TRY(file_link(from, path, &linked, msg));
    if (!linked) {
        TRY(file_copy(from, path, file->bytes, &sum, msg));
        if (sum != file->sum)
            return err_set(msg, EMBTIER_CORRUPT, "%s: damaged", from);
    }
    return check_length(path, from, file->bytes, msg);
}

static enum embtier_err fill_folder(const struct checkpoint_shelf *shelf,
                                    const struct checkpoint_record *record, uint32_t shard,
                                    bool logged, const char *to, struct err_msg *msg)
{
    const struct checkpoint_database *const database =
        checkpoint_record_database(record, shard, logged);
    _cleanup_(freep) char *folder =
        database ? checkpoint_database_path(shelf, record->info.id, database) : NULL;

    if (!database)
        return err_set(msg, EMBTIER_CORRUPT,
                       "checkpoint %" PRIu64 ": its record lacks a database of shard %" PRIu32,
                       record->info.id, shard);
    if (!folder)
        return no_memory(msg);
    TRY(folder_make(to, msg));
    for (uint32_t i = 0; i < database->file_count; i++)
        TRY(put_back_file(&database->files[i], folder, to, msg));
    return directory_sync(to, msg);
}

static char *replacement_path(const char *path)
{
    char *replacement = NULL;

    return asprintf(&replacement, "%s" NEW_SUFFIX, path) < 0 ? NULL : replacement;
}

enum embtier_err checkpoint_make_replacement(const struct checkpoint_shelf *shelf,
                                             const struct checkpoint_record *record, uint32_t shard,
                                             bool logged, const char *path, struct err_msg *msg)
{
    _cleanup_(freep) char *replacement = replacement_path(path);

    if (!replacement)
        return no_memory(msg);
    TRY(folder_remove(replacement, msg));
    return fill_folder(shelf, record, shard, logged, replacement, msg);
}

void checkpoint_remove_replacement(const char *path)
{
    _cleanup_(freep) char *replacement = replacement_path(path);

    if (replacement && folder_remove(replacement, NULL) != EMBTIER_OK)
        return; /* checkpoint_make_replacement() removes it first */
}

/* Keeps the old rows aside. Nothing else has them, though their ages are mixed, and a person may
 * still want them. After a second crash without a checkpoint the first rows stay, and those written
 * between the two crashes go. */
static enum embtier_err put_away(const char *path, struct err_msg *msg)
{
    _cleanup_(freep) char *lost = NULL;
    bool has_path, has_lost;

    if (asprintf(&lost, "%s" LOST_SUFFIX, path) < 0) {
        lost = NULL;
        return no_memory(msg);
    }
    TRY(path_is_there(path, &has_path, msg));
    if (!has_path)
        return EMBTIER_OK;
    TRY(path_is_there(lost, &has_lost, msg));
    if (has_lost)
        return folder_remove(path, msg);
    return rename(path, lost) == 0 ? EMBTIER_OK : err_set_errno(msg, errno, "%s", lost);
}

enum embtier_err checkpoint_empty_place(const char *path, struct err_msg *msg)
{
    _cleanup_(freep) char *parent = strndup(path, (size_t)(strrchr(path, '/') - path));

    if (!parent)
        return no_memory(msg);
    TRY(database_seal_remove(path, msg)); /* from here on, a crash counts as one */
    TRY(folder_remove(path, msg));
    return directory_sync(parent, msg);
}

enum embtier_err checkpoint_take_place(const char *path, bool emptied, struct err_msg *msg)
{
    _cleanup_(freep) char *replacement = replacement_path(path);
    _cleanup_(freep) char *parent = strndup(path, (size_t)(strrchr(path, '/') - path));

    if (!replacement || !parent)
        return no_memory(msg);
    TRY(database_seal_remove(path, msg)); /* from here on, a crash counts as one */
    if (emptied)
        TRY(put_away(path, msg));
    else
        TRY(folder_remove(path, msg));
    if (!emptied && rename(replacement, path) != 0)
        return err_set_errno(msg, errno, "%s", path);
    return directory_sync(parent, msg);
}
