/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/batch/batch.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/lib/connection.h"
#include "client/lib/group.h"
#include "client/lib/table.h"

const char *batch_table_name(const struct embtier_batch *batch, uint32_t part)
{
    return batch->parts[part].table->description.info.name;
}

const char *batch_part_text(const struct embtier_batch *batch, uint32_t part,
                            struct part_text *buffer)
{
    buffer->text[0] = '\0';
    if (batch->part_count > 1)
        snprintf(buffer->text, sizeof(buffer->text), " (part %u)", part);
    return buffer->text;
}

const char *batch_table_text(const struct embtier_batch *batch, uint32_t part,
                             struct part_text *buffer)
{
    const char *const table = batch_table_name(batch, part);

    if (batch->part_count > 1)
        snprintf(buffer->text, sizeof(buffer->text), " (part %u, table '%s')", part, table);
    else
        snprintf(buffer->text, sizeof(buffer->text), " (table '%s')", table);
    return buffer->text;
}

static enum embtier_err check_parts(const struct embtier_batch *batch)
{
    struct embtier *const server = batch->server;
    uint64_t id_count = 0;
    uint64_t bag_count = 0;

    for (uint32_t i = 0; i < batch->part_count; i++) {
        const struct embtier_table *const table = batch->parts[i].table;

        if (!table || table->server != server || table->closed)
            return err_set(&server->message, EMBTIER_INVALID,
                           "part %u: the table is not open on this connection", i);
        id_count += batch->parts[i].count;
        bag_count += batch->parts[i].bag_count;
    }
    if (id_count > server->facts.max_batch_rows)
        return err_set(&server->message, EMBTIER_TOO_LARGE,
                       "batch of %" PRIu64 " ids is over the server's limit of %u "
                       "(%s)",
                       id_count, server->facts.max_batch_rows,
                       SERVER_KEY(server, "socket.max_batch_rows"));
    if (bag_count > server->facts.max_batch_rows)
        return err_set(&server->message, EMBTIER_TOO_LARGE,
                       "batch of %" PRIu64 " bags is over the server's limit of %u "
                       "(%s)",
                       bag_count, server->facts.max_batch_rows,
                       SERVER_KEY(server, "socket.max_batch_rows"));
    return EMBTIER_OK;
}

/* Distance from one row of a part to the next. */
static uint32_t row_bytes(const struct embtier_batch *batch, uint32_t part)
{
    const struct embtier_table_info *const info = &batch->parts[part].table->description.info;

    return info->weight_bytes + (batch->has_state ? info->state_bytes : 0);
}

/* Returns the bytes of so many rows or bags of a part, or of their gradients. */
static uint64_t bytes_of(const struct embtier_batch *batch, uint32_t part, uint64_t count,
                         uint64_t bag_count)
{
    const uint64_t vector_bytes = batch->parts[part].table->description.info.dim * sizeof(float);

    switch (batch->kind) {
    case BATCH_OF_BAGS:
        return bag_count * vector_bytes;
    case BATCH_OF_GRADIENTS:
        return count * vector_bytes;
    case BATCH_OF_PREFETCH:
        return 0;
    default:
        return count * row_bytes(batch, part);
    }
}

/* Returns the size of the room for a part's rows, bags or gradients. */
static uint64_t rows_bytes(const struct embtier_batch *batch, uint32_t part)
{
    return bytes_of(batch, part, batch->parts[part].count_max, batch->parts[part].bag_count_max);
}

uint64_t batch_rows_bytes(const struct embtier_batch *batch, uint32_t part)
{
    return bytes_of(batch, part, batch->parts[part].count, batch->parts[part].bag_count);
}

uint64_t batch_segments_bytes(const struct embtier_batch *batch)
{
    return batch->part_count * (batch->kind == BATCH_OF_ROWS ? sizeof(struct op_segment)
                                                             : sizeof(struct op_push_segment));
}

static_assert(sizeof(struct op_push_segment) == sizeof(struct op_pool_segment),
              "a batch of bags has room for the segments of both");

