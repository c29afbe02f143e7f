/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/profile.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

struct table {
    struct table_profile profile;
    uint64_t bags;
};

struct profile {
    struct table *tables;
    uint32_t table_count;
    uint64_t lookups;
    uint64_t batches;
    uint64_t last_batch;
};

/* Returns the most slots per table that fit, 0 if too few do. */
static uint32_t slots_for(uint64_t table_bytes)
{
    uint32_t slots = TABLE_PROFILE_SLOTS_MAX;

    while (slots >= TABLE_PROFILE_SLOTS_MIN && table_profile_bytes(slots) > table_bytes)
        slots /= 2;
    return slots >= TABLE_PROFILE_SLOTS_MIN ? slots : 0;
}

enum embtier_err profile_new(const struct trace_table *tables, uint32_t table_count,
                             uint64_t memory_bytes, struct profile **ret_profile,
                             struct err_msg *msg)
{
    _cleanup_(profile_freep) struct profile *profile = NULL;
    uint32_t slots;

    if (table_count == 0 || table_count > PROFILE_TABLES_MAX)
        return err_set(msg, EMBTIER_INVALID, "%" PRIu32 " tables; allowed: 1 to %d", table_count,
                       PROFILE_TABLES_MAX);
    slots = slots_for(memory_bytes / table_count);
    if (slots == 0)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "a profile of %" PRIu32 " tables takes at least %" PRIu64
                       " bytes of memory, and %" PRIu64 " are allowed",
                       table_count, table_count * table_profile_bytes(TABLE_PROFILE_SLOTS_MIN),
                       memory_bytes);
    profile = calloc(1, sizeof(*profile));
    if (profile)
        profile->tables = calloc(table_count, sizeof(*profile->tables));
    if (!profile || !profile->tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory for %" PRIu32 " tables", table_count);
    profile->table_count = table_count;
    for (uint32_t i = 0; i < table_count; i++)
        table_profile_init(&profile->tables[i].profile, slots, tables[i].rows,
                           PROFILE_SEED * (i + 1));
    *ret_profile = TAKE(profile);
    return EMBTIER_OK;
}

void profile_free(struct profile *profile)
{
    if (!profile)
        return;
    for (uint32_t i = 0; i < profile->table_count; i++)
        table_profile_clear(&profile->tables[i].profile);
    free(profile->tables);
    free(profile);
}

enum embtier_err profile_add(struct profile *profile, const struct trace_lookups *lookups)
{
    struct table *const table = &profile->tables[lookups->table];
    const struct table_moment moment = { .time = profile->lookups + 1,
                                         .batch = lookups->batch,
                                         .is_update = lookups->is_update };

    assert(lookups->table < profile->table_count);
    if (profile->batches == 0 || lookups->batch != profile->last_batch) {
        profile->batches++;
        profile->last_batch = lookups->batch;
    }
    profile->lookups += lookups->id_count;
    table->bags += lookups->bag_count - (lookups->continues ? 1 : 0);
    return table_profile_add(&table->profile, lookups->ids, lookups->id_count, &moment);
}

struct table_profile *profile_table(struct profile *profile, uint32_t table)
{
    assert(table < profile->table_count);
    return &profile->tables[table].profile;
}

void profile_set_counts(struct profile *profile, uint32_t table,
                        const struct profile_counts *counts)
{
    table_profile_set_counts(profile_table(profile, table), counts->lookups, counts->batches,
                             counts->updated_rows);
    profile->tables[table].bags = counts->bags;
}

void profile_set_end(struct profile *profile, uint64_t time, uint64_t batches)
{
    profile->lookups = time;
    profile->batches = batches;
}

uint32_t profile_table_count(const struct profile *profile)
{
    return profile->table_count;
}

uint64_t profile_lookups(const struct profile *profile)
{
    return profile->lookups;
}

uint64_t profile_batches(const struct profile *profile)
{
    return profile->batches;
}

static const struct table *table_at(const struct profile *profile, uint32_t table)
{
    assert(table < profile->table_count);
    return &profile->tables[table];
}

struct table_summary profile_summary(const struct profile *profile, uint32_t table)
{
    return table_profile_summary(&table_at(profile, table)->profile);
}

double profile_pooling_factor(const struct profile *profile, uint32_t table)
{
    const struct table *const at = table_at(profile, table);

    return at->bags > 0 ? (double)at->profile.lookups / (double)at->bags : 0;
}

void profile_reuse(const struct profile *profile, uint32_t table, struct reuse_times *ret_times)
{
    table_profile_reuse(&table_at(profile, table)->profile, profile->lookups, ret_times);
}

enum embtier_err profile_cdf(const struct profile *profile, uint32_t table,
                             struct access_cdf *ret_cdf)
{
    return table_profile_cdf(&table_at(profile, table)->profile, ret_cdf);
}

static void get_reuse(const void *profile, uint32_t table, struct reuse_times *ret_times)
{
    profile_reuse(profile, table, ret_times);
}

enum embtier_err profile_predict(const struct profile *profile, const double *row_bytes,
                                 const struct cache_tiers *tiers,
                                 struct table_prediction *ret_tables, struct err_msg *msg)
{
    const struct reuse_source source = { profile->table_count, get_reuse, profile };

    return predict_shared_cache(&source, row_bytes, tiers, ret_tables, msg);
}
