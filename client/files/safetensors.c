/* SPDX-License-Identifier: Apache-2.0 */
/* A header that is parsed is hostile. jansson builds a tree of the whole text, so the parser checks
 * its size first (json_size.h). Then it checks each value, and that the tensors together cover the
 * data. */
#include "client/files/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/text/text_escape.h"
#include "client/files/json_size.h"

/* {tensors {its keys [shape]}} */
#define DEPTH_MAX 3
/* Commas and colons of the header: a tensor of the most dimensions has 16. */
#define SEPARATORS_MAX (16 * TENSOR_READER_MAX)
/* Data begin at a multiple of this. */
#define DATA_ALIGN 4096

#define DTYPE_WORD(name, bytes, numpy) " " #name
static const char dtype_words[] = TENSOR_DTYPE_TABLE(DTYPE_WORD);

static void json_freep(json_t **json)
{
    json_decref(*json);
}

/* ---- Making ---- */

static enum embtier_err no_memory(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "out of memory for a safetensors header");
}

/* Returns NULL if memory is out. */
static json_t *entry_json(const struct safetensors_entry *entry, uint64_t rows)
{
    const json_int_t begin = (json_int_t)entry->begin;
    const uint64_t bytes = rows * entry->row_bytes;
    json_t *shape = json_array();

    if (!shape || json_array_append_new(shape, json_integer((json_int_t)rows)) != 0 ||
        (entry->tensor->columns &&
         json_array_append_new(shape, json_integer(entry->tensor->columns)) != 0)) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", tensor_dtype_word(entry->tensor->dtype),
                     "shape", shape, "data_offsets", begin, begin + (json_int_t)bytes);
}

static enum embtier_err metadata_json(const char *const *metadata, json_t **ret_json,
                                      struct err_msg *msg)
{
    _cleanup_(json_freep) json_t *json = json_object();
    _cleanup_(freep) char *text = NULL;

    if (!json)
        return no_memory(msg);
    for (uint32_t i = 0; metadata[i]; i += 2) {
        struct text_shown shown;

        if (!metadata[i + 1])
            return err_set(msg, EMBTIER_INTERNAL, "metadata '%s' has no value",
                           text_show(&shown, metadata[i]));
        if (json_object_set_new(json, metadata[i], json_string(metadata[i + 1])) != 0)
            return err_set(msg, EMBTIER_INVALID, "metadata '%s' is not UTF-8",
                           text_show(&shown, metadata[i]));
    }
    text = json_dumps(json, JSON_COMPACT);
    if (!text)
        return no_memory(msg);
    if (strlen(text) > TENSOR_METADATA_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "metadata are %zu bytes long as JSON, at most %d are allowed", strlen(text),
                       TENSOR_METADATA_MAX);
    *ret_json = TAKE(json);
    return EMBTIER_OK;
}

static enum embtier_err make_text(const struct safetensors_entry *entries, uint32_t count,
                                  uint64_t rows, const char *const *metadata, char **ret_text,
                                  struct err_msg *msg)
{
    _cleanup_(json_freep) json_t *root = json_object();
    char *text;

    if (!root)
        return no_memory(msg);
    if (metadata && metadata[0]) {
        json_t *json = NULL;

        TRY(metadata_json(metadata, &json, msg));
        if (json_object_set_new(root, SAFETENSORS_METADATA, json) != 0)
            return no_memory(msg);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct text_shown shown;
        const char *const name = entries[i].tensor->name;

        if (json_object_set_new(root, name, entry_json(&entries[i], rows)) != 0)
            return err_set(msg, EMBTIER_INVALID, "tensor name '%s' is not UTF-8",
                           text_show(&shown, name));
    }
    text = json_dumps(root, JSON_COMPACT);
    if (!text)
        return no_memory(msg);
    *ret_text = text;
    return EMBTIER_OK;
}

enum embtier_err safetensors_room(const struct safetensors_entry *entries, uint32_t count,
                                  uint64_t *ret_bytes, struct err_msg *msg)
{
    struct safetensors_entry longest[TENSOR_WRITER_MAX];
    _cleanup_(freep) char *text = NULL;

    if (count > TENSOR_WRITER_MAX)
        return err_set(msg, EMBTIER_INTERNAL, "%" PRIu32 " tensors", count);
    /* Entries with the most digits that their numbers can have. */
    for (uint32_t i = 0; i < count; i++)
        longest[i] = (struct safetensors_entry){ .tensor = entries[i].tensor, .begin = INT64_MAX };
    TRY(make_text(longest, count, INT64_MAX, NULL, &text, msg));
    *ret_bytes = align_up(SAFETENSORS_START_BYTES + strlen(text) +
                              sizeof("\"" SAFETENSORS_METADATA "\":,") + TENSOR_METADATA_MAX,
                          DATA_ALIGN);
    return EMBTIER_OK;
}

