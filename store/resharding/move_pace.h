/* SPDX-License-Identifier: Apache-2.0 */
/* move_pace.h: how fast rows are moved. Thread: the one that moves them. */
#ifndef EMBTIER_STORE_RESHARDING_MOVE_PACE_H
#define EMBTIER_STORE_RESHARDING_MOVE_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct database;

#define MOVE_ROW_BYTES_MIN UINT64_C(512)

struct move_pace {
    _Atomic uint64_t rate_bytes; /* a second, read or written; 0: no limit */
    /* Returns an error if the job is to end; may be NULL. */
    enum embtier_err (*look)(void *context, struct err_msg *msg);
    void *context;
    _Atomic uint64_t moved_bytes; /* all together */
    _Atomic uint64_t moved_rows;
    _Atomic uint64_t stirred_at_ns; /* when it last read a row or made a step */
    uint64_t free_at_ns;            /* when the bytes so far are paid for */
};

/* Returns an error if the job is to end. */
MUST_CHECK enum embtier_err move_pace_look(const struct move_pace *pace, struct err_msg *msg);
/* Returns what a row of @bytes counts: a short one costs the processor as much as one of
 * MOVE_ROW_BYTES_MIN. */
static inline uint64_t move_pace_due(uint64_t bytes)
{
    return bytes > MOVE_ROW_BYTES_MIN ? bytes : MOVE_ROW_BYTES_MIN;
}
/* Waits until a row of @bytes more is due, or several that count as many. An error: the job is to
 * end. */
MUST_CHECK enum embtier_err move_pace_take(struct move_pace *pace, uint64_t bytes,
                                           struct err_msg *msg);
/* Notes that the job makes headway. */
void move_pace_stir(struct move_pace *pace);
/* Waits a little, for a database that takes no rows now. */
MUST_CHECK enum embtier_err move_pace_rest(const struct move_pace *pace, struct err_msg *msg);
/* Waits while the database is far behind with flushes or compactions: clients come first. */
MUST_CHECK enum embtier_err move_pace_give_way(const struct move_pace *pace,
                                               struct database *database, struct err_msg *msg);

#endif
