/* SPDX-License-Identifier: Apache-2.0 */
/* peer_ids.h: the process at the other end of a Unix socket, as it was when it connected. Thread:
 * any. */
#ifndef EMBTIER_DAEMON_TRANSPORT_LISTEN_PEER_IDS_H
#define EMBTIER_DAEMON_TRANSPORT_LISTEN_PEER_IDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct peer_ids {
    uid_t uid;   /* -1: not known */
    pid_t pid;   /* 0: not known */
    gid_t *gids; /* its group first, then all others that it is in; malloced; NULL: not known */
    uint32_t gid_count;
};

/* Nothing is known of the peer of a socket that is no Unix socket. */
void peer_ids_of(int fd, struct peer_ids *ret_ids);

#endif
