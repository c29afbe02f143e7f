/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: a batch goes into the ring, and its answer comes back.
 *
 * Request n uses slot n % slot_count (client_channel.h). `slots` has the batch in flight in each.
 * Answers come in any order, and are kept in their batch as soon as a call sees them. Poll and wait
 * look for their own answer, submit for that of the batch whose slot it needs. From then on the
 * slot is free, even if the caller has not asked for the result.
 *
 * A batch of bags gets its ticket with the answer to a lookup that asked for one. It has the ticket
 * until the answer to a push or release of it. A refusal leaves the ticket with the batch, as
 * nothing has changed. A batch of a prefetch has its prefetch in the same way, and lends it to the
 * push that names it. A group that a request names is held until the batch's next request, because
 * messages mention it.
 *
 * A server can die at any moment. Its answers until then count; other requests end with
 * DISCONNECTED. The order matters: after noticing the end, the library looks at the answers once
 * more.
 */
#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "client/lib/batch/answer.h"
#include "client/lib/batch/batch.h"
#include "client/lib/connection.h"
#include "client/lib/group.h"
#include "client/lib/table.h"

#define NS_PER_MS       UINT64_C(1000000)
#define FOREVER         UINT64_MAX
#define SLICE_NS        (100 * NS_PER_MS) /* of sleep, between checks of the socket */
#define CHECK_EVERY_NS  (5 * NS_PER_MS)   /* poll checks the socket no more often */
#define SPIN_NS_MIN     500
#define PAUSES_PER_LOOK 32 /* between readings of the clock */

static const struct op_completion *completion_of(const struct embtier_batch *batch)
{
    return client_channel_completion(batch->server->channel, batch->request);
}

static int is_about_a_ticket(enum embtier_err err)
{
    return err == EMBTIER_NO_TICKET || err == EMBTIER_TICKET_USED || err == EMBTIER_TICKET_EXPIRED;
}

/* True if the batch still has the ticket or prefetch that the request took along. Only a refusal
 * leaves it there: other failures may come after it was used. @is_other: the error is about the
 * other of ticket and prefetch. */
static int is_kept(enum embtier_err err, int is_other)
{
    switch (err) {
    case EMBTIER_OK:
    case EMBTIER_IO:
    case EMBTIER_NO_SPACE:
    case EMBTIER_CORRUPT:
    case EMBTIER_DISCONNECTED:
        return 0;
    default:
        return !is_about_a_ticket(err) || is_other;
    }
}

/* Returns the ticket or prefetch that the batch has after its last request. */
static uint64_t ticket_after(const struct embtier_batch *batch, const struct batch_result *result)
{
    if (result->err == EMBTIER_OK)
        return batch->op == EMBTIER_GET_POOLED_TICKET || batch->op == EMBTIER_PREFETCH
                   ? result->ticket
                   : 0;
    return is_kept(result->err, result->is_of_prefetch) ? batch->ticket : 0;
}

/* Returns the prefetch that the push took along to its batch, unless the server has used it up. */
static void settle_prefetch(struct embtier_batch *batch, struct batch_result *result)
{
    struct embtier_batch *const prefetch = batch->prefetch;

    if (!prefetch)
        return;
    result->is_of_prefetch = is_about_a_ticket(result->err) && result->value == prefetch->ticket;
    if (result->err == EMBTIER_DISCONNECTED)
        batch_lose_ticket(prefetch);
    else if (!is_kept(result->err, !result->is_of_prefetch))
        prefetch->ticket = 0;
    prefetch->lent_to = NULL;
    batch->prefetch = NULL;
}

void batch_lose_ticket(struct embtier_batch *batch)
{
    batch->has_lost_ticket |= batch->ticket != 0;
    batch->ticket = 0;
}

/* True if the request had a ticket or prefetch, or would have brought one. */
static int is_about_to_lose_ticket(const struct embtier_batch *batch)
{
    return batch->ticket != 0 || batch->op == EMBTIER_GET_POOLED_TICKET ||
           batch->op == EMBTIER_PREFETCH;
}

