/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store_identity.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log/log.h"
#include "base/yaml/yaml_doc.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/files/space.h"
#include "store/files/summed_json.h"
#include "store/members/identity_impl.h"

#define WAY_OUT                                                                                    \
    ": put the file back from a copy of this directory; it never changes once the store is made"

_Static_assert(MEMBERS_UUID_CHARS == STORE_UUID_CHARS, "both are the store's");

static const char identity_file_temporary[] = IDENTITY_FILE DURABLE_FILE_SUFFIX;

static void hex_write(const unsigned char *bytes, size_t count, char *ret_text)
{
    for (size_t i = 0; i < count; i++)
        snprintf(ret_text + 2 * i, 3, "%02x", bytes[i]);
}

static bool hex_read(const char *text, size_t count, unsigned char *ret_bytes)
{
    if (!text || strlen(text) != 2 * count || strspn(text, "0123456789abcdef") != 2 * count)
        return false;
    for (size_t i = 0; i < count; i++) {
        const char digits[3] = { text[2 * i], text[2 * i + 1], '\0' };

        ret_bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return true;
}

static bool u32_read(const json_t *root, const char *key, uint32_t *ret_value)
{
    const json_t *json = json_object_get(root, key);

    if (!json_is_integer(json) || json_integer_value(json) < 0 ||
        json_integer_value(json) > UINT32_MAX)
        return false;
    *ret_value = (uint32_t)json_integer_value(json);
    return true;
}

static bool record_parse(const json_t *root, struct record *ret_record)
{
    struct record record = { 0 };
    unsigned char uuid[STORE_UUID_CHARS / 2];
    const char *state = json_string_value(json_object_get(root, "state"));
    const char *uuid_text = json_string_value(json_object_get(root, "store_uuid"));

    if (!state || !hex_read(uuid_text, sizeof(uuid), uuid))
        return false;
    if (strcmp(state, "making") == 0)
        record.state = STATE_MAKING;
    else if (strcmp(state, "ready") == 0)
        record.state = STATE_READY;
    else
        return false;
    memcpy(record.uuid, uuid_text, STORE_UUID_CHARS);
    if (!u32_read(root, "directory_index", &record.directory_index) ||
        !u32_read(root, "directory_count", &record.directory_count) ||
        !u32_read(root, "shards_per_directory", &record.shards_per_directory) ||
        !hex_read(json_string_value(json_object_get(root, "hash_key")), ROW_HASH_KEY_BYTES,
                  record.hash_key) ||
        record.directory_index >= record.directory_count ||
        record.directory_count > CONFIG_DIRECTORIES_MAX || record.shards_per_directory == 0)
        return false;
    *ret_record = record;
    return true;
}

enum embtier_err store_other_format(const char *file, uint32_t version, uint32_t own_version,
                                    struct err_msg *msg)
{
    return err_set(msg, EMBTIER_VERSION, "%s: format version %u, this program reads %u: %s", file,
                   version, own_version,
                   version > own_version
                       ? "a newer embtierd made it: start that one"
                       : "an older one made it, and it cannot be converted: export its tables "
                         "with that one, and import them into a new store");
}

enum embtier_err identity_record_read(const char *path, struct record *ret_record,
                                      struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = NULL;
    _cleanup_(freep) char *file = path_join(path, IDENTITY_FILE);
    _cleanup_(freep) char *text = NULL;
    json_error_t error;
    uint32_t version = 0;
    enum embtier_err err;

    if (!file)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    err = durable_file_read(path, IDENTITY_FILE, &text, msg);

    if (err == EMBTIER_NOT_FOUND) {
        *ret_record = (struct record){ .state = STATE_ABSENT };
        return EMBTIER_OK;
    }
    TRY(err);
    root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return err_set(msg, EMBTIER_CORRUPT, "%s:%d: damaged" WAY_OUT, file, error.line);
    /* The checksum comes first: a turned bit must not pass for another format. */
    err = summed_json_check(file, text, false, msg);
    if (err == EMBTIER_OK && u32_read(root, "format_version", &version) &&
        version != STORE_FORMAT_VERSION)
        return store_other_format(file, version, STORE_FORMAT_VERSION, msg);
    if (err == EMBTIER_OK)
        err = summed_json_check(file, text, true, msg);
    if (err == EMBTIER_CORRUPT)
        err_append(msg, WAY_OUT);
    TRY(err);
    if (!record_parse(root, ret_record))
        return err_set(msg, EMBTIER_CORRUPT, "%s: damaged" WAY_OUT, file);
    return EMBTIER_OK;
}

enum embtier_err identity_record_write(const char *path, const struct record *record,
                                       struct err_msg *msg)
{
    char hash_key[2 * ROW_HASH_KEY_BYTES + 1];
    _cleanup_(json_decrefp) json_t *root = NULL;

    hex_write(record->hash_key, ROW_HASH_KEY_BYTES, hash_key);
    root = json_pack("{s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:s}", SUMMED_JSON_KEY, SUMMED_JSON_NONE,
                     "format_version", STORE_FORMAT_VERSION, "state",
                     record->state == STATE_READY ? "ready" : "making", "store_uuid", record->uuid,
                     "directory_index", (json_int_t)record->directory_index, "directory_count",
                     (json_int_t)record->directory_count, "shards_per_directory",
                     (json_int_t)record->shards_per_directory, "hash_key", hash_key);
    return summed_json_write(path, IDENTITY_FILE, root, msg);
}

bool store_identity_is_ready(const char *directory)
{
    struct record record;

    return identity_record_read(directory, &record, NULL) == EMBTIER_OK &&
           record.state == STATE_READY;
}

bool store_identity_is_in_use(const char *directory)
{
    _cleanup_(freep) char *path = path_join(directory, LOCK_FILE);
    _cleanup_(closep) int fd =
        path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) : -1;

    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

/* Refuses a directory with any entry that a new store would not find there. A mistyped path must
 * not strew our files among others. */
enum embtier_err identity_directory_check_empty(const char *path, struct err_msg *msg)
{
    static const char *const ours[] = { "lost+found", LOCK_FILE, identity_file_temporary };
    enum embtier_err err = EMBTIER_OK;
    const struct dirent *entry;
    DIR *dir;

    assert(path);
    dir = opendir(path);
    if (!dir)
        return err_set_errno(msg, errno, "%s", path);
    while (err == EMBTIER_OK && (entry = folder_next(dir, path, &err, msg))) {
        bool known = false;

        for (size_t i = 0; i < ARRAY_LEN(ours); i++)
            known = known || strcmp(entry->d_name, ours[i]) == 0;
        if (!known)
            err = err_set(msg, EMBTIER_MISMATCH,
                          "%s: not a data directory (no %s) and not empty (%s): name another "
                          "directory; of a store put the file back from a copy, or make a new "
                          "store of a checkpoint with --init --restore-from",
                          path, IDENTITY_FILE, entry->d_name);
    }
    closedir(dir);
    return err;
}

enum embtier_err identity_directory_lock(struct directory *directory, bool is_other,
                                         struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(directory->path, LOCK_FILE);
    char pid[24] = { 0 };
    int fd, len;

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory->path);
    TRY(path_is_plain(path, msg));
    fd = is_other ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)
                  : open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600);
    if (fd < 0 && is_other && errno == ENOENT)
        return EMBTIER_OK;
    if (fd < 0)
        return err_set_errno(msg, errno, "%s", path);
    directory->lock_fd = fd;
    if (flock(fd, (is_other ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK)
            return err_set_errno(msg, errno, "%s", path);
        len = (int)pread(fd, pid, sizeof(pid) - 1, 0);
        pid[len > 0 ? strcspn(pid, "\n") : 0] = '\0';
        if (strtol(pid, NULL, 10) == (long)getpid())
            return err_set(msg, EMBTIER_LOCKED, "%s: is one of this server's own data directories",
                           directory->path);
        return err_set(msg, EMBTIER_LOCKED,
                       "%s: in use by process %s: another server has this data directory open; "
                       "stop it first, or name other directories",
                       path, pid[0] ? pid : "(unknown)");
    }
    if (is_other)
        return EMBTIER_OK;
    /* Written in place, so that a full disk prevents no start: the process id is for messages
     * only. */
    len = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (pwrite(fd, pid, (size_t)len, 0) != len || ftruncate(fd, len) != 0)
        return err_from_errno(errno) == EMBTIER_NO_SPACE ? EMBTIER_OK
                                                         : err_set_errno(msg, errno, "%s", path);
    return EMBTIER_OK;
}

