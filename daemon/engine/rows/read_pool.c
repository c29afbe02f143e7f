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

/* Those that are to end may still wait for SSD while others start. */
#define READERS_ROOM (2 * CONFIG_READERS_MAX)

struct reader {
    struct read_pool *pool;
    pthread_t thread;
    bool is_started;        /* and not joined */
    _Atomic bool has_ended; /* it takes no job any more, and returns */
};

struct read_pool {
    struct mailbox *lane;
    struct store *store;
    /* The lane's. */
    uint32_t used_jobs;  /* that it gives out: the first ones */
    uint32_t free_count; /* of these; spares the search when 0 */
    uint64_t sent;
    /* The caller's of read_pool_grow() and the functions behind it. */
    uint32_t reader_count; /* without those that are to end */
    uint32_t started;      /* with those */
    struct reader readers[READERS_ROOM];
    /* Each reader brings READ_JOBS_PER_THREAD. Once made they stay, as readers look at their states
     * at any time; only the memory of their rows comes and goes. */
    struct read_job *jobs[CONFIG_READERS_MAX];
    _Atomic uint32_t job_count; /* that readers look at; each one in use is among them */
    _Atomic uint32_t to_end;    /* readers */
    _Atomic bool stopping;
    bool has_ready;
    sem_t ready; /* counts jobs in state READY, and readers that are to end */
};

static struct read_job *job_at(const struct read_pool *pool, uint32_t place)
{
    return &pool->jobs[place / READ_JOBS_PER_THREAD][place % READ_JOBS_PER_THREAD];
}

/* Claims the oldest ready job: otherwise a job could wait for as long as the lane keeps sending
 * others. NULL: another thread was quicker. */
static struct read_job *claim_ready(struct read_pool *pool)
{
    uint32_t state = READ_JOB_READY;
    const uint32_t count = atomic_load_explicit(&pool->job_count, memory_order_acquire);
    struct read_job *oldest = NULL;
    uint64_t number = UINT64_MAX;

