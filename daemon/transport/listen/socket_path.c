/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/listen/socket_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"

enum embtier_err socket_path_address(const char *path, struct sockaddr_un *ret_address,
                                     struct err_msg *msg)
{
    *ret_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof(ret_address->sun_path))
        return err_set(msg, EMBTIER_TOO_LARGE, "socket %s: longer than %zu bytes", path,
                       sizeof(ret_address->sun_path) - 1);
    memcpy(ret_address->sun_path, path, strlen(path) + 1);
    return EMBTIER_OK;
}

/* Connects a datagram socket. If a program has a socket of any other kind open, the kernel then
 * says EPROTOTYPE, even before it listens or when its queue is full. No server has to take a
 * connection for that. A live datagram socket takes this one, or (EPERM) has another peer. */
static enum embtier_err must_be_dead(const char *path, struct err_msg *msg)
{
    _cleanup_(closep) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;
    int rc;

    TRY(socket_path_address(path, &address, msg));
    if (fd < 0)
        return err_set_errno(msg, errno, "cannot make a socket");
    rc = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : errno;
    switch (rc) {
    case ECONNREFUSED:
    case ENOENT: /* its program has removed it meanwhile */
        return EMBTIER_OK;
    case EPROTOTYPE:
        return err_set(msg, EMBTIER_LOCKED,
                       "socket %s: another server listens on it, or another program has it open",
                       path);
    case 0:
    case EPERM:
    case EAGAIN:
        return err_set(msg, EMBTIER_LOCKED, "socket %s: another program receives datagrams on it",
                       path);
    default:
        return err_set_errno(
            msg, rc,
            "socket %s: the path exists, and embtierd cannot tell whether a server listens on it",
            path);
    }
}

/* @may_live: does not check whether a program has it open. */
static enum embtier_err look(const char *path, bool may_live, bool *ret_is_there,
                             struct err_msg *msg)
{
    struct stat status;

    *ret_is_there = lstat(path, &status) == 0;
    if (!*ret_is_there)
        return errno == ENOENT ? EMBTIER_OK : err_set_errno(msg, errno, "socket %s", path);
    if (!S_ISSOCK(status.st_mode))
        return err_set(msg, EMBTIER_EXISTS,
                       "socket %s: the path exists and is not a socket; move it away", path);
    return may_live ? EMBTIER_OK : must_be_dead(path, msg);
}

/* Makes a socket, because only that tells: no user can make one in /proc and /sys, whatever the
 * directory's mode says. Its name is its own, and it names the directory by descriptor, because the
 * path may be as long as a path can be. */
static enum embtier_err try_directory(const char *path, struct err_msg *msg)
{
    _cleanup_(freep) char *directory = NULL;
    _cleanup_(closep) int directory_fd = -1;
    _cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct stat status;

    TRY(path_directory(path, &directory, msg));
    directory_fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory_fd < 0)
        return err_set_errno(msg, errno, "socket %s", path);
    if (fd < 0)
        return err_set_errno(msg, errno, "cannot make a socket");
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d", directory_fd);
    if (access(address.sun_path, F_OK) != 0)
        return EMBTIER_OK; /* no /proc: the start finds out */
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/.embtier-%d",
             directory_fd, (int)getpid());
    /* A process of this number that was killed here may have left it. */
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 && errno != EADDRINUSE)
        return err_set_errno(msg, errno, "socket %s", path);
    if (lstat(address.sun_path, &status) == 0 && S_ISSOCK(status.st_mode))
        unlink(address.sun_path);
    return EMBTIER_OK;
}

enum embtier_err socket_path_check(const char *path, bool may_live, struct err_msg *msg)
{
    struct sockaddr_un address;
    bool is_there;

    TRY(socket_path_address(path, &address, msg));
    TRY(look(path, may_live, &is_there, msg));
    return try_directory(path, msg);
}

enum embtier_err socket_path_clear(const char *path, struct err_msg *msg)
{
    bool is_there;

    TRY(look(path, false, &is_there, msg));
    if (is_there && unlink(path) != 0 && errno != ENOENT)
        return err_set_errno(msg, errno, "socket %s: cannot be removed", path);
    return EMBTIER_OK;
}