static enum embtier_err directory_open(struct directory *directory, bool is_other,
                                       struct err_msg *msg)
{
    struct record record = { 0 };

    TRY(identity_record_read(directory->path, &record, msg));
    if (record.state == STATE_ABSENT)
        TRY(identity_directory_check_empty(directory->path, msg));
    TRY(identity_directory_lock(directory, is_other, msg));
    /* Again, now that no other server can change it. */
    return identity_record_read(directory->path, &directory->record, msg);
}

/* Without this check, a directory named twice would be refused as locked by ourselves. */
static enum embtier_err directories_check_distinct(const struct store_identity *identity,
                                                   struct err_msg *msg)
{
    struct stat stats[CONFIG_DIRECTORIES_MAX];

    for (uint32_t i = 0; i < identity->directory_count; i++) {
        const char *path = identity->directories[i].path;

        assert(path);
        if (stat(path, &stats[i]) != 0 && errno == ENOENT)
            return err_set(msg, EMBTIER_NOT_FOUND,
                           "%s: No such file or directory: is a disk not mounted? If the data "
                           "directory is to be a new one, make it first (mkdir)",
                           path);
        if (stat(path, &stats[i]) != 0)
            return err_set_errno(msg, errno, "data directory %s", path);
        for (uint32_t j = 0; j < i; j++)
            if (stats[i].st_dev == stats[j].st_dev && stats[i].st_ino == stats[j].st_ino)
                return err_set(msg, EMBTIER_CONFIG, "data.directories: %s and %s are the same",
                               identity->directories[j].path, path);
    }
    return EMBTIER_OK;
}