/* Gives every part its place, counted from @begin, and returns the end. The ids of all parts lie
 * together, so that the server reads them in one go. The sum cannot overflow after check_parts():
 * there are fewer than 2^32 rows and bags of at most 2^17 bytes. */
static uint64_t lay_out(struct embtier_batch *batch, uint64_t begin)
{
    uint64_t at = begin + batch_segments_bytes(batch);

    for (uint32_t i = 0; i < batch->part_count; i++) {
        batch->parts[i].ids_offset = at;
        at += batch->parts[i].count_max * sizeof(uint64_t);
    }
    for (uint32_t i = 0; i < batch->part_count && batch->kind == BATCH_OF_BAGS; i++) {
        struct batch_part *const part = &batch->parts[i];

        part->offsets_offset = at;
        at += ((uint64_t)part->bag_count_max + 1) * sizeof(uint32_t);
        if (part->weights_offset != 0) {
            part->weights_offset = at;
            at += part->count_max * sizeof(float);
        }
    }
    for (uint32_t i = 0; i < batch->part_count; i++) {
        at = align_up(at, OP_ALIGN);
        batch->parts[i].rows_offset = at;
        at += rows_bytes(batch, i);
    }
    return at;
}

static enum embtier_err take_block(struct embtier *server, struct embtier_batch *batch)
{
    const uint64_t bytes = lay_out(batch, 0);
    const enum embtier_err err = arena_alloc_take(server->alloc, bytes, &batch->block);

    if (err == EMBTIER_ARENA_FULL)
        return err_set(&server->message, err,
                       "batch needs %" PRIu64 " bytes of the shared arena; %" PRIu64 " of %" PRIu64
                       " are free, %" PRIu64 " of them in one piece; use smaller batches, or "
                       "connect with more arena_bytes",
                       bytes, arena_alloc_free_bytes(server->alloc), server->channel->region_bytes,
                       arena_alloc_largest_bytes(server->alloc));
    if (err)
        return err_set(&server->message, err, "%s", err_text(err));
    lay_out(batch, batch->block->offset);
    return EMBTIER_OK;
}

static enum embtier_err batch_alloc(struct embtier *server, uint32_t part_count,
                                    uint32_t part_count_max, struct embtier_batch **ret_batch)
{
    struct embtier_batch *batch;

    if (!server->alloc)
        return err_set(&server->message, EMBTIER_INVALID,
                       "the connection was made without an arena (arena_bytes 0)");
    if (part_count > part_count_max)
        return err_set(&server->message, EMBTIER_TOO_LARGE,
                       "batch of %u parts is over the limit of %u", part_count, part_count_max);
    batch = calloc(1, sizeof(*batch) + part_count * sizeof(batch->parts[0]));
    if (!batch)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    batch->server = server;
    batch->part_count = part_count;
    *ret_batch = batch;
    return EMBTIER_OK;
}

/* The caller has filled in the parts. */
static enum embtier_err batch_begin(struct embtier_batch *batch)
{
    struct embtier *const server = batch->server;

    TRY(check_parts(batch));
    TRY(take_block(server, batch));
    for (uint32_t i = 0; i < batch->part_count; i++)
        table_hold(batch->parts[i].table, batch->has_state);
    batch->next = server->batches;
    if (batch->next)
        batch->next->previous = batch;
    server->batches = batch;
    return EMBTIER_OK;
}

static enum embtier_err new_batch(struct embtier *server, enum batch_kind kind, int has_state,
                                  const struct embtier_part *parts, uint32_t part_count,
                                  struct embtier_batch **ret_batch)
{
    _cleanup_(freep) struct embtier_batch *batch = NULL;

    TRY(batch_alloc(server, part_count,
                    kind == BATCH_OF_ROWS ? OP_SEGMENTS_MAX : OP_POOL_SEGMENTS_MAX, &batch));
    batch->kind = kind;
    batch->has_state = has_state;
    for (uint32_t i = 0; i < part_count; i++)
        batch->parts[i] = (struct batch_part){ .table = parts[i].table,
                                               .count = parts[i].count,
                                               .count_max = parts[i].count };
    TRY(batch_begin(batch));
    *ret_batch = TAKE(batch);
    return EMBTIER_OK;
}

