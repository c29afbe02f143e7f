/* SPDX-License-Identifier: Apache-2.0 */
/* tables_move.c: moves a table to another home while requests go on. docs/internals/moves.md has
 * the order of it all.
 *
 * The thread of the job asks the lanes for steps, and sleeps in between, so that a move has at most
 * a fifth of each lane's time. A move that must not go on turns round, and its rows go back to the
 * old home by the same steps. Only an array takes any row at any time. So a move that cannot get
 * its dirty rows out of an array, as the store takes no writes, ends in that array, whichever of
 * the two homes that is. */
#include "daemon/engine/tables/tables_impl.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/spec/home_rules.h"
#include "daemon/engine/tables/hot_set.h"
#include "daemon/engine/tables/progress.h"
#include "daemon/engine/tables/table_arrays.h"
#include "store/catalog.h"

/* A step is short beside a turn of a session that is alone (cost.h). */
#define STEP_ROWS  128
#define STEP_BYTES (UINT64_C(64) << 10)
/* A lane rests this many times as long as its step took. */
#define REST_PART     4
#define REST_LEAST_NS (UINT64_C(20) * 1000)
#define SLEEP_NS      (UINT64_C(50) * 1000 * 1000)       /* between two looks whether to go on */
#define PAUSE_NS      (UINT64_C(2) * 1000 * 1000)        /* during a checkpoint, or without room */
#define PATIENCE_NS   (UINT64_C(5) * 1000 * 1000 * 1000) /* with a store that takes no writes */

struct move {
    struct tables *tables;
    struct table *table;
    const struct progress_sink *progress;
    struct table_spec spec;    /* as it will be */
    uint8_t from, to;          /* enum home_kind, from the beginning to the end */
    struct row_array *array;   /* the new home's */
    const struct hot_ids *hot; /* for a split */
    bool is_written;           /* the catalog has the new home */
    bool goes_back;
    bool is_cut;          /* the server stops while the table is in both homes */
    enum embtier_err why; /* the move ends in this error, as it had to turn round; or OK */
    struct err_msg why_text;
    struct err_msg *msg;

    uint64_t total_rows; /* to go, in this direction */
    uint64_t moved_rows; /* in all */
    uint64_t rate_bytes;
    uint64_t began_ns;
    uint64_t paced_rows; /* since then */
    uint64_t stuck_ns;   /* since when no row finds a place; 0: they do */
};

/* ---- Lanes ---- */

static void tell_lanes(struct move *move, uint32_t count, int act)
{
    for (uint32_t i = 0; i < count; i++) {
        struct table_move_act to_do = { .table = move->table };
        enum embtier_err err;

        to_do.act = act;
        err = move->tables->rows->move(move->tables->lanes[i], &to_do);
        assert(err == EMBTIER_OK);
        (void)err;
    }
}

static void tell_all(struct move *move, int act)
{
    tell_lanes(move, move->tables->lane_count, act);
}

/* Makes the table known to its new home on all lanes, or on none. */
static enum embtier_err prepare(struct move *move)
{
    for (uint32_t i = 0; i < move->tables->lane_count; i++) {
        struct table_move_act act = { .act = MOVE_PREPARE,
                                      .table = move->table,
                                      .from = move->from,
                                      .to = move->to,
                                      .array = move->array };
        const enum embtier_err err = move->tables->rows->move(move->tables->lanes[i], &act);

        if (err == EMBTIER_OK)
            continue;
        tell_lanes(move, i, MOVE_TURN_BACK);
        tell_lanes(move, i, MOVE_END);
        return err_set(move->msg, err, "table '%s' cannot be moved now: %s", move->spec.name,
                       err_text(err));
    }
    return EMBTIER_OK;
}

/* Returns how many rows have pins. */
static uint64_t count_pinned(const struct move *move)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < move->tables->lane_count; i++) {
        struct table_move_act act = { .act = MOVE_LOOK, .table = move->table };
        const enum embtier_err err = move->tables->rows->move(move->tables->lanes[i], &act);

        assert(err == EMBTIER_OK);
        (void)err;
        rows += act.pinned_rows;
    }
    return rows;
}

/* ---- Pace ---- */

static uint32_t step_rows(const struct move *move)
{
    const uint64_t row_bytes = move->table->row_bytes;
    uint64_t rows = MIN(STEP_BYTES / row_bytes, (uint64_t)STEP_ROWS);

    if (move->rate_bytes > 0 && !move->goes_back)
        rows = MIN(rows, move->rate_bytes / 20 / row_bytes);
    return (uint32_t)MAX(rows, UINT64_C(1));
}