bool identity_is_same_directory(const char *path, const char *other)
{
    struct stat mine, others;

    return stat(path, &mine) == 0 && stat(other, &others) == 0 && mine.st_dev == others.st_dev &&
           mine.st_ino == others.st_ino;
}

static enum embtier_err record_check(const struct directory *directory,
                                     const struct directory *first, const struct config *config,
                                     bool has_list, struct err_msg *msg)
{
    const struct record *record = &directory->record;

    if (strcmp(record->uuid, first->record.uuid) != 0)
        return err_set(msg, EMBTIER_MISMATCH, "%s/%s: belongs to store %s, but %s to store %s",
                       directory->path, IDENTITY_FILE, record->uuid, first->path,
                       first->record.uuid);
    if (!has_list && record->directory_count != config->data.directory_count) {
        (void)yaml_doc_mistake(
            config->doc, "data.directories", msg,
            "%u %s named, but the store of %s has %u; allowed: all of them and no others",
            config->data.directory_count, config->data.directory_count == 1 ? "is" : "are",
            directory->path, record->directory_count);
        return EMBTIER_MISMATCH;
    }
    if (record->shards_per_directory != config->data.shards_per_directory) {
        (void)yaml_doc_mistake(
            config->doc, "data.shards_per_directory", msg,
            "%u, but the store of %s was made with %u; allowed: %u, which cannot change",
            config->data.shards_per_directory, directory->path, record->shards_per_directory,
            record->shards_per_directory);
        return EMBTIER_MISMATCH;
    }
    if (memcmp(record->hash_key, first->record.hash_key, ROW_HASH_KEY_BYTES) != 0)
        return err_set(msg, EMBTIER_CORRUPT, "%s/%s: hash_key differs from that of %s",
                       directory->path, IDENTITY_FILE, first->path);
    return EMBTIER_OK;
}

