/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: a batch goes into the ring, and its answer comes back.
 *
 * Request n uses slot n % slot_count (proto/shm_layout.h). `slots` says which batch is under way in
 * each. Answers come in any order and are kept in their batch as soon as they are seen, by whoever
 * looks: poll and wait for their own, submit for the one whose slot it needs. From then on the slot
 * is free, whether the caller has asked for the result or not.
 *
 * A server can die at any moment. What it had answered by then counts; the rest ends with
 * DISCONNECTED. The order matters: the answers are looked at once more after the end was noticed.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "client/batch.h"
#include "client/connection.h"
#include "client/table.h"

#define NS_PER_MS       UINT64_C(1000000)
#define FOREVER         UINT64_MAX
#define SLICE_NS        (100 * NS_PER_MS) /* of sleep, between looks at the socket */
#define CHECK_EVERY_NS  (5 * NS_PER_MS)   /* poll looks at the socket no more often */
#define SPIN_NS_MIN     500
#define PAUSES_PER_LOOK 32 /* between looks at the clock */

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static const struct shm_completion *completion_of(const struct embtier_batch *batch)
{
    const struct shared_memory *memory = &batch->server->memory;

    return (const struct shm_completion *)(memory->control + 1) +
           batch->request % memory->slot_count;
}

static void settle(struct embtier_batch *batch, struct batch_result result)
{
    struct embtier *server = batch->server;

    batch->result = result;
    batch->state = BATCH_ANSWERED;
    if (result.err == EMBTIER_OK)
        batch->hit_rows = result.hit_rows;
    server->slots[batch->request % server->memory.slot_count] = NULL;
}

int request_is_pending(struct embtier_batch *batch)
{
    const struct shm_completion *completion;

    if (batch->state != BATCH_SUBMITTED)
        return 0;
    completion = completion_of(batch);
    if (shm_read_sequence(completion) != batch->request + 1)
        return 1;
    settle(batch, (struct batch_result){ .err = (enum embtier_err)completion->err,
                                         .segment = completion->segment,
                                         .value = completion->value,
                                         .limit = completion->limit,
                                         .hit_rows = completion->hit_rows });
    return 0;
}

void requests_fail(struct embtier *server)
{
    if (!server->slots)
        return;
    for (uint32_t i = 0; i < server->memory.slot_count; i++)
        if (server->slots[i] && request_is_pending(server->slots[i]))
            settle(server->slots[i], (struct batch_result){ .err = EMBTIER_DISCONNECTED });
}

/* What an answer's numbers mean depends on its error; see shm_completion. */
static enum embtier_err tell_result(const struct embtier_batch *batch)
{
    const struct batch_result *result = &batch->result;
    struct err_msg *msg = &batch->server->message;
    const char *table = "?";

    if (result->err == EMBTIER_OK)
        return EMBTIER_OK;
    if (result->err == EMBTIER_DISCONNECTED)
        return connection_is_over(batch->server);
    if (result->err == EMBTIER_TOO_LARGE)
        return err_set(msg, result->err,
                       "batch of %" PRIu64 " %s is over the server's limit of %" PRIu64,
                       result->value, batch->has_bags ? "ids or bags" : "ids", result->limit);
    if (result->segment >= batch->part_count)
        return err_set(msg, result->err, "%s", err_text(result->err));
    table = batch->parts[result->segment].table->description.info.name;
    switch (result->err) {
    case EMBTIER_ID_RANGE:
        return err_set(msg, result->err,
                       "row id %" PRIu64 " is out of range: table '%s' has %" PRIu64
                       " rows (part %u)",
                       result->value, table, result->limit, result->segment);
    case EMBTIER_OFFSET_RANGE:
        return err_set(msg, result->err,
                       "offset %" PRIu64 " is past the arena's end at %" PRIu64
                       " (part %u, table '%s')",
                       result->value, result->limit, result->segment, table);
    case EMBTIER_BAG_RANGE:
        return err_set(msg, result->err,
                       "offset %" PRIu64 " of bags is %" PRIu64
                       ": they start with 0, never decrease, and end with the number of ids, %u "
                       "(part %u, table '%s')",
                       result->value, result->limit, batch->parts[result->segment].count,
                       result->segment, table);
    case EMBTIER_NO_TABLE:
        return err_set(msg, result->err, "no such table: '%s' (part %u)", table, result->segment);
    case EMBTIER_DROPPED:
        return err_set(msg, result->err, "table '%s' was dropped (part %u)", table,
                       result->segment);
    default:
        return err_set(msg, result->err, "%s (part %u, table '%s')", err_text(result->err),
                       result->segment, table);
    }
}

