/* SPDX-License-Identifier: Apache-2.0 */
/* budget.h: the sum of the memory that the parts of the server take in addition to the budgets of a
 * configuration. Each part exports its own share (`..._reserved_bytes()`). Thread: any. */
#ifndef EMBTIER_DAEMON_BUDGET_BUDGET_H
#define EMBTIER_DAEMON_BUDGET_BUDGET_H

#include "base/macros.h"
#include "config/config_memory.h"

/* The program and its libraries, catalog and metrics, maps of buckets (80 KiB), and the system's
 * own memory for threads and files. */
#define BUDGET_PROGRAM_BYTES (16 * MIB)

/* A config_unbudgeted_fn, for config_load(). */
void budget_unbudgeted(const struct config *config, uint32_t lane_count,
                       struct config_unbudgeted *ret_unbudgeted);

#endif
