/* SPDX-License-Identifier: Apache-2.0 */
/* tables_create.c: making a table: catalog first (CREATING), then the lanes' caches, then eager
 * rows, then catalog and state LIVE. A crash in the middle leaves CREATING in the catalog, and the
 * next start drops the table. */
#include "daemon/engine/tables/tables_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log/log.h"
#include "base/spec/home_rules.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/tables/progress.h"
#include "daemon/engine/tables/row_routes.h"
#include "daemon/engine/tables/row_writer.h"
#include "daemon/engine/tables/table_arrays.h"
#include "kernels/cpu/init/init_rows.h"
#include "store/catalog.h"
#include "store/store.h"

#define PROGRESS_ROWS 8192

static void fill_initial(const struct table *table, const uint64_t *ids, uint32_t count,
                         void *const *rows)
{
    init_rows(&table->spec, ids, count, rows);
}

/* Nobody else has written rows of the table, and the writer has flushed them. */
static void count_initial(const struct tables *tables, struct table *table)
{
    struct store_written written;

    store_written(tables->store, atomic_load(&table->table_id), &written);
    atomic_store_explicit(&table->initial_bytes, written.flush_bytes, memory_order_relaxed);
}

static enum embtier_err write_eager_rows(struct tables *tables, struct table *table,
                                         const struct progress_sink *progress, struct err_msg *msg)
{
    _cleanup_(row_writer_freep) struct row_writer *writer = NULL;

    TRY(row_writer_new(&(struct row_writer_opts){ .store = tables->store,
                                                  .routes = tables->routes,
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
    TRY(row_writer_end(writer, msg));
    count_initial(tables, table);
    return EMBTIER_OK;
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

struct init_text {
    char text[96];
};

/* Writes the initial values as `embtier table create --init` takes them: "uniform:-0.1,0.1". */
static const char *init_text(struct init_text *buffer, const struct table_spec *spec)
{
    size_t length =
        (size_t)snprintf(buffer->text, sizeof(buffer->text), "%s", init_word((int)spec->init));

    for (unsigned i = 0; i < 2 && init_param_name((int)spec->init, i)[0] != '\0'; i++)
        length += (size_t)snprintf(buffer->text + length, sizeof(buffer->text) - length, "%s%.9g",
                                   i == 0 ? ":" : ",", spec->init_params[i]);
    return buffer->text;
}

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

/* Returns the names of the properties in which an existing table, @a, and the requested one, @b,
 * differ; "" if in none. Table names do not count. */
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
    /* Home cache, the default, asks for no home: the table may have been placed elsewhere since. */
    add_difference(buffer, "home", b->home != EMBTIER_HOME_CACHE && a->home != b->home);
    add_difference(buffer, "tier",
                   b->home_tier[0] != '\0' && strcmp(a->home_tier, b->home_tier) != 0);
    return buffer->text;
}

static enum embtier_err is_another(const struct table_spec *spec, const char *differing,
                                   struct err_msg *msg)
{
    struct hyperparameters_text hyperparameters;
    struct init_text init;

    table_spec_hyperparameters(spec, &hyperparameters);
    return err_set(msg, EMBTIER_MISMATCH,
                   "table '%s' exists and differs from the request (%s): dim %u, %s, rows %s, "
                   "optimizer %s%s%s%s, rounding %s, %snonfinite gradients, init %s, seed %" PRIu64
                   ", %sdurability %s, home %s%s%s; ask for the same, or choose another name",
                   spec->name, differing, spec->dim, dtype_word(spec->dtype), ROWS_TEXT(spec),
                   optimizer_word(spec->optimizer), hyperparameters.text[0] ? " (" : "",
                   hyperparameters.text, hyperparameters.text[0] ? ")" : "",
                   rounding_word(spec->rounds_to_nearest), spec->allows_nonfinite ? "" : "no ",
                   init_text(&init, spec), spec->seed, spec->eager ? "eager, " : "",
                   durability_word(spec->durability), home_word(spec->home),
                   spec->home_tier[0] ? " in tier " : "", spec->home_tier);
}

/* Tables that are still being dropped count too. */
static enum embtier_err check_owner(const struct account *account, uint32_t count,
                                    struct err_msg *msg)
{
    if (account_ask(account, ACCOUNT_TABLES, count) == ACCOUNT_TAKEN)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_BUSY,
                   "your user has %" PRIu64 " tables, and may have at most %" PRIu64
                   "%s: drop some (`embtier table drop`)",
                   account_has(account, ACCOUNT_TABLES), account_part(account, ACCOUNT_TABLES),
                   account_rule(account, ACCOUNT_TABLES));
}

enum embtier_err tables_check_owner(struct tables *tables, const struct table_owner *owner,
                                    uint32_t count, struct err_msg *msg)
{
    _cleanup_(account_closep) struct account *account = tables_open_owner(tables, owner->uid);

    if (!account)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return owner->had_it ? EMBTIER_OK : check_owner(account, count, msg);
}

/* Gives a uuid to a table that has none. */
static enum embtier_err give_uuid(struct table_spec *spec, struct err_msg *msg)
{
    unsigned char bytes[TABLE_UUID_CHARS / 2];

    if (spec->uuid[0] != '\0')
        return EMBTIER_OK;
    /* getrandom() returns so few bytes whole, or not at all. */
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return err_set_errno(msg, errno, "cannot get random bytes from the system (getrandom)");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(spec->uuid + 2 * i, 3, "%02x", bytes[i]);
    return EMBTIER_OK;
}

struct creation {
    struct table_spec spec;
    struct table_owner owner;
    bool if_not_exists;
    enum table_placing placing;
};

/* Takes memory for the rows of a table whose home is an array. */
static enum embtier_err take_array(struct tables *tables, struct creation *creation,
                                   struct row_array **ret_array, struct err_msg *msg)
{
    struct table_spec *const spec = &creation->spec;
    struct err_msg why = { "the ids of its hot rows are with the old table" };

    *ret_array = NULL;
    if (creation->placing == TABLE_PLACED_AS_ASKED)
        return table_arrays_take(tables->arrays, spec, ret_array, msg);
    if (!home_has_hot_rows(spec->home) &&
        table_arrays_take_anywhere(tables->arrays, spec, ret_array, &why) == EMBTIER_OK)
        return EMBTIER_OK;
    log_warn("a table that had another home is cached here", "table=%s home=%s why=%s", spec->name,
             home_word(spec->home), LOG_QUOTED(why.text));
    table_spec_set_cached(spec);
    spec->hot_rows = spec->hot_sum = 0;
    return EMBTIER_OK;
}

/* Catalog locked. Makes the catalog's entry, and fills @table with it, in state CREATING. If that
 * succeeds, @account is taken over. */
static enum embtier_err enter_table(struct tables *tables, const struct creation *creation,
                                    struct table *table, struct account **account,
                                    struct row_array *array, struct err_msg *msg)
{
    struct err_msg why = { { 0 } };
    uint32_t table_id;
    bool filled;

    TRY(catalog_add(tables->catalog, &creation->spec, creation->owner.uid, CATALOG_CREATING,
                    &table_id, msg));
    pthread_mutex_lock(&tables->lock);
    filled = tables_fill_struct(tables, table, table_id, &creation->spec, account, array);
    pthread_mutex_unlock(&tables->lock);
    if (filled)
        return EMBTIER_OK;
    if (catalog_remove(tables->catalog, table_id, &why) != EMBTIER_OK)
        log_error("the catalog keeps a table that was not created, until the next start",
                  "table=%s why=%s", creation->spec.name, LOG_QUOTED(why.text));
    return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

/* Catalog locked. Makes catalog entry and struct in state CREATING. */
static enum embtier_err make_struct(struct tables *tables, struct creation *creation,
                                    struct table **ret_table, struct err_msg *msg)
{
    _cleanup_(account_closep) struct account *account =
        tables_open_owner(tables, creation->owner.uid);
    struct row_array *array = NULL;
    struct table *table;
    enum embtier_err err;

    if (!account)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&tables->lock);
    table = tables_take_struct(tables);
    pthread_mutex_unlock(&tables->lock);
    if (!table)
        return tables_no_struct(tables, msg);
    if (!creation->owner.had_it)
        TRY(check_owner(account, 1, msg));
    TRY(take_array(tables, creation, &array, msg));
    err = enter_table(tables, creation, table, &account, array, msg);
    if (err != EMBTIER_OK) {
        table_arrays_give(tables->arrays, array);
        return err;
    }
    *ret_table = table;
    return EMBTIER_OK;
}

/* Catalog locked. */
static enum embtier_err take_equal(struct tables *tables, const struct catalog_table *entry,
                                   const struct table_spec *spec, struct table **ret_table,
                                   struct err_msg *msg)
{
    struct table *const table = tables_find_struct(tables, entry->table_id);
    struct differences_text differing = { { 0 } };

    if (differences(&differing, &entry->spec, spec)[0])
        return is_another(&entry->spec, differing.text, msg);
    if (!table || atomic_load(&table->state) != TABLE_LIVE)
        return err_set(msg, EMBTIER_BUSY, "table '%s' is still being created: try again later",
                       spec->name);
    *ret_table = table;
    return EMBTIER_OK;
}

/* Catalog locked. Finds an equal table (*@ret_found), or makes one in state CREATING. */
static enum embtier_err create_begin(struct tables *tables, struct creation *creation,
                                     bool *ret_found, struct table **ret_table, struct err_msg *msg)
{
    const struct table_spec *const spec = &creation->spec;
    const struct catalog_table *entry = catalog_find(tables->catalog, spec->name);

    if (entry && tables_is_left_over(tables, entry)) {
        TRY(catalog_set_state(tables->catalog, entry->table_id, CATALOG_DROPPING, msg));
        entry = NULL;
    }
    *ret_found = entry && creation->if_not_exists;
    if (*ret_found)
        return take_equal(tables, entry, spec, ret_table, msg);
    if (entry)
        return err_set(msg, EMBTIER_EXISTS,
                       "table '%s' already exists: use it, drop it first, or choose another name",
                       spec->name);
    return make_struct(tables, creation, ret_table, msg);
}

static enum embtier_err create_finish(struct tables *tables, struct table *table,
                                      struct err_msg *msg)
{
    enum embtier_err err;

    tables_lock_catalog(tables);
    err = catalog_set_state(tables->catalog, atomic_load(&table->table_id), CATALOG_LIVE, msg);
    if (err == EMBTIER_OK)
        table_set_state(table, TABLE_LIVE);
    tables_unlock_catalog(tables);
    return err;
}

static void undo(struct tables *tables, struct table *table)
{
    const uint32_t table_id = atomic_load(&table->table_id);
    struct err_msg msg = { { 0 } };

    tables_give_name_away(tables, table);
    table_set_state(table, TABLE_DROPPING);
    if (atomic_load(&tables->stopping))
        return;
    /* The name is given back first, whatever becomes of the rows. If that fails, the next creation
     * under this name tries again. */
    tables_lock_catalog(tables);
    if (catalog_set_state(tables->catalog, table_id, CATALOG_DROPPING, &msg) != EMBTIER_OK)
        log_error("the catalog cannot record that a half-created table is dropped",
                  "table=%s id=%" PRIu32 " why=%s", table->spec.name, table_id,
                  LOG_QUOTED(msg.text));
    tables_unlock_catalog(tables);
    if (tables_drop_rows(tables, table, NULL, &msg) != EMBTIER_OK ||
        tables_drop_finish(tables, table_id, &msg) != EMBTIER_OK)
        log_error("rows of a half-created table stay on SSD until the next start",
                  "id=%" PRIu32 " why=%s", table_id, LOG_QUOTED(msg.text));
}

/* Undoes a creation that failed. If that fails too, the next start does it. */
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
             "durability=%s acknowledged_updates_survive=%s home=%s%s%s",
             spec->name, table_id, ROWS_TEXT(spec), spec->dim, dtype_word(spec->dtype),
             optimizer_word(spec->optimizer),
             LOG_QUOTED(table_spec_hyperparameters(spec, &hyperparameters)),
             rounding_word(spec->rounds_to_nearest), init_word(spec->init),
             durability_word(spec->durability), LOG_QUOTED(durability_text(spec->durability)),
             home_word(spec->home), spec->home_tier[0] ? " tier=" : "", spec->home_tier);
}

