/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/checkpoint/checkpoint_making.h"
#include "daemon/engine/tables/progress.h"

#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "config/config.h"
#include "daemon/engine/lane/checkpoint_gate.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/checkpoint/checkpoints_opts.h"
#include "store/catalog.h"
#include "store/checkpoint/checkpoint.h"
#include "store/store.h"

#define SPACE_PATIENCE_NS (UINT64_C(3) * 1000 * 1000 * 1000)
/* One dirty row in CLEAN_PART is written before the epoch, so that new rows find clean ones to
 * replace while it lasts. */
#define CLEAN_PART 8
#define PAUSE_NS   200000L
/* While syncing all logs takes longer than SYNC_NS, it is repeated before the gates close,
 * but at most SYNCS_MOST times. In the moment, only updates that were logged meanwhile are
 * left to sync. */
#define SYNC_NS    (UINT64_C(50) * 1000 * 1000)
#define SYNCS_MOST 4

static void pause_ns(long ns)
{
    nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

static void report(const struct progress_sink *progress, uint64_t done, uint64_t total,
                   const char *unit)
{
    if (progress)
        progress->report(progress->context, done, total, unit);
}

struct row_sums {
    uint64_t dirty;
    uint64_t held;
};

static struct row_sums count_rows(const struct checkpoints_opts *c)
{
    struct row_sums rows = { 0 };

    for (uint32_t i = 0; i < c->lane_count; i++) {
        struct lane_stats stats;

        lane_stats(c->lanes[i], &stats);
        for (uint32_t h = 0; h < HOME_KINDS; h++)
            rows.dirty += stats.homes[h].dirty_rows;
        rows.held += stats.held_rows;
    }
    return rows;
}

/* Does one step on each lane and returns the sum of their reports. */
static struct lane_saved save_some(const struct checkpoints_opts *c, struct lane_saving *savings,
                                   uint32_t most)
{
    struct lane_saved all = { .idle = true, .done = true };

    for (uint32_t i = 0; i < c->lane_count; i++) {
        const struct lane_saved one = lane_save_step(c->lanes[i], &savings[i], most);

        all.rows += one.rows;
        all.held_rows += one.held_rows;
        all.requests += one.requests;
        all.idle = all.idle && one.idle;
        all.done = all.done && one.done;
        if (one.err != EMBTIER_OK)
            all.err = one.err;
    }
    return all;
}

/* Writes some of the dirty rows before anything is held. */
static enum embtier_err clean_some(struct checkpoint_making *making, struct err_msg *msg)
{
    const struct checkpoints_opts *const c = making->opts;
    struct lane_saving savings[CONFIG_LANES_MAX] = { { .all_handed_over = false } };
    const uint64_t wanted = making->dirty_rows / CLEAN_PART;
    struct lane_saved step = { .rows = 1 };

    /* A step may write none: there are fewer dirty rows by now, or the writers are busy. */
    for (uint64_t cleaned = 0; cleaned < wanted && step.rows > 0; cleaned += step.rows) {
        if (atomic_load(making->stopping))
            return err_shutdown(msg);
        step = save_some(c, savings, checkpoint_pace_step(&making->pace, true));
        checkpoint_pace_look(&making->pace, &step);
        pause_ns(PAUSE_NS);
    }
    return EMBTIER_OK;
}

static bool has_logged_tables(const struct checkpoints_opts *c)
{
    return tables_count_of(c->tables, EMBTIER_DURABILITY_ASYNC) +
               tables_count_of(c->tables, EMBTIER_DURABILITY_SYNC) >
           0;
}

/* Captures the logs, which have all acknowledged updates and maybe others. All are synced together
 * first, so that little is left to do when the turn of each comes. AGAIN: it takes too long. */
static enum embtier_err capture_logs(struct checkpoint_making *making, struct gate_search *search,
                                     struct err_msg *msg)
{
    const struct checkpoints_opts *const c = making->opts;
    enum embtier_err err;

    TRY(store_sync_all_logs(c->store, msg));
    err =
        store_capture(c->store, making->draft, true, gate_until_ns(search), making->stopping, msg);
    if (err == EMBTIER_AGAIN)
        gate_note_late(search);
    return err;
}

/* Begins the epoch in the moment that was found, which becomes the checkpoint's. AGAIN:
 * it is late. */
static enum embtier_err take_moment(struct checkpoint_making *making, struct gate_search *search,
                                    struct err_msg *msg)
{
    const struct checkpoints_opts *const c = making->opts;

    assert(!making->in_epoch && !making->has_old);
    /* Count before the logs are captured: an update that ends meanwhile is partly in them. */
    making->info.cut_updates = 0;
    for (uint32_t i = 0; i < c->lane_count; i++)
        making->info.cut_updates += lane_count_updates(c->lanes[i]);
    tables_note_steps(c->tables, making->catalog);
    if (making->has_logged)
        TRY(capture_logs(making, search, msg));
    for (uint32_t i = 0; i < c->lane_count; i++)
        lane_begin_epoch(c->lanes[i]);
    making->in_epoch = making->has_old = true;
    return EMBTIER_OK;
}

/* Flushes, because a checkpoint's logs are read into memory when it is opened, and by a start after
 * a crash. A failure only leaves some logs long, so that this takes more memory. Later calls report
 * an error that keeps the checkpoint from being made. */
static enum embtier_err shorten_logs(struct checkpoint_making *making, struct err_msg *msg)
{
    const struct checkpoints_opts *const c = making->opts;
    struct err_msg why = { { 0 } };
    const enum embtier_err err = store_shorten_logs(c->store, making->stopping, &why);

    if (err == EMBTIER_SHUTDOWN)
        return err_set(msg, err, "%s", why.text);
    if (err != EMBTIER_OK)
        log_warn("a flush before the checkpoint failed; the checkpoint's logs stay long",
                 "err=%s why=%s", err_name(err), LOG_QUOTED(why.text));
    return EMBTIER_OK;
}

/* Notes the tables, which the caller holds. Tables are made and dropped while a checkpoint is made.
 * The checkpoint has all rows of those that were live in its moment and still are when all is
 * captured. It has nothing of other tables. */
static enum embtier_err note_tables(struct checkpoint_making *making, struct err_msg *msg)
{
    const struct checkpoints_opts *const c = making->opts;

    making->has_logged |= has_logged_tables(c); /* one may be new */
    catalog_free(TAKE(making->catalog));
    return tables_catalog_copy(c->tables, &making->catalog, msg);
}

/* Nothing else writes updates of `async` tables to disk between checkpoints. Updates that are not
 * written now are written while other updates wait. */
static enum embtier_err sync_before(const struct checkpoints_opts *c, struct err_msg *msg)
{
    uint64_t took_ns = UINT64_MAX;

    for (unsigned i = 0; i < SYNCS_MOST && took_ns > SYNC_NS; i++) {
        const uint64_t began_ns = clock_now_ns(&clock_monotonic);

        TRY(store_sync_all_logs(c->store, msg));
        took_ns = clock_now_ns(&clock_monotonic) - began_ns;
    }
    return EMBTIER_OK;
}

/* Holds the tables for this try only, because the next may be seconds away. */
static enum embtier_err try_moment(struct checkpoint_making *making, struct gate_search *search,
                                   struct err_msg *msg)
{
    const struct checkpoints_opts *const c = making->opts;
    enum embtier_err err;

    tables_hold(c->tables);
    err = note_tables(making, msg);
    if (err == EMBTIER_OK && making->has_logged)
        err = sync_before(c, msg);
    if (err == EMBTIER_OK)
        err = gate_close(search, msg);
    if (err == EMBTIER_OK)
        err = take_moment(making, search, msg);
    gate_open(search, err == EMBTIER_AGAIN && !search->is_late);
    tables_release(c->tables);
    if (err == EMBTIER_AGAIN) { /* a late try may have captured a part */
        checkpoint_forget(making->draft);
        making->info.cut_updates = 0;
    }
    return err;
}

/* Adds up the searches, also of checkpoints that fail later. */
static void note_search(const struct checkpoint_making *making)
{
    struct making_counts *const counts = making->counts;

    counts->tries += making->info.tries;
    counts->cut_updates += making->info.cut_updates;
    counts->longest_pause_us = MAX(counts->longest_pause_us, making->info.pause_us);
}

static enum embtier_err begin_epoch(struct checkpoint_making *making, struct err_msg *msg)
{
    const struct checkpoints_opts *const c = making->opts;
    struct gate_search search;
    enum embtier_err err;

    gate_search_init(&search, c->lanes, c->lane_count, making->stopping);
    do
        err = try_moment(making, &search, msg);
    while (err == EMBTIER_AGAIN && (err = gate_rest(&search, msg)) == EMBTIER_OK);
    making->info.tries = search.tries;
    making->info.pause_us = search.longest_ns / 1000;
    note_search(making);
    return err;
}

/* Sleeps, so that others have the cores. */
static void leave_the_cores(const struct checkpoint_making *making, uint64_t rest_ns)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);

    pause_ns((long)rest_ns);
    making->counts->yielded_us += (clock_now_ns(&clock_monotonic) - began_ns) / 1000;
}

