/* SPDX-License-Identifier: Apache-2.0 */
/* ticket_memory.h: the memory that tickets live in (ticket.h), reserved and touched at start.
 *
 * Nobody waits for some: what would make room may stand behind the request that asks. So there is
 * no line, as request_memory.h has one; a session gets as much as is there, but no session has more
 * than three quarters of it. Thread: any. */
#ifndef EMBTIER_DAEMON_TICKET_MEMORY_H
#define EMBTIER_DAEMON_TICKET_MEMORY_H

#include <stdint.h>

#include "base/err.h"

struct ticket_memory;

MUST_CHECK enum embtier_err ticket_memory_new(uint64_t bytes, struct ticket_memory **ret_memory,
                                              struct err_msg *msg);
void ticket_memory_free(struct ticket_memory *memory);
DEFINE_CLEANUP(struct ticket_memory, ticket_memory_free)

/* NULL: used up, or the session would have more than its part. @held is what it has, 0 at first and
 * the memory's until all is given back. Aligned to a cache line. */
void *ticket_memory_take(struct ticket_memory *memory, uint64_t *held, uint64_t bytes);
void ticket_memory_give(struct ticket_memory *memory, void *place);
/* More than this is never to be had. */
uint64_t ticket_memory_largest(const struct ticket_memory *memory);

#endif