/* Checks that all rows of the table have room, before hours are spent on writing some of them. */
static enum embtier_err check_eager(struct tables *tables, const struct table_spec *spec,
                                    struct err_msg *msg)
{
    bool is_there;

    pthread_mutex_lock(&tables->writing);
    is_there = catalog_find(tables->catalog, spec->name) != NULL;
    pthread_mutex_unlock(&tables->writing);
    if (is_there) /* then no table is made */
        return EMBTIER_OK;
    return store_check_room(tables->store, spec->rows,
                            table_spec_weight_bytes(spec) + table_spec_state_bytes(spec),
                            spec->durability != EMBTIER_DURABILITY_REPLAY, msg);
}

enum embtier_err tables_create(struct tables *tables, const struct table_spec *spec, uid_t owner,
                               bool if_not_exists, const struct progress_sink *progress,
                               struct table_info *ret_info, struct err_msg *msg)
{
    struct creation creation = { .spec = *spec,
                                 .owner = { .uid = owner },
                                 .if_not_exists = if_not_exists };
    struct table *table = NULL;
    bool found = false;
    enum embtier_err err;

    TRY(table_spec_check_new(spec, msg));
    creation.spec.init_version = INIT_ROWS_VERSION;
    creation.spec.step = 0;
    creation.spec.uuid[0] = '\0';
    TRY(give_uuid(&creation.spec, msg));
    if (spec->eager)
        TRY(check_eager(tables, &creation.spec, msg));
    tables_lock_catalog(tables);
    err = create_begin(tables, &creation, &found, &table, msg);
    tables_unlock_catalog(tables);
    TRY(err);
    if (!found) {
        err = tables_add_to_lanes(tables, table, msg);
        if (err == EMBTIER_OK && spec->eager)
            err = write_eager_rows(tables, table, progress, msg);
        if (err == EMBTIER_OK)
            err = create_finish(tables, table, msg);
        if (err != EMBTIER_OK) {
            create_undo(tables, table);
            return err;
        }
        log_created(&creation.spec, atomic_load(&table->table_id));
    }
    *ret_info = tables_info_of(tables, table);
    return EMBTIER_OK;
}

