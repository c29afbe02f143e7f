/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_plan.h: the placement plan in force, and the next one (embtier.h).
 *
 * A program that applies a plan begins it, moves the tables (embtier_table_move()), and ends it.
 * The server keeps generation, hash and number of tables, and lets one connection at a time apply a
 * plan. It does not know the plan's contents. */
#ifndef EMBTIER_PLAN_H
#define EMBTIER_PLAN_H

#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

struct embtier_plan_info {
    uint64_t generation;          /* of the plan in force; 0: no plan is in force */
    uint64_t hash;                /* of the same plan, as given to embtier_plan_begin() */
    uint64_t applied_ms;          /* time at which it came into force: milliseconds since 1970 */
    uint64_t applying_pid;        /* the process that applies a plan now; 0: none */
    uint64_t applying_generation; /* of the plan that it applies */
    uint32_t tables;              /* of the plan in force; 0: unknown */
};

/* Returns the plan in force, and the one that a connection applies now. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_plan_show(struct embtier *server, struct embtier_plan_info *ret_info);
/* Begins to apply a plan. Until embtier_plan_end() or the end of this connection, other connections
 * get BUSY. @generation: at least 1. @hash: a hash of the plan, which other plans do not have.
 * @tables: how many tables the plan has; 0: unknown.
 * MISMATCH: the plan in force has a greater generation, or the same one and another hash. @ret_info
 * may be NULL. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_plan_begin(struct embtier *server, uint64_t generation, uint64_t hash, uint32_t tables,
                   struct embtier_plan_info *ret_info);
/* Puts the plan that this connection has begun in force. INVALID: it has begun none. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_plan_end(struct embtier *server);

#ifdef __cplusplus
}
#endif
#endif
