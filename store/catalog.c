/* SPDX-License-Identifier: Apache-2.0 */
#include "store/catalog.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/spec/home_rules.h"
#include "base/spec/table_spec_json.h"
#include "store/catalog_file.h"
#include "store/catalog_journal.h"
#include "store/files/durable_file.h"
#include "store/store_identity.h"

/* A smaller catalog is rewritten with each change, which takes no longer. */
#define JOURNAL_TABLES_LEAST 64
/* A journal grows to the length of catalog.json, or to this; then catalog.json is written anew. */
#define JOURNAL_BYTES_LEAST ((uint64_t)(256 * KIB))

struct catalog {
    char *directory;
    char *path; /* for messages */
    uint32_t next_table_id;
    uint32_t count;
    uint32_t capacity;
    struct catalog_table *tables; /* in order of table id */
    json_t *ids;                  /* by name; without tables in state DROPPING */
    struct catalog_journal journal;
    uint32_t last_journal; /* number of this journal, or of the last one */
    uint64_t whole_bytes;  /* length of catalog.json */
    bool has_new_steps;    /* there are steps that are not on disk */
};

/* One change of a table, or of the states of several. */
struct change {
    enum { CHANGE_ADD, CHANGE_SPEC, CHANGE_STATE, CHANGE_REMOVE } kind;
    const struct catalog_table *table; /* ADD; SPEC: the table as it is from now on */
    const uint32_t *table_ids;         /* STATE, REMOVE; all exist */
    uint32_t count;
    enum catalog_state state;
};

/* ---- Finding ---- */

static bool find_index(const struct catalog_table *tables, uint32_t count, uint32_t table_id,
                       uint32_t *ret_index)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (tables[middle].table_id < table_id)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_index = low;
    return low < count && tables[low].table_id == table_id;
}

static bool has_id(const struct catalog *catalog, uint32_t table_id)
{
    uint32_t index;

    return find_index(catalog->tables, catalog->count, table_id, &index);
}

static enum embtier_err catalog_index(const struct catalog *catalog, uint32_t table_id,
                                      uint32_t *ret_index, struct err_msg *msg)
{
    return find_index(catalog->tables, catalog->count, table_id, ret_index)
               ? EMBTIER_OK
               : err_set(msg, EMBTIER_NO_TABLE, "no table has the id %" PRIu32, table_id);
}

const struct catalog_table *catalog_find(const struct catalog *catalog, const char *name)
{
    const json_t *const id = json_object_get(catalog->ids, name);
    uint32_t index;

    if (!id ||
        !find_index(catalog->tables, catalog->count, (uint32_t)json_integer_value(id), &index))
        return NULL;
    return &catalog->tables[index];
}

static bool ids_add(json_t *ids, const struct catalog_table *table)
{
    return table->state == CATALOG_DROPPING ||
           json_object_set_new(ids, table->spec.name, json_integer((json_int_t)table->table_id)) ==
               0;
}

/* Does nothing if another table has the name. */
static void ids_remove(json_t *ids, const struct catalog_table *table)
{
    const json_t *const id = json_object_get(ids, table->spec.name);

    if (id && json_integer_value(id) == (json_int_t)table->table_id)
        json_object_del(ids, table->spec.name);
}

/* Returns the names of all tables; NULL: out of memory. */
static json_t *ids_new(const struct catalog_tables *tables)
{
    _cleanup_(json_decrefp) json_t *ids = json_object();

    for (uint32_t i = 0; ids && i < tables->count; i++)
        if (!ids_add(ids, &tables->tables[i]))
            return NULL;
    return TAKE(ids);
}

/* ---- Changing ---- */