enum embtier_err safetensors_make(const struct safetensors_entry *entries, uint32_t count,
                                  uint64_t rows, const char *const *metadata, uint64_t bytes,
                                  char **ret_header, struct err_msg *msg)
{
    const uint64_t length = bytes - SAFETENSORS_START_BYTES;
    size_t text_bytes;
    _cleanup_(freep) char *text = NULL;
    _cleanup_(freep) char *header = malloc(bytes);

    if (!header)
        return no_memory(msg);
    TRY(make_text(entries, count, rows, metadata, &text, msg));
    text_bytes = strlen(text);
    if (text_bytes > length)
        return err_set(msg, EMBTIER_INTERNAL, "a header of %zu bytes has room for %" PRIu64,
                       text_bytes, length);
    for (uint32_t i = 0; i < SAFETENSORS_START_BYTES; i++)
        header[i] = (char)(length >> (8 * i));
    memset(header + SAFETENSORS_START_BYTES, ' ', length);
    memcpy(header + SAFETENSORS_START_BYTES, text, text_bytes);
    *ret_header = TAKE(header);
    return EMBTIER_OK;
}

/* ---- Parsing ---- */

static enum embtier_err check_size(const char *path, const char *header, size_t bytes,
                                   struct err_msg *msg)
{
    const struct json_size size = json_size_of(header, bytes, DEPTH_MAX);

    if (size.depth > DEPTH_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "%s: the safetensors header is nested deeper than %d at its byte %zu", path,
                       DEPTH_MAX, size.too_deep_at);
    if (size.separators > SEPARATORS_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%s: the safetensors header has too many entries; files of up to %d tensors "
                       "are supported",
                       path, TENSOR_READER_MAX);
    return EMBTIER_OK;
}

static enum embtier_err load(const char *path, const char *header, size_t bytes, json_t **ret_root,
                             struct err_msg *msg)
{
    struct text_shown shown;
    json_error_t error;

    if (bytes == 0 || header[0] != '{')
        return err_set(msg, EMBTIER_INVALID, "%s: the safetensors header does not begin with {",
                       path);
    TRY(check_size(path, header, bytes, msg));
    *ret_root = json_loadb(header, bytes, JSON_REJECT_DUPLICATES, &error);
    if (*ret_root)
        return EMBTIER_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    return err_set(msg, EMBTIER_INVALID,
                   "%s: the safetensors header is not JSON, at its byte %d: %s", path,
                   error.position, text_show(&shown, error.text));
}

/* The place of a tensor, for messages. */
struct where {
    const char *path;
    struct text_shown name;
    struct err_msg *msg;
};

static enum embtier_err wrong(const struct where *where, const char *what)
{
    return err_set(where->msg, EMBTIER_INVALID, "%s: tensor '%s': %s", where->path,
                   where->name.text, what);
}

static bool get_number(const json_t *json, uint64_t *ret_number)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0)
        return false;
    *ret_number = (uint64_t)json_integer_value(json);
    return true;
}

static enum embtier_err get_dtype(const struct where *where, const json_t *json,
                                  enum tensor_dtype *ret_dtype)
{
    struct text_shown shown;

    if (!json_is_string(json))
        return wrong(where, "dtype is not a string");
    *ret_dtype = tensor_dtype_from_word(json_string_value(json));
    if (*ret_dtype != TENSOR_DTYPE_NONE)
        return EMBTIER_OK;
    return err_set(
        where->msg, EMBTIER_UNSUPPORTED, "%s: tensor '%s': dtype '%s' is not supported; allowed:%s",
        where->path, where->name.text,
        text_show_bytes(&shown, json_string_value(json), json_string_length(json)), dtype_words);
}

static enum embtier_err get_shape(const struct where *where, const json_t *json,
                                  struct tensor_info *info)
{
    if (!json_is_array(json))
        return wrong(where, "shape is not a list");
    if (json_array_size(json) > TENSOR_RANK_MAX)
        return err_set(where->msg, EMBTIER_TOO_LARGE,
                       "%s: tensor '%s': has %zu dimensions, at most %d are read", where->path,
                       where->name.text, json_array_size(json), TENSOR_RANK_MAX);
    info->rank = (uint32_t)json_array_size(json);
    for (uint32_t i = 0; i < info->rank; i++)
        if (!get_number(json_array_get(json, i), &info->shape[i]))
            return wrong(where, "shape has an entry that is not a whole number of at least 0");
    return EMBTIER_OK;
}

static enum embtier_err get_offsets(const struct where *where, const json_t *json,
                                    uint64_t data_bytes, struct tensor_place *place)
{
    uint64_t end = 0;

    if (json_array_size(json) != 2 || !get_number(json_array_get(json, 0), &place->offset) ||
        !get_number(json_array_get(json, 1), &end) || end < place->offset)
        return wrong(where, "data_offsets is not a list of begin and end");
    if (end > data_bytes)
        return err_set(where->msg, EMBTIER_INVALID,
                       "%s: tensor '%s': its data end at byte %" PRIu64 ", the file has %" PRIu64,
                       where->path, where->name.text, end, data_bytes);
    if (!tensor_info_count(&place->info))
        return wrong(where, "its shape needs more bytes than 64 bits can count");
    if (place->info.bytes != end - place->offset)
        return err_set(where->msg, EMBTIER_INVALID,
                       "%s: tensor '%s': its shape needs %" PRIu64
                       " bytes, data_offsets give it %" PRIu64,
                       where->path, where->name.text, place->info.bytes, end - place->offset);
    return EMBTIER_OK;
}

