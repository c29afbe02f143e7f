/* SPDX-License-Identifier: Apache-2.0 */
/* server_check.h: the checks that a start makes before it reserves or opens anything. `embtierd
 * --check`, and through it `embtier config check`, makes them too. So a start accepts a
 * configuration that is found good, unless something changes meanwhile: memory that others use,
 * directories that another server has open. Thread: any. */
#ifndef EMBTIER_DAEMON_SERVER_CHECK_H
#define EMBTIER_DAEMON_SERVER_CHECK_H

#include <stdint.h>

#include "base/err.h"
#include "config/config.h"
#include "daemon/file_warnings.h"

/* config_check_machine() has found @config good. Changes nothing. The error is the start's. @warn
 * and @note are as those of file_warnings(), if there is no error. */
MUST_CHECK enum embtier_err server_check(const struct config *config, file_warning_fn *warn,
                                         file_warning_fn *note, struct err_msg *msg);

/* Returns how many slabs of a tier are kept for arrays of tables. They lie behind those of the
 * lanes. */
uint64_t server_array_slabs(const struct tier_spec *tier);
/* Returns how many slabs of each tier one lane has, and how many of the first tier's are for
 * maps. */
void server_lane_slabs(const struct config *config, uint32_t ret_slabs[TIERS_MAX],
                       uint32_t *ret_map_slabs);
/* Returns to how many slabs of each tier one lane may grow. */
void server_lane_rooms(const struct config *config, uint32_t ret_slabs[TIERS_MAX]);

#endif
