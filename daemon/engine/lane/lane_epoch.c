/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints, as a lane sees them (checkpoints.h): the gate, and the epoch.
 *
 * The gate is on home lanes. While it is closed no request that changes rows is begun; those under
 * way go on to their end, so that there is a moment at which each has changed all of its rows, on
 * all lanes, or none. What waits has changed nothing and holds nothing that others need: a SET
 * before its ids are taken, a push or a group's step before its first wave.
 *
 * Updates may take long, and others must not wait for them, so a gate opens again after a while.
 * It tries harder the more often that was in vain:
 * - GATE_CUTS_NONE: it is drained when no update is under way.
 * - GATE_THINS: the same, but until the moment is found lanes begin a few updates at a time, so
 * that these end soon. Those that have not ended when the gate opens do not count: they would hold
 *   others up.
 * - GATE_CUTS_LARGE: large updates run through the moment: those of more than UPDATE_WHOLE_ROWS
 *   rows (a push: of more than one wave). Small ones are begun a few at a time, and by no session
 *   that has a large one under way, whose rows they would wait for.
 * - GATE_CUTS_ALL: small ones run through it too. A group's step never does.
 * A lane changes each row in one go, so rows are whole; some of the rows of an update that was cut
 * are of before the moment, some of after.
 *
 * In that moment each lane begins an epoch (row_cache_begin_epoch()): rows that are dirty then are
 * old. While they are written, here a few at a time and, before somebody changes one, at once, the
 * write queue takes no rows of replay tables that are newer: such rows stay in the cache, and a row
 * for which that has no room waits (held_rows). */
#include "daemon/engine/lane/lane_impl.h"

#include <assert.h>

#define FEW_UPDATES      2
#define FORGET_STEP_SETS 4096
/* Updates of old rows find the rest of the queue free; when others have filled it, a few rows are
 * saved all the same. */
#define SAVE_QUEUE_PART 2
#define SAVE_ROWS_FEW   16

/* ---- The gate ---- */

static uint32_t count_all(const uint32_t updates[UPDATE_KINDS])
{
    return updates[UPDATE_SMALL] + updates[UPDATE_LARGE] + updates[UPDATE_OF_GROUP];
}

/* Those of @updates that the gate waits for. */
static uint32_t count_awaited(const struct lane *lane, const uint32_t updates[UPDATE_KINDS])
{
    uint32_t awaited = updates[UPDATE_OF_GROUP];

    if (lane->gate_mode < GATE_CUTS_ALL)
        awaited += updates[UPDATE_SMALL];
    if (lane->gate_mode < GATE_CUTS_LARGE)
        awaited += updates[UPDATE_LARGE];
    return awaited;
}

static void tell_if_drained(struct lane *lane)
{
    if (lane->gate && !lane->gate_told && count_awaited(lane, lane->updates) == 0) {
        lane->gate_told = true;
        sem_post(lane->gate);
    }
}

/* Whether such ones are begun a few at a time. */
static bool gate_thins(const struct lane *lane, enum update_kind kind)
{
    return (kind == UPDATE_SMALL &&
            (lane->gate_mode == GATE_THINS || lane->gate_mode == GATE_CUTS_LARGE)) ||
           (kind == UPDATE_LARGE && lane->gate_mode == GATE_THINS);
}

static uint32_t count_thinned(const struct lane *lane)
{
    return lane->updates[UPDATE_SMALL] +
           (gate_thins(lane, UPDATE_LARGE) ? lane->updates[UPDATE_LARGE] : 0);
}

bool lane_update_may_begin(const struct lane *lane, const struct session *session,
                           enum update_kind kind)
{
    if (lane->gate)
        return false;
    if (!gate_thins(lane, kind))
        return true;
    return count_thinned(lane) < lane->most_thinned &&
           (lane->gate_mode == GATE_THINS || session->updates[UPDATE_LARGE] == 0);
}

static void updating_add(struct lane *lane, struct session *session)
{
    session->next_updating = NULL;
    session->previous_updating = lane->last_updating;
    if (lane->last_updating)
        lane->last_updating->next_updating = session;
    else
        lane->updating = session;
    lane->last_updating = session;
}

static void updating_remove(struct lane *lane, struct session *session)
{
    if (session->next_updating)
        session->next_updating->previous_updating = session->previous_updating;
    else
        lane->last_updating = session->previous_updating;
    if (session->previous_updating)
        session->previous_updating->next_updating = session->next_updating;
    else
        lane->updating = session->next_updating;
}

void lane_update_begin(struct lane *lane, struct session *session, enum update_kind kind)
{
    if (count_all(session->updates) == 0)
        updating_add(lane, session);
    session->updates[kind]++;
    lane->updates[kind]++;
}

