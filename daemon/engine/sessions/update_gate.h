/* SPDX-License-Identifier: Apache-2.0 */
/* update_gate.h: the moment at which no update of a lane's sessions is under way, for checkpoints.
 *
 * The gate is on home lanes. While it is closed no request that changes rows is begun; those under
 * way go on to their end, so that there is a moment at which each has changed all of its rows, on
 * all lanes, or none. A request that waits has changed nothing and holds nothing that others need:
 * a SET before its ids are taken, a push or a group's step before its first wave.
 *
 * Updates may take long, and others must not wait for them, so a gate opens again after a while.
 * It tries harder the more often that was in vain:
 * - GATE_CUTS_NONE: it is drained when no update is under way.
 * - GATE_THINS: the same, but until the moment is found lanes begin a few updates at a time, so
 *   that these end soon. Those that have not ended when the gate opens do not count: they would
 * hold others up.
 * - GATE_CUTS_LARGE: large updates run through the moment: those of more than UPDATE_WHOLE_ROWS
 *   rows (a push: of more than one wave). Small ones are begun a few at a time, and by no session
 *   that has a large one under way, whose rows they would wait for.
 * - GATE_CUTS_ALL: small ones run through it too. A group's step never does.
 * A lane changes each row in one go, so rows are whole; some of the rows of an update that was cut
 * are of before the moment, some of after.
 *
 * Thread: the lane. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_UPDATE_GATE_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_UPDATE_GATE_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/sessions/schedule.h"
#include "daemon/engine/sessions/session.h"

/* Which updates a gate does not wait for: they run through the moment, and are cut by it. A group's
 * step never is. */
enum gate_mode { GATE_CUTS_NONE, GATE_THINS, GATE_CUTS_LARGE, GATE_CUTS_ALL };

/* Zeroed at first, but for `schedule`. */
struct update_gate {
    struct schedule *schedule; /* of the same lane */
    sem_t *drained;            /* not NULL: closed, and posted when no update is under way */
    bool is_told;              /* that it was */
    enum gate_mode mode;       /* of the gate, and until it has closed for the last time */
    /* Requests of sessions whose home this is that change rows, under way. */
    uint32_t updates[UPDATE_KINDS];
    uint32_t most_thinned;    /* so many may be of those that the gate's mode thins */
    struct session *updating; /* those with some, the first is that for longest */
    struct session *last_updating;
    struct session *held; /* have an update that may not begin, as they came */
    struct session *last_held;
};

/* False: it is to be held, until it is released. */
bool update_may_begin(const struct update_gate *gate, const struct session *session,
                      enum update_kind kind);
/* Before a request changes its first row; it may begin. */
void update_begin(struct update_gate *gate, struct session *session, enum update_kind kind);
/* It has changed its last one, and that is answered. */
void update_end(struct update_gate *gate, struct session *session, enum update_kind kind);
/* The session's update waits for the gate, and takes no turns meanwhile. */
void update_hold(struct update_gate *gate, struct session *session);
/* Updates that might not begin may now, perhaps. */
void update_release_held(struct update_gate *gate);

/* From now on no update is begun; posts @drained once, when none is under way but those that @mode
 * cuts. */
void update_gate_close(struct update_gate *gate, sem_t *drained, enum gate_mode mode);
/* @closes_again: soon, as the moment was not found; the mode goes on to limit which updates begin.
 */
void update_gate_open(struct update_gate *gate, bool closes_again);
/* A session for whose update the gate waits, or NULL. */
const struct session *update_gate_holder(const struct update_gate *gate);
/* Updates under way: when all gates are closed and drained, those that are cut. */
uint32_t update_gate_count(const struct update_gate *gate);

#endif