/* The caller has made room for one more. */
static void tables_change(struct catalog_tables *tables, const struct change *change)
{
    uint32_t index;

    if (change->kind == CHANGE_ADD) {
        tables->tables[tables->count++] = *change->table;
        tables->next_table_id = change->table->table_id + 1;
    }
    if (change->kind == CHANGE_SPEC &&
        find_index(tables->tables, tables->count, change->table->table_id, &index))
        tables->tables[index] = *change->table;
    for (uint32_t i = 0; i < change->count; i++) {
        if (!find_index(tables->tables, tables->count, change->table_ids[i], &index))
            continue;
        if (change->kind == CHANGE_STATE) {
            tables->tables[index].state = change->state;
            continue;
        }
        assert(tables->count > 0);
        tables->count--;
        memmove(&tables->tables[index], &tables->tables[index + 1],
                (tables->count - index) * sizeof(*tables->tables));
    }
}

static enum embtier_err no_memory(const struct catalog *catalog, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", catalog->path);
}

/* Makes room for one more. */
static enum embtier_err catalog_grow(struct catalog *catalog, struct err_msg *msg)
{
    const uint32_t capacity = MAX(2 * catalog->capacity, UINT32_C(64));
    struct catalog_table *tables;

    if (catalog->count < catalog->capacity)
        return EMBTIER_OK;
    tables = realloc(catalog->tables, capacity * sizeof(*tables));
    if (!tables)
        return no_memory(catalog, msg);
    catalog->tables = tables;
    catalog->capacity = capacity;
    return EMBTIER_OK;
}

/* Changes the tables in memory. The caller has made room. */
static void catalog_apply(struct catalog *catalog, const struct change *change)
{
    struct catalog_tables tables = { catalog->tables, catalog->count, catalog->next_table_id };
    uint32_t index;

    assert(change->kind != CHANGE_ADD || catalog->count < catalog->capacity);
    for (uint32_t i = 0; i < change->count; i++)
        if ((change->kind == CHANGE_REMOVE || change->state == CATALOG_DROPPING) &&
            find_index(catalog->tables, catalog->count, change->table_ids[i], &index))
            ids_remove(catalog->ids, &catalog->tables[index]);
    tables_change(&tables, change);
    catalog->count = tables.count;
    catalog->next_table_id = tables.next_table_id;
}

/* Makes a copy with room for one more. */
static enum embtier_err tables_copy(const struct catalog *catalog,
                                    struct catalog_tables *ret_tables, struct err_msg *msg)
{
    struct catalog_table *const tables = calloc((size_t)catalog->count + 1, sizeof(*tables));

    if (!tables)
        return no_memory(catalog, msg);
    if (catalog->tables)
        memcpy(tables, catalog->tables, catalog->count * sizeof(*tables));
    *ret_tables = (struct catalog_tables){ tables, catalog->count, catalog->next_table_id };
    return EMBTIER_OK;
}

static void note_length(struct catalog *catalog)
{
    struct stat info;

    catalog->whole_bytes = stat(catalog->path, &info) == 0 ? (uint64_t)info.st_size : 0;
}

/* Writes catalog.json anew; @with_journal: with a new, empty journal. The old journal stays until
 * the new file is safe. */
static enum embtier_err write_whole(struct catalog *catalog, const struct catalog_tables *tables,
                                    bool with_journal, struct err_msg *msg)
{
    struct catalog_journal journal = { 0 };
    enum embtier_err err;

    if (with_journal)
        TRY(catalog_journal_make(catalog->directory, catalog->last_journal + 1, &journal, msg));
    err = catalog_file_write(catalog->directory, tables, journal.number, msg);
    if (err != EMBTIER_OK) {
        catalog->journal.is_unsure = true; /* the new file may exist all the same */
        return err;
    }
    catalog_journal_sweep(catalog->directory, journal.number);
    catalog->last_journal = MAX(catalog->last_journal, journal.number);
    catalog->journal = journal;
    note_length(catalog);
    return EMBTIER_OK;
}

/* Takes @tables. They replace the catalog's once they are safe on disk. */
static enum embtier_err catalog_replace(struct catalog *catalog, struct catalog_tables *tables,
                                        struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *ids = ids_new(tables);

    if (!ids)
        return no_memory(catalog, msg);
    TRY(write_whole(catalog, tables, tables->count >= JOURNAL_TABLES_LEAST, msg));
    free(catalog->tables);
    json_decref(catalog->ids);
    catalog->ids = TAKE(ids);
    catalog->tables = TAKE(tables->tables); /* NULL if there are none */
    catalog->count = catalog->capacity = tables->count;
    catalog->next_table_id = tables->next_table_id;
    return EMBTIER_OK;
}

