/* SPDX-License-Identifier: Apache-2.0 */
#include "store/catalog_table.h"

#include <string.h>

#include "base/macros.h"
#include "base/spec/table_spec_json.h"
#include "store/files/summed_json.h"

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
