/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/lane/checkpoint_gate.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/text/user_number.h"

#define NS_PER_SECOND UINT64_C(1000000000)
#define LOOK_NS       (UINT64_C(100) * 1000 * 1000) /* between looks if the server stops */

void gate_search_init(struct gate_search *search, struct lane *const *lanes, uint32_t lane_count,
                      const _Atomic bool *stopping)
{
    *search = (struct gate_search){
        .lanes = lanes,
        .lane_count = lane_count,
        .stopping = stopping,
        .began_ns = clock_now_ns(&clock_monotonic),
    };
}

enum gate_mode gate_try_mode(uint32_t number)
{
    return number < GATE_FREE_TRIES    ? GATE_CUTS_NONE
           : number < GATE_WHOLE_TRIES ? GATE_THINS
           : number < GATE_SMALL_TRIES ? GATE_CUTS_LARGE
                                       : GATE_CUTS_ALL;
}

uint64_t gate_try_rest_ns(uint32_t number)
{
    uint64_t rest_ns = GATE_REST_NS;

    if (gate_try_mode(number) != GATE_CUTS_NONE)
        return GATE_THIN_REST_NS;
    for (uint32_t i = 0; i < number; i++)
        rest_ns *= 2;
    return MIN(rest_ns, GATE_REST_MOST_NS);
}

/* Finds a session for whose update the gates wait. There is none if the last one ended just now. */
static void find_holder(struct gate_search *search)
{
    search->holder = (struct lane_holder){ 0 };
    for (uint32_t i = 0; i < search->lane_count && !search->holder.found; i++)
        (void)!lane_gate_holder(search->lanes[i], &search->holder);
}

enum embtier_err gate_close(struct gate_search *search, struct err_msg *msg)
{
    const enum gate_mode mode = gate_try_mode(search->tries++ - search->late_tries);
    struct timespec until;

    if (atomic_load(search->stopping))
        return err_shutdown(msg);
    assert(!search->is_closed);
    sem_init(&search->drained, 0, 0);
    search->is_closed = true;
    search->is_late = false;
    search->closed_ns = clock_now_ns(&clock_monotonic);
    until = clock_moment(search->closed_ns + GATE_DRAIN_NS);
    for (uint32_t i = 0; i < search->lane_count; i++)
        lane_close_gate(search->lanes[i], &search->drained, mode);
    for (uint32_t i = 0; i < search->lane_count; i++) {
        int rc;

        do
            rc = sem_clockwait(&search->drained, CLOCK_MONOTONIC, &until);
        while (rc != 0 && errno == EINTR);
        if (rc == 0)
            continue;
        find_holder(search);
        return EMBTIER_AGAIN;
    }
    return EMBTIER_OK;
}

/* Once half of the search's time is gone, there may be no other moment: this one has no time
 * limit. */
uint64_t gate_until_ns(const struct gate_search *search)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);

    if (search->late_tries >= GATE_LATE_TRIES || now_ns - search->began_ns > GATE_SEARCH_NS / 2)
        return UINT64_MAX;
    return MAX(search->closed_ns + GATE_CLOSED_NS, now_ns + GATE_LAST_NS);
}

void gate_note_late(struct gate_search *search)
{
    search->late_tries++;
    search->is_late = true;
}

void gate_open(struct gate_search *search, bool closes_again)
{
    /* Also opens gates that are not closed: that lets go of updates that were held back since the
     * last try. */
    for (uint32_t i = 0; i < search->lane_count; i++)
        lane_open_gate(search->lanes[i], closes_again);
    if (!search->is_closed)
        return;
    sem_destroy(&search->drained); /* no lane knows it any more */
    search->is_closed = false;
    search->longest_ns =
        MAX(search->longest_ns, clock_now_ns(&clock_monotonic) - search->closed_ns);
}

static void sleep_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ns / NS_PER_SECOND),
                                  .tv_nsec = (long)(ns % NS_PER_SECOND) },
              NULL);
}

static enum embtier_err no_moment(const struct gate_search *search, uint64_t seconds,
                                  struct err_msg *msg)
{
    const struct lane_holder *const holder = &search->holder;

    (void)err_set(msg, EMBTIER_BUSY,
                  "no checkpoint: %" PRIu64 " tries in %" PRIu64
                  " s found no moment without an update in progress",
                  (uint64_t)search->tries, seconds);
    if (holder->found)
        err_append(msg,
                   "; session %" PRIu64 " (pid %d, %s) had one in the last try: wait for it, or "
                   "end that process, then try again",
                   holder->session, (int)holder->pid, USER_NUMBER(holder->uid));
    else
        err_append(msg, ": try again when there are fewer");
    return EMBTIER_BUSY;
}

enum embtier_err gate_rest(struct gate_search *search, struct err_msg *msg)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    const uint64_t rest_ns = search->is_late
                                 ? GATE_REST_MOST_NS
                                 : gate_try_rest_ns(search->tries - search->late_tries - 1);
    uint64_t spent_ns = 0;

    if (!search->is_late && began_ns - search->began_ns >= GATE_SEARCH_NS) {
        gate_open(search, false);
        return no_moment(search, (began_ns - search->began_ns) / NS_PER_SECOND, msg);
    }
    while (spent_ns < rest_ns) {
        if (atomic_load(search->stopping)) {
            gate_open(search, false);
            return err_shutdown(msg);
        }
        sleep_ns(MIN(rest_ns - spent_ns, LOOK_NS));
        spent_ns = clock_now_ns(&clock_monotonic) - began_ns;
    }
    return EMBTIER_OK;
}
