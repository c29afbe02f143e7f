/* SPDX-License-Identifier: Apache-2.0 */
#include "store/catalog.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/table_spec_json.h"
#include "store/durable_file.h"
#include "store/store_identity.h"
#include "store/summed_json.h"

/* Up to 3 that of the tables' specs (table_spec_json.h), 4 since it has a checksum. */
#define FORMAT_VERSION        4
#define FORMAT_VERSION_SUMMED 4

struct catalog {
    char *directory;
    char *path; /* for messages */
    uint32_t next_table_id;
    uint32_t count;
    struct catalog_table *tables; /* in order of table id */
};

static const char *const state_words[] = {
    [CATALOG_CREATING] = "creating",
    [CATALOG_LIVE] = "live",
    [CATALOG_DROPPING] = "dropping",
};

static json_t *table_to_json(const struct catalog_table *table)
{
    json_t *const json = table_spec_to_json(&table->spec);

    if (json &&
        json_object_set_new(json, "table_id", json_integer((json_int_t)table->table_id)) == 0 &&
        json_object_set_new(json, "state", json_string(state_words[table->state])) == 0)
        return json;
    json_decref(json);
    return NULL;
}

static bool table_from_json(const json_t *json, uint32_t version, struct catalog_table *ret_table)
{
    const char *const state = json_string_value(json_object_get(json, "state"));
    struct catalog_table table = { 0 };

    if (!json_to_u32(json_object_get(json, "table_id"), &table.table_id) || !state ||
        !table_spec_from_json(json, MIN(version, (uint32_t)TABLE_SPEC_JSON_VERSION), &table.spec))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(state_words); i++) {
        if (strcmp(state, state_words[i]) != 0)
            continue;
        table.state = (enum catalog_state)i;
        *ret_table = table;
        return true;
    }
    return false;
}

static enum embtier_err write_tables(const char *directory, uint32_t next_table_id,
                                     const struct catalog_table *tables, uint32_t count,
                                     struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = NULL;
    json_t *list = json_array();
    bool complete = list != NULL;

    for (uint32_t i = 0; complete && i < count; i++)
        complete = json_array_append_new(list, table_to_json(&tables[i])) == 0;
    root = json_pack("{s:s, s:i, s:I, s:o}", SUMMED_JSON_KEY, SUMMED_JSON_NONE, "format_version",
                     FORMAT_VERSION, "next_table_id", (json_int_t)next_table_id, "tables", list);
    return summed_json_write(directory, CATALOG_FILE, complete ? root : NULL, msg);
}

/* @tables replaces the catalog's only when it is safe on disk; taken in that case. */
static enum embtier_err catalog_replace(struct catalog *catalog, uint32_t next_table_id,
                                        struct catalog_table **tables, uint32_t count,
                                        struct err_msg *msg)
{
    TRY(write_tables(catalog->directory, next_table_id, *tables, count, msg));
    free(catalog->tables);
    catalog->tables = TAKE(*tables);
    catalog->count = count;
    catalog->next_table_id = next_table_id;
    return EMBTIER_OK;
}

static enum embtier_err tables_check(const struct catalog *catalog, struct err_msg *msg)
{
    for (uint32_t i = 0; i < catalog->count; i++) {
        const struct catalog_table *table = &catalog->tables[i];
        struct err_msg why;

        if (table_spec_check(&table->spec, &why) != EMBTIER_OK)
            return err_set(msg, EMBTIER_CORRUPT, "%s: table %" PRIu32 ": %s", catalog->path,
                           table->table_id, why.text);
        if (table->table_id >= catalog->next_table_id ||
            (i > 0 && table->table_id <= catalog->tables[i - 1].table_id))
            return err_set(msg, EMBTIER_CORRUPT, "%s: table id %" PRIu32 " is out of order",
                           catalog->path, table->table_id);
        if (table->state != CATALOG_DROPPING && catalog_find(catalog, table->spec.name) != table)
            return err_set(msg, EMBTIER_CORRUPT, "%s: two tables named %s", catalog->path,
                           table->spec.name);
    }
    return EMBTIER_OK;
}

static enum embtier_err catalog_parse(struct catalog *catalog, const char *text,
                                      struct err_msg *msg)
{
    json_error_t error;
    _cleanup_(json_decrefp) json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    const json_t *list = json_object_get(root, "tables");
    uint32_t version;

