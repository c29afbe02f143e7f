/* SPDX-License-Identifier: Apache-2.0 */
/* lane_impl.h: the inside of a lane, shared by lane.c (loop, sessions, messages), lane_life.c
 * (making and ending), lane_calls.c (what other threads ask) and lane_epoch.c (checkpoints).
 *
 * Only this folder knows struct lane. Others get the part they own: rows (rows/rows.h), whose turn
 * it is (sessions/schedule.h), updates (sessions/update_gate.h), operations (ops/op.h), the mailbox
 * (mail/mailbox.h). */
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
#include "daemon/engine/sessions/update_gate.h"

struct lane {
    struct lane_opts opts;
    struct op_lane ops;
    struct rows rows;
    struct schedule schedule;
    struct update_gate gate;
    struct caster *caster;      /* one of those who cast for all lanes */
    struct mailbox **mailboxes; /* of all lanes, and their casters: known when lanes start */
    struct caster **casters;

    uint32_t rounds_to_clock; /* until that is read again */
    uint64_t ticket_end_ns;   /* when the oldest ticket expires, 0: there is none */
    uint64_t heard_ns;        /* doorbells were listened to */

    /* Sleep and wake. */
    int epoll_fd;
    uint64_t idle_since_ns;

    pthread_t thread;
    bool has_thread;
    bool stopping;

    /* Counters; only the lane writes. */
    uint64_t requests;
    uint64_t segments;

    struct mailbox mailbox;
};

/* All there is to be done now, once. False: there was nothing. */
bool lane_round(struct lane *lane);
/* The thread. */
void *lane_main(void *lane);
/* As the member of struct op_lane. */
void lane_settle(struct op_lane *ops, struct session *session);

#endif