/* The caller has checked that the directory is missing (store_settle_directories()). */
static uint32_t left_out_of(const struct store_identity *identity, const struct config *config)
{
    const uint32_t number = config->data.without && identity->members.generation > 0
                                ? members_number_at(&identity->members, config->data.without)
                                : MEMBERS_NONE;

    return number > 0 && members_have(&identity->members, number) ? number : MEMBERS_NONE;
}

/* Checks that the directories are those of the list, which is there. Directories without a store
 * are refused elsewhere. */
static enum embtier_err members_check(const struct store_identity *identity,
                                      const struct config *config, struct err_msg *msg)
{
    bool is_named[CONFIG_DIRECTORIES_MAX] = { false };
    const uint32_t left_out = left_out_of(identity, config);

    for (uint32_t i = 0; i < identity->directory_count; i++) {
        const struct directory *const directory = &identity->directories[i];

        if (directory->record.state == STATE_ABSENT)
            return EMBTIER_OK;
        if (!members_have(&identity->members, directory->record.directory_index))
            return err_set(msg, EMBTIER_MISMATCH,
                           "%s: is no data directory of this store any more: remove it from "
                           "data.directories",
                           directory->path);
        is_named[directory->record.directory_index] = true;
    }
    for (uint32_t i = 0; i < identity->members.given; i++) {
        if (is_named[i] || i == left_out || !members_have(&identity->members, i))
            continue;
        (void)yaml_doc_mistake(
            config->doc, "data.directories", msg,
            "directory %u of the store is missing, which was %s: is a disk not "
            "mounted? If the store was copied or moved, name it where it is "
            "now. If its drive died before it got rows, start embtierd once with "
            "--without-directory (embtierd(8))",
            i, identity->members.paths[i]);
        return EMBTIER_MISMATCH;
    }
    return EMBTIER_OK;
}

/* Finds the values that the directories agree on; @ret_first is NULL if all of them are new. */
static enum embtier_err directories_check(const struct store_identity *identity,
                                          const struct config *config,
                                          const struct directory **ret_first, struct err_msg *msg)
{
    const struct directory *first = NULL, *fresh = NULL, *ready = NULL;

    for (uint32_t i = 0; i < identity->directory_count; i++) {
        const struct directory *directory = &identity->directories[i];

        if (directory->record.state == STATE_ABSENT) {
            fresh = directory;
            continue;
        }
        first = first ? first : directory;
        if (directory->record.state == STATE_READY)
            ready = directory;
        TRY(record_check(directory, first, config,
                         identity->members.generation > 0 || identity->is_other, msg));
        for (uint32_t j = 0; j < i; j++)
            if (identity->directories[j].record.state != STATE_ABSENT &&
                identity->directories[j].record.directory_index ==
                    directory->record.directory_index)
                return err_set(msg, EMBTIER_MISMATCH, "%s and %s are both directory %u of a store",
                               identity->directories[j].path, directory->path,
                               directory->record.directory_index);
    }
    /* The record of a checkpoint says which of another store's it needs. */
    if (identity->members.generation > 0 && !identity->is_other)
        TRY(members_check(identity, config, msg));
    if (fresh && ready)
        return err_set(msg, EMBTIER_MISMATCH,
                       "%s: no %s, but %s belongs to a store: is a disk not mounted?", fresh->path,
                       IDENTITY_FILE, ready->path);
    *ret_first = first;
    return EMBTIER_OK;
}

/* A disk that is not mounted leaves an empty directory, and no new store belongs there. */
static enum embtier_err directories_check_made(const struct store_identity *identity,
                                               const struct config *config, struct err_msg *msg)
{
    for (uint32_t i = 0; config->data.must_exist && i < identity->directory_count; i++)
        if (identity->directories[i].record.state == STATE_ABSENT)
            return err_set(msg, EMBTIER_NOT_FOUND,
                           "%s: there is no store (no %s): is a disk not mounted? To make a new "
                           "store in the configured directories, start embtierd once with --init",
                           identity->directories[i].path, IDENTITY_FILE);
    return EMBTIER_OK;
}

