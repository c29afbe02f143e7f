/* SPDX-License-Identifier: Apache-2.0 */
/* shared_memory.h: a session's channel in memory that the client shares with the daemon
 * (proto/shm_ring.h).
 *
 * The client checks size and seals of the server's descriptors before it touches their memory.
 * Memory that could shrink later would raise SIGBUS in the trainer. Thread: the connection's. */
#ifndef EMBTIER_CLIENT_TRANSPORT_SHM_SHARED_MEMORY_H
#define EMBTIER_CLIENT_TRANSPORT_SHM_SHARED_MEMORY_H

#include <stdint.h>

#include "base/err.h"
#include "client/transport/client_channel.h"
#include "proto/control.pb-c.h"

/* Maps the memory that @hello announced from @fds (control, arena, doorbell), and takes them over
 * on success. It maps at most @arena_bytes_max of the arena. PROTOCOL, VERSION, NO_MEMORY, or the
 * system's error. */
MUST_CHECK enum embtier_err shared_memory_open(const Embtier__HelloReply *hello, int fds[3],
                                               uint64_t arena_bytes_max,
                                               struct client_channel **ret_channel,
                                               struct err_msg *msg);

#endif