/* Takes no ownership; NULL: out of memory. */
static json_t *change_to_json(const struct change *change)
{
    _cleanup_(json_decrefp) json_t *json = NULL;
    json_t *ids;
    bool complete;

    if (change->table) {
        json = json_object();
        return json && json_object_set_new(json, change->kind == CHANGE_ADD ? "add" : "change",
                                           catalog_table_to_json(change->table)) == 0
                   ? TAKE(json)
                   : NULL;
    }
    ids = json_array();
    complete = ids != NULL;
    for (uint32_t i = 0; complete && i < change->count; i++)
        complete = json_array_append_new(ids, json_integer((json_int_t)change->table_ids[i])) == 0;
    json = json_pack("{s:s, s:o}", "state",
                     change->kind == CHANGE_REMOVE ? "none" : catalog_state_word(change->state),
                     "table_ids", ids);
    return complete ? TAKE(json) : NULL;
}

static enum embtier_err add_to_journal(struct catalog *catalog, const struct change *change,
                                       struct err_msg *msg)
{
    enum embtier_err err;

    TRY(catalog_grow(catalog, msg));
    if (change->kind == CHANGE_ADD && !ids_add(catalog->ids, change->table))
        return no_memory(catalog, msg);
    err = catalog_journal_add(catalog->directory, &catalog->journal, change_to_json(change), msg);
    if (err == EMBTIER_OK)
        catalog_apply(catalog, change);
    else if (change->kind == CHANGE_ADD)
        ids_remove(catalog->ids, change->table);
    return err;
}

/* Makes a valid change: in memory once it is safe on disk. */
static enum embtier_err catalog_change(struct catalog *catalog, const struct change *change,
                                       struct err_msg *msg)
{
    const struct catalog_journal *const journal = &catalog->journal;
    _cleanup_(catalog_tables_clear) struct catalog_tables tables = { 0 };

    if (journal->number > 0 && !journal->is_unsure &&
        journal->bytes <= MAX(catalog->whole_bytes, JOURNAL_BYTES_LEAST))
        return add_to_journal(catalog, change, msg);
    TRY(tables_copy(catalog, &tables, msg));
    tables_change(&tables, change);
    return catalog_replace(catalog, &tables, msg);
}

/* ---- Reading ---- */

/* Also builds the index of names. */
static enum embtier_err tables_check(struct catalog *catalog, struct err_msg *msg)
{
    for (uint32_t i = 0; i < catalog->count; i++) {
        const struct catalog_table *table = &catalog->tables[i];
        struct err_msg why;

        if (table_spec_check(&table->spec, &why) != EMBTIER_OK)
            return err_set(msg, EMBTIER_CORRUPT, "%s: table %" PRIu32 ": %s" CATALOG_WAY_OUT,
                           catalog->path, table->table_id, why.text);
        if (table->table_id >= catalog->next_table_id ||
            (i > 0 && table->table_id <= catalog->tables[i - 1].table_id))
            return err_set(msg, EMBTIER_CORRUPT,
                           "%s: table id %" PRIu32 " is out of order" CATALOG_WAY_OUT,
                           catalog->path, table->table_id);
        if (table->state != CATALOG_DROPPING && catalog_find(catalog, table->spec.name))
            return err_set(msg, EMBTIER_CORRUPT, "%s: two tables named %s" CATALOG_WAY_OUT,
                           catalog->path, table->spec.name);
        if (!ids_add(catalog->ids, table))
            return no_memory(catalog, msg);
    }
    return EMBTIER_OK;
}

static enum embtier_err wrong_change(const struct catalog *catalog, const char *why,
                                     struct err_msg *msg)
{
    return err_set(msg, EMBTIER_CORRUPT, "%s: a change in its journal %s" CATALOG_WAY_OUT,
                   catalog->path, why);
}

