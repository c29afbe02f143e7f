/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_memory.h: the account of what exports, imports and restores may have of memory together
 * (checkpoints.transfer_bytes). Each is put down with what it can come to before it takes any, and
 * is refused if that does not fit: nobody waits here, since the threads that work for all of them
 * would. Nothing is reserved. Thread: any. */
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

/* The part of one of them: 0 bytes before and after. */
struct transfer_share {
    struct account *account; /* opened for it: it may outlive its connection */
    uint64_t bytes;
};

/* Puts down @bytes for @what of user @uid, such as "an export of table 't'", in whole MiB; @share
 * is to be given back. BUSY: not now, as there is no room, or as a user who has something may have
 * three quarters of what others leave; TOO_LARGE: never. */
MUST_CHECK enum embtier_err transfer_memory_take(struct transfer_memory *memory, uid_t uid,
                                                 uint64_t bytes, const char *what,
                                                 struct transfer_share *share, struct err_msg *msg);
/* As if it were taken, and given back at once. */
MUST_CHECK enum embtier_err transfer_memory_probe(struct transfer_memory *memory, uid_t uid,
                                                  uint64_t bytes, const char *what,
                                                  struct err_msg *msg);
/* A share of 0 bytes is none. */
void transfer_memory_give(struct transfer_memory *memory, struct transfer_share *share);
uint64_t transfer_memory_used(struct transfer_memory *memory);

#endif
