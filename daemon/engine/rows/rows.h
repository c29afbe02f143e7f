/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h: a lane's rows: their homes, those being read and written, and the parts of requests that
 * wait for them.
 *
 *   part_turns.c   a session's turn at its oldest parts; parts that wait for room
 *   row_change.c   places for rows that changed
 *   row_reads.c    rows from SSD, and the refs that wait for them
 *   row_log.c      tables whose updates are logged
 *   homes.c        all homes together: saving, epochs, counts
 *   row_move.c     tables whose home changes
 *
 * Thread: the lane, unless a function says otherwise. */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_ROWS_H
#define EMBTIER_DAEMON_ENGINE_ROWS_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/counter.h"
#include "daemon/engine/mail/mailbox.h"
#include "daemon/engine/rows/home.h"
#include "daemon/engine/rows/home_moving.h"
#include "daemon/engine/rows/miss_table.h"
#include "daemon/engine/rows/read_order.h"
#include "daemon/engine/rows/read_pool.h"
#include "daemon/engine/rows/request.h"
#include "daemon/engine/rows/row_op.h"
#include "daemon/engine/rows/write_queue.h"
#include "daemon/engine/sessions/schedule.h"
#include "daemon/engine/tables/table.h"

#define ROWS_CHUNK      512   /* rows per call of the cache */
#define ROWS_MISSES_MAX 65536 /* distinct rows being read */

/* Counters (base/counter.h) that the lane writes and any thread reads. */
struct row_counts {
    uint64_t get_rows; /* looked up */
    uint64_t set_rows;
    uint64_t pushed_rows; /* updated by optimizers */
    uint64_t prefetched_rows;
    uint64_t logged_rows; /* changed in tables whose updates are logged */
    uint64_t held_rows;   /* times that a row found no place while a checkpoint was made */
    /* Lookups that the cache did not serve, by their source. The cache counts the others. */
    uint64_t queued_get_rows;
    uint64_t stored_get_rows;
    uint64_t initial_get_rows;
    uint64_t failed_rows;
    uint64_t abandoned_rows; /* not looked up, or not to the end, because their client was gone */
    uint64_t shared_reads;   /* lookups that joined a read under way */
    uint64_t missed_rows;    /* that their home did not have; each counts once */
    uint64_t reader_waits;   /* times that rows had to wait because every reader was busy */
};

struct rows {
    const struct request_rules *rules;
    struct schedule *schedule;        /* of the same lane */
    struct mailbox *const *mailboxes; /* of all lanes */
    uint32_t lane;                    /* the lane that owns these rows */
    const struct clock *clock;
    struct home homes[HOME_SLOTS];
    struct home_moving moving; /* tables that move: homes[HOME_MOVING] */
    struct write_queue *write_queue;
    struct read_pool *readers;
    struct miss_table *misses;
    struct read_order *read_order;
    uint8_t *request_base;

    bool in_epoch; /* a checkpoint is being made, of the rows at its instant */
    struct session_lane
        *blocked; /* sessions waiting for a free miss entry or for room in the write queue */
    struct session_lane *last_blocked;
    struct miss_list parked;
    struct part
        *logging; /* parts waiting for their rows to be logged, in the write queue's order */
    struct part *last_logging;
    struct message *read_done; /* read jobs that have come back, oldest first */
    struct message *last_read_done;
    struct message *done_here; /* requests at home here whose last part ended here, oldest first */
    struct message **last_done_here;

    uint8_t *scratch_row; /* for a row put together from new weights and queued state */
    float *gradients;     /* ROWS_GRADIENT_BYTES, for rows' gradients */
    uint32_t chunk_missed[ROWS_CHUNK];
    void *chunk_rows[ROWS_CHUNK];

    struct row_counts counts;
    uint64_t read_error_logged_ns; /* one line a second is enough */
};

/* Memory for rows' gradients: for one at a time, or in a group for as many as one half holds. They
 * stay in the processor's cache. The other half is for the gradients that a member adds. */
#define ROWS_GRADIENT_BYTES (UINT32_C(256) << 10)

/* ---- part_turns.c ---- */

/* Adds a part behind the session's others on this lane. */
void rows_add_part(struct rows *rows, struct part *part);
/* Hands a request whose ids are taken to the lanes. Home lane only. */
void rows_start(struct rows *rows, struct request *request);
/* Serves a session's parts, oldest first, for one turn. */
void rows_turn(struct rows *rows, struct session_lane *side);
/* Ends a part whose last row is served, unless the log holds it. Completes the request if it was
 * the last part. */
void rows_part_finished(struct rows *rows, struct part *part);
/* Leaves out @count rows of the part, because its client is gone. The client is not told which of
 * its rows, if any, are done: after it hangs up, it may still look at its region. */
void rows_part_abandon(struct rows *rows, struct part *part, uint64_t count);
/* Refuses one row of a request. */
void rows_ref_fail(struct rows *rows, struct part *part, uint32_t segment, uint64_t id,
                   enum embtier_err err);
/* Lets the sessions that wait for room run again. */
void rows_unblock_all(struct rows *rows);

