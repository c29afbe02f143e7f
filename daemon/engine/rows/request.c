/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/rows/request.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/sessions/slow_log.h"
#include "daemon/engine/tables/row_routes.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/engine/turns/cost.h"
#include "kernels/cpu/cast/cast.h"

static uint64_t segments_place(uint64_t head_bytes)
{
    return align_up(head_bytes, CACHE_LINE);
}

static uint64_t parts_place(uint64_t head_bytes, uint32_t segments)
{
    return align_up(segments_place(head_bytes) + segments * sizeof(struct request_segment),
                    CACHE_LINE);
}

static uint64_t starts_place(const struct request_rules *rules, uint64_t head_bytes,
                             uint32_t segments)
{
    return parts_place(head_bytes, segments) + rules->lane_count * sizeof(struct part);
}

static uint64_t refs_place(const struct request_rules *rules, uint64_t head_bytes,
                           uint32_t segments)
{
    return align_up(starts_place(rules, head_bytes, segments) +
                        (uint64_t)rules->lane_count * (segments + 1) * sizeof(uint32_t),
                    CACHE_LINE);
}

/* With several lanes, ids are first stored behind the refs in the request's order, then dealt
 * out. */
static uint64_t ref_copies(const struct request_rules *rules)
{
    return rules->lane_count > 1 ? 2 : 1;
}

uint64_t request_block_bytes(const struct request_rules *rules, uint64_t head_bytes,
                             uint32_t segments, uint64_t id_count)
{
    return refs_place(rules, head_bytes, segments) +
           ref_copies(rules) * id_count * sizeof(struct row_ref);
}

uint64_t request_ref_bytes(const struct request_rules *rules)
{
    return ref_copies(rules) * sizeof(struct row_ref);
}

void request_lay_out(const struct request_rules *rules, struct request *request,
                     uint64_t head_bytes, uint32_t segments, uint64_t id_count)
{
    uint8_t *const block = (uint8_t *)request;
    struct row_ref *const refs =
        (struct row_ref *)(block + refs_place(rules, head_bytes, segments));
    uint32_t *const starts = (uint32_t *)(block + starts_place(rules, head_bytes, segments));

    memset(request, 0, sizeof(*request));
    memset(block + segments_place(head_bytes), 0,
           starts_place(rules, head_bytes, segments) - segments_place(head_bytes));
    assert(rules->lane_count > 0 && rules->lane_count <= CONFIG_LANES_MAX);
    request->id_count = id_count;
    request->segment_count = segments;
    request->lane_count = rules->lane_count;
    request->segments = (struct request_segment *)(block + segments_place(head_bytes));
    request->parts = (struct part *)(block + parts_place(head_bytes, segments));
    for (uint32_t lane = 0; lane < rules->lane_count; lane++) {
        request->parts[lane].message.kind = &message_part;
        request->parts[lane].request = request;
        request->parts[lane].starts = starts + (uint64_t)lane * (segments + 1);
        request->parts[lane].refs = refs;
        starts[(uint64_t)lane * (segments + 1) + segments] = 0;
    }
    request->ids = refs + (ref_copies(rules) - 1) * id_count;
}

enum embtier_err request_admit_change(const struct request_rules *rules, uint32_t segment,
                                      const struct table *table, uint64_t row_count,
                                      struct refusal *refusal)
{
    enum embtier_err err = table->logged ? EMBTIER_OK : store_replay_refusal(rules->store);
    struct store_refusal why = { 0 };

    if (err == EMBTIER_OK)
        err = store_admit(rules->store, row_count, table->row_bytes, table->logged, &why);
    return err == EMBTIER_OK
               ? EMBTIER_OK
               : refuse(refusal, err, segment,
                        why.room_bytes < why.needed_bytes ? why.needed_bytes : 0, why.room_bytes);
}

static void leave_tables(struct request *request)
{
    for (uint32_t s = 0; s < request->segment_count; s++)
        if (request->segments[s].table)
            table_leave(request->segments[s].table);
}

