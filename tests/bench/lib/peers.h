/* SPDX-License-Identifier: Apache-2.0 */
/* peers.h: Redis and memcached as references. Each is started on a Unix socket in a directory of
 * its own, or Redis on TCP, and filled with rows. A client that does as little as possible asks it
 * for batches.
 *
 * A batch of ids is made into a command beforehand; several may be sent before the first reply
 * is received. Thread: one per peer. A failure ends the program, and the started process with
 * it. */
#ifndef EMBTIER_TESTS_BENCH_LIB_PEERS_H
#define EMBTIER_TESTS_BENCH_LIB_PEERS_H

#include <stdint.h>
#include <sys/types.h>

enum peer_kind { PEER_REDIS, PEER_MEMCACHED, PEER_REDIS_TCP };

struct peer {
    enum peer_kind kind;
    pid_t pid;
    uint16_t port; /* of the servers' host, or 0 */
    int fd;
    uint32_t row_bytes;
    char directory[64];
    char options[256]; /* the options it was started with */
    char *buffer;      /* bytes received and not used yet: [first, end) */
    uint64_t first, end;
};

struct peer_command {
    char *bytes;
    uint64_t count;
    uint32_t rows;
};

/* @memory_bytes: the memory that memcached may use. */
void peer_start(struct peer *peer, enum peer_kind kind, uint32_t row_bytes, uint64_t memory_bytes);
void peer_stop(struct peer *peer);
/* Makes another connection to a peer that was started, for another thread. */
void peer_connect(const struct peer *started, struct peer *ret_peer);
void peer_disconnect(struct peer *peer);

/* Stores rows for ids [0, rows); the first eight bytes of each are its id. */
void peer_fill(struct peer *peer, uint64_t rows);

struct peer_command peer_get_command(const struct peer *peer, const uint64_t *ids, uint32_t count);
void peer_send(struct peer *peer, const struct peer_command *command);
/* Copies the rows of the oldest sent command to @dest; each must be there. */
void peer_receive(struct peer *peer, const struct peer_command *command, char *dest);

#endif
