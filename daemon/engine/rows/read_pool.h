/* SPDX-License-Identifier: Apache-2.0 */
/* read_pool.h: the reader threads of one lane, which wait for SSD so that the lane does not.
 *
 * A fixed number of jobs, each with room for some rows of one shard. The lane fills a free job,
 * sends it, and gets it back in its inbox (MESSAGE_READ_DONE) with every row's bytes in it: read
 * from the store, or made by the table's initial distribution if the row was never written. A lane
 * never takes a lock for this: jobs change hands through their state word. */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_READ_POOL_H
#define EMBTIER_DAEMON_ENGINE_ROWS_READ_POOL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/mail/inbox.h"
#include "store/store.h"

/* One being read, one waiting: a thread never waits for the lane. */
#define READ_JOBS_PER_THREAD 2

#define READ_JOB_ROWS  256
#define READ_JOB_BYTES (UINT32_C(256) << 10) /* of rows; at least two of the longest */

struct mailbox;
struct read_pool;
struct table;

enum read_job_state { READ_JOB_FREE, READ_JOB_READY, READ_JOB_RUNNING, READ_JOB_DONE };

struct read_job {
    struct message message;  /* MESSAGE_READ_DONE */
    _Atomic uint32_t state;  /* enum read_job_state */
    _Atomic uint64_t number; /* of those sent: the oldest is read first */
    uint32_t shard;
    uint32_t count;
    uint32_t bytes_used;
    uint32_t served; /* the lane's: of those that have come back */
    uint32_t waiter; /* the lane's: of the next one, the first that was not served; 0: none was */
    bool is_changed; /* the lane's: the next one, by those that were */
    struct store_row rows[READ_JOB_ROWS]; /* sorted by (table_id, id); bytes point into `bytes` */
    struct table *tables[READ_JOB_ROWS];
    uint32_t owners[READ_JOB_ROWS]; /* the lane's: which missed row this is */
    struct err_msg msg;             /* of the first row that failed */
    uint8_t *bytes;
};

MUST_CHECK enum embtier_err read_pool_new(struct mailbox *lane, struct store *store,
                                          uint32_t thread_count, struct read_pool **ret_pool,
                                          struct err_msg *msg);
void read_pool_free(struct read_pool *pool);
DEFINE_CLEANUP(struct read_pool, read_pool_free)

/* The lane: an empty job, or NULL when all are under way. */
struct read_job *read_pool_take(struct read_pool *pool);
/* Adds a row; rows come sorted. */
void read_job_add(struct read_job *job, struct table *table, uint64_t id, uint32_t owner);
void read_pool_send(struct read_pool *pool, struct read_job *job);
/* The lane is done with a job that came back, or never sent it. */
void read_pool_put_back(struct read_pool *pool, struct read_job *job);

#endif
