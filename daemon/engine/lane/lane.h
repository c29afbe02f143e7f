/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h: one worker thread with everything it owns: a share of all rows, their cache, the queue of
 * rows to be written, the table of rows being read.
 *
 * A lane takes requests from the sessions whose home it is, and splits them. It does its own parts
 * and those that other lanes send it. It hands rows that must be read from SSD to its readers, and
 * rows that must be written to its writer. It waits for nothing but work: not for SSD, not for a
 * lock, not for a client. Parts of one session run in the order of its requests. Sessions take
 * turns, and share the lane by the cost of these (schedule.h).
 *
 * docs/internals/requests.md and writes.md have the life of a GET and of an eviction. */
#ifndef EMBTIER_DAEMON_ENGINE_LANE_LANE_H
#define EMBTIER_DAEMON_ENGINE_LANE_LANE_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/err.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/engine/rows/home.h"
#include "daemon/engine/rows/write_queue.h"
#include "daemon/engine/sessions/update_gate.h"
#include "tiers/cache/row_cache.h"

struct arena;
struct lane;
struct latencies;
struct mailbox;
struct request_memory;
struct row_routes;
struct sampler_lane;
struct session;
struct ticket_memory;
struct store;
struct table;
struct table_move_act;
struct tables;
struct tables_rows;

/* Ids that a lane takes in, in one turn of a session that is alone on it (cost.h). */
#define LANE_TAKE_IDS 16384

struct lane_opts {
    uint32_t index;
    uint32_t lane_count;
    struct lane *const *lanes; /* all of them; filled before lane_start() */
    struct store *store;
    struct tables *tables;
    struct request_memory *memory;
    struct ticket_memory *ticket_memory;
    uint64_t ticket_ns;       /* how long a ticket waits for its push */
    uint64_t slow_request_ns; /* longer requests are logged; 0: none */
    const struct row_routes *routes;
    struct arena *const *arenas;
    uint32_t arena_count;
    uint32_t arena_first_slab[TIERS_MAX];
    uint32_t arena_slab_count[TIERS_MAX];
    uint32_t arena_room_slabs[TIERS_MAX]; /* as in row_cache_opts */
    uint32_t map_slabs;                   /* slabs of the first arena reserved for maps */
    uint32_t reader_count;
    uint64_t write_queue_bytes;
    uint32_t max_batch_rows;
    uint64_t take_ids; /* limit on ids taken in one turn of a session */
    uint64_t spin_ns;  /* how long an idle lane polls before it sleeps */
    const struct clock *clock;
};

/* Makes a lane with its readers and writer. It does nothing until lane_start(). */
MUST_CHECK enum embtier_err lane_new(const struct lane_opts *opts, struct lane **ret_lane,
                                     struct err_msg *msg);
MUST_CHECK enum embtier_err lane_start(struct lane *lane, struct err_msg *msg);
/* Ends the thread; no request is under way. All lanes are stopped before the first is freed: a lane
 * may still be about to wake another, which has already done the work that it is woken for. */
void lane_stop(struct lane *lane);
/* Frees everything. Dirty rows have been written back before. */
void lane_free(struct lane *lane);
DEFINE_CLEANUP(struct lane, lane_free)

/* ---- Any thread ---- */

/* Puts a message into the lane's inbox and wakes it. */
void lane_send(struct lane *lane, struct message *message);
struct mailbox *lane_mailbox(struct lane *lane);
/* Has the lane, its home, serve a session; then let go of it, which the lane tells by
 * gone_message. */
void lane_attach(struct lane *lane, struct session *session);
void lane_detach(struct lane *lane, struct session *session);

struct lane_call {
    struct message message;
    void (*fn)(struct lane *lane, void *argument);
    void *argument;
    sem_t done;
};

/* Runs @fn on the lane and waits until it has returned. Must not be called on a lane. */
void lane_call(struct lane *lane, void (*fn)(struct lane *lane, void *argument), void *argument);

MUST_CHECK enum embtier_err lane_add_table(struct lane *lane, const struct table *table);
/* Forgets all rows of a table that no request uses any more, cached and queued. Returns when that
 * is done, or SHUTDOWN when *@give_up has become true. Returns the store's error when it has taken
 * no writes for some seconds: then the queued rows stay, and so must the table's struct. */
MUST_CHECK enum embtier_err lane_purge_table(struct lane *lane, const struct table *table,
                                             const _Atomic bool *give_up);

/* Has the lane sample lookups into @sampler, its own part; NULL: no more. When this returns, the
 * lane does not use the one before any more. */
void lane_sample(struct lane *lane, struct sampler_lane *sampler);

/* Has the lane give tickets, those that wait now too, another time to wait for their push. Waits
 * for the lane. lane_ticket_ns() reads it there. */
void lane_set_ticket_ns(struct lane *lane, uint64_t ticket_ns);
uint64_t lane_ticket_ns(struct lane *lane);
/* The same, for the time from which on requests are logged. */
void lane_set_slow_request_ns(struct lane *lane, uint64_t slow_request_ns);
uint64_t lane_slow_request_ns(struct lane *lane);

/* Has the lane read with @count readers, and waits until those that are too many have ended; if SSD
 * lets them wait for long, they end later. NO_MEMORY, BUSY, or an error of the system: it has no
 * more, and the lane reads with as many as before. SHUTDOWN: *@give_up has become true. One thread
 * at a time. lane_readers() reads the number there, at any time. */
MUST_CHECK enum embtier_err lane_set_readers(struct lane *lane, uint32_t count,
                                             const _Atomic bool *give_up, struct err_msg *msg);
