/* SPDX-License-Identifier: Apache-2.0 */
/* table_structs.c: the table structs in use, in order of table id, and their names. */
#include "daemon/engine/tables/tables_impl.h"

#include <assert.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/tables/table_arrays.h"
#include "daemon/engine/tables/table_counts.h"
#include "store/catalog.h"

bool tables_find_used(const struct tables *tables, uint32_t table_id, uint32_t *ret_place)
{
    uint32_t low = 0, high = tables->used_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (tables->used[middle].table_id < table_id)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_place = low;
    return low < tables->used_count && tables->used[low].table_id == table_id;
}

/* Locked. */
static bool grow_used(struct tables *tables)
{
    const uint32_t capacity = MAX(2 * tables->used_capacity, (uint32_t)CHUNK_TABLES);
    struct struct_ref *used;

    if (tables->used_count < tables->used_capacity)
        return true;
    used = realloc(tables->used, capacity * sizeof(*used));
    if (!used)
        return false;
    tables->used = used;
    tables->used_capacity = capacity;
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct table *)a)->spec.name, ((const struct table *)b)->spec.name);
}

struct table *tables_struct_named(struct tables *tables, const char *name)
{
    struct table named;
    struct table **found;

    snprintf(named.spec.name, sizeof(named.spec.name), "%s", name);
    found = tfind(&named, &tables->names, compare_names);
    return found ? *found : NULL;
}

/* Locked. Frees the name, if it is still the table's. */
static void forget_name(struct tables *tables, const struct table *table)
{
    struct table **const found = tfind(table, &tables->names, compare_names);

    if (found && *found == table)
        tdelete(table, &tables->names, compare_names);
}

void tables_give_name_away(struct tables *tables, const struct table *table)
{
    pthread_mutex_lock(&tables->lock);
    forget_name(tables, table);
    pthread_mutex_unlock(&tables->lock);
}

/* Makes the structs of a chunk, with their lanes' counts. NULL: out of memory. */
static struct table *new_chunk(const struct tables *tables)
{
    const uint64_t bytes =
        (uint64_t)CHUNK_TABLES * tables->lane_count * sizeof(struct table_counts);
    struct table *const chunk = calloc(CHUNK_TABLES, sizeof(*chunk));
    struct table_counts *const counts =
        chunk ? aligned_alloc(_Alignof(struct table_counts), bytes) : NULL;

    if (!counts) {
        free(chunk);
        return NULL;
    }
    memset(counts, 0, bytes);
    for (uint32_t i = 0; i < CHUNK_TABLES; i++)
        chunk[i].counts = counts + (size_t)i * tables->lane_count;
    return chunk;
}

void tables_free_chunk(struct table *chunk)
{
    if (chunk)
        free(chunk[0].counts); /* and those of the others */
    free(chunk);
}

struct table *tables_take_struct(struct tables *tables)
{
    if (!grow_used(tables))
        return NULL;
    for (uint32_t index = tables->first_free; index < TABLES_LIMIT; index++) {
        struct table *chunk = atomic_load(&tables->chunks[index / CHUNK_TABLES]);
        struct table *table;

        if (!chunk) {
            chunk = new_chunk(tables);
            if (!chunk)
                return NULL;
            atomic_store_explicit(&tables->chunks[index / CHUNK_TABLES], chunk,
                                  memory_order_release);
        }
        table = &chunk[index % CHUNK_TABLES];
        if (atomic_load(&table->state) == TABLE_FREE) {
            table->index = (uint16_t)index;
            tables->first_free = index;
            return table;
        }
    }
    return NULL;
}

bool tables_fill_struct(struct tables *tables, struct table *table, uint32_t table_id,
                        const struct table_spec *spec, struct account **account,
                        struct row_array *array)
{
    uint32_t place;
    bool is_used;

    table->spec = *spec;
    if (!tsearch(table, &tables->names, compare_names))
        return false;
    account_add(*account, ACCOUNT_TABLES, 1);
    table->account = TAKE(*account);
    atomic_store(&table->home, (uint8_t)spec->home);
    atomic_store(&table->move, (uint8_t)TABLE_STAYS);
    table->array = array;
    table->weight_bytes = table_spec_weight_bytes(spec);
    table->state_bytes = table_spec_state_bytes(spec);
    table->row_bytes = table->weight_bytes + table->state_bytes;
    table->logged = spec->durability != EMBTIER_DURABILITY_REPLAY;
    atomic_store(&table->step, spec->step);
    atomic_store(&table->updated_rows, 0);
    atomic_store(&table->initial_bytes, 0);
    atomic_store(&table->rows_initialised, 0);
    memset(table->counts, 0, tables->lane_count * sizeof(*table->counts));
    atomic_store(&table->table_id, table_id);
    if (tables->tell_name) /* the state, set later, lets lanes see what this has changed */
        tables->tell_name(tables->tell_context, table->index, spec->name);
    table_set_state(table, TABLE_CREATING);
    is_used = tables_find_used(tables, table_id, &place);
    assert(!is_used && tables->used_count < tables->used_capacity);
    (void)is_used;
    memmove(&tables->used[place + 1], &tables->used[place],
            (tables->used_count - place) * sizeof(*tables->used));
    tables->used[place] = (struct struct_ref){ table_id, table->index };
    tables->used_count++;
    return true;
}

void tables_free_struct(struct tables *tables, struct table *table)
{
    uint32_t place;

    if (tables_find_used(tables, atomic_load(&table->table_id), &place)) {
        tables->used_count--;
        memmove(&tables->used[place], &tables->used[place + 1],
                (tables->used_count - place) * sizeof(*tables->used));
    }
    forget_name(tables, table);
    account_give(table->account, ACCOUNT_TABLES, 1);
    account_close(TAKE(table->account));
    table_arrays_give(tables->arrays, TAKE(table->array));
    tables->first_free = MIN(tables->first_free, (uint32_t)table->index);
    table_set_state(table, TABLE_FREE);
}

struct table *tables_find_struct(struct tables *tables, uint32_t table_id)
{
    struct table *table = NULL;
    uint32_t place;

    pthread_mutex_lock(&tables->lock);
    if (tables_find_used(tables, table_id, &place))
        table = tables_at(tables, tables->used[place].index);
    pthread_mutex_unlock(&tables->lock);
    return table;
}

struct account *tables_open_owner(struct tables *tables, uid_t owner)
{
    return account_open(tables->accounts, owner == CATALOG_NOBODY ? geteuid() : owner);
}
