/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/pooled/pooled_impl.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/get_set.h"
#include "daemon/engine/ops/op.h"
#include "daemon/engine/ops/op_table.h"
#include "daemon/engine/ops/tickets/ticket.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/engine/turns/cost.h"
#include "kernels/cpu/pool/pool.h"
#include "tiers/spots/spot_pool.h"

_Static_assert(offsetof(struct wave, request) == 0, "a wave begins with its request");

/* ---- Waves ---- */

static uint64_t slices_place(const struct request_rules *rules, const struct wave_shape *shape)
{
    return align_up(request_block_bytes(rules, sizeof(struct wave), shape->slices, shape->ids),
                    CACHE_LINE);
}

static uint64_t found_place(const struct request_rules *rules, const struct wave_shape *shape)
{
    return align_up(slices_place(rules, shape) + shape->slices * sizeof(struct slice), CACHE_LINE);
}

static uint64_t ids_place(const struct request_rules *rules, const struct wave_shape *shape)
{
    return found_place(rules, shape) + shape->ids * sizeof(void *);
}

static uint64_t weights_place(const struct request_rules *rules, const struct wave_shape *shape)
{
    /* Only a single lane searches. */
    const uint32_t ids = rules->lane_count == 1 ? MIN(shape->ids, (uint32_t)WAVE_SEARCH_IDS) : 0;

    return ids_place(rules, shape) + ids * sizeof(uint64_t);
}

static uint64_t offsets_place(const struct request_rules *rules, const struct wave_shape *shape)
{
    return weights_place(rules, shape) + (shape->weights ? shape->ids * sizeof(float) : 0);
}

static uint64_t staging_place(const struct request_rules *rules, const struct wave_shape *shape)
{
    const uint64_t offset_count = (uint64_t)shape->bags + shape->slices;

    return align_up(offsets_place(rules, shape) + offset_count * sizeof(uint32_t), CACHE_LINE);
}

uint64_t wave_bytes(const struct request_rules *rules, const struct wave_shape *shape)
{
    return staging_place(rules, shape) + shape->staging_bytes;
}

struct wave *wave_lay_out(const struct request_rules *rules, const struct wave_shape *shape,
                          void *place)
{
    uint8_t *const block = place;
    struct wave *const wave = place;

    memset(wave, 0, sizeof(*wave));
    wave->slices = (struct slice *)(block + slices_place(rules, shape));
    wave->rows = (const void **)(block + found_place(rules, shape));
    wave->ids = (uint64_t *)(block + ids_place(rules, shape));
    wave->weights = shape->weights ? (float *)(block + weights_place(rules, shape)) : NULL;
    wave->offsets = (uint32_t *)(block + offsets_place(rules, shape));
    wave->staging = block + staging_place(rules, shape);
    return wave;
}

struct wave *pooled_free_wave(const struct request_rules *rules, struct pooled *pooled)
{
    void *block = waves_idle(&pooled->waves);

    if (block)
        return block;
    block = waves_take(&pooled->waves, rules, pooled->session, wave_bytes(rules, &pooled->shape));
    return block ? wave_lay_out(rules, &pooled->shape, block) : NULL;
}

void pooled_end_wave(const struct request_rules *rules, struct pooled *pooled, struct wave *wave)
{
    pooled->hit_rows += atomic_load_explicit(&wave->request.hit_rows, memory_order_relaxed);
    wave->state = WAVE_FREE;
    waves_end(&pooled->waves, rules->memory, wave, !pooled->is_taken);
}

bool pooled_must_wait(const struct pooled *pooled, const struct wave *wave)
{
    if (wave->slice_count == 0 || wave->slices[0].begun == 0)
        return false;
    for (uint32_t i = 0; i < pooled->waves.count; i++) {
        const struct wave *const other = pooled->waves.blocks[i];

        if (other->state != WAVE_FREE && other->number + 1 == wave->number)
            return true;
    }
    return false;
}