/* Copies, checks and hashes @count ids of a segment, from @first on. */
static enum embtier_err take_ids(const struct request_rules *rules, const struct request *request,
                                 uint32_t first, uint32_t count, struct refusal *refusal)
{
    const uint32_t s = request->taking_segment;
    const struct request_segment *const segment = &request->segments[s];
    const volatile uint64_t *const ids =
        (const volatile uint64_t *)(request->session->channel.region + segment->ids_offset) + first;
    const uint64_t rows = segment->table->spec.rows;
    const uint64_t last = rows == EMBTIER_UNBOUNDED ? UINT64_MAX : rows - 1;
    const uint32_t table_id = atomic_load_explicit(&segment->table->table_id, memory_order_relaxed);
    struct row_ref *const refs = request->ids + request->taken_ids;

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t id = ids[i];

        if (UNLIKELY(IS_BAD(CHECK_ID, id > last)))
            return refuse(refusal, EMBTIER_ID_RANGE, s, id, rows);
        refs[i].id = id;
        refs[i].hash = row_hash(rules->hasher, table_id, id);
        refs[i].position = first + i;
        refs[i].link = 0;
    }
    if (!IS_COPIED(COPY_IDS))
        for (uint32_t i = 0; i < count; i++)
            copy_once(&refs[i].id, &ids[i], sizeof(ids[i]));
    return EMBTIER_OK;
}

_Static_assert(sizeof(struct row_ref) % sizeof(uint64_t) == 0, "hashes are words apart");

/* Notes the ids that were just taken, for a profile. A row of a GET is a bag of its own. A SET
 * looks nothing up. */
static void note_ids(const struct request_rules *rules, struct request *request, uint32_t first,
                     uint32_t count)
{
    const struct table *const table = request->segments[request->taking_segment].table;

    if (request->is_update)
        sampler_note_updates(rules->sampler, table, count);
    else
        sampler_note(rules->sampler, &(struct sampler_lookups){
                                         .table = table,
                                         .batch = &request->sampled_batch,
                                         .bags = count,
                                         .begins_segment = first == 0,
                                         .hashes = &request->ids[request->taken_ids].hash,
                                         .stride = sizeof(struct row_ref) / sizeof(uint64_t),
                                         .count = count,
                                     });
}

/* Returns a lane's starts: where each segment begins and, last, the number of ids. */
static uint32_t *starts_of(const struct request *request, uint32_t lane)
{
    return (uint32_t *)request->parts[lane].starts;
}

static uint32_t lane_of(const struct request_rules *rules, const struct row_ref *ref)
{
    return row_routes_lane(rules->routes, ref->hash);
}

/* Dealing ids out is a counting sort by (lane, segment) that keeps the request's order. This counts
 * the ids of each lane as they are taken. With one lane, ids stay where they are. */
static void count_ids(const struct request_rules *rules, struct request *request, uint32_t count)
{
    const struct row_ref *const refs = request->ids + request->taken_ids;
    uint32_t counts[CONFIG_LANES_MAX];

    if (rules->lane_count == 1) {
        starts_of(request, 0)[request->segment_count] += count;
        return;
    }
    for (uint32_t lane = 0; lane < rules->lane_count; lane++)
        counts[lane] = starts_of(request, lane)[request->segment_count];
    for (uint32_t i = 0; i < count; i++)
        counts[lane_of(rules, &refs[i])]++;
    for (uint32_t lane = 0; lane < rules->lane_count; lane++)
        starts_of(request, lane)[request->segment_count] = counts[lane];
}

static void begin_segment(const struct request_rules *rules, struct request *request)
{
    for (uint32_t lane = 0; lane < rules->lane_count; lane++)
        starts_of(request, lane)[request->taking_segment] =
            starts_of(request, lane)[request->segment_count];
}

static void begin_dealing(const struct request_rules *rules, struct request *request)
{
    struct row_ref *to = request->parts[0].refs;

    for (uint32_t lane = 0; lane < rules->lane_count; lane++) {
        request->parts[lane].refs = to;
        to += starts_of(request, lane)[request->segment_count];
    }
}