static void settle(struct embtier_batch *batch, struct batch_result result)
{
    struct embtier *server = batch->server;

    settle_prefetch(batch, &result);
    batch->has_lost_ticket =
        server->over && result.err == EMBTIER_DISCONNECTED && is_about_to_lose_ticket(batch);
    batch->result = result;
    batch->state = BATCH_ANSWERED;
    batch->ticket = ticket_after(batch, &result);
    if (result.err == EMBTIER_OK)
        batch->hit_rows = result.hit_rows;
    if (result.err == EMBTIER_OK && batch->op == EMBTIER_PUSH && batch->asked_group)
        batch->asked_group->step = MAX(batch->asked_group->step, batch->asked_step);
    server->slots[batch->request % server->channel->slot_count] = NULL;
}

int request_is_pending(struct embtier_batch *batch)
{
    const struct op_completion *completion;

    if (batch->state != BATCH_SUBMITTED)
        return 0;
    completion = completion_of(batch);
    if (client_channel_sequence(completion) != batch->request + 1 &&
        batch->server->channel->ops->look)
        batch->server->channel->ops->look(batch->server->channel);
    if (client_channel_sequence(completion) != batch->request + 1)
        return 1;
    settle(batch, (struct batch_result){ .err = (enum embtier_err)completion->err,
                                         .segment = completion->segment,
                                         .value = completion->value,
                                         .limit = completion->limit,
                                         .hit_rows = completion->hit_rows,
                                         .ticket = completion->ticket,
                                         .field = completion->field });
    return 0;
}

int batch_is_lent(struct embtier_batch *batch)
{
    return batch->lent_to && request_is_pending(batch->lent_to);
}

void requests_fail(struct embtier *server)
{
    if (!server->slots)
        return;
    for (uint32_t i = 0; i < server->channel->slot_count; i++)
        if (server->slots[i] && request_is_pending(server->slots[i]))
            settle(server->slots[i], (struct batch_result){ .err = EMBTIER_DISCONNECTED });
}

static enum embtier_err tell(struct embtier_batch *batch)
{
    batch->state = BATCH_TOLD;
    return answer_tell(batch);
}

