/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/reshard/reshard_job.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/log/log.h"
#include "base/macros.h"
#include "daemon/engine/tables/progress.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/knobs/knobs.h"
#include "proto/control.pb-c.h"
#include "store/resharding/reshard.h"
#include "store/resharding/reshard_record.h"
#include "store/store.h"

/* A checkpoint that finds no moment is tried again so often, a second apart. */
#define CHECKPOINT_TRIES 60
/* Looks at the progress in a second of waiting. */
#define LOOKS_PER_S 20

struct reshard_job {
    struct job job;
    uint32_t shards; /* 0: as the record on disk says */
    uint64_t rate_bytes;
    struct reshard_facts facts; /* at its end */
};

/* A job while it runs, and the parts of the server. */
struct running {
    const struct reshard_job *job;
    const struct job_parts *parts;
    const struct progress_sink *progress;
    uint32_t moved, total;
    uint64_t checkpoint_id; /* the last that was made; 0: none */
};

static struct reshard_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct reshard_job, job);
}

/* A client that has gone does not end it. */
static enum embtier_err look(void *context, struct err_msg *msg)
{
    const struct running *const running = context;
    enum embtier_err err;

    if (atomic_load(checkpoints_stopping(running->parts->checkpoints)))
        return err_shutdown(msg);
    err = progress_look(running->progress, msg);
    return err == EMBTIER_DISCONNECTED ? EMBTIER_OK : err;
}

static enum embtier_err rest(struct running *running, struct err_msg *msg)
{
    for (uint32_t i = 0; i < LOOKS_PER_S; i++) {
        TRY(look(running, msg));
        nanosleep(&(struct timespec){ .tv_nsec = 1000000000L / LOOKS_PER_S }, NULL);
    }
    return EMBTIER_OK;
}

static enum embtier_err switch_at(void *context, uint64_t id, struct err_msg *msg)
{
    struct running *const running = context;

    running->checkpoint_id = id;
    return reshard_switch(running->parts->store, id, msg);
}

/* True if the last checkpoint does not fit, or is not there any more. */
static bool needs_another(enum embtier_err err)
{
    return err == EMBTIER_MISMATCH || err == EMBTIER_NOT_FOUND;
}

/* A switch that failed is tried again with the checkpoint that was made for it. */
static enum embtier_err commit(void *context, struct err_msg *msg)
{
    struct running *const running = context;
    const struct checkpoint_order order = { .automatic = true, .passes = true };
    enum embtier_err err = EMBTIER_NOT_FOUND;

    if (running->checkpoint_id != 0)
        err = checkpoints_and(running->parts->checkpoints, running->checkpoint_id, NULL, switch_at,
                              running, msg);
    if (!needs_another(err))
        return err;
    err = EMBTIER_BUSY;

    for (uint32_t i = 0; i < CHECKPOINT_TRIES && err == EMBTIER_BUSY; i++) {
        if (i > 0)
            TRY(rest(running, msg));
        err = checkpoints_make_and(running->parts->checkpoints, &order, NULL, switch_at, running,
                                   msg);
    }
    return err;
}

static void report(void *context, enum reshard_step step, uint32_t moved, uint32_t total)
{
    static const char *const texts[] = {
#define X(name, text) [RESHARD_##name] = text,
        RESHARD_STEPS(X)
#undef X
    };
    struct running *const running = context;
    struct err_msg why = { { 0 } };
    struct reshard_facts facts;

    running->moved = moved;
    running->total = total;
    if (running->progress)
        running->progress->report(running->progress->context, moved, total, "buckets");
    log_debug("buckets move", "step=%s moved=%" PRIu32 " of=%" PRIu32, LOG_QUOTED(texts[step]),
              moved, total);
    if (step != RESHARD_SHARD_ADDED)
        return;
    reshard_look(running->parts->store, &facts);
    if (knobs_fit_shards(running->parts->knobs, MAX(running->job->shards, facts.open), true,
                         &why) != EMBTIER_OK)
        log_warn("a new shard has more write buffers and open files than its share", "why=%s",
                 LOG_QUOTED(why.text));
}

/* A job of a client has its order; the server's own goes on with what is written down. */
static enum embtier_err take_order(struct reshard_job *job, const struct job_parts *parts,
                                   struct err_msg *msg)
{
    struct reshard_record record = { 0 };
    struct reshard_facts facts;

    reshard_look(parts->store, &facts);
    if (job->shards > 0)
        return knobs_fit_shards(parts->knobs, MAX(job->shards, facts.open), false, msg);
    TRY(reshard_record_read(store_first_directory(parts->store), &record, msg));
    job->shards = record.shards;
    job->rate_bytes = record.rate_bytes;
    return EMBTIER_OK;
}