/* Returns OK, or why the table is not to get to its new home. */
static enum embtier_err look(const struct move *move)
{
    TRY(progress_look(move->progress, move->msg));
    if (atomic_load(&move->table->move) == TABLE_MOVES_LAST)
        return err_set(move->msg, EMBTIER_DROPPED, "a drop of the table waits");
    return EMBTIER_OK;
}

static bool is_stopping(const struct move *move)
{
    return atomic_load(&move->tables->stopping);
}

/* Sleeps for @ns, but no longer once the move is to end. */
static void sleep_for(const struct move *move, uint64_t ns)
{
    while (ns > 0 && !is_stopping(move) && (move->why != EMBTIER_OK || look(move) == EMBTIER_OK)) {
        const uint64_t part = MIN(ns, SLEEP_NS);

        nanosleep(&(struct timespec){ .tv_nsec = (long)part }, NULL);
        ns -= part;
    }
}

/* Rests after a round of steps, the longest of which took @spent_ns. */
static void rest(const struct move *move, uint64_t spent_ns)
{
    uint64_t ns = MAX(spent_ns * REST_PART, REST_LEAST_NS);

    if (move->rate_bytes > 0 && !move->goes_back) {
        const double due =
            (double)move->paced_rows * move->table->row_bytes / (double)move->rate_bytes * 1e9;
        const double spent = (double)clock_since(clock_now_ns(&clock_monotonic), move->began_ns);

        if (due - spent > (double)ns)
            ns = due - spent < 1e18 ? (uint64_t)(due - spent) : UINT64_C(1000000000000000000);
    }
    sleep_for(move, ns);
}

/* Waits until no row has pins, since they would stay behind. The table takes no new ones, and those
 * that it has end with their tickets. SHUTDOWN; or why the table is to stay. */
static enum embtier_err await_no_pins(const struct move *move)
{
    uint64_t rows, most = 0;

    while ((rows = count_pinned(move)) > 0) {
        if (is_stopping(move))
            return err_set(move->msg, EMBTIER_SHUTDOWN, "%s", err_text(EMBTIER_SHUTDOWN));
        TRY(look(move));
        most = MAX(most, rows);
        if (move->progress)
            move->progress->report(move->progress->context, most - rows, most, "pinned rows");
        sleep_for(move, PAUSE_NS);
    }
    return EMBTIER_OK;
}

/* ---- Moving ---- */

struct round {
    uint64_t moved;
    uint64_t left;
    uint64_t spent_ns; /* by the lane that took longest */
    bool has_epoch;
    bool is_full;
    enum embtier_err write_err;
};

static struct round run_round(struct move *move)
{
    struct round round = { 0 };

    for (uint32_t i = 0; i < move->tables->lane_count; i++) {
        struct table_move_act act = { .act = MOVE_STEP,
                                      .table = move->table,
                                      .most_rows = step_rows(move) };
        const enum embtier_err err = move->tables->rows->move(move->tables->lanes[i], &act);

        assert(err == EMBTIER_OK);
        (void)err;
        round.moved += act.moved_rows;
        round.left += act.left_rows;
        round.spent_ns = MAX(round.spent_ns, act.spent_ns);
        round.has_epoch |= act.has_epoch;
        round.is_full |= act.is_full;
        if (act.write_err != EMBTIER_OK)
            round.write_err = act.write_err;
    }
    return round;
}

/* Returns an error if rows have found no place for too long, as the store takes no writes. */
static enum embtier_err look_at_room(struct move *move, const struct round *round)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);

    if (!round->is_full || round->moved > 0 || round->write_err == EMBTIER_OK ||
        round->write_err == EMBTIER_BUSY) {
        move->stuck_ns = 0;
        return EMBTIER_OK;
    }
    if (move->stuck_ns == 0)
        move->stuck_ns = now_ns;
    if (clock_since(now_ns, move->stuck_ns) < PATIENCE_NS)
        return EMBTIER_OK;
    return err_set(move->msg, round->write_err, "its updated rows cannot be written: %s",
                   err_text(round->write_err));
}

/* Moves rows until the home that they leave has none. OK; SHUTDOWN; or why the move must turn
 * round. */
