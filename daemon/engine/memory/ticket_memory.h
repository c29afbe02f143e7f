/* SPDX-License-Identifier: Apache-2.0 */
/* ticket_memory.h: the memory that tickets live in (ticket.h), reserved and touched at start.
 *
 * Nobody waits for some: what would make room may stand behind the request that asks. So there is
 * no line, as request_memory.h has one. A user has at most its part (accounts.h). A session has at
 * most three quarters of what the user's other sessions leave of that, so that the next of them
 * finds some; the first ticket of a user may take the whole part.
 *
 * Rows that tickets of prefetches keep in the cache are counted here too: a row as often as there
 * are prefetches that pin it. Thread: any. */
#ifndef EMBTIER_DAEMON_ENGINE_MEMORY_TICKET_MEMORY_H
#define EMBTIER_DAEMON_ENGINE_MEMORY_TICKET_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct account;
struct accounts;
struct ticket_memory;

/* A session's part: its user's account, and 0 bytes at first and at last. */
struct ticket_share {
    struct account *account;
    uint64_t bytes; /* by the memory's lock */
};

/* Limits ACCOUNT_TICKET_BYTES of @accounts, and ACCOUNT_PINNED_BYTES to @pinned_bytes. */
MUST_CHECK enum embtier_err ticket_memory_new(uint64_t bytes, uint64_t pinned_bytes,
                                              struct accounts *accounts,
                                              struct ticket_memory **ret_memory,
                                              struct err_msg *msg);
void ticket_memory_free(struct ticket_memory *memory);
DEFINE_CLEANUP(struct ticket_memory, ticket_memory_free)

/* NULL: used up, or the session or its user would have more than its part. @share is the memory's
 * until all is given back. Aligned to a cache line. */
void *ticket_memory_take(struct ticket_memory *memory, struct ticket_share *share, uint64_t bytes);
void ticket_memory_give(struct ticket_memory *memory, void *place);
/* Counts rows of @bytes that are to be pinned. False: its user would have more than its part,
 * *@ret_part bytes. */
MUST_CHECK bool ticket_memory_pin(struct ticket_memory *memory, struct ticket_share *share,
                                  uint64_t bytes, uint64_t *ret_part);
void ticket_memory_unpin(struct ticket_memory *memory, struct ticket_share *share, uint64_t bytes);
/* More than this is never to be had. */
uint64_t ticket_memory_largest(const struct ticket_memory *memory);

#endif
