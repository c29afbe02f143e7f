/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/reshard/reshard_job.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log/log.h"
#include "base/macros.h"
#include "config/config.h"
#include "config/config_items.h"
#include "daemon/engine/tables/progress.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/knobs/knobs.h"
#include "proto/control.pb-c.h"
#include "store/members/data_directories.h"
#include "store/members/reshard_directory.h"
#include "store/resharding/reshard.h"
#include "store/resharding/reshard_record.h"
#include "store/store.h"

/* A checkpoint that finds no moment is tried again so often, a second apart. */
#define CHECKPOINT_TRIES 60
/* Looks at the progress in a second of waiting. */
#define LOOKS_PER_S 20

struct reshard_job {
    struct job job;
    struct reshard_record record; /* shards 0 and no directory: as the record on disk says */
    struct reshard_facts facts;   /* at its end */
    struct data_directories directories;
};

/* A job while it runs, and the parts of the server. */
struct running {
    const struct reshard_job *job;
    const struct job_parts *parts;
    const struct progress_sink *progress;
    uint32_t moved, total;
    uint64_t checkpoint_id; /* the last that was made for a switch; 0: none */
    bool has_asked;         /* the wave, so an error is not the checkpoint's own */
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

/* A wave whose rows are not all in both shards needs no checkpoint. */
static enum embtier_err check(void *context, struct err_msg *msg)
{
    struct running *const running = context;
    const enum embtier_err err = reshard_check_copied(running->parts->store, msg);

    running->has_asked = err != EMBTIER_OK;
    return err;
}

static enum embtier_err switch_at(void *context, uint64_t id, struct err_msg *msg)
{
    struct running *const running = context;

    running->checkpoint_id = id;
    running->has_asked = true;
    return reshard_switch(running->parts->store, id, msg);
}

/* True if the last checkpoint does not fit, or is not there any more. */
static bool needs_another(enum embtier_err err)
{
    return err == EMBTIER_MISMATCH || err == EMBTIER_NOT_FOUND;
}

/* Makes a checkpoint whose place the next one takes (checkpoints.h). BUSY of the checkpoint, which
 * found no moment, passes; a switch that fails with it says that its wave does. */
static enum embtier_err make_and(struct running *running,
                                 enum embtier_err (*then)(void *context, uint64_t id,
                                                          struct err_msg *msg),
                                 struct err_msg *msg)
{
    const struct checkpoint_order order = { .automatic = true, .passes = true };
    enum embtier_err err = EMBTIER_BUSY;

    running->has_asked = false;
    for (uint32_t i = 0; i < CHECKPOINT_TRIES && err == EMBTIER_BUSY && !running->has_asked; i++) {
        if (i > 0)
            TRY(rest(running, msg));
        err = checkpoints_make_and(running->parts->checkpoints, &order, NULL, check, then, running,
                                   msg);
    }
    return err;
}

/* A switch that failed is tried again with the checkpoint that was made for it. */
static enum embtier_err commit(void *context, struct err_msg *msg)
{
    struct running *const running = context;
    enum embtier_err err = EMBTIER_NOT_FOUND;

    if (running->checkpoint_id != 0)
        err = checkpoints_and(running->parts->checkpoints, running->checkpoint_id, NULL, switch_at,
                              running, msg);
    return needs_another(err) ? make_and(running, switch_at, msg) : err;
}

static enum embtier_err no_more(void *context, uint64_t id, struct err_msg *msg)
{
    (void)context;
    (void)id;
    (void)msg;
    return EMBTIER_OK;
}

/* Makes a checkpoint without the shards that have left the map. */
static enum embtier_err make_checkpoint(void *context, struct err_msg *msg)
{
    return make_and(context, no_more, msg);
}

/* The server's user may delete all. One that is being exported stays until then, as rows have moved
 * for long, and must not have done so in vain. */
static enum embtier_err drop_checkpoint(void *context, uint64_t id, struct err_msg *msg)
{
    struct running *const running = context;
    struct checkpoint_info info;
    enum embtier_err err;

    log_info("a checkpoint that has files in a data directory to be removed is deleted",
             "id=%" PRIu64, id);
    for (uint32_t i = 0;; i++) {
        err = checkpoints_delete(running->parts->checkpoints, id, geteuid(), NULL, &info, msg);
        if (err != EMBTIER_BUSY)
            return err;
        if (i == 0)
            log_info("the removal of a data directory waits for a checkpoint that is in use",
                     "id=%" PRIu64, id);
        TRY(rest(running, msg));
    }
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
    if (knobs_fit_shards(running->parts->knobs, MAX(running->job->record.shards, facts.open), true,
                         &why) != EMBTIER_OK)
        log_warn("a new shard has more write buffers and open files than its share", "why=%s",
                 LOG_QUOTED(why.text));
}

static bool is_own_order(const struct reshard_job *job)
{
    return job->record.order == RESHARD_TO_SHARDS && job->record.shards == 0;
}

static bool sets_lanes(const struct config *config)
{
    struct config_item item;

    return config_find_item(config, "lanes.count", &item, NULL) == EMBTIER_OK && item.in_file;
}

/* The file of the next start may set more lanes than there are shards by its count. A file that
 * cannot be read is no reason to keep a directory. */
static enum embtier_err check_lanes(const struct job_parts *parts, struct err_msg *msg)
{
    _cleanup_(data_directories_clear) struct data_directories now = { 0 };
    _cleanup_(config_freep) struct config *next = NULL;
    uint32_t shards;