void pooled_free(const struct request_rules *rules, struct pooled *pooled)
{
    for (uint32_t s = 0; s < pooled->segment_count; s++)
        table_leave(pooled->segments[s].table);
    waves_give(&pooled->waves, rules->memory);
    if (pooled->refusal.err != EMBTIER_DISCONNECTED)
        request_answer(rules, pooled->session, pooled->number, &pooled->refusal, pooled->hit_rows,
                       pooled->ticket ? pooled->ticket->number : 0);
    request_memory_give(rules->memory, pooled);
}

/* ---- Costs ---- */

static uint32_t id_taking_cost(const struct pooled *pooled)
{
    return pooled->ticket ? 2 * LANE_COST_ID : LANE_COST_ID;
}

static uint32_t row_adding_cost(const struct pooled_segment *segment)
{
    return lane_row_cost(segment->table->weight_bytes, false);
}

static uint32_t bag_adding_cost(const struct pooled_segment *segment)
{
    return segment->table->spec.dim * (uint32_t)sizeof(float) / LANE_COST_BYTES;
}

uint64_t pooled_taking_cost(const struct pooled *pooled, const struct wave *wave)
{
    uint64_t cost = (uint64_t)wave->segments_seen * LANE_COST_SEGMENT;

    for (uint32_t i = 0; i < wave->slice_count; i++)
        cost += LANE_COST_SEGMENT + (uint64_t)wave->slices[i].id_count * id_taking_cost(pooled) +
                wave->slices[i].bag_count;
    return cost;
}

uint64_t pooled_adding_cost(const struct pooled *pooled, const struct wave *wave)
{
    uint64_t cost = 0;

    for (uint32_t i = 0; i < wave->slice_count; i++) {
        const struct slice *const slice = &wave->slices[i];
        const struct pooled_segment *const segment = &pooled->segments[slice->segment];

        cost += (uint64_t)slice->id_count * row_adding_cost(segment) +
                (uint64_t)slice->bag_count * bag_adding_cost(segment);
    }
    return cost;
}

/* Returns how many items of @cost each @left allows for: all without a limit, at least one if
 * @is_first. */
static uint32_t count_for(uint64_t left, uint32_t cost, bool is_first)
{
    return (uint32_t)MIN(MAX(left / cost, (uint64_t)is_first), (uint64_t)UINT32_MAX);
}

static uint64_t less(uint64_t left, uint64_t cost)
{
    return left - MIN(left, cost);
}

/* ---- Adding up a slice ---- */

/* Divides the complete bags of a mean. */
static void divide(const struct slice *slice, uint32_t dim, float *bags)
{
    const uint32_t complete = slice->bag_count - slice->goes_on;
    uint32_t counts[256];

    for (uint32_t first = 0; first < complete; first += ARRAY_LEN(counts)) {
        const uint32_t n = MIN(complete - first, (uint32_t)ARRAY_LEN(counts));

        for (uint32_t i = 0; i < n; i++)
            counts[i] = slice->offsets[first + i + 1] - slice->offsets[first + i];
        if (first == 0)
            counts[0] += slice->begun;
        pool_divide(bags + (uint64_t)first * dim, dim, counts, n);
    }
}

/* Returns where the ticket keeps the rows that won a maximum, or NULL if it does not. */
static uint32_t *winners_of(const struct pooled *pooled, const struct slice *slice)
{
    const struct ticket_group *group;

    if (!pooled->ticket)
        return NULL;
    group = ticket_group_of(pooled->ticket, slice->segment);
    if (!group->winners)
        return NULL;
    return group->winners +
           ((uint64_t)pooled->ticket->segments[slice->segment].first_bag + slice->first_bag) *
               group->dim;
}