enum embtier_err tables_find_equal(struct tables *tables, const struct table_spec *spec,
                                   struct table_info *ret_info, struct err_msg *msg)
{
    const struct catalog_table *entry;
    struct table *table = NULL;
    enum embtier_err err;

    TRY(table_spec_check_new(spec, msg));
    tables_lock_catalog(tables);
    entry = catalog_find(tables->catalog, spec->name);
    if (entry && !tables_is_left_over(tables, entry))
        err = take_equal(tables, entry, spec, &table, msg);
    else
        err = err_set(msg, EMBTIER_NO_TABLE, "there is no table '%s'", spec->name);
    tables_unlock_catalog(tables);
    TRY(err);
    *ret_info = tables_info_of(tables, table);
    return EMBTIER_OK;
}

enum embtier_err tables_begin(struct tables *tables, const struct table_spec *spec,
                              const struct table_owner *owner, enum table_placing placing,
                              struct table_info *ret_info, struct err_msg *msg)
{
    struct creation creation = { .spec = *spec, .owner = *owner, .placing = placing };
    struct table *table = NULL;
    bool found = false;
    enum embtier_err err;

    TRY(give_uuid(&creation.spec, msg));
    tables_lock_catalog(tables);
    err = create_begin(tables, &creation, &found, &table, msg);
    tables_unlock_catalog(tables);
    TRY(err);
    err = tables_add_to_lanes(tables, table, msg);
    if (err != EMBTIER_OK) {
        create_undo(tables, table);
        return err;
    }
    *ret_info = tables_info_of(tables, table);
    return EMBTIER_OK;
}

