/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_output.h: frames on their way to a client.
 *
 * An output is a head and a message in a small buffer of its own, then spans of a region, which are
 * sent from where they lie. A line of outputs is sent in order, several with one call of the
 * system. Thread: the loop's. */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_RPC_OUTPUT_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_RPC_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "proto/rpc_frame.h"

/* A DONE has at most 7 numbers of 10 bytes with their tags. */
#define RPC_OUTPUT_MESSAGE_BYTES 96

struct rpc_output {
    struct rpc_output *next;
    void (*sent)(struct rpc_output *output); /* all of it was given to the system, or never will */
    uint8_t bytes[RPC_HEAD_BYTES + RPC_OUTPUT_MESSAGE_BYTES];
    size_t byte_count;
    const uint8_t *more; /* bytes behind these, instead of spans; or NULL */
    size_t more_bytes;
    const uint8_t *region;
    const uint64_t *spans; /* pairs of offset and bytes */
    size_t span_numbers;
    /* How much of it has been sent. */
    uint64_t bytes_sent;
    uint64_t bytes_in_all;
};

struct rpc_outputs {
    struct rpc_output *first;
    struct rpc_output **end;
};

void rpc_outputs_init(struct rpc_outputs *line);
/* Adds one whose parts are set. */
void rpc_outputs_add(struct rpc_outputs *line, struct rpc_output *output);
/* Fills in the next bytes to send. Returns the number of buffers; 0: there are none. */
uint32_t rpc_outputs_next(const struct rpc_outputs *line, struct iovec *ret_buffers, uint32_t most);
/* Notes that @bytes of these were sent. Calls sent() of those that are over, which may add others.
 */
void rpc_outputs_sent(struct rpc_outputs *line, uint64_t bytes);
/* Takes all out. */
void rpc_outputs_drop(struct rpc_outputs *line);

static inline bool rpc_outputs_are_empty(const struct rpc_outputs *line)
{
    return !line->first;
}

#endif
