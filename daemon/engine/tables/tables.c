/* SPDX-License-Identifier: Apache-2.0 */
/* Making a table: catalog first (CREATING), then the lanes' caches, then eager rows, then catalog
 * and state LIVE. Dropping one: state and catalog DROPPING, wait for the requests under way, purge
 * the lanes, drop the rows, catalog. A crash in the middle of either leaves CREATING or DROPPING in
 * the catalog, and the next start drops the table. When it cannot, such as on a full disk, the
 * entry stays as it is for the start after that, and all other tables are served: it has no struct,
 * so no lane knows it; its name is free; its id is never used again. */
#include "daemon/engine/tables/tables.h"
#include "daemon/engine/tables/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/log/log.h"
#include "base/row_hash.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/tables/row_writer.h"
#include "daemon/engine/tables/table.h"
#include "kernels/cpu/init/init_rows.h"
#include "store/catalog.h"
#include "store/checkpoint/checkpoint_advice.h"
#include "store/store.h"
#include "tiers/cache/row_cache.h"

#define CHUNK_TABLES 256
#define CHUNKS_MAX   256
#define TABLES_LIMIT (ROW_CACHE_TABLES_MAX - 1)

#define PROGRESS_ROWS 8192

/* A catalog that is not written at a stop costs the steps of tables. */
#define FOLD_TRIES    10
#define FOLD_PAUSE_NS 200000000L

struct tables {
    struct store *store;
    struct accounts *accounts;
    const struct tables_rows *rows; /* the lanes' shares of every table */
    struct lane *const *lanes;
    uint32_t lane_count;

    /* Shared by who changes the catalog or writes rows of a table that is being made; whole: a
     * checkpoint's, while it takes its point. Taken before the others. */
    pthread_rwlock_t hold;
    pthread_mutex_t writing; /* the catalog, which is written to disk under it; before the lock */
    struct catalog *catalog;
    /* Which structs are in use, and their names. Never held while anything waits for a disk:
     * whoever only looks, such as the control thread, takes this one alone. */
    pthread_mutex_t lock;
    _Atomic bool stopping;
    struct tables_totals dropped; /* locked; so that the sums over tables never fall */
    /* Locked: of the structs in use, in order of table id, and below which none is free. */
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

const char *table_state_word(uint32_t state)
{
    static const char *const words[] = { "free", "creating", "live", "dropping" };

    return state < ARRAY_LEN(words) ? words[state] : "unknown";
}

/* A checkpoint that waits goes before those who come later: else they would keep it waiting. */
static void init_hold(pthread_rwlock_t *hold)
{
    pthread_rwlockattr_t attributes;

    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(hold, &attributes);
    pthread_rwlockattr_destroy(&attributes);
}

enum embtier_err tables_new(struct store *store, struct accounts *accounts,
                            struct tables **ret_tables, struct err_msg *msg)
{
    _cleanup_(tables_freep) struct tables *tables = calloc(1, sizeof(*tables));
    enum embtier_err err;

