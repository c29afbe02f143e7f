/* SPDX-License-Identifier: Apache-2.0 */
#include "store/database/database_seal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/files/durable_file.h"
#include "store/files/file_tree.h"

#define SEAL_SUFFIX ".seal"

/* The place of one database's seal. */
struct seal {
    char *folder;
    char *name;
    char *path;
};

static void seal_clear(struct seal *seal)
{
    free(seal->folder);
    free(seal->name);
    free(seal->path);
}

/* @path has a folder: store.c has joined it from one. */
static enum embtier_err seal_init(const char *path, struct seal *seal, struct err_msg *msg)
{
    const char *slash = strrchr(path, '/');

    seal->folder = strndup(path, (size_t)(slash - path));
    if (asprintf(&seal->name, "%s%s", slash + 1, SEAL_SUFFIX) < 0)
        seal->name = NULL;
    if (asprintf(&seal->path, "%s%s", path, SEAL_SUFFIX) < 0)
        seal->path = NULL;
    if (seal->folder && seal->name && seal->path)
        return EMBTIER_OK;
    err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    return EMBTIER_NO_MEMORY;
}

enum embtier_err database_manifest(const char *path, char **ret_name, struct err_msg *msg)
{
    _cleanup_(freep) char *text = NULL;
    const enum embtier_err err = durable_file_read(path, "CURRENT", &text, msg);

    if (err == EMBTIER_NOT_FOUND) {
        err_set(msg, EMBTIER_CORRUPT, "%s/CURRENT: missing", path);
        return EMBTIER_CORRUPT;
    }
    TRY(err);
    if (strncmp(text, "MANIFEST-", 9) != 0 || text[strlen(text) - 1] != '\n') {
        err_set(msg, EMBTIER_CORRUPT, "%s/CURRENT: damaged", path);
        return EMBTIER_CORRUPT;
    }
    text[strlen(text) - 1] = '\0';
    *ret_name = TAKE(text);
    return EMBTIER_OK;
}

static enum embtier_err file_bytes(const char *path, const char *name, uint64_t *ret_bytes,
                                   struct err_msg *msg)
{
    _cleanup_(freep) char *file = path_join(path, name);
    struct stat stat_buffer;

    if (!file)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    if (stat(file, &stat_buffer) != 0)
        return errno == ENOENT ? err_set(msg, EMBTIER_CORRUPT, "%s: missing", file)
                               : err_set_errno(msg, errno, "%s", file);
    *ret_bytes = (uint64_t)stat_buffer.st_size;
    return EMBTIER_OK;
}

/* Computes the checksum of the first @bytes of a file. */
static enum embtier_err sum_of(const char *path, const char *name, uint64_t bytes,
                               uint32_t *ret_sum, struct err_msg *msg)
{
    _cleanup_(freep) char *file = path_join(path, name);

    if (!file)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    return file_sum(file, bytes, ret_sum, NULL, NULL, NULL, msg);
}

static enum embtier_err seal_check(const char *path, const struct seal *seal, const char *text,
                                   struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *sealed_name = json_string_value(json_object_get(root, "manifest"));
    const json_t *sealed_bytes = json_object_get(root, "manifest_bytes");
    const json_t *sealed_sum = json_object_get(root, "manifest_sum");
    _cleanup_(freep) char *name = NULL;
    uint64_t bytes = 0;
    uint32_t sum = 0;

    if (!sealed_name || !json_is_integer(sealed_bytes) ||
        (sealed_sum && !json_is_integer(sealed_sum))) /* seals of earlier versions had none */
        return err_set(msg, EMBTIER_CORRUPT, "%s: damaged", seal->path);
    TRY(database_manifest(path, &name, msg));
    if (strcmp(name, sealed_name) != 0)
        return err_set(msg, EMBTIER_CORRUPT, "%s/CURRENT: names %s, but %s when it was closed",
                       path, name, sealed_name);
    TRY(file_bytes(path, name, &bytes, msg));
    if (bytes != (uint64_t)json_integer_value(sealed_bytes))
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s/%s: has %" PRIu64 " bytes, but %" PRIu64 " when it was closed", path,
                       name, bytes, (uint64_t)json_integer_value(sealed_bytes));
    TRY(sum_of(path, name, bytes, &sum, msg));
    if (sealed_sum && sum != (uint64_t)json_integer_value(sealed_sum))
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s/%s: damaged: its checksum is not what it was when it was closed", path,
                       name);
    return EMBTIER_OK;
}

static enum embtier_err seal_break(const char *path, const struct seal *seal, bool *ret_sealed,
                                   struct err_msg *msg)
{
    _cleanup_(freep) char *text = NULL;
    const enum embtier_err err = durable_file_read(seal->folder, seal->name, &text, msg);

    if (err == EMBTIER_NOT_FOUND) {
        *ret_sealed = false;
        return EMBTIER_OK;
    }
    TRY(err);
    TRY(seal_check(path, seal, text, msg));
    if (unlink(seal->path) != 0)
        return err_set_errno(msg, errno, "%s", seal->path);
    TRY(directory_sync(seal->folder, msg));
    *ret_sealed = true;
    return EMBTIER_OK;
}

enum embtier_err database_seal_break(const char *path, bool *ret_sealed, struct err_msg *msg)
{
    struct seal seal = { 0 };
    enum embtier_err err = seal_init(path, &seal, msg);

    if (err == EMBTIER_OK)
        err = seal_break(path, &seal, ret_sealed, msg);
    seal_clear(&seal);
    return err;
}

enum embtier_err database_is_sealed(const char *path, bool *ret_sealed, struct err_msg *msg)
{
    struct seal seal = { 0 };
    enum embtier_err err = seal_init(path, &seal, msg);

    if (err == EMBTIER_OK)
        err = path_is_there(seal.path, ret_sealed, msg);
    seal_clear(&seal);
    return err;
}

enum embtier_err database_seal_remove(const char *path, struct err_msg *msg)
{
    struct seal seal = { 0 };
    enum embtier_err err = seal_init(path, &seal, msg);

    if (err == EMBTIER_OK && unlink(seal.path) != 0 && errno != ENOENT)
        err = err_set_errno(msg, errno, "%s", seal.path);
    else if (err == EMBTIER_OK)
        err = directory_sync(seal.folder, msg);
    seal_clear(&seal);
    return err;
}

static enum embtier_err seal_write(const char *path, const struct seal *seal, struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = NULL;
    _cleanup_(freep) char *name = NULL;
    _cleanup_(freep) char *text = NULL;
    uint64_t bytes = 0;
    uint32_t sum = 0;

    TRY(database_manifest(path, &name, msg));
    TRY(file_bytes(path, name, &bytes, msg));
    TRY(sum_of(path, name, bytes, &sum, msg));
    root = json_pack("{s:s, s:I, s:I}", "manifest", name, "manifest_bytes", (json_int_t)bytes,
                     "manifest_sum", (json_int_t)sum);
    if (root)
        text = json_dumps(root, JSON_INDENT(2));
    if (!text)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", seal->path);
    return durable_file_write(seal->folder, seal->name, text, msg);
}

enum embtier_err database_seal_write(const char *path, struct err_msg *msg)
{
    struct seal seal = { 0 };
    enum embtier_err err = seal_init(path, &seal, msg);

    if (err == EMBTIER_OK)
        err = seal_write(path, &seal, msg);
    seal_clear(&seal);
    return err;
}
