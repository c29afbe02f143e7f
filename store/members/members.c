/* SPDX-License-Identifier: Apache-2.0 */
#include "store/members/members.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "store/files/durable_file.h"
#include "store/files/summed_json.h"

#define WAY_OUT ": put the file back from another data directory of this store, all have the same"

void members_clear(struct members *members)
{
    for (uint32_t i = 0; i < ARRAY_LEN(members->paths); i++)
        free(members->paths[i]);
    for (uint32_t i = 0; i < ARRAY_LEN(members->names); i++)
        free(members->names[i]);
    *members = (struct members){ 0 };
}

uint32_t members_count(const struct members *members)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < members->given; i++)
        count += members_have(members, i);
    return count;
}

static bool is_same_text(const char *path, const char *other)
{
    size_t length = strlen(path), others = strlen(other);

    while (length > 1 && path[length - 1] == '/')
        length--;
    while (others > 1 && other[others - 1] == '/')
        others--;
    return length == others && strncmp(path, other, length) == 0;
}

/* The target of a link may be gone, too. */
bool members_are_at(const struct members *members, uint32_t number, const char *path)
{
    const char *const name = members->names[number];
    _cleanup_(freep) char *real = realpath(path, NULL);

    return is_same_text(members->paths[number], path) || (name && is_same_text(name, path)) ||
           (real && is_same_text(members->paths[number], real));
}

uint32_t members_number_at(const struct members *members, const char *path)
{
    uint32_t number = MEMBERS_NONE;

    for (uint32_t i = 0; i < members->given; i++)
        if (members_are_at(members, i, path) &&
            (number == MEMBERS_NONE || members_have(members, i)))
            number = i;
    return number;
}

enum embtier_err members_copy(const struct members *members, struct members *ret_copy,
                              struct err_msg *msg)
{
    struct members copy = *members;
    bool is_whole = true;

    for (uint32_t i = 0; i < ARRAY_LEN(copy.paths); i++) {
        copy.paths[i] = members->paths[i] ? strdup(members->paths[i]) : NULL;
        copy.names[i] = members->names[i] ? strdup(members->names[i]) : NULL;
        is_whole = is_whole && (copy.paths[i] || !members->paths[i]) &&
                   (copy.names[i] || !members->names[i]);
    }
    if (is_whole) {
        *ret_copy = copy;
        return EMBTIER_OK;
    }
    members_clear(&copy);
    return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

/* ---- One copy ---- */

static bool paths_from_json(const json_t *list, struct members *members)
{
    for (uint32_t i = 0; i < members->given; i++) {
        const json_t *const item = json_array_get(list, i);
        const char *const path = json_string_value(json_object_get(item, "path"));
        const char *const name = json_string_value(json_object_get(item, "name"));
        const json_t *const has_left = json_object_get(item, "has_left");

        if (!path || path[0] == '\0' || !json_is_boolean(has_left))
            return false;
        members->has_left[i] = json_is_true(has_left);
        members->paths[i] = strdup(path);
        members->names[i] = name ? strdup(name) : NULL;
        if (!members->paths[i] || (name && !members->names[i]))
            return false;
    }
    return true;
}

static bool members_from_json(const json_t *root, struct members *members)
{
    const json_t *const generation = json_object_get(root, "generation");
    const json_t *const list = json_object_get(root, "directories");
    const char *const uuid = json_string_value(json_object_get(root, "store_uuid"));

    if (!json_is_integer(generation) || json_integer_value(generation) < 1 || !uuid ||
        strlen(uuid) != MEMBERS_UUID_CHARS || !json_is_array(list) || json_array_size(list) < 1 ||
        json_array_size(list) > CONFIG_DIRECTORIES_MAX)
        return false;
    members->generation = (uint64_t)json_integer_value(generation);
    memcpy(members->uuid, uuid, MEMBERS_UUID_CHARS);
    members->given = (uint32_t)json_array_size(list);
    return paths_from_json(list, members) && members_have(members, 0);
}

enum embtier_err members_read(const char *directory, struct members *ret_members,
                              struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = NULL;
    _cleanup_(freep) char *path = path_join(directory, MEMBERS_FILE);
    _cleanup_(freep) char *text = NULL;
    struct members members = { 0 };
    enum embtier_err err;

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    err = durable_file_read(directory, MEMBERS_FILE, &text, msg);
    if (err == EMBTIER_NOT_FOUND) {
        *ret_members = members;
        return EMBTIER_OK;
    }
    TRY(err);
    err = summed_json_check(path, text, true, msg);
    if (err == EMBTIER_CORRUPT)
        err_append(msg, WAY_OUT);
    TRY(err);
    root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!members_from_json(root, &members)) {
        members_clear(&members);
        return err_set(msg, EMBTIER_CORRUPT, "%s: no list of data directories" WAY_OUT, path);
    }
    *ret_members = members;
    return EMBTIER_OK;
}

enum embtier_err members_write(const char *directory, const struct members *members,
                               struct err_msg *msg)
{
    json_t *const list = json_array();
    _cleanup_(json_decrefp) json_t *root = NULL;
    bool is_whole = true;

    for (uint32_t i = 0; i < members->given; i++)
        is_whole = json_array_append_new(
                       list, json_pack("{s:s, s:b, s:s*}", "path", members->paths[i], "has_left",
                                       members->has_left[i], "name", members->names[i])) == 0 &&
                   is_whole;
    root = json_pack("{s:s, s:s, s:I, s:o}", SUMMED_JSON_KEY, SUMMED_JSON_NONE, "store_uuid",
                     members->uuid, "generation", (json_int_t)members->generation, "directories",
                     list);
    return summed_json_write(directory, MEMBERS_FILE, is_whole ? root : NULL, msg);
}

/* ---- All copies ---- */

static bool is_same(const struct members *one, const struct members *other)
{
    if (one->given != other->given)
        return false;
    for (uint32_t i = 0; i < one->given; i++)
        if (members_have(one, i) != members_have(other, i))
            return false;
    return true;
}

/* Takes over @members if it is newer. A list of another store is none of this one's. */
static enum embtier_err take_newer(struct members *newest, struct members *members,
                                   const char *directory, struct err_msg *msg)
{
    if (members->generation == 0 ||
        (newest->generation > 0 && strcmp(newest->uuid, members->uuid) != 0))
        return EMBTIER_OK;
    if (newest->generation == members->generation && !is_same(newest, members))
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s/" MEMBERS_FILE ": of generation %" PRIu64
                       ", as that of another data directory, but they differ",
                       directory, members->generation);
    if (newest->generation >= members->generation)
        return EMBTIER_OK;
    members_clear(newest);
    *newest = *members;
    *members = (struct members){ 0 };
    return EMBTIER_OK;
}

enum embtier_err members_find(char *const *directories, uint32_t count, struct members *ret_members,
                              struct err_msg *msg)
{
    _cleanup_(members_clear) struct members newest = { 0 };
    struct err_msg why = { { 0 } };
    enum embtier_err first = EMBTIER_OK;

    for (uint32_t i = 0; i < count; i++) {
        _cleanup_(members_clear) struct members members = { 0 };
        const enum embtier_err err =
            members_read(directories[i], &members, first == EMBTIER_OK ? &why : NULL);

        first = first == EMBTIER_OK ? err : first;
        if (err == EMBTIER_OK)
            TRY(take_newer(&newest, &members, directories[i], msg));
    }
    if (first != EMBTIER_OK && newest.generation == 0)
        return err_set(msg, first, "%s", why.text);
    *ret_members = newest;
    newest = (struct members){ 0 };
    return EMBTIER_OK;
}
