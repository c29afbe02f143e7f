/* SPDX-License-Identifier: Apache-2.0 */
/* row_move.c: moves a table's rows from one home to another, some at a time.
 *
 * A step takes rows out of the old home and puts them into the new one, with their dirty mark. A
 * row for which the cache has no place goes into the write queue if it is dirty. If it is clean,
 * SSD or the queue has it, and it is forgotten. Rows stay where they are during an epoch: a
 * checkpoint walks over one home after the other, and would miss a row that went from one to be
 * walked to one that was. So no row is old when it moves, and its mark in the new home is that of
 * rows that change now.
 *
 * Between a home whose hot rows lie apart and the home of its cold rows, only hot rows move (struct
 * home_hot_ops). The cold ones stay where both homes find them: in the cache, if one is a split. */
#include <assert.h>

#include "base/macros.h"
#include "daemon/engine/rows/rows.h"

_Static_assert(ROWS_CHUNK <= HOME_CHUNK && READ_JOB_ROWS <= HOME_CHUNK,
               "home_moving.c handles all rows of a call together");

/* Sets or ids that a step looks at, for each row that it may move. */
#define STEP_PLACES 16

/* The only state changes of a move. */
static void set_stage(struct home_move *move, enum home_move_stage stage)
{
    assert((move->stage == HOME_MOVE_NONE && stage == HOME_MOVE_WAITS) ||
           (move->stage == HOME_MOVE_WAITS && stage != HOME_MOVE_WAITS) ||
           (move->stage == HOME_MOVE_GOES && stage == HOME_MOVE_ARRIVED) ||
           (move->stage == HOME_MOVE_ARRIVED && stage != HOME_MOVE_WAITS));
    move->stage = stage;
}

static struct home_move *move_at(struct rows *rows, const struct table *table)
{
    struct home_move *const move = home_move_of(&rows->moving, table->index);

    assert(move);
    return move;
}

/* Returns the home of the hot rows if the other one has the cold rows of the same tables. */
static const struct home *hot_of(const struct rows *rows, enum home_kind from, enum home_kind to)
{
    const struct home_hot_ops *const from_hot = rows->homes[from].ops->hot;
    const struct home_hot_ops *const to_hot = rows->homes[to].ops->hot;

    if (from_hot && from_hot->others == to)
        return &rows->homes[from];
    return to_hot && to_hot->others == from ? &rows->homes[to] : NULL;
}

/* True if the hot rows come from among the cold ones. */
static bool becomes_hot(const struct home_move *move)
{
    return move->hot && move->hot == move->to;
}

/* Makes the table known to its new home, unless that knows its cold rows. */
static enum embtier_err add(const struct home_move *move, const struct table *table,
                            struct row_array *array)
{
    if (!move->hot)
        return move->to->ops->add(move->to->rows, table, array);
    return becomes_hot(move) ? move->hot->ops->hot->add(move->hot->rows, table->index, array)
                             : EMBTIER_OK;
}

enum embtier_err rows_move_prepare(struct rows *rows, const struct table *table,
                                   enum home_kind from, enum home_kind to, struct row_array *array)
{
    struct home_move *move;
    uint32_t m = 0;

    assert(from != to && from < HOME_KINDS && to < HOME_KINDS);
    while (m < HOME_MOVES_MAX && rows->moving.moves[m].stage != HOME_MOVE_NONE)
        m++;
    if (m == HOME_MOVES_MAX)
        return EMBTIER_BUSY;
    move = &rows->moving.moves[m];
    *move = (struct home_move){ .table = table->index,
                                .stage = HOME_MOVE_NONE,
                                .from = &rows->homes[from],
                                .to = &rows->homes[to],
                                .hot = hot_of(rows, from, to) };
    TRY(add(move, table, array));
    set_stage(move, HOME_MOVE_WAITS);
    return EMBTIER_OK;
}

uint64_t rows_move_pinned(struct rows *rows, const struct table *table)
{
    (void)move_at(rows, table);
    return home_moving_ops.pinned(&rows->moving, table->index);
}

void rows_move_start(struct rows *rows, const struct table *table)
{
    assert(rows_move_pinned(rows, table) == 0);
    set_stage(move_at(rows, table), HOME_MOVE_GOES);
}

struct row_taking {
    struct rows *rows;
    struct table *table;
    const struct home *to;
    const struct home *hot;
    bool is_full;
};

