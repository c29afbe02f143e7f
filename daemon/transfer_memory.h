/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_memory.h: the account of what exports, imports and restores may have of memory together
 * (checkpoints.transfer_bytes). Each is put down with what it can come to before it takes any, and
 * is refused if that does not fit: nobody waits here, since the threads that work for all of them
 * would. Nothing is reserved. Thread: any. */
#ifndef EMBTIER_DAEMON_TRANSFER_MEMORY_H
#define EMBTIER_DAEMON_TRANSFER_MEMORY_H

#include <stdint.h>

#include "base/err.h"

struct transfer_memory;

MUST_CHECK enum embtier_err transfer_memory_new(uint64_t bytes, struct transfer_memory **ret_memory,
                                                struct err_msg *msg);
/* NULL is allowed. */
void transfer_memory_free(struct transfer_memory *memory);
DEFINE_CLEANUP(struct transfer_memory, transfer_memory_free)

/* Puts down @bytes for @what, such as "an export of table 't'", in whole MiB: *@taken, 0 before, is
 * to be given back. BUSY: not now; TOO_LARGE: never. */
MUST_CHECK enum embtier_err transfer_memory_take(struct transfer_memory *memory, uint64_t bytes,
                                                 const char *what, uint64_t *taken,
                                                 struct err_msg *msg);
/* *@taken is 0 then; it may be before. */
void transfer_memory_give(struct transfer_memory *memory, uint64_t *taken);
uint64_t transfer_memory_used(const struct transfer_memory *memory);

#endif
