/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/restore/checkpoint_restore.h"
#include "daemon/engine/tables/progress.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log/log.h"
#include "daemon/engine/tables/row_writer.h"
#include "daemon/jobs/transfer/transfer_memory.h"
#include "kernels/cpu/init/init_rows.h"
#include "store/catalog.h"
#include "store/checkpoint/checkpoint.h"
#include "store/checkpoint/checkpoint_advice.h"
#include "store/checkpoint/checkpoint_rows.h"
#include "store/store.h"
#include "store/store_identity.h"
#include "store/store_reserved.h"

/* Rows between two reports of progress. */
#define PROGRESS_ROWS 4096

void restore_order_clear(struct restore_order *order)
{
    for (uint32_t i = 0; order->names && i < order->name_count; i++)
        free(order->names[i]);
    free(order->names);
    free(order->new_name);
    *order = (struct restore_order){ 0 };
}

/* One table that is being restored. */
struct restoring {
    const struct checkpoint_shelf *shelf;
    const struct checkpoint_record *record;
    const struct catalog_table *from;
    uint64_t rows;
};

static struct store_row like_of(const struct catalog_table *table)
{
    return (struct store_row){ .table_id = table->table_id,
                               .weight_bytes = table_spec_weight_bytes(&table->spec),
                               .state_bytes = table_spec_state_bytes(&table->spec),
                               .logged = table->spec.durability != EMBTIER_DURABILITY_REPLAY };
}

static enum embtier_err copy_shard(struct restoring *restoring, uint32_t shard,
                                   struct row_writer *writer, const struct progress_sink *progress,
                                   struct err_msg *msg)
{
    const struct store_row like = like_of(restoring->from);
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
        if (checkpoint_record_has_rows(restoring->record, s))
            TRY(copy_shard(restoring, s, writer, progress, msg));
    }
    return row_writer_end(writer, msg);
}

static const struct catalog_table *find_live(const struct catalog *catalog, const char *name)
{
    const struct catalog_table *const table = catalog_find(catalog, name);

    return table && table->state == CATALOG_LIVE ? table : NULL;
}

static int compare_tables(const void *a, const void *b)
{
    const uintptr_t left = (uintptr_t) * (const struct catalog_table *const *)a;
    const uintptr_t right = (uintptr_t) * (const struct catalog_table *const *)b;

    return (left > right) - (left < right);
}

static enum embtier_err check_named_once(const struct catalog_table *const *chosen, uint32_t count,
                                         struct err_msg *msg)
{
    _cleanup_(freep) const struct catalog_table **sorted =
        calloc((size_t)count + 1, sizeof(*sorted));

    if (!sorted)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    memcpy(sorted, chosen, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare_tables);
    for (uint32_t i = 1; i < count; i++)
        if (sorted[i] == sorted[i - 1])
            return err_set(msg, EMBTIER_INVALID, "table '%s' is named twice", sorted[i]->spec.name);
    return EMBTIER_OK;
}

/* Chooses the tables of @order. @ret_chosen: malloced pointers into @catalog. */
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
            return err_set(msg, EMBTIER_NO_TABLE,
                           "checkpoint %" PRIu64
                           " has no table '%s': `embtier checkpoint show %" PRIu64
                           "` lists its tables",
                           order->id, order->names[i], order->id);
        if (table->state == CATALOG_LIVE)
            chosen[count++] = table;
    }
    if (order->name_count)
        TRY(check_named_once(chosen, count, msg));
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

static enum embtier_err check_spec(const struct table_spec *spec, struct err_msg *msg)
{
    TRY(table_spec_check(spec, msg)); /* the new name */
    return init_rows_check_version(spec, msg);
}

static enum embtier_err check_free(struct tables *tables, const struct table_spec *spec,
                                   struct err_msg *msg)
{
    struct table_info info;

    TRY(check_spec(spec, msg));
    if (tables_find(tables, spec->name, &info, NULL) == EMBTIER_OK)
        return err_set(msg, EMBTIER_EXISTS,
                       "table '%s' already exists: drop it first, or restore under another name",
                       spec->name);
    return EMBTIER_OK;
}

static enum embtier_err restore_table(struct restoring *restoring, struct tables *tables,
                                      const struct table_spec *spec,
                                      const struct table_owner *owner,
                                      const struct progress_sink *progress,
                                      struct table_info *ret_info, struct err_msg *msg)
{
    struct row_writer *writer = NULL;
    enum embtier_err err;

