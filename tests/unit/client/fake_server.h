/* SPDX-License-Identifier: Apache-2.0 */
/* fake_server.h: a server for the client's tests that does as it is told: it answers, waits,
 * answers in the wrong order, lies or dies. It is a thread in the test's process, and serves one
 * client at a time. Other tests use the real daemon.
 *
 * Tables: it knows "users" (8 rows of 4 f32) and, unless it is gone, "words" (unbounded, 2 f16). It
 * claims to have made any table that a client asks for.
 *
 * Groups: any client may join any group. The handle is FAKE_GROUP plus the number of earlier joins;
 * the group is at the step given.
 *
 * Checkpoints: it made FAKE_CHECKPOINT - 1 itself. FAKE_CHECKPOINT is the one that a client asks
 * for, with that request's step and metadata. Both have the tables "users" and "words". It claims
 * to have restored the tables of FAKE_CHECKPOINT that a client asks for.
 *
 * Requests: GET fills every byte of a row with the low byte of its id. A pooled lookup fills bag b
 * with b + 1. The ticket of a lookup or prefetch is FAKE_TICKET plus the request's number. A push
 * puts FAKE_WEIGHT in the place of the first weight. */
#ifndef EMBTIER_TESTS_UNIT_CLIENT_FAKE_SERVER_H
#define EMBTIER_TESTS_UNIT_CLIENT_FAKE_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_err.h"
#include "proto/ops.h"

#define FAKE_TICKET     700
#define FAKE_WEIGHT     42.0f
#define FAKE_GROUP      800
#define FAKE_CHECKPOINT 900
#define FAKE_SEGMENTS   4 /* segments of a push or prefetch that it keeps */

struct fake_server {
    char path[108];

    /* Behaviour, which a test may change while the server runs. */
    atomic_bool hold;            /* takes requests without answering, … */
    atomic_bool reverse;         /* … and answers the youngest first when hold ends */
    atomic_bool mute;            /* does not answer control messages */
    atomic_bool unsealed;        /* gives memory without seals */
    atomic_bool short_arena;     /* with fewer bytes than announced */
    atomic_bool garbage;         /* sends garbage instead of frames */
    atomic_bool words_gone;      /* has no table "words" */
    atomic_uint users_dim;       /* dim of table "users" */
    atomic_uint words_optimizer; /* optimizer of table "words" */
    atomic_bool endless_lists;   /* says of each list that there is more */
    atomic_bool gone_restored;   /* a restored checkpoint is gone afterwards, and the answer lacks
                                    some of its tables */
    atomic_bool unnamed_tables;  /* checkpoints come without their tables' names */
    atomic_bool wrong_reply;     /* answers about checkpoints with the status */
    atomic_uint join_err;        /* error for every attempt to join a group */
    atomic_uint farewell;        /* error that ends the session now */
    atomic_bool drop_client;     /* closes the connection now */
    atomic_uint err;             /* error of every answer, with the figures below */
    atomic_uint err_segment;
    atomic_ullong err_value;
    atomic_ullong err_limit;

    /* The server's observations. */
    atomic_uint taken;       /* requests taken in this session */
    atomic_uint doorbells;   /* times the doorbell rang */
    atomic_uint answered;    /* requests answered in all sessions */
    atomic_uint ended;       /* sessions that have ended completely */
    atomic_uint joined;      /* joins of groups */
    atomic_uint join_size;   /* size that the last join named … */
    atomic_uint join_member; /* … and its member number */
    atomic_uint keep;        /* number to keep, from the last checkpoint's request */
    atomic_uint deleted;     /* checkpoints deleted */
    atomic_uint restores;    /* restores asked for */
    /* The last answered request; valid until the next one. */
    struct op_submission submission;
    struct op_push_segment pushed[FAKE_SEGMENTS];
    uint64_t pushed_ids[FAKE_SEGMENTS];    /* first id; 0: none */
    float pushed_gradients[FAKE_SEGMENTS]; /* first number; 0: none */

    /* The server's own fields. */
    atomic_bool stop;
    int listen_fd;
    void *thread;
};

/* Ends the test if it cannot start. */
void fake_server_start(struct fake_server *server);
/* Also closes the socket: no server listens afterwards. */
void fake_server_stop(struct fake_server *server);

#endif