    for (uint32_t i = 0; i < count; i++) {
        struct read_job *const job = job_at(pool, i);
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

/* True if the reader that asks ends: one of several may, and each is counted once. */
static bool must_end(struct read_pool *pool)
{
    uint32_t left = atomic_load(&pool->to_end);

    while (left > 0)
        if (atomic_compare_exchange_weak(&pool->to_end, &left, left - 1))
            return true;
    return atomic_load(&pool->stopping);
}

/* Waits for a job. NULL: the reader ends. */
static struct read_job *next_job(struct read_pool *pool)
{
    struct read_job *job;

    while (sem_wait(&pool->ready) != 0 && errno == EINTR)
        continue;
    /* A post promises an end, or a ready job, perhaps in a slot that this scan has passed. So look
     * again. */
    do {
        if (must_end(pool))
            return NULL;
        job = claim_ready(pool);
    } while (!job);
    return job;
}

static void *reader_main(void *context)
{
    struct reader *const reader = context;
    struct read_pool *const pool = reader->pool;
    struct read_job *job;

    thread_class_answering();
    store_reader_begin(pool->store);
    while ((job = next_job(pool))) {
        job_run(pool, job);
        assert(atomic_load_explicit(&job->state, memory_order_relaxed) == READ_JOB_RUNNING);
        atomic_store_explicit(&job->state, READ_JOB_DONE, memory_order_release);
        mailbox_send(pool->lane, &job->message);
    }
    atomic_store(&reader->has_ended, true);
    return NULL;
}

/* ---- Readers come and go ---- */

/* Makes the jobs of reader @index, or the memory of their rows, if it has none. */
static enum embtier_err jobs_new(struct read_pool *pool, uint32_t index, struct err_msg *msg)
{
    struct read_job *jobs = pool->jobs[index];
    uint8_t *bytes;

    if (!jobs) /* no reader looks at this place yet */
        jobs = pool->jobs[index] = reserved_new(READ_JOBS_PER_THREAD * sizeof(*jobs));
    if (!jobs)
        return err_set(msg, EMBTIER_NO_MEMORY, "readers: out of memory");
    if (jobs[0].bytes)
        return EMBTIER_OK;
    bytes = reserved_new(READ_JOBS_PER_THREAD * READ_JOB_BYTES);
    if (!bytes)
        return err_set_errno(msg, errno, "readers: cannot reserve %u bytes",
                             READ_JOBS_PER_THREAD * READ_JOB_BYTES);
    for (uint32_t i = 0; i < READ_JOBS_PER_THREAD; i++) {
        jobs[i].place = index * READ_JOBS_PER_THREAD + i;
        jobs[i].bytes = bytes + (uint64_t)i * READ_JOB_BYTES;
        jobs[i].message.kind = &message_read_done;
    }
    return EMBTIER_OK;
}

static void jobs_drop_bytes(struct read_job *jobs)
{
    reserved_free(jobs[0].bytes, READ_JOBS_PER_THREAD * READ_JOB_BYTES);
    for (uint32_t i = 0; i < READ_JOBS_PER_THREAD; i++)
        jobs[i].bytes = NULL;
}

static enum embtier_err reader_start(struct read_pool *pool, struct err_msg *msg)
{
    struct reader *reader = pool->readers;
    int rc;

    while (reader < pool->readers + READERS_ROOM && reader->is_started)
        reader++;
    if (reader == pool->readers + READERS_ROOM)
        return err_set(msg, EMBTIER_BUSY,
                       "readers that are to end still wait for SSD: try again later");
    reader->pool = pool;
    atomic_store(&reader->has_ended, false);
    rc = pthread_create(&reader->thread, NULL, reader_main, reader);
    if (rc != 0)
        return err_set_errno(msg, rc, "cannot start another reader thread");
    pthread_setname_np(reader->thread, "reader");
    reader->is_started = true;
    pool->started++;
    return EMBTIER_OK;
}

enum embtier_err read_pool_grow(struct read_pool *pool, uint32_t reader_count, struct err_msg *msg)
{
    const uint32_t before = pool->reader_count;
    const uint32_t job_count = reader_count * READ_JOBS_PER_THREAD;
    enum embtier_err err = EMBTIER_OK;

    assert(reader_count <= CONFIG_READERS_MAX);
    for (uint32_t i = 0; i < reader_count && err == EMBTIER_OK; i++)
        err = jobs_new(pool, i, msg);
    while (err == EMBTIER_OK && pool->reader_count < reader_count) {
        err = reader_start(pool, msg);
        pool->reader_count += err == EMBTIER_OK;
    }
    if (err != EMBTIER_OK)
        read_pool_end_readers(pool, before);
    else if (job_count > atomic_load(&pool->job_count))
        atomic_store_explicit(&pool->job_count, job_count, memory_order_release);
    return err;
}

void read_pool_end_readers(struct read_pool *pool, uint32_t reader_count)
{
    while (pool->reader_count > reader_count) {
        pool->reader_count--;
        atomic_fetch_add(&pool->to_end, 1);
        sem_post(&pool->ready);
    }
}

bool read_pool_have_ended(struct read_pool *pool)
{
    for (struct reader *reader = pool->readers; reader < pool->readers + READERS_ROOM; reader++) {
        if (!reader->is_started || !atomic_load(&reader->has_ended))
            continue;
        pthread_join(reader->thread, NULL);
        reader->is_started = false;
        assert(pool->started > pool->reader_count);
        pool->started--;
    }
    return pool->started == pool->reader_count;
}

void read_pool_trim(struct read_pool *pool)
{
    atomic_store_explicit(&pool->job_count, pool->reader_count * READ_JOBS_PER_THREAD,
                          memory_order_release);
    for (uint32_t i = pool->reader_count; i < CONFIG_READERS_MAX; i++)
        if (pool->jobs[i])
            jobs_drop_bytes(pool->jobs[i]);
}

enum embtier_err read_pool_new(struct mailbox *lane, struct store *store, uint32_t thread_count,
                               struct read_pool **ret_pool, struct err_msg *msg)
{
    _cleanup_(read_pool_freep) struct read_pool *pool = calloc(1, sizeof(*pool));

    if (!pool)
        return err_set(msg, EMBTIER_NO_MEMORY, "readers: out of memory");
    pool->lane = lane;
    pool->store = store;
    if (sem_init(&pool->ready, 0, 0) != 0)
        return err_set_errno(msg, errno, "readers: semaphore");
    pool->has_ready = true;
    TRY(read_pool_grow(pool, thread_count, msg));
    read_pool_use(pool, thread_count);
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
    for (uint32_t i = 0; i < READERS_ROOM; i++)
        if (pool->readers[i].is_started)
            pthread_join(pool->readers[i].thread, NULL);
    for (uint32_t i = 0; i < CONFIG_READERS_MAX && pool->jobs[i]; i++) {
        jobs_drop_bytes(pool->jobs[i]);
        reserved_free(pool->jobs[i], READ_JOBS_PER_THREAD * sizeof(*pool->jobs[i]));
    }
    if (pool->has_ready)
        sem_destroy(&pool->ready);
    free(pool);
}

/* ---- The lane ---- */

void read_pool_use(struct read_pool *pool, uint32_t reader_count)
{
    pool->used_jobs = reader_count * READ_JOBS_PER_THREAD;
    pool->free_count = 0;
    for (uint32_t i = 0; i < pool->used_jobs; i++)
        pool->free_count +=
            atomic_load_explicit(&job_at(pool, i)->state, memory_order_relaxed) == READ_JOB_FREE;
}

uint32_t read_pool_used(const struct read_pool *pool)
{
    return pool->used_jobs / READ_JOBS_PER_THREAD;
}

bool read_pool_is_idle_behind(const struct read_pool *pool)
{
    const uint32_t count = atomic_load_explicit(&pool->job_count, memory_order_relaxed);

    for (uint32_t i = pool->used_jobs; i < count; i++)
        if (atomic_load_explicit(&job_at(pool, i)->state, memory_order_relaxed) != READ_JOB_FREE)
            return false;
    return true;
}

struct read_job *read_pool_take(struct read_pool *pool)
{
    if (pool->free_count == 0)
        return NULL;
    for (uint32_t i = 0; i < pool->used_jobs; i++) {
        struct read_job *const job = job_at(pool, i);

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
    assert(pool->free_count > 0 && job->place < pool->used_jobs);
    pool->free_count--;
    atomic_store_explicit(&job->number, pool->sent++, memory_order_relaxed);
    atomic_store_explicit(&job->state, READ_JOB_READY, memory_order_release);
    sem_post(&pool->ready);
}

void read_pool_put_back(struct read_pool *pool, struct read_job *job)
{
    assert(atomic_load_explicit(&job->state, memory_order_relaxed) == READ_JOB_DONE);
    if (job->place < pool->used_jobs)
        pool->free_count++;
    assert(pool->free_count <= pool->used_jobs);
    atomic_store_explicit(&job->state, READ_JOB_FREE, memory_order_relaxed);
}
