/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/profile/profiler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/counter.h"
#include "base/macros.h"
#include "base/text/bytes.h"
#include "daemon/engine/sampling/sampler.h"
#include "placement/profile/measured_profile.h"

/* A line of the saved profile while it is made, and a table's rows while they are moved. */
#define LINE_BYTES  (4 * MIB)
#define MOVED_BYTES MIB

#define PICK_INTERVAL_MAX (UINT64_C(1) << 24)

/* Samples of a table since the last pace. */
struct load {
    uint64_t samples;
    uint64_t picks;
};

struct profiler {
    struct sampler *sampler;
    struct profile *profile;
    struct load *loads; /* by slot */
    bool *begun;        /* by slot: its profile has been told of the table */
    struct sample *samples;
    uint64_t free_samples; /* left */
    double samples_per_second;
    enum embtier_err err;
};

/* Returns what a profile takes beside its tables, with its sampler. */
static uint64_t fixed_bytes(uint32_t table_count, uint32_t lane_count)
{
    return sampler_bytes(table_count, lane_count) + LINE_BYTES + MOVED_BYTES +
           SAMPLER_RECORD_MAX * sizeof(struct sample);
}

/* Returns what a table takes, with its results. */
static uint64_t table_bytes(uint32_t slots)
{
    return table_profile_bytes(slots) + sizeof(struct measured_table) +
           (uint64_t)table_profile_segments(slots) * TIME_HISTOGRAM_BINS *
               sizeof(struct measured_bin) +
           sizeof(struct load) + sizeof(struct trace_table) + sizeof(bool);
}

uint64_t profiler_bytes_most(uint32_t table_count, uint32_t lane_count)
{
    return fixed_bytes(table_count, lane_count) +
           table_count * table_bytes(TABLE_PROFILE_SLOTS_MAX);
}

uint64_t profiler_bytes_least(uint32_t table_count, uint32_t lane_count)
{
    return fixed_bytes(table_count, lane_count) +
           table_count * table_bytes(TABLE_PROFILE_SLOTS_MIN);
}

/* Returns the memory of all tables' profiles, with as many slots as fit into @bytes with results.
 */
static uint64_t profile_bytes(uint32_t table_count, uint64_t bytes)
{
    uint32_t slots = TABLE_PROFILE_SLOTS_MAX;

    while (slots > TABLE_PROFILE_SLOTS_MIN && table_bytes(slots) > bytes / table_count)
        slots /= 2;
    return table_count * table_profile_bytes(slots);
}

enum embtier_err profiler_new(struct sampler *sampler, uint64_t memory_bytes, uint32_t core_count,
                              struct profiler **ret_profiler, struct err_msg *msg)
{
    const uint32_t count = sampler->table_count;
    const uint64_t least = profiler_bytes_least(count, sampler->lane_count);
    _cleanup_(profiler_freep) struct profiler *profiler = calloc(1, sizeof(*profiler));
    _cleanup_(freep) struct trace_table *tables = calloc(count, sizeof(*tables));

    if (memory_bytes < least)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "a profile of %u table%s on %u lane%s needs at least %s of memory, not %s",
                       count, PLURAL(count), sampler->lane_count, PLURAL(sampler->lane_count),
                       BYTES_TEXT(least), BYTES_TEXT(memory_bytes));
    if (!profiler || !tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "profile: out of memory");
    profiler->sampler = sampler;
    profiler->free_samples = PROFILER_SAMPLES_FREE;
    profiler->samples_per_second = (double)core_count * PROFILER_CORE_SAMPLES_PER_SECOND;
    profiler->loads = calloc(count, sizeof(*profiler->loads));
    profiler->begun = calloc(count, sizeof(*profiler->begun));
    profiler->samples = calloc(SAMPLER_RECORD_MAX, sizeof(*profiler->samples));
    if (!profiler->loads || !profiler->begun || !profiler->samples)
        return err_set(msg, EMBTIER_NO_MEMORY, "profile: out of memory");
    TRY(profile_new(tables, count,
                    profile_bytes(count, memory_bytes - fixed_bytes(count, sampler->lane_count)),
                    &profiler->profile, msg));
    *ret_profiler = TAKE(profiler);
    return EMBTIER_OK;
}

void profiler_free(struct profiler *profiler)
{
    if (!profiler)
        return;
    profile_free(profiler->profile);
    free(profiler->loads);
    free(profiler->begun);
    free(profiler->samples);
    free(profiler);
}

/* ---- Records ---- */