    if (!tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "tables: out of memory");
    pthread_mutex_init(&tables->lock, NULL);
    pthread_mutex_init(&tables->writing, NULL);
    init_hold(&tables->hold);
    tables->store = store;
    tables->accounts = accounts;
    accounts_limit(accounts, ACCOUNT_TABLES, TABLES_LIMIT, 0);
    err = catalog_open(store_first_directory(store), &tables->catalog, msg);
    if (err == EMBTIER_CORRUPT)
        checkpoint_advise(store_shelf(store), msg);
    TRY(err);
    *ret_tables = TAKE(tables);
    return EMBTIER_OK;
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
        free(atomic_load(&tables->chunks[i]));
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

/* ---- The catalog ---- */

/* To change it. */
static void lock_catalog(struct tables *tables)
{
    pthread_rwlock_rdlock(&tables->hold);
    pthread_mutex_lock(&tables->writing);
}

static void unlock_catalog(struct tables *tables)
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

/* Both are in order of table id. */
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

/* ---- Table structs ---- */

/* Locked. Where a table's number is among those in use, or would be. */
static bool find_used(const struct tables *tables, uint32_t table_id, uint32_t *ret_place)
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

/* Locked. The name is free. */
static void forget_name(struct tables *tables, const struct table *table)
{
    struct table **const found = tfind(table, &tables->names, compare_names);

    if (found && *found == table)
        tdelete(table, &tables->names, compare_names);
}

static void give_name_away(struct tables *tables, const struct table *table)
{
    pthread_mutex_lock(&tables->lock);
    forget_name(tables, table);
    pthread_mutex_unlock(&tables->lock);
}

/* Locked. An unused struct, or NULL: there is none, or no memory. Only fill_struct() takes it;
 * while the catalog is locked, nobody else does. */
static struct table *take_struct(struct tables *tables)
{
    if (!grow_used(tables))
        return NULL;
    for (uint32_t index = tables->first_free; index < TABLES_LIMIT; index++) {
        struct table *chunk = atomic_load(&tables->chunks[index / CHUNK_TABLES]);
        struct table *table;

        if (!chunk) {
            chunk = calloc(CHUNK_TABLES, sizeof(*chunk));
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

/* Locked. There is room in the list of those in use: take_struct() has made it. @account, which is
 * open, is taken over. False: there is no memory for the name, and nobody has taken it. */
MUST_CHECK static bool fill_struct(struct tables *tables, struct table *table, uint32_t table_id,
                                   const struct table_spec *spec, struct account **account)
{
    uint32_t place;

    table->spec = *spec;
    if (!tsearch(table, &tables->names, compare_names))
        return false;
    account_add(*account, ACCOUNT_TABLES, 1);
    table->account = TAKE(*account);
    table->weight_bytes = table_spec_weight_bytes(spec);
    table->state_bytes = table_spec_state_bytes(spec);
    table->row_bytes = table->weight_bytes + table->state_bytes;
    table->logged = spec->durability != EMBTIER_DURABILITY_REPLAY;
    atomic_store(&table->step, spec->step);
    atomic_store(&table->updated_rows, 0);
    atomic_store(&table->rows_initialised, 0);
    atomic_store(&table->table_id, table_id);
    atomic_store(&table->state, TABLE_CREATING);
    (void)find_used(tables, table_id, &place); /* it is not there */
    memmove(&tables->used[place + 1], &tables->used[place],
            (tables->used_count - place) * sizeof(*tables->used));
    tables->used[place] = (struct struct_ref){ table_id, table->index };
    tables->used_count++;
    return true;
}

/* Locked. */
static void free_struct(struct tables *tables, struct table *table)
{
    uint32_t place;

    if (find_used(tables, atomic_load(&table->table_id), &place)) {
        tables->used_count--;
        memmove(&tables->used[place], &tables->used[place + 1],
                (tables->used_count - place) * sizeof(*tables->used));
    }
    forget_name(tables, table);
    account_give(table->account, ACCOUNT_TABLES, 1);
    account_close(TAKE(table->account));
    tables->first_free = MIN(tables->first_free, (uint32_t)table->index);
    atomic_store(&table->state, TABLE_FREE);
}

static struct table *find_struct(struct tables *tables, uint32_t table_id)
{
    struct table *table = NULL;
    uint32_t place;

    pthread_mutex_lock(&tables->lock);
    if (find_used(tables, table_id, &place))
        table = tables_at(tables, tables->used[place].index);
    pthread_mutex_unlock(&tables->lock);
    return table;
}

static struct table_info info_of(struct table *table)
{
    struct table_info info = {
        .handle = table_handle(table),
        .table_id = atomic_load(&table->table_id),
        .state = atomic_load(&table->state),
        .spec = table->spec,
        .updated_rows = atomic_load_explicit(&table->updated_rows, memory_order_relaxed),
    };

    info.spec.step = atomic_load(&table->step);
    return info;
}

/* Takes a lock of the store's, so not locked. */
static void add_written(const struct tables *tables, struct table_info *infos, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        store_written(tables->store, infos[i].table_id, &infos[i].written);
}

static void totals_add(struct tables_totals *totals, struct table *table)
{
    totals->rows_initialised +=
        atomic_load_explicit(&table->rows_initialised, memory_order_relaxed);
    totals->updated_bytes +=
        atomic_load_explicit(&table->updated_rows, memory_order_relaxed) * table->row_bytes;
}

/* ---- Dropping ---- */

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
    /* Nobody, on no lane, knows the number any more. Locked, so that the rows of the table are in
     * one of the two sums. */
    pthread_mutex_lock(&tables->lock);
    totals_add(&tables->dropped, table);
    free_struct(tables, table);
    pthread_mutex_unlock(&tables->lock);
    return EMBTIER_OK;
}

static enum embtier_err drop_stored_rows(struct tables *tables, const struct table_spec *spec,
                                         uint32_t table_id, const struct progress_sink *sink,
                                         struct err_msg *msg)
{
    struct shard_progress progress = { .sink = sink };
    struct err_msg why = { { 0 } };
    const enum embtier_err err =
        store_drop_table(tables->store, table_id, spec->durability != EMBTIER_DURABILITY_REPLAY,
                         report_shards, &progress, &tables->stopping, &why);

    return err == EMBTIER_OK ? EMBTIER_OK : rows_stay(spec->name, err, why.text, msg);
}

/* The table takes no new requests any more. Not locked: this takes as long as it takes. */
static enum embtier_err drop_rows(struct tables *tables, struct table *table,
                                  const struct progress_sink *sink, struct err_msg *msg)
{
    /* Copied: the struct is another table's as soon as the cached rows are gone. */
    const struct table_info info = info_of(table);

    TRY(drop_cached_rows(tables, table, msg));
    return drop_stored_rows(tables, &info.spec, info.table_id, sink, msg);
}

static enum embtier_err drop_finish(struct tables *tables, uint32_t table_id, struct err_msg *msg)
{
    enum embtier_err err;

    lock_catalog(tables);
    err = catalog_remove(tables->catalog, table_id, msg);
    unlock_catalog(tables);
    return err;
}

/* Catalog locked. Whether @entry is left of a creation that failed: nothing will come of it, and it
 * keeps its name only because the catalog could not be written. */
static bool is_left_over(struct tables *tables, const struct catalog_table *entry)
{
    const struct table *table;

    if (entry->state != CATALOG_CREATING)
        return false;
    table = find_struct(tables, entry->table_id);
    return !table || atomic_load(&table->state) == TABLE_DROPPING;
}

/* Part of a drop with the catalog locked: from here on the name is free and the table takes no
 * requests. */
static enum embtier_err drop_begin(struct tables *tables, const char *name,
                                   struct table **ret_table, struct err_msg *msg)
{
    const struct catalog_table *const entry = catalog_find(tables->catalog, name);
    struct table *table;
    uint32_t table_id;

    if (!entry || is_left_over(tables, entry))
        return err_set(msg, EMBTIER_NO_TABLE, "there is no table '%s'", name);
    if (entry->state == CATALOG_CREATING)
        return err_set(msg, EMBTIER_BUSY, "table '%s' is still being created", name);
    table_id = entry->table_id;
    table = find_struct(tables, table_id);
    if (!table)
        return err_set(msg, EMBTIER_INTERNAL, "table '%s' is in the catalog but not loaded", name);
    TRY(catalog_set_state(tables->catalog, table_id, CATALOG_DROPPING, msg));
    give_name_away(tables, table);
    atomic_store(&table->state, TABLE_DROPPING);
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

    lock_catalog(tables);
    err = drop_begin(tables, name, &table, msg);
    if (err == EMBTIER_OK)
        info = info_of(table);
    unlock_catalog(tables);
    TRY(err);
    TRY(drop_rows(tables, table, progress, msg));
    TRY(drop_finish(tables, info.table_id, msg));
    log_info("table dropped", "table=%s id=%" PRIu32, info.spec.name, info.table_id);
    *ret_info = info;
    return EMBTIER_OK;
}

/* On a disk that is full, this is what frees it. */
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

/* ---- Creating ---- */

static enum embtier_err add_to_lanes(struct tables *tables, struct table *table,
                                     struct err_msg *msg)
{
    for (uint32_t i = 0; i < tables->lane_count; i++) {
        const enum embtier_err err = tables->rows->add(tables->lanes[i], table);

        if (err != EMBTIER_OK)
            return err_set(msg, err, "table '%s': rows of %u bytes do not fit into the cache: %s",
                           table->spec.name, table->row_bytes, err_text(err));
    }
    return EMBTIER_OK;
}

static void fill_initial(const struct table *table, const uint64_t *ids, uint32_t count,
                         void *const *rows)
{
    init_rows(&table->spec, ids, count, rows);
}

static enum embtier_err write_eager_rows(struct tables *tables, const struct table *table,
                                         const struct progress_sink *progress, struct err_msg *msg)
{
    _cleanup_(row_writer_freep) struct row_writer *writer = NULL;

    TRY(row_writer_new(&(struct row_writer_opts){ .store = tables->store,
                                                  .table = table,
                                                  .give_up = &tables->stopping,
                                                  .progress = progress,
                                                  .hold = &tables->hold,
                                                  .is_small = true,
                                                  .fill = fill_initial },
                       &writer, msg));
    for (uint64_t id = 0; id < table->spec.rows; id++) {
        TRY(row_writer_add(writer, id, NULL, msg));
        if (id % PROGRESS_ROWS == 0)
            TRY(progress_tell(progress, id, table->spec.rows, "rows", msg));
    }
    return row_writer_end(writer, msg);
}

/* A table's number of rows, or "unbounded", in a buffer of the caller's statement. */
struct rows_text {
    char text[24];
};

static const char *rows_text(struct rows_text *buffer, const struct table_spec *spec)
{
    if (spec->rows == EMBTIER_UNBOUNDED)
        return "unbounded";
    snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64, spec->rows);
    return buffer->text;
}
#define ROWS_TEXT(spec) rows_text(&(struct rows_text){ { 0 } }, (spec))

struct differences_text {
    char text[320];
};

static void add_difference(struct differences_text *buffer, const char *name, bool differs)
{
    const size_t length = strlen(buffer->text);

    if (differs)
        snprintf(buffer->text + length, sizeof(buffer->text) - length, "%s%s",
                 length > 0 ? ", " : "", name);
}

/* The names of the properties in which @a and @b differ, but for their names; "" if in none. */
static const char *differences(struct differences_text *buffer, const struct table_spec *a,
                               const struct table_spec *b)
{
    add_difference(buffer, "rows", a->rows != b->rows);
    add_difference(buffer, "dim", a->dim != b->dim);
    add_difference(buffer, "dtype", a->dtype != b->dtype);
    add_difference(buffer, "optimizer", a->optimizer != b->optimizer);
#define X(name, field, lowest, highest, standard, text)                                            \
    add_difference(buffer, #field, a->field != b->field);
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    add_difference(buffer, "rounding", a->rounds_to_nearest != b->rounds_to_nearest);
    add_difference(buffer, "nonfinite gradients", a->allows_nonfinite != b->allows_nonfinite);
    add_difference(buffer, "init",
                   a->init != b->init || a->init_params[0] != b->init_params[0] ||
                       a->init_params[1] != b->init_params[1]);
    add_difference(buffer, "seed", a->seed != b->seed);
    add_difference(buffer, "eager", a->eager != b->eager);
    add_difference(buffer, "durability", a->durability != b->durability);
    return buffer->text;
}

static enum embtier_err is_another(const struct table_spec *spec, const char *differing,
                                   struct err_msg *msg)
{
    struct hyperparameters_text hyperparameters;

    table_spec_hyperparameters(spec, &hyperparameters);
    return err_set(msg, EMBTIER_MISMATCH,
                   "table '%s' exists and is another (%s: not as asked for): dim %u, %s, rows %s, "
                   "optimizer %s%s%s%s, rounding %s, %snonfinite gradients, init %s, seed %" PRIu64
                   ", durability %s",
                   spec->name, differing, spec->dim, dtype_word(spec->dtype), ROWS_TEXT(spec),
                   optimizer_word(spec->optimizer), hyperparameters.text[0] ? " (" : "",
                   hyperparameters.text, hyperparameters.text[0] ? ")" : "",
                   rounding_word(spec->rounds_to_nearest), spec->allows_nonfinite ? "" : "no ",
                   init_word(spec->init), spec->seed, durability_word(spec->durability));
}

static enum embtier_err no_struct(struct tables *tables, struct err_msg *msg)
{
    bool is_full;

    pthread_mutex_lock(&tables->lock);
    is_full = tables->used_count >= TABLES_LIMIT;
    pthread_mutex_unlock(&tables->lock);
    if (!is_full)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return err_set(msg, EMBTIER_TOO_LARGE, "no more than %u tables", TABLES_LIMIT);
}

/* Whose it is, open; NULL: out of memory. */
static struct account *open_owner(struct tables *tables, uid_t owner)
{
    return account_open(tables->accounts, owner == CATALOG_NOBODY ? geteuid() : owner);
}

/* Tables that are still being dropped count. */
static enum embtier_err check_owner(const struct account *account, uint32_t count,
                                    struct err_msg *msg)
{
    if (account_ask(account, ACCOUNT_TABLES, count) == ACCOUNT_TAKEN)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_BUSY,
                   "your user has %" PRIu64 " tables, and may have no more than %" PRIu64
                   "%s: drop some",
                   account_has(account, ACCOUNT_TABLES), account_part(account, ACCOUNT_TABLES),
                   account_rule(account, ACCOUNT_TABLES));
}

enum embtier_err tables_check_owner(struct tables *tables, const struct table_owner *owner,
                                    uint32_t count, struct err_msg *msg)
{
    _cleanup_(account_closep) struct account *account = open_owner(tables, owner->uid);

    if (!account)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return owner->had_it ? EMBTIER_OK : check_owner(account, count, msg);
}

/* To a table that has none. */
static enum embtier_err give_uuid(struct table_spec *spec, struct err_msg *msg)
{
    unsigned char bytes[TABLE_UUID_CHARS / 2];