static enum embtier_err sweep(struct move *move)
{
    move->total_rows = 0;
    move->began_ns = clock_now_ns(&clock_monotonic);
    move->paced_rows = move->stuck_ns = 0;
    for (;;) {
        struct round round;

        if (is_stopping(move))
            return EMBTIER_SHUTDOWN;
        if (move->why == EMBTIER_OK)
            TRY(look(move));
        round = run_round(move);
        move->moved_rows += round.moved;
        move->paced_rows += round.moved;
        move->total_rows = MAX(move->total_rows, round.left + move->paced_rows);
        if (move->progress)
            move->progress->report(move->progress->context, move->total_rows - round.left,
                                   move->total_rows, move->goes_back ? "rows back" : "rows");
        if (round.left == 0)
            return EMBTIER_OK;
        TRY(look_at_room(move, &round));
        rest(move, round.has_epoch || round.is_full ? PAUSE_NS / REST_PART : round.spent_ns);
    }
}

static enum embtier_err write_home(struct move *move, const struct table_spec *spec)
{
    enum embtier_err err;

    tables_lock_catalog(move->tables);
    err = catalog_set_home(move->tables->catalog, atomic_load(&move->table->table_id), spec,
                           move->msg);
    tables_unlock_catalog(move->tables);
    return err;
}

static enum embtier_err write_catalog(struct move *move)
{
    TRY(write_home(move, &move->spec));
    move->is_written = true;
    return EMBTIER_OK;
}

/* ---- The ids of hot rows ---- */

/* Fills the remap, and stores its ids. The catalog and the struct have their number first. So a
 * drop, a later move or the next start removes them if this move gets no further. */
static enum embtier_err store_hot_rows(struct move *move)
{
    const struct hot_work work = { .tables = move->tables,
                                   .table = move->table,
                                   .table_id = atomic_load(&move->table->table_id),
                                   .spec = &move->spec,
                                   .progress = move->progress };
    struct table_spec before = move->table->spec;

    if (!home_has_hot_rows((int)move->spec.home))
        return EMBTIER_OK;
    TRY(hot_set_take(&work, move->hot, move->array, move->msg));
    before.hot_rows = move->spec.hot_rows;
    TRY(write_home(move, &before));
    pthread_mutex_lock(&move->tables->lock);
    move->table->spec.hot_rows = move->spec.hot_rows;
    pthread_mutex_unlock(&move->tables->lock);
    return hot_set_store(&work, move->array, move->msg);
}

/* Removes them if the table is no longer split, or could not be. */
static void forget_hot_rows(struct move *move)
{
    struct table *const table = move->table;
    const bool is_unused = home_has_hot_rows(home_of_kind(move->to))
                               ? atomic_load(&table->home) == move->from
                               : home_has_hot_rows(home_of_kind(move->from)) && move->is_written;

    if (table->spec.hot_rows == 0)
        return; /* none were stored */

    if (!is_unused || !hot_set_forget(move->tables, atomic_load(&table->table_id), &table->spec))
        return;
    pthread_mutex_lock(&move->tables->lock);
    table->spec.hot_rows = table->spec.hot_sum = 0;
    pthread_mutex_unlock(&move->tables->lock);
}

/* ---- Moving the rows ---- */

/* Moves all rows in one direction, and records the new home if that is the end. */
static enum embtier_err move_once(struct move *move)
{
    TRY(sweep(move));
    tell_all(move, MOVE_ARRIVE);
    return move->goes_back ? EMBTIER_OK : write_catalog(move);
}

/* Moves the rows there, or there and back. OK: the table has one home on all lanes. SHUTDOWN: it is
 * in both. */
static enum embtier_err move_rows(struct move *move)
{
    for (;;) {
        const enum embtier_err err = move_once(move);

        if (err == EMBTIER_OK)
            return EMBTIER_OK;
        if (is_stopping(move)) {
            move->is_cut = true;
            return err_shutdown(move->msg);
        }
        if (move->why != EMBTIER_OK && !move->goes_back) {
            /* It is here because its rows could not go back. */
            log_warn("a table keeps its new home until the next start, as the catalog cannot be "
                     "written",
                     "table=%s home=%s why=%s", move->spec.name, home_word(move->spec.home),
                     LOG_QUOTED(move->msg->text));
            return EMBTIER_OK;
        }
        if (move->why == EMBTIER_OK) {
            move->why = err;
            move->why_text = *move->msg;
        }
        tell_all(move, MOVE_TURN_BACK);
        move->goes_back = !move->goes_back;
    }
}

