/* SPDX-License-Identifier: Apache-2.0 */
/* ticket_memory.h: the memory of tickets (ticket.h), reserved and touched at start.
 *
 * No session waits for this memory: the request that would give some back may stand behind the one
 * that asks. So there is no line as in request_memory.h. A user has at most its part (accounts.h).
 * A session has at most three quarters of the rest that the user's other sessions leave of that
 * part. So the user's next session finds some. The first ticket of a user may take the whole part.
 *
 * Rows that prefetches pin in the cache are counted here too: a row as often as there are
 * prefetches that pin it. Thread: any. */
#ifndef EMBTIER_DAEMON_ENGINE_MEMORY_TICKET_MEMORY_H
#define EMBTIER_DAEMON_ENGINE_MEMORY_TICKET_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct account;
struct accounts;
struct ticket_memory;

/* A session's part. It has its user's account; its bytes are 0 at first and at last. */
struct ticket_share {
    struct account *account;
    uint64_t bytes; /* under the memory's lock */
};

/* Limits ACCOUNT_TICKET_BYTES of @accounts to @bytes, and ACCOUNT_PINNED_BYTES to @pinned_bytes. */
MUST_CHECK enum embtier_err ticket_memory_new(uint64_t bytes, uint64_t pinned_bytes,
                                              struct accounts *accounts,
                                              struct ticket_memory **ret_memory,
                                              struct err_msg *msg);
void ticket_memory_free(struct ticket_memory *memory);
DEFINE_CLEANUP(struct ticket_memory, ticket_memory_free)

/* Returns memory aligned to a cache line. NULL: it is used up, or the session or its user would
 * have more than its part. *@ret_quota is then the user's quota, if that is the reason, else 0.
 * @share belongs to the memory until all is given back. */
void *ticket_memory_take(struct ticket_memory *memory, struct ticket_share *share, uint64_t bytes,
                         uint64_t *ret_quota);
void ticket_memory_give(struct ticket_memory *memory, void *place);
/* Counts @bytes of rows before they are pinned. False: the user would have more than its part,
 * which is *@ret_part bytes. *@ret_quota is as above. */
MUST_CHECK bool ticket_memory_pin(struct ticket_memory *memory, struct ticket_share *share,
                                  uint64_t bytes, uint64_t *ret_part, uint64_t *ret_quota);
void ticket_memory_unpin(struct ticket_memory *memory, struct ticket_share *share, uint64_t bytes);
/* More than this can never be had. */
uint64_t ticket_memory_largest(const struct ticket_memory *memory);

#endif
