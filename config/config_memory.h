/* SPDX-License-Identifier: Apache-2.0 */
/* config_memory.h: checks that all memory the server will take fits the machine. That is the
 * budgets of a configuration plus config->unbudgeted(). Only for use inside config/. */
#ifndef EMBTIER_CONFIG_CONFIG_MEMORY_H
#define EMBTIER_CONFIG_CONFIG_MEMORY_H

#include <stdbool.h>

#include "config/config.h"

/* Memory that the parts of the server take in addition to the budgets. */
struct config_unbudgeted {
    uint32_t lanes;
    uint64_t lane_reserved_bytes; /* per lane, from the start on */
    uint64_t lane_bytes;          /* per lane, including the reserved bytes */
    uint32_t databases;
    uint64_t database_bytes; /* per database */
    uint64_t compaction_bytes;
    uint64_t session_bytes;
    uint64_t rest_bytes;
    uint64_t bytes; /* the sum of all */

    /* The minimum for checkpoints.transfer_bytes: one scan of the longest possible logs. */
    uint64_t transfer_least_bytes;
};

/* True if the tier takes the machine's memory, as far as its kind tells. */
bool config_tier_kind_is_memory(const struct tier_spec *tier);

/* The default of checkpoints.transfer_bytes, and the check that it is not too little. */
uint64_t config_transfer_default(const struct config *config);
MUST_CHECK enum embtier_err config_transfer_check(const struct config *config, struct err_msg *msg);

/* Returns the sum without tiers and shared arenas, with @lane_count lanes. Their defaults depend on
 * it. */
uint64_t config_memory_fixed(const struct config *config, uint32_t lane_count);

/* EMBTIER_CONFIG if the budgets exceed the machine's memory: tiers in memory, queues, buffers,
 * shared arenas, and the unbudgeted memory. The message gives all of them and the machine's memory;
 * its key is the largest budget. */
MUST_CHECK enum embtier_err config_memory_check(const struct config *config,
                                                bool (*is_memory)(const struct tier_spec *tier),
                                                struct err_msg *msg);
/* EMBTIER_CONFIG if a start reserves and touches more memory than the machine has available now
 * (machine.h). The kernel would then kill the server or other processes. @is_memory: as above. */
MUST_CHECK enum embtier_err
config_memory_check_start(const struct config *config,
                          bool (*is_memory)(const struct tier_spec *tier), struct err_msg *msg);

#endif
