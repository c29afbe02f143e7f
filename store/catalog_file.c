/* SPDX-License-Identifier: Apache-2.0 */
#include "store/catalog_file.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/spec/table_spec_json.h"
#include "store/files/durable_file.h"
#include "store/files/summed_json.h"
#include "store/store_identity.h"

#define FORMAT_VERSION 6
#define RECORD_START   "\n    {" /* as summed_json_write() indents the members of an array */

/* ---- A table as JSON ---- */

static const char *const state_words[] = {
    [CATALOG_CREATING] = "creating",
    [CATALOG_LIVE] = "live",
    [CATALOG_DROPPING] = "dropping",
};

const char *catalog_state_word(enum catalog_state state)
{
    return state_words[state];
}

json_t *catalog_table_to_json(const struct catalog_table *table)
{
    _cleanup_(json_decrefp) json_t *json = json_pack("{s:s}", SUMMED_JSON_KEY, SUMMED_JSON_NONE);
    _cleanup_(json_decrefp) json_t *spec = table_spec_to_json(&table->spec);

    if (json && spec && json_object_update(json, spec) == 0 &&
        json_object_set_new(json, "table_id", json_integer((json_int_t)table->table_id)) == 0 &&
        json_object_set_new(json, "state", json_string(state_words[table->state])) == 0 &&
        (table->owner == CATALOG_NOBODY ||
         json_object_set_new(json, "owner", json_integer((json_int_t)table->owner)) == 0) &&
        summed_json_seal(json))
        return TAKE(json);
    return NULL;
}

bool catalog_state_from_json(const json_t *json, enum catalog_state *ret_state)
{
    const char *const state = json_string_value(json);

    for (size_t i = 0; state && i < ARRAY_LEN(state_words); i++) {
        if (strcmp(state, state_words[i]) != 0)
            continue;
        *ret_state = (enum catalog_state)i;
        return true;
    }
    return false;
}

/* A table of CATALOG_NOBODY has no owner in its JSON. */
static bool owner_from_json(const json_t *json, uid_t *ret_owner)
{
    *ret_owner = CATALOG_NOBODY;
    return !json || json_to_u32(json, ret_owner);
}

bool catalog_table_from_json(const json_t *json, struct catalog_table *ret_table)
{
    struct catalog_table table = { 0 };

    if (!json_to_u32(json_object_get(json, "table_id"), &table.table_id) ||
        !catalog_state_from_json(json_object_get(json, "state"), &table.state) ||
        !owner_from_json(json_object_get(json, "owner"), &table.owner) ||
        !table_spec_from_json(json, TABLE_SPEC_JSON_VERSION, &table.spec))
        return false;
    *ret_table = table;
    return true;
}

/* ---- Writing ---- */

void catalog_tables_clear(struct catalog_tables *tables)
{
    free(tables->tables);
    tables->tables = NULL;
}

enum embtier_err catalog_file_write(const char *directory, const struct catalog_tables *tables,
                                    uint32_t journal, struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = NULL;
    json_t *list = json_array();
    bool complete = list != NULL;

    for (uint32_t i = 0; complete && i < tables->count; i++)
        complete = json_array_append_new(list, catalog_table_to_json(&tables->tables[i])) == 0;
    root = json_pack("{s:s, s:i, s:I, s:o}", SUMMED_JSON_KEY, SUMMED_JSON_NONE, "format_version",
                     FORMAT_VERSION, "next_table_id", (json_int_t)tables->next_table_id, "tables",
                     list);
    if (root && journal)
        complete = complete && json_object_set_new(root, "journal", json_integer(journal)) == 0;
    return summed_json_write(directory, CATALOG_FILE, complete ? root : NULL, msg);
}

/* ---- Damage ---- */

/* Returns the number of records that begin in the first @bytes bytes of @text. */
static uint32_t count_records(const char *text, size_t bytes)
{
    const char *const end = text + strnlen(text, bytes);
    uint32_t count = 0;

    while ((text = strstr(text, RECORD_START)) && text < end) {
        text += strlen(RECORD_START);
        count++;
    }
    return count;
}

