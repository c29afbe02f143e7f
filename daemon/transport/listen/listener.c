/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/listen/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/net/loopback.h"
#include "daemon/transport/listen/held_address.h"
#include "daemon/transport/listen/socket_path.h"

#define BACKLOG 1024

static enum embtier_err listen_unix(const struct address *address, mode_t mode,
                                    struct listener *listener, struct err_msg *msg)
{
    struct sockaddr_un name;
    struct stat status;
    mode_t before;
    int rc;

    TRY(socket_path_address(address->path, &name, msg));
    TRY(socket_path_clear(address->path, msg));
    listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0)
        return err_set_errno(msg, errno, "cannot make a socket");
    before = umask(0177); /* no other user until the mode is set */
    rc = bind(listener->fd, (const struct sockaddr *)&name, sizeof(name));
    umask(before);
    if (rc != 0 || lstat(address->path, &status) != 0)
        return err_set_errno(msg, errno, "socket %s", address->path);
    memcpy(listener->path, address->path, sizeof(listener->path));
    listener->device = status.st_dev;
    listener->inode = status.st_ino;
    snprintf(listener->text, sizeof(listener->text), "%s%s",
             address->kind == ADDRESS_UNIX_RPC ? "unix+rpc:" : "", address->path);
    if (chmod(address->path, mode) != 0 || listen(listener->fd, BACKLOG) != 0)
        return err_set_errno(msg, errno, "socket %s", address->path);
    return EMBTIER_OK;
}

enum embtier_err listener_take(const char *path, int fd, struct listener *ret_listener,
                               struct err_msg *msg)
{
    *ret_listener = (struct listener){ .fd = fd };
    snprintf(ret_listener->text, sizeof(ret_listener->text), "%s", path);
    /* Listening once more makes the server, not its manager, the user that clients see. */
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0 ||
        listen(fd, BACKLOG) != 0)
        return err_set_errno(msg, errno, "socket %s", path);
    return EMBTIER_OK;
}

/* Names the address with the port that the system chose for port 0. */
static void name_tcp(struct listener *listener, const struct address *address)
{
    struct address named = *address;
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof(bound);

    if (getsockname(listener->fd, (struct sockaddr *)&bound, &bytes) == 0)
        (void)getnameinfo((const struct sockaddr *)&bound, bytes, NULL, 0, named.port,
                          sizeof(named.port), NI_NUMERICSERV);
    snprintf(listener->text, sizeof(listener->text), "%s", ADDRESS_SHOWN(&named));
}

static enum embtier_err cannot_listen(const struct address *address, int errnum,
                                      struct err_msg *msg)
{
    return err_set_errno(msg, errnum, "cannot listen at %s", ADDRESS_SHOWN(address));
}

