/* SPDX-License-Identifier: Apache-2.0 */
/* config_memory.h: checks that all memory that the server will take fits the machine: the budgets
 * of a configuration, and the memory beside them, which config->beside says. The functions are for
 * inside config/ only. */
#ifndef EMBTIER_CONFIG_CONFIG_MEMORY_H
#define EMBTIER_CONFIG_CONFIG_MEMORY_H

#include <stdbool.h>

#include "config/config.h"

/* Memory that the parts of the server take beside the budgets. */
struct config_beside {
    uint32_t lanes;
    uint64_t lane_reserved_bytes; /* each, from the start on */
    uint64_t lane_bytes;          /* each, with what is reserved */
    uint32_t databases;
    uint64_t database_bytes; /* each */
    uint64_t compaction_bytes;
    uint64_t session_bytes;
    uint64_t rest_bytes;
    uint64_t bytes; /* all together */

    /* The least of checkpoints.transfer_bytes: one scan of logs as long as they may be. */
    uint64_t transfer_least_bytes;
};

/* True: a tier's bytes are the machine's memory, as far as its kind tells. */
bool config_tier_kind_is_memory(const struct tier_spec *tier);

/* The default of checkpoints.transfer_bytes, and a check that it is not too little. */
uint64_t config_transfer_default(const struct config *config);
MUST_CHECK enum embtier_err config_transfer_check(const struct config *config, struct err_msg *msg);

/* All but the tiers and shared arenas, if there are @lane_count lanes: for their defaults. */
uint64_t config_memory_beside(const struct config *config, uint32_t lane_count);

/* EMBTIER_CONFIG if the tiers that are memory, queues, buffers, shared arenas, and the memory of
 * lanes, sessions and RocksDB beside these, are more than the machine has: the message names all of
 * them, and the machine's; its key is the largest budget. */
MUST_CHECK enum embtier_err config_memory_check(const struct config *config,
                                                bool (*is_memory)(const struct tier_spec *tier),
                                                struct err_msg *msg);
/* EMBTIER_CONFIG if a start reserves and touches more before it serves than the machine has
 * available now (machine.h): the kernel would kill it, or others. @is_memory as above. */
MUST_CHECK enum embtier_err
config_memory_check_start(const struct config *config,
                          bool (*is_memory)(const struct tier_spec *tier), struct err_msg *msg);

#endif