/* Reads the table that a change adds or replaces. */
static enum embtier_err read_table(const struct catalog *catalog, const json_t *json,
                                   struct catalog_table *ret_table, struct err_msg *msg)
{
    struct err_msg why = { { 0 } };

    if (!catalog_table_from_json(json, ret_table))
        return wrong_change(catalog, "has a table that is none", msg);
    if (table_spec_check(&ret_table->spec, &why) == EMBTIER_OK)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_CORRUPT,
                   "%s: a change in its journal, to table %" PRIu32 ": %s" CATALOG_WAY_OUT,
                   catalog->path, ret_table->table_id, why.text);
}

static enum embtier_err apply_states(struct catalog *catalog, const json_t *json,
                                     struct err_msg *msg)
{
    const json_t *const list = json_object_get(json, "table_ids");
    const char *const state = json_string_value(json_object_get(json, "state"));
    struct change change = { .kind = CHANGE_STATE };
    uint32_t table_id = 0;

    if (state && strcmp(state, "none") == 0)
        change.kind = CHANGE_REMOVE;
    else if (!catalog_state_from_json(json_object_get(json, "state"), &change.state))
        return wrong_change(catalog, "has no known state", msg);
    change.table_ids = &table_id;
    change.count = 1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!json_to_u32(json_array_get(list, i), &table_id) || !has_id(catalog, table_id))
            return wrong_change(catalog, "names a missing table", msg);
        catalog_apply(catalog, &change);
    }
    return EMBTIER_OK;
}

static enum embtier_err apply_spec(struct catalog *catalog, const json_t *json, struct err_msg *msg)
{
    struct catalog_table table;
    uint32_t index;

    TRY(read_table(catalog, json, &table, msg));
    if (!find_index(catalog->tables, catalog->count, table.table_id, &index) ||
        strcmp(catalog->tables[index].spec.name, table.spec.name) != 0)
        return wrong_change(catalog, "changes a table that is missing or another", msg);
    catalog_apply(catalog, &(struct change){ .kind = CHANGE_SPEC, .table = &table });
    return EMBTIER_OK;
}

static enum embtier_err apply_change(void *context, const json_t *json, struct err_msg *msg)
{
    struct catalog *const catalog = context;
    const json_t *const added = json_object_get(json, "add");
    const json_t *const changed = json_object_get(json, "change");
    struct catalog_table table;

    if (changed)
        return apply_spec(catalog, changed, msg);
    if (!added)
        return apply_states(catalog, json, msg);
    TRY(read_table(catalog, added, &table, msg));
    if (table.table_id < catalog->next_table_id || table.table_id >= CATALOG_TABLE_IDS)
        return wrong_change(catalog, "adds an invalid table", msg);
    if (catalog_find(catalog, table.spec.name))
        return wrong_change(catalog, "adds a table whose name is taken", msg);
    TRY(catalog_grow(catalog, msg));
    if (!ids_add(catalog->ids, &table))
        return no_memory(catalog, msg);
    catalog_apply(catalog, &(struct change){ .kind = CHANGE_ADD, .table = &table });
    return EMBTIER_OK;
}

static struct catalog *catalog_new(const char *directory)
{
    _cleanup_(catalog_freep) struct catalog *catalog = calloc(1, sizeof(*catalog));

    if (!catalog)
        return NULL;
    catalog->directory = strdup(directory);
    catalog->path = path_join(directory, CATALOG_FILE);
    catalog->ids = json_object();
    return catalog->directory && catalog->path && catalog->ids ? TAKE(catalog) : NULL;
}

enum embtier_err catalog_read(const char *directory, struct catalog **ret_catalog,
                              struct err_msg *msg)
{
    _cleanup_(catalog_freep) struct catalog *catalog = catalog_new(directory);
    _cleanup_(freep) char *text = NULL;
    struct catalog_tables tables = { 0 };
    uint32_t journal = 0;