/* Returns 0 or the error number. */
static int bind_patiently(int fd, const struct addrinfo *at, const struct address *address)
{
    struct held_address held = { 0 };
    struct address_shown name;
    int rc;

    address_show(&name, address);
    do
        rc = bind(fd, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    while (rc == EADDRINUSE && held_address_wait(&held, name.text));
    return rc;
}

/* Makes a socket with that address. */
static enum embtier_err bind_at(const struct addrinfo *at, const struct address *address,
                                int *ret_fd, struct err_msg *msg)
{
    _cleanup_(closep) int fd =
        socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    int rc;

    if (fd < 0)
        return err_set_errno(msg, errno, "cannot make a socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
    rc = bind_patiently(fd, at, address);
    if (rc != 0)
        return cannot_listen(address, rc, msg);
    *ret_fd = TAKE_FD(fd);
    return EMBTIER_OK;
}

static enum embtier_err listen_at(const struct addrinfo *at, const struct address *address,
                                  struct listener *listener, struct err_msg *msg)
{
    TRY(bind_at(at, address, &listener->fd, msg));
    if (listen(listener->fd, BACKLOG) != 0)
        return cannot_listen(address, errno, msg);
    name_tcp(listener, address);
    return EMBTIER_OK;
}

static enum embtier_err refuse_remote(const struct address *address, struct err_msg *msg)
{
    if (address->kind == ADDRESS_TLS)
        return err_set(msg, EMBTIER_INVALID,
                       "%s can be reached from other hosts, and its clients are not known. "
                       "Allowed: access.file with its users, tls.require_certificate with "
                       "tls.client_ca, an address of loopback (127.0.0.1, [::1]), or "
                       "`rpc.insecure: yes` where every host of the network is trusted",
                       ADDRESS_SHOWN(address));
    if (address->kind == ADDRESS_HTTP)
        return err_set(msg, EMBTIER_INVALID,
                       "%s can be reached from other hosts, which would read figures and "
                       "names of tables; allowed: an address of loopback (127.0.0.1, [::1]), or "
                       "`http.insecure: yes` where every host of the network is trusted",
                       ADDRESS_SHOWN(address));
    return err_set(msg, EMBTIER_INVALID,
                   "%s can be reached from other hosts, and its clients are neither known "
                   "nor encrypted; allowed: tls://HOST:PORT, an address of loopback (127.0.0.1, "
                   "[::1]), or `rpc.insecure: yes` where every host of the network is trusted",
                   ADDRESS_SHOWN(address));
}

static void free_found(struct addrinfo **found)
{
    if (*found)
        freeaddrinfo(*found);
}

/* Resolves the address. INVALID: it has no place, or one that it must not have. */
static enum embtier_err find_tcp(const struct address *address, bool may_be_remote,
                                 struct addrinfo **ret_found, struct err_msg *msg)
{
    const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
    const int rc = getaddrinfo(address->host, address->port, &wanted, ret_found);

    if (rc != 0) {
        *ret_found = NULL;
        return err_set(msg, EMBTIER_INVALID, "cannot listen at %s: %s", ADDRESS_SHOWN(address),
                       gai_strerror(rc));
    }
    if (address_is_loopback((*ret_found)->ai_addr) || may_be_remote)
        return EMBTIER_OK;
    return refuse_remote(address, msg);
}

static enum embtier_err listen_tcp(const struct address *address, bool may_be_remote,
                                   struct listener *listener, struct err_msg *msg)
{
    _cleanup_(free_found) struct addrinfo *found = NULL;

    TRY(find_tcp(address, may_be_remote, &found, msg));
    return listen_at(found, address, listener, msg);
}

static enum embtier_err check_patiently(const char *path, bool may_live, struct err_msg *msg)
{
    struct held_address held = { 0 };
    enum embtier_err err;

    do
        err = socket_path_check(path, may_live, msg);
    while (err == EMBTIER_LOCKED && held_address_wait(&held, path));
    return err;
}

enum embtier_err listener_check(const struct address *address, bool may_be_remote, bool may_live,
                                struct err_msg *msg)
{
    _cleanup_(free_found) struct addrinfo *found = NULL;
    _cleanup_(closep) int fd = -1;

    if (address->kind == ADDRESS_UNIX_RPC)
        return check_patiently(address->path, may_live, msg);
    if (!address_is_tcp(address))
        return socket_path_check(address->path, may_live, msg);
    TRY(find_tcp(address, may_be_remote, &found, msg));
    return may_live ? EMBTIER_OK : bind_at(found, address, &fd, msg);
}

enum embtier_err listener_open(const struct address *address, mode_t mode, bool may_be_remote,
                               struct listener *ret_listener, struct err_msg *msg)
{
    enum embtier_err err;

    *ret_listener = (struct listener){ .fd = -1, .is_tls = address->kind == ADDRESS_TLS };
    if (address_is_tcp(address))
        err = listen_tcp(address, may_be_remote, ret_listener, msg);
    else
        err = listen_unix(address, mode, ret_listener, msg);
    if (err != EMBTIER_OK)
        listener_close(ret_listener);
    return err;
}

/* The file goes first: only when the socket is closed may its inode be used again. */
void listener_close(struct listener *listener)
{
    struct stat status;

    if (listener->path[0] != '\0' && lstat(listener->path, &status) == 0 &&
        status.st_dev == listener->device && status.st_ino == listener->inode)
        unlink(listener->path);
    listener->path[0] = '\0';
    closep(&listener->fd);
    listener->fd = -1;
}
