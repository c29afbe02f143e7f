/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: a table as the running server knows it.
 *
 * Table structs are never freed and never move. A request may hold a stale handle, look at the
 * struct it leads to, and find another table in it, or none. The request tells that by the table
 * id, which is never used twice, after it has counted itself in `users`. So a drop sets the state
 * first, then waits until `users` is 0. From then on no lane touches the table. */
#ifndef EMBTIER_DAEMON_ENGINE_TABLES_TABLE_H
#define EMBTIER_DAEMON_ENGINE_TABLES_TABLE_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/spec/table_spec.h"

struct account;
struct row_array;
struct table_counts;

enum table_state {
    TABLE_FREE,     /* the struct holds no table */
    TABLE_CREATING, /* no requests yet */
    TABLE_LIVE,
    TABLE_DROPPING, /* no new requests; those under way end */
};

/* A lane's homes of rows (rows/home.h). */
enum home_kind {
    HOME_CACHE = EMBTIER_HOME_CACHE,
    HOME_ARRAY = EMBTIER_HOME_ARRAY,
    HOME_SPLIT = EMBTIER_HOME_SPLIT,
    HOME_OTHER_ARRAY,
    HOME_KINDS,
    HOME_MOVING = HOME_KINDS, /* no place of its own: a table on its way between two of these */
    HOME_SLOTS,
};

/* Returns the home of tables that are in this place of a lane. */
static inline enum embtier_home home_of_kind(enum home_kind kind)
{
    assert(kind < HOME_KINDS);
    return kind == HOME_OTHER_ARRAY ? EMBTIER_HOME_ARRAY : (enum embtier_home)kind;
}

enum table_move_state {
    TABLE_STAYS,
    TABLE_MOVES,     /* to another home */
    TABLE_MOVES_LAST /* the same; it is to be dropped, so the move ends as soon as it can */
};

struct table {
    _Atomic uint32_t state;    /* enum table_state */
    _Atomic uint32_t table_id; /* as on disk */
    _Atomic uint64_t users;    /* requests under way that name it */

    /* Constant while the state is CREATING, LIVE or DROPPING. */
    uint16_t index; /* the lanes' number for it */
    uint32_t weight_bytes;
    uint32_t state_bytes;
    uint32_t row_bytes;      /* weights and state */
    bool logged;             /* updates are in the log before they are answered */
    struct table_spec spec;  /* its step is that of when the struct was filled; for its home see
                                below */
    struct account *account; /* counts it (ACCOUNT_TABLES); open until the struct is free */

    /* Where its rows live in memory. A move changes these and the home in `spec`, under the tables'
     * lock (tables_move.c). */
    _Atomic uint8_t home;    /* enum home_kind (rows/home.h) */
    _Atomic uint8_t move;    /* enum table_move_state */
    struct row_array *array; /* of all its rows, or of the hot ones of a split table; else NULL */

    _Atomic uint64_t step; /* the greatest step of the pushes that have changed rows */

    /* Counters, for the metrics; relaxed. */
    _Atomic uint64_t updated_rows;     /* by SET; a row counts each time it is set */
    _Atomic uint64_t initial_bytes;    /* flushed while it was made with all its rows */
    _Atomic uint64_t rows_initialised; /* first touches: made by the generator instead of read */
    struct table_counts *counts;       /* by lane (table_counts.h) */
};

/* A handle names a table of this run of the server. The table id in it tells if the index still
 * holds the same table. */
static inline uint64_t table_handle(const struct table *table)
{
    return (uint64_t)atomic_load_explicit(&table->table_id, memory_order_relaxed) << 32 |
           table->index;
}

/* Counts a request in. False if the table is not @table_id any more, or is not live. *@ret_state is
 * then the state of that table; FREE if it is gone. */
static inline bool table_enter(struct table *table, uint32_t table_id, uint32_t *ret_state)
{
    uint32_t state;

    /* seq_cst, as where tables_drop.c reads `users`: either the request sees the state, or the drop
     * sees the request. */
    atomic_fetch_add(&table->users, 1);
    state = atomic_load(&table->state);
    if (state == TABLE_LIVE && atomic_load(&table->table_id) == table_id)
        return true;
    *ret_state = atomic_load(&table->table_id) == table_id ? state : TABLE_FREE;
    atomic_fetch_sub(&table->users, 1);
    return false;
}

/* To be called before the push of @step changes its first row. */
static inline void table_note_step(struct table *table, uint64_t step)
{
    uint64_t before = atomic_load_explicit(&table->step, memory_order_relaxed);

    while (before < step && !atomic_compare_exchange_weak(&table->step, &before, step))
        ;
}

static inline void table_leave(struct table *table)
{
    const uint64_t users = atomic_fetch_sub_explicit(&table->users, 1, memory_order_release);

    assert(users > 0);
    (void)users;
}

#endif