    if (!catalog)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    TRY(durable_file_read(directory, CATALOG_FILE, &text, msg));
    TRY(catalog_file_parse(catalog->path, text, &tables, &journal, msg));
    catalog->tables = tables.tables;
    catalog->count = tables.count;
    catalog->capacity = tables.count + 1;
    catalog->next_table_id = tables.next_table_id;
    TRY(tables_check(catalog, msg));
    catalog->whole_bytes = strlen(text);
    if (journal) {
        TRY(catalog_journal_read(directory, journal, apply_change, catalog, &catalog->journal,
                                 msg));
        catalog->last_journal = journal;
    }
    *ret_catalog = TAKE(catalog);
    return EMBTIER_OK;
}

/* Makes the catalog of a store that is being made. Later, a missing catalog is an error. */
static enum embtier_err catalog_make(const char *directory, struct catalog **ret_catalog,
                                     struct err_msg *msg)
{
    _cleanup_(catalog_freep) struct catalog *catalog = catalog_new(directory);
    _cleanup_(catalog_tables_clear) struct catalog_tables none = { .next_table_id = 1 };

    if (!catalog)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    if (store_identity_is_ready(directory))
        return err_set(msg, EMBTIER_CORRUPT, "%s: missing" CATALOG_WAY_OUT, catalog->path);
    TRY(catalog_replace(catalog, &none, msg));
    *ret_catalog = TAKE(catalog);
    return EMBTIER_OK;
}

enum embtier_err catalog_open(const char *directory, struct catalog **ret_catalog,
                              struct err_msg *msg)
{
    const enum embtier_err err = catalog_read(directory, ret_catalog, msg);

    return err == EMBTIER_NOT_FOUND ? catalog_make(directory, ret_catalog, msg) : err;
}

void catalog_free(struct catalog *catalog)
{
    if (!catalog)
        return;
    free(catalog->tables);
    json_decref(catalog->ids);
    free(catalog->path);
    free(catalog->directory);
    free(catalog);
}

uint32_t catalog_count(const struct catalog *catalog)
{
    return catalog->count;
}

const struct catalog_table *catalog_at(const struct catalog *catalog, uint32_t index)
{
    return &catalog->tables[index];
}

enum embtier_err catalog_add(struct catalog *catalog, const struct table_spec *spec, uid_t owner,
                             enum catalog_state state, uint32_t *ret_table_id, struct err_msg *msg)
{
    const struct catalog_table table = {
        .table_id = catalog->next_table_id, .state = state, .owner = owner, .spec = *spec
    };

    TRY(table_spec_check(spec, msg));
    if (catalog_find(catalog, spec->name))
        return err_set(msg, EMBTIER_EXISTS,
                       "table '%s' already exists: use it, drop it first, or choose another name",
                       spec->name);
    if (table.table_id >= CATALOG_TABLE_IDS)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "all %" PRIu32
                       " table ids are used up: make a new store, and import the tables there",
                       CATALOG_TABLE_IDS);
    TRY(catalog_change(catalog, &(struct change){ .kind = CHANGE_ADD, .table = &table }, msg));
    *ret_table_id = table.table_id;
    return EMBTIER_OK;
}

enum embtier_err catalog_set_state(struct catalog *catalog, uint32_t table_id,
                                   enum catalog_state state, struct err_msg *msg)
{
    uint32_t index = 0;

    TRY(catalog_index(catalog, table_id, &index, msg));
    if (state != CATALOG_DROPPING && catalog->tables[index].state == CATALOG_DROPPING)
        return err_set(msg, EMBTIER_DROPPED, "table '%s' is being dropped",
                       catalog->tables[index].spec.name);
    return catalog_change(
        catalog,
        &(struct change){
            .kind = CHANGE_STATE, .table_ids = &table_id, .count = 1, .state = state },
        msg);
}

