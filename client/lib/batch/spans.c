/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the region that a request sends and wants, for transports whose two sides have
 * memory of their own. A batch's block has, in this order: segments, ids, offsets and weights of
 * bags, rows (lay_out() in batch.c). So spans are added in the order of their offsets.
 *
 * Ids below 2^32 are sent in narrow spans (proto/narrow_ids.h), if the server takes them. A span is
 * narrow as a whole, so ids do not share one with those that need more bytes, or with other bytes.
 */
#include "client/lib/batch/batch.h"
#include "client/lib/connection.h"
#include "client/lib/table.h"

/* Spans with no more bytes between them are sent as one. */
#define SENT_GAP_MAX 256

struct range {
    uint64_t offset, bytes;
};

static void append(struct span_list *list, struct range range)
{
    list->numbers[list->count++] = range.offset;
    list->numbers[list->count++] = range.bytes;
}

static void extend_last(struct span_list *list, struct range range)
{
    list->numbers[list->count - 1] = range.offset + range.bytes - list->numbers[list->count - 2];
}

static uint64_t gap_before(const struct span_list *list, struct range range)
{
    if (list->count == 0)
        return UINT64_MAX;
    return range.offset - list->numbers[list->count - 2] - list->numbers[list->count - 1];
}

/* A list of sent spans that is being made. */
struct sending {
    struct span_list *list;
    const struct client_channel *channel;
    uint32_t narrow_beside; /* narrow spans that begin beside others */
};

static uint32_t last_width(const struct span_list *list)
{
    return list->count > 0 ? narrow_spans_width(&list->narrow, list->count / 2 - 1) : ID_WIDTH;
}

/* Adds bytes whose ids have @width bytes each in the payload; ID_WIDTH: all of them, or no ids.
 * Sent bytes between spans do no harm: they are the batch's own.
 *
 * Narrow ids beside others have a span of their own, unless that would be one too many. Then, and
 * in a full list, the last span takes them in, and has the larger width of both. */
static void add(struct sending *sending, struct range range, uint32_t width)
{
    struct span_list *const list = sending->list;
    const uint32_t before = last_width(list);
    const bool is_beside = gap_before(list, range) <= SENT_GAP_MAX;
    const bool is_one_more = is_beside && width < ID_WIDTH && width != before;

    if (range.bytes == 0)
        return;
    if (list->count == ARRAY_LEN(list->numbers) || (is_beside && width == before) ||
        (is_one_more && sending->narrow_beside == CHANNEL_NARROW_BESIDE_MAX)) {
        extend_last(list, range);
        narrow_spans_set(&list->narrow, list->count / 2 - 1, MAX(before, width));
        return;
    }
    append(list, range);
    narrow_spans_set(&list->narrow, list->count / 2 - 1, width);
    sending->narrow_beside += is_one_more;
}

static void add_sent(struct sending *sending, struct range range)
{
    add(sending, range, ID_WIDTH);
}

static void add_ids(struct sending *sending, struct range range)
{
    const uint64_t *const ids =
        (const uint64_t *)(const void *)(sending->channel->region + range.offset);
    const uint64_t count = range.bytes / sizeof(*ids);
    const bool may_be_narrow =
        sending->channel->takes_narrow_ids && count >= CHANNEL_NARROW_IDS_MIN;

    add(sending, range, may_be_narrow ? narrow_ids_width(ids, count) : ID_WIDTH);
}

/* Wanted bytes are written into the caller's memory, where only padding may lie between spans.
 * @is_padded: it does, behind the one before. False: the list is full. */
static bool add_wanted(struct span_list *list, struct range range, bool is_padded)
{
    const uint64_t gap = gap_before(list, range);

    if (range.bytes == 0)
        return true;
    if (gap == 0 || (is_padded && gap < OP_ALIGN))
        extend_last(list, range);
    else if (list->count < ARRAY_LEN(list->numbers))
        append(list, range);
    else
        return false;
    return true;
}

/* ---- Ranges of a part ---- */

static struct range ids_of(const struct batch_part *part)
{
    return (struct range){ part->ids_offset, part->count * sizeof(uint64_t) };
}

static struct range offsets_of(const struct batch_part *part)
{
    return (struct range){ part->offsets_offset,
                           ((uint64_t)part->bag_count + 1) * sizeof(uint32_t) };
}

