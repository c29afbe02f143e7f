/* SPDX-License-Identifier: Apache-2.0 */
/* table_spec_json.h: a table's spec as JSON, as the catalog and exports of tables hold it. Pure
 * functions. */
#ifndef EMBTIER_BASE_SPEC_TABLE_SPEC_JSON_H
#define EMBTIER_BASE_SPEC_TABLE_SPEC_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/spec/table_spec.h"

/* 2 since there are hyperparameters, 3 since there is a durability: a reader that does not
 * know them loses them. */
#define TABLE_SPEC_JSON_VERSION 3

/* A new object, or NULL: no memory. */
json_t *table_spec_to_json(const struct table_spec *spec);
/* False: it is none of @version. It is still to be checked by table_spec_check(), which refuses
 * words that are not known. Other members of the object do not matter. */
bool table_spec_from_json(const json_t *json, uint32_t version, struct table_spec *ret_spec);

/* 64-bit numbers are strings: many readers of JSON hold numbers as doubles. */
json_t *json_from_u64(uint64_t value);
bool json_to_u64(const json_t *json, uint64_t *ret_value);
bool json_to_u32(const json_t *json, uint32_t *ret_value);

#endif