    if (!root)
        return err_set(msg, EMBTIER_CORRUPT, "%s:%d: %s", catalog->path, error.line, error.text);
    if (!json_to_u32(json_object_get(root, "format_version"), &version) || !json_is_array(list) ||
        !json_to_u32(json_object_get(root, "next_table_id"), &catalog->next_table_id))
        return err_set(msg, EMBTIER_CORRUPT, "%s: not a catalog", catalog->path);
    if (version > FORMAT_VERSION)
        return err_set(msg, EMBTIER_VERSION, "%s: format version %u, this program reads up to %d",
                       catalog->path, version, FORMAT_VERSION);
    catalog->tables = calloc(json_array_size(list) + 1, sizeof(*catalog->tables));
    if (!catalog->tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", catalog->path);
    catalog->count = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < catalog->count; i++)
        if (!table_from_json(json_array_get(list, i), version, &catalog->tables[i]))
            return err_set(msg, EMBTIER_CORRUPT, "%s: entry %u of tables is damaged", catalog->path,
                           i);
    TRY(tables_check(catalog, msg)); /* says more */
    return summed_json_check(catalog->path, text, version >= FORMAT_VERSION_SUMMED, msg);
}

static struct catalog *catalog_new(const char *directory)
{
    _cleanup_(catalog_freep) struct catalog *catalog = calloc(1, sizeof(*catalog));

    if (!catalog)
        return NULL;
    catalog->directory = strdup(directory);
    catalog->path = path_join(directory, CATALOG_FILE);
    return catalog->directory && catalog->path ? TAKE(catalog) : NULL;
}

enum embtier_err catalog_read(const char *directory, struct catalog **ret_catalog,
                              struct err_msg *msg)
{
    _cleanup_(catalog_freep) struct catalog *catalog = catalog_new(directory);
    _cleanup_(freep) char *text = NULL;

    if (!catalog)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    TRY(durable_file_read(directory, CATALOG_FILE, &text, msg));
    TRY(catalog_parse(catalog, text, msg));
    *ret_catalog = TAKE(catalog);
    return EMBTIER_OK;
}

/* A store gets its catalog while it is made: later on, no catalog is no empty one. */
static enum embtier_err catalog_make(const char *directory, struct catalog **ret_catalog,
                                     struct err_msg *msg)
{
    _cleanup_(catalog_freep) struct catalog *catalog = catalog_new(directory);
    _cleanup_(freep) struct catalog_table *none = calloc(1, sizeof(*none));

    if (!catalog || !none)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    if (store_identity_is_ready(directory))
        return err_set(msg, EMBTIER_CORRUPT, "%s: missing", catalog->path);
    TRY(catalog_replace(catalog, 1, &none, 0, msg));
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

const struct catalog_table *catalog_find(const struct catalog *catalog, const char *name)
{
    for (uint32_t i = 0; i < catalog->count; i++)
        if (catalog->tables[i].state != CATALOG_DROPPING &&
            strcmp(catalog->tables[i].spec.name, name) == 0)
            return &catalog->tables[i];
    return NULL;
}

/* A copy with room for one more. */
static struct catalog_table *tables_copy(const struct catalog *catalog)
{
    struct catalog_table *tables = calloc(catalog->count + 1, sizeof(*tables));

    if (tables && catalog->count > 0)
        memcpy(tables, catalog->tables, catalog->count * sizeof(*tables));
    return tables;
}

static enum embtier_err catalog_index(const struct catalog *catalog, uint32_t table_id,
                                      uint32_t *ret_index, struct err_msg *msg)
{
    for (uint32_t i = 0; i < catalog->count; i++) {
        if (catalog->tables[i].table_id == table_id) {
            *ret_index = i;
            return EMBTIER_OK;
        }
    }
    return err_set(msg, EMBTIER_NO_TABLE, "no table has the id %" PRIu32, table_id);
}

enum embtier_err catalog_add(struct catalog *catalog, const struct table_spec *spec,
                             enum catalog_state state, uint32_t *ret_table_id, struct err_msg *msg)
{
    _cleanup_(freep) struct catalog_table *tables = NULL;
    const uint32_t table_id = catalog->next_table_id;

    TRY(table_spec_check(spec, msg));
    if (catalog_find(catalog, spec->name))
        return err_set(msg, EMBTIER_EXISTS, "table %s already exists", spec->name);
    if (table_id == UINT32_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE, "all table ids are used up");
    tables = tables_copy(catalog);
    if (!tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", catalog->path);
    tables[catalog->count] =
        (struct catalog_table){ .table_id = table_id, .state = state, .spec = *spec };
    TRY(catalog_replace(catalog, table_id + 1, &tables, catalog->count + 1, msg));
    *ret_table_id = table_id;
    return EMBTIER_OK;
}

enum embtier_err catalog_set_state(struct catalog *catalog, uint32_t table_id,
                                   enum catalog_state state, struct err_msg *msg)
{
    _cleanup_(freep) struct catalog_table *tables = NULL;
    uint32_t index = 0;

