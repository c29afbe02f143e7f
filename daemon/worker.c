/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/worker.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread_class.h"

#define PROGRESS_INTERVAL_NS (UINT64_C(100) * 1000 * 1000)

struct worker {
    struct tables *tables;
    struct checkpoints *checkpoints;
    void (*send)(void *owner, struct message *message);
    void *owner;
    pthread_mutex_t lock; /* the queue, and the progress of jobs */
    pthread_cond_t wake;
    struct job *first;
    struct job *last;
    bool stopping;
    bool in_background; /* thread_class.h */
    bool has_thread;
    pthread_t thread;
};

static void report(void *context, uint64_t done, uint64_t total, const char *unit)
{
    struct job *const job = context;
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);

    if (now_ns - job->reported_ns < PROGRESS_INTERVAL_NS)
        return;
    job->reported_ns = now_ns;
    pthread_mutex_lock(&job->worker->lock);
    job->progress = (struct job_progress){ .done = done, .total = total, .unit = unit };
    pthread_mutex_unlock(&job->worker->lock);
    if (!atomic_exchange(&job->told, true))
        job->worker->send(job->worker->owner, &job->progress_message);
}

static void job_run(struct worker *worker, struct job *job)
{
    const struct progress_sink progress = { .report = report, .context = job, .gone = &job->gone };

    switch (job->kind) {
    case JOB_TABLE_CREATE:
        job->err = tables_create(worker->tables, &job->spec, job->if_not_exists, &progress,
                                 &job->info, &job->msg);
        break;
    case JOB_TABLE_DROP:
        job->err = tables_drop(worker->tables, job->spec.name, &progress, &job->info, &job->msg);
        break;
    case JOB_CHECKPOINT_CREATE:
        job->err = checkpoints_make(worker->checkpoints, &job->order, &progress, &job->checkpoint,
                                    &job->msg);
        break;
    case JOB_CHECKPOINT_VERIFY:
        job->err = checkpoints_verify(worker->checkpoints, job->checkpoint_id, &progress,
                                      &job->checkpoint, &job->msg);
        break;
    case JOB_SCAN_OPEN:
        job->err = checkpoints_scan(worker->checkpoints, &job->scan_order, &job->scan, &job->msg);
        break;
    case JOB_SCAN_NEXT:
        job->err = scan_fill(job->scan, job->dest, job->bytes,
                             checkpoints_stopping(worker->checkpoints), &job->filled, &job->msg);
        break;
    case JOB_SCAN_CLOSE:
        scan_free(TAKE(job->scan));
        break;
    case JOB_LOAD_OPEN:
        job->err = load_open(worker->tables, checkpoints_memory(worker->checkpoints),
                             &job->load_order, &job->load, &job->msg);
        break;
    case JOB_LOAD_ROWS:
        job->err = load_add(job->load, &job->load_batch, &job->msg);
        break;
    case JOB_LOAD_END:
        job->err = load_publish(job->load, worker->checkpoints, &progress, &job->info, &job->msg);
        load_free(TAKE(job->load));
        break;
    case JOB_LOAD_CLOSE:
        load_free(TAKE(job->load));
        break;
    case JOB_CHECKPOINT_RESTORE:
        job->err = checkpoints_restore(worker->checkpoints, &job->restore, &progress,
                                       &job->restored, &job->msg);
        break;
    case JOB_CHECKPOINT_DELETE:
        job->err = checkpoints_delete(worker->checkpoints, job->checkpoint_id, &job->checkpoint,
                                      &job->msg);
        break;
    }
    worker->send(worker->owner, &job->done_message);
}

void job_free(struct job *job)
{
    restore_order_clear(&job->restore);
    free(job->restored.infos);
    free(job);
}

static void *worker_main(void *context)
{
    struct worker *const worker = context;

    if (worker->in_background)
        thread_class_background();
    else
        thread_class_answering();
    pthread_mutex_lock(&worker->lock);
    for (;;) {
        struct job *const job = worker->first;

        if (!job) {
            if (worker->stopping)
                break;
            pthread_cond_wait(&worker->wake, &worker->lock);
            continue;
        }
        worker->first = job->next;
        if (!worker->first)
            worker->last = NULL;
        pthread_mutex_unlock(&worker->lock);
        job_run(worker, job);
        pthread_mutex_lock(&worker->lock);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

enum embtier_err worker_new(struct tables *tables, struct checkpoints *checkpoints,
                            void (*send)(void *owner, struct message *message), void *owner,
                            bool in_background, struct worker **ret_worker, struct err_msg *msg)
{
    _cleanup_(worker_freep) struct worker *worker = calloc(1, sizeof(*worker));
    int rc;

    if (!worker)
        return err_set(msg, EMBTIER_NO_MEMORY, "worker: out of memory");
    worker->tables = tables;
    worker->checkpoints = checkpoints;
    worker->send = send;
    worker->owner = owner;
    worker->in_background = in_background;
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->wake, NULL);
    rc = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (rc != 0)
        return err_set_errno(msg, rc, "worker: thread");
    pthread_setname_np(worker->thread, "worker");
    worker->has_thread = true;
    *ret_worker = TAKE(worker);
    return EMBTIER_OK;
}

void worker_free(struct worker *worker)
{
    if (!worker)
        return;
    if (worker->has_thread) {
        pthread_mutex_lock(&worker->lock);
        worker->stopping = true;
        pthread_cond_signal(&worker->wake);
        pthread_mutex_unlock(&worker->lock);
        pthread_join(worker->thread, NULL);
    }
    pthread_cond_destroy(&worker->wake);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
}

void worker_submit(struct worker *worker, struct job *job)
{
    job->worker = worker;
    job->next = NULL;
    pthread_mutex_lock(&worker->lock);
    if (worker->last)
        worker->last->next = job;
    else
        worker->first = job;
    worker->last = job;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->lock);
}

struct job_progress job_progress(struct job *job)
{
    struct job_progress progress;

    pthread_mutex_lock(&job->worker->lock);
    progress = job->progress;
    pthread_mutex_unlock(&job->worker->lock);
    return progress;
}
