/* SPDX-License-Identifier: Apache-2.0 */
#include "client/files/export_manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/paths.h"
#include "base/spec/table_spec_json.h"
#include "base/text/text_escape.h"
#include "client/files/json_size.h"
#include "client/files/tensor_io.h"
#include "client/files/tensor_place.h"

#define FORMAT_NAME    "embtier table"
#define FORMAT_VERSION 1
#define SUM_CHARS      16

/* Limits of a manifest that is read. A part has 19 commas and colons and, with the longest names,
 * some 780 bytes. The table's description needs a small part of the rest. */
#define SEPARATORS_MAX (20 * EXPORT_PARTS_MAX + 1000)
#define BYTES_MAX      (800 * EXPORT_PARTS_MAX + 64 * KIB)
/* {parts [{tensors {name {file}}}]}, and some for the additions of a newer version. */
#define DEPTH_MAX 8

static const char *const format_words[] = {
    [TENSOR_SAFETENSORS] = "safetensors",
    [TENSOR_NPY] = "npy",
};

const char *export_column_name(enum export_column column)
{
    static const char *const names[] = {
#define X(id, name) [EXPORT_##id] = name,
        EXPORT_COLUMN_TABLE(X)
#undef X
    };

    return names[column];
}

static void clear_parts(struct export_part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (int c = 0; c < EXPORT_COLUMNS; c++)
            free(parts[i].files[c]);
    free(parts);
}

void export_manifest_clear(struct export_manifest *manifest)
{
    clear_parts(manifest->parts, manifest->part_count);
    manifest->parts = NULL;
    manifest->part_room = 0;
    manifest->part_count = 0;
}

bool export_manifest_has(const struct export_manifest *manifest, enum export_column column)
{
    switch (column) {
    case EXPORT_STATE:
        return manifest->with_state && table_spec_state_bytes(&manifest->spec) > 0;
    case EXPORT_IDS:
        return !manifest->all_rows;
    default:
        return true;
    }
}

