/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/sampling/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "base/counter.h"
#include "base/macros.h"
#include "daemon/engine/tables/table.h"
#include "tiers/cache/row_cache.h"

#define INDEXES (ROW_CACHE_TABLES_MAX + 1)
/* The places where a piece's rows are looked for, to put their lookups together. */
#define SEEN 1024
/* The ring is thinned from this many used eighths on. */
#define THIN_FROM 4

/* Where a piece last had a row. */
struct sampler_seen {
    uint64_t hash;
    uint32_t piece;
    uint32_t sample;
};

/* ---- Making ---- */

static uint64_t lane_bytes(uint32_t table_count)
{
    return SAMPLER_RING_BYTES + table_count * sizeof(struct sampler_counts) +
           SAMPLER_PIECE * (sizeof(uint64_t) + sizeof(uint32_t)) +
           SAMPLER_RECORD_MAX * sizeof(struct sample) + SEEN * sizeof(struct sampler_seen) +
           sizeof(struct sampler_lane);
}

uint64_t sampler_bytes(uint32_t table_count, uint32_t lane_count)
{
    return sizeof(struct sampler) + INDEXES * sizeof(uint64_t) +
           table_count * sizeof(struct sampler_table) + lane_count * lane_bytes(table_count);
}

static enum embtier_err lane_init(struct sampler *sampler, uint32_t index)
{
    struct sampler_lane *const lane = &sampler->lanes[index];

    lane->sampler = sampler;
    lane->random = index;
    lane->counts = calloc(sampler->table_count, sizeof(*lane->counts));
    lane->hashes = calloc(SAMPLER_PIECE, sizeof(*lane->hashes));
    lane->found = calloc(SAMPLER_PIECE, sizeof(*lane->found));
    lane->record = calloc(SAMPLER_RECORD_MAX, sizeof(*lane->record));
    lane->seen = calloc(SEEN, sizeof(*lane->seen));
    if (!lane->counts || !lane->hashes || !lane->found || !lane->record || !lane->seen)
        return EMBTIER_NO_MEMORY;
    return sample_ring_new(SAMPLER_RING_BYTES, &lane->ring);
}

enum embtier_err sampler_new(uint32_t table_count, uint32_t lane_count,
                             struct sampler **ret_sampler)
{
    const uint64_t bytes = sizeof(struct sampler) + lane_count * sizeof(struct sampler_lane);
    _cleanup_(sampler_freep) struct sampler *sampler =
        aligned_alloc(CACHE_LINE, align_up(bytes, CACHE_LINE));

    if (!sampler)
        return EMBTIER_NO_MEMORY;
    memset(sampler, 0, align_up(bytes, CACHE_LINE));
    sampler->table_count = table_count;
    sampler->lane_count = lane_count;
    sampler->slots = calloc(INDEXES, sizeof(*sampler->slots));
    sampler->tables = calloc(table_count, sizeof(*sampler->tables));
    if (!sampler->slots || !sampler->tables)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < lane_count; i++)
        TRY(lane_init(sampler, i));
    *ret_sampler = TAKE(sampler);
    return EMBTIER_OK;
}

void sampler_free(struct sampler *sampler)
{
    if (!sampler)
        return;
    for (uint32_t i = 0; i < sampler->lane_count; i++) {
        sample_ring_free(sampler->lanes[i].ring);
        free(sampler->lanes[i].counts);
        free(sampler->lanes[i].hashes);
        free(sampler->lanes[i].found);
        free(sampler->lanes[i].record);
        free(sampler->lanes[i].seen);
    }
    free(sampler->tables);
    free(sampler->slots);
    free(sampler);
}

void sampler_thin(struct sampler_table *table, uint64_t threshold)
{
    uint64_t before = atomic_load_explicit(&table->threshold, memory_order_relaxed);

    while (before > threshold &&
           !atomic_compare_exchange_weak(&table->threshold, &before, threshold))
        ;
}

/* ---- Tables ---- */