enum embtier_err tables_writer(struct tables *tables, const struct table_info *info,
                               const struct progress_sink *progress, struct row_writer **ret_writer,
                               struct err_msg *msg)
{
    const struct table *const table = tables_find_struct(tables, info->table_id);

    if (!table)
        return err_set(msg, EMBTIER_INTERNAL, "table '%s' is not being made", info->spec.name);
    return row_writer_new(&(struct row_writer_opts){ .store = tables->store,
                                                     .routes = tables->routes,
                                                     .table = table,
                                                     .give_up = &tables->stopping,
                                                     .progress = progress,
                                                     .hold = &tables->hold },
                          ret_writer, msg);
}

uint64_t tables_writer_bytes(const struct tables *tables, uint64_t row_bytes)
{
    return row_writer_bytes(tables->routes->shard_count, row_bytes);
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
    tables_lock_catalog(tables);
    err = catalog_set_live(tables->catalog,
                           &(struct catalog_made){ .table_ids = ids, .count = count }, msg);
    for (uint32_t i = 0; err == EMBTIER_OK && i < count; i++) {
        struct table *const table = tables_find_struct(tables, ids[i]);

        if (!table) /* cannot happen: the tables are being made */
            continue;
        table_set_state(table, TABLE_LIVE);
        infos[i] = tables_info_of(tables, table);
    }
    tables_unlock_catalog(tables);
    TRY(err);
    for (uint32_t i = 0; i < count; i++)
        log_created(&infos[i].spec, infos[i].table_id);
    return EMBTIER_OK;
}

void tables_abandon(struct tables *tables, const struct table_info *infos, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct table *const table = tables_find_struct(tables, infos[i].table_id);

        if (table)
            create_undo(tables, table);
    }
}
