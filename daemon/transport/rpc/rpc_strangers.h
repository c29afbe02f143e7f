/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_strangers.h: a loop's connections that are no session: their clients have not said hello, or
 * have had their session.
 *
 * Anybody may connect, and say nothing. So these connections have places of their own, apart from
 * those of sessions. When the places are full, a new connection takes that of an old one, which
 * ends. A client that says hello at once is a stranger for a moment only.
 *
 * Strangers wait in lines by their address, and the longest line gives up its oldest. So many
 * connections from one address leave those from others alone. One host may have all IPv6 addresses
 * with the same first half, so only that half counts. A secret number assigns addresses to lines.
 *
 * All loops share the places. A loop keeps its share of them, whatever the others have.
 *
 * Thread: the loop's. */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_RPC_STRANGERS_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_RPC_STRANGERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/transport/strangers.h"

#define RPC_STRANGER_LINES 256

/* The user embeds it. */
struct rpc_stranger {
    struct rpc_stranger *next;
    struct rpc_stranger **link; /* NULL: it is in no line */
    uint32_t line;
    uint64_t number; /* older ones have lower numbers */
};

struct rpc_strangers {
    struct strangers *all; /* of all loops */
    uint32_t most, share;
    uint32_t count;
    uint64_t last_number;
    uint64_t secret;
    struct rpc_stranger_line {
        struct rpc_stranger *oldest;
        struct rpc_stranger **end;
        uint32_t count;
    } lines[RPC_STRANGER_LINES];
};

/* @most: places of all loops together; @loop_count: the loops. */
void rpc_strangers_init(struct rpc_strangers *strangers, struct strangers *all, uint32_t most,
                        uint32_t loop_count);
/* @fd is its connection, whose other side's address matters. */
void rpc_strangers_add(struct rpc_strangers *strangers, struct rpc_stranger *stranger, int fd);
/* Does nothing if it is in no line. */
void rpc_strangers_remove(struct rpc_strangers *strangers, struct rpc_stranger *stranger);
/* True if a further one needs the place of another. */
bool rpc_strangers_are_full(const struct rpc_strangers *strangers);
/* Returns the one that is to go first. There is one. */
struct rpc_stranger *rpc_strangers_first(const struct rpc_strangers *strangers);

static inline bool rpc_stranger_is_one(const struct rpc_stranger *stranger)
{
    return stranger->link != NULL;
}

#endif
