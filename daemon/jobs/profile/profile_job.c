/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/profile/profile_job.h"

#include <stdlib.h>

#include "base/macros.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/profile/profiles.h"
#include "proto/control.pb-c.h"

struct profile_job {
    struct job job;
    uint64_t memory_bytes;      /* to start with */
    struct profile_state state; /* the result of a start or stop */
    struct profile_piece piece; /* of a read: which, and the result */
};

static struct profile_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct profile_job, job);
}

static enum embtier_err run_start(struct job *job, const struct job_parts *parts,
                                  const struct progress_sink *progress, struct err_msg *msg)
{
    struct profile_job *const profile = of(job);

    (void)progress;
    return profiles_start(parts->profiles, job->uid, profile->memory_bytes, &profile->state, msg);
}

static enum embtier_err run_stop(struct job *job, const struct job_parts *parts,
                                 const struct progress_sink *progress, struct err_msg *msg)
{
    (void)progress;
    return profiles_stop(parts->profiles, job_acts_as(job), &of(job)->state, msg);
}

static enum embtier_err run_read(struct job *job, const struct job_parts *parts,
                                 const struct progress_sink *progress, struct err_msg *msg)
{
    (void)progress;
    return profiles_read(parts->profiles, &of(job)->piece, msg);
}

static enum embtier_err reply_state(struct job *job, const struct job_client *client,
                                    struct err_msg *msg)
{
    const struct profile_state *const state = &of(job)->state;
    Embtier__ProfileInfo info = EMBTIER__PROFILE_INFO__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    (void)msg;
    info.runs = state->runs;
    info.is_exact = state->is_exact;
    info.age_ms = state->age_ms;
    info.memory_bytes = state->memory_bytes;
    info.tables = state->tables;
    info.lookups = state->lookups;
    info.samples = state->samples;
    info.lost_samples = state->lost_samples;
    reply.body_case = EMBTIER__REPLY__BODY_PROFILE;
    reply.profile = &info;
    answer(client, &reply);
    return EMBTIER_OK;
}

static enum embtier_err reply_piece(struct job *job, const struct job_client *client,
                                    struct err_msg *msg)
{
    const struct profile_piece *const piece = &of(job)->piece;
    Embtier__ProfileText text = EMBTIER__PROFILE_TEXT__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    (void)msg;
    text.snapshot = piece->snapshot;
    text.lines = piece->lines;
    text.line_bytes = piece->line_bytes;
    text.text = (ProtobufCBinaryData){ .data = (uint8_t *)piece->text, .len = piece->bytes };
    reply.body_case = EMBTIER__REPLY__BODY_PROFILE_TEXT;
    reply.profile_text = &text;
    answer(client, &reply);
    return EMBTIER_OK;
}

static void free_job(struct job *job)
{
    free(of(job)->piece.text);
    free(of(job));
}

static const struct job_kind start_kind = {
    .word = "profile start",
    .line = LINE_LOOKS,
    .run = run_start,
    .reply = reply_state,
    .free = free_job,
};

static const struct job_kind stop_kind = {
    .word = "profile stop",
    .line = LINE_LOOKS,
    .run = run_stop,
    .reply = reply_state,
    .free = free_job,
};

static const struct job_kind read_kind = {
    .word = "profile save",
    .line = LINE_LOOKS,
    .run = run_read,
    .reply = reply_piece,
    .free = free_job,
};

static struct profile_job *job_new(const struct job_kind *kind)
{
    struct profile_job *const profile = calloc(1, sizeof(*profile));

    if (profile)
        profile->job.kind = kind;
    return profile;
}

enum embtier_err profile_start_job_new(const struct job_request *request, struct job **ret_job,
                                       struct err_msg *msg)
{
    struct profile_job *const profile = job_new(&start_kind);

    (void)msg;
    if (!profile)
        return EMBTIER_NO_MEMORY;
    profile->memory_bytes = request->wire->profile_start->memory_bytes;
    *ret_job = &profile->job;
    return EMBTIER_OK;
}

enum embtier_err profile_stop_job_new(const struct job_request *request, struct job **ret_job,
                                      struct err_msg *msg)
{
    struct profile_job *const profile = job_new(&stop_kind);

    (void)request, (void)msg;
    if (!profile)
        return EMBTIER_NO_MEMORY;
    *ret_job = &profile->job;
    return EMBTIER_OK;
}

enum embtier_err profile_read_job_new(const struct job_request *request, struct job **ret_job,
                                      struct err_msg *msg)
{
    const Embtier__ProfileRead *const wire = request->wire->profile_read;
    struct profile_job *const profile = job_new(&read_kind);

    (void)msg;
    if (!profile)
        return EMBTIER_NO_MEMORY;
    profile->piece.snapshot = wire->snapshot;
    profile->piece.line = wire->line;
    profile->piece.offset = wire->offset;
    *ret_job = &profile->job;
    return EMBTIER_OK;
}