static void deal_ids(const struct request_rules *rules, struct request *request, uint64_t count)
{
    struct row_ref *next[CONFIG_LANES_MAX];

    for (uint32_t lane = 0; lane < rules->lane_count; lane++)
        next[lane] = request->parts[lane].refs + request->parts[lane].next_ref;
    for (const struct row_ref *ref = request->ids + request->dealt_ids, *end = ref + count;
         ref < end; ref++)
        *next[lane_of(rules, ref)]++ = *ref;
    for (uint32_t lane = 0; lane < rules->lane_count; lane++)
        request->parts[lane].next_ref = (uint32_t)(next[lane] - request->parts[lane].refs);
    request->dealt_ids += count;
    assert(request->dealt_ids <= request->id_count);
}

/* Ends the taking: all ids are in their places. */
static void finish_taking(const struct request_rules *rules, struct request *request)
{
    uint32_t parts = 0;

    for (uint32_t lane = 0; lane < rules->lane_count; lane++) {
        assert(rules->lane_count == 1 ||
               request->parts[lane].next_ref == starts_of(request, lane)[request->segment_count]);
        request->parts[lane].next_ref = 0;
        parts += starts_of(request, lane)[request->segment_count] > 0;
    }
    atomic_store_explicit(&request->parts_left, parts, memory_order_relaxed);
}

enum embtier_err request_take(const struct request_rules *rules, struct request *request,
                              uint64_t id_count, struct refusal *ret_refusal)
{
    while (request->taking_segment < request->segment_count) {
        const uint32_t first = request->taking_position;
        const uint32_t left = request->segments[request->taking_segment].id_count - first;
        const uint32_t count = (uint32_t)MIN((uint64_t)left, id_count);

        if (id_count == 0)
            return EMBTIER_AGAIN;
        if (first == 0)
            begin_segment(rules, request);
        TRY(take_ids(rules, request, first, count, ret_refusal));
        if (UNLIKELY(rules->sampler != NULL) && !request->is_wave)
            note_ids(rules, request, first, count);
        count_ids(rules, request, count);
        request->taken_ids += count;
        request->taking_position += count;
        id_count -= count;
        if (count < left)
            return EMBTIER_AGAIN;
        /* A segment without ids is work, too. */
        id_count -= MIN(id_count, (uint64_t)LANE_COST_SEGMENT);
        request->taking_segment++;
        request->taking_position = 0;
    }
    if (rules->lane_count > 1 && request->dealt_ids < request->id_count) {
        const uint64_t count = MIN(request->id_count - request->dealt_ids, id_count);

        if (request->dealt_ids == 0)
            begin_dealing(rules, request);
        deal_ids(rules, request, count);
        if (request->dealt_ids < request->id_count)
            return EMBTIER_AGAIN;
    }
    finish_taking(rules, request);
    return EMBTIER_OK;
}

void request_put_runs(const struct request_rules *rules, struct request *request,
                      const struct cast_pair *pairs, const uint32_t *starts)
{
    const struct request_segment *const segment = &request->segments[request->taking_segment];
    const uint32_t table_id = atomic_load_explicit(&segment->table->table_id, memory_order_relaxed);
    struct row_ref *const refs = request->ids + request->taken_ids;

    begin_segment(rules, request);
    for (uint32_t i = 0; i < segment->id_count; i++) {
        const uint64_t id = pairs[starts[i]].row;

        refs[i] = (struct row_ref){ .hash = row_hash(rules->hasher, table_id, id),
                                    .id = id,
                                    .position = i };
    }
    count_ids(rules, request, segment->id_count);
    request->taken_ids += segment->id_count;
    request->taking_segment++;
}

void request_deal(const struct request_rules *rules, struct request *request)
{
    if (rules->lane_count > 1) {
        begin_dealing(rules, request);
        deal_ids(rules, request, request->id_count);
    }
    finish_taking(rules, request);
}

void *request_memory_for(const struct request_rules *rules, struct session *session, uint64_t bytes,
                         enum request_memory_use use)
{
    void *const place = request_memory_take(rules->memory, &session->memory_share, bytes, use);

    session->wanted_bytes = place ? 0 : bytes;
    session->wanted_use = use;
    return place;
}