    if (spec->uuid[0] != '\0')
        return EMBTIER_OK;
    /* So few come whole, or not at all. */
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return err_set_errno(msg, errno, "getrandom");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(spec->uuid + 2 * i, 3, "%02x", bytes[i]);
    return EMBTIER_OK;
}

/* Makes catalog entry and struct in state CREATING. Catalog locked. */
static enum embtier_err make_struct(struct tables *tables, const struct table_spec *spec,
                                    const struct table_owner *owner, struct table **ret_table,
                                    struct err_msg *msg)
{
    _cleanup_(account_closep) struct account *account = open_owner(tables, owner->uid);
    struct table *table;
    uint32_t table_id;
    bool filled;

    if (!account)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&tables->lock);
    table = take_struct(tables);
    pthread_mutex_unlock(&tables->lock);
    if (!table)
        return no_struct(tables, msg);
    if (!owner->had_it)
        TRY(check_owner(account, 1, msg));
    TRY(catalog_add(tables->catalog, spec, owner->uid, CATALOG_CREATING, &table_id, msg));
    pthread_mutex_lock(&tables->lock);
    filled = fill_struct(tables, table, table_id, spec, &account);
    pthread_mutex_unlock(&tables->lock);
    if (!filled) {
        struct err_msg why = { { 0 } };

        if (catalog_remove(tables->catalog, table_id, &why) != EMBTIER_OK)
            log_error("the catalog keeps a table that is not made until the next start",
                      "table=%s why=%s", spec->name, LOG_QUOTED(why.text));
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    }
    *ret_table = table;
    return EMBTIER_OK;
}

/* Catalog locked. Finds an equal table (*@ret_found), or makes it in state CREATING. */
static enum embtier_err create_begin(struct tables *tables, const struct table_spec *spec,
                                     const struct table_owner *owner, bool if_not_exists,
                                     bool *ret_found, struct table **ret_table, struct err_msg *msg)
{
    const struct catalog_table *entry = catalog_find(tables->catalog, spec->name);
    struct differences_text differing = { { 0 } };

    if (entry && is_left_over(tables, entry)) {
        TRY(catalog_set_state(tables->catalog, entry->table_id, CATALOG_DROPPING, msg));
        entry = NULL;
    }
    if (entry && if_not_exists) {
        if (differences(&differing, &entry->spec, spec)[0])
            return is_another(&entry->spec, differing.text, msg);
        *ret_table = find_struct(tables, entry->table_id);
        if (!*ret_table || atomic_load(&(*ret_table)->state) != TABLE_LIVE)
            return err_set(msg, EMBTIER_BUSY,
                           "table '%s' is still being created: try again when it is there",
                           spec->name);
        *ret_found = true;
        return EMBTIER_OK;
    }
    if (entry)
        return err_set(msg, EMBTIER_EXISTS, "there is a table '%s' already", spec->name);
    *ret_found = false;
    return make_struct(tables, spec, owner, ret_table, msg);
}

static enum embtier_err create_finish(struct tables *tables, struct table *table,
                                      struct err_msg *msg)
{
    enum embtier_err err;

