/* SPDX-License-Identifier: Apache-2.0 */
/* lane_impl.h: the inside of a lane, shared by lane.c (loop, sessions, messages), lane_turns.c
 * (whose turn it is), lane_rows.c (the row work), lane_reads.c (rows from SSD), lane_log.c (logged
 * tables), lane_epoch.c (checkpoints), lane_pooled.c (pooled lookups), lane_push.c (tickets and
 * pushes) and lane_group.c (pushes of groups). */
#ifndef EMBTIER_DAEMON_ENGINE_LANE_LANE_IMPL_H
#define EMBTIER_DAEMON_ENGINE_LANE_LANE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/engine/lane/lane.h"
#include "daemon/engine/mail/mailbox.h"
#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/caster.h"
#include "daemon/engine/ops/pooled.h"
#include "daemon/engine/ops/push.h"
#include "daemon/engine/ops/request.h"
#include "daemon/engine/rows/miss_table.h"
#include "daemon/engine/rows/read_order.h"
#include "daemon/engine/rows/read_pool.h"
#include "daemon/engine/sessions/schedule.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/engine/sessions/update_gate.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/turns/cost.h"
#include "daemon/engine/turns/turns.h"

#define LANE_CHUNK_ROWS 512   /* rows per call of the cache */
#define LANE_MISSES_MAX 65536 /* distinct rows being read */

struct lane {
    struct lane_opts opts;
    struct request_rules rules;
    struct row_cache *cache;
    struct write_queue *write_queue;
    struct read_pool *readers;
    struct miss_table *misses;
    struct caster *caster; /* one of those who cast for all lanes */
    uint8_t *request_base;
    struct message *done_here; /* requests whose last part was done here, where they are at home,
                                  oldest first */
    struct message **last_done_here;

    struct schedule schedule;
    struct update_gate gate;
    uint32_t rounds_to_clock; /* until that is read again */

    /* Row work. */
    struct read_order *read_order;
    bool pressure;                /* see struct lane_pulse */
    struct session_lane *blocked; /* wait for a free miss entry or for room in the write queue */
    struct session_lane *last_blocked;
    struct miss_list parked;
    struct part *logging; /* wait for their rows to be logged, in the write queue's order */
    struct part *last_logging;
    struct message *read_done; /* read jobs that have come back, oldest first */
    struct message *last_read_done;
    uint8_t *scratch_row; /* a row put together from new weights and queued state */
    uint32_t chunk_missed[LANE_CHUNK_ROWS];
    void *chunk_rows[LANE_CHUNK_ROWS];
    float *gradients; /* PUSH_SCRATCH_BYTES, of rows */

    struct ticket_lane *unpinning; /* prefetches that are over, any session's */
    struct ticket_lane *last_unpinning;
    struct ticket *oldest_ticket; /* of those that wait for their push */
    struct ticket *newest_ticket;
    uint64_t ticket_end_ns; /* when the oldest expires, 0: there is none */
    uint64_t heard_ns;      /* doorbells were listened to */

    bool in_epoch; /* see lane_epoch.c */

    /* Sleep and wake. */
    int epoll_fd;
    uint64_t idle_since_ns;

    pthread_t thread;
    bool has_thread;
    bool stopping;

    /* Counters; only the lane writes. */
    struct lane_stats stats;
    uint64_t second_looks;         /* misses of the cache that were counted before */
    uint64_t read_error_logged_ns; /* one line a second is enough */

    struct mailbox mailbox;
};

/* ---- lane_turns.c ---- */

/* Turns of sessions, until it is time to see what else there is. False: nobody wants one. */
bool lane_turns(struct lane *lane);
/* ---- lane_rows.c ---- */

/* Adds a part behind the session's others on this lane. */
void lane_add_part(struct lane *lane, struct part *part);
/* A session's turn at its oldest part. */
void lane_parts_turn(struct lane *lane, struct session_lane *session);
/* As row_cache_change(), and of a logged table row_cache_change_through(). */
uint32_t lane_rows_change(struct lane *lane, const struct table *table, const struct row_ref *refs,
                          uint32_t count, void **ret_rows);
/* As row_cache_find(): for a trial, in the place of lane_rows_change(). */
uint32_t lane_rows_find(struct lane *lane, const struct table *table, const struct row_ref *refs,
                        uint32_t count, void **ret_rows);
