/* SPDX-License-Identifier: Apache-2.0 */
/* shm_channel.h: a channel (channel.h) in memory that the daemon and one client share: two memfds
 * and an event descriptor, which the client is sent. proto/shm_layout.h says what lies where.
 *
 * Memory comes in two steps, as a gigabyte takes a while: first all but the arena's pages, then
 * those, some at a time. Thread: one at a time; channel functions as channel.h says. */
#ifndef EMBTIER_DAEMON_TRANSPORT_SHM_SHM_CHANNEL_H
#define EMBTIER_DAEMON_TRANSPORT_SHM_SHM_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/engine/sessions/channel.h"

struct account;

struct shm_channel {
    struct channel channel; /* complete when all is reserved */
    struct shm_control *control;
    struct shm_completion *completions;
    struct shm_arena_head *arena;
    uint64_t arena_bytes;
    uint64_t reserved_bytes; /* of the arena: all, once it is made */
    uint64_t control_bytes;
    uint32_t slot_count;
    int control_fd;
    int arena_fd;
    int doorbell_fd;

    /* session_maker.c, while the memory is given back. */
    struct message freed_message; /* MESSAGE_CHANNEL_FREED */
    struct shm_channel *next_freed;
    bool is_nobodys;
    struct account *account; /* of the owner: in which the bytes count meanwhile */
};

/* The arena a client gets that asks for @wanted_bytes: never so small that the submissions would
 * not lie in it, whole pages. */
uint64_t shm_channel_arena_bytes(uint64_t wanted_bytes, uint32_t slot_count);

/* As much of a channel counts in its user's account: that arena, and what the control memory has
 * beyond SESSION_BYTES, which the configuration counts for each session. */
uint64_t shm_channel_counted_bytes(uint64_t wanted_bytes, uint32_t slot_count);

/* Makes the shared memory, but for the arena's bytes: control sealed against writing by others,
 * arena against resizing. NO_MEMORY, or the system's error. */
MUST_CHECK enum embtier_err shm_channel_prepare(uint64_t arena_bytes, uint32_t slot_count,
                                                uint32_t max_batch_rows,
                                                struct shm_channel **ret_channel,
                                                struct err_msg *msg);
/* Reserves as much more of the arena at most, and maps it when that was the last. AGAIN: there is
 * more. Else as shm_channel_prepare(). */
MUST_CHECK enum embtier_err shm_channel_reserve(struct shm_channel *channel, uint64_t bytes,
                                                struct err_msg *msg);
/* Both, whole. */
MUST_CHECK enum embtier_err shm_channel_new(uint64_t arena_bytes, uint32_t slot_count,
                                            uint32_t max_batch_rows,
                                            struct shm_channel **ret_channel, struct err_msg *msg);
/* Unmaps and closes the shared memory. If it is nobody's, of what others have of it the arena's
 * bytes are freed too, and read as zeros from then on. */
void shm_channel_release(struct shm_channel *channel, bool is_nobodys);
/* With its shared memory. */
void shm_channel_free(struct shm_channel *channel);
DEFINE_CLEANUP(struct shm_channel, shm_channel_free)

#endif
