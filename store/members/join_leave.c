/* SPDX-License-Identifier: Apache-2.0 */
#include "store/members/join_leave.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/log/log.h"
#include "base/paths.h"
#include "store/buckets/bucket_map.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/files/space.h"
#include "store/members/identity_impl.h"
#include "store/resharding/reshard_record.h"
#include "store/store_identity.h"

uint32_t store_identity_find(const struct store_identity *identity, const char *path)
{
    for (uint32_t i = 0; i < store_identity_directory_count(identity); i++)
        if (store_identity_has(identity, i) &&
            (strcmp(store_identity_directory(identity, i), path) == 0 ||
             identity_is_same_directory(store_identity_directory(identity, i), path)))
            return i;
    return DIRECTORY_NONE;
}

/* ---- Checks ---- */

static enum embtier_err check_text(const char *path, struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *text = json_string(path);

    if (path[0] != '/')
        return err_set(msg, EMBTIER_INVALID,
                       "`%s` is relative, and the server's folder may be another; allowed: an "
                       "absolute path",
                       path);
    if (strlen(path) >= PATH_MAX - NAME_MAX || !text)
        return err_set(msg, EMBTIER_INVALID,
                       "the path is too long or no UTF-8; allowed: a data directory of at most %d "
                       "bytes",
                       PATH_MAX - NAME_MAX - 1);
    return EMBTIER_OK;
}

/* Returns the folder that @path lies in, malloced; NULL: no memory. */
static char *parent_of(const char *path)
{
    char *const parent = strdup(path);
    size_t length = parent ? strlen(parent) : 0;

    while (length > 1 && parent[length - 1] == '/')
        length--;
    while (length > 1 && parent[length - 1] != '/')
        length--;
    while (length > 1 && parent[length - 1] == '/')
        length--;
    if (parent)
        parent[length] = '\0';
    return parent;
}

static bool lies_in(const char *path, const char *other)
{
    const size_t length = strlen(other);

    return strncmp(path, other, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* @real: without links; it, or the folder that it is to be made in, as @is_parent says. */
static enum embtier_err check_apart(const struct store_identity *identity, const char *path,
                                    const char *real, bool is_parent, struct err_msg *msg)
{
    for (uint32_t i = 0; i < store_identity_directory_count(identity); i++) {
        _cleanup_(freep) char *other = NULL;

        if (!store_identity_has(identity, i))
            continue;
        other = realpath(store_identity_directory(identity, i), NULL);
        if (!other)
            continue;
        if (!is_parent && strcmp(real, other) == 0)
            return err_set(msg, EMBTIER_EXISTS, "%s is already data directory %u of this store",
                           path, i);
        if (lies_in(real, other) || (!is_parent && lies_in(other, real)))
            return err_set(msg, EMBTIER_INVALID,
                           "%s and the data directory %s lie one in the other: name another "
                           "directory",
                           path, store_identity_directory(identity, i));
    }
    return EMBTIER_OK;
}

static enum embtier_err check_joining(const struct store_identity *identity, const char *path,
                                      struct err_msg *msg)
{
    const char *const joining = identity->joining.path;

    if (!joining || strcmp(joining, path) == 0)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_BUSY, "%s is being added: add it again first", joining);
}

static enum embtier_err check_access(const char *path, const struct stat *info, struct err_msg *msg)
{
    if (!S_ISDIR(info->st_mode))
        return err_set(msg, EMBTIER_INVALID, "%s is no directory", path);
    if (faccessat(AT_FDCWD, path, R_OK | W_OK | X_OK, AT_EACCESS) != 0)
        return err_set(msg, err_from_errno(errno),
                       "%s: %s: let the server's user read and write it", path,
                       strerror(errno)); // NOLINT(concurrency-mt-unsafe)
    return EMBTIER_OK;
}

/* True if an earlier try left the directory behind before it counted. */
static bool is_left_over(const struct store_identity *identity, const char *path)
{
    struct record record = { 0 };

    return identity_record_read(path, &record, NULL) == EMBTIER_OK &&
           record.state == STATE_MAKING &&
           strcmp(record.uuid, store_identity_uuid(identity)) == 0 &&
           record.directory_index == store_identity_directory_count(identity);
}

static enum embtier_err check_contents(const struct store_identity *identity, const char *path,
                                       struct err_msg *msg)
{
    struct record record = { 0 };
    enum embtier_err err;

    if (is_left_over(identity, path))
        return EMBTIER_OK;
    err = identity_record_read(path, &record, msg);
    if (err == EMBTIER_OK && record.state == STATE_ABSENT)
        return identity_directory_check_empty(path, msg);
    if (err != EMBTIER_OK && err != EMBTIER_CORRUPT && err != EMBTIER_VERSION)
        return err;
    return err_set(msg, EMBTIER_MISMATCH,
                   "%s: not empty: it belongs to a store, or did so; name an empty directory, or "
                   "remove what is in it",
                   path);
}

/* The next start counts data.shards_per_directory for each directory. */
static enum embtier_err check_count(const struct store_identity *identity, struct err_msg *msg)
{
    const uint32_t shards = identity->directories[0].record.shards_per_directory;
    uint32_t count = 1;

    if (store_identity_directory_count(identity) >= CONFIG_DIRECTORIES_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "the store can have no more data directories: it has had %d",
                       CONFIG_DIRECTORIES_MAX);
    for (uint32_t i = 0; i < store_identity_directory_count(identity); i++)
        count += store_identity_has(identity, i);
    if (shards <= CONFIG_SHARDS_MAX / count)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_TOO_LARGE,
                   "the store can have no more data directories: a start counts "
                   "data.shards_per_directory for each, and %u times %u is above %d",
                   count, shards, CONFIG_SHARDS_MAX);
}

