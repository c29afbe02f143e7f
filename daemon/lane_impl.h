/* SPDX-License-Identifier: Apache-2.0 */
/* lane_impl.h: the inside of a lane, shared by lane.c (loop, sessions, messages), lane_rows.c (the
 * row work) and lane_pooled.c (pooled lookups). */
#ifndef EMBTIER_DAEMON_LANE_IMPL_H
#define EMBTIER_DAEMON_LANE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/lane.h"
#include "daemon/miss_table.h"
#include "daemon/pooled.h"
#include "daemon/read_order.h"
#include "daemon/read_pool.h"
#include "daemon/request.h"
#include "daemon/request_memory.h"
#include "daemon/session.h"
#include "daemon/table.h"

#define LANE_CHUNK_ROWS 512   /* rows per call of the cache */
#define LANE_MISSES_MAX 65536 /* distinct rows being read */

struct session_queue {
    struct session_lane *first;
    struct session_lane *last;
};

struct lane {
    struct lane_opts opts;
    struct request_rules rules;
    struct row_cache *cache;
    struct write_queue *write_queue;
    struct read_pool *readers;
    struct miss_table *misses;
    uint8_t *request_base;

    /* Row work. */
    struct read_order *read_order;
    bool pressure; /* see lane_take_pressure() */
    struct session_queue runnable;
    struct session_queue blocked; /* wait for a free miss entry or for room in the write queue */
    struct miss_list parked;
    uint8_t *scratch_row; /* a row put together from new weights and queued state */
    uint32_t chunk_missed[LANE_CHUNK_ROWS];

    /* Sessions whose home this is, in the polled list while their client need not ring. */
    struct session *polled;
    bool memory_short;      /* one of them is */
    struct session *taking; /* those with a large request half taken, which take turns at it */
    struct session *last_taking;
    struct message *add_up; /* waves of pooled lookups, any session's */
    struct message *last_add_up;
    uint64_t heard_ns; /* doorbells were listened to */

    /* Sleep and wake. */
    int epoll_fd;
    int wake_fd;
    uint64_t idle_since_ns;

    pthread_t thread;
    bool has_thread;
    bool stopping;

    /* Counters; only the lane writes. */
    struct lane_stats stats;
    uint64_t second_looks;         /* misses of the cache that were counted before */
    uint64_t read_error_logged_ns; /* one line a second is enough */

    /* Written by others. On lines of their own. */
    _Alignas(CACHE_LINE) struct inbox inbox;
    _Alignas(CACHE_LINE) _Atomic uint32_t asleep;
};

/* ---- lane_rows.c ---- */

/* Adds a part behind the session's others on this lane. */
void lane_add_part(struct lane *lane, struct part *part);
/* One turn of the session at the front of the run queue. False if there is none. */
bool lane_run_turn(struct lane *lane);
/* Fills free read jobs with the rows that wait for one. True: that was a turn's work, and there may
 * be more. */
bool lane_dispatch_reads(struct lane *lane);
void lane_on_read_done(struct lane *lane, struct read_job *job);
/* The write queue has more room, or will have none: parked rows and blocked sessions go on. */
void lane_on_written(struct lane *lane);

/* ---- lane_pooled.c: on the home lane ---- */

enum pool_turn {
    POOL_TURN_MORE,    /* ids are left to be taken */
    POOL_TURN_STALLED, /* the same, and no wave for them until one is done */
    POOL_TURN_TAKEN,   /* none are left; waves are under way */
    POOL_TURN_DONE,    /* and none is */
};

/* Takes one wave of a pooled lookup. */
enum pool_turn lane_pool_turn(struct lane *lane, struct pooled *pooled);
/* Nothing more is taken of it, and its client is not answered. */
void lane_pool_give_up(struct pooled *pooled);
/* All rows of a wave are there, or it has failed. */
void lane_pool_on_looked_up(struct lane *lane, struct request *request);
/* Any lane: a wave is to be added up; one a turn is, and sent home. False: there is none. */
void lane_pool_add_up(struct lane *lane, struct request *request);
bool lane_pool_add_up_turn(struct lane *lane);
void lane_pool_on_added_up(struct lane *lane, struct request *request);

/* ---- lane.c ---- */

/* Hands a request that has been taken to the lanes. */
void lane_start_request(struct lane *lane, struct request *request);

/* The part's last row is served: completes the request if it was the last part. */
void lane_part_finished(struct lane *lane, struct part *part);

#endif