void request_memory_forget(const struct request_rules *rules, struct session *session)
{
    if (session->wanted_bytes == 0)
        return;
    session->wanted_bytes = 0;
    request_memory_leave(rules->memory, &session->memory_share);
}

void request_discard(const struct request_rules *rules, struct request *request)
{
    leave_tables(request);
    request_free(rules, request);
}

void request_free(const struct request_rules *rules, struct request *request)
{
    assert(atomic_load_explicit(&request->parts_left, memory_order_relaxed) == 0);
    request_memory_give(rules->memory, request);
}

void request_fail(struct request *request, enum embtier_err err, uint32_t segment, uint64_t value)
{
    uint32_t none = EMBTIER_OK;

    assert(err != EMBTIER_OK && err != EMBTIER_AGAIN);
    if (atomic_compare_exchange_strong(&request->err, &none, (uint32_t)err)) {
        /* Only the last part to end reads these. It does so after this part has decremented
         * parts_left. */
        request->err_segment = segment;
        request->err_value = value;
    }
}

/* The answer is published after that, so a client that has it finds its request counted. */
static void count_time(const struct request_rules *rules, struct session *session, uint32_t number,
                       const struct refusal *refusal, uint64_t hit_rows)
{
    const struct request_time *const time = session_time(session, number);
    const uint64_t now_ns = clock_now_ns(rules->clock);
    const uint64_t ns = clock_since(now_ns, time->taken_ns);

    latency_add(&rules->latencies->of[time->op][session->transport], ns);
    if (slow_log_takes(rules->slow_log, ns))
        (void)slow_log_add(
            rules->slow_log, session, time,
            &(struct slow_request){ .now_ns = now_ns, .hit_rows = hit_rows, .err = refusal->err });
}

/* Notes how long the part waited for SSD. */
static void note_ssd(const struct request_rules *rules, const struct part *part)
{
    struct request *const request = part->request;
    struct request_time *const time = session_time(request->session, request->number);
    const uint64_t ns = clock_since(clock_now_ns(rules->clock), part->ssd_since_ns);
    uint64_t most = atomic_load_explicit(&time->ssd_ns, memory_order_relaxed);

    while (ns > most && !atomic_compare_exchange_weak_explicit(
                            &time->ssd_ns, &most, ns, memory_order_relaxed, memory_order_relaxed))
        continue;
}

void request_answer(const struct request_rules *rules, struct session *session, uint32_t number,
                    const struct refusal *refusal, uint64_t hit_rows, uint64_t ticket)
{
    count_time(rules, session, number, refusal, hit_rows);
    session_answer(session, number,
                   &(struct answer){ .refusal = *refusal, .hit_rows = hit_rows, .ticket = ticket });
}

bool request_part_done(const struct request_rules *rules, struct part *part)
{
    struct request *const request = part->request;
    struct refusal refusal = { .segment = UINT32_MAX };
    enum embtier_err err;
    uint32_t parts;

    atomic_fetch_add_explicit(&request->hit_rows, part->hit_rows, memory_order_relaxed);
    if (part->ssd_since_ns != 0)
        note_ssd(rules, part);
    parts = atomic_fetch_sub_explicit(&request->parts_left, 1, memory_order_acq_rel);
    assert(parts > 0 && parts <= CONFIG_LANES_MAX); /* the request may be gone, unless last */
    if (parts != 1)
        return false;
    if (request->is_wave)
        return true; /* its operation goes on with it */
    leave_tables(request);
    err = (enum embtier_err)atomic_load(&request->err);
    if (err == EMBTIER_DISCONNECTED)
        return true; /* rows were left out because the client is gone */
    if (err != EMBTIER_OK) {
        refusal.err = err;
        refusal.segment = request->err_segment;
        refusal.value = request->err_value;
    }
    request_answer(rules, request->session, request->number, &refusal,
                   atomic_load_explicit(&request->hit_rows, memory_order_relaxed), 0);
    return true;
}

uint32_t part_segment_of(const struct part *part, uint32_t index)
{
    uint32_t low = 0;
    uint32_t high = part->request->segment_count;

    /* Finds the last segment that starts at or before @index. Empty segments before it start there,
     * too. */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;

        if (part->starts[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}