static void find_sharer(const struct store_identity *identity, dev_t device, uint32_t *ret_sharer)
{
    struct stat info;

    *ret_sharer = DIRECTORY_NONE;
    for (uint32_t i = store_identity_directory_count(identity); i-- > 0;)
        if (store_identity_has(identity, i) &&
            stat(store_identity_directory(identity, i), &info) == 0 && info.st_dev == device)
            *ret_sharer = i;
}

enum embtier_err store_identity_check_new(const struct store_identity *identity, const char *path,
                                          uint32_t *ret_sharer, struct err_msg *msg)
{
    _cleanup_(freep) char *real = NULL;
    _cleanup_(freep) char *parent = NULL;
    struct stat info;
    bool is_there;

    TRY(check_text(path, msg));
    TRY(check_joining(identity, path, msg));
    TRY(check_count(identity, msg));
    is_there = stat(path, &info) == 0;
    if (!is_there && errno != ENOENT)
        return err_set_errno(msg, errno, "%s", path);
    parent = parent_of(path);
    if (!parent)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (!is_there && stat(parent, &info) != 0)
        return err_set_errno(msg, errno, "%s", parent);
    TRY(check_access(is_there ? path : parent, &info, msg));
    real = realpath(is_there ? path : parent, NULL);
    if (!real)
        return err_set_errno(msg, errno, "%s", path);
    TRY(check_apart(identity, path, real, !is_there, msg));
    if (is_there)
        TRY(check_contents(identity, path, msg));
    find_sharer(identity, info.st_dev, ret_sharer);
    return EMBTIER_OK;
}

/* ---- Joining ---- */

static enum embtier_err make_directory(struct store_identity *identity, const char *path,
                                       struct err_msg *msg)
{
    _cleanup_(freep) char *parent = parent_of(path);

    if (!parent)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    identity->joining_was_made = mkdir(path, 0700) == 0;
    if (!identity->joining_was_made && errno != EEXIST)
        return err_set_errno(msg, errno, "%s", path);
    return identity->joining_was_made ? directory_sync(parent, msg) : EMBTIER_OK;
}

enum embtier_err store_identity_join_begin(struct store_identity *identity, const char *path,
                                           struct err_msg *msg)
{
    const uint32_t place = store_identity_directory_count(identity);
    struct directory *const joining = &identity->joining;
    enum embtier_err err;