    TRY(tables_begin(tables, spec, owner, TABLE_PLACED_AS_CAN_BE, ret_info, msg));
    err = tables_writer(tables, ret_info, progress, &writer, msg);
    if (err == EMBTIER_OK)
        err = copy_rows(restoring, writer, progress, msg);
    row_writer_free(writer);
    if (err != EMBTIER_OK) {
        tables_abandon(tables, ret_info, 1);
        return err;
    }
    log_info("table restored", "table=%s checkpoint=%" PRIu64 " rows=%" PRIu64, spec->name,
             restoring->record->info.id, restoring->rows);
    return EMBTIER_OK;
}

/* Returns the memory that a restore needs: as much as the largest shard of a table, because tables
 * and shards come one after the other. */
static uint64_t memory_bytes(const struct tables *tables, const struct checkpoint_record *record,
                             const struct catalog_table *const *chosen, uint32_t count)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct store_row like = like_of(chosen[i]);
        const uint64_t row_bytes = (uint64_t)like.weight_bytes + like.state_bytes;
        uint64_t shard_bytes = 0;

        for (uint32_t s = 0; s < record->shard_count; s++)
            shard_bytes = MAX(shard_bytes, checkpoint_rows_bytes(record, s, &like));
        most = MAX(most, SCAN_BYTES + shard_bytes + tables_writer_bytes(tables, row_bytes));
    }
    return most;
}

/* Estimates how many rows a table has in all shards of a checkpoint. */
static enum embtier_err count_rows(const struct restoring *what, const struct catalog_table *from,
                                   const struct progress_sink *progress, uint64_t *ret_rows,
                                   struct err_msg *msg)
{
    const struct store_row like = like_of(from);
    uint64_t count = 0;

    for (uint32_t s = 0; s < what->record->shard_count; s++) {
        _cleanup_(checkpoint_rows_freep) struct checkpoint_rows *rows = NULL;

        if (!checkpoint_record_has_rows(what->record, s))
            continue;
        TRY(progress_look(progress, msg));
        TRY(checkpoint_rows_open(what->shelf, what->record, s, &like, NULL, &rows, msg));
        count += checkpoint_rows_sample(rows);
    }
    *ret_rows = from->spec.rows == EMBTIER_UNBOUNDED ? count : MIN(count, from->spec.rows);
    return EMBTIER_OK;
}

/* Checks that the tables have room, before hours are spent on a part of them. Counts their rows
 * only if the whole checkpoint would not have room. */
static enum embtier_err check_room(const struct restoring *what, const struct tables *tables,
                                   const struct catalog_table *const *chosen, uint32_t count,
                                   const struct progress_sink *progress, struct err_msg *msg)
{
    struct store_demand demand = { .bytes = what->record->info.bytes,
                                   .log_bytes = what->record->info.bytes };
    char words[128];

    if (tables_check_demand(tables, &demand, "", NULL) == EMBTIER_OK)
        return EMBTIER_OK;
    demand = (struct store_demand){ 0 };
    for (uint32_t i = 0; i < count; i++) {
        const struct store_row like = like_of(chosen[i]);
        uint64_t rows = 0;

        TRY(count_rows(what, chosen[i], progress, &rows, msg));
        store_demand_add(&demand, rows, (uint64_t)like.weight_bytes + like.state_bytes,
                         like.logged);
    }
    snprintf(words, sizeof(words),
             "no space to restore %" PRIu32 " table%s of checkpoint %" PRIu64 ", about %" PRIu64
             " rows",
             count, PLURAL(count), what->record->info.id, demand.row_count);
    return tables_check_demand(tables, &demand, words, msg);
}

static struct table_owner owner_of(const struct catalog_table *table,
                                   const struct restore_order *order)
{
    return order->keeps_owners ? (struct table_owner){ .uid = table->owner, .had_it = true }
                               : (struct table_owner){ .uid = order->uid };
}