/* Returns the ring whose oldest record is the earliest of all, or NULL if all are empty. */
static struct sample_ring *earliest(const struct sampler *sampler, struct sample_head *ret_head)
{
    struct sample_ring *best = NULL;

    for (uint32_t i = 0; i < sampler->lane_count; i++) {
        struct sample_head head;

        if (!sample_ring_peek(sampler->lanes[i].ring, &head) ||
            (best && head.time >= ret_head->time))
            continue;
        best = sampler->lanes[i].ring;
        *ret_head = head;
    }
    return best;
}

static enum embtier_err add(struct table_profile *table, const struct sample_head *head,
                            const struct sample *sample)
{
    if (sample->lookups == 0)
        return table_profile_add_pick(table, sample->hash, head->time + sample->first,
                                      head->pick_lookups);
    return table_profile_add_sample(table, &(struct table_sample){
                                               .hash = sample->hash,
                                               .first_time = head->time + sample->first,
                                               .last_time = head->time + sample->last,
                                               .lookups = sample->lookups,
                                               .batch = head->batch,
                                           });
}

static void begin(struct profiler *profiler, uint32_t slot)
{
    if (profiler->begun[slot])
        return;
    profiler->begun[slot] = true;
    table_profile_use_hashes(profile_table(profiler->profile, slot),
                             profiler->sampler->tables[slot].table.rows);
}

/* Either side may lower a threshold: a lane whose ring fills up, or the profile, whose table has
 * only so much room. */
static enum embtier_err add_record(struct profiler *profiler, const struct sample_head *head)
{
    struct table_profile *const table = profile_table(profiler->profile, head->slot);
    struct sampler_table *const sampled = &profiler->sampler->tables[head->slot];
    struct load *const load = &profiler->loads[head->slot];

    begin(profiler, head->slot);
    TRY(table_profile_thin(table, atomic_load(&sampled->threshold)));
    for (uint32_t i = 0; i < head->count; i++) {
        TRY(add(table, head, &profiler->samples[i]));
        *(profiler->samples[i].lookups > 0 ? &load->samples : &load->picks) += 1;
    }
    sampler_thin(sampled, table->threshold);
    return EMBTIER_OK;
}

uint64_t profiler_drain(struct profiler *profiler, uint64_t most)
{
    struct sample_head head = { 0 };
    uint64_t taken = 0;

    while (taken < most) {
        struct sample_ring *const ring = earliest(profiler->sampler, &head);

        if (!ring)
            break;
        assert(head.slot < profiler->sampler->table_count && head.count <= SAMPLER_RECORD_MAX);
        sample_ring_take(ring, profiler->samples);
        if (profiler->err == EMBTIER_OK)
            profiler->err = add_record(profiler, &head);
        taken++;
    }
    atomic_fetch_add_explicit(&profiler->sampler->drains, 1, memory_order_relaxed);
    return taken;
}

enum embtier_err profiler_err(const struct profiler *profiler)
{
    return profiler->err;
}

/* ---- Pace ---- */

/* Takes from the free samples. True if these do not suffice. */
static bool is_over_free(struct profiler *profiler, uint64_t samples)
{
    const bool is_over = samples > profiler->free_samples;

    profiler->free_samples -= MIN(samples, profiler->free_samples);
    return is_over;
}

/* Brings a table down to its part at once. */
static void pace_table(struct sampler_table *table, const struct load *load, uint64_t part)
{
    const uint64_t threshold = atomic_load(&table->threshold);
    const uint64_t interval = atomic_load(&table->pick_interval);

    if (load->samples > part)
        sampler_thin(table, threshold / (load->samples / part + 1));
    if (load->picks > part)
        atomic_store(&table->pick_interval,
                     (uint32_t)MIN(interval * (load->picks / part + 1), PICK_INTERVAL_MAX));
}

void profiler_pace(struct profiler *profiler, uint64_t elapsed_ns)
{
    const double allowed = profiler->samples_per_second * (double)elapsed_ns / 1e9;
    const uint32_t count = profiler->sampler->table_count;
    uint64_t samples = 0, tables = 0, part;

    for (uint32_t i = 0; i < count; i++) {
        samples += profiler->loads[i].samples + profiler->loads[i].picks;
        tables += profiler->loads[i].samples + profiler->loads[i].picks > 0;
    }
    if (samples > (uint64_t)allowed && is_over_free(profiler, samples - (uint64_t)allowed)) {
        /* Half of a table's part is for samples, half for random lookups. */
        part = MAX((uint64_t)(allowed / 2 / (double)tables), UINT64_C(1));
        for (uint32_t i = 0; i < count; i++)
            pace_table(&profiler->sampler->tables[i], &profiler->loads[i], part);
    }
    memset(profiler->loads, 0, count * sizeof(*profiler->loads));
}