    TRY(catalog_index(catalog, table_id, &index, msg));
    if (state != CATALOG_DROPPING && catalog->tables[index].state == CATALOG_DROPPING)
        return err_set(msg, EMBTIER_DROPPED, "table %s is being dropped",
                       catalog->tables[index].spec.name);
    tables = tables_copy(catalog);
    if (!tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", catalog->path);
    tables[index].state = state;
    return catalog_replace(catalog, catalog->next_table_id, &tables, catalog->count, msg);
}

enum embtier_err catalog_remove(struct catalog *catalog, uint32_t table_id, struct err_msg *msg)
{
    _cleanup_(freep) struct catalog_table *tables = NULL;
    uint32_t index = 0;

    TRY(catalog_index(catalog, table_id, &index, msg));
    tables = tables_copy(catalog);
    if (!tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", catalog->path);
    memmove(&tables[index], &tables[index + 1], (catalog->count - index - 1) * sizeof(*tables));
    return catalog_replace(catalog, catalog->next_table_id, &tables, catalog->count - 1, msg);
}

/* @tables are a copy of the catalog's. */
static enum embtier_err set_made(const struct catalog *catalog, struct catalog_table *tables,
                                 const struct catalog_made *made, struct err_msg *msg)
{
    for (uint32_t i = 0; made && i < made->count; i++) {
        uint32_t index = 0;

        TRY(catalog_index(catalog, made->table_ids[i], &index, msg));
        tables[index].state = CATALOG_LIVE;
    }
    return EMBTIER_OK;
}

enum embtier_err catalog_set_live(struct catalog *catalog, const struct catalog_made *made,
                                  struct err_msg *msg)
{
    _cleanup_(freep) struct catalog_table *tables = tables_copy(catalog);

    if (!tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", catalog->path);
    TRY(set_made(catalog, tables, made, msg));
    return catalog_replace(catalog, catalog->next_table_id, &tables, catalog->count, msg);
}

enum embtier_err catalog_copy(const struct catalog *catalog, const char *directory,
                              const struct catalog_made *made, struct err_msg *msg)
{
    _cleanup_(freep) struct catalog_table *tables = tables_copy(catalog);

    if (!tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", catalog->path);
    TRY(set_made(catalog, tables, made, msg));
    return write_tables(directory, catalog->next_table_id, tables, catalog->count, msg);
}

enum embtier_err catalog_take_over(struct catalog *catalog, const struct catalog *other,
                                   struct err_msg *msg)
{
    _cleanup_(freep) struct catalog_table *tables = tables_copy(other);

    if (!tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", catalog->path);
    return catalog_replace(catalog, MAX(catalog->next_table_id, other->next_table_id), &tables,
                           other->count, msg);
}

static int compare_table_ids(const void *a, const void *b)
{
    const uint32_t left = ((const struct catalog_table *)a)->table_id;
    const uint32_t right = ((const struct catalog_table *)b)->table_id;

    return left < right ? -1 : left > right;
}

static bool has_id(const struct catalog *catalog, uint32_t table_id)
{
    for (uint32_t i = 0; i < catalog->count; i++)
        if (catalog->tables[i].table_id == table_id)
            return true;
    return false;
}

enum embtier_err catalog_add_gone(struct catalog *catalog, const struct catalog *other,
                                  struct err_msg *msg)
{
    _cleanup_(freep) struct catalog_table *tables =
        calloc((size_t)catalog->count + other->count + 1, sizeof(*tables));
    uint32_t count = catalog->count;

    if (!tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", catalog->path);
    if (count > 0)
        memcpy(tables, catalog->tables, count * sizeof(*tables));
    for (uint32_t i = 0; i < other->count; i++) {
        if (has_id(catalog, other->tables[i].table_id))
            continue;
        tables[count] = other->tables[i];
        tables[count++].state = CATALOG_DROPPING;
    }
    if (count == catalog->count)
        return EMBTIER_OK;
    qsort(tables, count, sizeof(*tables), compare_table_ids);
    return catalog_replace(catalog, MAX(catalog->next_table_id, other->next_table_id), &tables,
                           count, msg);
}
