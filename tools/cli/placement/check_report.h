/* SPDX-License-Identifier: Apache-2.0 */
/* check_report.h: a check of a plan, as text and as JSON. */
#ifndef EMBTIER_TOOLS_CLI_PLACEMENT_CHECK_REPORT_H
#define EMBTIER_TOOLS_CLI_PLACEMENT_CHECK_REPORT_H

#include "placement/check/check.h"

struct json_t;

/* False: out of memory. */
MUST_CHECK bool check_report_print(const struct plan *plan, const struct check_window *window,
                                   const struct check *check, const struct check_bars *bars);
/* NULL: out of memory. */
struct json_t *check_report_json(const struct plan *plan, const struct check_window *window,
                                 const struct check *check, const struct check_bars *bars);

#endif