    TRY(check_joining(identity, path, msg));
    if (joining->path)
        return EMBTIER_OK; /* an earlier try left it in a list that could not be taken back */
    joining->lock_fd = -1;
    joining->path = strdup(path);
    if (!joining->path)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    joining->record = identity->directories[0].record;
    joining->record.state = STATE_MAKING;
    joining->record.directory_index = place;
    joining->record.directory_count = place + 1;
    err = make_directory(identity, path, msg);
    if (err == EMBTIER_OK)
        err = identity_directory_lock(joining, false, msg);
    if (err == EMBTIER_OK)
        err = check_contents(identity, path, msg); /* again, now that no server can change it */
    if (err != EMBTIER_OK) {
        closep(&joining->lock_fd);
        free(TAKE(joining->path));
        if (identity->joining_was_made)
            (void)!folder_remove(path, NULL);
        return err;
    }
    err = identity_record_write(path, &joining->record, msg);
    if (err != EMBTIER_OK)
        store_identity_join_undo(identity);
    return err;
}

bool store_identity_is_joining(const struct store_identity *identity)
{
    return identity->joining.path != NULL;
}

void store_identity_join_undo(struct store_identity *identity)
{
    static const char *const names[] = { MEMBERS_FILE, BUCKET_MAP_FILE, SPACE_RESERVE_FILE,
                                         IDENTITY_FILE, LOCK_FILE };
    struct directory *const joining = &identity->joining;

    if (!joining->path)
        return;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        _cleanup_(freep) char *path = path_join(joining->path, names[i]);

        if (path)
            (void)unlink(path);
    }
    closep(&joining->lock_fd);
    joining->lock_fd = -1;
    if (identity->joining_was_made)
        (void)rmdir(joining->path);
    free(TAKE(joining->path));
}

/* ---- The list ---- */

static enum embtier_err note_place(struct members *members, uint32_t number, const char *path,
                                   struct err_msg *msg)
{
    free(members->paths[number]);
    free(members->names[number]);
    members->names[number] = strdup(path);
    members->paths[number] = realpath(path, NULL);
    if (!members->names[number])
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return members->paths[number] ? EMBTIER_OK : err_set_errno(msg, errno, "%s", path);
}

/* Returns the list of the directories as they are now, where they are now. */
static enum embtier_err list_of(const struct store_identity *identity, struct members *ret_members,
                                struct err_msg *msg)
{
    _cleanup_(members_clear) struct members members = { 0 };

    TRY(members_copy(&identity->members, &members, msg));
    memcpy(members.uuid, store_identity_uuid(identity), sizeof(members.uuid));
    members.given = store_identity_directory_count(identity);
    for (uint32_t i = 0; i < members.given; i++) {
        if (!store_identity_has(identity, i))
            continue;
        TRY(note_place(&members, i, store_identity_directory(identity, i), msg));
    }
    *ret_members = members;
    members = (struct members){ 0 };
    return EMBTIER_OK;
}

/* @more: a directory that is not the store's yet; may be NULL. @but: one whose copy matters to
 * nobody. */
static enum embtier_err write_all(const struct store_identity *identity, const char *more,
                                  uint32_t but, const struct members *members, struct err_msg *msg)
{
    if (more)
        TRY(members_write(more, members, msg));
    for (uint32_t i = 0; i < store_identity_directory_count(identity); i++)
        if (store_identity_has(identity, i) && i != but)
            TRY(members_write(store_identity_directory(identity, i), members, msg));
    if (but != DIRECTORY_NONE && store_identity_has(identity, but))
        (void)!members_write(store_identity_directory(identity, but), members, NULL);
    return EMBTIER_OK;
}

/* Replaces the list by @now. If it cannot be written everywhere, @before is written again. If that
 * fails too, *@ret_unknown: a start may find either. */
static enum embtier_err change(struct store_identity *identity, const char *more, uint32_t but,
                               struct members *before, struct members *now, bool *ret_unknown,
                               struct err_msg *msg)
{
    enum embtier_err err;

    now->generation = before->generation + 1;
    before->generation += 2;
    err = write_all(identity, more, but, now, msg);
    *ret_unknown = false;
    if (err != EMBTIER_OK) {
        *ret_unknown = write_all(identity, NULL, DIRECTORY_NONE, before, NULL) != EMBTIER_OK;
        now = before;
    }
    identity->is_unknown = *ret_unknown;
    members_clear(&identity->members);
    identity->members = *now;
    *now = (struct members){ 0 };
    return err;
}

