/* SPDX-License-Identifier: Apache-2.0 */
/* overview_json.h: an overview for programs. Keys never change their meaning; new ones may come. */
#ifndef EMBTIER_TOOLS_CLI_STATUS_OVERVIEW_JSON_H
#define EMBTIER_TOOLS_CLI_STATUS_OVERVIEW_JSON_H

#include "tools/cli/status/overview.h"

struct json_t;

/* Has all tables and warnings. Unknown values are null. NULL: out of memory. */
struct json_t *overview_to_json(const struct overview *overview,
                                const struct embtier_status *status);

#endif