/* ---- The whole move ---- */

/* The table's struct says where it lives now. */
static void settle(struct move *move)
{
    struct tables *const tables = move->tables;
    struct table *const table = move->table;
    struct row_array *left = move->array;

    pthread_mutex_lock(&tables->lock);
    if (!move->goes_back) {
        left = table->array;
        table->array = move->array;
        table->spec.home = move->spec.home;
        memcpy(table->spec.home_tier, move->spec.home_tier, sizeof(table->spec.home_tier));
        table->spec.hot_rows = move->spec.hot_rows;
        table->spec.hot_sum = move->spec.hot_sum;
    }
    atomic_store(&table->home, move->goes_back ? move->from : move->to);
    pthread_mutex_unlock(&tables->lock);
    tell_all(move, MOVE_END);
    table_arrays_give(tables->arrays, left);
}

static bool has_home(const struct table *table, const struct table_spec *spec)
{
    return table->spec.home == spec->home &&
           (spec->home_tier[0] == '\0' || strcmp(spec->home_tier, table->spec.home_tier) == 0);
}

/* A table that is split cannot be split anew: it is in one set of hot rows at a time. */
static enum embtier_err check_hot_rows(const struct table *table, const struct table_spec *spec,
                                       struct err_msg *msg)
{
    if (!home_has_hot_rows(spec->home) || !home_has_hot_rows(table->spec.home))
        return EMBTIER_OK;
    if (has_home(table, spec) && spec->hot_rows == table->spec.hot_rows &&
        spec->hot_sum == table->spec.hot_sum)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_INVALID,
                   "table '%s' is split already, by other hot rows or in another tier: move it to "
                   "home cache first",
                   spec->name);
}

/* Returns the table's spec as it would be, or why it cannot move there. */
static enum embtier_err new_spec(const struct table *table, const struct table_move_opts *opts,
                                 struct table_spec *ret_spec, struct err_msg *msg)
{
    struct table_spec spec = table->spec;

    if (atomic_load(&table->state) != TABLE_LIVE)
        return err_set(msg, EMBTIER_BUSY, "table '%s' is still being created", spec.name);
    if (atomic_load(&table->move) != TABLE_STAYS)
        return err_set(msg, EMBTIER_BUSY, "table '%s' is being moved already: see `embtier jobs`",
                       spec.name);
    spec.home = opts->home;
    table_spec_set_tier(&spec, opts->tier);
    if (home_has_hot_rows(opts->home)) {
        spec.hot_rows = opts->hot.count;
        spec.hot_sum = opts->hot_sum;
    }
    TRY(table_spec_check(&spec, msg));
    *ret_spec = spec;
    return EMBTIER_OK;
}

/* Locked, as is the struct that it returns. */
static enum embtier_err find_to_move(struct tables *tables, const struct table_move_opts *opts,
                                     struct table **ret_table, struct table_spec *ret_spec,
                                     struct err_msg *msg)
{
    *ret_table = tables_struct_named(tables, opts->name);
    if (!*ret_table)
        return tables_no_table(opts->name, msg);
    return new_spec(*ret_table, opts, ret_spec, msg);
}

enum embtier_err tables_check_move(struct tables *tables, const struct table_move_opts *opts,
                                   struct err_msg *msg)
{
    struct table_spec spec;
    struct table *table;
    enum embtier_err err;

    pthread_mutex_lock(&tables->lock);
    err = find_to_move(tables, opts, &table, &spec, msg);
    pthread_mutex_unlock(&tables->lock);
    return err;
}

/* A table that keeps its home and goes to another tier goes to another set. Splits do not
 * (check_hot_rows()), and the cache has no tiers to choose. */
static uint8_t other_set(uint8_t kind)
{
    assert(kind == HOME_ARRAY);
    (void)kind;
    return HOME_OTHER_ARRAY;
}

/* Finds the table and says in its struct that it moves, unless it has that home. */
static enum embtier_err move_begin(struct tables *tables, const struct table_move_opts *opts,
                                   struct move *move, struct table_moved *ret_moved)
{
    enum embtier_err err;

