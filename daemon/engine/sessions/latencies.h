/* SPDX-License-Identifier: Apache-2.0 */
/* latencies.h: how long requests took, by operation and transport.
 *
 * The time of a request begins when its home lane takes it, that is, first looks at it in the ring.
 * It ends when a lane is about to publish the answer. It includes a wait for memory, for a
 * checkpoint's gate and for other sessions' turns. It leaves out the time before: in the ring
 * behind other requests, and on a network. A request whose client is gone has no answer, and does
 * not count.
 *
 * Each lane counts the requests that it answers. Thread: the lane; any thread reads. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_LATENCIES_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_LATENCIES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/latency.h"
#include "proto/ops.h"

enum transport_kind {
    TRANSPORT_SHM,
    TRANSPORT_UNIX_RPC,
    TRANSPORT_TCP,
    TRANSPORT_TLS,
    TRANSPORT_KINDS
};
/* "get" */
const char *latency_op_word(uint32_t op);
/* "shm" */
const char *transport_word(enum transport_kind transport);

#define LATENCY_OPS    (OP_LAST + 1) /* 0: refused before its operation was known */
#define LATENCY_SERIES (LATENCY_OPS * TRANSPORT_KINDS)

struct latencies {
    struct latency of[LATENCY_OPS][TRANSPORT_KINDS];
};

struct latency_series {
    const char *op, *transport;
    const struct latency *latency; /* of a copy: it changes no more */
};
/* Finds the next series that has counted something. *@place is 0 at first. False: there is none. */
bool latencies_next(const struct latencies *latencies, uint32_t *place,
                    struct latency_series *ret_series);

/* A request under way. The home lane writes it, and the lane that answers reads it. */
struct request_time {
    uint64_t taken_ns;
    uint64_t started_ns; /* lanes were handed its first rows; 0: not yet */
    uint32_t op;         /* 0: not known yet */
    uint32_t rows;       /* that it names; of a push with a ticket, bags */
    /* Any lane: the longest time for which one lane's part of it waited for SSD alone, with all
     * other rows of the part looked up. */
    _Atomic uint64_t ssd_ns;
};

#endif
