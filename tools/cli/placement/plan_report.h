/* SPDX-License-Identifier: Apache-2.0 */
/* plan_report.h: a plan, or the difference of two, as tables for people and as JSON. Thread: one.
 */
#ifndef EMBTIER_TOOLS_CLI_PLACEMENT_PLAN_REPORT_H
#define EMBTIER_TOOLS_CLI_PLACEMENT_PLAN_REPORT_H

#include "placement/plan/plan_diff.h"

struct json_t;

/* Print to standard output. False: out of memory. @path is the plan's file. */
MUST_CHECK bool plan_report_print(const struct plan *plan, const char *path);
MUST_CHECK bool plan_report_print_table(const struct plan *plan, const struct plan_table *table);
MUST_CHECK bool plan_report_print_diff(const struct plan *before, const struct plan *after,
                                       const struct plan_diff *diff);

/* Return NULL when out of memory. */
struct json_t *plan_report_json(const struct plan *plan);
struct json_t *plan_report_table_json(const struct plan *plan, const struct plan_table *table);
struct json_t *plan_report_diff_json(const struct plan *before, const struct plan *after,
                                     const struct plan_diff *diff);

#endif
