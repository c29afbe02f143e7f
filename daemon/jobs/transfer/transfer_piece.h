/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_piece.h: how many rows of an export or an import one turn of its user moves.
 *
 * All clients share the threads that do it, and a client chooses how long its request is. So a turn
 * is bounded in bytes and, because short rows cost more than their bytes, in rows. A turn takes 10
 * to 50 ms; the change to the next turn costs little in comparison. */
#ifndef EMBTIER_DAEMON_JOBS_TRANSFER_TRANSFER_PIECE_H
#define EMBTIER_DAEMON_JOBS_TRANSFER_TRANSFER_PIECE_H

#include <stdint.h>

#include "base/macros.h"

#define TRANSFER_PIECE_BYTES (8 * MIB) /* the client library's usual request */
#define TRANSFER_PIECE_ROWS  UINT32_C(65536)

/* Returns how many rows of @row_bytes, which include the id, a piece has; at least one. */
static inline uint32_t transfer_piece_rows(uint64_t row_bytes)
{
    return (uint32_t)MAX(MIN(TRANSFER_PIECE_BYTES / row_bytes, (uint64_t)TRANSFER_PIECE_ROWS),
                         UINT64_C(1));
}

#endif
