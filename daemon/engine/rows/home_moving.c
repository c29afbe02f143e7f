/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/rows/home_moving.h"

#include <assert.h>
#include <string.h>

#include "base/macros.h"

struct home_move *home_move_of(struct home_moving *moving, uint16_t table)
{
    for (uint32_t m = 0; m < HOME_MOVES_MAX; m++)
        if (moving->moves[m].stage != HOME_MOVE_NONE && moving->moves[m].table == table)
            return &moving->moves[m];
    return NULL;
}

static const struct home_move *find_move(const void *home, uint16_t table)
{
    const struct home_move *const move = home_move_of((struct home_moving *)(uintptr_t)home, table);

    assert(move && move->from && move->to);
    return move;
}

/* Returns the one home that serves the table, or NULL: both do. */
static const struct home *only_home(const struct home_move *move)
{
    if (move->stage != HOME_MOVE_GOES)
        return move->stage == HOME_MOVE_WAITS ? move->from : move->to;
    if (MOVE_HAS(MOVE_OLD_ROWS) && MOVE_HAS(MOVE_NEW_ROWS))
        return NULL;
    return MOVE_HAS(MOVE_OLD_ROWS) ? move->from : move->to;
}

/* Some of a call's refs, and their places in that call. */
struct some {
    struct row_ref refs[HOME_CHUNK];
    uint32_t places[HOME_CHUNK];
    void *rows[HOME_CHUNK];
    uint32_t count;
};

static void some_add(struct some *some, const struct row_ref *refs, uint32_t place)
{
    assert(some->count < HOME_CHUNK);
    some->refs[some->count] = refs[place];
    some->places[some->count++] = place;
}

static void some_missed(struct some *some, const struct row_ref *refs, const uint32_t *missed,
                        uint32_t count)
{
    some->count = 0;
    for (uint32_t i = 0; i < count; i++)
        some_add(some, refs, missed[i]);
}

/* Translates places among some refs into those of the call. */
static uint32_t missed_of(const struct some *some, uint32_t count, uint32_t *missed)
{
    for (uint32_t i = 0; i < count; i++)
        missed[i] = some->places[missed[i]];
    return count;
}

/* ---- Copying ---- */

static uint32_t moving_get(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                           void *dest, uint64_t stride, uint32_t bytes, uint32_t *ret_missed)
{
    const struct home_move *const move = find_move(home, table);
    const struct home *const only = only_home(move);
    const struct home *const first = only ? only : move->from;
    struct some rest;
    uint32_t missed =
        first->ops->get(first->rows, table, refs, count, dest, stride, bytes, ret_missed);

    if (only || missed == 0)
        return missed;
    some_missed(&rest, refs, ret_missed, missed);
    missed = move->to->ops->get(move->to->rows, table, rest.refs, rest.count, dest, stride, bytes,
                                ret_missed);
    return missed_of(&rest, missed, ret_missed);
}

static uint32_t moving_set(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                           const void *src, uint64_t stride, uint32_t bytes, uint32_t *ret_missed)
{
    const struct home_move *const move = find_move(home, table);
    const struct home *const only = only_home(move);
    const struct home *const first = only ? only : move->from;
    struct some rest;
    uint32_t missed =
        first->ops->set(first->rows, table, refs, count, src, stride, bytes, ret_missed);

    if (only || missed == 0)
        return missed;
    some_missed(&rest, refs, ret_missed, missed);
    missed = move->to->ops->set(move->to->rows, table, rest.refs, rest.count, src, stride, bytes,
                                ret_missed);
    return missed_of(&rest, missed, ret_missed);
}

/* ---- Finding ---- */

enum finding { FIND, CHANGE, CHANGE_THROUGH };

static uint32_t find_in(const struct home *home, enum finding what, uint16_t table,
                        const struct row_ref *refs, uint32_t count, uint32_t bytes, void **ret_rows)
{
    switch (what) {
    case CHANGE:
        return home->ops->change(home->rows, table, refs, count, ret_rows);
    case CHANGE_THROUGH:
        return home->ops->change_through(home->rows, table, refs, count, ret_rows);
    case FIND:
    default:
        return home->ops->find(home->rows, table, refs, count, bytes, (const void **)ret_rows);
    }
}