static enum embtier_err save_old_rows(struct checkpoint_making *making, struct err_msg *msg)
{
    const struct checkpoints_opts *const c = making->opts;
    struct lane_saving savings[CONFIG_LANES_MAX] = { { .all_handed_over = false } };
    struct lane_saved step = { .idle = true };
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    uint64_t saved = 0;

    assert(making->in_epoch && making->has_old);
    checkpoint_pace_begin(&making->pace);
    while (!step.done) {
        uint64_t rest_ns;

        if (atomic_load(making->stopping))
            return err_shutdown(msg);
        step = save_some(c, savings, checkpoint_pace_step(&making->pace, step.idle));
        checkpoint_pace_look(&making->pace, &step);
        /* A writer that met a full disk does not learn of the reserve at once. */
        if (step.err != EMBTIER_OK &&
            (step.err != EMBTIER_NO_SPACE ||
             clock_now_ns(&clock_monotonic) - began_ns > SPACE_PATIENCE_NS))
            return err_set(msg, step.err, "no checkpoint: rows cannot be written: %s",
                           err_text(step.err));
        saved += step.rows;
        report(making->progress, MIN(saved, making->dirty_rows), making->dirty_rows, "rows");
        rest_ns = checkpoint_pace_rest_ns(&making->pace, &step);
        if (rest_ns > 0) {
            leave_the_cores(making, rest_ns);
            checkpoint_pace_begin(&making->pace);
        } else if (step.rows == 0 && !step.done) {
            pause_ns(PAUSE_NS);
        }
    }
    making->has_old = false;
    return EMBTIER_OK;
}