static void fill_in(struct sampler_table *to, const struct table *table, uint32_t table_id)
{
    to->table_id = table_id;
    to->table.rows = table->spec.rows == EMBTIER_UNBOUNDED ? 0 : table->spec.rows;
    to->table.dim = table->spec.dim;
    to->table.dtype = table->spec.dtype;
    to->optimizer = table->spec.optimizer;
    memcpy(to->table.name, table->spec.name, sizeof(to->table.name));
    atomic_store_explicit(&to->threshold, UINT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&to->pick_interval, SAMPLER_PICK_INTERVAL, memory_order_relaxed);
    atomic_store_explicit(&to->is_there, true, memory_order_release);
}

/* Takes a slot for a table that has none. If another lane does so too, one of the slots stays
 * unused. UINT32_MAX: there is none left. */
static uint32_t claim(struct sampler *sampler, const struct table *table, uint32_t table_id,
                      uint64_t found)
{
    uint32_t slot;

    if (atomic_load_explicit(&sampler->claimed, memory_order_relaxed) >= sampler->table_count)
        return UINT32_MAX;
    slot = atomic_fetch_add(&sampler->claimed, 1);
    if (slot >= sampler->table_count) {
        atomic_fetch_sub(&sampler->claimed, 1);
        return UINT32_MAX;
    }
    fill_in(&sampler->tables[slot], table, table_id);
    if (atomic_compare_exchange_strong(&sampler->slots[table->index], &found,
                                       (uint64_t)table_id << 32 | (slot + 1)))
        return slot;
    atomic_store(&sampler->tables[slot].is_there, false);
    return found >> 32 == table_id ? (uint32_t)found - 1 : UINT32_MAX;
}

static uint32_t slot_of(struct sampler *sampler, const struct table *table, bool claims)
{
    const uint32_t table_id = atomic_load_explicit(&table->table_id, memory_order_relaxed);
    const uint64_t found =
        atomic_load_explicit(&sampler->slots[table->index], memory_order_acquire);

    if (LIKELY(found != 0 && found >> 32 == table_id))
        return (uint32_t)found - 1;
    return claims ? claim(sampler, table, table_id, found) : UINT32_MAX;
}

/* ---- Sampling ---- */

static uint64_t next_random(struct sampler_lane *lane)
{
    lane->random = lane->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return lane->random >> 32;
}

/* Finds the hashes up to the threshold, without a branch for each. */
static uint32_t find_sampled(const uint64_t *hashes, uint32_t stride, uint32_t count,
                             uint64_t threshold, uint32_t *ret_found)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < count; i++) {
        ret_found[found] = i;
        found += hashes[(size_t)i * stride] <= threshold;
    }
    return found;
}

/* Makes samples of the found ids, one for each row. Two rows that share a place in `seen` may get
 * several. */
static uint32_t put_together(struct sampler_lane *lane, const uint64_t *hashes, uint32_t stride,
                             uint32_t found)
{
    const uint32_t piece = ++lane->piece;
    uint32_t count = 0;

    for (uint32_t i = 0; i < found; i++) {
        const uint32_t at = lane->found[i];
        const uint64_t hash = hashes[(size_t)at * stride];
        struct sampler_seen *const seen = &lane->seen[hash % SEEN];

        if (seen->piece == piece && seen->hash == hash) {
            lane->record[seen->sample].last = (uint16_t)at;
            lane->record[seen->sample].lookups++;
            continue;
        }
        *seen = (struct sampler_seen){ hash, piece, count };
        lane->record[count++] = (struct sample){
            .hash = hash, .first = (uint16_t)at, .last = (uint16_t)at, .lookups = 1
        };
    }
    return count;
}