static enum embtier_err get_tensor(const char *path, const char *name, const json_t *json,
                                   uint64_t data_bytes, struct tensor_place *ret_place,
                                   struct err_msg *msg)
{
    struct where where = { .path = path, .msg = msg };
    const json_t *const dtype = json_object_get(json, "dtype");
    const json_t *const shape = json_object_get(json, "shape");
    const json_t *const offsets = json_object_get(json, "data_offsets");

    text_show(&where.name, name);
    if (strlen(name) > TENSOR_NAME_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%s: tensor '%s': its name is %zu bytes long, at most %d are read", path,
                       where.name.text, strlen(name), TENSOR_NAME_MAX);
    if (!text_is_plain(name, strlen(name)))
        return wrong(&where, "its name has control characters or other invisible ones");
    if (!dtype || !shape || !offsets || json_object_size(json) != 3)
        return wrong(&where, "is not an object of dtype, shape and data_offsets");
    ret_place->info.name = name;
    TRY(get_dtype(&where, dtype, &ret_place->info.dtype));
    TRY(get_shape(&where, shape, &ret_place->info));
    return get_offsets(&where, offsets, data_bytes, ret_place);
}

static enum embtier_err check_metadata(const char *path, const json_t *json, struct err_msg *msg)
{
    const char *key;
    json_t *value;

    if (json && !json_is_object(json))
        return err_set(msg, EMBTIER_INVALID, "%s: __metadata__ is not an object", path);
    json_object_foreach((json_t *)json, key, value)
    {
        struct text_shown shown;

        if (!json_is_string(value))
            return err_set(msg, EMBTIER_INVALID, "%s: __metadata__: '%s' is not a string", path,
                           text_show(&shown, key));
    }
    return EMBTIER_OK;
}

/* An empty tensor comes before another one at the same offset. */
static int compare_places(const void *a, const void *b)
{
    const struct tensor_place *const one = a;
    const struct tensor_place *const other = b;

    if (one->offset != other->offset)
        return one->offset < other->offset ? -1 : 1;
    return one->info.bytes < other->info.bytes ? -1 : one->info.bytes > other->info.bytes;
}

static enum embtier_err check_cover(const char *path, const struct tensor_place *places,
                                    uint32_t count, uint64_t data_bytes, struct err_msg *msg)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct text_shown shown;
        const struct tensor_place *const place = &places[i];

        if (place->offset != end)
            return err_set(msg, EMBTIER_INVALID,
                           "%s: tensor '%s': its data begin at byte %" PRIu64
                           ", those before end at %" PRIu64,
                           path, text_show(&shown, place->info.name), place->offset, end);
        end += place->info.bytes;
    }
    if (end != data_bytes)
        return err_set(msg, EMBTIER_INVALID,
                       "%s: its tensors have %" PRIu64 " bytes, the file has %" PRIu64, path, end,
                       data_bytes);
    return EMBTIER_OK;
}

static enum embtier_err get_tensors(const char *path, json_t *root, uint64_t data_bytes,
                                    struct safetensors *parsed, struct err_msg *msg)
{
    const char *name;
    json_t *json;

    if (json_object_size(root) > TENSOR_READER_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE, "%s: has %zu tensors, at most %d are read", path,
                       json_object_size(root), TENSOR_READER_MAX);
    parsed->places = calloc(json_object_size(root) + 1, sizeof(parsed->places[0]));
    if (!parsed->places)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    json_object_foreach(root, name, json)
    {
        if (strcmp(name, SAFETENSORS_METADATA) == 0)
            TRY(check_metadata(path, json, msg));
        else
            TRY(get_tensor(path, name, json, data_bytes, &parsed->places[parsed->count++], msg));
    }
    qsort(parsed->places, parsed->count, sizeof(parsed->places[0]), compare_places);
    return check_cover(path, parsed->places, parsed->count, data_bytes, msg);
}

enum embtier_err safetensors_parse(const char *path, const char *header, size_t bytes,
                                   uint64_t data_bytes, struct safetensors *ret_parsed,
                                   struct err_msg *msg)
{
    _cleanup_(safetensors_release) struct safetensors parsed = { 0 };

    TRY(load(path, header, bytes, &parsed.root, msg));
    TRY(get_tensors(path, parsed.root, data_bytes, &parsed, msg));
    *ret_parsed = parsed;
    parsed = (struct safetensors){ 0 };
    return EMBTIER_OK;
}

void safetensors_release(struct safetensors *parsed)
{
    json_decref(parsed->root);
    free(parsed->places);
}
