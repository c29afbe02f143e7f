/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/listen/peer_origin.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* An address may have a scope, such as "%4294967295". */
#define HOST_BYTES (INET6_ADDRSTRLEN + 11)

_Static_assert(PEER_ADDRESS_BYTES >= HOST_BYTES + sizeof("[]:65535"), "all addresses fit");

void peer_address_of(int fd, struct peer_address *ret_address)
{
    struct sockaddr_storage at = { .ss_family = AF_UNIX };
    socklen_t bytes = sizeof(at);
    char host[HOST_BYTES], port[6];

    ret_address->text[0] = '\0';
    if (getpeername(fd, (struct sockaddr *)&at, &bytes) != 0 || at.ss_family == AF_UNIX ||
        getnameinfo((const struct sockaddr *)&at, bytes, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    (void)snprintf(ret_address->text, sizeof(ret_address->text),
                   strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

const char *peer_origin_write(struct peer_origin *buffer, const char *address, pid_t pid, uid_t uid)
{
    if (address[0] != '\0')
        (void)snprintf(buffer->text, sizeof(buffer->text), "from=\"%s\"", address);
    else if (uid == (uid_t)-1)
        (void)snprintf(buffer->text, sizeof(buffer->text), "from=\"?\"");
    else if (pid == 0)
        (void)snprintf(buffer->text, sizeof(buffer->text), "uid=%u", (unsigned)uid);
    else
        (void)snprintf(buffer->text, sizeof(buffer->text), "pid=%d uid=%u", (int)pid,
                       (unsigned)uid);
    return buffer->text;
}