    lock_catalog(tables);
    err = catalog_set_state(tables->catalog, atomic_load(&table->table_id), CATALOG_LIVE, msg);
    if (err == EMBTIER_OK)
        atomic_store(&table->state, TABLE_LIVE);
    unlock_catalog(tables);
    return err;
}

static void undo(struct tables *tables, struct table *table)
{
    const uint32_t table_id = atomic_load(&table->table_id);
    struct err_msg msg = { { 0 } };

    give_name_away(tables, table);
    atomic_store(&table->state, TABLE_DROPPING);
    if (atomic_load(&tables->stopping))
        return;
    /* First of all the name is given back, whatever becomes of the rows. If it cannot be, the next
     * creation under it tries again. */
    lock_catalog(tables);
    if (catalog_set_state(tables->catalog, table_id, CATALOG_DROPPING, &msg) != EMBTIER_OK)
        log_error("the catalog cannot be told that a table half made is dropped",
                  "table=%s id=%" PRIu32 " why=%s", table->spec.name, table_id,
                  LOG_QUOTED(msg.text));
    unlock_catalog(tables);
    if (drop_rows(tables, table, NULL, &msg) != EMBTIER_OK ||
        drop_finish(tables, table_id, &msg) != EMBTIER_OK)
        log_error("rows of a table half made stay until the next start", "id=%" PRIu32 " why=%s",
                  table_id, LOG_QUOTED(msg.text));
}

/* Takes back what a failed creation has made; if that fails too, the next start does it. */
static void create_undo(struct tables *tables, struct table *table)
{
    store_use_reserve(tables->store);
    undo(tables, table);
    store_end_reserve(tables->store);
}

static void log_created(const struct table_spec *spec, uint32_t table_id)
{
    struct hyperparameters_text hyperparameters;

    log_info("table created",
             "table=%s id=%" PRIu32 " rows=%s dim=%u dtype=%s optimizer=%s "
             "hyperparameters=%s rounding=%s init=%s "
             "durability=%s acknowledged_updates_survive=%s",
             spec->name, table_id, ROWS_TEXT(spec), spec->dim, dtype_word(spec->dtype),
             optimizer_word(spec->optimizer),
             LOG_QUOTED(table_spec_hyperparameters(spec, &hyperparameters)),
             rounding_word(spec->rounds_to_nearest), init_word(spec->init),
             durability_word(spec->durability), LOG_QUOTED(durability_text(spec->durability)));
}

/* That all of its rows have room, before hours are spent on writing some of them. */
static enum embtier_err check_eager(struct tables *tables, const struct table_spec *spec,
                                    struct err_msg *msg)
{
    bool is_there;

