/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/json_values.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "base/json/figures_json.h"
#include "base/macros.h"
#include "base/text/text_escape.h"

json_t *cli_json_number(double value)
{
    return figures_json_number(value);
}

json_t *cli_json_u64(uint64_t value)
{
    char text[32];

    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    snprintf(text, sizeof(text), "%" PRIu64, value);
    return json_string(text);
}

json_t *cli_json_text(const char *text)
{
    _cleanup_(freep) char *escaped = NULL;
    json_t *json = json_string(text);

    if (json)
        return json;
    escaped = text_escape_new(TEXT_PLAIN, text); /* a path may be any bytes */
    return escaped ? json_string(escaped) : NULL;
}
