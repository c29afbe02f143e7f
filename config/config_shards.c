/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_shards.h"

#include "config/config_descriptors.h"
#include "config/config_memory.h"

static enum embtier_err check_descriptors(const struct config *config, struct err_msg *msg)
{
    return config->machine.descriptor_limit > 0
               ? config_descriptors_check(config, config->machine.descriptor_limit, msg)
               : EMBTIER_OK;
}

enum embtier_err config_for_shards(const struct config *config, uint32_t shards,
                                   struct config *ret_next, struct err_msg *msg)
{
    *ret_next = *config;
    ret_next->data.present_shards = shards;
    config_descriptors_plan(ret_next, ret_next->lanes.count);
    TRY(check_descriptors(ret_next, msg));
    return config_memory_check(ret_next, config_tier_kind_is_memory, msg);
}

enum embtier_err config_fit_directories(struct config *config, struct err_msg *msg)
{
    if (config->descriptors.has_default_sessions)
        config->socket.max_sessions = 0; /* the plan sets it */
    config_descriptors_plan(config, config->lanes.count);
    return check_descriptors(config, msg);
}