static struct range weights_of(const struct batch_part *part)
{
    return (struct range){ part->weights_offset,
                           part->weights_offset != 0 ? part->count * sizeof(float) : 0 };
}

/* Rows, bags or gradients. */
static struct range rows_of(const struct embtier_batch *batch, uint32_t part)
{
    return (struct range){ batch->parts[part].rows_offset, batch_rows_bytes(batch, part) };
}

static bool is_full(const struct batch_part *part)
{
    return part->count == part->count_max && part->bag_count == part->bag_count_max;
}

/* ---- Requests ---- */

static bool wants_rows(enum embtier_op op)
{
    return op == EMBTIER_GET || op == EMBTIER_GET_POOLED || op == EMBTIER_GET_POOLED_TICKET;
}

static bool sends_rows(enum embtier_op op)
{
    return op == EMBTIER_SET || op == EMBTIER_PUSH;
}

static struct range wanted_of(const struct embtier_batch *batch, enum embtier_op op,
                              const struct embtier_push_options *push, uint32_t part)
{
    if (wants_rows(op))
        return rows_of(batch, part);
    if (op == EMBTIER_PUSH && batch->kind == BATCH_OF_BAGS && push->weight_gradients &&
        !batch->parts[part].skipped)
        return weights_of(&batch->parts[part]);
    return (struct range){ 0 };
}

/* Returns the range from the first wanted byte to the last one. */
static struct range cover_wanted(const struct embtier_batch *batch, enum embtier_op op,
                                 const struct embtier_push_options *push)
{
    uint64_t begin = UINT64_MAX, end = 0;

    for (uint32_t i = 0; i < batch->part_count; i++) {
        const struct range range = wanted_of(batch, op, push, i);

        if (range.bytes == 0)
            continue;
        begin = MIN(begin, range.offset);
        end = MAX(end, range.offset + range.bytes);
    }
    return (struct range){ begin, end - begin };
}

/* Returns the range that covers all wanted ones, and is sent before, if they do not fit into the
 * list. So no byte of the caller changes that was not wanted. */
static struct range fill_wanted(const struct embtier_batch *batch, enum embtier_op op,
                                const struct embtier_push_options *push, struct span_list *wanted)
{
    bool is_padded = false;

    wanted->count = 0;
    for (uint32_t i = 0; i < batch->part_count; i++) {
        if (!add_wanted(wanted, wanted_of(batch, op, push, i), is_padded)) {
            const struct range all = cover_wanted(batch, op, push);

            wanted->count = 0;
            append(wanted, all);
            return all;
        }
        is_padded = is_full(&batch->parts[i]) && wants_rows(op);
    }
    return (struct range){ 0 };
}

static void add_heads(const struct embtier_batch *batch, enum embtier_op op, struct sending *sent)
{
    const bool has_ids = !(op == EMBTIER_PUSH && batch->kind == BATCH_OF_BAGS);
    const bool has_bags = op == EMBTIER_GET_POOLED || op == EMBTIER_GET_POOLED_TICKET;

    add_sent(sent, (struct range){ batch->block->offset, batch_segments_bytes(batch) });
    for (uint32_t i = 0; i < batch->part_count && has_ids; i++)
        add_ids(sent, ids_of(&batch->parts[i]));
    for (uint32_t i = 0; i < batch->part_count && has_bags; i++) {
        add_sent(sent, offsets_of(&batch->parts[i]));
        add_sent(sent, weights_of(&batch->parts[i]));
    }
}

void batch_fill_spans(const struct embtier_batch *batch, enum embtier_op op,
                      const struct embtier_push_options *push, struct span_list *sent,
                      struct span_list *wanted)
{
    struct sending sending = { .list = sent, .channel = batch->server->channel };
    struct range cover;

    sent->count = wanted->count = 0;
    sent->narrow = (struct narrow_spans){ { 0 } };
    if (op == EMBTIER_RELEASE || batch->part_count == 0)
        return;
    cover = fill_wanted(batch, op, push, wanted);
    add_heads(batch, op, &sending);
    add_sent(&sending, cover);
    for (uint32_t i = 0; i < batch->part_count && sends_rows(op); i++)
        if (!batch->parts[i].skipped || op != EMBTIER_PUSH)
            add_sent(&sending, rows_of(batch, i));
}