/* ---- Results ---- */

/* Lanes count on meanwhile, and a batch before its lookups. A request that began before the profile
 * counts as no batch, so a table may have lookups of that one alone. */
static struct profile_counts counts_of(const struct sampler *sampler, uint32_t slot)
{
    struct profile_counts sum = { 0 };

    for (uint32_t i = 0; i < sampler->lane_count; i++) {
        const struct sampler_counts *const counts = &sampler->lanes[i].counts[slot];

        sum.lookups += counter_get(&counts->lookups);
        sum.bags += counter_get(&counts->bags);
        sum.batches += counter_get(&counts->batches);
        sum.updated_rows += counter_get(&counts->updated_rows);
    }
    sum.batches = MIN(MAX(sum.batches, UINT64_C(1)), sum.lookups);
    return sum;
}

/* True if a later table has the same name. A table id is never used twice, and ids rise. */
static bool is_replaced(const struct sampler *sampler, uint32_t slot)
{
    const struct sampler_table *const table = &sampler->tables[slot];

    for (uint32_t i = 0; i < sampler->table_count; i++) {
        const struct sampler_table *const other = &sampler->tables[i];

        if (atomic_load(&other->is_there) && other->table_id > table->table_id &&
            strcmp(other->table.name, table->table.name) == 0)
            return true;
    }
    return false;
}

/* Sets the exact counts. Returns the tables that were looked up and are still known by their names.
 * No table has more batches than all together. But the number of a batch comes round after 32 bits,
 * and a table in two parts of a request counts it twice if another one comes between. */
static uint32_t count_all(struct profiler *profiler, struct trace_table *ret_tables,
                          uint32_t *ret_which)
{
    struct sampler *const sampler = profiler->sampler;
    uint64_t lookups = 0, batches = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < sampler->table_count; i++) {
        const struct profile_counts counts = counts_of(sampler, i);

        if (!atomic_load_explicit(&sampler->tables[i].is_there, memory_order_acquire) ||
            counts.lookups == 0)
            continue;
        begin(profiler, i);
        lookups += counts.lookups;
        batches = MAX(batches, counts.batches);
        profile_set_counts(profiler->profile, i, &counts);
        if (is_replaced(sampler, i))
            continue;
        ret_tables[count] = sampler->tables[i].table;
        ret_which[count++] = i;
    }
    profile_set_end(profiler->profile, MAX(lookups, atomic_load(&sampler->time)),
                    MAX(batches, (uint64_t)atomic_load(&sampler->batches)));
    return count;
}

enum embtier_err profiler_measure(struct profiler *profiler, struct measured_profile **ret_measured,
                                  struct err_msg *msg)
{
    const uint32_t most = profiler->sampler->table_count;
    _cleanup_(freep) struct trace_table *tables = calloc(most, sizeof(*tables));
    _cleanup_(freep) uint32_t *which = calloc(most, sizeof(*which));
    uint32_t count;

    if (!tables || !which || profiler->err != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "profile: out of memory");
    count = count_all(profiler, tables, which);
    if (count == 0)
        return err_set(msg, EMBTIER_NOT_FOUND, "no table was looked up since the profile began");
    if (measured_profile_make_some(profiler->profile, tables, which, count, ret_measured) !=
        EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "profile: out of memory");
    for (uint32_t i = 0; i < count; i++) {
        (*ret_measured)->tables[i].has_optimizer = true;
        (*ret_measured)->tables[i].optimizer = profiler->sampler->tables[which[i]].optimizer;
    }
    return EMBTIER_OK;
}

void profiler_stats(const struct sampler *sampler, struct profiler_stats *ret_stats)
{
    struct profiler_stats stats = { .is_exact = true };

    for (uint32_t i = 0; i < sampler->lane_count; i++) {
        stats.samples += counter_get(&sampler->lanes[i].samples);
        stats.lost_samples += counter_get(&sampler->lanes[i].lost);
    }
    for (uint32_t i = 0; i < sampler->table_count; i++) {
        if (!atomic_load(&sampler->tables[i].is_there))
            continue;
        stats.tables++;
        stats.lookups += counts_of(sampler, i).lookups;
        stats.is_exact &= atomic_load(&sampler->tables[i].threshold) == UINT64_MAX;
    }
    stats.is_exact &= stats.lost_samples == 0;
    *ret_stats = stats;
}