static enum embtier_err no_memory(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

/* Makes room for one part more. An export may have many, so the room doubles. */
static enum embtier_err make_room(struct export_manifest *manifest, struct err_msg *msg)
{
    const uint32_t room = MAX(2 * manifest->part_count, 8u);
    struct export_part *parts;

    if (manifest->part_count < manifest->part_room)
        return EMBTIER_OK;
    parts = reallocarray(manifest->parts, room, sizeof(*parts));
    if (!parts)
        return no_memory(msg);
    manifest->parts = parts;
    manifest->part_room = room;
    return EMBTIER_OK;
}

enum embtier_err export_manifest_add(struct export_manifest *manifest,
                                     const struct tensor_written *written, struct err_msg *msg)
{
    struct export_part *part;
    uint32_t tensor = 0;

    TRY(make_room(manifest, msg));
    part = &manifest->parts[manifest->part_count++];
    *part = (struct export_part){ .first_id = manifest->rows, .rows = written->rows };
    for (int c = 0; c < EXPORT_COLUMNS; c++) {
        if (!export_manifest_has(manifest, (enum export_column)c))
            continue;
        part->sums[c] = written->sums[tensor];
        part->files[c] = strdup(written->files[written->file_count > 1 ? tensor : 0].name);
        if (!part->files[c])
            return no_memory(msg);
        tensor++;
    }
    manifest->rows += written->rows;
    return EMBTIER_OK;
}

/* ---- Writing ---- */

static json_t *tensor_to_json(const char *file, uint64_t sum)
{
    char text[SUM_CHARS + 1];

    snprintf(text, sizeof(text), "%016" PRIx64, sum);
    return json_pack("{s:s, s:s}", "file", file, "xxh3", text);
}

static json_t *part_to_json(const struct export_manifest *manifest, const struct export_part *part)
{
    json_t *const tensors = json_object();
    bool complete = tensors != NULL;

    for (int c = 0; complete && c < EXPORT_COLUMNS; c++)
        if (export_manifest_has(manifest, (enum export_column)c))
            complete = json_object_set_new(tensors, export_column_name((enum export_column)c),
                                           tensor_to_json(part->files[c], part->sums[c])) == 0;
    if (!complete) {
        json_decref(tensors);
        return NULL;
    }
    return json_pack("{s:o, s:o, s:o}", "first_id",
                     manifest->all_rows ? json_from_u64(part->first_id) : json_null(), "rows",
                     json_from_u64(part->rows), "tensors", tensors);
}

static char *manifest_text(const struct export_manifest *manifest)
{
    _cleanup_(json_decrefp) json_t *root = NULL;
    json_t *const parts = json_array();
    bool complete = parts != NULL;

    for (uint32_t i = 0; complete && i < manifest->part_count; i++)
        complete = json_array_append_new(parts, part_to_json(manifest, &manifest->parts[i])) == 0;
    root = json_pack("{s:s, s:i, s:i, s:o, s:o, s:o, s:s, s:b, s:s, s:o, s:o}", "format",
                     FORMAT_NAME, "format_version", FORMAT_VERSION, "table_version",
                     TABLE_SPEC_JSON_VERSION, "table", table_spec_to_json(&manifest->spec),
                     "checkpoint", json_from_u64(manifest->checkpoint), "step",
                     manifest->has_step ? json_from_u64(manifest->step) : json_null(), "files",
                     format_words[manifest->format], "with_state", (int)manifest->with_state,
                     "which_rows", manifest->all_rows ? "all" : "written", "rows",
                     json_from_u64(manifest->rows), "parts", parts);
    return complete && root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
}

enum embtier_err export_manifest_write(const struct export_manifest *manifest, int folder,
                                       struct err_msg *msg)
{
    _cleanup_(freep) char *text = manifest_text(manifest);
    _cleanup_(closep) int fd = -1;

    if (!text)
        return no_memory(msg);
    fd = openat(folder, EXPORT_MANIFEST_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_set_errno(msg, errno, "%s", EXPORT_MANIFEST_FILE);
    TRY(tensor_io_write(fd, EXPORT_MANIFEST_FILE, 0, text, strlen(text), msg));
    TRY(tensor_io_sync(fd, EXPORT_MANIFEST_FILE, msg));
    return tensor_io_sync(folder, "the folder", msg);
}

/* ---- Reading ---- */

static enum embtier_err damaged(const char *path, const char *what, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_CORRUPT, "%s: %s is missing or wrong", path, what);
}

static bool read_sum(const char *text, uint64_t *ret_sum)
{
    char *end;

    if (!text || strlen(text) != SUM_CHARS || strspn(text, "0123456789abcdef") != SUM_CHARS)
        return false;
    *ret_sum = strtoull(text, &end, 16);
    return *end == '\0';
}

static enum embtier_err part_from_json(const char *path, const json_t *json,
                                       const struct export_manifest *manifest,
                                       struct export_part *part, struct err_msg *msg)
{
    const json_t *const tensors = json_object_get(json, "tensors");

    if (!json_to_u64(json_object_get(json, "rows"), &part->rows) ||
        (manifest->all_rows && !json_to_u64(json_object_get(json, "first_id"), &part->first_id)))
        return damaged(path, "a part's number of rows or first id", msg);
    for (int c = 0; c < EXPORT_COLUMNS; c++) {
        const char *const name = export_column_name((enum export_column)c);
        const json_t *const tensor = json_object_get(tensors, name);
        const char *const file = json_string_value(json_object_get(tensor, "file"));

        if (!export_manifest_has(manifest, (enum export_column)c))
            continue;
        if (!tensor_file_name_is_plain(file) ||
            !read_sum(json_string_value(json_object_get(tensor, "xxh3")), &part->sums[c]))
            return damaged(path, name, msg);
        part->files[c] = strdup(file);
        if (!part->files[c])
            return no_memory(msg);
    }
    return EMBTIER_OK;
}

/* In an export of all rows, ids are consecutive from 0 to the last. For other exports only the
 * number of rows can be checked. */
static enum embtier_err check_rows(const char *path, const struct export_manifest *manifest,
                                   struct err_msg *msg)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < manifest->part_count; i++) {
        const struct export_part *const part = &manifest->parts[i];

        if ((manifest->all_rows && part->first_id != rows) || part->rows > UINT64_MAX - rows)
            return damaged(path, "a part's first id", msg);
        rows += part->rows;
    }
    if (rows != manifest->rows || (manifest->all_rows && rows != manifest->spec.rows))
        return damaged(path, "the number of rows", msg);
    return EMBTIER_OK;
}

static enum embtier_err parts_from_json(const char *path, const json_t *list,
                                        struct export_manifest *manifest, struct err_msg *msg)
{
    const size_t count = json_array_size(list);

    if (!json_is_array(list))
        return damaged(path, "the list of parts", msg);
    if (count > EXPORT_PARTS_MAX)
        return err_set(msg, EMBTIER_CORRUPT, "%s: has %zu parts, an export has at most %d", path,
                       count, EXPORT_PARTS_MAX);
    manifest->parts = calloc(count + 1, sizeof(*manifest->parts));
    if (!manifest->parts)
        return no_memory(msg);
    while (manifest->part_count < count) {
        struct export_part *const part = &manifest->parts[manifest->part_count];

        TRY(part_from_json(path, json_array_get(list, manifest->part_count++), manifest, part,
                           msg));
    }
    return check_rows(path, manifest, msg);
}

