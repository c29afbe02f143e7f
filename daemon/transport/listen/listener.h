/* SPDX-License-Identifier: Apache-2.0 */
/* listener.h: sockets that listen at an address (base/net/address.h). Thread: any. */
#ifndef EMBTIER_DAEMON_TRANSPORT_LISTEN_LISTENER_H
#define EMBTIER_DAEMON_TRANSPORT_LISTEN_LISTENER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/net/address.h"

struct listener {
    int fd; /* -1: closed */
    bool is_tls;
    /* The file of a Unix socket; the path is "" otherwise. */
    char path[ADDRESS_PATH_MAX + 1];
    dev_t device;
    ino_t inode;
    /* As it listens: with the port that the system chose. */
    char text[ADDRESS_HOST_MAX + 32];
};

/* @mode is that of a Unix socket's file. @may_be_remote: other hosts may reach it. INVALID: they
 * could, and may not. The system's error: another program has the address. */
MUST_CHECK enum embtier_err listener_open(const struct address *address, mode_t mode,
                                          bool may_be_remote, struct listener *ret_listener,
                                          struct err_msg *msg);
/* Takes a Unix socket that listens at @path already (handed_socket.h); its file is another
 * program's and stays. */
MUST_CHECK enum embtier_err listener_take(const char *path, int fd, struct listener *ret_listener,
                                          struct err_msg *msg);
/* Checks that listener_open() would succeed, and leaves nothing behind. @may_live: another program
 * may have the address, as a server that runs has. */
MUST_CHECK enum embtier_err listener_check(const struct address *address, bool may_be_remote,
                                           bool may_live, struct err_msg *msg);
/* Closes the socket, if it is still open, and removes its file, unless that is another server's by
 * now. */
void listener_close(struct listener *listener);

#endif
