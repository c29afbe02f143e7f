/* SPDX-License-Identifier: Apache-2.0 */
#include "base/paths.h"

#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An unset variable and an empty one mean the same (XDG Base Directory Specification). */
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

/* systemd separates several directories by colons if the unit names several; the first is ours. */
static char *first_of(const char *directories, const char *file)
{
    return format("%.*s%s", (int)strcspn(directories, ":"), directories, file);
}

static const char *absolute(const char *path)
{
    return path && path[0] == '/' ? path : NULL;
}

static enum embtier_err no_memory(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

/* A shared directory cannot stand in for a home: the first user to come would own the data. */
static enum embtier_err in_home(const char *below, char **ret_path, struct err_msg *msg)
{
    const char *home = absolute(environment("HOME"));
    struct passwd entry;
    struct passwd *found = NULL;
    char buffer[16384];

    if (!home && getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &found) == 0 && found)
        home = absolute(entry.pw_dir);
    if (!home)
        return err_set(msg, EMBTIER_CONFIG,
                       "no default data directory: HOME is not set, and user %u has no home in the "
                       "system's list of users; set HOME or XDG_STATE_HOME to an absolute path, or "
                       "name data.directories",
                       (unsigned)geteuid());
    *ret_path = format("%s/%s", home, below);
    return *ret_path ? EMBTIER_OK : no_memory(msg);
}

enum embtier_err default_data_directory(char **ret_path, struct err_msg *msg)
{
    const char *directory = environment("STATE_DIRECTORY");

    if (directory)
        *ret_path = first_of(directory, "");
    else if (geteuid() == 0)
        *ret_path = strdup("/var/lib/embtier");
    else if ((directory = absolute(environment("XDG_STATE_HOME"))))
        *ret_path = format("%s/embtier", directory);
    else
        return in_home(".local/state/embtier", ret_path, msg);
    return *ret_path ? EMBTIER_OK : no_memory(msg);
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
    /* The specification says to ignore a relative path in an XDG variable. */
    path = absolute(environment("XDG_RUNTIME_DIR"));
    if (path)
        return format("%s/embtier.sock", path);
    return format("/tmp/embtier-%u/embtier.sock", (unsigned)geteuid());
}

bool default_socket_is_named(void)
{
    return environment("EMBTIER_SOCKET") != NULL;
}

bool default_socket_is_users(void)
{
    return geteuid() != 0 && !default_socket_is_named() && !environment("RUNTIME_DIRECTORY");
}

static enum embtier_err not_ours(const char *directory, const char *why, struct err_msg *msg)
{
    return err_set(
        msg, EMBTIER_PERMISSION,
        "the socket's directory %s %s, so another user may pose as the server there; "
        "remove it, or name a socket (EMBTIER_SOCKET, the option --address, the server's "
        "key socket.path)",
        directory, why);
}

enum embtier_err users_directory_check(const char *directory, struct err_msg *msg)
{
    struct stat info;
    char why[64];

    if (lstat(directory, &info) != 0)
        return err_set_errno(msg, errno, "the socket's directory %s", directory);
    if (!S_ISDIR(info.st_mode))
        return not_ours(directory, S_ISLNK(info.st_mode) ? "is a symbolic link" : "is none", msg);
    snprintf(why, sizeof(why), "belongs to user %u", (unsigned)info.st_uid);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return not_ours(directory, why, msg);
    snprintf(why, sizeof(why), "can be written to by others (mode %04o)",
             (unsigned)info.st_mode & 07777);
    if (info.st_mode & (S_IWGRP | S_IWOTH))
        return not_ours(directory, why, msg);
    return EMBTIER_OK;
}

enum embtier_err path_directory(const char *path, char **ret_directory, struct err_msg *msg)
{
    const char *const slash = strrchr(path, '/');

    if (!slash)
        *ret_directory = strdup(".");
    else
        *ret_directory = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    return *ret_directory ? EMBTIER_OK : no_memory(msg);
}

char *path_join(const char *directory, const char *name)
{
    return format("%s/%s", directory, name);
}
