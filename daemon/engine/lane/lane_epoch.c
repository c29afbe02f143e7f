/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints, as a lane sees them (checkpoints.h): the gate (update_gate.h), and the epoch.
 *
 * In the moment that the gates find, each lane begins an epoch (row_cache_begin_epoch()): rows that
 * are dirty then are old. They are written here a few at a time, and at once before one of them is
 * changed. Until all are written, the write queue takes no newer rows of replay tables. Such rows
 * stay in the cache, and a row for which the cache has no room waits (held_rows). */
#include "daemon/engine/lane/lane_impl.h"

#define FORGET_STEP_SETS 4096
/* Saving uses only this part of the queue, so that updates of old rows find the rest free. When
 * others have filled it, a few rows are saved all the same. */
#define SAVE_QUEUE_PART 2
#define SAVE_ROWS_FEW   16

/* ---- The gate ---- */

struct closing {
    sem_t *drained;
    enum gate_mode mode;
};

static void call_close_gate(struct lane *lane, void *argument)
{
    const struct closing *const closing = argument;

    update_gate_close(&lane->gate, closing->drained, closing->mode);
}

void lane_close_gate(struct lane *lane, sem_t *drained, enum gate_mode mode)
{
    struct closing closing = { drained, mode };

    lane_call(lane, call_close_gate, &closing);
}

static void call_open_gate(struct lane *lane, void *argument)
{
    update_gate_open(&lane->gate, *(const bool *)argument);
}

void lane_open_gate(struct lane *lane, bool closes_again)
{
    lane_call(lane, call_open_gate, &closes_again);
}

static void call_gate_holder(struct lane *lane, void *argument)
{
    struct lane_holder *const holder = argument;
    const struct session *const session = update_gate_holder(&lane->gate);

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
    *(uint32_t *)argument = update_gate_count(&lane->gate);
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
    rows_begin_epoch(&lane->rows);
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

    write_queue_stats(lane->rows.write_queue, &queue);
    step->saved.err = (enum embtier_err)queue.err;
    if (queue.bytes > queue.capacity_bytes / SAVE_QUEUE_PART)
        step->most = MIN(step->most, (uint32_t)SAVE_ROWS_FEW);
    if (!saving->all_handed_over && step->most > 0) {
        step->saved.rows =
            rows_write_back(&lane->rows, &saving->cursor, step->most, &saving->all_handed_over);
        saving->mark = write_queue_mark(lane->rows.write_queue);
    }
    step->saved.held_rows = lane->rows.counts.held_rows;
    step->saved.requests = lane->requests;
    step->saved.idle = write_queue_passed(lane->rows.write_queue, saving->mark);
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
    *(bool *)argument = rows_end_epoch(&lane->rows);
    rows_try_again(&lane->rows); /* the queue has room now */
}

bool lane_end_epoch(struct lane *lane)
{
    bool complete = false;

    lane_call(lane, call_end_epoch, &complete);
    return complete;
}

struct forget_step {
    struct rows_cursor cursor;
    bool done;
};

static void call_forget(struct lane *lane, void *argument)
{
    struct forget_step *const step = argument;

    step->done = rows_forget_epoch(&lane->rows, &step->cursor, FORGET_STEP_SETS);
}

void lane_forget_epoch(struct lane *lane)
{
    struct forget_step step = { 0 };

    while (!step.done)
        lane_call(lane, call_forget, &step);
}