static enum embtier_err restore_all(const struct restoring *what, struct tables *tables,
                                    const struct restore_order *order,
                                    const struct catalog_table *const *chosen, uint32_t count,
                                    const struct progress_sink *progress,
                                    struct restored_tables *restored, struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;

    restored->infos = calloc((size_t)count + 1, sizeof(*restored->infos));
    if (!restored->infos)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < count && err == EMBTIER_OK; i++) {
        const struct table_spec spec = spec_of(chosen[i], order);
        const struct table_owner owner = owner_of(chosen[i], order);
        struct restoring restoring = *what;

        restoring.from = chosen[i];
        err = restore_table(&restoring, tables, &spec, &owner, progress, &restored->infos[i], msg);
        restored->count += err == EMBTIER_OK;
    }
    if (err != EMBTIER_OK) {
        tables_abandon(tables, restored->infos, restored->count);
        restored->count = 0;
    }
    return err;
}

enum embtier_err checkpoint_restore(const struct checkpoint_shelf *shelf, struct tables *tables,
                                    struct transfer_memory *memory,
                                    const struct restore_order *order,
                                    const struct progress_sink *progress,
                                    struct restored_tables *ret_restored, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;
    _cleanup_(freep) const struct catalog_table **chosen = NULL;
    struct restoring restoring = { .shelf = shelf };
    struct transfer_share share = { 0 };
    uint32_t count = 0;
    enum embtier_err err;

    TRY(checkpoint_read(shelf, order->id, &record, msg));
    TRY(checkpoint_catalog(shelf, record, &catalog, msg));
    TRY(choose(catalog, order, &chosen, &count, msg));
    for (uint32_t i = 0; i < count; i++) {
        const struct table_spec spec = spec_of(chosen[i], order);

        TRY(check_free(tables, &spec, msg));
    }
    TRY(tables_check_owner(
        tables, &(struct table_owner){ .uid = order->uid, .had_it = order->keeps_owners }, count,
        msg));
    TRY(transfer_memory_take(memory, order->uid, memory_bytes(tables, record, chosen, count),
                             "the restore", &share, msg));
    restoring.record = record;
    err = check_room(&restoring, tables, chosen, count, progress, msg);
    if (err == EMBTIER_OK)
        err = restore_all(&restoring, tables, order, chosen, count, progress, ret_restored, msg);
    malloc_trim(0);
    transfer_memory_give(memory, &share);
    return err;
}

/* ---- Another store's ---- */

/* @id 0: the newest. */
static enum embtier_err find_other(const struct checkpoint_shelf *shelf, uint64_t id,
                                   struct checkpoint_record **ret_record, struct err_msg *msg)
{
    if (id != 0)
        return checkpoint_read_named(shelf, id, ret_record, msg);
    TRY(checkpoint_read_newest(shelf, ret_record, msg));
    return *ret_record ? EMBTIER_OK
                       : err_set(msg, EMBTIER_NOT_FOUND,
                                 "%s: has no checkpoint; start its server and make one with "
                                 "`embtier checkpoint create`",
                                 store_identity_directory(shelf->identity, 0));
}

static enum embtier_err check_other(const struct other_checkpoint *other,
                                    const struct catalog *mine, struct err_msg *msg)
{
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;

    TRY(checkpoint_catalog(&other->shelf, other->record, &catalog, msg));
    for (uint32_t i = 0; i < catalog_count(catalog); i++) {
        const struct catalog_table *const table = catalog_at(catalog, i);

        if (table->state != CATALOG_LIVE)
            continue;
        TRY(check_spec(&table->spec, msg));
        if (mine && find_live(mine, table->spec.name))
            return err_set(
                msg, EMBTIER_EXISTS,
                "table '%s' already exists: --restore-from makes all tables of the checkpoint, or "
                "none; start without it if it has made them before, or to drop that table first",
                table->spec.name);
    }
    return EMBTIER_OK;
}

enum embtier_err other_checkpoint_open(char *const *directories, uint32_t directory_count,
                                       uint64_t id, const struct catalog *mine,
                                       struct other_checkpoint *ret_other, struct err_msg *msg)
{
    _cleanup_(other_checkpoint_close) struct other_checkpoint other = { 0 };

    TRY(store_identity_open_other(directories, directory_count, &other.identity,
                                  &other.shelf.shards_per_directory, msg));
    other.shelf.identity = other.identity;
    TRY(find_other(&other.shelf, id, &other.record, msg));
    TRY(check_other(&other, mine, msg));
    *ret_other = other;
    other = (struct other_checkpoint){ 0 };
    return EMBTIER_OK;
}

void other_checkpoint_close(struct other_checkpoint *other)
{
    checkpoint_record_free(other->record);
    store_identity_free(other->identity);
    *other = (struct other_checkpoint){ 0 };
}
