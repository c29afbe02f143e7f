/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/checkpoint_restore.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/row_writer.h"
#include "kernels/init_rows.h"
#include "store/catalog.h"
#include "store/checkpoint.h"
#include "store/checkpoint_rows.h"
#include "store/store.h"

/* Between two reports. */
#define PROGRESS_ROWS 4096

void restore_order_clear(struct restore_order *order)
{
    for (uint32_t i = 0; order->names && i < order->name_count; i++)
        free(order->names[i]);
    free(order->names);
    free(order->new_name);
    *order = (struct restore_order){ 0 };
}

/* One table on its way. */
struct restoring {
    const struct checkpoint_shelf *shelf;
    const struct checkpoint_record *record;
    const struct catalog_table *from;
    uint64_t rows;
};

static enum embtier_err copy_shard(struct restoring *restoring, uint32_t shard,
                                   struct row_writer *writer, const struct progress_sink *progress,
                                   struct err_msg *msg)
{
    const struct table_spec *const spec = &restoring->from->spec;
    const struct store_row like = { .table_id = restoring->from->table_id,
                                    .weight_bytes = table_spec_weight_bytes(spec),
                                    .state_bytes = table_spec_state_bytes(spec),
                                    .logged = spec->durability != EMBTIER_DURABILITY_REPLAY };
    _cleanup_(checkpoint_rows_freep) struct checkpoint_rows *from = NULL;

    TRY(checkpoint_rows_open(restoring->shelf, restoring->record, shard, &like, NULL, &from, msg));
    for (;;) {
        const void *bytes;
        uint64_t id;

        TRY(checkpoint_rows_next(from, &id, &bytes, msg));
        if (!bytes)
            return EMBTIER_OK;
        TRY(row_writer_add(writer, id, bytes, msg));
        if (++restoring->rows % PROGRESS_ROWS == 0)
            TRY(progress_tell(progress, shard, restoring->record->shard_count, "shards", msg));
    }
}

static enum embtier_err copy_rows(struct restoring *restoring, struct row_writer *writer,
                                  const struct progress_sink *progress, struct err_msg *msg)
{
    const uint32_t shards = restoring->record->shard_count;

    for (uint32_t s = 0; s < shards; s++) {
        TRY(progress_tell(progress, s, shards, "shards", msg));
        TRY(copy_shard(restoring, s, writer, progress, msg));
    }
    return row_writer_end(writer, msg);
}

static const struct catalog_table *find_live(const struct catalog *catalog, const char *name)
{
    const struct catalog_table *const table = catalog_find(catalog, name);

    return table && table->state == CATALOG_LIVE ? table : NULL;
}

/* Which tables, as the checkpoint has them: malloced pointers. */
static enum embtier_err choose(const struct catalog *catalog, const struct restore_order *order,
                               const struct catalog_table ***ret_chosen, uint32_t *ret_count,
                               struct err_msg *msg)
{
    const uint32_t most = order->name_count ? order->name_count : catalog_count(catalog);
    _cleanup_(freep) const struct catalog_table **chosen =
        calloc((size_t)most + 1, sizeof(*chosen));
    uint32_t count = 0;

    if (!chosen)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < most; i++) {
        const struct catalog_table *const table =
            order->name_count ? find_live(catalog, order->names[i]) : catalog_at(catalog, i);

        if (!table)
            return err_set(msg, EMBTIER_NO_TABLE, "checkpoint %" PRIu64 " has no table '%s'",
                           order->id, order->names[i]);
        for (uint32_t j = 0; j < count; j++)
            if (chosen[j] == table)
                return err_set(msg, EMBTIER_INVALID, "table '%s' is named twice", table->spec.name);
        if (table->state == CATALOG_LIVE)
            chosen[count++] = table;
    }
    *ret_chosen = TAKE(chosen);
    *ret_count = count;
    return EMBTIER_OK;
}

static struct table_spec spec_of(const struct catalog_table *table,
                                 const struct restore_order *order)
{
    struct table_spec spec = table->spec;

    if (order->new_name)
        snprintf(spec.name, sizeof(spec.name), "%s", order->new_name);
    return spec;
}

static enum embtier_err check_free(struct tables *tables, const struct table_spec *spec,
                                   struct err_msg *msg)
{
    struct table_info info;

    TRY(table_spec_check(spec, msg)); /* the new name */
    if (spec->init_version < 1 || spec->init_version > INIT_ROWS_VERSION)
        return err_set(msg, EMBTIER_VERSION,
                       "table '%s' has initial values of version %u, this server knows 1 to %u",
                       spec->name, spec->init_version, INIT_ROWS_VERSION);
    if (tables_find(tables, spec->name, &info, NULL) == EMBTIER_OK)
        return err_set(
            msg, EMBTIER_EXISTS,
            "there is a table '%s': drop it first, or give the restored one another name",
            spec->name);
    return EMBTIER_OK;
}

static enum embtier_err restore_table(const struct checkpoint_shelf *shelf, struct tables *tables,
                                      const struct checkpoint_record *record,
                                      const struct catalog_table *from,
                                      const struct table_spec *spec,
                                      const struct progress_sink *progress,
                                      struct table_info *ret_info, struct err_msg *msg)
{
    struct restoring restoring = { .shelf = shelf, .record = record, .from = from };
    struct row_writer *writer = NULL;
    enum embtier_err err;

    TRY(tables_begin(tables, spec, ret_info, msg));
    err = tables_writer(tables, ret_info, &writer, msg);
    if (err == EMBTIER_OK)
        err = copy_rows(&restoring, writer, progress, msg);
    row_writer_free(writer);
    if (err != EMBTIER_OK) {
        tables_abandon(tables, ret_info, 1);
        return err;
    }
    log_info("table restored", "table=%s checkpoint=%" PRIu64 " rows=%" PRIu64, spec->name,
             record->info.id, restoring.rows);
    return EMBTIER_OK;
}

enum embtier_err checkpoint_restore(const struct checkpoint_shelf *shelf, struct tables *tables,
                                    const struct restore_order *order,
                                    const struct progress_sink *progress,
                                    struct restored_tables *ret_restored, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;
    _cleanup_(freep) const struct catalog_table **chosen = NULL;
    enum embtier_err err = EMBTIER_OK;
    uint32_t count = 0;

    TRY(checkpoint_read(shelf, order->id, &record, msg));
    TRY(checkpoint_catalog(shelf, record, &catalog, msg));
    TRY(choose(catalog, order, &chosen, &count, msg));
    for (uint32_t i = 0; i < count; i++) {
        const struct table_spec spec = spec_of(chosen[i], order);

        TRY(check_free(tables, &spec, msg));
    }
    ret_restored->infos = calloc((size_t)count + 1, sizeof(*ret_restored->infos));
    if (!ret_restored->infos)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < count && err == EMBTIER_OK; i++) {
        const struct table_spec spec = spec_of(chosen[i], order);

        err = restore_table(shelf, tables, record, chosen[i], &spec, progress,
                            &ret_restored->infos[i], msg);
        ret_restored->count += err == EMBTIER_OK;
    }
    if (err != EMBTIER_OK) {
        tables_abandon(tables, ret_restored->infos, ret_restored->count);
        ret_restored->count = 0;
    }
    return err;
}
