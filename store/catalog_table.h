/* SPDX-License-Identifier: Apache-2.0 */
/* catalog_table.h: a table of the catalog; as JSON, in catalog.json and in its journal. Thread:
 * any.
 */
#ifndef EMBTIER_STORE_CATALOG_TABLE_H
#define EMBTIER_STORE_CATALOG_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/spec/table_spec.h"

enum catalog_state {
    CATALOG_CREATING, /* eager rows are being written; a start that finds it drops the table */
    CATALOG_LIVE,
    CATALOG_DROPPING, /* a start that finds it drops the table again */
};

#define CATALOG_NOBODY ((uid_t)-1)

struct catalog_table {
    uint32_t table_id;
    enum catalog_state state;
    uid_t owner; /* the user that made it; CATALOG_NOBODY: made before owners were noted */
    struct table_spec spec;
};

const char *catalog_state_word(enum catalog_state state);
/* False: no known state. */
bool catalog_state_from_json(const json_t *json, enum catalog_state *ret_state);
/* Returns a record with a checksum of its own (files/summed_json.h). NULL: out of memory. */
json_t *catalog_table_to_json(const struct catalog_table *table);
/* False: something is missing, or not as it must be. The caller has checked the checksum. */
bool catalog_table_from_json(const json_t *json, struct catalog_table *ret_table);

#endif
