/* SPDX-License-Identifier: Apache-2.0 */
/* tables_drop.c: dropping a table: state and catalog DROPPING, wait for the requests under way,
 * purge the lanes, drop the rows, then remove the catalog's entry. A crash leaves DROPPING in the
 * catalog, and the next start drops the table. */
#include "daemon/engine/tables/tables_impl.h"

#include <inttypes.h>
#include <time.h>

#include "base/log/log.h"
#include "daemon/engine/tables/progress.h"
#include "store/catalog.h"
#include "store/hot_rows.h"
#include "store/store.h"

struct shard_progress {
    const struct progress_sink *sink;
};

static void report_shards(void *context, uint32_t done, uint32_t total)
{
    const struct shard_progress *const progress = context;

    if (progress->sink)
        progress->sink->report(progress->sink->context, done, total, "shards");
}

static enum embtier_err rows_stay(const char *name, enum embtier_err err, const char *why,
                                  struct err_msg *msg)
{
    return err_set(msg, err,
                   "table '%s' is dropped, but its rows stay on SSD until the next start: %s", name,
                   why);
}

static enum embtier_err drop_cached_rows(struct tables *tables, struct table *table,
                                         struct err_msg *msg)
{
    /* seq_cst, as in table_enter() */
    while (atomic_load(&table->users) > 0 && !atomic_load(&tables->stopping))
        nanosleep(&(struct timespec){ .tv_nsec = 1000000L }, NULL);
    for (uint32_t i = 0; i < tables->lane_count; i++) {
        const enum embtier_err err =
            tables->rows->purge(tables->lanes[i], table, &tables->stopping);

        if (err != EMBTIER_OK)
            return rows_stay(table->spec.name, err, err_text(err), msg);
    }
    /* No lane knows the number any more. Locked, so that the rows of the table are in one of the
     * two sums. */
    pthread_mutex_lock(&tables->lock);
    tables_totals_add(&tables->dropped, table);
    tables_free_struct(tables, table);
    pthread_mutex_unlock(&tables->lock);
    return EMBTIER_OK;
}

enum embtier_err tables_drop_stored_rows(struct tables *tables, const struct table_spec *spec,
                                         uint32_t table_id, const struct progress_sink *sink,
                                         struct err_msg *msg)
{
    struct shard_progress progress = { .sink = sink };
    struct err_msg why = { { 0 } };
    enum embtier_err err =
        store_drop_table(tables->store, table_id, spec->durability != EMBTIER_DURABILITY_REPLAY,
                         report_shards, &progress, &tables->stopping, &why);

    if (err != EMBTIER_OK)
        return rows_stay(spec->name, err, why.text, msg);
    if (spec->hot_rows == 0)
        return EMBTIER_OK;
    err = hot_rows_drop(tables->store, table_id, &tables->stopping, &why);
    return err == EMBTIER_OK ? EMBTIER_OK : rows_stay(spec->name, err, why.text, msg);
}

enum embtier_err tables_drop_rows(struct tables *tables, struct table *table,
                                  const struct progress_sink *sink, struct err_msg *msg)
{
    /* Copied: the struct is another table's as soon as the cached rows are gone. */
    const struct table_info info = tables_info_of(tables, table);

    TRY(drop_cached_rows(tables, table, msg));
    return tables_drop_stored_rows(tables, &info.spec, info.table_id, sink, msg);
}

enum embtier_err tables_drop_finish(struct tables *tables, uint32_t table_id, struct err_msg *msg)
{
    enum embtier_err err;

    tables_lock_catalog(tables);
    err = catalog_remove(tables->catalog, table_id, msg);
    tables_unlock_catalog(tables);
    return err;
}

bool tables_is_left_over(struct tables *tables, const struct catalog_table *entry)
{
    const struct table *table;

    if (entry->state != CATALOG_CREATING)
        return false;
    table = tables_find_struct(tables, entry->table_id);
    return !table || atomic_load(&table->state) == TABLE_DROPPING;
}

/* The part of a drop with the catalog locked. After it the name is free, and the table takes no
 * requests. */
static enum embtier_err drop_begin(struct tables *tables, const char *name,
                                   struct table **ret_table, struct err_msg *msg)
{
    const struct catalog_table *const entry = catalog_find(tables->catalog, name);
    struct table *table;
    uint32_t table_id;

    if (!entry || tables_is_left_over(tables, entry))
        return tables_no_table(name, msg);
    if (entry->state == CATALOG_CREATING)
        return err_set(msg, EMBTIER_BUSY, "table '%s' is still being created: try again later",
                       name);
    table_id = entry->table_id;
    table = tables_find_struct(tables, table_id);
    if (!table)
        return err_set(msg, EMBTIER_INTERNAL, "table '%s' is in the catalog but not loaded", name);
    if (atomic_load(&table->move) != TABLE_STAYS)
        return err_set(msg, EMBTIER_BUSY, "table '%s' is being moved to another home", name);
    TRY(catalog_set_state(tables->catalog, table_id, CATALOG_DROPPING, msg));
    tables_give_name_away(tables, table);
    table_set_state(table, TABLE_DROPPING);
    *ret_table = table;
    return EMBTIER_OK;
}

static enum embtier_err drop_table(struct tables *tables, const char *name,
                                   const struct progress_sink *progress,
                                   struct table_info *ret_info, struct err_msg *msg)
{
    struct table *table = NULL;
    struct table_info info;
    enum embtier_err err;

    tables_lock_catalog(tables);
    err = drop_begin(tables, name, &table, msg);
    if (err == EMBTIER_OK)
        info = tables_info_of(tables, table);
    tables_unlock_catalog(tables);
    TRY(err);
    TRY(tables_drop_rows(tables, table, progress, msg));
    TRY(tables_drop_finish(tables, info.table_id, msg));
    log_info("table dropped", "table=%s id=%" PRIu32, info.spec.name, info.table_id);
    *ret_info = info;
    return EMBTIER_OK;
}

/* Dropping a table frees a full disk, so it may use the reserve. */
enum embtier_err tables_drop(struct tables *tables, const char *name,
                             const struct progress_sink *progress, struct table_info *ret_info,
                             struct err_msg *msg)
{
    enum embtier_err err;

    store_use_reserve(tables->store);
    err = drop_table(tables, name, progress, ret_info, msg);
    store_end_reserve(tables->store);
    return err;
}