/* ---- row_change.c ---- */

/* As row_cache_change(); for a logged table, as row_cache_change_through(). */
uint32_t rows_change(struct rows *rows, const struct table *table, const struct row_ref *refs,
                     uint32_t count, void **ret_rows);
/* As row_cache_find(), in place of rows_change() for rows that are only looked at. */
uint32_t rows_find(struct rows *rows, const struct table *table, const struct row_ref *refs,
                   uint32_t count, void **ret_rows);
/* Has the rows of a logged table written that a part has changed (those not NULL). The caller has
 * made sure that there is room. */
void rows_log(struct rows *rows, struct part *part, struct table *table, const struct row_ref *refs,
              void *const *changed, uint32_t count);
/* Sets *@ret_count to how many rows of a table may be changed now. Error: none may be for some
 * time. */
MUST_CHECK enum embtier_err rows_change_room(struct rows *rows, const struct table *table,
                                             uint32_t *ret_count);
/* Finds a place for the changed row in rows->scratch_row. */
enum outcome rows_place(struct rows *rows, struct part *part, uint32_t segment,
                        const struct row_ref *ref);
/* Has a row of a logged table written that is not cached, and caches it if there is room. False: no
 * room in the write queue. */
MUST_CHECK bool rows_place_logged(struct rows *rows, struct table *table, uint64_t hash,
                                  uint64_t id, const void *row);
/* Has a row read that a part is to change. */
enum outcome rows_read_to_change(struct rows *rows, struct part *part, uint32_t segment,
                                 struct row_ref *ref);

/* ---- row_reads.c ---- */

/* True if the row of @ref is being read; @ref then waits for it, too. */
bool rows_join_read(struct rows *rows, struct part *part, struct table *table, struct row_ref *ref);
/* Has a row read that is not being read yet. RETRY: no miss entry is available. */
enum outcome rows_read(struct rows *rows, struct part *part, struct table *table,
                       struct row_ref *ref);
/* Fills free read jobs with the rows that wait for one. True: that was a turn's work, and there may
 * be more. */
bool rows_dispatch_reads(struct rows *rows);
/* Gives rows that have been read to the refs that wait for them, some per turn. False: there are
 * none. */
bool rows_serve_read(struct rows *rows);
/* Retries everything that waits for room. */
void rows_try_again(struct rows *rows);

/* ---- row_log.c ---- */

/* As rows_change_room(), for a logged table. */
enum embtier_err rows_log_room(const struct rows *rows, const struct table *table,
                               uint32_t *ret_count);
/* Has a changed row written. False: no room, which cannot happen if the caller asked for room
 * first. */
MUST_CHECK bool rows_log_row(struct rows *rows, struct table *table, uint64_t hash, uint64_t id,
                             const void *row);
/* Makes the part wait, before it ends, for all rows that have been logged so far. */
void rows_log_note(const struct rows *rows, struct part *part);
/* True if the part, otherwise over, has to wait for its log; it then ends later by itself. */
bool rows_log_holds(struct rows *rows, struct part *part);
/* Ends the parts whose rows have been written, or cannot be. */
void rows_log_on_written(struct rows *rows);

/* ---- The rows' home (home.h): for a table of this lane ---- */

/* Makes all homes; @opts needs no homes. After an error too, rows_free_homes() has to follow. */
MUST_CHECK enum embtier_err rows_make_homes(struct rows *rows, const struct home_opts *opts,
                                            struct err_msg *msg);
void rows_free_homes(struct rows *rows);

static inline const struct home *rows_home(const struct rows *rows, const struct table *table)
{
    return &rows->homes[atomic_load_explicit(&table->home, memory_order_relaxed)];
}

static inline uint32_t home_get(const struct rows *rows, const struct table *table,
                                const struct row_ref *refs, uint32_t count, void *dest,
                                uint64_t stride, uint32_t bytes, uint32_t *ret_missed)
{
    const struct home *const home = rows_home(rows, table);

    return home->ops->get(home->rows, table->index, refs, count, dest, stride, bytes, ret_missed);
}

static inline uint32_t home_find(const struct rows *rows, const struct table *table,
                                 const struct row_ref *refs, uint32_t count, uint32_t bytes,
                                 const void **ret_rows)
{
    const struct home *const home = rows_home(rows, table);

    return home->ops->find(home->rows, table->index, refs, count, bytes, ret_rows);
}

static inline void home_used(const struct rows *rows, const struct table *table,
                             const struct row_ref *refs, uint32_t count, const void *const *places)
{
    const struct home *const home = rows_home(rows, table);

    home->ops->used(home->rows, table->index, refs, count, places);
}

static inline bool home_spots(const struct rows *rows, const struct table *table,
                              struct row_spots *ret_spots)
{
    const struct home *const home = rows_home(rows, table);

    return home->ops->spots(home->rows, table->index, ret_spots);
}

static inline uint32_t home_set(const struct rows *rows, const struct table *table,
                                const struct row_ref *refs, uint32_t count, const void *src,
                                uint64_t stride, uint32_t bytes, uint32_t *ret_missed)
{
    const struct home *const home = rows_home(rows, table);

    return home->ops->set(home->rows, table->index, refs, count, src, stride, bytes, ret_missed);
}

