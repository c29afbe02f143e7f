/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h: how far the compactions are that run. Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_COMPACTION_PROGRESS_H
#define EMBTIER_TOOLS_CLI_COMPACTION_PROGRESS_H

#include <stdio.h>

#include "base/work_progress.h"

struct embtier_compaction_database;
struct embtier_compaction_list;

struct work_progress compaction_progress_of(const struct embtier_compaction_database *database);
/* Returns that of all databases together. */
struct work_progress compaction_progress_sum(const struct embtier_compaction_list *list);
/* Prints one line, or none if nothing compacts. */
void compaction_progress_print(const struct embtier_compaction_list *list, FILE *out);

#endif