uint32_t lane_readers(struct lane *lane);

/* The size of a tier of the lane's row cache (row_cache.h). One thread at a time. */
MUST_CHECK enum embtier_err lane_check_tier(struct lane *lane, uint32_t tier, uint32_t slabs,
                                            struct err_msg *msg);
void lane_resize_tier(struct lane *lane, uint32_t tier, uint32_t slabs);
/* Lets rows leave slabs for about a millisecond. */
struct row_cache_leaving lane_shrink_tier(struct lane *lane, uint32_t tier);

/* Does one act of a table's move to another home. BUSY, NO_MEMORY: only MOVE_PREPARE. */
MUST_CHECK enum embtier_err lane_move_table(struct lane *lane, struct table_move_act *act);

/* These functions, as tables_load() needs them. */
extern const struct tables_rows lane_tables_rows;

/* Hands some dirty rows to the writer. True if none is left, here or in the queue. */
bool lane_write_back_step(struct lane *lane, struct rows_cursor *cursor);

/* ---- Checkpoints; one thread at a time (lane_epoch.c) ---- */

/* Closes the gate: sessions whose home this is begin no update from now on. Posts @drained once,
 * when no update is under way except those that @mode cuts. */
void lane_close_gate(struct lane *lane, sem_t *drained, enum gate_mode mode);
/* Opens the gate. @closes_again: the moment was not found, so the gate closes again soon, and its
 * mode still limits which updates begin. */
void lane_open_gate(struct lane *lane, bool closes_again);
/* A session for whose update the gate waits. lane_gate_holder() is false if there is none. */
struct lane_holder {
    uint64_t session;
    pid_t pid;
    uid_t uid;
    bool found;
};
bool lane_gate_holder(struct lane *lane, struct lane_holder *ret_holder);
/* Counts the updates under way. When all gates are closed and drained, these are the ones that are
 * cut. */
uint32_t lane_count_updates(struct lane *lane);
/* Begins an epoch: rows that are dirty now are old, and will be saved as they are. All gates are
 * closed and drained. */
void lane_begin_epoch(struct lane *lane);
/* How far the saving of a lane's rows has come. Initially zero. */
struct lane_saving {
    struct rows_cursor cursor;
    bool all_handed_over; /* all rows; they are before `mark` in the write queue */
    uint64_t mark;
};
struct lane_saved {
    uint64_t rows;        /* handed to the writer by this step */
    uint64_t held_rows;   /* as in struct lane_stats */
    uint64_t requests;    /* the same */
    bool idle;            /* all that were handed over are in the store's write buffers */
    bool done;            /* and all have been handed over */
    enum embtier_err err; /* why the writer cannot write; it goes on trying */
};
/* Hands at most @most old rows to the writer; outside of an epoch, dirty ones. */
MUST_CHECK struct lane_saved lane_save_step(struct lane *lane, struct lane_saving *saving,
                                            uint32_t most);
/* Ends the epoch, even if not all rows were saved; then lane_forget_epoch() comes before the next
 * one. False: the saved rows are not the rows as they were. */
MUST_CHECK bool lane_end_epoch(struct lane *lane);
void lane_forget_epoch(struct lane *lane);

/* ---- Counters; any thread, at any time between lane_new() and lane_stop() ---- */

/* These two read what the lane has counted (base/counter.h). They do not wait for the lane, wake it
 * or take anything from it, however busy it is. The lane counts work before it publishes the end of
 * that work: a part's rows before it counts the part as done, and so all rows of a request before
 * its completion. So a client that asks after its answer finds its rows counted. Figures of work
 * that goes on may belong to different moments. */

struct lane_stats {
    uint64_t requests; /* taken from sessions whose home this is */
    uint64_t segments; /* of these, copied and checked, each time */
    uint64_t get_rows; /* looked up */
    uint64_t set_rows;
    uint64_t pushed_rows; /* updated by optimizers */
    uint64_t logged_rows; /* changed in tables whose updates are logged */
    uint64_t held_rows;   /* how often a row found no place while a checkpoint was made */
    uint64_t prefetched_rows;
    uint64_t expired_tickets;
    uint64_t casting_ns;  /* of its caster */
    uint64_t missed_rows; /* that their home did not have; each counts once */
    /* Lookups that no home served, by the place that did. The others are in `homes`. */
    uint64_t queued_get_rows;
    uint64_t stored_get_rows;
    uint64_t initial_get_rows;
    uint64_t failed_rows;
    uint64_t abandoned_rows; /* lookups not begun or not finished, since their client was gone */
    uint64_t shared_reads;   /* lookups that joined a read under way */
    uint32_t reading_rows;
    struct home_stats homes[HOME_KINDS];
    struct row_cache_stats cache; /* more about the home `cache` */
    struct write_queue_stats write_queue;
};
void lane_stats(const struct lane *lane, struct lane_stats *ret_stats);
/* Adds the times of the requests that the lane has answered. */
void lane_latencies(const struct lane *lane, struct latencies *sum);

/* The control thread reads this of each lane once a second. */
struct lane_pulse {
    /* How often, so far, rows had to wait because every reader was at work. If that has become
     * more, the lane waits for SSD. Compaction is put off meanwhile (store_set_busy()). */
    uint64_t reader_waits;
    uint64_t unwritten_rows; /* that have changed and are not in the store's write buffers */
    uint64_t unwritten_bytes;
};
void lane_pulse(const struct lane *lane, struct lane_pulse *ret_pulse);

#endif
