/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h: one worker thread with everything it owns: a share of all rows, their cache, the queue of
 * rows to be written, the table of rows being read.
 *
 * A lane takes requests from the sessions whose home it is, splits them, does its own part and
 * those other lanes send it, and hands what must be read from SSD to its readers and what must be
 * written to its writer. It waits for nothing but work: not for SSD, not for a lock, not for a
 * client. Parts of one session run in the order of its requests; sessions take turns, and share the
 * lane by what these cost (schedule.h).
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
struct mailbox;
struct request_memory;
struct row_routes;
struct ticket_memory;
struct store;
struct table;
struct tables;
struct tables_rows;

/* Ids taken in of a session that is alone on its lane, in one turn (cost.h). */
#define LANE_TAKE_IDS 16384

struct lane_opts {
    uint32_t index;
    uint32_t lane_count;
    struct lane *const *lanes; /* all of them; filled before lane_start() */
    struct store *store;
    struct tables *tables;
    struct request_memory *memory;
    struct ticket_memory *ticket_memory;
    uint64_t ticket_ns; /* how long a ticket waits for its push */
    const struct row_routes *routes;
    struct arena *const *arenas;
    uint32_t arena_count;
    uint32_t arena_first_slab[TIERS_MAX];
    uint32_t arena_slab_count[TIERS_MAX];
    uint32_t map_slabs; /* of the first arena's */
    uint32_t reader_count;
    uint64_t write_queue_bytes;
    uint32_t max_batch_rows;
    uint64_t take_ids; /* ids taken in of a session in one turn, at most */
    uint64_t spin_ns;  /* how long an idle lane polls before it sleeps */
    const struct clock *clock;
};

/* Makes a lane with its readers and writer; it does nothing until lane_start(). */
MUST_CHECK enum embtier_err lane_new(const struct lane_opts *opts, struct lane **ret_lane,
                                     struct err_msg *msg);
MUST_CHECK enum embtier_err lane_start(struct lane *lane, struct err_msg *msg);
/* Ends the thread; no request is under way. All lanes are stopped before the first is freed: one
 * may still be about to wake another, which has done what it was woken for. */
void lane_stop(struct lane *lane);
/* Frees everything. Dirty rows have been written back before. */
void lane_free(struct lane *lane);
DEFINE_CLEANUP(struct lane, lane_free)

/* ---- Any thread ---- */

/* Puts a message into the lane's inbox and wakes it. */
void lane_send(struct lane *lane, struct message *message);
struct mailbox *lane_mailbox(struct lane *lane);

struct lane_call {
    struct message message;
    void (*fn)(struct lane *lane, void *argument);
    void *argument;
    sem_t done;
};

/* Runs @fn on the lane and waits until it has returned. Not from a lane. */
void lane_call(struct lane *lane, void (*fn)(struct lane *lane, void *argument), void *argument);

MUST_CHECK enum embtier_err lane_add_table(struct lane *lane, const struct table *table);
/* Forgets all rows of a table nobody uses any more, cached and queued; returns when that is
 * done, with SHUTDOWN when *@give_up has become true, or with the store's error when it has taken
 * no writes for some seconds: the queued rows stay then, and so must the table's struct. */
MUST_CHECK enum embtier_err lane_purge_table(struct lane *lane, const struct table *table,
                                             const _Atomic bool *give_up);

/* Those two, as tables_load() needs them. */
extern const struct tables_rows lane_tables_rows;

/* Hands some dirty rows to the writer. Returns true when none is left, here or in the queue. */
bool lane_write_back_step(struct lane *lane, struct rows_cursor *cursor);

/* ---- Checkpoints; one thread at a time (lane_epoch.c) ---- */

/* From now on no update is begun by sessions whose home this is; posts @drained once, when none is
 * under way but those that @mode cuts. */
void lane_close_gate(struct lane *lane, sem_t *drained, enum gate_mode mode);
/* @closes_again: soon, as the moment was not found; @mode goes on to limit which updates begin. */
void lane_open_gate(struct lane *lane, bool closes_again);
/* A session for whose update the gate waits. False: for none. */
struct lane_holder {
    uint64_t session;
    pid_t pid;
    uid_t uid;
    bool found;
};
bool lane_gate_holder(struct lane *lane, struct lane_holder *ret_holder);
/* How many updates are under way: when all gates are closed and drained, those that are cut. */
uint32_t lane_count_updates(struct lane *lane);
/* Rows that are dirty now are old: they are to be saved as they are. All gates are closed and
 * drained. */
void lane_begin_epoch(struct lane *lane);
/* How far it is with a lane; zeros at first. */
struct lane_saving {
    struct rows_cursor cursor;
    bool all_handed_over; /* they are before this in the write queue: */
    uint64_t mark;
};
struct lane_saved {
    uint64_t rows;        /* handed to the writer by this step */
    uint64_t held_rows;   /* as in struct lane_stats */
    uint64_t requests;    /* the same */
    bool idle;            /* all that were handed over are in the store's write buffers */
    bool done;            /* and they were all */
    enum embtier_err err; /* what keeps the writer from writing, which it goes on trying */
};
/* Hands at most @most old rows to the writer, or outside of an epoch dirty ones. */
MUST_CHECK struct lane_saved lane_save_step(struct lane *lane, struct lane_saving *saving,
                                            uint32_t most);
/* Ends the epoch, saved or not; false: what has been saved is not the rows as they were. If not all
 * were saved, lane_forget_epoch() before the next one. */
MUST_CHECK bool lane_end_epoch(struct lane *lane);
void lane_forget_epoch(struct lane *lane);

struct lane_stats {
    uint64_t requests; /* taken from sessions whose home this is */
    uint64_t segments; /* of those copied and checked, each time */
    uint64_t get_rows; /* looked up */
    uint64_t set_rows;
    uint64_t pushed_rows; /* updated by optimizers */
    uint64_t logged_rows; /* changed in tables whose updates are logged */
    uint64_t held_rows;   /* how often one found no place while a checkpoint was made */
    uint64_t prefetched_rows;
    uint64_t expired_tickets;
    uint64_t casting_ns;  /* of its caster */
    uint64_t missed_rows; /* that their home did not have, each counted once */
    /* Lookups that no home served, by what did; the others are in `homes`. */
    uint64_t queued_get_rows;
    uint64_t stored_get_rows;
    uint64_t initial_get_rows;
    uint64_t failed_rows;
    uint64_t abandoned_rows; /* not looked up, or not to the end: their client was gone */
    uint64_t shared_reads;   /* lookups that joined a read under way */
    uint32_t reading_rows;
    struct home_stats homes[HOME_KINDS];
    struct row_cache_stats cache; /* more of that home */
    struct write_queue_stats write_queue;
};
void lane_stats(struct lane *lane, struct lane_stats *ret_stats);

/* A lane is asked for it ten times a second. */
struct lane_pulse {
    /* Since the last call, rows had to wait because every reader was at work: SSD is what this lane
     * waits for. Compaction is put off meanwhile (store_set_busy). */
    bool pressure;
    uint64_t unwritten_rows; /* that have changed, and are not in the store's write buffers */
    uint64_t unwritten_bytes;
};
void lane_pulse(struct lane *lane, struct lane_pulse *ret_pulse);

#endif
