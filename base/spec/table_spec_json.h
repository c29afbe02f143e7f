/* SPDX-License-Identifier: Apache-2.0 */
/* table_spec_json.h: a table's spec as JSON, for the catalog and for exports of tables. Pure
 * functions. */
#ifndef EMBTIER_BASE_SPEC_TABLE_SPEC_JSON_H
#define EMBTIER_BASE_SPEC_TABLE_SPEC_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/spec/table_spec.h"

/* 2 added hyperparameters, 3 the durability. An older reader would lose them. */
#define TABLE_SPEC_JSON_VERSION 3

/* Returns a new object, or NULL if out of memory. */
json_t *table_spec_to_json(const struct table_spec *spec);
/* False: @json is not a spec of @version. The caller still has to run table_spec_check(), which
 * refuses unknown words. Other members of the object are ignored. */
bool table_spec_from_json(const json_t *json, uint32_t version, struct table_spec *ret_spec);

/* 64-bit numbers are strings: many readers of JSON hold numbers as doubles. */
json_t *json_from_u64(uint64_t value);
bool json_to_u64(const json_t *json, uint64_t *ret_value);
bool json_to_u32(const json_t *json, uint32_t *ret_value);

#endif