    pthread_mutex_lock(&tables->writing);
    is_there = catalog_find(tables->catalog, spec->name) != NULL;
    pthread_mutex_unlock(&tables->writing);
    if (is_there) /* then none is made */
        return EMBTIER_OK;
    return store_check_room(tables->store, spec->rows,
                            table_spec_weight_bytes(spec) + table_spec_state_bytes(spec),
                            spec->durability != EMBTIER_DURABILITY_REPLAY, msg);
}

enum embtier_err tables_check_demand(const struct tables *tables, const struct store_demand *demand,
                                     const char *what, struct err_msg *msg)
{
    return store_check_demand(tables->store, demand, what, msg);
}

enum embtier_err tables_create(struct tables *tables, const struct table_spec *spec, uid_t owner,
                               bool if_not_exists, const struct progress_sink *progress,
                               struct table_info *ret_info, struct err_msg *msg)
{
    struct table_spec full = *spec;
    struct table *table = NULL;
    bool found = false;
    enum embtier_err err;

    TRY(table_spec_check_new(spec, msg));
    full.init_version = INIT_ROWS_VERSION;
    full.step = 0;
    full.uuid[0] = '\0';
    TRY(give_uuid(&full, msg));
    if (full.eager)
        TRY(check_eager(tables, &full, msg));
    lock_catalog(tables);
    err = create_begin(tables, &full, &(struct table_owner){ .uid = owner }, if_not_exists, &found,
                       &table, msg);
    unlock_catalog(tables);
    TRY(err);
    if (!found) {
        err = add_to_lanes(tables, table, msg);
        if (err == EMBTIER_OK && full.eager)
            err = write_eager_rows(tables, table, progress, msg);
        if (err == EMBTIER_OK)
            err = create_finish(tables, table, msg);
        if (err != EMBTIER_OK) {
            create_undo(tables, table);
            return err;
        }
        log_created(&full, atomic_load(&table->table_id));
    }
    *ret_info = info_of(table);
    return EMBTIER_OK;
}

enum embtier_err tables_begin(struct tables *tables, const struct table_spec *spec,
                              const struct table_owner *owner, struct table_info *ret_info,
                              struct err_msg *msg)
{
    struct table_spec full = *spec;
    struct table *table = NULL;
    bool found = false;
    enum embtier_err err;

