/* SPDX-License-Identifier: Apache-2.0 */
#include "store/catalog.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/durable_file.h"
#include "store/store_identity.h"

/* 2 since there are hyperparameters, 3 since there is a durability: who does not know them loses
 * them. */
#define FORMAT_VERSION 3

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

/* 64-bit numbers are strings: many readers of JSON hold numbers as doubles. */
static json_t *json_from_u64(uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    return json_string(text);
}

static bool json_to_u64(const json_t *json, uint64_t *ret_value)
{
    const char *text = json_string_value(json);
    unsigned long long value;
    char *end;

    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    value = strtoull(text, &end, 10);
    if (*end != '\0')
        return false;
    *ret_value = value;
    return true;
}

static bool json_to_u32(const json_t *json, uint32_t *ret_value)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0 ||
        json_integer_value(json) > UINT32_MAX)
        return false;
    *ret_value = (uint32_t)json_integer_value(json);
    return true;
}

static json_t *hyperparameters_to_json(const struct table_spec *spec)
{
    json_t *json = json_object();
    bool complete = json != NULL;

#define X(name, field, lowest, highest, standard, text)                                            \
    if (complete && optimizer_has(spec->optimizer, EMBTIER_##name))                                \
        complete = json_object_set_new(json, #field, json_real(spec->field)) == 0;
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    if (complete)
        return json;
    json_decref(json);
    return NULL;
}

static json_t *table_to_json(const struct catalog_table *table)
{
    const struct table_spec *spec = &table->spec;

    return json_pack("{s:I, s:s, s:s, s:o, s:I, s:s, s:s, s:s, s:[f, f], s:o, s:b, s:I, s:o, "
                     "s:b, s:b, s:s}",
                     "table_id", (json_int_t)table->table_id, "state", state_words[table->state],
                     "name", spec->name, "rows", json_from_u64(spec->rows), "dim",
                     (json_int_t)spec->dim, "dtype", dtype_word(spec->dtype), "optimizer",
                     optimizer_word(spec->optimizer), "init", init_word(spec->init), "init_params",
                     spec->init_params[0], spec->init_params[1], "seed", json_from_u64(spec->seed),
                     "eager", (int)spec->eager, "init_version", (json_int_t)spec->init_version,
                     "hyperparameters", hyperparameters_to_json(spec), "rounds_to_nearest",
                     (int)spec->rounds_to_nearest, "allows_nonfinite", (int)spec->allows_nonfinite,
                     "durability", durability_word(spec->durability));
}

static bool words_from_json(const json_t *json, struct catalog_table *table)
{
    const char *state = json_string_value(json_object_get(json, "state"));
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    const char *optimizer = json_string_value(json_object_get(json, "optimizer"));
    const char *init = json_string_value(json_object_get(json, "init"));

    if (!state || !dtype || !optimizer || !init)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(state_words); i++) {
        if (strcmp(state, state_words[i]) != 0)
            continue;
        table->state = (enum catalog_state)i;
        table->spec.dtype = (enum embtier_dtype)dtype_parse(dtype);
        table->spec.optimizer = (enum embtier_optimizer)optimizer_parse(optimizer);
        table->spec.init = (enum embtier_init)init_parse(init);
        return true; /* wrong words are -1, which table_spec_check() refuses */
    }
    return false;
}

/* Those that are not there have their defaults: version 1 had none, and an optimizer may get one
 * more. */
static bool update_from_json(const json_t *json, uint32_t version, struct table_spec *spec)
{
    const json_t *const given = json_object_get(json, "hyperparameters");
    const json_t *const nearest = json_object_get(json, "rounds_to_nearest");
    const json_t *const nonfinite = json_object_get(json, "allows_nonfinite");
    size_t known = 0;

    if (version > 1 &&
        (!json_is_object(given) || !json_is_boolean(nearest) || !json_is_boolean(nonfinite)))
        return false;
#define X(name, field, lowest, highest, standard, text)                                            \
    const json_t *const field = json_object_get(given, #field);                                    \
    if (field && !json_is_number(field))                                                           \
        return false;                                                                              \
    spec->field = field ? json_number_value(field) : EMBTIER_DEFAULT;                              \
    known += field != NULL;
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    spec->rounds_to_nearest = json_is_true(nearest);
    spec->allows_nonfinite = json_is_true(nonfinite);
    table_spec_fill_defaults(spec);
    return known == json_object_size(given); /* none has a name that is not known */
}

/* Before version 3 every table was `replay`, and none said so. */
static bool durability_from_json(const json_t *json, uint32_t version, struct table_spec *spec)
{
    const char *const word = json_string_value(json_object_get(json, "durability"));

    spec->durability = EMBTIER_DURABILITY_REPLAY;
    if (version < 3)
        return !word;
    if (word)
        spec->durability = (enum embtier_durability)durability_parse(word);
    return word != NULL; /* a wrong word is -1, which table_spec_check() refuses */
}

static bool table_from_json(const json_t *json, uint32_t version, struct catalog_table *ret_table)
{
    struct catalog_table table = { 0 };
    struct table_spec *spec = &table.spec;
    const char *name = json_string_value(json_object_get(json, "name"));
    const json_t *params = json_object_get(json, "init_params");
    const json_t *eager = json_object_get(json, "eager");

    if (!name || strlen(name) > EMBTIER_TABLE_NAME_MAX || json_array_size(params) != 2 ||
        !json_is_boolean(eager))
        return false;
    memcpy(spec->name, name, strlen(name) + 1);
    for (size_t i = 0; i < 2; i++) {
        if (!json_is_number(json_array_get(params, i)))
            return false;
        spec->init_params[i] = json_number_value(json_array_get(params, i));
    }
    spec->eager = json_is_true(eager);
    if (!json_to_u32(json_object_get(json, "table_id"), &table.table_id) ||
        !json_to_u32(json_object_get(json, "dim"), &spec->dim) ||
        !json_to_u32(json_object_get(json, "init_version"), &spec->init_version) ||
        !json_to_u64(json_object_get(json, "rows"), &spec->rows) ||
        !json_to_u64(json_object_get(json, "seed"), &spec->seed) ||
        !words_from_json(json, &table) || !durability_from_json(json, version, spec) ||
        !update_from_json(json, version, spec)) /* after the word of the optimizer */
        return false;
    *ret_table = table;
    return true;
}

static enum embtier_err write_tables(const char *directory, uint32_t next_table_id,
                                     const struct catalog_table *tables, uint32_t count,
                                     struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = NULL;
    _cleanup_(freep) char *text = NULL;
    json_t *list = json_array();
    bool complete = list != NULL;

    for (uint32_t i = 0; complete && i < count; i++)
        complete = json_array_append_new(list, table_to_json(&tables[i])) == 0;
    root = json_pack("{s:i, s:I, s:o}", "format_version", FORMAT_VERSION, "next_table_id",
                     (json_int_t)next_table_id, "tables", list);
    if (complete && root)
        text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    return durable_file_write(directory, CATALOG_FILE, text, msg);
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
    return tables_check(catalog, msg);
}

enum embtier_err catalog_open(const char *directory, struct catalog **ret_catalog,
                              struct err_msg *msg)
{
    _cleanup_(catalog_freep) struct catalog *catalog = calloc(1, sizeof(*catalog));
    _cleanup_(freep) struct catalog_table *none = NULL;
    _cleanup_(freep) char *text = NULL;
    enum embtier_err err;

    if (catalog) {
        catalog->directory = strdup(directory);
        catalog->path = path_join(directory, CATALOG_FILE);
        none = calloc(1, sizeof(*none));
    }
    if (!catalog || !catalog->directory || !catalog->path || !none)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    err = durable_file_read(directory, CATALOG_FILE, &text, msg);
    if (err == EMBTIER_NOT_FOUND) {
        /* A store gets its catalog while it is made: later on, no catalog is no empty one. */
        if (store_identity_is_ready(directory))
            return err_set(msg, EMBTIER_CORRUPT, "%s: missing", catalog->path);
        TRY(catalog_replace(catalog, 1, &none, 0, msg));
    } else {
        TRY(err);
        TRY(catalog_parse(catalog, text, msg));
    }
    *ret_catalog = TAKE(catalog);
    return EMBTIER_OK;
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

enum embtier_err catalog_copy(const struct catalog *catalog, const char *directory,
                              struct err_msg *msg)
{
    return write_tables(directory, catalog->next_table_id, catalog->tables, catalog->count, msg);
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
