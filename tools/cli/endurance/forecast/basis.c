/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/endurance/forecast/basis.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "placement/writes/room.h"

#define HIT_LOOKUPS_LEAST 10000
#define CHECKPOINTS_LEAST 4 /* that tell how often they come */

/* ---- Tables ---- */

static uint32_t profiled_number(const struct measured_profile *profile, const char *name)
{
    for (uint32_t i = 0; i < profile->table_count; i++)
        if (strcmp(profile->tables[i].table.name, name) == 0)
            return i;
    return UINT32_MAX;
}

/* Only these rows are written when they leave the cache, or by a checkpoint. */
static bool has_forecast(const struct measured_profile *profile, const struct basis_table *table)
{
    return table->profiled != UINT32_MAX && table->info->home == EMBTIER_HOME_CACHE &&
           table->info->durability == EMBTIER_DURABILITY_REPLAY &&
           profile->tables[table->profiled].summary.lookups > 0;
}

static enum embtier_err check_table(const struct measured_table *measured,
                                    const struct embtier_table_info *info, struct err_msg *msg)
{
    if (measured->table.rows == info->rows && measured->table.dim == info->dim &&
        measured->table.dtype == info->dtype &&
        (!measured->has_optimizer || measured->optimizer == info->optimizer))
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_MISMATCH,
                   "table '%s' has other rows, dim, dtype or optimizer in the profile than on the "
                   "server: record a profile of this server (`embtier profile record`)",
                   TEXT_SHOWN(info->name));
}

static struct basis_table count_table(const struct embtier_table_info *old,
                                      const struct embtier_table_info *now)
{
    static const struct embtier_table_info none;
    const struct embtier_table_info *const then = old ? old : &none;
    const double row_bytes = (double)now->weight_bytes + (double)now->state_bytes;

    return (struct basis_table){
        .info = now,
        .lookups = (double)(now->lookup_rows - then->lookup_rows),
        .missed = (double)(now->missed_lookup_rows - then->missed_lookup_rows),
        .updated_bytes = (double)(now->updated_rows - then->updated_rows) * row_bytes,
        .flush_bytes = (double)(now->flush_bytes - then->flush_bytes),
        .compaction_bytes = (double)(now->compaction_bytes - then->compaction_bytes),
    };
}

static enum embtier_err fill_tables(const struct endurance_sample *before,
                                    const struct endurance_sample *now, struct basis *basis,
                                    struct err_msg *msg)
{
    const struct measured_profile *const profile = basis->profile;
    const size_t count = embtier_table_list_count(now->tables);
    size_t found = 0;

    basis->tables = calloc(count + 1, sizeof(*basis->tables));
    basis->row_bytes = calloc(profile->table_count + 1, sizeof(*basis->row_bytes));
    if (!basis->tables || !basis->row_bytes)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const struct embtier_table_info *const info = embtier_table_list_at(now->tables, i);
        struct basis_table *const table = &basis->tables[basis->table_count];

        if (strcmp(info->state, "live") != 0)
            continue;
        *table = count_table(endurance_sample_table(before, info->table_id), info);
        table->profiled = profiled_number(profile, info->name);
        basis->table_count++;
        if (table->profiled == UINT32_MAX)
            continue;
        TRY(check_table(&profile->tables[table->profiled], info, msg));
        found++;
        if (!has_forecast(profile, table))
            continue;
        basis->modelled_count++;
        basis->row_bytes[table->profiled] = (double)info->weight_bytes + (double)info->state_bytes;
    }
    basis->missing_count = profile->table_count - found;
    if (found == 0)
        return err_set(msg, EMBTIER_NO_TABLE,
                       "the profile is of another server: none of its %" PRIu32
                       " tables is on this one; record one here (`embtier profile record`)",
                       profile->table_count);
    if (basis->modelled_count == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "no table of the profile has lookups, durability replay and home cache: "
                       "others write the same whatever the cache is");
    return EMBTIER_OK;
}

/* ---- Bytes ---- */

static double since(const struct endurance_sample *before, const struct endurance_sample *now,
                    const char *name, const char *label)
{
    return endurance_figure(now->status, name, label) -
           endurance_figure(before->status, name, label);
}