/* Finds at most HOME_CHUNK rows, in both homes. Neither moves rows for that, so all places are
 * valid. */
static uint32_t find_chunk(const struct home_move *move, enum finding what,
                           const struct row_ref *refs, uint32_t count, uint32_t bytes,
                           void **ret_rows)
{
    struct some rest;
    uint32_t missed = find_in(move->from, what, move->table, refs, count, bytes, ret_rows);

    if (missed == 0)
        return 0;
    rest.count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!ret_rows[i])
            some_add(&rest, refs, i);
    missed = find_in(move->to, what, move->table, rest.refs, rest.count, bytes, rest.rows);
    for (uint32_t i = 0; i < rest.count; i++)
        ret_rows[rest.places[i]] = rest.rows[i];
    return missed;
}

static uint32_t find_rows(void *home, enum finding what, uint16_t table, const struct row_ref *refs,
                          uint32_t count, uint32_t bytes, void **ret_rows)
{
    const struct home_move *const move = find_move(home, table);
    const struct home *const only = only_home(move);
    uint32_t missed = 0;

    if (only)
        return find_in(only, what, table, refs, count, bytes, ret_rows);
    for (uint32_t at = 0; at < count; at += HOME_CHUNK)
        missed += find_chunk(move, what, refs + at, MIN(count - at, (uint32_t)HOME_CHUNK), bytes,
                             ret_rows + at);
    return missed;
}

static uint32_t moving_find(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                            uint32_t bytes, const void **ret_rows)
{
    return find_rows(home, FIND, table, refs, count, bytes, (void **)ret_rows);
}

static uint32_t moving_change(void *home, uint16_t table, const struct row_ref *refs,
                              uint32_t count, void **ret_rows)
{
    return find_rows(home, CHANGE, table, refs, count, 0, ret_rows);
}

static uint32_t moving_change_through(void *home, uint16_t table, const struct row_ref *refs,
                                      uint32_t count, void **ret_rows)
{
    return find_rows(home, CHANGE_THROUGH, table, refs, count, 0, ret_rows);
}

/* ---- After the use of rows that were found ---- */

static void use_in(const struct home *home, bool has_changed, uint16_t table,
                   const struct row_ref *refs, uint32_t count, void *const *rows)
{
    if (count == 0)
        return;
    if (has_changed)
        home->ops->changed(home->rows, table, refs, count, rows);
    else
        home->ops->used(home->rows, table, refs, count, (const void *const *)rows);
}

/* Tells each home of at most HOME_CHUNK rows that it has. */
static void use_chunk(const struct home_move *move, bool has_changed, const struct row_ref *refs,
                      uint32_t count, void *const *rows)
{
    const void *found[HOME_CHUNK];
    struct some old = { .count = 0 }, new = { .count = 0 };

    (void)move->from->ops->find(move->from->rows, move->table, refs, count, 0, found);
    for (uint32_t i = 0; i < count; i++) {
        struct some *const some = found[i] == rows[i] ? &old : &new;

        if (!rows[i])
            continue;
        some->rows[some->count] = rows[i];
        some_add(some, refs, i);
    }
    use_in(move->from, has_changed, move->table, old.refs, old.count, old.rows);
    use_in(move->to, has_changed, move->table, new.refs, new.count, new.rows);
}

static void use_rows(void *home, bool has_changed, uint16_t table, const struct row_ref *refs,
                     uint32_t count, void *const *rows)
{
    const struct home_move *const move = find_move(home, table);
    const struct home *const only = only_home(move);

    if (only) {
        use_in(only, has_changed, table, refs, count, rows);
        return;
    }
    for (uint32_t at = 0; at < count; at += HOME_CHUNK)
        use_chunk(move, has_changed, refs + at, MIN(count - at, (uint32_t)HOME_CHUNK), rows + at);
}

static void moving_used(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                        const void *const *rows)
{
    use_rows(home, false, table, refs, count, (void *const *)(uintptr_t)rows);
}