enum embtier_err embtier_batch_new(struct embtier *server, const struct embtier_part *parts,
                                   uint32_t part_count, struct embtier_batch **ret_batch)
{
    return new_batch(server, BATCH_OF_ROWS, 0, parts, part_count, ret_batch);
}

enum embtier_err embtier_batch_new_with_state(struct embtier *server,
                                              const struct embtier_part *parts, uint32_t part_count,
                                              struct embtier_batch **ret_batch)
{
    return new_batch(server, BATCH_OF_ROWS, 1, parts, part_count, ret_batch);
}

enum embtier_err embtier_batch_new_push(struct embtier *server, const struct embtier_part *parts,
                                        uint32_t part_count, struct embtier_batch **ret_batch)
{
    return new_batch(server, BATCH_OF_GRADIENTS, 0, parts, part_count, ret_batch);
}

enum embtier_err embtier_batch_new_prefetch(struct embtier *server,
                                            const struct embtier_part *parts, uint32_t part_count,
                                            struct embtier_batch **ret_batch)
{
    return new_batch(server, BATCH_OF_PREFETCH, 0, parts, part_count, ret_batch);
}

enum embtier_err embtier_batch_new_bags(struct embtier *server,
                                        const struct embtier_bag_part *parts, uint32_t part_count,
                                        struct embtier_batch **ret_batch)
{
    _cleanup_(freep) struct embtier_batch *batch = NULL;

    TRY(batch_alloc(server, part_count, OP_POOL_SEGMENTS_MAX, &batch));
    batch->kind = BATCH_OF_BAGS;
    for (uint32_t i = 0; i < part_count; i++) {
        const struct embtier_bag_part *const part = &parts[i];

        if (part->mode < EMBTIER_POOL_SUM || part->mode > EMBTIER_POOL_MAX)
            return err_set(&server->message, EMBTIER_INVALID, "part %u: mode %d is not known", i,
                           (int)part->mode);
        if (part->mode == EMBTIER_POOL_MAX && part->weighted)
            return err_set(&server->message, EMBTIER_INVALID, "part %u: a maximum takes no weights",
                           i);
        batch->parts[i] = (struct batch_part){ .table = part->table,
                                               .count = part->count,
                                               .count_max = part->count,
                                               .mode = part->mode,
                                               .bag_count = part->bag_count,
                                               .bag_count_max = part->bag_count,
                                               .weights_offset = part->weighted != 0 };
    }
    TRY(batch_begin(batch));
    *ret_batch = TAKE(batch);
    return EMBTIER_OK;
}

static void batch_destroy(struct embtier_batch *batch)
{
    struct embtier *server = batch->server;

    if (batch->previous)
        batch->previous->next = batch->next;
    else
        server->batches = batch->next;
    if (batch->next)
        batch->next->previous = batch->previous;
    for (uint32_t i = 0; i < batch->part_count; i++)
        table_release(batch->parts[i].table, batch->has_state);
    group_release(batch->group);
    group_release(batch->asked_group);
    arena_alloc_give(server->alloc, batch->block);
    free(batch);
}

void batches_free(struct embtier *server)
{
    while (server->batches)
        batch_destroy(server->batches);
}

enum embtier_err batch_refuse_in_flight(struct embtier_batch *batch)
{
    if (request_is_pending(batch))
        return err_set(&batch->server->message, EMBTIER_BUSY,
                       "the batch's request is in flight; wait for it first");
    if (batch_is_lent(batch))
        return err_set(&batch->server->message, EMBTIER_BUSY,
                       "a push that releases the batch's prefetch is in flight; wait for it first");
    return EMBTIER_OK;
}

