/* SPDX-License-Identifier: Apache-2.0 */
/* show.h: outcomes side by side. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_FORECAST_SHOW_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_FORECAST_SHOW_H

#include "tools/cli/endurance/forecast/outcome.h"

struct json_t;

/* False: out of memory. @outcomes: the first is that of the server as it is. */
MUST_CHECK bool forecast_print(const struct outcome_opts *opts, const struct outcome *outcomes,
                               size_t count);
/* NULL: out of memory. */
struct json_t *forecast_to_json(const struct outcome_opts *opts, const char *profile,
                                const struct outcome *outcomes, size_t count);

#endif
