/* SPDX-License-Identifier: Apache-2.0 */
/* home_moving.h: the home of a table whose rows go from one home to another, on one lane.
 *
 * Each row is in one of the two homes, or in none, and never in both. A call looks for rows in the
 * old home, and for those that are not there in the new one. It leaves them where they are: only
 * rows_move_step() moves rows, between two turns and outside of epochs. Rows that come from
 * elsewhere go into the new home. So a row keeps its marks until it moves, and each home saves and
 * evicts the rows that it has. No row has pins by then.
 *
 * Thread: the lane. docs/internals/moves.md has the whole move. */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_HOME_MOVING_H
#define EMBTIER_DAEMON_ENGINE_ROWS_HOME_MOVING_H

#include "daemon/engine/rows/home.h"
#include "daemon/engine/tables/tables_reserved.h"

#define HOME_CHUNK 512 /* most rows of a call, but for those that find rows or have used them */

/* Parts of a move that tests must notice if they are missing. tests/unit/engine/ops builds copies
 * of the source files without one, by -DWITHOUT_MOVE_PART=..., and its test must fail. */
enum home_move_part {
    MOVE_WHOLE,
    MOVE_DIRTY,    /* a row takes its dirty mark along */
    MOVE_EPOCH,    /* rows stay where they are during an epoch */
    MOVE_OLD_ROWS, /* rows are looked for in the old home */
    MOVE_NEW_ROWS, /* and in the new one */
    MOVE_WALK,     /* hot rows leave the cache until a walk has found none */
};
#ifndef WITHOUT_MOVE_PART
#define WITHOUT_MOVE_PART MOVE_WHOLE
#endif
#define MOVE_HAS(part) (WITHOUT_MOVE_PART != (part))

enum home_move_stage {
    HOME_MOVE_NONE,
    HOME_MOVE_WAITS,   /* the old home serves the table */
    HOME_MOVE_GOES,    /* both do */
    HOME_MOVE_ARRIVED, /* the new one does; the old one has no rows of it */
};

struct home_move {
    uint16_t table;
    enum home_move_stage stage;
    const struct home *from;
    const struct home *to;
    const struct home *hot; /* @from or @to, if the other one has the same cold rows (struct
                               home_hot_ops): then only hot rows move; NULL: all do */
    uint64_t cursor;        /* of row_cache_give() */
    bool has_given;         /* since the cursor was 0 */
    bool is_walked;         /* the home of the cold rows has given all hot rows that it had */
};

struct home_moving {
    struct home_move moves[HOME_MOVES_MAX];
};

/* Returns the move of a table, or NULL. */
struct home_move *home_move_of(struct home_moving *moving, uint16_t table);

/* Its `rows` is a struct home_moving. Has no functions that work on all tables of a home: the two
 * homes do that. */
extern const struct home_ops home_moving_ops;

#endif