/* Checks the files that are written in place. */
static enum embtier_err directory_check_files(const char *directory, struct err_msg *msg)
{
    static const char *const names[] = { LOCK_FILE, SPACE_RESERVE_FILE };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        _cleanup_(freep) char *path = path_join(directory, names[i]);

        if (!path)
            return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
        TRY(path_is_plain(path, msg));
    }
    return EMBTIER_OK;
}

/* Reads and checks the directories before anything in them changes. */
static enum embtier_err directories_look(struct store_identity *identity,
                                         const struct config *config, struct err_msg *msg)
{
    const struct directory *first = NULL;

    for (uint32_t i = 0; i < identity->directory_count; i++) {
        struct directory *const directory = &identity->directories[i];

        TRY(identity_record_read(directory->path, &directory->record, msg));
        if (directory->record.state == STATE_ABSENT)
            TRY(identity_directory_check_empty(directory->path, msg));
        TRY(directory_check_files(directory->path, msg));
    }
    TRY(members_find(config->data.directories, config->data.directory_count, &identity->members,
                     msg));
    TRY(directories_check(identity, config, &first, msg));
    return directories_check_made(identity, config, msg);
}

static enum embtier_err random_bytes(void *bytes, size_t count, struct err_msg *msg)
{
    /* Up to 256 bytes come whole, or not at all. */
    if (getrandom(bytes, count, 0) != (ssize_t)count)
        return err_set_errno(msg, errno, "cannot get random bytes from the system (getrandom)");
    return EMBTIER_OK;
}

/* Writes embtier.json where there is none, with the places that are left. */
static enum embtier_err directories_make(struct store_identity *identity,
                                         const struct config *config, const struct directory *first,
                                         struct err_msg *msg)
{
    struct record record = { .state = STATE_MAKING,
                             .directory_count = config->data.directory_count,
                             .shards_per_directory = config->data.shards_per_directory };
    bool taken[CONFIG_DIRECTORIES_MAX] = { false };
    unsigned char uuid[STORE_UUID_CHARS / 2];

    if (first) {
        record = first->record;
        record.state = STATE_MAKING;
    } else {
        TRY(random_bytes(uuid, sizeof(uuid), msg));
        hex_write(uuid, sizeof(uuid), record.uuid);
        TRY(random_bytes(record.hash_key, sizeof(record.hash_key), msg));
    }
    for (uint32_t i = 0; i < identity->directory_count; i++)
        if (identity->directories[i].record.state != STATE_ABSENT)
            taken[identity->directories[i].record.directory_index] = true;
    record.directory_index = 0;
    for (uint32_t i = 0; i < identity->directory_count; i++) {
        struct directory *directory = &identity->directories[i];

        if (directory->record.state != STATE_ABSENT)
            continue;
        while (taken[record.directory_index])
            record.directory_index++;
        taken[record.directory_index] = true;
        TRY(identity_record_write(directory->path, &record, msg));
        directory->record = record;
    }
    return EMBTIER_OK;
}

/* Puts each directory into the place of its number. All have one, unless the store is yet to be
 * made. Numbers of directories that have left stay empty. */
static void directories_place(struct store_identity *identity)
{
    struct directory found[CONFIG_DIRECTORIES_MAX];
    const uint32_t count = identity->directory_count;
    uint32_t given = 0;

    for (uint32_t i = 0; i < count; i++)
        if (identity->directories[i].record.state == STATE_ABSENT)
            return;
    memcpy(found, identity->directories, count * sizeof(*found));
    memset(identity->directories, 0, CONFIG_DIRECTORIES_MAX * sizeof(*identity->directories));
    for (uint32_t i = 0; i < CONFIG_DIRECTORIES_MAX; i++)
        identity->directories[i].lock_fd = -1;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t number = found[i].record.directory_index;

        memcpy(&identity->directories[number], &found[i], sizeof(found[i]));
        given = MAX(given, number + 1);
    }
    identity->directory_count = MAX(given, identity->members.given);
}