    TRY(give_uuid(&full, msg));
    lock_catalog(tables);
    err = create_begin(tables, &full, owner, false, &found, &table, msg);
    unlock_catalog(tables);
    TRY(err);
    err = add_to_lanes(tables, table, msg);
    if (err != EMBTIER_OK) {
        create_undo(tables, table);
        return err;
    }
    *ret_info = info_of(table);
    return EMBTIER_OK;
}

enum embtier_err tables_writer(struct tables *tables, const struct table_info *info,
                               const struct progress_sink *progress, struct row_writer **ret_writer,
                               struct err_msg *msg)
{
    const struct table *const table = find_struct(tables, info->table_id);

    if (!table)
        return err_set(msg, EMBTIER_INTERNAL, "table '%s' is not being made", info->spec.name);
    return row_writer_new(&(struct row_writer_opts){ .store = tables->store,
                                                     .table = table,
                                                     .give_up = &tables->stopping,
                                                     .progress = progress,
                                                     .hold = &tables->hold },
                          ret_writer, msg);
}

uint64_t tables_writer_bytes(const struct tables *tables, uint64_t row_bytes)
{
    return row_writer_bytes(store_shard_count(tables->store), row_bytes);
}

enum embtier_err tables_publish(struct tables *tables, struct table_info *infos, uint32_t count,
                                struct err_msg *msg)
{
    _cleanup_(freep) uint32_t *ids = calloc((size_t)count + 1, sizeof(*ids));
    enum embtier_err err;

