/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints, as a lane sees them (checkpoints.h): the gate, and the epoch.
 *
 * The gate is on home lanes. While it is closed no request that changes rows is begun; those under
 * way go on to their end, so that there is a moment at which each has changed all of its rows, on
 * all lanes, or none. What waits has changed nothing and holds nothing that others need: a SET
 * before its ids are taken, a push or a group's step before its first wave.
 *
 * Large updates may take very long, and others must not wait for them. A gate that spares them is
 * drained when no other update is under way: large ones then run through the moment. A lane
 * changes each row in one go, so rows are whole; some of the update's are of before the moment,
 * some of after. Large is an update of more than UPDATE_WHOLE_ROWS rows (a push: of more than one
 * wave); never a group's step. Until the moment is found, a session begins no other update behind
 * a large one: that would wait for the large one's rows, and the moment for it.
 *
 * In that moment each lane begins an epoch (row_cache_begin_epoch()): rows that are dirty then are
 * old. While they are written, here a few at a time and, before somebody changes one, at once, the
 * write queue takes no rows of replay tables that are newer: such rows stay in the cache, and a row
 * for which that has no room waits (held_rows). */
#include "daemon/lane_impl.h"

#include <assert.h>

#define FORGET_STEP_SETS 4096
/* Updates of old rows find the rest of the queue free; when others have filled it, a few rows are
 * saved all the same. */
#define SAVE_QUEUE_PART 2
#define SAVE_ROWS_FEW   16

/* ---- The gate ---- */

static void tell_if_drained(struct lane *lane)
{
    const uint32_t spared = lane->spares_large ? lane->large_updates : 0;

    if (lane->gate && lane->updates == spared && !lane->gate_told) {
        lane->gate_told = true;
        sem_post(lane->gate);
    }
}

bool lane_update_may_begin(const struct lane *lane, const struct session *session, bool is_large)
{
    return !lane->gate && (is_large || !lane->spares_large || session->large_updates == 0);
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

void lane_update_begin(struct lane *lane, struct session *session, bool is_large)
{
    if (session->updates++ == 0)
        updating_add(lane, session);
    lane->updates++;
    lane->large_updates += is_large;
    session->large_updates += is_large;
}

void lane_update_end(struct lane *lane, struct session *session, bool is_large)
{
    assert(session->updates > 0 && session->large_updates >= is_large);
    if (--session->updates == 0)
        updating_remove(lane, session);
    lane->updates--;
    lane->large_updates -= is_large;
    session->large_updates -= is_large;
    tell_if_drained(lane);
    if (is_large)
        lane_release_held(lane); /* one may have waited for that */
}

struct closing {
    sem_t *drained;
    bool spares_large;
};

static void call_close_gate(struct lane *lane, void *argument)
{
    const struct closing *const closing = argument;

    lane->gate = closing->drained;
    lane->spares_large = closing->spares_large;
    lane->gate_told = false;
    tell_if_drained(lane);
}

void lane_close_gate(struct lane *lane, sem_t *drained, bool spares_large)
{
    struct closing closing = { drained, spares_large };

    lane_call(lane, call_close_gate, &closing);
}

static void call_open_gate(struct lane *lane, void *argument)
{
    lane->gate = NULL;
    lane->spares_large = lane->spares_large && *(const bool *)argument;
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

    while (session && lane->spares_large && session->updates == session->large_updates)
        session = session->next_updating;
    if (session)
        *holder = (struct lane_holder){ session->id, session->pid, session->uid, true };
}

bool lane_gate_holder(struct lane *lane, struct lane_holder *ret_holder)
{
    lane_call(lane, call_gate_holder, ret_holder);
    return ret_holder->found;
}

/* ---- The epoch ---- */

static void call_begin_epoch(struct lane *lane, void *argument)
{
    *(uint32_t *)argument = lane->updates;
    lane->in_epoch = true;
    row_cache_begin_epoch(lane->cache);
}

uint32_t lane_begin_epoch(struct lane *lane)
{
    uint32_t cut = 0;

    lane_call(lane, call_begin_epoch, &cut);
    return cut;
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
