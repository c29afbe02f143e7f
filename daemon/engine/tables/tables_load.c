/* SPDX-License-Identifier: Apache-2.0 */
/* tables_load.c: loads the tables of the catalog at a start, and makes the catalog one file at a
 * stop.
 *
 * A table that a crash left half made or half dropped is dropped. If that fails, such as on a full
 * disk, its entry stays as it is for the next start, and all other tables are served. The table has
 * no struct, so no lane knows it. Its name is free. Its id is never used again. */
#include "daemon/engine/tables/tables_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log/log.h"
#include "base/spec/home_rules.h"
#include "base/text/bytes.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/tables/hot_set.h"
#include "daemon/engine/tables/table_arrays.h"
#include "kernels/cpu/init/init_rows.h"
#include "store/catalog.h"
#include "store/store.h"
#include "tiers/array/array_space.h"

/* If the catalog is not written at a stop, the steps of tables are lost. */
#define FOLD_TRIES    10
#define FOLD_PAUSE_NS 200000000L

/* Fills the remap of a split table. A table whose ids of hot rows cannot be read is cached until
 * the next start, as a home is memory only. Removes such ids of a table that is not split. */
static void load_hot_rows(struct tables *tables, const struct catalog_table *entry,
                          struct table_spec *spec, struct row_array **array)
{
    const struct hot_work work = { .tables = tables, .table_id = entry->table_id, .spec = spec };
    struct err_msg why = { { 0 } };

    if (spec->hot_rows == 0)
        return;
    if (!home_has_hot_rows(spec->home)) {
        /* Not @spec, whose tier may be another until the next start. */
        if (hot_set_forget(tables, entry->table_id, &entry->spec))
            spec->hot_rows = spec->hot_sum = 0;
        return;
    }
    if (hot_set_load(&work, *array, &why) == EMBTIER_OK)
        return;
    log_error("a split table is cached until the next start, as its hot rows are not known: move "
              "it to home cache, and split it anew",
              "table=%s why=%s", spec->name, LOG_QUOTED(why.text));
    table_arrays_give(tables->arrays, TAKE(*array));
    table_spec_set_cached(spec);
}

/* @spec is as the catalog has it, except for an array's tier. @array is taken over. */
static enum embtier_err load_table(struct tables *tables, const struct catalog_table *entry,
                                   struct table_spec *spec, struct row_array *array,
                                   struct err_msg *msg)
{
    _cleanup_(account_closep) struct account *account = tables_open_owner(tables, entry->owner);
    struct table *const table = tables_take_struct(tables);

    load_hot_rows(tables, entry, spec, &array);
    if (!table || !account ||
        !tables_fill_struct(tables, table, entry->table_id, spec, &account, array)) {
        table_arrays_give(tables->arrays, array);
        return table ? err_set(msg, EMBTIER_NO_MEMORY, "out of memory")
                     : tables_no_struct(tables, msg);
    }
    TRY(tables_add_to_lanes(tables, table, msg));
    table_set_state(table, TABLE_LIVE);
    return EMBTIER_OK;
}

/* Loads a table. A table with an array for which its tier has no room is left to
 * load_displaced(). */
static enum embtier_err load_where_it_was(struct tables *tables, const struct catalog_table *entry,
                                          bool *ret_displaced, struct err_msg *msg)
{
    struct table_spec spec = entry->spec;
    struct row_array *array = NULL;
    struct err_msg why = { { 0 } };

    TRY(init_rows_check_version(&spec, msg));
    if (table_arrays_take(tables->arrays, &spec, &array, &why) == EMBTIER_OK)
        return load_table(tables, entry, &spec, array, msg);
    *ret_displaced = true;
    return EMBTIER_OK;
}

struct needs {
    uint64_t bytes;
    uint32_t count;
    char tables[3 * (EMBTIER_TABLE_NAME_MAX + 24)]; /* the first ones, with their bytes */
};

/* Adds up the memory that the arrays of a tier need. */
static void needs_of(const struct tables *tables, const char *tier, struct needs *needs)
{
    size_t length = 0;

    for (uint32_t i = 0; i < catalog_count(tables->catalog); i++) {
        const struct catalog_table *const entry = catalog_at(tables->catalog, i);
        const uint64_t bytes = table_arrays_needed_bytes(&entry->spec);
        struct bytes_text shown;

        if (entry->state != CATALOG_LIVE || bytes == 0 || strcmp(entry->spec.home_tier, tier) != 0)
            continue;
        needs->bytes += bytes;
        if (++needs->count <= 3)
            length += (size_t)snprintf(needs->tables + length, sizeof(needs->tables) - length,
                                       "%s'%s' %s", needs->count == 1 ? "" : ", ", entry->spec.name,
                                       format_bytes(&shown, bytes));
    }
    if (needs->count > 3)
        snprintf(needs->tables + length, sizeof(needs->tables) - length, ", %" PRIu32 " more",
                 needs->count - 3);
}

/* Reports that the tier of @spec is too small for the arrays that the store has. If it is large
 * enough, the reason is @why. */
static enum embtier_err no_room_at_start(const struct tables *tables, const struct table_spec *spec,
                                         enum embtier_err err, const struct err_msg *why,
                                         struct tables_key *ret_key, struct err_msg *msg)
{
    const uint32_t tier = table_arrays_find(tables->arrays, spec->home_tier);
    struct array_space_stats stats;
    struct bytes_text kept, needed;
    struct needs needs = { 0 };

