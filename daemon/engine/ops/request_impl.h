/* SPDX-License-Identifier: Apache-2.0 */
/* request_impl.h: what request.c and pooled.c share: how words are taken out of shared memory, and
 * the numbers of the checks they pass. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_REQUEST_IMPL_H
#define EMBTIER_DAEMON_ENGINE_OPS_REQUEST_IMPL_H

#include <sched.h>

#include "daemon/engine/ops/request.h"
#include "daemon/engine/sessions/session.h"
#include "kernels/cpu/cast/cast.h"
#include "proto/shm_fields.h"

/* The checks of what a client wrote, by number. tests/unit builds these files once without each of
 * them (a copy: with what it copied read once more behind its checks), to see that it is missed. */
enum {
    CHECK_FIELDS = 200,
    CHECK_OP = 1,
    CHECK_FLAGS,
    CHECK_SEGMENT_COUNT,
    CHECK_SEGMENTS_IN_ARENA,
    CHECK_SEGMENT_FIELDS,
    CHECK_ID_COUNT,
    CHECK_TABLE,
    CHECK_IDS_IN_ARENA,
    CHECK_ROWS_IN_ARENA,
    CHECK_ID,
    COPY_SUBMISSION,
    COPY_SEGMENTS,
    COPY_IDS,
    CHECK_POOL_SEGMENT_COUNT,
    CHECK_POOL_SEGMENTS_IN_ARENA,
    CHECK_POOL_SEGMENT_FIELDS,
    CHECK_POOL_MODE,
    CHECK_POOL_WEIGHTS_OF_MAX,
    CHECK_POOL_ID_COUNT,
    CHECK_POOL_BAG_COUNT,
    CHECK_POOL_TABLE,
    CHECK_POOL_IDS_IN_ARENA,
    CHECK_POOL_BAGS_IN_ARENA,
    CHECK_POOL_OFFSETS_IN_ARENA,
    CHECK_POOL_WEIGHTS_IN_ARENA,
    CHECK_POOL_FIRST_OFFSET,
    CHECK_POOL_OFFSETS_RISE,
    CHECK_POOL_OFFSETS_END,
    CHECK_POOL_LAST_OFFSET,
    COPY_POOL_SEGMENTS,
    CHECK_PUSH_FIELDS,
    CHECK_PUSH_STEP,
    CHECK_PUSH_SEGMENT_COUNT,
    CHECK_PUSH_SEGMENTS_IN_ARENA,
    CHECK_PUSH_TICKET_SEGMENTS,
    CHECK_PUSH_COUNT,
    CHECK_PUSH_SEGMENT_FIELDS,
    CHECK_PUSH_LEARNING_RATE,
    CHECK_PUSH_TICKET_TABLE,
    CHECK_PUSH_TICKET_BAGS,
    CHECK_PUSH_WEIGHTS_OF_MAX = 42, /* numbers of checks that are gone are not used again */
    CHECK_PUSH_WEIGHTS_IN_ARENA,
    CHECK_PUSH_IDS_IN_ARENA = 45,
    CHECK_PUSH_TABLE,
    CHECK_PUSH_OPTIMIZER,
    CHECK_PUSH_DIM,
    CHECK_PUSH_GRADIENTS_IN_ARENA,
    CHECK_PUSH_SAME_RATE,
    CHECK_PUSH_ID,
    CHECK_PUSH_FINITE,
    CHECK_PUSH_WEIGHTS_FINITE,
    CHECK_PUSH_TICKET_KIND,
    COPY_PUSH_SEGMENTS,
    COPY_PUSH_IDS,
    CHECK_GROUP,
    CHECK_GROUP_STEP,
    CHECK_STEP_SAME_RATE,
    CHECK_POOL_SEARCHED_ID,
    CHECK_PUSH_ROWS_FINITE,
};
#ifndef REQUEST_WITHOUT
#define REQUEST_WITHOUT 0
#endif
#define IS_BAD(check, condition) ((condition) && REQUEST_WITHOUT != (check))
#define IS_COPIED(copy)          (REQUEST_WITHOUT != (copy))

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

static inline bool in_arena(const struct session *session, uint64_t offset, uint64_t bytes,
                            uint64_t align)
{
    return offset % align == 0 && offset >= shm_arena_payload_offset(session->slot_count) &&
           offset <= session->arena_bytes && bytes <= session->arena_bytes - offset;
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