static void fill_pool_segments(const struct embtier_batch *batch)
{
    struct op_pool_segment *const segments = connection_bytes(batch->server, batch->block->offset);

    for (uint32_t i = 0; i < batch->part_count; i++) {
        const struct batch_part *const part = &batch->parts[i];

        segments[i] = (struct op_pool_segment){ .table = part->table->handle,
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
    struct op_segment *segments = connection_bytes(batch->server, batch->block->offset);

    for (uint32_t i = 0; i < batch->part_count; i++) {
        const struct batch_part *part = &batch->parts[i];

        segments[i] = (struct op_segment){ .table = part->table->handle,
                                           .ids_offset = part->ids_offset,
                                           .rows_offset = part->rows_offset,
                                           .id_count = part->count };
    }
}

static void fill_prefetch_segments(const struct embtier_batch *batch)
{
    struct op_push_segment *const segments = connection_bytes(batch->server, batch->block->offset);

    for (uint32_t i = 0; i < batch->part_count; i++)
        segments[i] = (struct op_push_segment){ .table = batch->parts[i].table->handle,
                                                .ids_offset = batch->parts[i].ids_offset,
                                                .count = batch->parts[i].count };
}

static double learning_rate_of(const struct embtier_push_options *push, uint32_t part)
{
    return push->learning_rates ? push->learning_rates[part] : push->learning_rate;
}

/* A skipped part has no gradients, and the gradients of its weights are zeros. */
static void fill_push_segments(const struct embtier_batch *batch,
                               const struct embtier_push_options *push)
{
    struct op_push_segment *const segments = connection_bytes(batch->server, batch->block->offset);
    const int by_ticket = batch->kind == BATCH_OF_BAGS;

    for (uint32_t i = 0; i < batch->part_count; i++) {
        const struct batch_part *const part = &batch->parts[i];
        const uint64_t weights_offset = push->weight_gradients ? part->weights_offset : 0;

        if (part->skipped && weights_offset != 0)
            memset(connection_bytes(batch->server, weights_offset), 0, part->count * sizeof(float));
        segments[i] = (struct op_push_segment){
            .table = part->table->handle,
            .ids_offset = by_ticket ? 0 : part->ids_offset,
            .gradients_offset = part->skipped ? 0 : part->rows_offset,
            .weights_offset = part->skipped ? 0 : weights_offset,
            .learning_rate = learning_rate_of(push, i),
            .count = by_ticket ? part->bag_count : part->count,
            .dim = part->table->description.info.dim,
        };
    }
}

static int is_lookup(enum embtier_op op)
{
    return op == EMBTIER_GET_POOLED || op == EMBTIER_GET_POOLED_TICKET;
}

/* Returns the group that a request names, or NULL. @push is NULL unless the request is a push. */
static struct embtier_group *group_of(const struct embtier_batch *batch, enum embtier_op op,
                                      const struct embtier_push_options *push)
{
    if (push)
        return push->group;
    return is_lookup(op) || op == EMBTIER_GET || op == EMBTIER_SET ? batch->group : NULL;
}

/* INVALID unless the batch is of the kind that @op is for. */
static enum embtier_err check_kind(const struct embtier_batch *batch, enum embtier_op op)
{
    struct err_msg *const msg = &batch->server->message;

    switch (op) {
    case EMBTIER_GET:
    case EMBTIER_SET:
        if (batch->kind == BATCH_OF_BAGS)
            return err_set(msg, EMBTIER_INVALID, "a batch of bags is for pooled lookups");
        if (batch->kind == BATCH_OF_GRADIENTS)
            return err_set(msg, EMBTIER_INVALID, "a batch of gradients is for pushes");
        if (batch->kind == BATCH_OF_PREFETCH)
            return err_set(msg, EMBTIER_INVALID,
                           "the batch has no rows: it is for prefetches only");
        return EMBTIER_OK;
    case EMBTIER_GET_POOLED:
    case EMBTIER_GET_POOLED_TICKET:
        if (batch->kind != BATCH_OF_BAGS)
            return err_set(msg, EMBTIER_INVALID, "a pooled lookup needs a batch of bags");
        return EMBTIER_OK;
    case EMBTIER_PUSH:
        if (batch->kind != BATCH_OF_BAGS && batch->kind != BATCH_OF_GRADIENTS)
            return err_set(msg, EMBTIER_INVALID,
                           "a push needs a batch of bags with a ticket, or one made by "
                           "embtier_batch_new_push()");
        return EMBTIER_OK;
    case EMBTIER_PREFETCH:
        if (batch->kind != BATCH_OF_PREFETCH)
            return err_set(msg, EMBTIER_INVALID,
                           "a prefetch needs a batch made by embtier_batch_new_prefetch()");
        return EMBTIER_OK;
    case EMBTIER_RELEASE:
        return EMBTIER_OK;
    default:
        return err_set(msg, EMBTIER_INVALID, "operation %d is not known", (int)op);
    }
}

static enum embtier_err check_ticket(const struct embtier_batch *batch, enum embtier_op op)
{
    struct err_msg *const msg = &batch->server->message;
    const int needs_one =
        op == EMBTIER_RELEASE || (op == EMBTIER_PUSH && batch->kind == BATCH_OF_BAGS);

    if (needs_one && batch->ticket == 0 && batch->has_lost_ticket)
        return err_set(msg, EMBTIER_NO_TICKET,
                       "the batch's %s ended with its session, when the connection was lost: %s",
                       batch->kind == BATCH_OF_PREFETCH ? "prefetch" : "ticket",
                       batch->kind == BATCH_OF_PREFETCH ? "prefetch it again"
                                                        : "look up with a ticket again");
    if (needs_one && batch->ticket == 0 && batch->kind == BATCH_OF_PREFETCH)
        return err_set(msg, EMBTIER_INVALID, "the batch has no prefetch: prefetch it first");
    if (needs_one && batch->ticket == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "the batch has no ticket: look up with a ticket first");
    if (is_lookup(op) && batch->ticket != 0)
        return err_set(msg, EMBTIER_INVALID,
                       "the batch's ticket has not been used: push or release it first");
    if (op == EMBTIER_PREFETCH && batch->ticket != 0)
        return err_set(msg, EMBTIER_INVALID,
                       "the batch has a prefetch: release it first, or name it in a push");
    return EMBTIER_OK;
}

/* BUSY unless the last request is done and the caller knows its result. */
static enum embtier_err refuse_unfinished(struct embtier_batch *batch)
{
    if (batch->state == BATCH_SUBMITTED || batch->state == BATCH_ANSWERED)
        return err_set(&batch->server->message, EMBTIER_BUSY,
                       "the batch's last request was not waited for: wait for it first");
    if (batch_is_lent(batch))
        return err_set(&batch->server->message, EMBTIER_BUSY,
                       "a push that releases the batch's prefetch is in flight");
    return EMBTIER_OK;
}

/* Checks the batch whose prefetch a push is about to release. */
static enum embtier_err check_prefetch(const struct embtier_batch *batch,
                                       struct embtier_batch *prefetch)
{
    struct err_msg *const msg = &batch->server->message;

    if (prefetch->server != batch->server)
        return err_set(msg, EMBTIER_INVALID, "the prefetch belongs to another connection");
    if (prefetch->kind != BATCH_OF_PREFETCH)
        return err_set(msg, EMBTIER_INVALID,
                       "the batch to be released with the push was not made by "
                       "embtier_batch_new_prefetch()");
    TRY(refuse_unfinished(prefetch));
    if (prefetch->ticket == 0 && prefetch->has_lost_ticket)
        return err_set(msg, EMBTIER_NO_TICKET,
                       "the prefetch to be released with the push ended with its session, when the "
                       "connection was lost");
    if (prefetch->ticket == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "the batch to be released with the push has no prefetch");
    return EMBTIER_OK;
}

static enum embtier_err check_submittable(struct embtier_batch *batch, enum embtier_op op,
                                          const struct embtier_push_options *push)
{
    struct embtier *server = batch->server;
    uint64_t id_count = 0;

    TRY(check_kind(batch, op));
    if (server->over)
        return connection_is_over(server);
    TRY(refuse_unfinished(batch));
    TRY(check_ticket(batch, op));
    if (push && push->prefetch)
        TRY(check_prefetch(batch, push->prefetch));
    if (group_of(batch, op, push))
        TRY(group_check(server, group_of(batch, op, push), &server->message));
    for (uint32_t i = 0; i < batch->part_count; i++) {
        id_count += batch->parts[i].count;
        if (batch->parts[i].table->handle == 0)
            return err_set(&server->message, EMBTIER_NO_TABLE,
                           "no such table: '%s' no longer existed after the reconnect%s",
                           batch_table_name(batch, i), PART_TEXT(batch, i));
    }
    /* The batch was checked when it was made, but the server may be another since a reconnect. */
    if (id_count > server->facts.max_batch_rows)
        return err_set(&server->message, EMBTIER_TOO_LARGE,
                       "batch of %" PRIu64 " ids is over the server's limit of %u "
                       "(%s)",
                       id_count, server->facts.max_batch_rows,
                       SERVER_KEY(server, "socket.max_batch_rows"));
    return EMBTIER_OK;
}

/* Returns the batch whose answer must come before the next request can be made, or NULL. */
static struct embtier_batch *next_slot_holder(struct embtier *server)
{
    struct embtier_batch *holder = server->slots[server->tail % server->channel->slot_count];

    return holder && request_is_pending(holder) ? holder : NULL;
}

static_assert((int)EMBTIER_GET == OP_GET && (int)EMBTIER_SET == OP_SET &&
                  (int)EMBTIER_GET_POOLED == OP_POOL && (int)EMBTIER_PUSH == OP_PUSH &&
                  (int)EMBTIER_RELEASE == OP_RELEASE && OP_LAST == OP_PREFETCH,
              "the same numbers");

/* Writes the segments, and returns the submission for the ring. @push is NULL unless the request is
 * a push. */
static struct op_submission fill(const struct embtier_batch *batch, enum embtier_op op,
                                 const struct embtier_push_options *push)
{
    const struct embtier_group *const group = group_of(batch, op, push);
    struct op_submission submission = { .op = (uint32_t)op,
                                        .segment_count = batch->part_count,
                                        .segments_offset = batch->block->offset,
                                        .step = group ? batch->group_step : 0,
                                        .group = group ? group->handle : 0 };

    switch (op) {
    case EMBTIER_GET_POOLED_TICKET:
        submission.op = OP_POOL;
        submission.flags = OP_FLAG_TICKET;
        fill_pool_segments(batch);
        break;
    case EMBTIER_GET_POOLED:
        fill_pool_segments(batch);
        break;
    case EMBTIER_PUSH:
        submission.step = push->step;
        submission.ticket = batch->ticket;
        submission.prefetch = push->prefetch ? push->prefetch->ticket : 0;
        fill_push_segments(batch, push);
        break;
    case EMBTIER_PREFETCH:
        submission.op = OP_PREFETCH;
        fill_prefetch_segments(batch);
        break;
    case EMBTIER_RELEASE:
        submission.ticket = batch->ticket;
        submission.segment_count = 0;
        submission.segments_offset = 0;
        break;
    default:
        submission.flags = batch->has_state ? OP_FLAG_STATE : 0;
        fill_segments(batch);
    }
    return submission;
}

static void publish(struct embtier_batch *batch, enum embtier_op op,
                    const struct embtier_push_options *push)
{
    struct embtier *server = batch->server;
    struct embtier_group *const group = group_of(batch, op, push);
    struct client_channel *const channel = server->channel;
    struct op_submission submission;
    struct err_msg msg = { { 0 } };

    for (uint32_t i = 0; i < batch->part_count && is_lookup(op); i++)
        batch->parts[i].skipped = 0;
    submission = fill(batch, op, push);
    if (channel->sent)
        batch_fill_spans(batch, op, push, channel->sent, channel->wanted);
    if (push && push->prefetch) {
        batch->prefetch = push->prefetch;
        batch->prefetch->lent_to = batch;
    }
    group_hold(group);
    group_release(batch->asked_group);
    batch->asked_group = group;
    batch->asked_step = push ? push->step : batch->group_step;
    batch->op = op;
    batch->request = server->tail;
    batch->state = BATCH_SUBMITTED;
    server->slots[server->tail % channel->slot_count] = batch;
    if (channel->ops->submit(channel, server->tail++, &submission, &msg) == EMBTIER_OK)
        return;
    connection_check(server); /* a server that ended the session may have said why */
    connection_end(server, msg.text);
}

static enum embtier_err submit(struct embtier_batch *batch, enum embtier_op op,
                               const struct embtier_push_options *push)
{
    struct embtier *server = batch->server;

    TRY(check_submittable(batch, op, push));
    if (next_slot_holder(server)) {
        if (clock_now_ns(&clock_monotonic) - server->checked_ns >= CHECK_EVERY_NS)
            connection_check(server);
        if (server->over)
            return connection_is_over(server);
        return err_set(
            &server->message, EMBTIER_BUSY,
            "the request %u places before this one is still in flight, and at most %u may be",
            server->tail - server->channel->slot_count, server->channel->slot_count);
    }
    publish(batch, op, push);
    return EMBTIER_OK;
}

enum embtier_err embtier_submit(struct embtier_batch *batch, enum embtier_op op)
{
    if (op == EMBTIER_PUSH)
        return err_set(&batch->server->message, EMBTIER_INVALID,
                       "submit a push with embtier_submit_push(), which takes its options");
    return submit(batch, op, NULL);
}

/* Reads a caller's options, and makes the cheap ones of the checks that the server repeats. */
static enum embtier_err read_push_options(struct embtier_batch *batch,
                                          const struct embtier_push_options *given,
                                          struct embtier_push_options *ret_options)
{
    struct embtier_push_options options = EMBTIER_PUSH_OPTIONS_INIT;
    struct err_msg *const msg = &batch->server->message;

    TRY(options_read(given, offsetof(struct embtier_push_options, weight_gradients), &options,
                     sizeof(options), "push", "EMBTIER_PUSH_OPTIONS_INIT", msg));
    if (options.step < 1 || options.step > EMBTIER_STEP_MAX)
        return err_set(msg, EMBTIER_INVALID, "step is %" PRIu64 ", allowed: 1 to %" PRIu64,
                       options.step, EMBTIER_STEP_MAX);
    for (uint32_t i = 0; i < batch->part_count; i++)
        if (!(fabs(learning_rate_of(&options, i)) <= (double)FLT_MAX))
            return err_set(
                msg, EMBTIER_INVALID, "learning rate %g is not finite%s%s",
                learning_rate_of(&options, i),
                isfinite(learning_rate_of(&options, i)) ? " in f32, the precision of updates" : "",
                PART_TABLE_TEXT(batch, i));
    if (options.weight_gradients && batch->kind == BATCH_OF_GRADIENTS)
        return err_set(msg, EMBTIER_INVALID, "only a push by ticket takes gradients of weights");
    *ret_options = options;
    return EMBTIER_OK;
}

enum embtier_err embtier_submit_push(struct embtier_batch *batch,
                                     const struct embtier_push_options *given)
{
    struct embtier_push_options options = EMBTIER_PUSH_OPTIONS_INIT;

    TRY(read_push_options(batch, given, &options));
    return submit(batch, EMBTIER_PUSH, &options);
}

/* Most answers come within microseconds. The time to spin is learnt: an answer during the spin
 * doubles it, and a spin in vain halves it. */
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

/* Waits until @batch has an answer, which the end of the connection also gives it. TIMEOUT. */
static enum embtier_err wait_for_answer(struct embtier_batch *batch, uint64_t deadline_ns)
{
    struct embtier *server = batch->server;
    struct err_msg ignored;

    if (!request_is_pending(batch) || !spin(batch))
        return EMBTIER_OK;
    for (;;) {
        const struct op_completion *completion = completion_of(batch);
        const uint32_t seen = client_channel_sequence(completion);
        const uint64_t now_ns = clock_now_ns(&clock_monotonic);

        if (!request_is_pending(batch))
            return EMBTIER_OK;
        if (now_ns >= deadline_ns)
            return EMBTIER_TIMEOUT;
        if (now_ns - server->checked_ns >= SLICE_NS ||
            server->channel->ops->ended(server->channel, &ignored) != EMBTIER_OK)
            connection_check(server);
        else
            server->channel->ops->sleep(server->channel, completion, seen,
                                        MIN(SLICE_NS, deadline_ns - now_ns));
    }
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
        return err_set(&batch->server->message, err,
                       "no answer within %u ms; the request continues", timeout_ms);
    return tell(batch);
}

/* The server has a limit of its own for pushes of a group, which wait for other trainers. */
static uint64_t request_deadline_ns(const struct embtier *server,
                                    const struct embtier_push_options *push)
{
    if (server->request_timeout_ms == 0 || (push && push->group))
        return FOREVER;
    return clock_now_ns(&clock_monotonic) + server->request_timeout_ms * NS_PER_MS;
}

static enum embtier_err wait_until(struct embtier_batch *batch, uint64_t deadline_ns)
{
    struct embtier *const server = batch->server;
    const enum embtier_err err = wait_for_answer(batch, deadline_ns);

    if (err)
        return err_set(&server->message, err,
                       "no answer within %u ms (request_timeout_ms); the request continues",
                       server->request_timeout_ms);
    return tell(batch);
}

static enum embtier_err wait_for_slot(struct embtier *server, uint64_t deadline_ns)
{
    struct embtier_batch *holder;

    while ((holder = next_slot_holder(server)))
        if (wait_for_answer(holder, deadline_ns) != EMBTIER_OK)
            return err_set(&server->message, EMBTIER_BUSY,
                           "the request %u places before this one was not answered within %u ms "
                           "(request_timeout_ms); this one was not made",
                           server->channel->slot_count, server->request_timeout_ms);
    return EMBTIER_OK;
}

static enum embtier_err submit_and_wait_once(struct embtier_batch *batch, enum embtier_op op,
                                             const struct embtier_push_options *push)
{
    struct embtier *const server = batch->server;
    const uint64_t deadline_ns = request_deadline_ns(server, push);

    TRY(check_submittable(batch, op, push));
    TRY(wait_for_slot(server, deadline_ns));
    if (server->over)
        return connection_is_over(server);
    publish(batch, op, push);
    return wait_until(batch, deadline_ns);
}

/* A membership ends with its session, so reads of a group's step are not repeated either. */
static int may_be_repeated(const struct embtier_batch *batch, enum embtier_op op)
{
    const int only_reads = op == EMBTIER_GET || op == EMBTIER_GET_POOLED || op == EMBTIER_PREFETCH;

    return batch->server->retries_reads && batch->server->over && only_reads && !batch->group;
}

/* A read is repeated once at most: one that ends each server must not do so for ever. */
static enum embtier_err submit_and_wait(struct embtier_batch *batch, enum embtier_op op,
                                        const struct embtier_push_options *push)
{
    const enum embtier_err err = submit_and_wait_once(batch, op, push);

    if (err != EMBTIER_DISCONNECTED || !may_be_repeated(batch, op))
        return err;
    TRY(embtier_reconnect(batch->server));
    return submit_and_wait_once(batch, op, push);
}

enum embtier_err embtier_get(struct embtier_batch *batch)
{
    return submit_and_wait(batch, EMBTIER_GET, NULL);
}

enum embtier_err embtier_get_pooled(struct embtier_batch *batch)
{
    return submit_and_wait(batch, EMBTIER_GET_POOLED, NULL);
}

enum embtier_err embtier_get_pooled_ticket(struct embtier_batch *batch)
{
    return submit_and_wait(batch, EMBTIER_GET_POOLED_TICKET, NULL);
}

enum embtier_err embtier_set(struct embtier_batch *batch)
{
    return submit_and_wait(batch, EMBTIER_SET, NULL);
}

enum embtier_err embtier_prefetch(struct embtier_batch *batch)
{
    return submit_and_wait(batch, EMBTIER_PREFETCH, NULL);
}

enum embtier_err embtier_push(struct embtier_batch *batch, const struct embtier_push_options *given)
{
    struct embtier_push_options options = EMBTIER_PUSH_OPTIONS_INIT;

    TRY(read_push_options(batch, given, &options));
    return submit_and_wait(batch, EMBTIER_PUSH, &options);
}

enum embtier_err embtier_release(struct embtier_batch *batch)
{
    TRY(refuse_unfinished(batch));
    if (batch->ticket == 0)
        return EMBTIER_OK;
    return submit_and_wait(batch, EMBTIER_RELEASE, NULL);
}