enum embtier_err catalog_set_home(struct catalog *catalog, uint32_t table_id,
                                  const struct table_spec *like, struct err_msg *msg)
{
    struct catalog_table table;
    uint32_t index = 0;

    TRY(catalog_index(catalog, table_id, &index, msg));
    table = catalog->tables[index];
    table.spec.home = like->home;
    memcpy(table.spec.home_tier, like->home_tier, sizeof(table.spec.home_tier));
    table.spec.hot_rows = like->hot_rows;
    table.spec.hot_sum = like->hot_sum;
    TRY(table_spec_check(&table.spec, msg));
    return catalog_change(catalog, &(struct change){ .kind = CHANGE_SPEC, .table = &table }, msg);
}

enum embtier_err catalog_remove(struct catalog *catalog, uint32_t table_id, struct err_msg *msg)
{
    uint32_t index = 0;

    TRY(catalog_index(catalog, table_id, &index, msg));
    return catalog_change(
        catalog, &(struct change){ .kind = CHANGE_REMOVE, .table_ids = &table_id, .count = 1 },
        msg);
}

/* Makes the change that turns @made LIVE. */
static enum embtier_err change_made(const struct catalog *catalog, const struct catalog_made *made,
                                    struct change *ret_change, struct err_msg *msg)
{
    uint32_t index = 0;

    *ret_change = (struct change){ .kind = CHANGE_STATE, .state = CATALOG_LIVE };
    if (!made)
        return EMBTIER_OK;
    for (uint32_t i = 0; i < made->count; i++)
        TRY(catalog_index(catalog, made->table_ids[i], &index, msg));
    ret_change->table_ids = made->table_ids;
    ret_change->count = made->count;
    return EMBTIER_OK;
}

enum embtier_err catalog_set_live(struct catalog *catalog, const struct catalog_made *made,
                                  struct err_msg *msg)
{
    struct change change;

    TRY(change_made(catalog, made, &change, msg));
    return catalog_change(catalog, &change, msg);
}

enum embtier_err catalog_copy(const struct catalog *catalog, const char *directory,
                              const struct catalog_made *made, struct err_msg *msg)
{
    _cleanup_(catalog_tables_clear) struct catalog_tables tables = { 0 };
    struct change change;

    TRY(change_made(catalog, made, &change, msg));
    TRY(tables_copy(catalog, &tables, msg));
    tables_change(&tables, &change);
    return catalog_file_write(directory, &tables, 0, msg);
}

void catalog_set_step(struct catalog *catalog, uint32_t index, uint64_t step)
{
    struct table_spec *const spec = &catalog->tables[index].spec;

    catalog->has_new_steps |= step != spec->step;
    spec->step = step;
}

enum embtier_err catalog_fold(struct catalog *catalog, struct err_msg *msg)
{
    const struct catalog_tables tables = { catalog->tables, catalog->count,
                                           catalog->next_table_id };

    if (catalog->journal.number == 0 && !catalog->has_new_steps)
        return EMBTIER_OK;
    TRY(write_whole(catalog, &tables, false, msg));
    catalog->has_new_steps = false;
    return EMBTIER_OK;
}

enum embtier_err catalog_take_over(struct catalog *catalog, const struct catalog *other,
                                   struct err_msg *msg)
{
    _cleanup_(catalog_tables_clear) struct catalog_tables tables = { 0 };

    TRY(tables_copy(other, &tables, msg));
    tables.next_table_id = MAX(catalog->next_table_id, other->next_table_id);
    return catalog_replace(catalog, &tables, msg);
}

static int compare_table_ids(const void *a, const void *b)
{
    const uint32_t left = ((const struct catalog_table *)a)->table_id;
    const uint32_t right = ((const struct catalog_table *)b)->table_id;

    return left < right ? -1 : left > right;
}

/* Sets the steps of `replay` tables. Returns true if one has changed. */
static bool go_back_in_steps(struct catalog_tables *tables, const struct catalog *then)
{
    bool has_changed = false;

    for (uint32_t i = 0; i < tables->count; i++) {
        struct catalog_table *const table = &tables->tables[i];
        uint64_t step = 0;
        uint32_t index;

        if (table->spec.durability != EMBTIER_DURABILITY_REPLAY)
            continue;
        if (then && find_index(then->tables, then->count, table->table_id, &index))
            step = then->tables[index].spec.step;
        has_changed |= step != table->spec.step;
        table->spec.step = step;
    }
    return has_changed;
}

