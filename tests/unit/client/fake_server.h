/* SPDX-License-Identifier: Apache-2.0 */
/* fake_server.h: a server for the client's tests that does as it is told: answers, waits, answers
 * in the wrong order, lies, dies. A thread in the test's process; the real daemon is tested
 * elsewhere.
 *
 * It knows the table "users" (8 rows of 4 f32) and, unless it is gone, "words" (unbounded, 2 f16).
 * It says that it made any table that it is asked for, as it was asked, and lets anybody join any
 * group: its handle is FAKE_GROUP and how many were joined before, and it is at the step given. It
 * has the checkpoints FAKE_CHECKPOINT - 1, made by itself, and FAKE_CHECKPOINT, made by whoever
 * asks for one, with the step and metadata given, of the tables "users" and "words"; it says that
 * it restored those of FAKE_CHECKPOINT that it is asked for. GET fills every byte of a row with the
 * low byte of its id; a pooled lookup fills bag b with b + 1, and its ticket, as that of a
 * prefetch, is FAKE_TICKET and the request's number; a push answers with FAKE_WEIGHT in the place
 * of the first weight. One client at a time. */
#ifndef EMBTIER_TESTS_UNIT_CLIENT_FAKE_SERVER_H
#define EMBTIER_TESTS_UNIT_CLIENT_FAKE_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_err.h"
#include "proto/shm_layout.h"

#define FAKE_TICKET     700
#define FAKE_WEIGHT     42.0f
#define FAKE_GROUP      800
#define FAKE_CHECKPOINT 900
#define FAKE_SEGMENTS   4 /* of a push or prefetch, that are kept */

struct fake_server {
    char path[108];

    /* What it does; may be changed while it runs. */
    atomic_bool hold;            /* requests are taken and not answered … */
    atomic_bool reverse;         /* … and, when hold ends, the youngest is answered first */
    atomic_bool mute;            /* control messages are not answered */
    atomic_bool unsealed;        /* memory comes without seals */
    atomic_bool short_arena;     /* with fewer bytes than announced */
    atomic_bool garbage;         /* instead of frames */
    atomic_bool words_gone;      /* no table "words" */
    atomic_uint users_dim;       /* of table "users" */
    atomic_uint words_optimizer; /* of table "words" */
    atomic_bool endless_lists;   /* of each there is said to be more */
    atomic_bool gone_restored;   /* a checkpoint that was restored is deleted, and its tables are
                                    said to be more than the answer has */
    atomic_bool unnamed_tables;  /* checkpoints come without the names of their tables */
    atomic_bool wrong_reply;     /* checkpoints are answered with the status */
    atomic_uint join_err;        /* of every group that is to be joined */
    atomic_uint farewell;        /* an error with which the session ends now */
    atomic_bool drop_client;     /* closes the connection now */
    atomic_uint err;             /* of every answer, with the figures below */
    atomic_uint err_segment;
    atomic_ullong err_value;
    atomic_ullong err_limit;

    /* What it saw. */
    atomic_uint taken;       /* requests, in this session */
    atomic_uint doorbells;   /* rung */
    atomic_uint answered;    /* requests, in all sessions */
    atomic_uint ended;       /* sessions, with all they had */
    atomic_uint joined;      /* groups */
    atomic_uint join_size;   /* of the last … */
    atomic_uint join_member; /* … and the number asked for */
    atomic_uint keep;        /* of the last checkpoint asked for */
    atomic_uint deleted;     /* checkpoints */
    atomic_uint restores;    /* asked for */
    /* Of the last request that it answered; good until the next one. */
    struct shm_submission submission;
    struct shm_push_segment pushed[FAKE_SEGMENTS];
    uint64_t pushed_ids[FAKE_SEGMENTS];    /* the first; 0: none */
    float pushed_gradients[FAKE_SEGMENTS]; /* the first number; 0: none */

    /* Its own. */
    atomic_bool stop;
    int listen_fd;
    void *thread;
};

/* Ends the test when it cannot start. */
void fake_server_start(struct fake_server *server);
/* Closes the socket too: nobody listens afterwards. */
void fake_server_stop(struct fake_server *server);

#endif