/* Replaces copies of the list that are older, damaged or missing. */
static enum embtier_err members_mend(const struct store_identity *identity, struct err_msg *msg)
{
    for (uint32_t i = 0; i < identity->directory_count; i++) {
        _cleanup_(members_clear) struct members copy = { 0 };

        if (!store_identity_has(identity, i) ||
            (members_read(identity->directories[i].path, &copy, NULL) == EMBTIER_OK &&
             copy.generation == identity->members.generation))
            continue;
        TRY(members_write(identity->directories[i].path, &identity->members, msg));
        log_warn("a copy of the list of data directories was damaged, missing or older: it has "
                 "been replaced",
                 "directory=%s generation=%" PRIu64, LOG_QUOTED(identity->directories[i].path),
                 identity->members.generation);
    }
    return EMBTIER_OK;
}

/* Makes an identity for the directories of @config; none of them has been looked at. */
static enum embtier_err identity_new(const struct config *config,
                                     struct store_identity **ret_identity, struct err_msg *msg)
{
    _cleanup_(store_identity_freep) struct store_identity *identity = calloc(1, sizeof(*identity));
    const uint32_t count = config->data.directory_count;

    if (count == 0 || count > CONFIG_DIRECTORIES_MAX || config->data.shards_per_directory == 0 ||
        config->data.shards_per_directory > CONFIG_SHARDS_MAX / count)
        return err_set(msg, EMBTIER_CONFIG,
                       "data: %u directories of %u shards, allowed: 1 to %d directories, %d shards "
                       "in all",
                       count, config->data.shards_per_directory, CONFIG_DIRECTORIES_MAX,
                       CONFIG_SHARDS_MAX);
    if (!identity ||
        !(identity->directories = calloc(CONFIG_DIRECTORIES_MAX, sizeof(*identity->directories))))
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    identity->left_out = MEMBERS_NONE;
    for (; identity->directory_count < count; identity->directory_count++) {
        struct directory *directory = &identity->directories[identity->directory_count];

        directory->lock_fd = -1;
        directory->path = strdup(config->data.directories[identity->directory_count]);
        if (!directory->path)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    }
    TRY(directories_check_distinct(identity, msg));
    *ret_identity = TAKE(identity);
    return EMBTIER_OK;
}

static enum embtier_err identity_open(const struct config *config, bool is_other,
                                      struct store_identity **ret_identity, struct err_msg *msg)
{
    _cleanup_(store_identity_freep) struct store_identity *identity = NULL;
    const struct directory *first = NULL;

    TRY(identity_new(config, &identity, msg));
    identity->is_other = is_other;
    TRY(directories_look(identity, config, msg));
    for (uint32_t i = 0; i < identity->directory_count; i++)
        TRY(directory_open(&identity->directories[i], is_other, msg));
    /* Again, now that no other server can change it. */
    members_clear(&identity->members);
    TRY(members_find(config->data.directories, config->data.directory_count, &identity->members,
                     msg));
    TRY(directories_check(identity, config, &first, msg));
    TRY(directories_make(identity, config, first, msg));
    directories_place(identity);
    identity->left_out = left_out_of(identity, config);
    if (identity->members.generation > 0 && !is_other)
        TRY(members_mend(identity, msg));
    *ret_identity = TAKE(identity);
    return EMBTIER_OK;
}

enum embtier_err store_identity_look(const struct config *config,
                                     struct store_identity **ret_identity, struct err_msg *msg)
{
    _cleanup_(store_identity_freep) struct store_identity *identity = NULL;

    TRY(identity_new(config, &identity, msg));
    TRY(directories_look(identity, config, msg));
    directories_place(identity);
    identity->left_out = left_out_of(identity, config);
    *ret_identity = TAKE(identity);
    return EMBTIER_OK;
}

enum embtier_err store_identity_open(const struct config *config,
                                     struct store_identity **ret_identity, struct err_msg *msg)
{
    return identity_open(config, false, ret_identity, msg);
}

/* Checks the directories of the option, so that its faults are not reported as those of a
 * configuration. */