static bool is_hot(void *context, const struct row_ref *ref)
{
    const struct row_taking *const taking = context;

    return taking->hot->ops->hot->is_hot(taking->hot->rows, taking->table->index, ref);
}

static bool take(void *context, const struct row_ref *ref, const void *row, bool dirty)
{
    struct row_taking *const taking = context;
    const uint64_t dirty_bits = dirty && MOVE_HAS(MOVE_DIRTY);
    uint32_t refused;

    if (taking->to->ops->insert(taking->to->rows, taking->table->index, ref, 1, &row, &dirty_bits,
                                &refused) == 0 ||
        !dirty ||
        write_queue_put(taking->rows->write_queue, taking->table, ref->hash, ref->id, row))
        return true;
    taking->is_full = true;
    return false;
}

/* Called after some of the old home's rows have been given. If that is the home of cold rows, it
 * does not count hot ones: it has none after a walk that found none, as no more come to it. */
static void note_walk(struct home_move *move, bool has_given)
{
    const bool is_empty = move->from->ops->rows(move->from->rows, move->table) == 0;

    move->has_given |= has_given;
    if (move->cursor != 0 && !is_empty && MOVE_HAS(MOVE_WALK))
        return;
    move->is_walked = !move->has_given || is_empty || !MOVE_HAS(MOVE_WALK);
    move->has_given = false;
}

/* Returns how many rows the old home still has to give; if that is the home of cold rows, more than
 * 0 until it has none. */
static uint64_t rows_left(const struct home_move *move)
{
    if (!move->hot)
        return move->from->ops->rows(move->from->rows, move->table);
    if (!becomes_hot(move))
        return move->hot->ops->hot->rows(move->hot->rows, move->table);
    if (move->is_walked)
        return 0;
    return MAX(move->from->ops->rows(move->from->rows, move->table), UINT64_C(1));
}

struct rows_moved rows_move_step(struct rows *rows, struct table *table, uint32_t most_rows)
{
    struct home_move *const move = move_at(rows, table);
    struct row_taking taking = { .rows = rows, .table = table, .to = move->to, .hot = move->hot };
    struct row_giving giving = {
        .cursor = move->cursor,
        .most_rows = most_rows,
        .most_steps = most_rows * STEP_PLACES,
        .wants = move->hot ? is_hot : NULL,
        .take = take,
        .context = &taking,
    };
    struct rows_moved moved = { .has_epoch = rows->in_epoch };

    assert(move->stage == HOME_MOVE_GOES);
    if (!move->is_walked && (!rows->in_epoch || !MOVE_HAS(MOVE_EPOCH))) {
        moved.rows = move->from->ops->give(move->from->rows, table->index, &giving);
        move->cursor = giving.cursor;
        if (becomes_hot(move))
            note_walk(move, moved.rows > 0 || taking.is_full);
    }
    moved.left = rows_left(move);
    moved.is_full = taking.is_full;
    return moved;
}

void rows_move_turn_back(struct rows *rows, const struct table *table)
{
    struct home_move *const move = move_at(rows, table);
    const struct home *const from = move->from;

    move->from = move->to;
    move->to = from;
    move->cursor = 0;
    move->has_given = move->is_walked = false;
    if (move->stage == HOME_MOVE_WAITS)
        set_stage(move, HOME_MOVE_ARRIVED);
    else if (move->stage == HOME_MOVE_ARRIVED)
        set_stage(move, HOME_MOVE_GOES);
}

void rows_move_arrive(struct rows *rows, const struct table *table)
{
    struct home_move *const move = move_at(rows, table);

    assert(move->hot || move->from->ops->rows(move->from->rows, table->index) == 0);
    set_stage(move, HOME_MOVE_ARRIVED);
}

/* Forgets the table in its old home, but for cold rows. True: it is gone. */
static bool forget(const struct home_move *move, const struct table *table)
{
    if (!move->hot)
        return move->from->ops->purge(move->from->rows, table, 1);
    if (!becomes_hot(move))
        move->hot->ops->hot->remove(move->hot->rows, table->index);
    return true;
}

void rows_move_end(struct rows *rows, const struct table *table)
{
    struct home_move *const move = move_at(rows, table);
    const bool is_gone = forget(move, table);

    assert(move->stage == HOME_MOVE_ARRIVED && is_gone);
    (void)is_gone;
    set_stage(move, HOME_MOVE_NONE);
}