static void forget(const struct store *store)
{
    struct err_msg why = { { 0 } };

    if (reshard_record_remove(store_first_directory(store), &why) != EMBTIER_OK)
        log_error("a cancelled move of buckets goes on at the next start", "why=%s",
                  LOG_QUOTED(why.text));
}

static enum embtier_err run(struct job *base, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg)
{
    struct reshard_job *const job = of(base);
    struct running running = { .job = job, .parts = parts, .progress = progress };
    struct move_pace pace = { .look = look, .context = &running };
    const struct reshard_opts opts = {
        .pace = &pace, .commit = commit, .report = report, .context = &running
    };
    struct reshard_opts mine = opts;
    enum embtier_err err;

    err = take_order(job, parts, msg);
    if (err != EMBTIER_OK && !base->owner)
        log_error("a move of buckets cannot be continued; `embtier reshard --shards N` begins it "
                  "again",
                  "why=%s", msg ? LOG_QUOTED(msg->text) : "");
    TRY(err);
    if (job->shards == 0)
        return EMBTIER_OK;
    mine.shards = job->shards;
    atomic_store(&pace.rate_bytes, job->rate_bytes);
    log_info("buckets of rows move", "shards=%" PRIu32 " rate_bytes=%" PRIu64, job->shards,
             job->rate_bytes);
    err = reshard_run(parts->store, &mine, msg);
    if (err == EMBTIER_CANCELLED)
        forget(parts->store);
    reshard_look(parts->store, &job->facts);
    if (err == EMBTIER_OK)
        log_info("all buckets have moved", "shards=%" PRIu32 " rows=%" PRIu64 " bytes=%" PRIu64,
                 job->facts.shards, atomic_load(&pace.moved_rows), atomic_load(&pace.moved_bytes));
    else
        log_warn("buckets stay where they are now", "moved=%" PRIu32 " of=%" PRIu32 " why=%s",
                 running.moved, running.total, msg ? LOG_QUOTED(msg->text) : "");
    return err;
}

static enum embtier_err reply(struct job *job, const struct job_client *client, struct err_msg *msg)
{
    const struct reshard_facts *const facts = &of(job)->facts;
    Embtier__ReshardReply body = EMBTIER__RESHARD_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    (void)msg;
    body.shards = facts->shards;
    body.runs = facts->runs;
    body.wanted = facts->wanted;
    body.moved = facts->moved;
    body.total = facts->total;
    message.body_case = EMBTIER__REPLY__BODY_RESHARD;
    message.reshard = &body;
    answer(client, &message);
    return EMBTIER_OK;
}

static void free_job(struct job *job)
{
    free(of(job));
}

static const struct job_kind move_kind = {
    .word = "reshard",
    .line = LINE_RESHARDS,
    .stops = true,
    .run = run,
    .reply = reply,
    .free = free_job,
};

static enum embtier_err tell(struct job *job, const struct job_parts *parts,
                             const struct progress_sink *progress, struct err_msg *msg)
{
    struct reshard_job *const reshard = of(job);
    struct reshard_record record = { 0 };

    (void)progress;
    reshard_look(parts->store, &reshard->facts);
    if (reshard->facts.runs)
        return EMBTIER_OK;
    TRY(reshard_record_read(store_first_directory(parts->store), &record, msg));
    reshard->facts.wanted = record.shards; /* a job that failed, which the next start tries again */
    return EMBTIER_OK;
}

static const struct job_kind tell_kind = {
    .word = "reshard status",
    .line = LINE_LOOKS,
    .run = tell,
    .reply = reply,
    .free = free_job,
};

enum embtier_err reshard_job_new(const struct job_request *request, struct job **ret_job,
                                 struct err_msg *msg)
{
    const Embtier__Reshard *const wire = request->wire->reshard;
    struct reshard_facts facts;
    struct reshard_job *job;

    reshard_look(request->parts->store, &facts);
    if (wire->shards > 0 && facts.runs)
        return err_set(msg, EMBTIER_BUSY,
                       "buckets already move to %" PRIu32 " shard%s: wait for that job, or cancel "
                       "it with `embtier jobs cancel`",
                       facts.wanted, PLURAL(facts.wanted));
    job = calloc(1, sizeof(*job));
    if (!job)
        return EMBTIER_NO_MEMORY;
    job->job.kind = wire->shards > 0 ? &move_kind : &tell_kind;
    job->shards = wire->shards;
    job->rate_bytes = wire->rate_bytes;
    *ret_job = &job->job;
    return EMBTIER_OK;
}

struct job *reshard_job_own(void)
{
    struct reshard_job *const job = calloc(1, sizeof(*job));

    if (!job)
        return NULL;
    job->job.kind = &move_kind;
    return &job->job;
}

bool reshard_job_is_own(const struct job *job)
{
    return job->kind == &move_kind && !job->owner;
}
