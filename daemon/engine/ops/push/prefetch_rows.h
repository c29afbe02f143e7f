/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch_rows.h: pins of a prefetch that is over, given back on any lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_PUSH_PREFETCH_ROWS_H
#define EMBTIER_DAEMON_ENGINE_OPS_PUSH_PREFETCH_ROWS_H

#include "daemon/engine/ops/op.h"

/* On MESSAGE_UNPIN: pins are to be given back; some are in a turn. */
void pins_give_back(struct op_lane *lane, struct ticket_lane *part);
/* False: there are none. */
bool pins_turn(struct op_lane *lane);

#endif