    needs_of(tables, spec->home_tier, &needs);
    format_bytes(&needed, needs.bytes);
    if (tier == TIERS_MAX) {
        snprintf(ret_key->text, sizeof(ret_key->text), "cache.tiers");
        return err_set(msg, EMBTIER_CONFIG,
                       "there is no tier '%s', whose arrays need %s (%s %s); allowed: one with "
                       "array_bytes of at least %s. Or start with the old tiers, and drop or "
                       "export tables",
                       spec->home_tier, needed.text, needs.count == 1 ? "table" : "tables",
                       needs.tables, needed.text);
    }
    table_arrays_stats(tables->arrays, tier, &stats);
    if (needs.bytes <= stats.bytes)
        return err_set(msg, err, "%s", why->text);
    snprintf(ret_key->text, sizeof(ret_key->text), "cache.tiers[%" PRIu32 "].array_bytes", tier);
    return err_set(
        msg, EMBTIER_CONFIG,
        "%s; the arrays of tier '%s' need %s (%s %s); allowed: at least %s. Or start with the old "
        "value, and move tables to the cache or drop some",
        format_bytes(&kept, stats.bytes), spec->home_tier, needed.text,
        needs.count == 1 ? "table" : "tables", needs.tables, needed.text);
}

/* Loads arrays whose tier the configuration no longer has, or has made smaller. By then all others
 * have their place. */
static enum embtier_err load_displaced(struct tables *tables, struct tables_key *ret_key,
                                       struct err_msg *msg)
{
    for (uint32_t i = 0; i < catalog_count(tables->catalog); i++) {
        const struct catalog_table entry = *catalog_at(tables->catalog, i);
        struct table_spec spec = entry.spec;
        struct row_array *array = NULL;
        struct err_msg why = { { 0 } };
        enum embtier_err err;

        if (entry.state != CATALOG_LIVE || tables_find_struct(tables, entry.table_id))
            continue;
        err = table_arrays_take_anywhere(tables->arrays, &spec, &array, &why);
        if (err != EMBTIER_OK)
            return no_room_at_start(tables, &spec, err, &why, ret_key, msg);
        log_warn("an array is in another tier until the next start",
                 "table=%s tier=%s instead_of=%s why=%s", spec.name, spec.home_tier,
                 entry.spec.home_tier, LOG_QUOTED(why.text));
        TRY(load_table(tables, &entry, &spec, array, msg));
    }
    return EMBTIER_OK;
}

/* Ends a creation or drop that was cut short. The name is given back first, whatever becomes of the
 * rows: a table that is made before the next start may take it. */
static enum embtier_err drop_left_over(struct tables *tables, const struct catalog_table *entry,
                                       struct err_msg *msg)
{
    if (entry->state == CATALOG_CREATING)
        TRY(catalog_set_state(tables->catalog, entry->table_id, CATALOG_DROPPING, msg));
    TRY(tables_drop_stored_rows(tables, &entry->spec, entry->table_id, NULL, msg));
    return catalog_remove(tables->catalog, entry->table_id, msg);
}

static void note_stored_step(void *context, uint32_t table_id, uint64_t step)
{
    struct table *const table = tables_find_struct(context, table_id);

    if (table && step <= EMBTIER_STEP_MAX)
        table_note_step(table, step);
}

/* After a crash, rows in the logs are newer than the catalog. */
static void load_steps(struct tables *tables)
{
    struct err_msg why = { { 0 } };

    if (store_table_steps(tables->store, note_stored_step, tables, &why) != EMBTIER_OK)
        log_warn("some tables may show the step of the last clean stop", "why=%s",
                 LOG_QUOTED(why.text));
}

enum embtier_err tables_load(struct tables *tables, const struct tables_rows *rows,
                             struct lane *const *lanes, uint32_t lane_count,
                             struct table_arrays *arrays, struct tables_key *ret_key,
                             struct err_msg *msg)
{
    uint32_t index = 0;
    bool displaced = false;

    tables->arrays = arrays;
    tables->rows = rows;
    tables->lanes = lanes;
    tables->lane_count = lane_count;
    while (index < catalog_count(tables->catalog)) {
        const struct catalog_table entry = *catalog_at(tables->catalog, index);
        struct err_msg why = { { 0 } };

        if (entry.state == CATALOG_LIVE) {
            TRY(load_where_it_was(tables, &entry, &displaced, msg));
            index++;
            continue;
        }
        log_warn("dropping a table that was left half created or half dropped",
                 "table=%s id=%" PRIu32, entry.spec.name, entry.table_id);
        if (drop_left_over(tables, &entry, &why) == EMBTIER_OK)
            continue;
        log_warn("the table cannot be dropped now; the next start retries",
                 "table=%s id=%" PRIu32 " why=%s", entry.spec.name, entry.table_id,
                 LOG_QUOTED(why.text));
        index++;
    }
    if (displaced)
        TRY(load_displaced(tables, ret_key, msg));
    load_steps(tables);
    return EMBTIER_OK;
}

void tables_fold(struct tables *tables)
{
    struct err_msg why = { { 0 } };
    enum embtier_err err;

    pthread_mutex_lock(&tables->writing);
    tables_note_steps(tables, tables->catalog);
    err = catalog_fold(tables->catalog, &why);
    for (unsigned i = 1; err != EMBTIER_OK && i < FOLD_TRIES; i++) {
        nanosleep(&(struct timespec){ .tv_nsec = FOLD_PAUSE_NS }, NULL);
        err = catalog_fold(tables->catalog, &why);
    }
    if (err != EMBTIER_OK)
        log_warn("the catalog cannot be written: the next start reads its journal, and has the "
                 "steps of tables from this start",
                 "why=%s", LOG_QUOTED(why.text));
    pthread_mutex_unlock(&tables->writing);
}