/* Has those rows of a logged table written (not NULL) that a part has changed, for which there was
 * room. */
void lane_rows_log(struct lane *lane, struct part *part, struct table *table,
                   const struct row_ref *refs, void *const *rows, uint32_t count);
/* Has a row of a logged table written that is not cached, and puts it into the cache if there is
 * room. False: no room in the write queue. */
MUST_CHECK bool lane_place_logged(struct lane *lane, struct table *table, uint64_t hash,
                                  uint64_t id, const void *row);
/* One row of a request is refused. */
void lane_ref_fail(struct lane *lane, struct part *part, uint32_t segment, uint64_t id,
                   enum embtier_err err);
/* Sessions that wait for room run again. */
void lane_unblock_all(struct lane *lane);

/* All of its refs are served, or wait for a read. */
static inline bool lane_part_is_looked_up(const struct part *part)
{
    return part->segment == part->request->segment_count && !part->retry_first;
}

/* The client is gone: what is not begun of its requests need not be. But for a push: of that all
 * rows are to change, or none. */
static inline bool lane_part_is_abandoned(const struct part *part)
{
    return part->request->op != SHM_OP_PUSH &&
           atomic_load_explicit(&part->request->session->gone, memory_order_relaxed);
}

/* Whether all of its rows, some or none are then as the client asked, it is not told: who hangs up
 * may still look at the shared memory. */
static inline void lane_part_abandon(struct lane *lane, struct part *part, uint64_t rows)
{
    request_fail(part->request, EMBTIER_DISCONNECTED, UINT32_MAX, 0);
    lane->stats.abandoned_rows += rows;
}

/* ---- lane_reads.c ---- */

/* Chains a ref to those who wait for a row that is read. */
void lane_ref_wait(struct lane *lane, struct part *part, struct row_ref *ref, struct miss *miss);
/* Has a row read that is not being read yet. False: no miss entry is to be had. */
MUST_CHECK bool lane_ref_read(struct lane *lane, struct part *part, struct table *table,
                              struct row_ref *ref);
/* Fills free read jobs with the rows that wait for one. True: that was a turn's work, and there may
 * be more. */
bool lane_dispatch_reads(struct lane *lane);
void lane_on_read_done(struct lane *lane, struct read_job *job);
/* Rows that have been read are given to those who wait for them, some a turn. False: there are
 * none.
 */
bool lane_serve_read(struct lane *lane);
/* The write queue has more room, or will have none: parked rows and blocked sessions go on. */
void lane_on_written(struct lane *lane);
/* All that waits for room tries again. */
void lane_rows_try_again(struct lane *lane);

/* ---- lane_log.c ---- */

/* How many rows of a logged table may be changed now; or why none will be for some time. */
enum embtier_err lane_log_room(const struct lane *lane, const struct table *table,
                               uint32_t *ret_rows);
/* Has a changed row written. False: no room, which does not happen to those there was room for. */
MUST_CHECK bool lane_log_row(struct lane *lane, struct table *table, uint64_t hash, uint64_t id,
                             const void *row);
/* The part ends when all rows are written that have been logged so far. */
void lane_log_note(const struct lane *lane, struct part *part);
/* Whether a part that is over but for that has to wait; then it ends later by itself. */
bool lane_log_holds(struct lane *lane, struct part *part);
/* Rows have been written, or cannot be. */
void lane_log_on_written(struct lane *lane);

/* ---- lane_pooled.c: on the home lane ---- */

enum take_turn {
    TAKE_TURN_MORE,    /* some is left to be taken */
    TAKE_TURN_STALLED, /* the same, and not before something else is done */
    TAKE_TURN_HELD,    /* the same, and not before the gate lets it begin */
    TAKE_TURN_TAKEN,   /* nothing is left; waves are under way */
    TAKE_TURN_DONE,    /* and none is */
};

/* Takes some of a pooled lookup: a wave, or small ones. */
enum take_turn lane_pool_turn(struct lane *lane, struct pooled *pooled);
/* The last wave is done: answers. */
void lane_pool_end(struct lane *lane, struct pooled *pooled);
/* Nothing more is taken of it, and its client is not answered. */
void lane_pool_give_up(struct pooled *pooled);
/* All rows of a wave are there, or it has failed. */
void lane_pool_on_looked_up(struct lane *lane, struct request *request);
/* Any lane: a wave is to be added up; some of it is in a turn, and with the last it is sent home.
 */
