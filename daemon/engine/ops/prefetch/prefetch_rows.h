/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch_rows.h: pins the rows of a prefetch, and gives back the pins of an ended one, on any
 * lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_PREFETCH_PREFETCH_ROWS_H
#define EMBTIER_DAEMON_ENGINE_OPS_PREFETCH_PREFETCH_ROWS_H

#include "daemon/engine/ops/op.h"

/* The work on rows of a prefetch's wave. */
extern const struct row_op row_op_pin;

/* Gives back some pins of ended prefetches (message_unpin). False: there are none. */
bool pins_turn(struct op_lane *lane);

#endif
