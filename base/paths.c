/* SPDX-License-Identifier: Apache-2.0 */
#include "base/paths.h"

#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An environment variable that is unset or empty says nothing (XDG Base Directory Specification).
 */
static const char *environment(const char *name)
{
    const char *value = getenv(name); // NOLINT(concurrency-mt-unsafe)

    return value && value[0] != '\0' ? value : NULL;
}

PRINTF_LIKE(1, 2) static char *format(const char *text, ...)
{
    char *path;
    va_list args;
    int length;

    va_start(args, text);
    length = vasprintf(&path, text, args);
    va_end(args);
    return length < 0 ? NULL : path;
}

/* systemd gives several directories separated by colons if the unit names several: ours is first.
 */
static char *first_of(const char *directories, const char *file)
{
    return format("%.*s%s", (int)strcspn(directories, ":"), directories, file);
}

static char *in_home(const char *below)
{
    const char *home = environment("HOME");
    struct passwd entry;
    struct passwd *found = NULL;
    char buffer[4096];

    if (!home && getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &found) == 0 && found)
        home = entry.pw_dir;
    return format("%s/%s", home ? home : "/tmp", below);
}

char *default_data_directory(void)
{
    const char *directory = environment("STATE_DIRECTORY");

    if (directory)
        return first_of(directory, "");
    if (geteuid() == 0)
        return strdup("/var/lib/embtier");
    /* A relative path in an XDG variable is to be ignored. */
    directory = environment("XDG_STATE_HOME");
    if (directory && directory[0] == '/')
        return format("%s/embtier", directory);
    return in_home(".local/state/embtier");
}

char *default_socket_path(void)
{
    const char *path = environment("EMBTIER_SOCKET");

    if (path)
        return strdup(path);
    path = environment("RUNTIME_DIRECTORY");
    if (path)
        return first_of(path, "/embtier.sock");
    if (geteuid() == 0)
        return strdup("/run/embtier/embtier.sock");
    path = environment("XDG_RUNTIME_DIR");
    if (path && path[0] == '/')
        return format("%s/embtier.sock", path);
    return format("/tmp/embtier-%u/embtier.sock", (unsigned)geteuid());
}

char *path_join(const char *directory, const char *name)
{
    return format("%s/%s", directory, name);
}
