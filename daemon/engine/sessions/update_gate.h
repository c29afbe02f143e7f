/* SPDX-License-Identifier: Apache-2.0 */
/* update_gate.h: finds the moment at which no update of a lane's sessions is under way, for
 * checkpoints.
 *
 * The gate is on home lanes. While it is closed, no request that changes rows is begun; those under
 * way go on to their end. So there is a moment at which each has changed all of its rows, on all
 * lanes, or none. A request that waits has changed nothing and holds nothing that others need: a
 * SET waits before its ids are taken, a push or a group's step before its first wave.
 *
 * An update may take long, and others must not wait for it, so a gate opens again after a while.
 * The more tries were in vain, the harder the next one tries:
 * - GATE_CUTS_NONE: the gate is drained when no update is under way.
 * - GATE_THINS: the same, but until the moment is found lanes begin a few updates at a time, so
 *   that these end soon. Updates that have not ended when the gate opens do not count among the
 *   few: they would hold others up.
 * - GATE_CUTS_LARGE: large updates run through the moment: those of more than UPDATE_WHOLE_ROWS
 *   rows (a push: of more than one wave). Small ones are begun a few at a time. A session that has
 *   a large one under way begins none, since they would wait for its rows.
 * - GATE_CUTS_ALL: small updates run through it too. A group's step never does.
 *
 * A lane changes each row in one go, so rows are whole. An update that was cut has some of its rows
 * from before the moment and some from after.
 *
 * Thread: the lane. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_UPDATE_GATE_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_UPDATE_GATE_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/sessions/schedule.h"
#include "daemon/engine/sessions/session.h"

/* The updates that a gate does not wait for: they run through the moment, and are cut by it. A
 * group's step never is. */
enum gate_mode { GATE_CUTS_NONE, GATE_THINS, GATE_CUTS_LARGE, GATE_CUTS_ALL };

/* Initially zero, except `schedule`. */
struct update_gate {
    struct schedule *schedule; /* of the same lane */
    sem_t *drained;            /* not NULL: closed; to be posted when no update is under way */
    bool is_told;              /* `drained` has been posted */
    enum gate_mode mode;       /* also limits updates between the tries of a search */
    /* Updates under way, of sessions whose home this is. */
    uint32_t updates[UPDATE_KINDS];
    uint32_t most_thinned;    /* limit on updates under way, for kinds that `mode` thins */
    struct session *updating; /* sessions with updates under way, the longest first */
    struct session *last_updating;
    struct session *held; /* sessions with an update that may not begin, in order of arrival */
    struct session *last_held;
};

/* True if an update of the session may begin. If not, it must be held until it is released. */
bool update_may_begin(const struct update_gate *gate, const struct session *session,
                      enum update_kind kind);
/* The request may begin, and is about to change its first row. */
void update_begin(struct update_gate *gate, struct session *session, enum update_kind kind);
/* The request has changed its last row, and is answered. */
void update_end(struct update_gate *gate, struct session *session, enum update_kind kind);
/* Makes the session's update wait for the gate. It takes no turns meanwhile. */
void update_hold(struct update_gate *gate, struct session *session);
/* Lets held updates try again, as they may be allowed now. */
void update_release_held(struct update_gate *gate);

/* Closes the gate: no update is begun from now on. Posts @drained once, when no update is under way
 * except those that @mode cuts. */
void update_gate_close(struct update_gate *gate, sem_t *drained, enum gate_mode mode);
/* Opens the gate. @closes_again: the moment was not found, so the gate closes again soon, and the
 * mode still limits which updates begin. */
void update_gate_open(struct update_gate *gate, bool closes_again);
/* Returns a session for whose update the gate waits, or NULL. */
const struct session *update_gate_holder(const struct update_gate *gate);
/* Counts the updates under way. When all gates are closed and drained, these are the ones that are
 * cut. */
uint32_t update_gate_count(const struct update_gate *gate);

#endif
