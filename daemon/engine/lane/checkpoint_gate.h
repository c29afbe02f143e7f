/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_gate.h: looks for the moment of which a checkpoint will be: no update is under way.
 *
 * Updates under way end by themselves, and none is begun while the gates are closed
 * (update_gate.h). But one may take long: its rows have to be read from a slow disk, or its queue
 * is full; or there are many, or the machine is busy. So gates wait for GATE_DRAIN_NS only. Then
 * they open, others go on, and the next try comes later. After GATE_FREE_TRIES lanes begin updates
 * a few at a time, so that these end soon. After GATE_WHOLE_TRIES large updates are cut, and after
 * GATE_SMALL_TRIES all but the steps of groups: each row is whole, an update may not be. When
 * GATE_SEARCH_NS were in vain too, the search ends and tells whose step it was.
 *
 * Logs are synced in the moment, and other writers may keep the disk busy. A moment that lasts
 * longer than GATE_CLOSED_NS is given up too, and lanes go on as if there were no search. That
 * happens GATE_LATE_TRIES times only: on a slow disk the pause is as long as it has to be.
 *
 *   gate_search_init, then until gate_close() is OK and the moment is not late: gate_close,
 *   gate_open, gate_rest
 *
 * Thread: the worker's. */
#ifndef EMBTIER_DAEMON_ENGINE_LANE_CHECKPOINT_GATE_H
#define EMBTIER_DAEMON_ENGINE_LANE_CHECKPOINT_GATE_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/lane/lane.h"

/* The pause of updates is to be at most 250 ms: the rest is for what is done in the moment. */
#define GATE_DRAIN_NS    (UINT64_C(150) * 1000 * 1000)
#define GATE_CLOSED_NS   (UINT64_C(200) * 1000 * 1000)
#define GATE_LAST_NS     (UINT64_C(40) * 1000 * 1000) /* for what comes after the logs are synced */
#define GATE_LATE_TRIES  6
#define GATE_FREE_TRIES  4
#define GATE_WHOLE_TRIES 10
#define GATE_SMALL_TRIES 16
#define GATE_SEARCH_NS   (UINT64_C(60) * 1000 * 1000 * 1000)
/* Between two tries: the first, each time twice as long; and when updates may have to wait for the
 * next opening. */
#define GATE_REST_NS      (UINT64_C(200) * 1000 * 1000)
#define GATE_REST_MOST_NS (UINT64_C(1) * 1000 * 1000 * 1000)
#define GATE_THIN_REST_NS (UINT64_C(80) * 1000 * 1000)

struct gate_search {
    struct lane *const *lanes;
    uint32_t lane_count;
    const _Atomic bool *stopping;
    sem_t drained;
    struct lane_holder holder; /* in whose session the last try in vain found an update */
    uint64_t began_ns;
    uint64_t closed_ns;  /* when; of this try */
    uint64_t longest_ns; /* that they were closed, of all tries */
    uint32_t tries;
    uint32_t late_tries; /* of these */
    bool is_closed;
    bool is_late; /* the last try was */
};

void gate_search_init(struct gate_search *search, struct lane *const *lanes, uint32_t lane_count,
                      const _Atomic bool *stopping);
/* OK: this is the moment, until gate_open(). AGAIN: it was not found in time. SHUTDOWN. */
MUST_CHECK enum embtier_err gate_close(struct gate_search *search, struct err_msg *msg);
/* By when, on clock_monotonic, all has to be done that is done in the moment, of which only the
 * last part is left; UINT64_MAX: there is no such time. */
uint64_t gate_until_ns(const struct gate_search *search);
/* It was not, and is given up. */
void gate_note_late(struct gate_search *search);
/* In any case after gate_close(), at once; @closes_again: after AGAIN, else it was the last, or was
 * late. */
void gate_open(struct gate_search *search, bool closes_again);
/* Waits until the next try. BUSY: there is none, and why. SHUTDOWN. */
MUST_CHECK enum embtier_err gate_rest(struct gate_search *search, struct err_msg *msg);

/* ---- For tests ---- */

/* How hard try @number of those that were not late, from 0 on, tries; how long the rest is behind
 * it. */
enum gate_mode gate_try_mode(uint32_t number);
uint64_t gate_try_rest_ns(uint32_t number);

#endif