static enum embtier_err table_from_json(const char *path, const json_t *root,
                                        struct export_manifest *manifest, struct err_msg *msg)
{
    struct err_msg why = { { 0 } };
    uint32_t version;

    if (!json_to_u32(json_object_get(root, "table_version"), &version))
        return damaged(path, "the version of the table", msg);
    if (version > TABLE_SPEC_JSON_VERSION)
        return err_set(msg, EMBTIER_VERSION,
                       "%s: its table has format version %u, this program reads up to %d: import "
                       "it with a newer embtier",
                       path, version, TABLE_SPEC_JSON_VERSION);
    if (!table_spec_from_json(json_object_get(root, "table"), version, &manifest->spec))
        return damaged(path, "the table", msg);
    if (table_spec_check(&manifest->spec, &why) != EMBTIER_OK)
        return err_set(msg, EMBTIER_CORRUPT, "%s: %s", path, why.text);
    return EMBTIER_OK;
}

static bool read_words(const json_t *root, struct export_manifest *manifest)
{
    const char *const files = json_string_value(json_object_get(root, "files"));
    const char *const which = json_string_value(json_object_get(root, "which_rows"));
    const json_t *const with_state = json_object_get(root, "with_state");
    const json_t *const step = json_object_get(root, "step");

    if (!files || !which || !json_is_boolean(with_state))
        return false;
    manifest->format = strcmp(files, "npy") == 0 ? TENSOR_NPY : TENSOR_SAFETENSORS;
    manifest->all_rows = strcmp(which, "all") == 0;
    manifest->with_state = json_is_true(with_state);
    manifest->has_step = json_to_u64(step, &manifest->step);
    return (manifest->all_rows || strcmp(which, "written") == 0) &&
           strcmp(files, format_words[manifest->format]) == 0 &&
           (manifest->has_step || json_is_null(step)) &&
           json_to_u64(json_object_get(root, "checkpoint"), &manifest->checkpoint) &&
           json_to_u64(json_object_get(root, "rows"), &manifest->rows);
}

/* Checks the size of the text first, because jansson makes a tree of all of it. */
static enum embtier_err load(const char *path, const char *text, json_t **ret_root,
                             struct err_msg *msg)
{
    const struct json_size size = json_size_of(text, strlen(text), DEPTH_MAX);
    struct text_shown shown;
    json_error_t error;

    if (size.depth > DEPTH_MAX)
        return err_set(msg, EMBTIER_CORRUPT, "%s: is nested deeper than %d at its byte %zu", path,
                       DEPTH_MAX, size.too_deep_at);
    if (size.separators > SEPARATORS_MAX)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: has more entries than an export of %d parts can have", path,
                       EXPORT_PARTS_MAX);
    *ret_root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (*ret_root)
        return EMBTIER_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return no_memory(msg);
    return err_set(msg, EMBTIER_CORRUPT, "%s:%d: %s", path, error.line,
                   text_show(&shown, error.text));
}

static enum embtier_err parse(const char *path, const char *text, struct export_manifest *manifest,
                              struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = NULL;
    const char *format;
    uint32_t version;

    TRY(load(path, text, &root, msg));
    format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, FORMAT_NAME) != 0 ||
        !json_to_u32(json_object_get(root, "format_version"), &version))
        return err_set(msg, EMBTIER_CORRUPT, "%s: is not the description of an export", path);
    if (version > FORMAT_VERSION)
        return err_set(
            msg, EMBTIER_VERSION,
            "%s: format version %u, this program reads up to %d: import it with a newer embtier",
            path, version, FORMAT_VERSION);
    TRY(table_from_json(path, root, manifest, msg));
    if (!read_words(root, manifest))
        return damaged(path, "the description of the rows", msg);
    return parts_from_json(path, json_object_get(root, "parts"), manifest, msg);
}

enum embtier_err export_manifest_read(const char *path, struct export_manifest *ret_manifest,
                                      struct err_msg *msg)
{
    _cleanup_(freep) char *file = path_join(path, EXPORT_MANIFEST_FILE);
    _cleanup_(export_manifest_clear) struct export_manifest manifest = { 0 };
    _cleanup_(freep) char *text = NULL;
    enum embtier_err err;

    if (!file)
        return no_memory(msg);
    err = tensor_io_read_text(file, BYTES_MAX, &text, msg);
    if (err == EMBTIER_NOT_FOUND)
        return err_set(msg, err,
                       "%s: missing: the folder holds no export, or one that did not finish", file);
    TRY(err);
    TRY(parse(file, text, &manifest, msg));
    *ret_manifest = manifest;
    manifest = (struct export_manifest){ 0 };
    return EMBTIER_OK;
}
