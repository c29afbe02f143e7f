/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_shards.h"

#include "config/config_descriptors.h"
#include "config/config_memory.h"

enum embtier_err config_for_shards(const struct config *config, uint32_t shards,
                                   struct config *ret_next, struct err_msg *msg)
{
    *ret_next = *config;
    ret_next->data.present_shards = shards;
    config_descriptors_plan(ret_next, ret_next->lanes.count);
    if (ret_next->machine.descriptor_limit > 0)
        TRY(config_descriptors_check(ret_next, ret_next->machine.descriptor_limit, msg));
    return config_memory_check(ret_next, config_tier_kind_is_memory, msg);
}
