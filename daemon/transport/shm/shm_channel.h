/* SPDX-License-Identifier: Apache-2.0 */
/* shm_channel.h: a channel (channel.h) in memory that the daemon and one client share. The client
 * is sent two memfds and an event descriptor. proto/shm_ring.h defines the layout.
 *
 * Memory is made in two steps, because a gigabyte takes a while: first all except the arena's
 * pages, then those, some at a time. Thread: one at a time; channel functions as channel.h says. */
#ifndef EMBTIER_DAEMON_TRANSPORT_SHM_SHM_CHANNEL_H
#define EMBTIER_DAEMON_TRANSPORT_SHM_SHM_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/transport/transport.h"
#include "proto/shm_ring.h"

/* The transport of such channels. */
extern const struct transport shm_transport;

struct shm_channel {
    struct transport_channel base;
    struct shm_control *control;
    struct op_completion *completions;
    struct shm_arena_head *arena;
    uint64_t arena_bytes;
    uint64_t reserved_bytes; /* of the arena: all, once it is made */
    uint64_t control_bytes;
    uint32_t slot_count;
    int control_fd;
    int arena_fd;
    int doorbell_fd; /* an event descriptor, watched edge-triggered and never read */
};

/* Returns the size of the arena for a client that asks for @wanted_bytes: whole pages, and always
 * enough for the submissions. */
uint64_t shm_channel_arena_bytes(uint64_t wanted_bytes, uint32_t slot_count);

/* Returns the bytes of a channel that count in its user's account: the arena, and the control
 * memory beyond SESSION_BYTES. The configuration counts SESSION_BYTES for each session. */
uint64_t shm_channel_counted_bytes(uint64_t wanted_bytes, uint32_t slot_count);

/* Makes a whole channel at once. */
MUST_CHECK enum embtier_err shm_channel_new(uint64_t arena_bytes, uint32_t slot_count,
                                            uint32_t max_batch_rows,
                                            struct shm_channel **ret_channel, struct err_msg *msg);
/* Frees the channel with its shared memory. */
void shm_channel_free(struct shm_channel *channel);
DEFINE_CLEANUP(struct shm_channel, shm_channel_free)

#endif
