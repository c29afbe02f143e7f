/* SPDX-License-Identifier: Apache-2.0 */
/* get_set.h: GET and SET. Waves of pooled lookups look rows up as a GET does. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_GET_SET_H
#define EMBTIER_DAEMON_ENGINE_OPS_GET_SET_H

#include "daemon/engine/rows/row_op.h"

/* Copies rows to where the request's segments say. */
extern const struct row_op row_op_get;

#endif
