/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/worker.h"
#include "daemon/engine/tables/progress.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/spec/table_spec.h"
#include "base/system/thread_class.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/engine/tables/tables_reserved.h"

#define PROGRESS_INTERVAL_NS (UINT64_C(100) * 1000 * 1000)

#define LINE_THREADS_MAX ROW_WRITER_FILLS

static const struct {
    uint32_t threads;
    bool in_background; /* thread_class.h */
    bool is_bounded;    /* JOBS_WAITING_MOST */
    bool is_single;     /* a client's job is refused while another one waits or runs */
} lines[LINE_COUNT] = {
    [LINE_TABLES] = { 1, false, false },
    [LINE_CHECKPOINTS] = { 1, false, true },
    [LINE_FILLS] = { ROW_WRITER_FILLS, false, true }, /* as many as there is memory for */
    [LINE_DROPS] = { 2, false, true },
    [LINE_MOVES] = { HOME_MOVES_MAX, false, true },
    [LINE_LOADS] = { 2, false, false },
    [LINE_ENDS] = { 1, false, false },
    [LINE_SCANS] = { 1, true, false },
    [LINE_VERIFIES] = { 2, true, true },
    [LINE_LOOKS] = { 2, false, false },
    [LINE_KNOBS] = { 1, false, true },
    [LINE_COMPACTIONS] = { 1, true, true },
    [LINE_RESHARDS] = { 1, false, true, true }, /* writers of rows that move wait for it */
};

struct line_thread {
    struct worker *worker;
    enum job_line line;
    bool is_there;
    pthread_t thread;
};

struct worker {
    struct job_parts parts;
    void (*send)(void *owner, struct message *message);
    void *owner;
    pthread_mutex_t lock; /* protects all below, and the state and progress of jobs */
    pthread_cond_t wake[LINE_COUNT];
    struct job *waiting; /* in the order they came */
    struct job **waiting_end;
    struct job *running;         /* in no order */
    uint64_t rounds[LINE_COUNT]; /* the round of the job begun last */
    uint64_t last_id;
    bool stopping;
    struct line_thread threads[LINE_COUNT][LINE_THREADS_MAX];
};

/* Locked. */
static void set_state(struct job *job, enum job_state to)
{
    switch (to) {
    case JOB_WAITING: /* also for its user's next turn */
        assert(job->state == JOB_NEW || job->state == JOB_RUNNING);
        break;
    case JOB_RUNNING:
        assert(job->state == JOB_WAITING);
        break;
    case JOB_ENDED:
        assert(job->state == JOB_WAITING || job->state == JOB_RUNNING);
        break;
    case JOB_NEW:
        assert(!"a submitted job never returns to JOB_NEW");
        break;
    }
    job->state = to;
}

/* ---- Choosing the next job. Locked ---- */

static void unlink_job(struct worker *worker, struct job *job)
{
    *job->link = job->next;
    if (job->next)
        job->next->link = job->link;
    else if (worker->waiting_end == &job->next)
        worker->waiting_end = job->link;
    job->next = NULL;
}

static void link_waiting(struct worker *worker, struct job *job)
{
    job->next = NULL;
    job->link = worker->waiting_end;
    *job->link = job;
    worker->waiting_end = &job->next;
}

static void link_running(struct worker *worker, struct job *job)
{
    job->next = worker->running;
    if (job->next)
        job->next->link = &job->next;
    job->link = &worker->running;
    worker->running = job;
}

static const char *name_of(const struct job *job, uint32_t i)
{
    return job->kind->table ? job->kind->table(job, i) : NULL;
}

static bool share_a_name(const struct job *a, const struct job *b)
{
    const char *one, *other;

    for (uint32_t i = 0; (one = name_of(a, i)); i++)
        for (uint32_t j = 0; (other = name_of(b, j)); j++)
            if (strcmp(one, other) == 0)
                return true;
    return false;
}

/* True if another job has to end first. */
static bool must_wait(const struct worker *worker, const struct job *job)
{
    const enum job_line line = job->kind->line;
    uint32_t users = 0;

    for (const struct job *other = worker->running; other; other = other->next) {
        users += other->kind->line == line && other->user == job->user;
        if (share_a_name(job, other))
            return true;
    }
    if (lines[line].threads > 1 && users >= lines[line].threads - 1)
        return true;
    /* Jobs of one user keep their order. A job that waits for others delays only its own user's. */
    for (const struct job *other = worker->waiting; other != job; other = other->next)
        if (other->user == job->user && share_a_name(job, other))
            return true;
    return false;
}