/* Adds random lookups of a piece behind the @count samples. */
static uint32_t pick(struct sampler_lane *lane, struct sampler_counts *counts, uint32_t interval,
                     const uint64_t *hashes, uint32_t stride, uint32_t ids, uint32_t count)
{
    while (counts->pick_in < ids && count < SAMPLER_RECORD_MAX) {
        const uint32_t at = counts->pick_in;

        lane->record[count++] =
            (struct sample){ .hash = hashes[(size_t)at * stride], .first = (uint16_t)at };
        counts->pick_in += 1 + (uint32_t)(next_random(lane) % (2 * interval - 1));
    }
    counts->pick_in -= MIN(ids, counts->pick_in);
    return count;
}

/* Thins the table's sample once for each eighth of the ring's second half that is used, until the
 * profiling thread takes samples again. */
static void thin_if_full(struct sampler_lane *lane, uint32_t slot, uint64_t threshold)
{
    const uint32_t used = sample_ring_used_eighths(lane->ring);
    const uint64_t moment =
        atomic_load_explicit(&lane->sampler->drains, memory_order_relaxed) << 4 | used;

    if (used < THIN_FROM || lane->counts[slot].thinned_at == moment)
        return;
    lane->counts[slot].thinned_at = moment;
    sampler_thin(&lane->sampler->tables[slot], threshold / 2);
}

static void note_piece(struct sampler_lane *lane, uint32_t slot, struct sample_head *head,
                       const uint64_t *hashes, uint32_t stride, uint32_t count)
{
    struct sampler_table *const table = &lane->sampler->tables[slot];
    const uint64_t threshold = atomic_load_explicit(&table->threshold, memory_order_relaxed);
    uint32_t found;

    if (threshold == UINT64_MAX) {
        for (uint32_t i = 0; i < count; i++)
            lane->found[i] = i;
        head->count = put_together(lane, hashes, stride, count);
    } else {
        head->pick_lookups = atomic_load_explicit(&table->pick_interval, memory_order_relaxed);
        found = find_sampled(hashes, stride, count, threshold, lane->found);
        head->count = pick(lane, &lane->counts[slot], head->pick_lookups, hashes, stride, count,
                           put_together(lane, hashes, stride, found));
    }
    if (head->count == 0)
        return;
    thin_if_full(lane, slot, threshold);
    if (sample_ring_put(lane->ring, head, lane->record))
        counter_add(&lane->samples, head->count);
    else
        counter_add(&lane->lost, head->count);
}

static uint32_t batch_of(struct sampler *sampler, uint32_t *batch)
{
    while (*batch == 0) /* again if the numbers have come round */
        *batch = atomic_fetch_add_explicit(&sampler->batches, 1, memory_order_relaxed) + 1;
    return *batch;
}

void sampler_note(struct sampler_lane *lane, const struct sampler_lookups *lookups)
{
    struct sampler *const sampler = lane->sampler;
    const uint32_t slot = slot_of(sampler, lookups->table, true);
    struct sample_head head = { .slot = slot };
    struct sampler_counts *counts;

    if (slot == UINT32_MAX)
        return;
    counts = &lane->counts[slot];
    head.batch = batch_of(sampler, lookups->batch);
    head.time = atomic_fetch_add_explicit(&sampler->time, lookups->count, memory_order_relaxed) + 1;
    if (lookups->begins_segment && lookups->count > 0 && counts->last_batch != head.batch) {
        counter_add(&counts->batches, 1);
        counts->last_batch = head.batch;
    }
    counter_add(&counts->bags, lookups->bags);
    for (uint32_t first = 0; first < lookups->count; first += SAMPLER_PIECE) {
        const uint32_t count = MIN(lookups->count - first, (uint32_t)SAMPLER_PIECE);

        note_piece(lane, slot, &head, lookups->hashes + (size_t)first * lookups->stride,
                   lookups->stride, count);
        head.time += count;
    }
    counter_add(&counts->lookups, lookups->count);
}

void sampler_note_updates(struct sampler_lane *lane, const struct table *table, uint64_t rows)
{
    const uint32_t slot = slot_of(lane->sampler, table, false);

    if (slot != UINT32_MAX)
        counter_add(&lane->counts[slot].updated_rows, rows);
}