static inline uint32_t home_change(const struct rows *rows, const struct table *table,
                                   const struct row_ref *refs, uint32_t count, void **ret_rows)
{
    const struct home *const home = rows_home(rows, table);

    return home->ops->change(home->rows, table->index, refs, count, ret_rows);
}

static inline uint32_t home_change_through(const struct rows *rows, const struct table *table,
                                           const struct row_ref *refs, uint32_t count,
                                           void **ret_rows)
{
    const struct home *const home = rows_home(rows, table);

    return home->ops->change_through(home->rows, table->index, refs, count, ret_rows);
}

static inline void home_changed(const struct rows *rows, const struct table *table,
                                const struct row_ref *refs, uint32_t count, void *const *places)
{
    const struct home *const home = rows_home(rows, table);

    home->ops->changed(home->rows, table->index, refs, count, places);
}

static inline uint32_t home_insert(const struct rows *rows, const struct table *table,
                                   const struct row_ref *refs, uint32_t count,
                                   const void *const *places, const uint64_t *dirty,
                                   uint32_t *ret_refused)
{
    const struct home *const home = rows_home(rows, table);

    return home->ops->insert(home->rows, table->index, refs, count, places, dirty, ret_refused);
}

static inline bool home_takes_pins(const struct rows *rows, const struct table *table)
{
    return rows_home(rows, table)->ops->takes_pins;
}

static inline void home_pin(const struct rows *rows, const struct table *table,
                            const struct row_ref *refs, uint32_t count, uint64_t *ret_here,
                            uint64_t *ret_pinned)
{
    const struct home *const home = rows_home(rows, table);

    home->ops->pin(home->rows, table->index, refs, count, ret_here, ret_pinned);
}

static inline enum row_pin home_pin_one(const struct rows *rows, const struct table *table,
                                        const struct row_ref *ref)
{
    const struct home *const home = rows_home(rows, table);

    return home->ops->pin_one(home->rows, table->index, ref);
}

static inline void home_unpin(const struct rows *rows, const struct table *table,
                              const struct row_ref *refs, uint32_t count)
{
    const struct home *const home = rows_home(rows, table);

    home->ops->unpin(home->rows, table->index, refs, count);
}

static inline void home_used_spots(const struct rows *rows, const struct table *table,
                                   uint32_t count)
{
    const struct home *const home = rows_home(rows, table);

    home->ops->used_spots(home->rows, table->index, count);
}

/* ---- homes.c ---- */

/* Makes the table known to the lane, in its home. */
MUST_CHECK enum embtier_err rows_add_table(struct rows *rows, const struct table *table);
/* Forgets the table's rows, some at a time. True: all are gone. */
MUST_CHECK bool rows_purge_table(struct rows *rows, const struct table *table, uint32_t step);
/* As the functions of row_cache.h of the same names, for all homes. */
uint32_t rows_write_back(struct rows *rows, struct rows_cursor *cursor, uint32_t most,
                         bool *ret_done);
void rows_begin_epoch(struct rows *rows);
MUST_CHECK bool rows_end_epoch(struct rows *rows);
MUST_CHECK bool rows_forget_epoch(struct rows *rows, struct rows_cursor *cursor, uint32_t step);
/* Any thread. */
struct home_stats rows_home_stats(const struct rows *rows, enum home_kind kind);

/* ---- row_move.c: a table on its way from its home to another one (home_moving.h) ---- */

/* Makes the table known to the home that it will move to, with the memory @array if that is an
 * array. The old home still serves it, also when table->home has become HOME_MOVING. BUSY: too many
 * tables move. */
MUST_CHECK enum embtier_err rows_move_prepare(struct rows *rows, const struct table *table,
                                              enum home_kind from, enum home_kind to,
                                              struct row_array *array);
/* Returns how many rows of a table that has not yet started have pins. It takes no new ones if
 * table->home is HOME_MOVING. */
uint64_t rows_move_pinned(struct rows *rows, const struct table *table);
/* From now on both homes have rows of it, and new ones come into the new home. No row has pins. */
void rows_move_start(struct rows *rows, const struct table *table);
struct rows_moved {
    uint64_t rows;  /* moved by this step */
    uint64_t left;  /* in the old home */
    bool has_epoch; /* a checkpoint is being made: rows stay where they are until its epoch ends */
    bool is_full;   /* a dirty row found no place, in the new home or in the write queue */
};

/* Moves some rows. */
struct rows_moved rows_move_step(struct rows *rows, struct table *table, uint32_t most_rows);
/* Exchanges the old home and the new one, at any time before rows_move_end(). */
void rows_move_turn_back(struct rows *rows, const struct table *table);
/* From now on the new home serves the table. The old one has no rows of it left. */
void rows_move_arrive(struct rows *rows, const struct table *table);
/* Forgets the move, and the table in its old home. table->home is the new home. */
void rows_move_end(struct rows *rows, const struct table *table);

#endif