/* Returns the job of the earliest round that can run; among one user's, the oldest. */
static struct job *next_of(const struct worker *worker, enum job_line line)
{
    struct job *best = NULL;

    for (struct job *job = worker->waiting; job; job = job->next)
        if (job->kind->line == line && (!best || job->round < best->round) &&
            !must_wait(worker, job))
            best = job;
    return best;
}

/* Each round has at most one job of a user, so that users take turns. The server's own jobs come
 * first, except those that give back a user's resources: these take that user's turn. */
static uint64_t round_of(const struct worker *worker, const struct job *job)
{
    const enum job_line line = job->kind->line;
    uint64_t round = worker->rounds[line];

    if (!job->owner && !job->kind->stays)
        return 0;
    for (const struct job *other = worker->waiting; other; other = other->next)
        if (other->kind->line == line && other->user == job->user && other->round > round)
            round = other->round;
    return round + 1;
}

/* True if the job goes on in its user's next turn. */
static bool has_more(const struct job *job)
{
    return job->err == EMBTIER_OK && job->kind->has_more && job->kind->has_more(job);
}

static void wake_all(struct worker *worker)
{
    for (uint32_t l = 0; l < LINE_COUNT; l++)
        pthread_cond_broadcast(&worker->wake[l]);
}

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

static const char *stop_words(enum embtier_err why)
{
    return why == EMBTIER_CANCELLED      ? "it was cancelled with `embtier jobs cancel`"
           : why == EMBTIER_DISCONNECTED ? "the client that asked for it has disconnected"
                                         : err_text(why);
}

static void run(struct worker *worker, struct job *job)
{
    const struct progress_sink progress = {
        .report = report, .context = job, .stop = &job->stop, .words = stop_words
    };

    job->err = job->kind->run(job, &worker->parts, &progress, &job->msg);
}

/* Locked. Queues the job behind its user's other jobs and behind each other user's next job. */
static void requeue(struct worker *worker, struct job *job)
{
    job->round = round_of(worker, job);
    set_state(job, JOB_WAITING);
    link_waiting(worker, job);
    pthread_cond_broadcast(&worker->wake[job->kind->line]);
}

