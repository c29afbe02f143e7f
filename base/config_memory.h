/* SPDX-License-Identifier: Apache-2.0 */
/* config_memory.h: whether the budgets of a configuration, all together, fit the machine. Inside
 * base/ only. */
#ifndef EMBTIER_BASE_CONFIG_MEMORY_H
#define EMBTIER_BASE_CONFIG_MEMORY_H

#include <stdbool.h>

#include "base/config.h"

/* Whether a tier's bytes are the machine's memory, as far as its kind tells. */
bool config_tier_kind_is_memory(const struct tier_spec *tier);

/* EMBTIER_CONFIG if the tiers that are memory, queues, buffers and shared arenas are more than the
 * machine has: the message names the largest of them, the sum, and the machine's. */
MUST_CHECK enum embtier_err config_memory_check(const struct config *config,
                                                bool (*is_memory)(const struct tier_spec *tier),
                                                struct err_msg *msg);

#endif