static void moving_changed(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                           void *const *rows)
{
    use_rows(home, true, table, refs, count, rows);
}

/* With two homes there is no one list of places to follow. */
static bool moving_spots(const void *home, uint16_t table, struct row_spots *ret_spots)
{
    const struct home *const only = only_home(find_move(home, table));

    return only && only->ops->spots(only->rows, table, ret_spots);
}

static void moving_used_spots(void *home, uint16_t table, uint32_t count)
{
    const struct home *const only = only_home(find_move(home, table));

    assert(only);
    only->ops->used_spots(only->rows, table, count);
}

/* ---- Rows that come, and pins ---- */

static uint32_t moving_insert(void *home, uint16_t table, const struct row_ref *refs,
                              uint32_t count, const void *const *rows, const uint64_t *dirty,
                              uint32_t *ret_refused)
{
    const struct home_move *const move = find_move(home, table);
    const struct home *const only = only_home(move);
    uint64_t dirty_of_new[HOME_CHUNK / 64] = { 0 };
    const void *found[HOME_CHUNK];
    struct some new = { .count = 0 };

    if (only)
        return only->ops->insert(only->rows, table, refs, count, rows, dirty, ret_refused);
    assert(count <= HOME_CHUNK);
    /* A row that the old home has is newer than any that a caller could bring. */
    (void)move->from->ops->find(move->from->rows, table, refs, count, 0, found);
    for (uint32_t i = 0; i < count; i++) {
        if (found[i])
            continue;
        if (dirty && (dirty[i / 64] >> i % 64 & 1))
            dirty_of_new[new.count / 64] |= UINT64_C(1) << new.count % 64;
        new.rows[new.count] = (void *)(uintptr_t)rows[i];
        some_add(&new, refs, i);
    }
    if (new.count == 0)
        return 0;
    return missed_of(&new,
                     move->to->ops->insert(move->to->rows, table, new.refs, new.count,
                                           (const void *const *)new.rows, dirty_of_new,
                                           ret_refused),
                     ret_refused);
}

/* A row that moves would leave its pins behind. So a move waits until all pins are given back, and
 * takes no new ones (docs/internals/moves.md). */
static enum row_pin moving_pin_one(void *home, uint16_t table, const struct row_ref *ref)
{
    const void *row;

    return moving_find(home, table, ref, 1, 0, &row) == 0 ? ROW_UNPINNED : ROW_NOT_CACHED;
}

static void moving_pin(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                       uint64_t *ret_here, uint64_t *ret_pinned)
{
    const void *rows[HOME_CHUNK];

    assert(count <= HOME_CHUNK);
    memset(ret_here, 0, div_round_up(count, 64) * sizeof(*ret_here));
    memset(ret_pinned, 0, div_round_up(count, 64) * sizeof(*ret_pinned));
    (void)moving_find(home, table, refs, count, 0, rows);
    for (uint32_t i = 0; i < count; i++)
        if (rows[i])
            ret_here[i / 64] |= UINT64_C(1) << i % 64;
}

/* Rows have pins from before the move, until the first of them moves. */
static void moving_unpin(void *home, uint16_t table, const struct row_ref *refs, uint32_t count)
{
    const struct home *const only = only_home(find_move(home, table));

    assert(only || count == 0);
    if (only)
        only->ops->unpin(only->rows, table, refs, count);
}

static uint64_t moving_pinned(const void *home, uint16_t table)
{
    const struct home_move *const move = find_move(home, table);

    assert(move->stage == HOME_MOVE_WAITS);
    return move->from->ops->pinned(move->from->rows, table);
}

const struct home_ops home_moving_ops = {
    .get = moving_get,
    .find = moving_find,
    .used = moving_used,
    .spots = moving_spots,
    .used_spots = moving_used_spots,
    .set = moving_set,
    .change = moving_change,
    .change_through = moving_change_through,
    .changed = moving_changed,
    .insert = moving_insert,
    .takes_pins = false,
    .pin = moving_pin,
    .pin_one = moving_pin_one,
    .unpin = moving_unpin,
    .pinned = moving_pinned,
};
