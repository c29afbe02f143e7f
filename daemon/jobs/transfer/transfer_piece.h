/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_piece.h: how many rows of an export or an import are moved in one turn of its user.
 *
 * The threads that do it are shared by all clients, and a client says how long its request is: so
 * a turn is bounded, in bytes and, as short rows cost more than their bytes, in rows. A turn takes
 * some 10 to 50 ms, beside which the way to the next is nothing. */
#ifndef EMBTIER_DAEMON_JOBS_TRANSFER_TRANSFER_PIECE_H
#define EMBTIER_DAEMON_JOBS_TRANSFER_TRANSFER_PIECE_H

#include <stdint.h>

#include "base/macros.h"

#define TRANSFER_PIECE_BYTES (8 * MIB) /* the client library's usual request */
#define TRANSFER_PIECE_ROWS  UINT32_C(65536)

/* How many rows of @row_bytes, the id included, a piece has; at least one. */
static inline uint32_t transfer_piece_rows(uint64_t row_bytes)
{
    return (uint32_t)MAX(MIN(TRANSFER_PIECE_BYTES / row_bytes, (uint64_t)TRANSFER_PIECE_ROWS),
                         UINT64_C(1));
}

#endif
