/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/rows/read_pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/thread_class.h"
#include "daemon/engine/mail/mailbox.h"
#include "daemon/engine/memory/engine_reserved.h"
#include "daemon/engine/memory/reserved.h"
#include "daemon/engine/tables/table.h"
#include "kernels/cpu/init/init_rows.h"

_Static_assert((sizeof(struct read_job) + READ_JOB_BYTES) * READ_JOBS_PER_THREAD <=
                   LANE_READER_BYTES,
               "the configuration counts it");

struct read_pool {
    struct mailbox *lane;
    struct store *store;
    uint32_t thread_count;
    uint32_t started;
    uint32_t job_count;
    uint32_t free_count; /* lane: spares the search when 0 */
    uint64_t sent;       /* lane */
    struct read_job *jobs;
    uint8_t *bytes;
    _Atomic bool stopping;
    bool has_ready;
    sem_t ready; /* counts jobs in state READY */
    pthread_t *threads;
};

/* Claims the oldest ready job: otherwise a job could wait for as long as the lane keeps sending
 * others. NULL: another thread was quicker. */
static struct read_job *claim_ready(struct read_pool *pool)
{
    uint32_t state = READ_JOB_READY;
    struct read_job *oldest = NULL;
    uint64_t number = UINT64_MAX;

    for (uint32_t i = 0; i < pool->job_count; i++) {
        struct read_job *const job = &pool->jobs[i];
        uint64_t job_number;

        if (atomic_load_explicit(&job->state, memory_order_acquire) != READ_JOB_READY)
            continue;
        job_number = atomic_load_explicit(&job->number, memory_order_relaxed);
        if (job_number < number) {
            oldest = job;
            number = job_number;
        }
    }
    if (oldest &&
        atomic_compare_exchange_strong_explicit(&oldest->state, &state, READ_JOB_RUNNING,
                                                memory_order_acquire, memory_order_relaxed))
        return oldest;
    return NULL;
}

/* Makes the rows that were never written. Rows of one table lie together in a job, so they are made
 * in runs. */
static void init_absent(struct read_job *job)
{
    uint64_t ids[READ_JOB_ROWS];
    void *rows[READ_JOB_ROWS];
    uint32_t count = 0;

    for (uint32_t i = 0; i < job->count; i++) {
        struct table *const table = job->tables[i];

        if (!job->rows[i].found && job->rows[i].err == EMBTIER_OK) {
            ids[count] = job->rows[i].id;
            rows[count++] = job->rows[i].bytes;
        }
        if (count > 0 && (i + 1 == job->count || job->tables[i + 1] != table)) {
            init_rows(&table->spec, ids, count, rows);
            atomic_fetch_add_explicit(&table->rows_initialised, count, memory_order_relaxed);
            count = 0;
        }
    }
}

static void job_run(struct read_pool *pool, struct read_job *job)
{
    const enum embtier_err err =
        store_read(pool->store, job->shard, job->rows, job->count, &job->msg);

    /* Rows carry their own errors. An error that belongs to no row is given to all of them. */
    if (err != EMBTIER_OK) {
        bool named = false;

        for (uint32_t i = 0; i < job->count; i++)
            named |= job->rows[i].err != EMBTIER_OK;
        for (uint32_t i = 0; i < job->count && !named; i++)
            job->rows[i].err = err;
    }
    init_absent(job);
}

static void *reader_main(void *context)
{
    struct read_pool *pool = context;

    thread_class_answering();
    store_reader_begin(pool->store);
    for (;;) {
        struct read_job *job;

        while (sem_wait(&pool->ready) != 0 && errno == EINTR)
            continue;
        if (atomic_load(&pool->stopping))
            return NULL;
        /* A post promises a ready job, perhaps in a slot that this scan has passed. So scan
         * again. */
        while (!(job = claim_ready(pool)))
            continue;
        job_run(pool, job);
        assert(atomic_load_explicit(&job->state, memory_order_relaxed) == READ_JOB_RUNNING);
        atomic_store_explicit(&job->state, READ_JOB_DONE, memory_order_release);
        mailbox_send(pool->lane, &job->message);
    }
}

static enum embtier_err jobs_new(struct read_pool *pool, struct err_msg *msg)
{
    const uint64_t bytes = (uint64_t)pool->job_count * READ_JOB_BYTES;

