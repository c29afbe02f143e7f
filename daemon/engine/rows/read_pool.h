/* SPDX-License-Identifier: Apache-2.0 */
/* read_pool.h: the reader threads of one lane, which wait for SSD so that the lane does not.
 *
 * There is a fixed number of jobs, each with room for some rows of one shard. The lane fills a free
 * job, sends it, and gets it back in its inbox (message_read_done) with every row's bytes. A row
 * comes from the store, or is made by the table's initial distribution if it was never written. The
 * lane never takes a lock for this: jobs change hands through their state word.
 *
 * Readers come and go while the lane reads (lane_set_readers()). Any of them reads any job. Each
 * brings READ_JOBS_PER_THREAD jobs, so the lane has as many as its readers need. */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_READ_POOL_H
#define EMBTIER_DAEMON_ENGINE_ROWS_READ_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"
#include "daemon/engine/mail/inbox.h"
#include "store/store.h"

/* One job is being read, one waits: a thread never waits for the lane. */
#define READ_JOBS_PER_THREAD 2

#define READ_JOB_ROWS  256
#define READ_JOB_BYTES (UINT32_C(256) << 10) /* of rows; room for at least two of the longest */

struct mailbox;
struct read_pool;
struct table;

enum read_job_state { READ_JOB_FREE, READ_JOB_READY, READ_JOB_RUNNING, READ_JOB_DONE };

/* The job comes back. row_reads.c */
extern const struct message_kind message_read_done;

struct read_job {
    struct message message;  /* message_read_done */
    _Atomic uint32_t state;  /* enum read_job_state */
    _Atomic uint64_t number; /* in the order of sending: the oldest job is read first */
    uint32_t place;          /* in the pool */
    uint32_t shard;
    uint32_t count;
    uint32_t bytes_used;
    uint32_t served; /* the lane's: rows served since the job came back */
    uint32_t waiter; /* the lane's: first waiter of the next row that was not served; 0: none was
                        served */
    bool is_changed; /* the lane's: the waiters served so far have changed the next row */
    struct store_row rows[READ_JOB_ROWS]; /* sorted by (table_id, id); bytes point into `bytes` */
    struct table *tables[READ_JOB_ROWS];
    uint32_t owners[READ_JOB_ROWS]; /* the lane's: index of each row's miss */
    struct err_msg msg;             /* why the first failed row could not be read */
    uint8_t *bytes;
};

MUST_CHECK enum embtier_err read_pool_new(struct mailbox *lane, struct store *store,
                                          uint32_t thread_count, struct read_pool **ret_pool,
                                          struct err_msg *msg);
void read_pool_free(struct read_pool *pool);
DEFINE_CLEANUP(struct read_pool, read_pool_free)

/* ---- Another number of readers: one thread at a time, not the lane's. First the pool grows, then
 * the lane uses so many, then the pool shrinks. ---- */

/* Starts readers until there are @reader_count, at most CONFIG_READERS_MAX, and makes their jobs.
 * BUSY: the system gives no more threads, or those that have not ended yet are too many. After an
 * error there are as many as before. */
MUST_CHECK enum embtier_err read_pool_grow(struct read_pool *pool, uint32_t reader_count,
                                           struct err_msg *msg);
/* Has readers end, until @reader_count are left. One that reads ends after its job; its jobs that
 * wait are read by others. */
void read_pool_end_readers(struct read_pool *pool, uint32_t reader_count);
/* True if all of these have ended. Does not wait. */
bool read_pool_have_ended(struct read_pool *pool);
/* Gives the memory back of jobs that the lane does not use. They are free. */
void read_pool_trim(struct read_pool *pool);

/* ---- Lane only ---- */

/* The jobs of @reader_count readers are given out from now on. Others come back as ever. */
void read_pool_use(struct read_pool *pool, uint32_t reader_count);
uint32_t read_pool_used(const struct read_pool *pool);
/* True if no job is under way but those of the readers that are used. */
bool read_pool_is_idle_behind(const struct read_pool *pool);

/* Returns an empty job, or NULL if all are under way. */
struct read_job *read_pool_take(struct read_pool *pool);
/* Adds a row. The caller adds rows in sorted order. */
void read_job_add(struct read_job *job, struct table *table, uint64_t id, uint32_t owner);
void read_pool_send(struct read_pool *pool, struct read_job *job);
/* Frees a job that came back. A job that was never sent is still free. */
void read_pool_put_back(struct read_pool *pool, struct read_job *job);

#endif