static enum embtier_err end_epoch(struct checkpoint_making *making, struct err_msg *msg)
{
    const struct checkpoints_opts *const c = making->opts;
    bool complete = true;

    assert(making->in_epoch);
    for (uint32_t i = 0; i < c->lane_count; i++)
        complete &= lane_end_epoch(c->lanes[i]);
    making->in_epoch = false;
    return complete ? EMBTIER_OK
                    : err_set(msg, EMBTIER_INTERNAL,
                              "no checkpoint: a row was changed before it was saved");
}

static void made_databases(void *context, uint64_t done, uint64_t total)
{
    report(context, done, total, "databases");
}

static uint32_t count_tables(const struct catalog *catalog, const struct catalog_made *made)
{
    uint32_t count = made ? made->count : 0;

    for (uint32_t i = 0; i < catalog_count(catalog); i++)
        count += catalog_at(catalog, i)->state == CATALOG_LIVE;
    return count;
}

enum embtier_err checkpoint_making_run(struct checkpoint_making *making, struct err_msg *msg)
{
    const struct checkpoints_opts *const c = making->opts;
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    const struct row_sums before = count_rows(c);
    struct err_msg why = { { 0 } };

    if (checkpoint_sweep(store_shelf(c->store), &why) != EMBTIER_OK)
        log_warn("the remains of a checkpoint cannot be removed", "why=%s", LOG_QUOTED(why.text));
    TRY(checkpoint_begin(store_shelf(c->store), &making->draft, msg));
    making->dirty_rows = before.dirty;
    making->has_logged = has_logged_tables(c);
    TRY(clean_some(making, msg));
    if (making->has_logged)
        TRY(shorten_logs(making, msg));
    making->updated_bytes = tables_totals(c->tables).updated_bytes;
    making->info.created_ms = clock_wall_ms();
    making->created_ns = clock_now_ns(&clock_monotonic);
    TRY(begin_epoch(making, msg));
    TRY(save_old_rows(making, msg));
    TRY(store_capture(c->store, making->draft, false, UINT64_MAX, making->stopping, msg));
    TRY(end_epoch(making, msg));
    if (!making->has_logged)
        TRY(store_capture(c->store, making->draft, true, UINT64_MAX, making->stopping, msg));
    TRY(tables_catalog_settle(c->tables, making->catalog, msg));
    making->info.held_rows = count_rows(c).held - before.held;
    making->info.table_count = count_tables(making->catalog, making->made);
    making->info.spent_ms = (clock_now_ns(&clock_monotonic) - began_ns) / 1000000;
    return checkpoint_commit(making->draft, making->catalog, making->made, &making->info,
                             made_databases, (void *)(uintptr_t)making->progress, making->stopping,
                             msg);
}

void checkpoint_making_end(struct checkpoint_making *making)
{
    const struct checkpoints_opts *const c = making->opts;

    if (making->in_epoch)
        (void)!end_epoch(making, NULL);
    for (uint32_t i = 0; making->has_old && i < c->lane_count; i++)
        lane_forget_epoch(c->lanes[i]);
    checkpoint_draft_free(making->draft);
    catalog_free(making->catalog);
}