    if (!ids)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < count; i++)
        ids[i] = infos[i].table_id;
    lock_catalog(tables);
    err = catalog_set_live(tables->catalog,
                           &(struct catalog_made){ .table_ids = ids, .count = count }, msg);
    for (uint32_t i = 0; err == EMBTIER_OK && i < count; i++) {
        struct table *const table = find_struct(tables, ids[i]);

        if (!table) /* which does not happen: they are being made */
            continue;
        atomic_store(&table->state, TABLE_LIVE);
        infos[i] = info_of(table);
    }
    unlock_catalog(tables);
    TRY(err);
    for (uint32_t i = 0; i < count; i++)
        log_created(&infos[i].spec, infos[i].table_id);
    return EMBTIER_OK;
}

void tables_abandon(struct tables *tables, const struct table_info *infos, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct table *const table = find_struct(tables, infos[i].table_id);

        if (table)
            create_undo(tables, table);
    }
}

/* ---- Finding ---- */

enum embtier_err tables_find(struct tables *tables, const char *name, struct table_info *ret_info,
                             struct err_msg *msg)
{
    struct table named;
    struct table **found;

    snprintf(named.spec.name, sizeof(named.spec.name), "%s", name);
    pthread_mutex_lock(&tables->lock);
    found = tfind(&named, &tables->names, compare_names);
    if (found)
        *ret_info = info_of(*found);
    pthread_mutex_unlock(&tables->lock);
    if (!found)
        return err_set(msg, EMBTIER_NO_TABLE, "there is no table '%s'", name);
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
    if (find_used(tables, after, &place))
        place++;
    for (; place < tables->used_count && count < most; place++)
        infos[count++] = info_of(tables_at(tables, tables->used[place].index));
    *ret_more = place < tables->used_count;
    pthread_mutex_unlock(&tables->lock);
    add_written(tables, infos, count);
    *ret_infos = infos;
    *ret_count = count;
    return EMBTIER_OK;
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
                totals_add(&totals, &chunk[j]);
    }
    pthread_mutex_unlock(&tables->lock);
    return totals;
}

