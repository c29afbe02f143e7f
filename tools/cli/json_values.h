/* SPDX-License-Identifier: Apache-2.0 */
/* json_values.h: values that JSON or jansson cannot hold as they are. Each returns NULL when out of
 * memory. Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_JSON_VALUES_H
#define EMBTIER_TOOLS_CLI_JSON_VALUES_H

#include <stdint.h>

struct json_t;

/* Makes a string. Text that is not UTF-8, such as some paths, is escaped. */
struct json_t *cli_json_text(const char *text);
/* Makes an integer if @value is one, and null if it is infinite or NaN. */
struct json_t *cli_json_number(double value);
/* Makes an integer, or a string if @value is too large for a signed one: JSON has no unsigned
 * 64-bit numbers. */
struct json_t *cli_json_u64(uint64_t value);

#endif
