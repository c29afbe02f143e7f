/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/predict.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static enum embtier_err check_tiers(const struct cache_tiers *tiers, struct err_msg *msg)
{
    if (tiers->count == 0 || tiers->count > CACHE_TIERS_MAX)
        return err_set(msg, EMBTIER_INVALID, "%" PRIu32 " tiers; allowed: 1 to %d", tiers->count,
                       CACHE_TIERS_MAX);
    for (uint32_t i = 0; i < tiers->count; i++)
        if (!isfinite(tiers->bytes[i]) || tiers->bytes[i] < 0)
            return err_set(msg, EMBTIER_INVALID,
                           "tier %" PRIu32 " has %g bytes; allowed: 0 or more", i, tiers->bytes[i]);
    return EMBTIER_OK;
}

static enum embtier_err check_rows(const struct reuse_source *source, const double *row_bytes,
                                   struct err_msg *msg)
{
    for (uint32_t i = 0; i < source->table_count; i++)
        if (!isfinite(row_bytes[i]) || row_bytes[i] < 0)
            return err_set(msg, EMBTIER_INVALID,
                           "rows of table %" PRIu32 " have %g bytes; allowed: 0 or more", i,
                           row_bytes[i]);
    return EMBTIER_OK;
}

/* Finds the ages at which rows leave each tier. */
static void find_ages(const struct reuse_source *source, const double *row_bytes,
                      const struct cache_tiers *tiers, struct reuse_times *sum,
                      struct reuse_times *scratch, struct reuse_ages *ret_ages)
{
    double bytes = 0;

    for (uint32_t i = 0; i < source->table_count; i++) {
        if (row_bytes[i] == 0)
            continue;
        source->get(source->context, i, scratch);
        reuse_times_add(sum, scratch, row_bytes[i]);
    }
    for (uint32_t tier = 0; tier < tiers->count; tier++) {
        bytes += tiers->bytes[tier];
        reuse_times_ages(sum, bytes, &ret_ages[tier]);
    }
}

void predict_cached_table(const struct reuse_times *times, double row_bytes,
                          const struct reuse_ages *ages, uint32_t tier_count,
                          struct table_prediction *ret_table)
{
    double hits_before = 0, bytes_before = 0;

    *ret_table = (struct table_prediction){ 0 };
    for (uint32_t tier = 0; tier < tier_count; tier++) {
        const double hits = reuse_times_hit_rate(times, &ages[tier]);
        const double bytes = reuse_times_cached(times, &ages[tier]) * row_bytes;

        ret_table->hit_rates[tier] = MAX(0.0, hits - hits_before);
        ret_table->bytes[tier] = MAX(0.0, bytes - bytes_before);
        hits_before = hits;
        bytes_before = bytes;
    }
}

enum embtier_err predict_cache_ages(const struct reuse_source *source, const double *row_bytes,
                                    const struct cache_tiers *tiers, struct reuse_times *scratch,
                                    struct reuse_ages *ret_ages, struct err_msg *msg)
{
    TRY(check_tiers(tiers, msg));
    TRY(check_rows(source, row_bytes, msg));
    scratch[0] = (struct reuse_times){ 0 };
    find_ages(source, row_bytes, tiers, &scratch[0], &scratch[1], ret_ages);
    return EMBTIER_OK;
}

enum embtier_err predict_shared_cache(const struct reuse_source *source, const double *row_bytes,
                                      const struct cache_tiers *tiers,
                                      struct table_prediction *ret_tables, struct err_msg *msg)
{
    struct reuse_ages ages[CACHE_TIERS_MAX];
    _cleanup_(freep) struct reuse_times *times = calloc(2, sizeof(*times));

    if (!times)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory for a prediction");
    TRY(predict_cache_ages(source, row_bytes, tiers, times, ages, msg));
    for (uint32_t i = 0; i < source->table_count; i++) {
        ret_tables[i] = (struct table_prediction){ 0 };
        if (row_bytes[i] == 0)
            continue;
        source->get(source->context, i, times);
        predict_cached_table(times, row_bytes[i], ages, tiers->count, &ret_tables[i]);
    }
    return EMBTIER_OK;
}
