/* SPDX-License-Identifier: Apache-2.0 */
#include "base/host/host.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/text_after.h"

int host_look(const char *path, struct statx *ret_info)
{
    return statx(AT_FDCWD, path, 0, STATX_BASIC_STATS | STATX_MNT_ID, ret_info) == 0 ? 0 : errno;
}

const struct host host_files = { .root = "", .look = host_look };

struct path {
    char text[PATH_MAX];
};

static bool make_path(const struct host *host, const char *format, va_list args,
                      struct path *ret_path)
{
    const int root = snprintf(ret_path->text, sizeof(ret_path->text), "%s", host->root);
    int rest;

    if (root < 0 || (size_t)root >= sizeof(ret_path->text))
        return false;
    rest = vsnprintf(ret_path->text + root, sizeof(ret_path->text) - (size_t)root, format, args);
    return rest >= 0 && (size_t)rest < sizeof(ret_path->text) - (size_t)root;
}

#define MAKE_PATH(host, format, path)                                                              \
    ({                                                                                             \
        va_list _args;                                                                             \
        bool _made;                                                                                \
        va_start(_args, format);                                                                   \
        _made = make_path((host), (format), _args, (path));                                        \
        va_end(_args);                                                                             \
        _made;                                                                                     \
    })

static void fclosep(FILE **file)
{
    if (*file)
        fclose(*file);
}

FILE *host_open(const struct host *host, const char *format, ...)
{
    struct path path;

    return MAKE_PATH(host, format, &path) ? fopen(path.text, "re") : NULL;
}

bool host_exists(const struct host *host, const char *format, ...)
{
    struct path path;

    return MAKE_PATH(host, format, &path) && access(path.text, F_OK) == 0;
}

static bool read_line(const struct path *path, struct host_line *ret_line)
{
    _cleanup_(fclosep) FILE *file = fopen(path->text, "re");
    struct host_line line;
    size_t length;

    if (!file || !fgets(line.text, sizeof(line.text), file))
        return false;
    length = strcspn(line.text, "\n");
    if (length == 0 || length == sizeof(line.text) - 1)
        return false;
    line.text[length] = '\0';
    *ret_line = line;
    return true;
}

bool host_line(const struct host *host, struct host_line *ret_line, const char *format, ...)
{
    struct path path;

    return MAKE_PATH(host, format, &path) && read_line(&path, ret_line);
}

bool host_parse_number(const char *text, uint64_t *ret_number)
{
    char *end;
    uint64_t number;

    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    number = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *ret_number = number;
    return true;
}

bool host_number(const struct host *host, uint64_t *ret_number, const char *format, ...)
{
    struct path path;
    struct host_line line;

    return MAKE_PATH(host, format, &path) && read_line(&path, &line) &&
           host_parse_number(line.text, ret_number);
}

bool host_link_name(const struct host *host, struct host_line *ret_name, const char *format, ...)
{
    struct path path;
    char target[PATH_MAX];
    const char *name;
    ssize_t length;

    if (!MAKE_PATH(host, format, &path))
        return false;
    length = readlink(path.text, target, sizeof(target) - 1);
    if (length <= 0)
        return false;
    target[length] = '\0';
    name = strrchr(target, '/') ? strrchr(target, '/') + 1 : target;
    if (name[0] == '\0' || strlen(name) >= sizeof(ret_name->text))
        return false;
    memcpy(ret_name->text, name, strlen(name) + 1);
    return true;
}

/* Returns the number of "KEY: 12 kB", with @key and the blanks behind it. */
static bool parse_field(const char *line, const char *key, uint64_t *ret_number)
{
    const char *const rest = text_after(line, key);
    char digits[32];
    size_t count;

    if (!rest || !strchr(": \t", *rest) || *rest == '\0')
        return false;
    line = rest + strspn(rest, ": \t");
    count = strspn(line, "0123456789");
    if (count == 0 || count >= sizeof(digits) || !strchr(" \t\n", line[count]))
        return false;
    memcpy(digits, line, count);
    digits[count] = '\0';
    return host_parse_number(digits, ret_number);
}

bool host_field(const struct host *host, const char *key, uint64_t *ret_number, const char *format,
                ...)
{
    struct path path;
    _cleanup_(fclosep) FILE *file = MAKE_PATH(host, format, &path) ? fopen(path.text, "re") : NULL;
    struct host_line line;

    while (file && fgets(line.text, sizeof(line.text), file))
        if (parse_field(line.text, key, ret_number))
            return true;
    return false;
}

bool host_choice(const struct host *host, struct host_line *ret_choice, const char *format, ...)
{
    struct path path;
    struct host_line line;
    const char *begin;
    size_t length;

    if (!MAKE_PATH(host, format, &path) || !read_line(&path, &line))
        return false;
    begin = strchr(line.text, '[');
    if (!begin || !strchr(begin, ']'))
        return false;
    length = (size_t)(strchr(begin, ']') - begin) - 1;
    if (length == 0)
        return false;
    memcpy(ret_choice->text, begin + 1, length);
    ret_choice->text[length] = '\0';
    return true;
}

/* ---- Folders ---- */

static int by_number(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static bool take_name(struct host_names *names, const char *name)
{
    char **const more = reallocarray(names->names, names->count + 1, sizeof(*more));

    if (!more)
        return false;
    names->names = more;
    more[names->count] = strdup(name);
    return more[names->count] && ++names->count > 0;
}

void host_names_read(const struct host *host, const char *prefix, struct host_names *ret_names,
                     const char *format, ...)
{
    struct path path;
    DIR *const folder = MAKE_PATH(host, format, &path) ? opendir(path.text) : NULL;
    const struct dirent *entry;

    *ret_names = (struct host_names){ 0 };
    if (!folder)
        return;
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.' && strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
            !take_name(ret_names, entry->d_name))
            break;
    closedir(folder);
    if (ret_names->count > 0)
        qsort(ret_names->names, ret_names->count, sizeof(*ret_names->names), by_number);
}

void host_names_clear(struct host_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    *names = (struct host_names){ 0 };
}