    pool->jobs = reserved_new(pool->job_count * sizeof(*pool->jobs));
    pool->threads = calloc(pool->thread_count, sizeof(*pool->threads));
    if (!pool->jobs || !pool->threads)
        return err_set(msg, EMBTIER_NO_MEMORY, "readers: out of memory");
    pool->bytes = reserved_new(bytes);
    if (!pool->bytes)
        return err_set_errno(msg, errno, "readers: cannot reserve %llu bytes",
                             (unsigned long long)bytes);
    for (uint32_t i = 0; i < pool->job_count; i++) {
        pool->jobs[i].bytes = pool->bytes + (uint64_t)i * READ_JOB_BYTES;
        pool->jobs[i].message.kind = &message_read_done;
    }
    pool->free_count = pool->job_count;
    return EMBTIER_OK;
}

enum embtier_err read_pool_new(struct mailbox *lane, struct store *store, uint32_t thread_count,
                               struct read_pool **ret_pool, struct err_msg *msg)
{
    _cleanup_(read_pool_freep) struct read_pool *pool = calloc(1, sizeof(*pool));

    if (!pool)
        return err_set(msg, EMBTIER_NO_MEMORY, "readers: out of memory");
    pool->lane = lane;
    pool->store = store;
    pool->thread_count = thread_count;
    pool->job_count = thread_count * READ_JOBS_PER_THREAD;
    if (sem_init(&pool->ready, 0, 0) != 0)
        return err_set_errno(msg, errno, "readers: semaphore");
    pool->has_ready = true;
    TRY(jobs_new(pool, msg));
    for (; pool->started < thread_count; pool->started++) {
        const int rc = pthread_create(&pool->threads[pool->started], NULL, reader_main, pool);

        if (rc != 0)
            return err_set_errno(msg, rc, "cannot start reader thread %u of %u", pool->started + 1,
                                 thread_count);
        pthread_setname_np(pool->threads[pool->started], "reader");
    }
    *ret_pool = TAKE(pool);
    return EMBTIER_OK;
}

void read_pool_free(struct read_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stopping, true);
    for (uint32_t i = 0; i < pool->started; i++)
        sem_post(&pool->ready);
    for (uint32_t i = 0; i < pool->started; i++)
        pthread_join(pool->threads[i], NULL);
    reserved_free(pool->bytes, (uint64_t)pool->job_count * READ_JOB_BYTES);
    reserved_free(pool->jobs, pool->job_count * sizeof(*pool->jobs));
    if (pool->has_ready)
        sem_destroy(&pool->ready);
    free(pool->threads);
    free(pool);
}

struct read_job *read_pool_take(struct read_pool *pool)
{
    if (pool->free_count == 0)
        return NULL;
    for (uint32_t i = 0; i < pool->job_count; i++) {
        struct read_job *job = &pool->jobs[i];

        /* Only the lane takes jobs out of FREE, so a free one stays free until it is sent. */
        if (atomic_load_explicit(&job->state, memory_order_relaxed) != READ_JOB_FREE)
            continue;
        job->count = 0;
        job->served = 0;
        job->waiter = 0;
        job->is_changed = false;
        job->bytes_used = 0;
        job->msg.text[0] = '\0';
        return job;
    }
    return NULL;
}

void read_job_add(struct read_job *job, struct table *table, uint64_t id, uint32_t owner)
{
    const uint32_t i = job->count++;

    assert(i < READ_JOB_ROWS && job->bytes_used + table->row_bytes <= READ_JOB_BYTES);
    job->tables[i] = table;
    job->owners[i] = owner;
    job->rows[i] = (struct store_row){
        .table_id = atomic_load_explicit(&table->table_id, memory_order_relaxed),
        .weight_bytes = table->weight_bytes,
        .state_bytes = table->state_bytes,
        .logged = table->logged,
        .id = id,
        .bytes = job->bytes + job->bytes_used,
    };
    job->bytes_used += (uint32_t)align_up(table->row_bytes, CACHE_LINE);
}

void read_pool_send(struct read_pool *pool, struct read_job *job)
{
    assert(atomic_load_explicit(&job->state, memory_order_relaxed) == READ_JOB_FREE);
    assert(pool->free_count > 0);
    pool->free_count--;
    atomic_store_explicit(&job->number, pool->sent++, memory_order_relaxed);
    atomic_store_explicit(&job->state, READ_JOB_READY, memory_order_release);
    sem_post(&pool->ready);
}

void read_pool_put_back(struct read_pool *pool, struct read_job *job)
{
    assert(atomic_load_explicit(&job->state, memory_order_relaxed) == READ_JOB_DONE);
    assert(pool->free_count < pool->job_count);
    pool->free_count++;
    atomic_store_explicit(&job->state, READ_JOB_FREE, memory_order_relaxed);
}