enum embtier_err embtier_batch_free(struct embtier_batch *batch)
{
    if (!batch)
        return EMBTIER_OK;
    TRY(batch_refuse_in_flight(batch));
    batch_destroy(batch);
    return EMBTIER_OK;
}

static enum embtier_err check_part(const struct embtier_batch *batch, uint32_t part)
{
    if (part >= batch->part_count)
        return err_set(&batch->server->message, EMBTIER_INVALID,
                       "there is no part %u in a batch of %u part%s; the first is part 0", part,
                       batch->part_count, PLURAL(batch->part_count));
    return EMBTIER_OK;
}

static enum embtier_err set_counts(struct embtier_batch *batch, uint32_t part, uint32_t count,
                                   uint32_t bag_count)
{
    struct batch_part *const p = &batch->parts[part];

    if (count > p->count_max)
        return err_set(&batch->server->message, EMBTIER_TOO_LARGE,
                       "part %u was made for %u ids, %u do not fit", part, p->count_max, count);
    if (bag_count > p->bag_count_max)
        return err_set(&batch->server->message, EMBTIER_TOO_LARGE,
                       "part %u was made for %u bags, %u do not fit", part, p->bag_count_max,
                       bag_count);
    TRY(batch_refuse_in_flight(batch));
    if (batch->ticket != 0 && batch->kind == BATCH_OF_PREFETCH)
        return err_set(&batch->server->message, EMBTIER_INVALID,
                       "the batch has a prefetch of its earlier ids: release it first");
    if (batch->ticket != 0)
        return err_set(&batch->server->message, EMBTIER_INVALID,
                       "the batch has a ticket for the bags it looked up: push or release it "
                       "first");
    p->count = count;
    p->bag_count = bag_count;
    return EMBTIER_OK;
}

enum embtier_err embtier_batch_set_count(struct embtier_batch *batch, uint32_t part, uint32_t count)
{
    TRY(check_part(batch, part));
    if (batch->kind == BATCH_OF_BAGS)
        return err_set(&batch->server->message, EMBTIER_INVALID,
                       "set the counts of a batch of bags with embtier_batch_set_bags()");
    return set_counts(batch, part, count, 0);
}

enum embtier_err embtier_batch_set_bags(struct embtier_batch *batch, uint32_t part, uint32_t count,
                                        uint32_t bag_count)
{
    TRY(check_part(batch, part));
    if (batch->kind != BATCH_OF_BAGS)
        return err_set(&batch->server->message, EMBTIER_INVALID, "the batch has no bags");
    return set_counts(batch, part, count, bag_count);
}

enum embtier_err embtier_batch_set_skipped(struct embtier_batch *batch, uint32_t part, int skipped)
{
    TRY(check_part(batch, part));
    TRY(batch_refuse_in_flight(batch));
    if (batch->ticket == 0 || batch->kind != BATCH_OF_BAGS)
        return err_set(&batch->server->message, EMBTIER_INVALID,
                       "only a push by ticket skips parts, and the batch has no ticket");
    batch->parts[part].skipped = skipped != 0;
    return EMBTIER_OK;
}

enum embtier_err embtier_batch_set_group(struct embtier_batch *batch, struct embtier_group *group,
                                         uint64_t step)
{
    struct err_msg *const msg = &batch->server->message;

    if (group)
        TRY(group_check(batch->server, group, msg));
    if (group && step > EMBTIER_STEP_MAX)
        return err_set(msg, EMBTIER_INVALID, "step is %" PRIu64 ", allowed: 0 to %" PRIu64, step,
                       EMBTIER_STEP_MAX);
    TRY(batch_refuse_in_flight(batch));
    group_hold(group);
    group_release(batch->group);
    batch->group = group;
    batch->group_step = group ? step : 0;
    return EMBTIER_OK;
}

