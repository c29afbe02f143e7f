/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/listen/peer_ids.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/macros.h"

/* Linux 4.13 */
#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

/* Asks for the number of groups first. They do not change: the system has noted them. */
static void find_groups(int fd, gid_t gid, struct peer_ids *ids)
{
    socklen_t bytes = 0;
    gid_t *gids;

    (void)getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes);
    gids = malloc(sizeof(gid) + bytes);
    if (!gids)
        return;
    gids[0] = gid;
    if (bytes > 0 && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, gids + 1, &bytes) != 0)
        bytes = 0;
    ids->gids = gids;
    ids->gid_count = 1 + bytes / (socklen_t)sizeof(gid);
}

void peer_ids_of(int fd, struct peer_ids *ret_ids)
{
    struct ucred credentials = { .pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1 };
    socklen_t bytes = sizeof(credentials);

    *ret_ids = (struct peer_ids){ .uid = (uid_t)-1 };
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0 ||
        credentials.uid == (uid_t)-1)
        return;
    ret_ids->uid = credentials.uid;
    ret_ids->pid = credentials.pid;
    find_groups(fd, credentials.gid, ret_ids);
}
