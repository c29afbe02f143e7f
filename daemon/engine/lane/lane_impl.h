/* SPDX-License-Identifier: Apache-2.0 */
/* lane_impl.h: the inside of a lane, shared by lane.c (loop, sessions, messages), lane_life.c
 * (making and ending), lane_calls.c (calls from other threads) and lane_epoch.c (checkpoints).
 *
 * Only this folder knows struct lane. Others get the part they own: rows (rows/rows.h), the
 * schedule (sessions/schedule.h), the gate of updates (sessions/update_gate.h), operations
 * (ops/op.h), the mailbox (mail/mailbox.h). */
#ifndef EMBTIER_DAEMON_ENGINE_LANE_LANE_IMPL_H
#define EMBTIER_DAEMON_ENGINE_LANE_LANE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/engine/lane/lane.h"
#include "daemon/engine/mail/mailbox.h"
#include "daemon/engine/ops/op.h"
#include "daemon/engine/rows/rows.h"
#include "daemon/engine/sessions/schedule.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/engine/sessions/slow_log.h"
#include "daemon/engine/sessions/update_gate.h"

struct lane {
    struct lane_opts opts;
    struct op_lane ops;
    struct rows rows;
    struct schedule schedule;
    struct update_gate gate;
    struct caster *caster;      /* one of the casters, which cast for all lanes */
    struct mailbox **mailboxes; /* of all lanes, as are the casters; known when lanes start */
    struct caster **casters;

    uint32_t rounds_to_clock; /* until the clock is read again */
    uint64_t ticket_end_ns;   /* when the oldest ticket expires; 0: there is none */
    uint64_t heard_ns;        /* when the lane last listened to doorbells */

    /* Sleep and wake. */
    int epoll_fd;
    uint64_t idle_since_ns;

    pthread_t thread;
    bool has_thread;
    bool stopping;

    /* Counters (base/counter.h), which any thread reads. */
    uint64_t requests;
    uint64_t segments;
    struct latencies latencies;
    struct slow_log slow_log; /* not a counter: the lane's alone */

    struct mailbox mailbox;
};

/* lane.c: a session is given to the lane, which lets go of it; or it gets the memory that it waits
 * for. */
extern const struct message_kind message_attach, message_detach, message_memory;
/* lane_calls.c: runs a function on the lane. */
extern const struct message_kind message_call;

/* Runs one round of the loop. False: there was nothing to do. */
bool lane_round(struct lane *lane);
/* The lane's thread. */
void *lane_main(void *lane);
/* The member `settle` of struct op_lane. */
void lane_settle(struct op_lane *ops, struct session *session);

#endif