static enum embtier_err tell(struct embtier_batch *batch)
{
    batch->state = BATCH_TOLD;
    return tell_result(batch);
}

static void fill_pool_segments(const struct embtier_batch *batch)
{
    struct shm_pool_segment *const segments =
        (void *)((char *)batch->server->memory.arena + batch->block->offset);

    for (uint32_t i = 0; i < batch->part_count; i++) {
        const struct batch_part *const part = &batch->parts[i];

        segments[i] = (struct shm_pool_segment){ .table = part->table->handle,
                                                 .ids_offset = part->ids_offset,
                                                 .bags_offset = part->rows_offset,
                                                 .offsets_offset = part->offsets_offset,
                                                 .weights_offset = part->weights_offset,
                                                 .id_count = part->count,
                                                 .bag_count = part->bag_count,
                                                 .mode = part->mode };
    }
}

static void fill_segments(const struct embtier_batch *batch)
{
    struct shm_segment *segments =
        (void *)((char *)batch->server->memory.arena + batch->block->offset);

    for (uint32_t i = 0; i < batch->part_count; i++) {
        const struct batch_part *part = &batch->parts[i];

        segments[i] = (struct shm_segment){ .table = part->table->handle,
                                            .ids_offset = part->ids_offset,
                                            .rows_offset = part->rows_offset,
                                            .id_count = part->count };
    }
}

static enum embtier_err check_submittable(struct embtier_batch *batch, enum embtier_op op)
{
    struct embtier *server = batch->server;
    uint64_t id_count = 0;

    if (op != EMBTIER_GET && op != EMBTIER_SET && op != EMBTIER_GET_POOLED)
        return err_set(&server->message, EMBTIER_INVALID, "operation %d is not known", (int)op);
    if (!batch->has_bags != (op != EMBTIER_GET_POOLED))
        return err_set(&server->message, EMBTIER_INVALID,
                       batch->has_bags ? "a batch of bags is for pooled lookups"
                                       : "a pooled lookup needs a batch of bags");
    if (server->over)
        return connection_is_over(server);
    if (batch->state == BATCH_SUBMITTED || batch->state == BATCH_ANSWERED)
        return err_set(&server->message, EMBTIER_BUSY,
                       "the batch's last request has not been waited for");
    for (uint32_t i = 0; i < batch->part_count; i++) {
        id_count += batch->parts[i].count;
        if (batch->parts[i].table->handle == 0)
            return err_set(&server->message, EMBTIER_NO_TABLE,
                           "no such table: '%s' was not there after the reconnect (part %u)",
                           batch->parts[i].table->description.info.name, i);
    }
    /* Known when the batch was made, but another server may have come since. */
    if (id_count > server->memory.max_batch_rows)
        return err_set(&server->message, EMBTIER_TOO_LARGE,
                       "batch of %" PRIu64 " ids is over the server's limit of %u", id_count,
                       server->memory.max_batch_rows);
    return EMBTIER_OK;
}

/* The batch whose answer must come before the next request can be made, or NULL. */
static struct embtier_batch *next_slot_holder(struct embtier *server)
{
    struct embtier_batch *holder = server->slots[server->tail % server->memory.slot_count];

    return holder && request_is_pending(holder) ? holder : NULL;
}

static_assert((int)EMBTIER_GET == SHM_OP_GET && (int)EMBTIER_SET == SHM_OP_SET &&
                  (int)EMBTIER_GET_POOLED == SHM_OP_POOL,
              "the same numbers");

static void publish(struct embtier_batch *batch, enum embtier_op op)
{
    struct embtier *server = batch->server;
    struct shm_arena_head *head = server->memory.arena;
    const uint32_t slot = server->tail % server->memory.slot_count;

    if (batch->has_bags)
        fill_pool_segments(batch);
    else
        fill_segments(batch);
    shm_submissions(head)[slot] =
        (struct shm_submission){ .op = (uint32_t)op,
                                 .flags = batch->has_state ? SHM_FLAG_STATE : 0,
                                 .segment_count = batch->part_count,
                                 .segments_offset = batch->block->offset };
    batch->request = server->tail;
    batch->state = BATCH_SUBMITTED;
    server->slots[slot] = batch;
    server->tail++;
    shm_publish_tail(head, server->tail);
    if (shm_lane_is_asleep(server->memory.control))
        shared_memory_ring(&server->memory);
}

enum embtier_err embtier_submit(struct embtier_batch *batch, enum embtier_op op)
{
    struct embtier *server = batch->server;

