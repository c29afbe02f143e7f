/* SPDX-License-Identifier: Apache-2.0 */
/* tables.c: the registry, the lookup of a table by its handle, and the locks of the catalog. */
#include "daemon/engine/tables/tables_impl.h"

#include <search.h>
#include <stdlib.h>

#include "daemon/engine/memory/accounts.h"
#include "store/catalog.h"
#include "store/checkpoint/checkpoint_advice.h"
#include "store/store.h"

const char *table_state_word(uint32_t state)
{
    static const char *const words[] = { "free", "creating", "live", "dropping" };

    return state < ARRAY_LEN(words) ? words[state] : "unknown";
}

/* A waiting checkpoint goes before threads that come later, which would keep it waiting
 * otherwise. */
static void init_hold(pthread_rwlock_t *hold)
{
    pthread_rwlockattr_t attributes;

    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(hold, &attributes);
    pthread_rwlockattr_destroy(&attributes);
}

enum embtier_err tables_new(struct store *store, const struct row_routes *routes,
                            struct accounts *accounts, struct tables **ret_tables,
                            struct err_msg *msg)
{
    _cleanup_(tables_freep) struct tables *tables = calloc(1, sizeof(*tables));
    enum embtier_err err;

    if (!tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "tables: out of memory");
    pthread_mutex_init(&tables->lock, NULL);
    pthread_mutex_init(&tables->writing, NULL);
    init_hold(&tables->hold);
    tables->store = store;
    tables->routes = routes;
    tables->accounts = accounts;
    accounts_limit(accounts, ACCOUNT_TABLES, TABLES_LIMIT, 0);
    err = catalog_open(store_first_directory(store), &tables->catalog, msg);
    if (err == EMBTIER_CORRUPT)
        checkpoint_advise(store_shelf(store), msg);
    TRY(err);
    *ret_tables = TAKE(tables);
    return EMBTIER_OK;
}

void tables_tell_names(struct tables *tables, tables_name_fn *tell, void *context)
{
    tables->tell_name = tell;
    tables->tell_context = context;
}

static void keep(void *table)
{
    (void)table;
}

void tables_free(struct tables *tables)
{
    if (!tables)
        return;
    tdestroy(tables->names, keep);
    for (uint32_t i = 0; i < CHUNKS_MAX; i++)
        tables_free_chunk(atomic_load(&tables->chunks[i]));
    catalog_free(tables->catalog);
    free(tables->used);
    pthread_mutex_destroy(&tables->lock);
    pthread_mutex_destroy(&tables->writing);
    pthread_rwlock_destroy(&tables->hold);
    free(tables);
}

struct table *tables_at(struct tables *tables, uint16_t index)
{
    return &atomic_load_explicit(&tables->chunks[index / CHUNK_TABLES],
                                 memory_order_acquire)[index % CHUNK_TABLES];
}

struct table *tables_enter(struct tables *tables, uint64_t handle, uint32_t *ret_state)
{
    const uint32_t index = (uint32_t)handle;
    struct table *chunk;

    *ret_state = TABLE_FREE;
    if (index >= TABLES_LIMIT)
        return NULL;
    chunk = atomic_load_explicit(&tables->chunks[index / CHUNK_TABLES], memory_order_acquire);
    if (!chunk || !table_enter(&chunk[index % CHUNK_TABLES], (uint32_t)(handle >> 32), ret_state))
        return NULL;
    return &chunk[index % CHUNK_TABLES];
}
void tables_lock_catalog(struct tables *tables)
{
    pthread_rwlock_rdlock(&tables->hold);
    pthread_mutex_lock(&tables->writing);
}

void tables_unlock_catalog(struct tables *tables)
{
    pthread_mutex_unlock(&tables->writing);
    pthread_rwlock_unlock(&tables->hold);
}

void tables_hold(struct tables *tables)
{
    pthread_rwlock_wrlock(&tables->hold);
}

void tables_release(struct tables *tables)
{
    pthread_rwlock_unlock(&tables->hold);
}

enum embtier_err tables_catalog_copy(struct tables *tables, struct catalog **ret_catalog,
                                     struct err_msg *msg)
{
    struct catalog *copy;

    pthread_mutex_lock(&tables->writing);
    copy = catalog_dup(tables->catalog);
    pthread_mutex_unlock(&tables->writing);
    if (!copy)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    *ret_catalog = copy;
    return EMBTIER_OK;
}

/* Both lists are in order of table id. */
void tables_note_steps(struct tables *tables, struct catalog *catalog)
{
    uint32_t place = 0;

    pthread_mutex_lock(&tables->lock);
    for (uint32_t i = 0; i < catalog_count(catalog); i++) {
        const uint32_t table_id = catalog_at(catalog, i)->table_id;

        while (place < tables->used_count && tables->used[place].table_id < table_id)
            place++;
        if (place < tables->used_count && tables->used[place].table_id == table_id)
            catalog_set_step(catalog, i,
                             atomic_load(&tables_at(tables, tables->used[place].index)->step));
    }
    pthread_mutex_unlock(&tables->lock);
}

enum embtier_err tables_catalog_settle(struct tables *tables, struct catalog *copy,
                                       struct err_msg *msg)
{
    enum embtier_err err;

    pthread_mutex_lock(&tables->writing);
    err = catalog_settle(copy, tables->catalog, msg);
    pthread_mutex_unlock(&tables->writing);
    return err;
}
enum embtier_err tables_add_to_lanes(struct tables *tables, struct table *table,
                                     struct err_msg *msg)
{
    for (uint32_t i = 0; i < tables->lane_count; i++) {
        const enum embtier_err err = tables->rows->add(tables->lanes[i], table);

        if (err != EMBTIER_OK)
            return err_set(msg, err, "table '%s': its home has no room for rows of %u bytes: %s",
                           table->spec.name, table->row_bytes, err_text(err));
    }
    return EMBTIER_OK;
}

enum embtier_err tables_check_demand(const struct tables *tables, const struct store_demand *demand,
                                     const char *what, struct err_msg *msg)
{
    return store_check_demand(tables->store, demand, what, msg);
}

const struct catalog *tables_catalog(const struct tables *tables)
{
    return tables->catalog;
}

void tables_stop(struct tables *tables)
{
    atomic_store(&tables->stopping, true);
}