    if (!knobs_file(parts->knobs) || knobs_read_file(parts->knobs, &next, NULL) != EMBTIER_OK)
        return EMBTIER_OK;
    data_directories_look(parts->store, &now);
    shards = (now.count - MIN(now.count, 1u)) * next->data.shards_per_directory;
    if (shards == 0 || next->lanes.count <= shards || !sets_lanes(next))
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_CONFIG,
                   "without the directory the configuration counts %" PRIu32
                   " shard%s (data.shards_per_directory for each directory), and lanes.count is "
                   "%" PRIu32 ", so the next start would be refused: set it first (`embtier knob "
                   "set lanes.count %" PRIu32 " --persist`)",
                   shards, PLURAL(shards), next->lanes.count, shards);
}

/* A job of a client has its order; the server's own goes on with what is written down. */
static enum embtier_err take_order(struct reshard_job *job, const struct job_parts *parts,
                                   struct err_msg *msg)
{
    _cleanup_(data_directories_clear) struct data_directories now = { 0 };
    struct reshard_facts facts;
    uint32_t shards;

    if (is_own_order(job))
        return reshard_record_read(store_first_directory(parts->store), &job->record, msg);
    if (job->record.order == RESHARD_REMOVE)
        TRY(check_lanes(parts, msg));
    reshard_look(parts->store, &facts);
    data_directories_look(parts->store, &now);
    shards = MAX(job->record.shards, facts.open);
    /* About as many as a new directory will have, or a start counts. */
    if (job->record.order == RESHARD_ADD &&
        !data_directories_have(parts->store, job->record.directory))
        shards = MAX(shards + div_round_up(facts.shards, MAX(now.count, 1u)),
                     (now.count + 1) * now.shards_per_directory);
    return knobs_fit_shards(parts->knobs, shards, false, msg);
}

static void forget(const struct store *store)
{
    struct err_msg why = { { 0 } };

    if (reshard_record_remove(store_first_directory(store), &why) != EMBTIER_OK)
        log_error("a cancelled move of buckets goes on at the next start", "why=%s",
                  LOG_QUOTED(why.text));
}

static void tell_begin(const struct reshard_record *record)
{
    if (record->order == RESHARD_TO_SHARDS)
        log_info("buckets of rows move", "shards=%" PRIu32 " rate_bytes=%" PRIu64, record->shards,
                 record->rate_bytes);
    else
        log_info("buckets of rows move", "%s=%s rate_bytes=%" PRIu64,
                 record->order == RESHARD_REMOVE ? "removes" : "adds",
                 LOG_QUOTED(record->directory), record->rate_bytes);
}

static enum embtier_err run(struct job *base, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg)
{
    struct reshard_job *const job = of(base);
    struct running running = { .job = job, .parts = parts, .progress = progress };
    struct move_pace pace = { .look = look, .context = &running };
    struct reshard_record *const record = &job->record;
    enum embtier_err err;

    err = take_order(job, parts, msg);
    if (err != EMBTIER_OK && !base->owner)
        log_error("a move of buckets cannot be continued; `embtier reshard --shards N`, or "
                  "`embtier data add` or `data remove`, begins it again",
                  "why=%s", msg ? LOG_QUOTED(msg->text) : "");
    TRY(err);
    if (is_own_order(job))
        return EMBTIER_OK;
    atomic_store(&pace.rate_bytes, record->rate_bytes);
    tell_begin(record);
    err = reshard_run(parts->store,
                      &(struct reshard_opts){ .shards = record->shards,
                                              .pace = &pace,
                                              .commit = commit,
                                              .report = report,
                                              .context = &running,
                                              .order = record->order,
                                              .directory = record->directory,
                                              .deletes_checkpoints = record->deletes_checkpoints,
                                              .checkpoint = make_checkpoint,
                                              .drop = drop_checkpoint },
                      msg);
    if (err == EMBTIER_CANCELLED)
        forget(parts->store);
    reshard_look(parts->store, &job->facts);
    data_directories_look(parts->store, &job->directories);
    if (err == EMBTIER_OK)
        job->facts.wanted = 0; /* nothing is left to do */
    if (err == EMBTIER_OK)
        log_info("all buckets have moved", "shards=%" PRIu32 " rows=%" PRIu64 " bytes=%" PRIu64,
                 job->facts.shards, atomic_load(&pace.moved_rows), atomic_load(&pace.moved_bytes));
    else
        log_warn("buckets stay where they are now", "moved=%" PRIu32 " of=%" PRIu32 " why=%s",
                 running.moved, running.total, msg ? LOG_QUOTED(msg->text) : "");
    return err;
}

