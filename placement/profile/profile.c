/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/profile.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define SEED UINT64_C(0x9e3779b97f4a7c15)

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

enum embtier_err profile_new(uint32_t table_count, uint64_t memory_bytes,
                             struct profile **ret_profile, struct err_msg *msg)
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
        table_profile_init(&profile->tables[i].profile, slots, SEED * (i + 1));
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

/* ---- Prediction ---- */

static enum embtier_err check_tiers(const struct cache_tiers *tiers, struct err_msg *msg)
{
    if (tiers->count == 0 || tiers->count > PROFILE_TIERS_MAX)
        return err_set(msg, EMBTIER_INVALID, "%" PRIu32 " tiers; allowed: 1 to %d", tiers->count,
                       PROFILE_TIERS_MAX);
    for (uint32_t i = 0; i < tiers->count; i++)
        if (!isfinite(tiers->bytes[i]) || tiers->bytes[i] < 0)
            return err_set(msg, EMBTIER_INVALID,
                           "tier %" PRIu32 " has %g bytes; allowed: 0 or more", i, tiers->bytes[i]);
    return EMBTIER_OK;
}

static enum embtier_err check_rows(const struct profile *profile, const double *row_bytes,
                                   struct err_msg *msg)
{
    for (uint32_t i = 0; i < profile->table_count; i++)
        if (!isfinite(row_bytes[i]) || row_bytes[i] < 0)
            return err_set(msg, EMBTIER_INVALID,
                           "rows of table %" PRIu32 " have %g bytes; allowed: 0 or more", i,
                           row_bytes[i]);
    return EMBTIER_OK;
}

/* Finds the ages at which rows leave each tier. */
static void find_ages(const struct profile *profile, const double *row_bytes,
                      const struct cache_tiers *tiers, struct reuse_times *sum,
                      struct reuse_times *scratch, struct reuse_ages *ret_ages)
{
    double bytes = 0;

    for (uint32_t i = 0; i < profile->table_count; i++) {
        if (row_bytes[i] == 0)
            continue;
        profile_reuse(profile, i, scratch);
        reuse_times_add(sum, scratch, row_bytes[i]);
    }
    for (uint32_t tier = 0; tier < tiers->count; tier++) {
        bytes += tiers->bytes[tier];
        reuse_times_ages(sum, bytes, &ret_ages[tier]);
    }
}

/* Fills one table's part, from the ages at which rows leave each tier. */
static void predict_table(const struct reuse_times *times, double row_bytes,
                          const struct reuse_ages *ages, uint32_t tier_count,
                          struct table_prediction *ret_table)
{
    double hits_before = 0, bytes_before = 0;

    for (uint32_t tier = 0; tier < tier_count; tier++) {
        const double hits = reuse_times_hit_rate(times, &ages[tier]);
        const double bytes = reuse_times_cached(times, &ages[tier]) * row_bytes;

        ret_table->hit_rates[tier] = MAX(0.0, hits - hits_before);
        ret_table->bytes[tier] = MAX(0.0, bytes - bytes_before);
        hits_before = hits;
        bytes_before = bytes;
    }
}

enum embtier_err profile_predict(const struct profile *profile, const double *row_bytes,
                                 const struct cache_tiers *tiers,
                                 struct table_prediction *ret_tables, struct err_msg *msg)
{
    struct reuse_ages ages[PROFILE_TIERS_MAX];
    _cleanup_(freep) struct reuse_times *sum = calloc(1, sizeof(*sum));
    _cleanup_(freep) struct reuse_times *times = calloc(1, sizeof(*times));

    TRY(check_tiers(tiers, msg));
    TRY(check_rows(profile, row_bytes, msg));
    if (!sum || !times)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory for a prediction");
    find_ages(profile, row_bytes, tiers, sum, times, ages);
    for (uint32_t i = 0; i < profile->table_count; i++) {
        ret_tables[i] = (struct table_prediction){ 0 };
        if (row_bytes[i] == 0)
            continue;
        profile_reuse(profile, i, times);
        predict_table(times, row_bytes[i], ages, tiers->count, &ret_tables[i]);
    }
    return EMBTIER_OK;
}
