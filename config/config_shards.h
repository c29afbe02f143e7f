/* SPDX-License-Identifier: Apache-2.0 */
/* config_shards.h: a configuration for a store that has another number of shards than a new one
 * would have, as buckets have moved. */
#ifndef EMBTIER_CONFIG_CONFIG_SHARDS_H
#define EMBTIER_CONFIG_CONFIG_SHARDS_H

#include "config/config.h"

/* Makes @ret_next of @config: the same with @shards shards, and with file descriptors shared out
 * among these. It borrows from @config, and is not freed. CONFIG: descriptors or memory do not
 * suffice for so many. */
MUST_CHECK enum embtier_err config_for_shards(const struct config *config, uint32_t shards,
                                              struct config *ret_next, struct err_msg *msg);
/* Shares file descriptors out again, when the store has another number of directories than the file
 * names. CONFIG: they do not suffice. */
MUST_CHECK enum embtier_err config_fit_directories(struct config *config, struct err_msg *msg);

#endif