enum embtier_err catalog_go_back(struct catalog *catalog, const struct catalog *then,
                                 struct err_msg *msg)
{
    const uint32_t most = catalog->count + (then ? then->count : 0);
    _cleanup_(catalog_tables_clear) struct catalog_tables tables = {
        .tables = calloc((size_t)most + 1, sizeof(*tables.tables)),
        .count = catalog->count,
        .next_table_id = MAX(catalog->next_table_id, then ? then->next_table_id : 0),
    };
    bool has_changed;

    if (!tables.tables)
        return no_memory(catalog, msg);
    if (catalog->count > 0)
        memcpy(tables.tables, catalog->tables, catalog->count * sizeof(*tables.tables));
    has_changed = go_back_in_steps(&tables, then);
    for (uint32_t i = 0; then && i < then->count; i++) {
        if (has_id(catalog, then->tables[i].table_id))
            continue;
        tables.tables[tables.count] = then->tables[i];
        tables.tables[tables.count++].state = CATALOG_DROPPING;
    }
    if (tables.count == catalog->count && !has_changed)
        return EMBTIER_OK;
    qsort(tables.tables, tables.count, sizeof(*tables.tables), compare_table_ids);
    return catalog_replace(catalog, &tables, msg);
}

struct catalog *catalog_dup(const struct catalog *catalog)
{
    struct catalog *copy = catalog_new(catalog->directory);
    struct catalog_tables tables;

    if (!copy)
        return NULL;
    if (tables_copy(catalog, &tables, NULL) != EMBTIER_OK) {
        catalog_free(copy);
        return NULL;
    }
    copy->tables = tables.tables;
    copy->count = copy->capacity = tables.count;
    copy->next_table_id = tables.next_table_id;
    return copy;
}

/* Hot rows that are stored now may be in the files, or not. */
static void settle_home(struct table_spec *spec, const struct table_spec *now)
{
    const bool is_same = home_has_hot_rows(now->home) && now->hot_rows == spec->hot_rows &&
                         now->hot_sum == spec->hot_sum;

    if (home_has_hot_rows(spec->home) && !is_same)
        table_spec_set_cached(spec);
    spec->hot_rows = MAX(spec->hot_rows, now->hot_rows);
}

static struct catalog_table settled(const struct catalog_table *then,
                                    const struct catalog_table *now)
{
    struct catalog_table table;
    const bool whole = then && now && then->state == CATALOG_LIVE && now->state == CATALOG_LIVE;
    const bool made = then && now && then->state == CATALOG_CREATING;

    assert(then || now);
    table = then ? *then : *now;
    if (then && now)
        settle_home(&table.spec, &now->spec);
    if (!whole && !made)
        table.state = CATALOG_DROPPING;
    return table;
}

enum embtier_err catalog_settle(struct catalog *then, const struct catalog *now,
                                struct err_msg *msg)
{
    struct catalog_table *const tables =
        calloc((size_t)then->count + now->count + 1, sizeof(*tables));
    uint32_t count = 0, n = 0;

    if (!tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", then->path);
    for (uint32_t t = 0; t < then->count || n < now->count;) {
        const struct catalog_table *a = t < then->count ? &then->tables[t] : NULL;
        const struct catalog_table *b = n < now->count ? &now->tables[n] : NULL;

        if (a && b && a->table_id != b->table_id) /* both are in order of ids */
            *(a->table_id < b->table_id ? &b : &a) = NULL;
        tables[count++] = settled(a, b);
        t += a != NULL;
        n += b != NULL;
    }
    free(then->tables);
    then->tables = tables;
    then->count = then->capacity = count;
    then->next_table_id = MAX(then->next_table_id, now->next_table_id);
    return EMBTIER_OK;
}