static void *line_main(void *context)
{
    struct line_thread *const thread = context;
    struct worker *const worker = thread->worker;

    if (lines[thread->line].in_background)
        thread_class_background();
    else
        thread_class_answering();
    pthread_mutex_lock(&worker->lock);
    for (;;) {
        struct job *const job = next_of(worker, thread->line);

        if (!job) {
            if (worker->stopping)
                break;
            pthread_cond_wait(&worker->wake[thread->line], &worker->lock);
            continue;
        }
        unlink_job(worker, job);
        link_running(worker, job);
        set_state(job, JOB_RUNNING);
        if (!job->has_begun && !job->is_step)
            job->since_ns = clock_now_ns(&clock_monotonic);
        job->has_begun = true;
        worker->rounds[thread->line] = MAX(worker->rounds[thread->line], job->round);
        pthread_mutex_unlock(&worker->lock);
        run(worker, job);
        pthread_mutex_lock(&worker->lock);
        unlink_job(worker, job);
        if (has_more(job)) {
            requeue(worker, job);
            continue;
        }
        set_state(job, JOB_ENDED);
        wake_all(worker); /* other jobs may have waited for it */
        worker->send(worker->owner, &job->done_message);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

static enum embtier_err start_threads(struct worker *worker, struct err_msg *msg)
{
    uint32_t count = 0;

    for (uint32_t l = 0; l < LINE_COUNT; l++)
        for (uint32_t i = 0; i < lines[l].threads; i++, count++) {
            struct line_thread *const thread = &worker->threads[l][i];
            int rc;

            thread->worker = worker;
            thread->line = (enum job_line)l;
            rc = pthread_create(&thread->thread, NULL, line_main, thread);
            if (rc != 0)
                return err_set_errno(msg, rc, "cannot start a worker thread");
            pthread_setname_np(thread->thread, "worker");
            thread->is_there = true;
        }
    assert(count == WORKER_THREADS);
    return EMBTIER_OK;
}

enum embtier_err worker_new(const struct job_parts *parts,
                            void (*send)(void *owner, struct message *message), void *owner,
                            struct worker **ret_worker, struct err_msg *msg)
{
    _cleanup_(worker_freep) struct worker *worker = calloc(1, sizeof(*worker));

    if (!worker)
        return err_set(msg, EMBTIER_NO_MEMORY, "worker: out of memory");
    worker->parts = *parts;
    worker->send = send;
    worker->owner = owner;
    worker->waiting_end = &worker->waiting;
    pthread_mutex_init(&worker->lock, NULL);
    for (uint32_t l = 0; l < LINE_COUNT; l++)
        pthread_cond_init(&worker->wake[l], NULL);
    TRY(start_threads(worker, msg));
    *ret_worker = TAKE(worker);
    return EMBTIER_OK;
}

void worker_free(struct worker *worker)
{
    if (!worker)
        return;
    pthread_mutex_lock(&worker->lock);
    worker->stopping = true;
    wake_all(worker);
    pthread_mutex_unlock(&worker->lock);
    for (uint32_t l = 0; l < LINE_COUNT; l++)
        for (uint32_t i = 0; i < lines[l].threads; i++)
            if (worker->threads[l][i].is_there)
                pthread_join(worker->threads[l][i].thread, NULL);
    assert(!worker->running);
    for (uint32_t l = 0; l < LINE_COUNT; l++)
        pthread_cond_destroy(&worker->wake[l]);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
}

/* ---- Jobs from outside ---- */

/* Locked. Returns a job of the line that runs or waits; NULL: there is none. */
static const struct job *first_of(const struct worker *worker, enum job_line line)
{
    const struct job *const lists[] = { worker->running, worker->waiting };

    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        for (const struct job *job = lists[i]; job; job = job->next)
            if (job->kind->line == line)
                return job;
    return NULL;
}

/* Locked. */
static enum embtier_err check_single(const struct worker *worker, const struct job *job,
                                     struct err_msg *msg)
{
    const struct job *const other =
        lines[job->kind->line].is_single ? first_of(worker, job->kind->line) : NULL;

    if (!other)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_BUSY,
                   "job %" PRIu64 " (%s) has not ended yet: wait for it, or cancel it with "
                   "`embtier jobs cancel %" PRIu64 "`",
                   other->id, other->kind->word, other->id);
}

/* Locked. The server's own jobs are never refused. */
static enum embtier_err check_waiting(const struct worker *worker, const struct job *job,
                                      struct err_msg *msg)
{
    uint32_t users = 0;

    if (!job->owner || !lines[job->kind->line].is_bounded)
        return EMBTIER_OK;
    TRY(check_single(worker, job, msg));
    for (const struct job *other = worker->waiting; other; other = other->next)
        users += other->user == job->user && lines[other->kind->line].is_bounded;
    if (users < JOBS_WAITING_MOST)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_BUSY,
                   "%d jobs of this user wait, the limit: try again when some have ended, or "
                   "cancel some (`embtier jobs`)",
                   JOBS_WAITING_MOST);
}

enum embtier_err worker_submit(struct worker *worker, struct job *job, struct err_msg *msg)
{
    enum embtier_err err;

    job->worker = worker;
    pthread_mutex_lock(&worker->lock);
    err = check_waiting(worker, job, msg);
    if (err == EMBTIER_OK) {
        if (!job->is_step)
            job->id = ++worker->last_id;
        job->round = round_of(worker, job);
        set_state(job, JOB_WAITING);
        if (!job->is_step)
            job->since_ns = clock_now_ns(&clock_monotonic);
        link_waiting(worker, job);
        pthread_cond_broadcast(&worker->wake[job->kind->line]);
    }
    pthread_mutex_unlock(&worker->lock);
    return err;
}

/* Locked. Returns true if the job had not begun. */
static bool give_up(struct worker *worker, struct job *job, enum embtier_err why)
{
    const bool waits = job->state == JOB_WAITING && !job->has_begun;

    if (waits && job->kind->stays)
        return false;
    if (!waits) {
        if (job->has_begun && job->state != JOB_ENDED && job->kind->stops)
            atomic_store(&job->stop, (uint32_t)why);
        return false;
    }
    unlink_job(worker, job);
    set_state(job, JOB_ENDED);
    job->err =
        err_set(&job->msg, why, "%s before it had begun",
                why == EMBTIER_CANCELLED ? "cancelled (`embtier jobs cancel`)" : err_text(why));
    wake_all(worker); /* a job of the same name may have waited for it */
    worker->send(worker->owner, &job->done_message);
    return true;
}

void worker_give_up(struct worker *worker, struct job *job, enum embtier_err why)
{
    pthread_mutex_lock(&worker->lock);
    (void)give_up(worker, job, why);
    pthread_mutex_unlock(&worker->lock);
}