/* ---- Start and stop ---- */

static enum embtier_err load_table(struct tables *tables, const struct catalog_table *entry,
                                   struct err_msg *msg)
{
    _cleanup_(account_closep) struct account *account = open_owner(tables, entry->owner);
    struct table *const table = take_struct(tables);

    if (!table)
        return no_struct(tables, msg);
    if (entry->spec.init_version < 1 || entry->spec.init_version > INIT_ROWS_VERSION)
        return err_set(msg, EMBTIER_VERSION,
                       "table '%s' has initial values of version %u, this server knows 1 to %u",
                       entry->spec.name, entry->spec.init_version, INIT_ROWS_VERSION);
    if (!account || !fill_struct(tables, table, entry->table_id, &entry->spec, &account))
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(add_to_lanes(tables, table, msg));
    atomic_store(&table->state, TABLE_LIVE);
    return EMBTIER_OK;
}

/* Ends a creation or drop that was cut short. Its name is given back first, whatever becomes of its
 * rows: it may be a table's that is made before the next start. */
static enum embtier_err drop_left_over(struct tables *tables, const struct catalog_table *entry,
                                       struct err_msg *msg)
{
    if (entry->state == CATALOG_CREATING)
        TRY(catalog_set_state(tables->catalog, entry->table_id, CATALOG_DROPPING, msg));
    TRY(drop_stored_rows(tables, &entry->spec, entry->table_id, NULL, msg));
    return catalog_remove(tables->catalog, entry->table_id, msg);
}

static void note_stored_step(void *context, uint32_t table_id, uint64_t step)
{
    struct table *const table = find_struct(context, table_id);

    if (table && step <= EMBTIER_STEP_MAX)
        table_note_step(table, step);
}

/* After a crash, rows in the logs are newer than the catalog. */
static void load_steps(struct tables *tables)
{
    struct err_msg why = { { 0 } };

    if (store_table_steps(tables->store, note_stored_step, tables, &why) != EMBTIER_OK)
        log_warn("the steps of some tables may be those of the last clean stop", "why=%s",
                 LOG_QUOTED(why.text));
}

enum embtier_err tables_load(struct tables *tables, const struct tables_rows *rows,
                             struct lane *const *lanes, uint32_t lane_count, struct err_msg *msg)
{
    uint32_t index = 0;

    tables->rows = rows;
    tables->lanes = lanes;
    tables->lane_count = lane_count;
    while (index < catalog_count(tables->catalog)) {
        const struct catalog_table entry = *catalog_at(tables->catalog, index);
        struct err_msg why = { { 0 } };

        if (entry.state == CATALOG_LIVE) {
            TRY(load_table(tables, &entry, msg));
            index++;
            continue;
        }
        log_warn("a table was left half made or half dropped, it is dropped now",
                 "table=%s id=%" PRIu32, entry.spec.name, entry.table_id);
        if (drop_left_over(tables, &entry, &why) == EMBTIER_OK)
            continue;
        log_warn("it cannot be dropped now, the next start tries again",
                 "table=%s id=%" PRIu32 " why=%s", entry.spec.name, entry.table_id,
                 LOG_QUOTED(why.text));
        index++;
    }
    load_steps(tables);
    return EMBTIER_OK;
}

const struct catalog *tables_catalog(const struct tables *tables)
{
    return tables->catalog;
}

void tables_stop(struct tables *tables)
{
    atomic_store(&tables->stopping, true);
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
        log_warn("the catalog keeps its journal, which the next start reads, and the steps of "
                 "tables as they were at this start",
                 "why=%s", LOG_QUOTED(why.text));
    pthread_mutex_unlock(&tables->writing);
}