uint32_t embtier_batch_blamed_member(const struct embtier_batch *batch)
{
    const struct batch_result *const result = &batch->result;

    if (batch->state == BATCH_SUBMITTED || !batch->asked_group)
        return UINT32_MAX;
    switch (result->err) {
    case EMBTIER_GROUP_REFUSED:
    case EMBTIER_GROUP_BROKEN:
    case EMBTIER_TIMEOUT:
        return (uint32_t)result->value;
    default:
        return UINT32_MAX;
    }
}

enum embtier_err embtier_batch_blamed_err(const struct embtier_batch *batch)
{
    if (batch->state == BATCH_SUBMITTED || batch->result.err != EMBTIER_GROUP_REFUSED)
        return EMBTIER_OK;
    return (enum embtier_err)batch->result.limit;
}

uint64_t embtier_batch_ticket(const struct embtier_batch *batch)
{
    return batch->state == BATCH_SUBMITTED || batch->lent_to ? 0 : batch->ticket;
}

uint64_t embtier_batch_pushed_step(const struct embtier_batch *batch)
{
    const bool is_known = batch->state == BATCH_ANSWERED || batch->state == BATCH_TOLD;

    return is_known && batch->op == EMBTIER_PUSH && batch->result.err == EMBTIER_OK
               ? batch->asked_step
               : 0;
}

uint32_t embtier_batch_part_count(const struct embtier_batch *batch)
{
    return batch->part_count;
}

uint32_t embtier_batch_count(const struct embtier_batch *batch, uint32_t part)
{
    return check_part(batch, part) ? 0 : batch->parts[part].count;
}

static void *arena_at(const struct embtier_batch *batch, uint64_t offset)
{
    return connection_bytes(batch->server, offset);
}

uint64_t *embtier_batch_ids(struct embtier_batch *batch, uint32_t part)
{
    return check_part(batch, part) ? NULL : arena_at(batch, batch->parts[part].ids_offset);
}

void *embtier_batch_rows(struct embtier_batch *batch, uint32_t part)
{
    if (check_part(batch, part) || batch->kind != BATCH_OF_ROWS)
        return NULL;
    return arena_at(batch, batch->parts[part].rows_offset);
}

void *embtier_batch_state(struct embtier_batch *batch, uint32_t part)
{
    const struct embtier_table_info *info;

    if (check_part(batch, part) || !batch->has_state)
        return NULL;
    info = &batch->parts[part].table->description.info;
    if (info->state_bytes == 0)
        return NULL;
    return arena_at(batch, batch->parts[part].rows_offset + info->weight_bytes);
}

uint32_t embtier_batch_row_bytes(const struct embtier_batch *batch, uint32_t part)
{
    if (check_part(batch, part) || batch->kind != BATCH_OF_ROWS)
        return 0;
    return row_bytes(batch, part);
}

uint32_t *embtier_batch_offsets(struct embtier_batch *batch, uint32_t part)
{
    if (check_part(batch, part) || batch->kind != BATCH_OF_BAGS)
        return NULL;
    return arena_at(batch, batch->parts[part].offsets_offset);
}

float *embtier_batch_weights(struct embtier_batch *batch, uint32_t part)
{
    if (check_part(batch, part) || batch->parts[part].weights_offset == 0)
        return NULL;
    return arena_at(batch, batch->parts[part].weights_offset);
}

float *embtier_batch_bags(struct embtier_batch *batch, uint32_t part)
{
    if (check_part(batch, part) || batch->kind != BATCH_OF_BAGS)
        return NULL;
    return arena_at(batch, batch->parts[part].rows_offset);
}

float *embtier_batch_gradients(struct embtier_batch *batch, uint32_t part)
{
    if (check_part(batch, part) ||
        (batch->kind != BATCH_OF_BAGS && batch->kind != BATCH_OF_GRADIENTS))
        return NULL;
    return arena_at(batch, batch->parts[part].rows_offset);
}

uint32_t embtier_batch_bag_count(const struct embtier_batch *batch, uint32_t part)
{
    return check_part(batch, part) ? 0 : batch->parts[part].bag_count;
}

uint64_t embtier_batch_hit_rows(const struct embtier_batch *batch)
{
    return batch->hit_rows;
}
