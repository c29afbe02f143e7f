/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/sessions/update_gate.h"

#include <assert.h>

#include "base/macros.h"

#define FEW_UPDATES 2

static uint32_t count_all(const uint32_t updates[UPDATE_KINDS])
{
    return updates[UPDATE_SMALL] + updates[UPDATE_LARGE] + updates[UPDATE_OF_GROUP];
}

/* Counts those of @updates that the gate waits for. */
static uint32_t count_awaited(const struct update_gate *gate, const uint32_t updates[UPDATE_KINDS])
{
    uint32_t awaited = updates[UPDATE_OF_GROUP];

    if (gate->mode < GATE_CUTS_ALL)
        awaited += updates[UPDATE_SMALL];
    if (gate->mode < GATE_CUTS_LARGE)
        awaited += updates[UPDATE_LARGE];
    return awaited;
}

static void tell_if_drained(struct update_gate *gate)
{
    if (gate->drained && !gate->is_told && count_awaited(gate, gate->updates) == 0) {
        gate->is_told = true;
        sem_post(gate->drained);
    }
}

/* True if updates of this kind are begun a few at a time. */
static bool gate_thins(const struct update_gate *gate, enum update_kind kind)
{
    return (kind == UPDATE_SMALL && (gate->mode == GATE_THINS || gate->mode == GATE_CUTS_LARGE)) ||
           (kind == UPDATE_LARGE && gate->mode == GATE_THINS);
}

static uint32_t count_thinned(const struct update_gate *gate)
{
    return gate->updates[UPDATE_SMALL] +
           (gate_thins(gate, UPDATE_LARGE) ? gate->updates[UPDATE_LARGE] : 0);
}

bool update_may_begin(const struct update_gate *gate, const struct session *session,
                      enum update_kind kind)
{
    if (gate->drained)
        return false;
    if (!gate_thins(gate, kind))
        return true;
    return count_thinned(gate) < gate->most_thinned &&
           (gate->mode == GATE_THINS || session->updates[UPDATE_LARGE] == 0);
}

static void updating_add(struct update_gate *gate, struct session *session)
{
    session->next_updating = NULL;
    session->previous_updating = gate->last_updating;
    if (gate->last_updating)
        gate->last_updating->next_updating = session;
    else
        gate->updating = session;
    gate->last_updating = session;
}

static void updating_remove(struct update_gate *gate, struct session *session)
{
    if (session->next_updating)
        session->next_updating->previous_updating = session->previous_updating;
    else
        gate->last_updating = session->previous_updating;
    if (session->previous_updating)
        session->previous_updating->next_updating = session->next_updating;
    else
        gate->updating = session->next_updating;
}

void update_begin(struct update_gate *gate, struct session *session, enum update_kind kind)
{
    assert(kind < UPDATE_KINDS && update_may_begin(gate, session, kind));
    if (count_all(session->updates) == 0)
        updating_add(gate, session);
    session->updates[kind]++;
    gate->updates[kind]++;
}

void update_end(struct update_gate *gate, struct session *session, enum update_kind kind)
{
    assert(session->updates[kind] > 0 && gate->updates[kind] > 0);
    session->updates[kind]--;
    gate->updates[kind]--;
    if (count_all(session->updates) == 0)
        updating_remove(gate, session);
    assert((count_all(gate->updates) == 0) == (gate->updating == NULL));
    gate->most_thinned = MIN(gate->most_thinned, count_thinned(gate) + FEW_UPDATES);
    tell_if_drained(gate);
    if (gate_thins(gate, UPDATE_SMALL))
        update_release_held(gate); /* one may have waited for this */
}

void update_hold(struct update_gate *gate, struct session *session)
{
    assert(!session->is_held);
    session->is_held = true;
    session->next_held = NULL;
    if (gate->held)
        gate->last_held->next_held = session;
    else
        gate->held = session;
    gate->last_held = session;
}

void update_release_held(struct update_gate *gate)
{
    struct session *session;

    while ((session = gate->held)) {
        assert(session->is_held);
        session->is_held = false;
        gate->held = session->next_held;
        schedule_add_work(gate->schedule, schedule_side_of(gate->schedule, session), SESSION_TAKE);
    }
}

void update_gate_close(struct update_gate *gate, sem_t *drained, enum gate_mode mode)
{
    assert(!gate->drained);
    gate->drained = drained;
    gate->mode = mode;
    gate->is_told = false;
    tell_if_drained(gate);
}

void update_gate_open(struct update_gate *gate, bool closes_again)
{
    gate->drained = NULL;
    if (!closes_again)
        gate->mode = GATE_CUTS_NONE;
    gate->most_thinned = count_thinned(gate) + FEW_UPDATES;
    update_release_held(gate);
}

const struct session *update_gate_holder(const struct update_gate *gate)
{
    const struct session *session = gate->updating;

    while (session && count_awaited(gate, session->updates) == 0)
        session = session->next_updating;
    return session;
}

uint32_t update_gate_count(const struct update_gate *gate)
{
    return count_all(gate->updates);
}