enum embtier_err store_identity_join_end(struct store_identity *identity, bool *ret_unknown,
                                         uint32_t *ret_place, struct err_msg *msg)
{
    _cleanup_(members_clear) struct members before = { 0 };
    _cleanup_(members_clear) struct members now = { 0 };
    struct directory *const joining = &identity->joining;
    const uint32_t place = joining->record.directory_index;
    struct directory *const directory = &identity->directories[place];

    *ret_unknown = false;
    TRY(list_of(identity, &before, msg));
    TRY(members_copy(&before, &now, msg));
    TRY(note_place(&now, now.given, joining->path, msg));
    now.given++;
    TRY(change(identity, joining->path, DIRECTORY_NONE, &before, &now, ret_unknown, msg));
    directory->path = TAKE(joining->path);
    directory->lock_fd = joining->lock_fd;
    directory->record = joining->record;
    joining->lock_fd = -1;
    atomic_store_explicit(&identity->directory_count, place + 1, memory_order_release);
    *ret_place = place;
    directory->record.state = STATE_READY;
    if (identity_record_write(directory->path, &directory->record, NULL) != EMBTIER_OK)
        directory->record.state = STATE_MAKING; /* the next start writes it */
    return EMBTIER_OK;
}

/* ---- Leaving ---- */

void store_identity_set_leaving(struct store_identity *identity, uint32_t place, bool leaves)
{
    if (leaves || !identity->is_unknown)
        atomic_store(&identity->directories[place].leaves, leaves);
}

bool store_identity_takes_shards(const struct store_identity *identity, uint32_t place)
{
    return store_identity_has(identity, place) &&
           !atomic_load(&identity->directories[place].leaves);
}

enum embtier_err store_identity_note(struct store_identity *identity, struct err_msg *msg)
{
    _cleanup_(members_clear) struct members now = { 0 };
    enum embtier_err err;

    TRY(list_of(identity, &now, msg));
    now.generation++;
    err = write_all(identity, NULL, DIRECTORY_NONE, &now, msg);
    members_clear(&identity->members); /* some may have it, and the next one must be newer */
    identity->members = now;
    now = (struct members){ 0 };
    return err;
}

enum embtier_err store_identity_leave(struct store_identity *identity, uint32_t place,
                                      struct err_msg *msg)
{
    _cleanup_(members_clear) struct members before = { 0 };
    _cleanup_(members_clear) struct members now = { 0 };
    bool is_unknown;

    TRY(list_of(identity, &before, msg));
    TRY(members_copy(&before, &now, msg));
    now.has_left[place] = true;
    TRY(change(identity, NULL, place, &before, &now, &is_unknown, msg));
    atomic_store(&identity->directories[place].has_left, true);
    return EMBTIER_OK;
}

/* ---- A start ---- */

/* Returns the number of the directory at @path; DIRECTORY_NONE: it is none of the list's. A drive
 * that was taken away leaves a mount point without a store, or nothing at all. */
static uint32_t number_of(const struct members *members, const char *path)
{
    struct record record = { 0 };
    uint32_t number = DIRECTORY_NONE;

    if (identity_record_read(path, &record, NULL) == EMBTIER_OK && record.state != STATE_ABSENT)
        return strcmp(record.uuid, members->uuid) == 0 ? record.directory_index : DIRECTORY_NONE;
    for (uint32_t i = 0; i < members->given; i++)
        if (members->has_left[i] && members_are_at(members, i, path))
            number = i;
    return number;
}

static void drop(struct config *config, uint32_t index)
{
    free(config->data.directories[index]);
    config->data.directory_count--;
    for (uint32_t i = index; i < config->data.directory_count; i++)
        config->data.directories[i] = config->data.directories[i + 1];
}

/* True if the list says where the directory is. That of a copy does not: it tells of the original,
 * which is not to be touched. */
static bool is_in_place(const struct members *members, uint32_t number, const char *path)
{
    return number >= members->given || !members_have(members, number) ||
           identity_is_same_directory(members->paths[number], path);
}

/* True if the store was told to remove the directory, which the start goes on with. */
static bool is_to_leave(const struct config *config, const char *path)
{
    _cleanup_(freep) struct reshard_record *record = malloc(sizeof(*record));

    for (uint32_t i = 0; record && i < config->data.directory_count; i++)
        if (reshard_record_read(config->data.directories[i], record, NULL) == EMBTIER_OK &&
            record->shards > 0 && record->order == RESHARD_REMOVE &&
            strcmp(record->directory, path) == 0)
            return true;
    return false;
}