/* Adds up a slice. @search: finds its rows; NULL: they have been found. */
static void add_up_slice(const struct pooled *pooled, const struct wave *wave,
                         const struct slice *slice, struct spot_search *search)
{
    const struct pooled_segment *const segment = &pooled->segments[slice->segment];
    const uint32_t dim = segment->table->spec.dim;
    const struct pool_batch batch = {
        .dtype = segment->table->spec.dtype,
        .dim = dim,
        .mode = segment->mode,
        .rows = wave->rows + slice->first,
        .weights = segment->weights_offset != 0 ? wave->weights + slice->first : NULL,
        .offsets = slice->offsets,
        .bag_count = slice->bag_count,
        .begun = slice->begun,
        .bags = segment->bags + (uint64_t)slice->first_bag * dim,
        .winners = winners_of(pooled, slice),
    };

    if (search)
        spot_pool(&batch, search);
    else
        pool_rows(&batch);
    if (segment->mode == EMBTIER_POOL_MEAN)
        divide(slice, dim, batch.bags);
}

/* ---- Taking ids ---- */

/* Reads an offset of a bag. The caller checks it. */
static uint32_t read_offset(const struct pooled *pooled, const struct pooled_segment *segment,
                            uint32_t index)
{
    const volatile uint32_t *const offsets =
        (const volatile uint32_t *)(pooled->session->channel.region + segment->offsets_offset);

    return offsets[index];
}

/* Sets where the bag at the cursor ends. */
static enum embtier_err bag_end(struct pooled *pooled, struct refusal *refusal)
{
    const struct pooled_segment *const segment = &pooled->segments[pooled->segment];
    uint32_t end;

    if (pooled->begun > 0) /* known from the wave before */
        return EMBTIER_OK;
    end = read_offset(pooled, segment, pooled->bag + 1);
    if (IS_BAD(CHECK_POOL_OFFSETS_RISE, end < pooled->id) ||
        IS_BAD(CHECK_POOL_OFFSETS_END, end > segment->id_count))
        return refuse(refusal, EMBTIER_BAG_RANGE, pooled->segment, pooled->bag + 1, end);
    pooled->bag_end = end;
    return EMBTIER_OK;
}

/* The room that is left in a wave. */
struct room {
    uint32_t first; /* id, of the wave */
    uint32_t ids;
    uint32_t bags;
    uint32_t bytes; /* of rows */
    uint32_t bag_bytes;
    uint64_t cost;
    bool adds; /* the cost includes adding up */
};

/* True if a bag must not be cut here. A wave that is to be searched ends with a bag, unless that
 * bag is longer than a wave. */
static bool keeps_whole(const struct pooled *pooled, const struct room *room,
                        const struct slice *slice)
{
    return pooled->searches && pooled->begun == 0 && room->first + slice->id_count > 0;
}

/* Takes bags of the segment at the cursor, as many as fit, into the next slice of the wave. Clears
 * *@ret_more if the wave is full. */
