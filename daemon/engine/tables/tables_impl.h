/* SPDX-License-Identifier: Apache-2.0 */
/* tables_impl.h: how tables are kept, for the files that implement tables.h: tables.c (registry,
 * lookup, locks), table_structs.c (structs in use, and their names), tables_create.c,
 * tables_drop.c, tables_list.c, tables_load.c and tables_move.c. */
#ifndef EMBTIER_DAEMON_ENGINE_TABLES_TABLES_IMPL_H
#define EMBTIER_DAEMON_ENGINE_TABLES_TABLES_IMPL_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"
#include "tiers/cache/row_cache.h"

struct account;
struct table_arrays;
struct catalog_table;

#define CHUNK_TABLES 256
#define CHUNKS_MAX   256
#define TABLES_LIMIT (ROW_CACHE_TABLES_MAX - 1)

struct tables {
    struct store *store;
    const struct row_routes *routes;
    struct accounts *accounts;
    tables_name_fn *tell_name; /* or NULL */
    void *tell_context;
    struct table_arrays *arrays;
    const struct tables_rows *rows; /* the lanes' shares of every table */
    struct lane *const *lanes;
    uint32_t lane_count;

    /* Read-held by threads that change the catalog, or write rows of a table that is being made.
     * Write-held by a checkpoint while it takes its point. Taken before the other locks. */
    pthread_rwlock_t hold;
    pthread_mutex_t writing; /* guards the catalog, written to disk under it; before `lock` */
    struct catalog *catalog;
    /* Guards the list of structs in use, and their names. No thread holds it while it waits for a
     * disk. Threads that only look, such as the control thread, take this one alone. */
    pthread_mutex_t lock;
    _Atomic bool stopping;
    struct tables_totals dropped; /* locked; keeps the sums over tables from falling */
    /* Locked: the structs in use, in order of table id. No struct below first_free is free. */
    struct struct_ref {
        uint32_t table_id;
        uint16_t index;
    } * used;
    uint32_t used_count;
    uint32_t used_capacity;
    uint32_t first_free;
    void *names; /* locked: a tree (tsearch) of the structs that have not given their name away */

    /* Made on demand, never freed before the end: see table.h. */
    _Atomic(struct table *) chunks[CHUNKS_MAX];
};

/* True if a table in state @from may change to state @to. A creation that has failed drops the
 * table, and may do so again if the first drop has failed. */
static inline bool table_may_become(uint32_t from, enum table_state to)
{
    switch (to) {
    case TABLE_FREE:
        return from == TABLE_DROPPING;
    case TABLE_CREATING:
        return from == TABLE_FREE;
    case TABLE_LIVE:
        return from == TABLE_CREATING;
    case TABLE_DROPPING:
        return from != TABLE_FREE;
    }
    return false;
}

static inline void table_set_state(struct table *table, enum table_state to)
{
    assert(table_may_become(atomic_load(&table->state), to));
    atomic_store(&table->state, (uint32_t)to);
}

/* ---- tables.c ---- */

/* Held while the catalog is changed. */
void tables_lock_catalog(struct tables *tables);
void tables_unlock_catalog(struct tables *tables);
MUST_CHECK enum embtier_err tables_add_to_lanes(struct tables *tables, struct table *table,
                                                struct err_msg *msg);

/* ---- table_structs.c ---- */

/* Locked. True if @table_id is in use. *@ret_place is its place in `used`, or where it would be. */
bool tables_find_used(const struct tables *tables, uint32_t table_id, uint32_t *ret_place);
/* Locked. Returns the table of this name that has not given it away, or NULL. */
struct table *tables_struct_named(struct tables *tables, const char *name);
void tables_give_name_away(struct tables *tables, const struct table *table);
/* Locked. Returns an unused struct, or NULL if there is none, or no memory. The struct stays unused
 * until tables_fill_struct(). While the catalog is locked, no other thread takes it. */
struct table *tables_take_struct(struct tables *tables);
/* Locked. Fills in a struct of tables_take_struct(), which has also made room in the list of those
 * in use. Takes over @account, which is open, and @array, the memory of the rows if their home is
 * an array. False: there is no memory for the name, and both stay the caller's. */
MUST_CHECK bool tables_fill_struct(struct tables *tables, struct table *table, uint32_t table_id,
                                   const struct table_spec *spec, struct account **account,
                                   struct row_array *array);
/* Locked. Also gives back the table's name, account and array. */
void tables_free_struct(struct tables *tables, struct table *table);
struct table *tables_find_struct(struct tables *tables, uint32_t table_id);
/* Returns the error of a tables_take_struct() that found none. */
static inline enum embtier_err tables_no_struct(struct tables *tables, struct err_msg *msg)
{
    bool is_full;

    pthread_mutex_lock(&tables->lock);
    is_full = tables->used_count >= TABLES_LIMIT;
    pthread_mutex_unlock(&tables->lock);
    if (!is_full)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return err_set(
        msg, EMBTIER_TOO_LARGE,
        "there are %u tables, the most that a server can have: drop some (`embtier table drop`)",
        TABLES_LIMIT);
}
/* Refuses a request about a table that does not exist. */
static inline enum embtier_err tables_no_table(const char *name, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_TABLE,
                   "there is no table '%s': `embtier table list` lists those that exist", name);
}
/* Returns the account of the user @owner, open; NULL: out of memory. */
struct account *tables_open_owner(struct tables *tables, uid_t owner);

/* ---- tables_list.c ---- */

/* Returns all but `written`, which takes a lock of the store's. */
struct table_info tables_info_of(const struct tables *tables, struct table *table);
/* Frees the structs of a chunk, which may be NULL. */
void tables_free_chunk(struct table *chunk);
void tables_totals_add(struct tables_totals *totals, struct table *table);

/* ---- tables_drop.c ---- */

/* Removes the rows of a table that takes no new requests any more. Not locked, since it may take
 * long. */
MUST_CHECK enum embtier_err tables_drop_rows(struct tables *tables, struct table *table,
                                             const struct progress_sink *sink, struct err_msg *msg);
MUST_CHECK enum embtier_err
tables_drop_stored_rows(struct tables *tables, const struct table_spec *spec, uint32_t table_id,
                        const struct progress_sink *sink, struct err_msg *msg);
/* Removes a table from the catalog. Its rows are gone. */
MUST_CHECK enum embtier_err tables_drop_finish(struct tables *tables, uint32_t table_id,
                                               struct err_msg *msg);
/* Catalog locked. True if @entry is left of a creation that failed. Nothing will come of it; it
 * keeps its name only because the catalog could not be written. */
bool tables_is_left_over(struct tables *tables, const struct catalog_table *entry);

#endif
