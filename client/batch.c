/* SPDX-License-Identifier: Apache-2.0 */
#include "client/batch.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/connection.h"
#include "client/table.h"

static enum embtier_err check_parts(struct embtier *server, const struct embtier_part *parts,
                                    uint32_t part_count)
{
    uint64_t id_count = 0;

    if (!server->alloc)
        return err_set(&server->message, EMBTIER_INVALID,
                       "the connection was made without an arena (arena_bytes 0)");
    if (part_count > SHM_SEGMENTS_MAX)
        return err_set(&server->message, EMBTIER_TOO_LARGE,
                       "batch of %u parts is over the limit of %d", part_count, SHM_SEGMENTS_MAX);
    for (uint32_t i = 0; i < part_count; i++) {
        if (!parts[i].table || parts[i].table->server != server || parts[i].table->closed)
            return err_set(&server->message, EMBTIER_INVALID,
                           "part %u: the table is not open on this connection", i);
        id_count += parts[i].count;
    }
    if (id_count > server->memory.max_batch_rows)
        return err_set(&server->message, EMBTIER_TOO_LARGE,
                       "batch of %" PRIu64 " ids is over the server's limit of %u", id_count,
                       server->memory.max_batch_rows);
    return EMBTIER_OK;
}

/* Gives every part its place, counted from @begin, and returns the end. Ids of all parts lie
 * together: the server reads them in one go. Cannot overflow after check_parts(): fewer than 2^32
 * rows of at most 2^15 bytes. */
static uint64_t lay_out(struct embtier_batch *batch, uint64_t begin)
{
    uint64_t at = begin + batch->part_count * sizeof(struct shm_segment);

    for (uint32_t i = 0; i < batch->part_count; i++) {
        batch->parts[i].ids_offset = at;
        at += batch->parts[i].count_max * sizeof(uint64_t);
    }
    for (uint32_t i = 0; i < batch->part_count; i++) {
        const struct batch_part *part = &batch->parts[i];

        at = align_up(at, SHM_ALIGN);
        batch->parts[i].rows_offset = at;
        at += (uint64_t)part->count_max * part->table->description.info.weight_bytes;
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
                       " are free, %" PRIu64 " of them in one piece",
                       bytes, arena_alloc_free_bytes(server->alloc), server->memory.arena_bytes,
                       arena_alloc_largest_bytes(server->alloc));
    if (err)
        return err_set(&server->message, err, "%s", err_text(err));
    lay_out(batch, batch->block->offset);
    return EMBTIER_OK;
}

enum embtier_err embtier_batch_new(struct embtier *server, const struct embtier_part *parts,
                                   uint32_t part_count, struct embtier_batch **ret_batch)
{
    _cleanup_(freep) struct embtier_batch *batch = NULL;

    TRY(check_parts(server, parts, part_count));
    batch = calloc(1, sizeof(*batch) + part_count * sizeof(batch->parts[0]));
    if (!batch)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    batch->server = server;
    batch->part_count = part_count;
    for (uint32_t i = 0; i < part_count; i++)
        batch->parts[i] = (struct batch_part){ .table = parts[i].table,
                                               .count = parts[i].count,
                                               .count_max = parts[i].count };
    TRY(take_block(server, batch));
    for (uint32_t i = 0; i < part_count; i++)
        table_hold(parts[i].table);
    batch->next = server->batches;
    if (batch->next)
        batch->next->previous = batch;
    server->batches = batch;
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
        table_release(batch->parts[i].table);
    arena_alloc_give(server->alloc, batch->block);
    free(batch);
}

void batches_free(struct embtier *server)
{
    while (server->batches)
        batch_destroy(server->batches);
}

/* The server may still write into its rows. */
static enum embtier_err refuse_in_flight(struct embtier_batch *batch)
{
    if (request_is_pending(batch))
        return err_set(&batch->server->message, EMBTIER_BUSY,
                       "the batch's request is in flight; wait for it first");
    return EMBTIER_OK;
}

enum embtier_err embtier_batch_free(struct embtier_batch *batch)
{
    if (!batch)
        return EMBTIER_OK;
    TRY(refuse_in_flight(batch));
    batch_destroy(batch);
    return EMBTIER_OK;
}

static enum embtier_err check_part(const struct embtier_batch *batch, uint32_t part)
{
    if (part >= batch->part_count)
        return err_set(&batch->server->message, EMBTIER_INVALID, "part %u of a batch of %u parts",
                       part, batch->part_count);
    return EMBTIER_OK;
}

enum embtier_err embtier_batch_set_count(struct embtier_batch *batch, uint32_t part, uint32_t count)
{
    TRY(check_part(batch, part));
    TRY(refuse_in_flight(batch));
    if (count > batch->parts[part].count_max)
        return err_set(&batch->server->message, EMBTIER_TOO_LARGE,
                       "part %u was made for %u ids, %u do not fit", part,
                       batch->parts[part].count_max, count);
    batch->parts[part].count = count;
    return EMBTIER_OK;
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
    return (char *)batch->server->memory.arena + offset;
}

uint64_t *embtier_batch_ids(struct embtier_batch *batch, uint32_t part)
{
    return check_part(batch, part) ? NULL : arena_at(batch, batch->parts[part].ids_offset);
}

void *embtier_batch_rows(struct embtier_batch *batch, uint32_t part)
{
    return check_part(batch, part) ? NULL : arena_at(batch, batch->parts[part].rows_offset);
}

uint64_t embtier_batch_hit_rows(const struct embtier_batch *batch)
{
    return batch->hit_rows;
}
