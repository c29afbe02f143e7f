/* SPDX-License-Identifier: Apache-2.0 */
/* request_impl.h: what request.c and pooled.c share: how words are taken out of shared memory. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_REQUEST_IMPL_H
#define EMBTIER_DAEMON_ENGINE_OPS_REQUEST_IMPL_H

#include <sched.h>

#include "daemon/engine/ops/request.h"
#include "daemon/engine/ops/request_checks.h"
#include "daemon/engine/sessions/session.h"
#include "kernels/cpu/cast.h"
#include "proto/shm_fields.h"

/* What is read from shared memory is read once, into a copy, with volatile so that no compiler
 * reads it again behind a check. Whole words. */
static inline void copy_once(void *dest, const volatile void *src, uint64_t bytes)
{
    uint64_t *out = dest;
    const volatile uint64_t *in = src;

    for (uint64_t i = 0; i < bytes / sizeof(*out); i++)
        out[i] = in[i];
}

/* Only in builds that lack a copy: what was checked may have changed when it is read again. */
static inline void copy_again(void *dest, const volatile void *src, uint64_t bytes)
{
    sched_yield();
    copy_once(dest, src, bytes);
}

static inline bool in_region(const struct session *session, uint64_t offset, uint64_t bytes,
                             uint64_t align)
{
    return channel_holds(&session->channel, offset, bytes, align);
}

static inline enum embtier_err refuse(struct refusal *refusal, enum embtier_err err,
                                      uint32_t segment, uint64_t value, uint64_t limit)
{
    *refusal = (struct refusal){ .err = err, .segment = segment, .value = value, .limit = limit };
    return err;
}

/* Refuses a request of @form since the submission at @place, or its segment number @segment that is
 * at @place, is not clean (shm_submission_is_clean() and so on). */
MUST_CHECK enum embtier_err request_refuse_unused(uint32_t form, uint32_t segment,
                                                  const void *place, struct refusal *refusal);

/* What a request of @segments segments and @id_count ids needs behind its struct of @head_bytes,
 * which may be larger than struct request. */
uint64_t request_block_bytes(const struct request_rules *rules, uint64_t head_bytes,
                             uint32_t segments, uint64_t id_count);
/* Lays a request out in such a block. Its segments are zeros, to be filled in. */
void request_lay_out(const struct request_rules *rules, struct request *request,
                     uint64_t head_bytes, uint32_t segments, uint64_t id_count);

/* In the place of request_take(), for rows that are known: of the next segment, which is filled in,
 * one for each run of @pairs; @starts are those of its runs. Then, after the last segment, the rows
 * are dealt out. */
void request_put_runs(const struct request_rules *rules, struct request *request,
                      const struct cast_pair *pairs, const uint32_t *starts);
void request_deal(const struct request_rules *rules, struct request *request);

/* Memory for the session's next request, or a push's first wave. NULL: none now. How much it needs
 * is noted then, so that the request is not copied and checked again before that is there. */
void *request_memory_for(const struct request_rules *rules, struct session *session, uint64_t bytes,
                         enum request_memory_use use);

#endif
