/* SPDX-License-Identifier: Apache-2.0 */
/* op_table.h: all operations, by their number on the wire. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_OP_TABLE_H
#define EMBTIER_DAEMON_ENGINE_OPS_OP_TABLE_H

#include <stdint.h>

struct op;

extern const struct op op_get;      /* get_set.c */
extern const struct op op_set;      /* get_set.c */
extern const struct op op_pool;     /* pooled_turns.c */
extern const struct op op_push;     /* push_turns.c */
extern const struct op op_release;  /* release.c */
extern const struct op op_prefetch; /* prefetch_turns.c */

/* Returns the operation with that number, or NULL. */
const struct op *op_of(uint32_t number);
/* Returns the greatest number. */
uint32_t op_last(void);

#endif