static const struct job_kind tell_kind;

static void describe(const struct reshard_job *job, Embtier__ReshardReply *body,
                     Embtier__DataDirectory *items, Embtier__DataDirectory **list)
{
    const struct reshard_facts *const facts = &job->facts;

    body->shards = facts->shards;
    body->runs = facts->runs;
    body->wanted = facts->wanted;
    body->moved = facts->moved;
    body->total = facts->total;
    if (job->job.kind == &tell_kind && job->record.order == RESHARD_ADD)
        body->adds = (char *)job->record.directory;
    if (job->job.kind == &tell_kind && job->record.order == RESHARD_REMOVE)
        body->removes = (char *)job->record.directory;
    for (uint32_t i = 0; i < job->directories.count; i++) {
        const struct data_directory *const directory = &job->directories.items[i];

        embtier__data_directory__init(&items[i]);
        items[i].number = directory->number;
        items[i].path = (char *)directory->path;
        items[i].shards = directory->shards;
        items[i].buckets = directory->buckets;
        items[i].stored_bytes = directory->stored_bytes;
        items[i].free_bytes = directory->free_bytes;
        items[i].capacity_bytes = directory->capacity_bytes;
        items[i].device = directory->device;
        list[i] = &items[i];
    }
    body->n_directories = job->directories.count;
    body->directories = list;
}

static enum embtier_err reply(struct job *job, const struct job_client *client, struct err_msg *msg)
{
    Embtier__DataDirectory items[CONFIG_DIRECTORIES_MAX];
    Embtier__DataDirectory *list[CONFIG_DIRECTORIES_MAX];
    Embtier__ReshardReply body = EMBTIER__RESHARD_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    (void)msg;
    describe(of(job), &body, items, list);
    message.body_case = EMBTIER__REPLY__BODY_RESHARD;
    message.reshard = &body;
    answer(client, &message);
    return EMBTIER_OK;
}

static void free_job(struct job *job)
{
    data_directories_clear(&of(job)->directories);
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
    enum embtier_err err;

    (void)progress;
    reshard_look(parts->store, &reshard->facts);
    data_directories_look(parts->store, &reshard->directories);
    err = reshard_record_read(store_first_directory(parts->store), &reshard->record, msg);
    if (reshard->facts.runs)
        return EMBTIER_OK;
    TRY(err);
    /* A job that failed, which the next start tries again. */
    reshard->facts.wanted = reshard->record.shards;
    return EMBTIER_OK;
}

static const struct job_kind tell_kind = {
    .word = "reshard status",
    .line = LINE_LOOKS,
    .run = tell,
    .reply = reply,
    .free = free_job,
};

static bool has_order(const struct reshard_record *record)
{
    return record->shards > 0 || record->order != RESHARD_TO_SHARDS;
}

/* Paths are checked when the job runs, as that reads file systems. */
static enum embtier_err read_order(const Embtier__Reshard *wire, struct reshard_record *record,
                                   struct err_msg *msg)
{
    const char *const path = wire->add[0] != '\0' ? wire->add : wire->remove;

    if ((wire->shards > 0) + (wire->add[0] != '\0') + (wire->remove[0] != '\0') > 1)
        return err_set(msg, EMBTIER_INVALID,
                       "one order at a time: a number of shards, a directory to add, or one to "
                       "remove");
    if (path[0] == '\0')
        return EMBTIER_OK;
    if (strlen(path) >= sizeof(record->directory))
        return err_set(msg, EMBTIER_INVALID, "the path of the directory is too long");
    record->order = wire->add[0] != '\0' ? RESHARD_ADD : RESHARD_REMOVE;
    record->deletes_checkpoints = wire->deletes_checkpoints;
    memcpy(record->directory, path, strlen(path) + 1);
    return EMBTIER_OK;
}

enum embtier_err reshard_job_new(const struct job_request *request, struct job **ret_job,
                                 struct err_msg *msg)
{
    const Embtier__Reshard *const wire = request->wire->reshard;
    struct reshard_record record = { .shards = wire->shards, .rate_bytes = wire->rate_bytes };
    struct reshard_facts facts;
    struct reshard_job *job;

    TRY(read_order(wire, &record, msg));
    reshard_look(request->parts->store, &facts);
    if (has_order(&record) && facts.runs)
        return reshard_refuse(&facts, msg);
    job = calloc(1, sizeof(*job));
    if (!job)
        return EMBTIER_NO_MEMORY;
    job->job.kind = has_order(&record) ? &move_kind : &tell_kind;
    job->record = record;
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