/* @text is no JSON. */
static enum embtier_err torn(const char *path, const char *text, const json_error_t *error,
                             struct err_msg *msg)
{
    const uint32_t record = count_records(text, (size_t)MAX(error->position, 0));

    return err_set(msg, EMBTIER_CORRUPT,
                   "%s:%d: damaged near the record of table %" PRIu32
                   " in the list" CATALOG_WAY_OUT,
                   path, error->line, MAX(record, UINT32_C(1)));
}

static enum embtier_err record_damaged(const char *path, const json_t *record, uint32_t index,
                                       const char *why, struct err_msg *msg)
{
    const char *const name = json_string_value(json_object_get(record, "name"));

    return err_set(msg, EMBTIER_CORRUPT,
                   "%s: the record of table %" PRIu32
                   " in the list, '%s', is damaged: %s" CATALOG_WAY_OUT,
                   path, index + 1, name ? name : "?", why);
}

static enum embtier_err records_check(const char *path, const json_t *list, struct err_msg *msg)
{
    for (uint32_t i = 0; i < json_array_size(list); i++)
        if (!summed_json_is_sealed(json_array_get(list, i)))
            return record_damaged(path, json_array_get(list, i), i, "its checksum is wrong", msg);
    return EMBTIER_OK;
}

/* A checksum comes before the version: a turned bit must not pass for another format. */
static enum embtier_err sums_check(const char *path, const char *text, const json_t *root,
                                   struct err_msg *msg)
{
    uint32_t version = 0;
    enum embtier_err err = summed_json_check(path, text, false, msg);

    if (err == EMBTIER_OK && json_to_u32(json_object_get(root, "format_version"), &version) &&
        version != FORMAT_VERSION)
        return store_other_format(path, version, FORMAT_VERSION, msg);
    if (err == EMBTIER_OK)
        err = summed_json_check(path, text, true, msg);
    if (err == EMBTIER_CORRUPT)
        err_append(msg, CATALOG_WAY_OUT);
    TRY(records_check(path, json_object_get(root, "tables"), msg)); /* this message says more */
    return err;
}

/* ---- Reading ---- */

static enum embtier_err parse_tables(const char *path, const json_t *list,
                                     struct catalog_tables *tables, struct err_msg *msg)
{
    tables->count = (uint32_t)json_array_size(list);
    tables->tables = calloc((size_t)tables->count + 1, sizeof(*tables->tables));
    if (!tables->tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    for (uint32_t i = 0; i < tables->count; i++)
        if (!catalog_table_from_json(json_array_get(list, i), &tables->tables[i]))
            return record_damaged(path, json_array_get(list, i), i, "it is no table", msg);
    return EMBTIER_OK;
}

enum embtier_err catalog_file_parse(const char *path, const char *text,
                                    struct catalog_tables *ret_tables, uint32_t *ret_journal,
                                    struct err_msg *msg)
{
    json_error_t error;
    _cleanup_(json_decrefp) json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    _cleanup_(catalog_tables_clear) struct catalog_tables tables = { 0 };
    const json_t *const list = json_object_get(root, "tables");
    const json_t *const journal = json_object_get(root, "journal");
    uint32_t number = 0;

    if (!root)
        return torn(path, text, &error, msg);
    TRY(sums_check(path, text, root, msg));
    if (!json_is_array(list) ||
        !json_to_u32(json_object_get(root, "next_table_id"), &tables.next_table_id))
        return err_set(msg, EMBTIER_CORRUPT, "%s: not a catalog" CATALOG_WAY_OUT, path);
    if (journal && (!json_to_u32(journal, &number) || number == 0))
        return err_set(msg, EMBTIER_CORRUPT, "%s: lacks the number of its journal" CATALOG_WAY_OUT,
                       path);
    TRY(parse_tables(path, list, &tables, msg));
    *ret_tables = tables;
    tables.tables = NULL;
    *ret_journal = number;
    return EMBTIER_OK;
}