    TRY(check_submittable(batch, op));
    if (next_slot_holder(server)) {
        if (clock_now_ns(&clock_monotonic) - server->checked_ns >= CHECK_EVERY_NS)
            connection_check(server);
        if (server->over)
            return connection_is_over(server);
        return err_set(&server->message, EMBTIER_BUSY,
                       "request %u before this one is still in flight, and %u may be",
                       server->tail - server->memory.slot_count, server->memory.slot_count);
    }
    publish(batch, op);
    return EMBTIER_OK;
}

/* Most answers come within microseconds. How long it is worth to spin is learnt: an answer while
 * spinning doubles it, having to sleep in the end halves it. */
static int spin(struct embtier_batch *batch)
{
    struct embtier *server = batch->server;
    uint64_t begin_ns;

    if (server->spin_ns_max == 0)
        return request_is_pending(batch);
    begin_ns = clock_now_ns(&clock_monotonic);
    do {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (!request_is_pending(batch)) {
                server->spin_ns = MIN(server->spin_ns * 2, server->spin_ns_max);
                return 0;
            }
            cpu_relax();
        }
    } while (clock_now_ns(&clock_monotonic) - begin_ns < server->spin_ns);
    server->spin_ns = MAX(server->spin_ns / 2, (uint32_t)SPIN_NS_MIN);
    return request_is_pending(batch);
}

/* Until @batch has an answer, the end of the connection being one; TIMEOUT. */
static enum embtier_err wait_for_answer(struct embtier_batch *batch, uint64_t deadline_ns)
{
    struct embtier *server = batch->server;
    struct shm_arena_head *head = server->memory.arena;
    enum embtier_err err = EMBTIER_OK;

    if (!request_is_pending(batch) || !spin(batch))
        return EMBTIER_OK;
    shm_client_waits(head, 1);
    for (;;) {
        const struct shm_completion *completion = completion_of(batch);
        const uint32_t seen = shm_read_sequence(completion);
        const uint64_t now_ns = clock_now_ns(&clock_monotonic);

        if (!request_is_pending(batch))
            break;
        if (now_ns >= deadline_ns) {
            err = EMBTIER_TIMEOUT;
            break;
        }
        if (now_ns - server->checked_ns >= SLICE_NS)
            connection_check(server);
        else
            shared_memory_sleep(completion, seen, MIN(SLICE_NS, deadline_ns - now_ns));
    }
    shm_client_waits(head, 0);
    return err;
}

enum embtier_err embtier_poll(struct embtier_batch *batch)
{
    struct embtier *server = batch->server;

    if (batch->state == BATCH_IDLE)
        return err_set(&server->message, EMBTIER_INVALID, "the batch was never submitted");
    if (!request_is_pending(batch))
        return tell(batch);
    if (clock_now_ns(&clock_monotonic) - server->checked_ns >= CHECK_EVERY_NS) {
        connection_check(server);
        if (!request_is_pending(batch))
            return tell(batch);
    }
    return EMBTIER_AGAIN;
}

enum embtier_err embtier_wait(struct embtier_batch *batch, uint32_t timeout_ms)
{
    uint64_t deadline_ns = FOREVER;
    enum embtier_err err;

    if (batch->state == BATCH_IDLE)
        return err_set(&batch->server->message, EMBTIER_INVALID, "the batch was never submitted");
    if (timeout_ms != UINT32_MAX)
        deadline_ns = clock_now_ns(&clock_monotonic) + timeout_ms * NS_PER_MS;
    err = wait_for_answer(batch, deadline_ns);
    if (err)
        return err_set(&batch->server->message, err, "no answer within %u ms; the request goes on",
                       timeout_ms);
    return tell(batch);
}

static enum embtier_err submit_and_wait(struct embtier_batch *batch, enum embtier_op op)
{
    struct embtier *server = batch->server;
    struct embtier_batch *holder;

    TRY(check_submittable(batch, op));
    while ((holder = next_slot_holder(server)))
        TRY(wait_for_answer(holder, FOREVER));
    if (server->over)
        return connection_is_over(server);
    publish(batch, op);
    return embtier_wait(batch, UINT32_MAX);
}

enum embtier_err embtier_get(struct embtier_batch *batch)
{
    return submit_and_wait(batch, EMBTIER_GET);
}

enum embtier_err embtier_get_pooled(struct embtier_batch *batch)
{
    return submit_and_wait(batch, EMBTIER_GET_POOLED);
}

enum embtier_err embtier_set(struct embtier_batch *batch)
{
    return submit_and_wait(batch, EMBTIER_SET);
}