static enum embtier_err others_check(char *const *directories, uint32_t count,
                                     uint32_t *ret_shards_per_directory, struct err_msg *msg)
{
    struct record first = { 0 };
    bool has_first = false;

    for (uint32_t i = 0; i < count; i++) {
        struct record record = { 0 };

        TRY(identity_record_read(directories[i], &record, msg));
        if (record.state != STATE_READY)
            return err_set(msg, EMBTIER_NOT_FOUND, "%s: no data directory of a store (no %s)",
                           directories[i], IDENTITY_FILE);
        if (i == 0)
            first = record;
        for (uint32_t j = 0; j < i; j++)
            if (identity_is_same_directory(directories[i], directories[j]))
                return err_set(msg, EMBTIER_INVALID,
                               "--restore-from: %s and %s are the same directory", directories[j],
                               directories[i]);
        if (strcmp(record.uuid, first.uuid) != 0)
            return err_set(msg, EMBTIER_MISMATCH,
                           "--restore-from: %s and %s belong to different stores", directories[0],
                           directories[i]);
        has_first = has_first || record.directory_index == 0;
    }
    if (!has_first)
        return err_set(msg, EMBTIER_MISMATCH,
                       "--restore-from: the first data directory of the store of %s is not named, "
                       "which lists the files of checkpoints: name it too",
                       directories[0]);
    *ret_shards_per_directory = first.shards_per_directory;
    return EMBTIER_OK;
}

enum embtier_err store_identity_open_other(char *const *directories, uint32_t count,
                                           struct store_identity **ret_identity,
                                           uint32_t *ret_shards_per_directory, struct err_msg *msg)
{
    struct config config = { .data.directories = (char **)directories,
                             .data.directory_count = count };

    TRY(others_check(directories, count, &config.data.shards_per_directory, msg));
    TRY(identity_open(&config, true, ret_identity, msg));
    *ret_shards_per_directory = config.data.shards_per_directory;
    return EMBTIER_OK;
}

void store_identity_free(struct store_identity *identity)
{
    if (!identity)
        return;
    for (uint32_t i = 0; identity->directories && i < identity->directory_count; i++) {
        closep(&identity->directories[i].lock_fd);
        free(identity->directories[i].path);
    }
    if (identity->joining.path)
        closep(&identity->joining.lock_fd);
    free(identity->joining.path);
    free(identity->directories);
    members_clear(&identity->members);
    free(identity);
}

/* True only while no directory is "ready": the first of these files is written after the last
 * shard. */
bool store_identity_is_making(const struct store_identity *identity)
{
    for (uint32_t i = 0; i < identity->directory_count; i++)
        if (identity->directories[i].record.state == STATE_READY)
            return false;
    return true;
}

enum embtier_err store_identity_commit(struct store_identity *identity, struct err_msg *msg)
{
    for (uint32_t i = 0; i < identity->directory_count; i++) {
        struct directory *directory = &identity->directories[i];

        if (!directory->path || directory->record.state == STATE_READY)
            continue;
        directory->record.state = STATE_READY;
        TRY(identity_record_write(directory->path, &directory->record, msg));
    }
    return EMBTIER_OK;
}

uint32_t store_identity_directory_count(const struct store_identity *identity)
{
    return atomic_load_explicit(&identity->directory_count, memory_order_acquire);
}

bool store_identity_has(const struct store_identity *identity, uint32_t number)
{
    return number < store_identity_directory_count(identity) &&
           identity->directories[number].path &&
           !atomic_load(&identity->directories[number].has_left);
}

uint32_t store_identity_left_out(const struct store_identity *identity)
{
    return identity->left_out;
}

bool store_identity_is_other(const struct store_identity *identity)
{
    return identity->is_other;
}

uint32_t store_identity_made_count(const struct store_identity *identity)
{
    return identity->directories[0].record.state == STATE_ABSENT
               ? identity->directory_count
               : identity->directories[0].record.directory_count;
}

const char *store_identity_directory(const struct store_identity *identity, uint32_t index)
{
    return identity->directories[index].path;
}

const char *store_identity_uuid(const struct store_identity *identity)
{
    return identity->directories[0].record.uuid;
}

const unsigned char *store_identity_hash_key(const struct store_identity *identity)
{
    return identity->directories[0].record.hash_key;
}
