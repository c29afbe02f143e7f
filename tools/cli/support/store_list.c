/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/support/store_list.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/paths.h"

#define LIST_FILE      "directories.json"
#define LIST_BYTES_MAX MIB

/* Returns the list in @directory, or NULL. It follows no link: the server's user can write there,
 * and root may run this command. */
static json_t *read_list(const char *directory)
{
    _cleanup_(freep) char *path = path_join(directory, LIST_FILE);
    _cleanup_(closep) int fd =
        path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) : -1;
    struct stat facts;

    if (fd < 0 || fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) ||
        (uint64_t)facts.st_size > LIST_BYTES_MAX)
        return NULL;
    return json_loadfd(fd, 0, NULL);
}

static json_int_t generation(const json_t *list)
{
    return json_integer_value(json_object_get(list, "generation"));
}

/* Returns the newest list of all directories, or NULL. */
static json_t *read_newest(const json_t *directories)
{
    json_t *newest = NULL, *directory;
    size_t i;

    json_array_foreach(directories, i, directory)
    {
        json_t *const list = read_list(json_string_value(directory));

        if (generation(list) <= generation(newest)) {
            json_decref(list);
            continue;
        }
        json_decref(newest);
        newest = list;
    }
    return newest;
}

/* Returns the place of @path in @directories; their number if it is none of them. */
static size_t find(const json_t *directories, const char *path)
{
    size_t i = 0;

    while (i < json_array_size(directories) &&
           strcmp(json_string_value(json_array_get(directories, i)), path) != 0)
        i++;
    return i;
}

/* A directory may be configured by another name than it was noted by. */
static void follow(json_t *directories, const json_t *item, const char *key)
{
    json_t *const path = json_object_get(item, key);
    const bool has_left = json_is_true(json_object_get(item, "has_left"));
    size_t at;

    if (!json_is_string(path))
        return;
    at = find(directories, json_string_value(path));
    if (has_left && at < json_array_size(directories))
        (void)json_array_remove(directories, at);
}

static bool is_listed(const json_t *directories, const json_t *item)
{
    static const char *const keys[] = { "path", "name" };

    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        const char *const path = json_string_value(json_object_get(item, keys[k]));

        if (path && find(directories, path) < json_array_size(directories))
            return true;
    }
    return false;
}

void store_list_follow(json_t *directories)
{
    json_t *const list = read_newest(directories);
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(list, "directories"), i, item)
    {
        json_t *const path = json_object_get(item, "path");

        follow(directories, item, "path");
        follow(directories, item, "name");
        if (json_is_string(path) && !json_is_true(json_object_get(item, "has_left")) &&
            !is_listed(directories, item))
            (void)json_array_append(directories, path);
    }
    json_decref(list);
}