static enum embtier_err take_slice(struct pooled *pooled, struct wave *wave, struct room *room,
                                   bool *ret_more, struct refusal *refusal)
{
    const struct pooled_segment *const segment = &pooled->segments[pooled->segment];
    const uint32_t row_bytes = segment->table->weight_bytes;
    struct slice *const slice = &wave->slices[wave->slice_count];
    const uint32_t bag_bytes = segment->table->spec.dim * (uint32_t)sizeof(float);
    const uint32_t id_cost = id_taking_cost(pooled) + (room->adds ? row_adding_cost(segment) : 0);
    const uint32_t bag_cost = 1 + (room->adds ? bag_adding_cost(segment) : 0);
    const bool is_first = wave->slice_count == 0;
    /* Ids and bags may each spend all of the cost, so that no bag costs a division. */
    const uint32_t bag_room = MIN(MIN(room->bags, room->bag_bytes / bag_bytes),
                                  count_for(room->cost, bag_cost, is_first));
    const uint32_t first_id = pooled->id;
    uint32_t id_room =
        MIN(MIN(room->ids, room->bytes / row_bytes), count_for(room->cost, id_cost, is_first));

    *slice = (struct slice){
        .segment = pooled->segment,
        .first_bag = pooled->bag,
        .begun = pooled->begun,
        .first = room->first,
        .offsets = wave->offsets + (pooled->shape.bags - room->bags) + wave->slice_count,
    };
    slice->offsets[0] = 0;
    *ret_more = true;
    while (*ret_more && pooled->bag < segment->bag_count) {
        uint32_t taken;

        if (slice->bag_count == bag_room) {
            *ret_more = false;
            break;
        }
        TRY(bag_end(pooled, refusal));
        taken = MIN(pooled->bag_end - pooled->id, id_room);
        if (pooled->id + taken < pooled->bag_end &&
            (taken == 0 || keeps_whole(pooled, room, slice))) {
            *ret_more = false;
            break;
        }
        pooled->id += taken;
        id_room -= taken;
        slice->id_count += taken;
        slice->offsets[++slice->bag_count] = slice->id_count;
        if (pooled->id < pooled->bag_end) {
            pooled->begun += taken;
            slice->goes_on = true;
            *ret_more = false;
        } else {
            pooled->begun = 0;
            pooled->bag++;
        }
    }
    room->first += slice->id_count;
    room->ids -= slice->id_count;
    room->bytes -= slice->id_count * row_bytes;
    room->bags -= slice->bag_count;
    room->bag_bytes -= slice->bag_count * bag_bytes;
    room->cost = less(room->cost, LANE_COST_SEGMENT + (uint64_t)slice->id_count * id_cost +
                                      (uint64_t)slice->bag_count * bag_cost);
    if (slice->bag_count > 0) {
        slice->ids_offset = segment->ids_offset + first_id * sizeof(uint64_t);
        wave->slice_count++;
    }
    return EMBTIER_OK;
}

/* Moves the cursor on from a segment that has been taken. */
static enum embtier_err end_segment(struct pooled *pooled, struct refusal *refusal)
{
    const struct pooled_segment *const segment = &pooled->segments[pooled->segment];

    if (IS_BAD(CHECK_POOL_LAST_OFFSET, pooled->id != segment->id_count))
        return refuse(refusal, EMBTIER_BAG_RANGE, pooled->segment, segment->bag_count, pooled->id);
    pooled->segment++;
    pooled->bag = 0;
    pooled->id = 0;
    pooled->is_taken = pooled->segment == pooled->segment_count;
    return EMBTIER_OK;
}

static bool at_segment_start(const struct pooled *pooled)
{
    return pooled->bag == 0 && pooled->begun == 0;
}

/* Takes slices until the wave is full or has cost @most. */
static enum embtier_err take_slices(struct pooled *pooled, struct wave *wave, uint64_t most,
                                    struct refusal *refusal)
{
    struct room room = { .ids = pooled->shape.ids,
                         .bags = pooled->shape.bags,
                         .bytes = pooled->shape.staging_bytes,
                         .bag_bytes = WAVE_BAG_BYTES,
                         .cost = most,
                         .adds = pooled->searches || pooled->is_hot };
    bool more = true;

    if (pooled->searches) {
        room.ids = MIN(room.ids, (uint32_t)WAVE_SEARCH_IDS);
        room.bytes = MIN(room.bytes, WAVE_SEARCH_BYTES);
    } else if (pooled->is_hot) {
        room.ids = MIN(room.ids, (uint32_t)WAVE_HOT_IDS);
        room.bytes = MIN(room.bytes, WAVE_HOT_BYTES);
    }
    wave->slice_count = 0;
    wave->added_slices = 0;
    wave->segments_seen = 0;
    pooled->is_taken = pooled->segment == pooled->segment_count;
    while (more && !pooled->is_taken && room.cost > 0 && wave->segments_seen < WAVE_SEGMENTS &&
           wave->slice_count < pooled->shape.slices) {
        const struct pooled_segment *const segment = &pooled->segments[pooled->segment];
        const uint32_t first = at_segment_start(pooled) ? read_offset(pooled, segment, 0) : 0;

        wave->segments_seen++;
        if (IS_BAD(CHECK_POOL_FIRST_OFFSET, first != 0))
            return refuse(refusal, EMBTIER_BAG_RANGE, pooled->segment, 0, first);
        TRY(take_slice(pooled, wave, &room, &more, refusal));
        if (pooled->bag == segment->bag_count)
            TRY(end_segment(pooled, refusal));
    }
    return EMBTIER_OK;
}

