/* SPDX-License-Identifier: Apache-2.0 */
#include "client/files/tensor_index.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/paths.h"
#include "base/text/text_escape.h"
#include "client/files/json_size.h"
#include "client/files/tensor_io.h"
#include "client/files/tensor_place.h"

#define SUFFIX ".safetensors.index.json"

/* A tensor takes a comma and a colon; the largest models have some ten thousand tensors. */
#define BYTES_MAX      ((uint64_t)(32 * MIB))
#define SEPARATORS_MAX UINT64_C(1000000)
#define DEPTH_MAX      8

static enum embtier_err no_memory(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

static void closedirp(DIR **directory)
{
    if (*directory)
        closedir(*directory);
}

static bool is_index(const char *name)
{
    const size_t bytes = strlen(name);

    return name[0] != '.' && bytes > strlen(SUFFIX) &&
           strcmp(name + bytes - strlen(SUFFIX), SUFFIX) == 0;
}

/* Returns the path of the folder's index, or NULL. */
static enum embtier_err find_index(const char *folder, char **ret_path, struct err_msg *msg)
{
    _cleanup_(closedirp) DIR *directory = opendir(folder);
    _cleanup_(freep) char *path = NULL;
    const struct dirent *entry;

    if (!directory)
        return err_set_errno(msg, errno, "%s", folder);
    while ((entry = readdir(directory)) != NULL) {
        if (!is_index(entry->d_name))
            continue;
        if (path)
            return err_set(msg, EMBTIER_INVALID,
                           "%s: has several files NAME" SUFFIX
                           ": import the safetensors file that has the tensor",
                           folder);
        path = path_join(folder, entry->d_name);
        if (!path)
            return no_memory(msg);
    }
    *ret_path = TAKE(path);
    return EMBTIER_OK;
}

static enum embtier_err read_map(const char *path, json_t **ret_map, struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = NULL;
    _cleanup_(freep) char *text = NULL;
    struct json_size size;
    json_error_t error;

    TRY(tensor_io_read_text(path, BYTES_MAX, &text, msg));
    size = json_size_of(text, strlen(text), DEPTH_MAX);
    if (size.depth > DEPTH_MAX || size.separators > SEPARATORS_MAX)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: has more entries than an index of tensors can have", path);
    root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return json_error_code(&error) == json_error_out_of_memory
                   ? no_memory(msg)
                   : err_set(msg, EMBTIER_CORRUPT, "%s:%d: %s", path, error.line,
                             TEXT_SHOWN(error.text));
    if (!json_is_object(json_object_get(root, "weight_map")))
        return err_set(msg, EMBTIER_CORRUPT, "%s: has no weight_map, which says where tensors are",
                       path);
    *ret_map = json_incref(json_object_get(root, "weight_map"));
    return EMBTIER_OK;
}

enum embtier_err tensor_index_find(const char *folder, const char *tensor, char **ret_path,
                                   struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *map = NULL;
    _cleanup_(freep) char *index = NULL;
    const json_t *file;

    *ret_path = NULL;
    TRY(find_index(folder, &index, msg));
    if (!index)
        return EMBTIER_OK;
    TRY(read_map(index, &map, msg));
    if (!tensor && json_object_size(map) != 1)
        return err_set(msg, EMBTIER_INVALID, "%s: has %zu tensors: name one of them", index,
                       json_object_size(map));
    file = tensor ? json_object_get(map, tensor) : json_object_iter_value(json_object_iter(map));
    if (!file)
        return err_set(msg, EMBTIER_NOT_FOUND, "%s: has no tensor '%s'", index, TEXT_SHOWN(tensor));
    if (!tensor_file_name_is_plain(json_string_value(file)))
        return err_set(msg, EMBTIER_CORRUPT, "%s: names a tensor's file that is not in its folder",
                       index);
    *ret_path = path_join(folder, json_string_value(file));
    return *ret_path ? EMBTIER_OK : no_memory(msg);
}
