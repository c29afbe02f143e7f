/* SPDX-License-Identifier: Apache-2.0 */
/* peer_origin.h: where a client comes from, for the log. A host that guesses tokens is found by its
 * address, and a process of this host by its number and user. Thread: any. */
#ifndef EMBTIER_DAEMON_TRANSPORT_LISTEN_PEER_ORIGIN_H
#define EMBTIER_DAEMON_TRANSPORT_LISTEN_PEER_ORIGIN_H

#include <sys/types.h>

#define PEER_ADDRESS_BYTES 72

/* ADDRESS:PORT, [ADDRESS]:PORT for IPv6; "": it does not come over TCP. */
struct peer_address {
    char text[PEER_ADDRESS_BYTES];
};

void peer_address_of(int fd, struct peer_address *ret_address);

/* Pairs of a log line: from="ADDRESS:PORT", or pid=N uid=N if @address is "". A @pid of 0 is not
 * known. They live as long as
 * the caller's block: PEER_ORIGIN(address, pid, uid). */
struct peer_origin {
    char text[sizeof(struct peer_address) + 32];
};
const char *peer_origin_write(struct peer_origin *buffer, const char *address, pid_t pid,
                              uid_t uid);
#define PEER_ORIGIN(address, pid, uid)                                                             \
    peer_origin_write(&(struct peer_origin){ { 0 } }, (address), (pid), (uid))

#endif
