/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch_rows.h: pins the rows of a prefetch, and gives back the pins of an ended one, on any
 * lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_PREFETCH_PREFETCH_ROWS_H
#define EMBTIER_DAEMON_ENGINE_OPS_PREFETCH_PREFETCH_ROWS_H

#include "daemon/engine/ops/op.h"

/* The work on rows of a prefetch's wave. */
extern const struct row_op row_op_pin;

/* On MESSAGE_UNPIN: queues pins to be given back, some per turn. */
void pins_give_back(struct op_lane *lane, struct ticket_lane *part);
/* Gives back some pins. False: there are none. */
bool pins_turn(struct op_lane *lane);

#endif
