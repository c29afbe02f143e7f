/* SPDX-License-Identifier: Apache-2.0 */
/* row_move.c: moves a table's rows from one home to another, some at a time.
 *
 * A step takes rows out of the old home and puts them into the new one, with their dirty mark. A
 * row for which the cache has no place goes into the write queue if it is dirty. If it is clean,
 * SSD or the queue has it, and it is forgotten. Rows stay where they are during an epoch: a
 * checkpoint walks over one home after the other, and would miss a row that went from one to be
 * walked to one that was. So no row is old when it moves, and its mark in the new home is that of
 * rows that change now. */
#include <assert.h>

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

enum embtier_err rows_move_prepare(struct rows *rows, const struct table *table,
                                   enum home_kind from, enum home_kind to, struct row_array *array)
{
    const struct home *const home = &rows->homes[to];
    uint32_t m = 0;

    assert(from != to && from < HOME_KINDS && to < HOME_KINDS);
    while (m < HOME_MOVES_MAX && rows->moving.moves[m].stage != HOME_MOVE_NONE)
        m++;
    if (m == HOME_MOVES_MAX)
        return EMBTIER_BUSY;
    TRY(home->ops->add(home->rows, table, array));
    rows->moving.moves[m].table = table->index;
    rows->moving.moves[m].from = &rows->homes[from];
    rows->moving.moves[m].to = home;
    rows->moving.moves[m].cursor = 0;
    set_stage(&rows->moving.moves[m], HOME_MOVE_WAITS);
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
    bool is_full;
};

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

struct rows_moved rows_move_step(struct rows *rows, struct table *table, uint32_t most_rows)
{
    struct home_move *const move = move_at(rows, table);
    struct row_taking taking = { .rows = rows, .table = table, .to = move->to };
    struct row_giving giving = {
        .cursor = move->cursor,
        .most_rows = most_rows,
        .most_steps = most_rows * STEP_PLACES,
        .take = take,
        .context = &taking,
    };
    struct rows_moved moved = { .has_epoch = rows->in_epoch };

    assert(move->stage == HOME_MOVE_GOES);
    if (!rows->in_epoch || !MOVE_HAS(MOVE_EPOCH)) {
        moved.rows = move->from->ops->give(move->from->rows, table->index, &giving);
        move->cursor = giving.cursor;
    }
    moved.left = move->from->ops->rows(move->from->rows, table->index);
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
    if (move->stage == HOME_MOVE_WAITS)
        set_stage(move, HOME_MOVE_ARRIVED);
    else if (move->stage == HOME_MOVE_ARRIVED)
        set_stage(move, HOME_MOVE_GOES);
}

void rows_move_arrive(struct rows *rows, const struct table *table)
{
    struct home_move *const move = move_at(rows, table);

    assert(move->from->ops->rows(move->from->rows, table->index) == 0);
    set_stage(move, HOME_MOVE_ARRIVED);
}

void rows_move_end(struct rows *rows, const struct table *table)
{
    struct home_move *const move = move_at(rows, table);
    const bool is_gone = move->from->ops->purge(move->from->rows, table, 1);

    assert(move->stage == HOME_MOVE_ARRIVED && is_gone);
    (void)is_gone;
    set_stage(move, HOME_MOVE_NONE);
}