/* Not if another store, or none, is in its place: the start refuses, and tells what it lacks. */
static enum embtier_err add_missing(struct config *config, const struct members *members,
                                    uint32_t number, struct err_msg *msg)
{
    const char *const path = members->paths[number];
    const uint32_t count = config->data.directory_count;
    struct record record = { 0 };
    char **more;

    if (identity_record_read(path, &record, NULL) != EMBTIER_OK || record.state == STATE_ABSENT ||
        strcmp(record.uuid, members->uuid) != 0 || record.directory_index != number)
        return EMBTIER_OK;
    more = realloc(config->data.directories, (count + 1) * sizeof(*more));
    if (more)
        config->data.directories = more;
    if (!more || !(more[count] = strdup(path)))
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    config->data.directory_count++;
    if (is_to_leave(config, path))
        log_info("a data directory that is being removed is opened until its rows have moved; "
                 "data.directories rightly lacks it",
                 "directory=%s", LOG_QUOTED(path));
    else
        log_warn("data.directories lacks a data directory that was added to the store; it is "
                 "opened all the same. Add it to data.directories",
                 "directory=%s", LOG_QUOTED(path));
    return EMBTIER_OK;
}

/* True if the store's directory @number is at @path. */
static bool is_there(const struct members *members, uint32_t number, const char *path)
{
    struct record record = { 0 };

    return identity_record_read(path, &record, NULL) == EMBTIER_OK &&
           record.state != STATE_ABSENT && strcmp(record.uuid, members->uuid) == 0 &&
           record.directory_index == number;
}

static enum embtier_err refuse_present(const char *path, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_INVALID,
                   "--without-directory: %s is there: start without the option, and remove it with "
                   "`embtier data remove`",
                   path);
}

/* Takes the directory of --without-directory out of data.directories. One that has left already is
 * ignored: the option may have been left in a script. */
static enum embtier_err drop_dead(struct config *config, const struct members *members,
                                  struct err_msg *msg)
{
    const char *const path = config->data.without;
    const uint32_t number = members_number_at(members, path);

    if (number == MEMBERS_NONE)
        return err_set(msg, EMBTIER_NOT_FOUND,
                       "--without-directory: the store has no data directory at %s by its list "
                       "(" MEMBERS_FILE "): name it as `embtier data add` did",
                       path);
    if (!members_have(members, number))
        return EMBTIER_OK;
    if (number == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "--without-directory: %s is the store's first data directory, which has its "
                       "catalog and the records of its checkpoints",
                       path);
    if (is_there(members, number, members->paths[number]))
        return refuse_present(members->paths[number], msg);
    for (uint32_t i = 0; i < config->data.directory_count;) {
        if (is_there(members, number, config->data.directories[i]))
            return refuse_present(config->data.directories[i], msg);
        if (members_are_at(members, number, config->data.directories[i]) &&
            config->data.directory_count > 1)
            drop(config, i);
        else
            i++;
    }
    return EMBTIER_OK;
}

enum embtier_err store_settle_directories(struct config *config, struct err_msg *msg)
{
    _cleanup_(members_clear) struct members members = { 0 };
    bool is_named[CONFIG_DIRECTORIES_MAX] = { false }, is_true = true;

    /* Errors are the start's, which has the words for them. */
    if (members_find(config->data.directories, config->data.directory_count, &members, NULL) !=
        EMBTIER_OK)
        return EMBTIER_OK;
    if (config->data.without)
        TRY(drop_dead(config, &members, msg));
    if (members.generation == 0)
        return EMBTIER_OK;
    for (uint32_t i = 0; i < config->data.directory_count;) {
        const uint32_t number = number_of(&members, config->data.directories[i]);

        if (number < members.given && members.has_left[number] &&
            config->data.directory_count > 1) {
            log_warn("a data directory that was removed from the store is ignored; take it out of "
                     "data.directories",
                     "directory=%s", LOG_QUOTED(config->data.directories[i]));
            drop(config, i);
            continue;
        }
        is_true = is_true && is_in_place(&members, number, config->data.directories[i]);
        if (number < members.given)
            is_named[number] = true;
        i++;
    }
    for (uint32_t n = 0; is_true && n < members.given; n++)
        if (!is_named[n] && members_have(&members, n) &&
            config->data.directory_count < CONFIG_DIRECTORIES_MAX)
            TRY(add_missing(config, &members, n, msg));
    return EMBTIER_OK;
}