/* Returns the place of the slice's first id in its segment. */
static uint32_t first_id_of(const struct pooled_segment *segment, const struct slice *slice)
{
    return (uint32_t)((slice->ids_offset - segment->ids_offset) / sizeof(uint64_t));
}

static void copy_weights(const struct pooled *pooled, const struct wave *wave,
                         const struct slice *slice)
{
    const struct pooled_segment *const segment = &pooled->segments[slice->segment];
    const uint64_t first_id = first_id_of(segment, slice);

    if (segment->weights_offset != 0)
        memcpy(wave->weights + slice->first,
               pooled->session->channel.region + segment->weights_offset + first_id * sizeof(float),
               slice->id_count * sizeof(float));
}

/* Makes the wave's request, which looks up the rows of its slices, and takes its ids. */
static enum embtier_err take_ids(const struct request_rules *rules, struct pooled *pooled,
                                 struct wave *wave, struct refusal *refusal)
{
    struct request *const request = &wave->request;
    uint8_t *rows = wave->staging;
    uint32_t ids = 0;
    enum embtier_err err;

    for (uint32_t i = 0; i < wave->slice_count; i++)
        ids += wave->slices[i].id_count;
    request_lay_out(rules, request, sizeof(*wave), wave->slice_count, ids);
    request->session = pooled->session;
    request->number = pooled->number;
    op_own(&op_pool, request);
    request->row_op = &row_op_get;
    request->is_wave = true;
    wave->pooled = pooled;
    for (uint32_t i = 0; i < wave->slice_count; i++) {
        const struct slice *const slice = &wave->slices[i];
        struct table *const table = pooled->segments[slice->segment].table;

        request->segments[i] = (struct request_segment){
            .table = table,
            .rows = rows,
            .ids_offset = slice->ids_offset,
            .id_count = slice->id_count,
            .row_bytes = table->weight_bytes,
        };
        rows += (uint64_t)slice->id_count * table->weight_bytes;
        copy_weights(pooled, wave, slice);
    }
    err = request_take(rules, request, UINT64_MAX, refusal);
    if (err != EMBTIER_OK)
        refusal->segment = wave->slices[refusal->segment].segment;
    return err;
}

/* Notes the wave's ids and weights in the ticket, if there is one. */
static void note_pairs(const struct pooled *pooled, const struct wave *wave, const uint64_t *ids,
                       uint32_t id_stride)
{
    for (uint32_t i = 0; pooled->ticket && i < wave->slice_count; i++) {
        const struct slice *const slice = &wave->slices[i];
        const struct pooled_segment *const segment = &pooled->segments[slice->segment];
        const struct ticket_bags bags = {
            .segment = slice->segment,
            .bag = slice->first_bag,
            .bag_count = slice->bag_count,
            .begun = slice->begun,
            .offsets = slice->offsets,
            .first_id = first_id_of(segment, slice),
            .ids = ids + (size_t)slice->first * id_stride,
            .id_stride = id_stride,
            .weights = segment->weights_offset ? wave->weights + slice->first : NULL,
        };

        ticket_note(pooled->ticket, &bags);
    }
}

/* ---- Profiles ---- */

static void note_slice(const struct request_rules *rules, struct pooled *pooled,
                       const struct slice *slice, const uint64_t *hashes, uint32_t stride)
{
    sampler_note(rules->sampler, &(struct sampler_lookups){
                                     .table = pooled->segments[slice->segment].table,
                                     .batch = &pooled->sampled_batch,
                                     .bags = slice->bag_count - (slice->begun > 0),
                                     .begins_segment = slice->first_bag == 0 && slice->begun == 0,
                                     .hashes = hashes,
                                     .stride = stride,
                                     .count = slice->id_count,
                                 });
}

