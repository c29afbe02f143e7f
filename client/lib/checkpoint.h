/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h: what exports need to know of a checkpoint. Thread: the connection's. */
#ifndef EMBTIER_CLIENT_LIB_CHECKPOINT_H
#define EMBTIER_CLIENT_LIB_CHECKPOINT_H

#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"

struct embtier;

/* Finds the trainer's step of a checkpoint. embtier_checkpoint_show() also names its tables, so
 * only a user that is granted all tables may call that; this is for any user. NOT_FOUND, and errors
 * of the connection. */
MUST_CHECK enum embtier_err checkpoint_step(struct embtier *server, uint64_t id, int *ret_has_step,
                                            uint64_t *ret_step);

#endif
