/* SPDX-License-Identifier: Apache-2.0 */
/* shared_memory.h: the client's mappings of a session's memory (proto/shm_ring.h).
 *
 * The client checks size and seals of the server's descriptors before it touches their memory.
 * Memory that could shrink later would raise SIGBUS in the trainer. */
#ifndef EMBTIER_CLIENT_TRANSPORT_SHM_SHARED_MEMORY_H
#define EMBTIER_CLIENT_TRANSPORT_SHM_SHARED_MEMORY_H

#include <stdint.h>

#include "base/err.h"
#include "proto/control.pb-c.h"
#include "proto/frame.h"
#include "proto/shm_ring.h"

struct shared_memory {
    const struct shm_control *control; /* NULL: the session has control messages only */
    struct shm_arena_head *arena;
    uint64_t control_bytes; /* as mapped */
    uint64_t arena_bytes;   /* as mapped */
    uint32_t slot_count;
    char config_file[CONFIG_FILE_BYTES_MAX + 1]; /* the server's; "": unknown */
    uint32_t max_batch_rows;
    int doorbell;
};

void shared_memory_init(struct shared_memory *memory);
void shared_memory_close(struct shared_memory *memory);

/* Maps the memory that @hello announced from @fds (control, arena, doorbell), and takes them over
 * on success. It maps at most @arena_bytes_max of the arena. PROTOCOL, NO_MEMORY. */
MUST_CHECK enum embtier_err shared_memory_open(const Embtier__HelloReply *hello, int fds[3],
                                               uint64_t arena_bytes_max,
                                               struct shared_memory *ret_memory,
                                               struct err_msg *msg);

/* Replaces @memory by @fresh, with the arena at the same address, so that pointers into it stay
 * valid. Both have the same shape. The arena then has the bytes of @fresh. On failure both are as
 * before. */
MUST_CHECK enum embtier_err shared_memory_replace(struct shared_memory *memory,
                                                  struct shared_memory *fresh, struct err_msg *msg);

void shared_memory_ring(const struct shared_memory *memory); /* the doorbell */

/* Sleeps while a completion's sequence is @seen, at most @timeout_ns. May return early. */
void shared_memory_sleep(const struct op_completion *completion, uint32_t seen,
                         uint64_t timeout_ns);

#endif