/* Notes the ids of a wave, which were hashed to be dealt out. */
static void note_dealt(const struct request_rules *rules, struct pooled *pooled,
                       const struct wave *wave)
{
    for (uint32_t i = 0; i < wave->slice_count; i++)
        note_slice(rules, pooled, &wave->slices[i], &wave->request.ids[wave->slices[i].first].hash,
                   sizeof(struct row_ref) / sizeof(uint64_t));
}

_Static_assert(WAVE_SEARCH_IDS <= SAMPLER_PIECE, "the scratch holds the hashes of a wave");

/* Notes the ids of a wave that was searched. They are hashed only for this. */
static void note_searched(const struct request_rules *rules, struct pooled *pooled,
                          const struct wave *wave)
{
    uint64_t *const hashes = rules->sampler->hashes;

    for (uint32_t i = 0; i < wave->slice_count; i++) {
        const struct slice *const slice = &wave->slices[i];
        const struct table *const table = pooled->segments[slice->segment].table;
        const uint32_t table_id = atomic_load_explicit(&table->table_id, memory_order_relaxed);

        for (uint32_t j = 0; j < slice->id_count; j++)
            hashes[j] = row_hash(rules->hasher, table_id, wave->ids[slice->first + j]);
        note_slice(rules, pooled, slice, hashes, 1);
    }
}

enum embtier_err pooled_take(struct pooled *pooled, struct wave *wave, uint64_t most,
                             struct refusal *ret_refusal)
{
    TRY(take_slices(pooled, wave, most, ret_refusal));
    wave->number = pooled->next_number++;
    return EMBTIER_OK;
}

_Static_assert(sizeof(struct row_ref) % sizeof(uint64_t) == 0, "ids are a number of words apart");

enum embtier_err pooled_take_ids(const struct request_rules *rules, struct pooled *pooled,
                                 struct wave *wave, struct refusal *ret_refusal)
{
    TRY(take_ids(rules, pooled, wave, ret_refusal));
    if (UNLIKELY(rules->sampler != NULL))
        note_dealt(rules, pooled, wave);
    note_pairs(pooled, wave, &wave->request.ids[0].id, sizeof(struct row_ref) / sizeof(uint64_t));
    return EMBTIER_OK;
}

/* Copies the slice's ids. False: not all are ids of the table. */
static bool copy_slice_ids(const struct pooled *pooled, const struct wave *wave,
                           const struct slice *slice)
{
    const uint64_t last = pooled->segments[slice->segment].table->spec.rows - 1;
    const uint64_t bytes = slice->id_count * sizeof(uint64_t);
    const uint8_t *const from = pooled->session->channel.region + slice->ids_offset;
    uint64_t *const ids = wave->ids + slice->first;
    uint64_t wrong = 0; /* only its top bit counts: a table with a map has fewer rows than that */

    assert(slice->first + slice->id_count <= WAVE_SEARCH_IDS);
    /* memcpy may read them more than once: only the copy is checked and used. */
    memcpy(ids, from, bytes);
    atomic_signal_fence(memory_order_seq_cst);                  /* no second read of the original */
    for (uint64_t at = bytes; at < 2 * bytes; at += CACHE_LINE) /* the next wave's ids, if any */
        __builtin_prefetch((const void *)((uintptr_t)from + at), 0, 2);
    for (uint32_t i = 0; i < slice->id_count; i++)
        wrong |= ids[i] | (last - ids[i]);
    return !IS_BAD(CHECK_POOL_SEARCHED_ID, wrong >> 63 != 0);
}

bool pooled_copy_ids(const struct pooled *pooled, struct wave *wave)
{
    for (uint32_t i = 0; i < wave->slice_count; i++)
        if (wave->slices[i].begun > 0 || !copy_slice_ids(pooled, wave, &wave->slices[i]))
            return false;
    return true;
}