static void add_cause(struct basis *basis, const char *name, double bytes)
{
    size_t i = 0;

    while (i < basis->cause_count && strcmp(basis->causes[i].name, name) != 0)
        i++;
    if (i == FORECAST_CAUSES_MAX)
        return;
    if (i == basis->cause_count)
        basis->causes[basis->cause_count++] = (struct forecast_cause){ name, 0 };
    basis->causes[i].bytes += bytes;
}

/* Bytes of other programs on the same devices; none if they are not known of each device. */
static void add_others(const struct endurance_sample *before, const struct endurance_sample *now,
                       struct basis *basis)
{
    double others = 0;
    size_t devices = 0;

    for (size_t i = 0; i < embtier_status_count(now->status); i++) {
        const struct embtier_metric *const at = embtier_status_at(now->status, i);

        if (strcmp(at->name, "device_server_bytes") != 0)
            continue;
        devices++;
        others += since(before, now, "device_written_bytes", at->label_value) -
                  since(before, now, "device_server_bytes", at->label_value);
    }
    if (devices > 0)
        add_cause(basis, FORECAST_OTHERS, fmax(others, 0));
}

static void fill_bytes(const struct endurance_sample *before, const struct endurance_sample *now,
                       struct basis *basis)
{
    static const char *const always[] = { "flush", "compaction", "blob" };

    for (size_t i = 0; i < ARRAY_LEN(always); i++)
        add_cause(basis, always[i], 0);
    for (size_t i = 0; i < embtier_status_count(now->status); i++) {
        const struct embtier_metric *const at = embtier_status_at(now->status, i);

        if (strcmp(at->name, "store_written_bytes") == 0)
            add_cause(basis, at->label_value, since(before, now, at->name, at->label_value));
    }
    add_others(before, now, basis);
    basis->updated_bytes = since(before, now, "updated_bytes", "");
    basis->stored_row_bytes = since(before, now, "store_row_bytes_written", "");
    basis->drive = (struct drive){ endurance_figure(now->status, "store_capacity_bytes", ""),
                                   endurance_figure(now->status, "store_rated_written_bytes", ""),
                                   endurance_figure(now->status, "store_rated_years", "") };
}

static double written_rows_bytes(const struct basis *basis)
{
    double bytes = 0;

    for (size_t i = 0; i < basis->cause_count; i++)
        if (strcmp(basis->causes[i].name, "flush") == 0 ||
            strcmp(basis->causes[i].name, "blob") == 0)
            bytes += basis->causes[i].bytes;
    return bytes;
}

static enum embtier_err check_bytes(const struct basis *basis, struct err_msg *msg)
{
    if (!(basis->updated_bytes > 0))
        return err_set(msg, EMBTIER_AGAIN,
                       "no row was updated in %.3g s, so there is nothing to forecast: let clients "
                       "train, or choose a longer --interval",
                       basis->seconds);
    if (!(basis->stored_row_bytes > 0) || !(written_rows_bytes(basis) > 0))
        return err_set(msg, EMBTIER_AGAIN,
                       "no row was written to SSD in %.3g s, as RocksDB's write buffers are not "
                       "full yet: choose a longer --interval",
                       basis->seconds);
    return EMBTIER_OK;
}

/* ---- The cache ---- */

static void fill_tiers(const struct endurance_sample *now, struct basis *basis)
{
    double used = 0, rows = 0, left = 0;
    double room;

    for (size_t i = 0; i < embtier_status_count(now->status); i++) {
        const struct embtier_metric *const at = embtier_status_at(now->status, i);
        const size_t tier = basis->tiers.count;

        if (strcmp(at->name, "cache_capacity_bytes") != 0 || tier == TIERS_MAX)
            continue;
        snprintf(basis->tiers.names[tier], sizeof(basis->tiers.names[tier]), "%s", at->label_value);
        basis->tiers.bytes[tier] = at->value;
        basis->tiers.count++;
        used += endurance_figure(now->status, "cache_used_bytes", at->label_value);
        rows += endurance_figure(now->status, "cache_rows", at->label_value);
        /* The last tier's, in the end: rows that left the cache. */
        left = endurance_figure(now->status, "cache_evicted_clean_rows", at->label_value) +
               endurance_figure(now->status, "cache_evicted_dirty_rows", at->label_value);
    }
    basis->lanes = fmax(endurance_figure(now->status, "lanes", ""), 1);
    basis->map_bytes = endurance_figure(now->status, "cache_map_bytes", "");
    basis->cached_row_bytes = rows > 0 ? used / rows : 0;
    for (uint32_t i = 0; !(basis->cached_row_bytes > 0) && i < basis->profile->table_count; i++)
        basis->cached_row_bytes = basis->row_bytes[i];
    basis->room_factor = 1;
    room = basis_room_bytes(basis, &basis->tiers);
    if (left >= rows && rows > 0 && room > 0)
        basis->room_factor = used / room;
}

