/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_gate.h: finds the moment of a checkpoint: no update is under way.
 *
 * Updates under way end by themselves, and none is begun while the gates are closed
 * (update_gate.h). But an update may take long: its rows have to be read from a slow disk, its
 * queue is full, there are many updates, or the machine is busy. So gates wait for GATE_DRAIN_NS
 * only. Then they open, others go on, and the next try comes later. After GATE_FREE_TRIES lanes
 * begin updates a few at a time, so that these end soon. After GATE_WHOLE_TRIES large updates are
 * cut, and after GATE_SMALL_TRIES all but the steps of groups: each row is whole, an update may not
 * be. If GATE_SEARCH_NS were in vain too, the search ends and names the session whose step it was.
 *
 * Logs are synced in the moment, and other writers may keep the disk busy. A moment that lasts
 * longer than GATE_CLOSED_NS is given up too, and lanes go on as if there were no search. That
 * happens at most GATE_LATE_TRIES times: on a slow disk the pause is as long as it has to be.
 *
 * Each search begins with gate_search_init(). Each try is gate_close(), the work in the moment if
 * that is OK, and gate_open(). gate_rest() comes before the next try, if this one failed or was
 * late.
 *
 * Thread: the worker. */
#ifndef EMBTIER_DAEMON_ENGINE_LANE_CHECKPOINT_GATE_H
#define EMBTIER_DAEMON_ENGINE_LANE_CHECKPOINT_GATE_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/lane/lane.h"

/* Updates may pause for at most 250 ms. The rest is for the work in the moment. */
#define GATE_DRAIN_NS    (UINT64_C(150) * 1000 * 1000)
#define GATE_CLOSED_NS   (UINT64_C(200) * 1000 * 1000)
#define GATE_LAST_NS     (UINT64_C(40) * 1000 * 1000) /* for the work after the logs are synced */
#define GATE_LATE_TRIES  6
#define GATE_FREE_TRIES  4
#define GATE_WHOLE_TRIES 10
#define GATE_SMALL_TRIES 16
#define GATE_SEARCH_NS   (UINT64_C(60) * 1000 * 1000 * 1000)
/* The rest between two tries: the first, which then doubles up to the most; and the one after tries
 * from which updates may have to wait until the next opening. */
#define GATE_REST_NS      (UINT64_C(200) * 1000 * 1000)
#define GATE_REST_MOST_NS (UINT64_C(1) * 1000 * 1000 * 1000)
#define GATE_THIN_REST_NS (UINT64_C(80) * 1000 * 1000)

struct gate_search {
    struct lane *const *lanes;
    uint32_t lane_count;
    const _Atomic bool *stopping;
    sem_t drained;
    struct lane_holder holder; /* a session whose update the last failed try waited for, if found */
    uint64_t began_ns;
    uint64_t closed_ns;  /* when the gates closed, in this try */
    uint64_t longest_ns; /* the longest time that they were closed, of all tries */
    uint32_t tries;
    uint32_t late_tries; /* tries whose moment was late */
    bool is_closed;
    bool is_late; /* the last try was late */
};

void gate_search_init(struct gate_search *search, struct lane *const *lanes, uint32_t lane_count,
                      const _Atomic bool *stopping);
/* Closes the gates. OK: this is the moment, which lasts until gate_open(). AGAIN: it was not found
 * in time. SHUTDOWN. */
MUST_CHECK enum embtier_err gate_close(struct gate_search *search, struct err_msg *msg);
/* Returns the time on clock_monotonic by which all work in the moment must be done; UINT64_MAX:
 * there is no limit. To be called when only the last part of that work is left. */
uint64_t gate_until_ns(const struct gate_search *search);
/* Notes that this time has passed, and that the moment is given up. */
void gate_note_late(struct gate_search *search);
/* Opens the gates. To be called after gate_close() in any case, at once. @closes_again:
 * gate_close() was AGAIN. If not, this was the last try, or its moment was late. */
void gate_open(struct gate_search *search, bool closes_again);
/* Waits until the next try. BUSY: there is none, and the message says why. SHUTDOWN. */
MUST_CHECK enum embtier_err gate_rest(struct gate_search *search, struct err_msg *msg);

/* ---- For tests ---- */

/* Return how hard try @number tries, and how long the rest after it is. Tries are counted from 0
 * on, without those that were late. */
enum gate_mode gate_try_mode(uint32_t number);
uint64_t gate_try_rest_ns(uint32_t number);

#endif