bool pooled_search(struct pooled *pooled, struct wave *wave, uint32_t index,
                   const struct row_spots *where)
{
    const struct slice *const slice = &wave->slices[index];
    struct spot_search search = { .where = *where,
                                  .ids = wave->ids + slice->first,
                                  .rows = wave->rows + slice->first };

    copy_weights(pooled, wave, slice);
    add_up_slice(pooled, wave, slice, &search);
    return search.missed == 0;
}

void pooled_searched(const struct request_rules *rules, struct pooled *pooled,
                     const struct wave *wave)
{
    if (UNLIKELY(rules->sampler != NULL))
        note_searched(rules, pooled, wave);
    note_pairs(pooled, wave, wave->ids, 1);
}

/* ---- Adding up waves ---- */

void wave_add_up(struct wave *wave)
{
    for (uint32_t i = 0; i < wave->slice_count; i++)
        add_up_slice(wave->pooled, wave, &wave->slices[i], NULL);
}

/* Cuts up to @ids ids and @bags bags off the front of slice @index, and adds them up. Returns the
 * cost. */
static uint64_t add_up_front(struct wave *wave, uint32_t index, uint32_t ids, uint32_t bags)
{
    const struct pooled *const pooled = wave->pooled;
    const struct request_segment *const from = &wave->request.segments[index];
    struct slice *const slice = &wave->slices[index];
    uint32_t *const offsets = slice->offsets;
    const uint32_t begin = offsets[0];
    const uint32_t limit = begin + MIN(ids, UINT32_MAX - begin);
    struct slice front = *slice;
    uint32_t whole = 0; /* bags */
    uint32_t end, bag_end;
    bool cuts_bag;

    while (whole < slice->bag_count && whole < bags && offsets[whole + 1] <= limit)
        whole++;
    cuts_bag = whole < slice->bag_count && whole < bags && offsets[whole] < limit;
    end = cuts_bag ? limit : offsets[whole];
    bag_end = cuts_bag ? offsets[whole + 1] : 0;
    front.bag_count = whole + cuts_bag;
    front.goes_on = cuts_bag || (slice->goes_on && whole == slice->bag_count);
    for (uint32_t i = begin; i < end; i++)
        wave->rows[slice->first + i] = from->rows + (uint64_t)i * from->row_bytes;
    if (cuts_bag)
        offsets[whole + 1] = end;
    add_up_slice(pooled, wave, &front, NULL);
    if (cuts_bag)
        offsets[whole + 1] = bag_end;
    slice->begun = cuts_bag ? (whole == 0 ? slice->begun : 0) + (end - offsets[whole]) : 0;
    slice->first_bag += whole;
    slice->bag_count -= whole;
    slice->offsets += whole;
    slice->offsets[0] = end;
    return (uint64_t)(end - begin) * row_adding_cost(&pooled->segments[slice->segment]) +
           (uint64_t)front.bag_count * bag_adding_cost(&pooled->segments[slice->segment]);
}

bool wave_add_up_staged(struct wave *wave, uint64_t most, uint64_t *ret_cost)
{
    const struct pooled *const pooled = wave->pooled;
    uint64_t left = most;

    *ret_cost = 0;
    while (wave->added_slices < wave->slice_count) {
        const struct slice *const slice = &wave->slices[wave->added_slices];
        const struct pooled_segment *const segment = &pooled->segments[slice->segment];
        const bool is_first = *ret_cost == 0;
        const uint32_t ids = count_for(left, row_adding_cost(segment), is_first);
        const uint32_t bags = count_for(left, bag_adding_cost(segment) + 1, is_first);
        uint64_t cost;

        if (ids == 0 || bags == 0)
            return false;
        cost = LANE_COST_SEGMENT + add_up_front(wave, wave->added_slices, ids, bags);
        *ret_cost += cost;
        left = less(left, cost);
        if (slice->bag_count == 0)
            wave->added_slices++;
    }
    return true;
}