double basis_room_bytes(const struct basis *basis, const struct change_tiers *tiers)
{
    return basis->room_factor *
           cache_room_bytes(&(struct cache_shape){ .lanes = basis->lanes,
                                                   .row_bytes = basis->cached_row_bytes,
                                                   .map_bytes = basis->map_bytes,
                                                   .tier_count = (uint32_t)tiers->count,
                                                   .tier_bytes = tiers->bytes });
}

/* Returns the seconds between two checkpoints. A few that were counted tell better than the
 * configuration, as users make some, and a slow one puts the next one off. */
static double checkpoint_interval_s(const struct endurance_sample *before,
                                    const struct endurance_sample *now, double seconds)
{
    const double made = since(before, now, "checkpoints", "made");
    const double interval_s = endurance_figure(now->status, "checkpoint_interval_seconds", "");

    if (made >= CHECKPOINTS_LEAST)
        return seconds / made;
    return interval_s > 0 ? interval_s : (double)INFINITY;
}

/* Time counts lookups of the profile's tables. */
static enum embtier_err fill_pace(const struct endurance_sample *before,
                                  const struct endurance_sample *now, struct basis *basis,
                                  struct err_msg *msg)
{
    double lookups = 0, modelled = 0, missed = 0;

    for (size_t i = 0; i < basis->table_count; i++) {
        const struct basis_table *const table = &basis->tables[i];

        if (table->profiled == UINT32_MAX)
            continue;
        lookups += table->lookups;
        if (basis->row_bytes[table->profiled] == 0)
            continue;
        modelled += table->lookups;
        missed += table->missed;
    }
    if (!(modelled > 0))
        return err_set(msg, EMBTIER_AGAIN,
                       "no table of the profile was looked up in %.3g s: let clients train, or "
                       "choose a longer --interval",
                       basis->seconds);
    basis->checkpoint_lookups =
        checkpoint_interval_s(before, now, basis->seconds) * lookups / basis->seconds;
    basis->measured_hit_rate = modelled >= HIT_LOOKUPS_LEAST ? 1 - missed / modelled : (double)NAN;
    return EMBTIER_OK;
}

/* ---- All of it ---- */

void basis_clear(struct basis *basis)
{
    free(basis->tables);
    free(basis->row_bytes);
}

static enum embtier_err fill(const struct endurance_sample *before,
                             const struct endurance_sample *now, struct basis *basis,
                             struct err_msg *msg)
{
    const uint64_t uptime_ms = embtier_status_uptime_ms(now->status);
    const uint64_t then_ms = before->status ? embtier_status_uptime_ms(before->status) : 0;

    if (before->status)
        TRY(endurance_sample_check(before, now, msg));
    if (basis->profile->lookups == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "the profile has no lookups: record one while clients train");
    basis->seconds = (double)(uptime_ms - then_ms) / 1000;
    basis->has_rates = before->status || basis->seconds >= ENDURANCE_RATES_S;
    TRY(fill_tables(before, now, basis, msg));
    fill_bytes(before, now, basis);
    TRY(check_bytes(basis, msg));
    fill_tiers(now, basis);
    return fill_pace(before, now, basis, msg);
}

enum embtier_err basis_make(const struct measured_profile *profile,
                            const struct endurance_sample *before,
                            const struct endurance_sample *now, enum config_layout layout,
                            struct basis *ret_basis, struct err_msg *msg)
{
    struct basis basis = { .profile = profile, .layout = layout };
    const enum embtier_err err = fill(before, now, &basis, msg);

    if (err != EMBTIER_OK)
        basis_clear(&basis);
    else
        *ret_basis = basis;
    return err;
}