/* Locked. */
static struct job *find_job(const struct worker *worker, uint64_t id)
{
    struct job *job = worker->waiting;

    while (job && job->id != id)
        job = job->next;
    if (job)
        return job;
    for (job = worker->running; job && job->id != id;)
        job = job->next;
    return job;
}

/* Locked. */
static enum embtier_err cancel(struct worker *worker, struct job *job, bool *ret_waited,
                               struct err_msg *msg)
{
    const bool runs = job->has_begun;

    if (job->kind->stays || (runs && !job->kind->stops))
        return err_set(msg, EMBTIER_INVALID,
                       "job %" PRIu64 " (%s) %s and can no longer be cancelled: it ends by itself",
                       job->id, job->kind->word, runs ? "has begun" : "is cleaning up");
    *ret_waited = give_up(worker, job, EMBTIER_CANCELLED);
    return EMBTIER_OK;
}

enum embtier_err job_refuse_cancel(uint64_t id, struct err_msg *msg)
{
    return err_set(
        msg, EMBTIER_PERMISSION,
        "job %" PRIu64
        " belongs to another user: only that user, root and the server's user may cancel it",
        id);
}

enum embtier_err worker_cancel(struct worker *worker, uint64_t id, uint64_t user, bool may_all,
                               bool *ret_waited, struct err_msg *msg)
{
    enum embtier_err err;
    struct job *job;

    pthread_mutex_lock(&worker->lock);
    job = find_job(worker, id);
    if (!job)
        err = err_set(msg, EMBTIER_NOT_FOUND,
                      "there is no job %" PRIu64 ", or it has ended: see `embtier jobs`", id);
    else if (!may_all && (!job->owner || job->user != user))
        err = job_refuse_cancel(id, msg);
    else
        err = cancel(worker, job, ret_waited, msg);
    pthread_mutex_unlock(&worker->lock);
    return err;
}

int job_info_compare(const void *a, const void *b)
{
    const uint64_t left = ((const struct job_info *)a)->id;
    const uint64_t right = ((const struct job_info *)b)->id;

    return (left > right) - (left < right);
}

/* Locked. Reads only fields that a run does not change. */
static struct job_info describe(const struct job *job, uint64_t now_ns)
{
    struct job_info info = {
        .id = job->id,
        .kind = job->kind->word,
        .user = job->user,
        .uid = job->uid,
        .pid = job->pid,
        .is_own = job->owner == NULL,
        .runs = job->has_begun || job->is_step,
        .age_ms = clock_since(now_ns, job->since_ns) / 1000000,
        .progress = job->is_step ? job->moved : job->progress,
    };

    memcpy(info.what, job->what, sizeof(info.what));
    return info;
}

enum embtier_err worker_list(struct worker *worker, uint64_t after, uint32_t most,
                             struct job_info **ret_infos, uint32_t *ret_count, bool *ret_more)
{
    struct worker_stats stats;
    struct job_info *infos;
    uint32_t count = 0;
    uint64_t now_ns;

    worker_stats(worker, &stats);
    infos = calloc((size_t)stats.waiting + stats.running + 1, sizeof(*infos));
    if (!infos)
        return EMBTIER_NO_MEMORY;
    pthread_mutex_lock(&worker->lock); /* only this thread submits, so there are no more */
    now_ns = clock_now_ns(&clock_monotonic);
    for (const struct job *job = worker->running; job; job = job->next)
        if (job->id > after)
            infos[count++] = describe(job, now_ns);
    for (const struct job *job = worker->waiting; job; job = job->next)
        if (job->id > after)
            infos[count++] = describe(job, now_ns);
    pthread_mutex_unlock(&worker->lock);
    qsort(infos, count, sizeof(*infos), job_info_compare);
    *ret_infos = infos;
    *ret_count = MIN(count, most);
    *ret_more = count > most;
    return EMBTIER_OK;
}

void worker_stats(struct worker *worker, struct worker_stats *ret_stats)
{
    struct worker_stats stats = { 0 };

    pthread_mutex_lock(&worker->lock);
    for (const struct job *job = worker->waiting; job; job = job->next)
        job->has_begun ? stats.running++ : stats.waiting++;
    for (const struct job *job = worker->running; job; job = job->next)
        stats.running++;
    pthread_mutex_unlock(&worker->lock);
    *ret_stats = stats;
}

struct job_progress job_progress(struct job *job)
{
    struct job_progress progress;

    pthread_mutex_lock(&job->worker->lock);
    progress = job->progress;
    pthread_mutex_unlock(&job->worker->lock);
    return progress;
}
