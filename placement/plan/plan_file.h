/* SPDX-License-Identifier: Apache-2.0 */
/* plan_file.h: a plan as a file of YAML, which people may edit
 * (docs/internals/placement/plan-format.md).
 *
 * A file that was read is checked as a plan is, so whatever was done to it, its plan is possible. A
 * mistake is `FILE:LINE: KEY: the fault; allowed: …`. Later messages about the plan name places in
 * the file by plan_place(). Thread: any. */
#ifndef EMBTIER_PLACEMENT_PLAN_PLAN_FILE_H
#define EMBTIER_PLACEMENT_PLAN_PLAN_FILE_H

#include <stdio.h>

#include "placement/plan/plan.h"

#define PLAN_FILE_FORMAT  "embtier-plan"
#define PLAN_FILE_VERSION 1
/* 8,192 tables of six parts, with all figures at full length, have fewer. Reading takes less than
 * 400 MiB of memory, whatever the file says. The plan keeps a part of that for its places. */
#define PLAN_FILE_BYTES_MAX (64 * MIB)

/* Writes the text of a plan that plan_check() has passed. The same plan gives the same bytes. The
 * caller checks @file for errors. */
void plan_file_write(const struct plan *plan, FILE *file);

/* Writes a new file, durable and whole or not at all. EXISTS: there is one. INVALID: see
 * plan_check(). */
MUST_CHECK enum embtier_err plan_file_save(const struct plan *plan, const char *path,
                                           struct err_msg *msg);

/* CONFIG: this is no plan, or has a mistake. VERSION: it is of a newer version of embtier. */
MUST_CHECK enum embtier_err plan_file_load(const char *path, struct plan **ret_plan,
                                           struct err_msg *msg);
/* The same for a text in memory; messages name it @source. */
MUST_CHECK enum embtier_err plan_file_parse(const char *source, const char *text, size_t text_bytes,
                                            struct plan **ret_plan, struct err_msg *msg);

#endif