void lane_pool_add_up(struct lane *lane, struct request *request);
void lane_pool_add_up_turn(struct lane *lane, struct session_lane *session);
void lane_pool_on_added_up(struct lane *lane, struct request *request);

/* ---- lane_push.c: on the home lane ---- */

/* One turn's work on a push: some ids, some numbers, or a wave. */
enum take_turn lane_push_turn(struct lane *lane, struct push *push);
void lane_push_give_up(struct push *push);
void lane_push_on_updated(struct lane *lane, struct request *request);
void lane_push_end(struct lane *lane, struct push *push);

/* Has those groups of a ticket cast of which all is known: segments before @segment are. */
void lane_ticket_cast(struct lane *lane, struct ticket *ticket, uint32_t segment);
void lane_ticket_on_cast(struct lane *lane, struct ticket_group *group);
/* The client gets it, for the time a ticket has. */
MUST_CHECK enum embtier_err lane_ticket_issue(struct lane *lane, struct ticket *ticket);
/* Takes it away from the client again. */
void lane_ticket_take(struct lane *lane, struct ticket *ticket);
/* The client has it still, but a push uses it. */
void lane_ticket_lend(struct lane *lane, struct ticket *ticket);
/* Nobody needs it any more. */
void lane_ticket_end(struct lane *lane, struct ticket *ticket);
void lane_ticket_on_unpinned(struct lane *lane, struct ticket_lane *part);
/* Those whose time is over. Returns when that of the next is, or 0. */
uint64_t lane_tickets_expire(struct lane *lane);
/* All that a session has. */
void lane_tickets_forget(struct lane *lane, struct session *session);

/* ---- lane_group.c: on the home lane ---- */

/* Goes on with a push of a group's step that is ready. */
void lane_step_turn(struct lane *lane, struct push *push);
/* Something else of the session is done: a push may have waited for that. */
void lane_step_settle(struct lane *lane, struct session *session);
/* All have arrived, and this one leads. */
void lane_step_lead(struct lane *lane, struct push *push);
/* It is the session's again. */
void lane_step_done(struct lane *lane, struct push *push);
/* The push is over, and so is the step if it leads. */
void lane_step_end(struct lane *lane, struct push *push);

/* ---- lane_push.c: on any lane ---- */

/* Updates, or tries, those of a push's rows that are cached. Indexes of the others go to
 * lane->chunk_missed; returns how many. */
uint32_t lane_push_chunk(struct lane *lane, struct part *part, const struct row_ref *refs,
                         uint32_t count);
/* Updates, or tries, a row that is not cached, where it is on its way. Returns what that cost. */
uint64_t lane_push_row(struct lane *lane, const struct part *part, uint32_t segment,
                       const struct row_ref *ref, void *row);
/* Pins those of a prefetch's rows that are cached; else as lane_push_chunk(). */
uint32_t lane_prefetch_chunk(struct lane *lane, struct part *part, const struct row_ref *refs,
                             uint32_t count);
/* Pins one; what is not cached is put there if @row is not NULL. */
enum row_pin lane_prefetch_row(struct lane *lane, const struct part *part, uint32_t segment,
                               const struct row_ref *ref, const void *row);
/* Pins are to be given back; some are in a turn. False: there are none. */
void lane_unpin(struct lane *lane, struct ticket_lane *part);
bool lane_unpin_turn(struct lane *lane);
/* How many of the part's next @count refs have no more gradients, all together, than cost @most,
 * but one at least; *@work is made as much as that is, if it is less. */
uint32_t lane_push_chunk_rows(const struct part *part, uint32_t count, uint64_t most,
                              uint64_t *work);

/* ---- lane.c ---- */

/* All there is to be done now, once. False: there was nothing. */
bool lane_round(struct lane *lane);
/* The session's turn at its half taken request, and at its next ones. */
void lane_take_turn(struct lane *lane, struct session *session);
void lane_begin_turn(struct lane *lane, struct session *session);
/* To be called whenever in_flight has become less: a push of a group may have waited for that; and
 * says goodbye when nothing of the session is under way any more. */
void lane_session_maybe_gone(struct lane *lane, struct session *session);

/* Hands a request that has been taken to the lanes. */
void lane_start_request(struct lane *lane, struct request *request);

/* The part's last row is served: completes the request if it was the last part. */
void lane_part_finished(struct lane *lane, struct part *part);

#endif
