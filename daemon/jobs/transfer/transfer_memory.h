/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_memory.h: counts the memory that exports, imports and restores may have together
 * (checkpoints.transfer_bytes). Each one counts the most that it can need before it takes any, and
 * is refused if that does not fit. No transfer waits here, because the threads that serve all of
 * them would wait too. Nothing is reserved. Thread: any. */
#ifndef EMBTIER_DAEMON_JOBS_TRANSFER_TRANSFER_MEMORY_H
#define EMBTIER_DAEMON_JOBS_TRANSFER_TRANSFER_MEMORY_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct account;
struct accounts;
struct transfer_memory;

/* Limits ACCOUNT_TRANSFER_BYTES of @accounts. */
MUST_CHECK enum embtier_err transfer_memory_new(uint64_t bytes, struct accounts *accounts,
                                                struct transfer_memory **ret_memory,
                                                struct err_msg *msg);
/* NULL is allowed. */
void transfer_memory_free(struct transfer_memory *memory);
DEFINE_CLEANUP(struct transfer_memory, transfer_memory_free)

/* The share of one of them: 0 bytes before it is taken and after it is given back. */
struct transfer_share {
    struct account *account; /* opened for the share, which may outlive its connection */
    uint64_t bytes;
};

/* Counts @bytes, in whole MiB, for @what of @user (accounts.h), such as "an export of table 't'".
 * The caller gives @share back. BUSY: there is no room now, or the user has some already and would
 * have more than three quarters of what others leave. TOO_LARGE: it never fits. */
MUST_CHECK enum embtier_err transfer_memory_take(struct transfer_memory *memory, uint64_t user,
                                                 uint64_t bytes, const char *what,
                                                 struct transfer_share *share, struct err_msg *msg);
/* Takes the bytes and gives them back at once, to see if there is room. */
MUST_CHECK enum embtier_err transfer_memory_probe(struct transfer_memory *memory, uint64_t user,
                                                  uint64_t bytes, const char *what,
                                                  struct err_msg *msg);
/* Does nothing for a share of 0 bytes. */
void transfer_memory_give(struct transfer_memory *memory, struct transfer_share *share);
uint64_t transfer_memory_used(struct transfer_memory *memory);

#endif
