/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/status/pieces.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "tools/cli/cli.h"
#include "tools/cli/json_values.h"
#include "tools/cli/number.h"

json_t *pieces_libraries(const struct embtier_status *status)
{
    json_t *libraries = json_array();

    for (size_t i = 0; i < embtier_status_library_count(status); i++)
        json_array_append_new(libraries, json_string(embtier_status_library_at(status, i)));
    return libraries;
}

json_t *pieces_plan(const struct embtier_plan_info *plan)
{
    const bool is_applied = plan && plan->generation > 0;
    const bool is_applying = plan && plan->applying_pid > 0;

    if (!plan)
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "generation", cli_json_u64(plan->generation),
                     "tables", plan->tables > 0 ? json_integer(plan->tables) : json_null(),
                     "applied_ms", is_applied ? cli_json_u64(plan->applied_ms) : json_null(),
                     "applying_pid", is_applying ? cli_json_u64(plan->applying_pid) : json_null(),
                     "applying_generation",
                     is_applying ? cli_json_u64(plan->applying_generation) : json_null());
}

const char *pieces_plan_text(struct plan_text *buffer, const struct embtier_plan_info *plan)
{
    char *at = buffer->text, *const end = buffer->text + sizeof(buffer->text);
    struct number_text date;

    if (plan->generation == 0)
        at += snprintf(at, (size_t)(end - at), "no placement plan is in force");
    else
        at += snprintf(at, (size_t)(end - at),
                       "placement plan of generation %" PRIu64 ", in force since %s",
                       plan->generation, number_date(&date, plan->applied_ms));
    if (plan->tables > 0)
        at += snprintf(at, (size_t)(end - at), ", of %" PRIu32 " table%s", plan->tables,
                       PLURAL(plan->tables));
    if (plan->applying_pid > 0)
        (void)snprintf(at, (size_t)(end - at), "; process %" PRIu64 " applies generation %" PRIu64,
                       plan->applying_pid, plan->applying_generation);
    return buffer->text;
}

static int print_line(json_t *value)
{
    bool written;

    if (!value)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    written = cli_write_json(value, JSON_COMPACT);
    json_decref(value);
    return written && fflush(stdout) == 0 ? EXIT_DONE
                                          : cli_fail(EMBTIER_IO, "cannot write the output");
}

int pieces_print_json(struct json_t *value, bool is_line)
{
    return is_line ? print_line(value) : cli_print_json(value, JSON_DOUBLE_DIGITS);
}
