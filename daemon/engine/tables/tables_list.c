/* SPDX-License-Identifier: Apache-2.0 */
/* tables_list.c: finding, listing and counting tables, for the control thread. Nothing here waits
 * for a disk. */
#include "daemon/engine/tables/tables_impl.h"

#include <stdlib.h>

#include "daemon/engine/tables/table_counts.h"
#include "store/store.h"

static struct table_lookups add_up_lookups(const struct tables *tables, const struct table *table)
{
    struct table_lookups sum = { 0 };

    for (uint32_t i = 0; i < tables->lane_count; i++) {
        const struct table_counts *const counts = table_counts_of(table, i);

        sum.rows += counter_get(&counts->lookups);
        sum.missed_rows += counter_get(&counts->missed);
        sum.read_rows += counter_get(&counts->read);
        sum.lane_ns += counter_get(&counts->ns);
    }
    return sum;
}

struct table_info tables_info_of(const struct tables *tables, struct table *table)
{
    struct table_info info = {
        .handle = table_handle(table),
        .table_id = atomic_load(&table->table_id),
        .state = atomic_load(&table->state),
        .spec = table->spec,
        .updated_rows = atomic_load_explicit(&table->updated_rows, memory_order_relaxed),
        .lookups = add_up_lookups(tables, table),
        .initial_bytes = atomic_load_explicit(&table->initial_bytes, memory_order_relaxed),
    };

    info.spec.step = atomic_load(&table->step);
    return info;
}

/* Not locked, since it takes a lock of the store's. */
static void add_written(const struct tables *tables, struct table_info *infos, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        store_written(tables->store, infos[i].table_id, &infos[i].written);
}

enum embtier_err tables_find(struct tables *tables, const char *name, struct table_info *ret_info,
                             struct err_msg *msg)
{
    struct table *found;

    pthread_mutex_lock(&tables->lock);
    found = tables_struct_named(tables, name);
    if (found)
        *ret_info = tables_info_of(tables, found);
    pthread_mutex_unlock(&tables->lock);
    if (!found)
        return tables_no_table(name, msg);
    add_written(tables, ret_info, 1);
    return EMBTIER_OK;
}

enum embtier_err tables_page(struct tables *tables, uint32_t after, uint32_t most,
                             struct table_info **ret_infos, uint32_t *ret_count, bool *ret_more)
{
    struct table_info *const infos = calloc((size_t)most + 1, sizeof(*infos));
    uint32_t count = 0, place = 0;

    if (!infos)
        return EMBTIER_NO_MEMORY;
    pthread_mutex_lock(&tables->lock);
    if (tables_find_used(tables, after, &place))
        place++;
    for (; place < tables->used_count && count < most; place++)
        infos[count++] = tables_info_of(tables, tables_at(tables, tables->used[place].index));
    *ret_more = place < tables->used_count;
    pthread_mutex_unlock(&tables->lock);
    add_written(tables, infos, count);
    *ret_infos = infos;
    *ret_count = count;
    return EMBTIER_OK;
}

void tables_totals_add(struct tables_totals *totals, struct table *table)
{
    totals->rows_initialised +=
        atomic_load_explicit(&table->rows_initialised, memory_order_relaxed);
    totals->updated_bytes +=
        atomic_load_explicit(&table->updated_rows, memory_order_relaxed) * table->row_bytes;
}

uint32_t tables_count_of(struct tables *tables, enum embtier_durability durability)
{
    uint32_t count = 0;

    pthread_mutex_lock(&tables->lock);
    for (uint32_t i = 0; i < tables->used_count; i++) {
        const struct table *const table = tables_at(tables, tables->used[i].index);

        count +=
            atomic_load(&table->state) != TABLE_DROPPING && table->spec.durability == durability;
    }
    pthread_mutex_unlock(&tables->lock);
    return count;
}

uint32_t tables_count(struct tables *tables)
{
    uint32_t count = 0;

#define X(name, number, word, text) count += tables_count_of(tables, EMBTIER_DURABILITY_##name);
    EMBTIER_DURABILITY_TABLE(X)
#undef X
    return count;
}

struct tables_totals tables_totals(struct tables *tables)
{
    struct tables_totals totals;

    pthread_mutex_lock(&tables->lock);
    totals = tables->dropped;
    for (uint32_t i = 0; i < CHUNKS_MAX; i++) {
        struct table *const chunk = atomic_load(&tables->chunks[i]);

        for (uint32_t j = 0; chunk && j < CHUNK_TABLES; j++)
            if (atomic_load(&chunk[j].state) != TABLE_FREE)
                tables_totals_add(&totals, &chunk[j]);
    }
    pthread_mutex_unlock(&tables->lock);
    return totals;
}