void lane_update_end(struct lane *lane, struct session *session, enum update_kind kind)
{
    assert(session->updates[kind] > 0 && lane->updates[kind] > 0);
    session->updates[kind]--;
    lane->updates[kind]--;
    if (count_all(session->updates) == 0)
        updating_remove(lane, session);
    lane->most_thinned = MIN(lane->most_thinned, count_thinned(lane) + FEW_UPDATES);
    tell_if_drained(lane);
    if (gate_thins(lane, UPDATE_SMALL))
        lane_release_held(lane); /* one may have waited for that */
}

struct closing {
    sem_t *drained;
    enum gate_mode mode;
};

static void call_close_gate(struct lane *lane, void *argument)
{
    const struct closing *const closing = argument;

    lane->gate = closing->drained;
    lane->gate_mode = closing->mode;
    lane->gate_told = false;
    tell_if_drained(lane);
}

void lane_close_gate(struct lane *lane, sem_t *drained, enum gate_mode mode)
{
    struct closing closing = { drained, mode };

    lane_call(lane, call_close_gate, &closing);
}

static void call_open_gate(struct lane *lane, void *argument)
{
    lane->gate = NULL;
    if (!*(const bool *)argument)
        lane->gate_mode = GATE_CUTS_NONE;
    lane->most_thinned = count_thinned(lane) + FEW_UPDATES;
    lane_release_held(lane);
}

void lane_open_gate(struct lane *lane, bool closes_again)
{
    lane_call(lane, call_open_gate, &closes_again);
}

static void call_gate_holder(struct lane *lane, void *argument)
{
    struct lane_holder *const holder = argument;
    const struct session *session = lane->updating;

    while (session && count_awaited(lane, session->updates) == 0)
        session = session->next_updating;
    if (session)
        *holder = (struct lane_holder){ session->id, session->pid, session->uid, true };
}

bool lane_gate_holder(struct lane *lane, struct lane_holder *ret_holder)
{
    lane_call(lane, call_gate_holder, ret_holder);
    return ret_holder->found;
}

static void call_count_updates(struct lane *lane, void *argument)
{
    *(uint32_t *)argument = count_all(lane->updates);
}

uint32_t lane_count_updates(struct lane *lane)
{
    uint32_t count = 0;

    lane_call(lane, call_count_updates, &count);
    return count;
}

/* ---- The epoch ---- */

static void call_begin_epoch(struct lane *lane, void *argument)
{
    (void)argument;
    lane->in_epoch = true;
    row_cache_begin_epoch(lane->cache);
}

void lane_begin_epoch(struct lane *lane)
{
    lane_call(lane, call_begin_epoch, NULL);
}

struct save_step {
    struct lane_saving *saving;
    uint32_t most;
    struct lane_saved saved;
};

static void call_save(struct lane *lane, void *argument)
{
    struct save_step *const step = argument;
    struct lane_saving *const saving = step->saving;
    struct write_queue_stats queue;

    write_queue_stats(lane->write_queue, &queue);
    step->saved.err = (enum embtier_err)queue.err;
    if (queue.bytes > queue.capacity_bytes / SAVE_QUEUE_PART)
        step->most = MIN(step->most, (uint32_t)SAVE_ROWS_FEW);
    if (!saving->all_handed_over && step->most > 0) {
        step->saved.rows = row_cache_write_back(lane->cache, &saving->cursor, step->most,
                                                &saving->all_handed_over);
        saving->mark = write_queue_mark(lane->write_queue);
    }
    step->saved.held_rows = lane->stats.held_rows;
    step->saved.requests = lane->stats.requests;
    step->saved.idle = write_queue_passed(lane->write_queue, saving->mark);
    step->saved.done = saving->all_handed_over && step->saved.idle;
}

struct lane_saved lane_save_step(struct lane *lane, struct lane_saving *saving, uint32_t most)
{
    struct save_step step = { .saving = saving, .most = most };

    lane_call(lane, call_save, &step);
    return step.saved;
}

static void call_end_epoch(struct lane *lane, void *argument)
{
    *(bool *)argument = row_cache_end_epoch(lane->cache);
    lane->in_epoch = false;
    lane_rows_try_again(lane); /* there is room in the queue */
}

bool lane_end_epoch(struct lane *lane)
{
    bool complete = false;

    lane_call(lane, call_end_epoch, &complete);
    return complete;
}

struct forget_step {
    uint64_t cursor;
    bool done;
};

static void call_forget(struct lane *lane, void *argument)
{
    struct forget_step *const step = argument;

    step->done = row_cache_forget_epoch(lane->cache, &step->cursor, FORGET_STEP_SETS);
}

void lane_forget_epoch(struct lane *lane)
{
    struct forget_step step = { 0 };

    while (!step.done)
        lane_call(lane, call_forget, &step);
}