    pthread_mutex_lock(&tables->lock);
    err = find_to_move(tables, opts, &move->table, &move->spec, move->msg);
    if (err == EMBTIER_OK)
        err = check_hot_rows(move->table, &move->spec, move->msg);
    if (err == EMBTIER_OK && has_home(move->table, &move->spec)) {
        *ret_moved = (struct table_moved){ .info = tables_info_of(move->tables, move->table),
                                           .was_there = true };
    } else if (err == EMBTIER_OK) {
        move->from = atomic_load(&move->table->home);
        move->to = (uint8_t)move->spec.home;
        if (move->to == move->from)
            move->to = other_set(move->from);
        atomic_store(&move->table->move, (uint8_t)TABLE_MOVES);
        ret_moved->was_there = false;
    }
    pthread_mutex_unlock(&tables->lock);
    return err;
}

/* Tells and logs how a move ended. */
static enum embtier_err tell_end(const struct move *move, struct table_moved *ret_moved)
{
    struct table_info info;

    pthread_mutex_lock(&move->tables->lock);
    info = tables_info_of(move->tables, move->table);
    pthread_mutex_unlock(&move->tables->lock);
    if (move->why != EMBTIER_OK) {
        log_info("table not moved", "table=%s home=%s why=%s", info.spec.name,
                 home_word(info.spec.home), LOG_QUOTED(move->why_text.text));
        return err_set(move->msg, move->why, "table '%s' %s home %s: %s", info.spec.name,
                       move->goes_back ? "keeps its" : "could not go back, and is now in",
                       home_word(info.spec.home), move->why_text.text);
    }
    log_info("table moved", "table=%s home=%s%s%s rows=%" PRIu64, info.spec.name,
             home_word(info.spec.home), info.spec.home_tier[0] ? " tier=" : "", info.spec.home_tier,
             move->moved_rows);
    *ret_moved = (struct table_moved){ .info = info, .rows = move->moved_rows };
    return EMBTIER_OK;
}

/* Leaves the table, no row of which has moved, in its old home. */
static void stay(struct move *move, enum embtier_err why)
{
    move->why = why;
    move->why_text = *move->msg;
    move->goes_back = true;
    tell_all(move, MOVE_TURN_BACK);
}

/* Moves a table whose struct says so. */
static enum embtier_err move_table(struct move *move, struct table_moved *ret_moved)
{
    enum embtier_err err;

    TRY(table_arrays_take(move->tables->arrays, &move->spec, &move->array, move->msg));
    err = store_hot_rows(move);
    if (err == EMBTIER_OK)
        err = prepare(move);
    if (err != EMBTIER_OK) {
        table_arrays_give(move->tables->arrays, move->array);
        forget_hot_rows(move);
        return err;
    }
    /* A lane sees this at any time up to its start. It makes no difference before that. */
    atomic_store(&move->table->home, (uint8_t)HOME_MOVING);
    err = await_no_pins(move);
    if (err == EMBTIER_OK) {
        tell_all(move, MOVE_START);
        TRY(move_rows(move));
    } else if (is_stopping(move)) {
        move->is_cut = true;
        return err;
    } else {
        stay(move, err);
    }
    settle(move);
    forget_hot_rows(move);
    return tell_end(move, ret_moved);
}

enum embtier_err tables_move(struct tables *tables, const struct table_move_opts *opts,
                             const struct progress_sink *progress, struct table_moved *ret_moved,
                             struct err_msg *msg)
{
    struct table_move_opts summed = *opts;
    struct move move = { .tables = tables,
                         .progress = progress,
                         .msg = msg,
                         .rate_bytes = opts->rate_bytes,
                         .hot = &opts->hot };
    enum embtier_err err;

    summed.hot_sum = hot_set_sum(&opts->hot);
    tables_lock_catalog(tables); /* no drop begins now */
    err = move_begin(tables, &summed, &move, ret_moved);
    tables_unlock_catalog(tables);
    if (err != EMBTIER_OK || ret_moved->was_there)
        return err;
    err = move_table(&move, ret_moved);
    if (!move.is_cut)
        atomic_store(&move.table->move, (uint8_t)TABLE_STAYS);
    return err;
}

void tables_end_move(struct tables *tables, const char *name)
{
    uint8_t moves = TABLE_MOVES;
    struct table *table;

    pthread_mutex_lock(&tables->lock);
    table = tables_struct_named(tables, name);
    if (table)
        (void)atomic_compare_exchange_strong(&table->move, &moves, (uint8_t)TABLE_MOVES_LAST);
    pthread_mutex_unlock(&tables->lock);
}
