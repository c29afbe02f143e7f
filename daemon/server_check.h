/* SPDX-License-Identifier: Apache-2.0 */
/* server_check.h: what a start asks before it reserves or opens anything, and `embtierd --check`,
 * and through it `embtier config check`, asks too. So a configuration that is found good is one
 * that a start takes, but for what can change meanwhile: memory that others use, directories that
 * another server has open. Thread: any. */
#ifndef EMBTIER_DAEMON_SERVER_CHECK_H
#define EMBTIER_DAEMON_SERVER_CHECK_H

#include <stdint.h>

#include "base/err.h"
#include "config/config.h"

/* @config is one that config_check_machine() has found good. Changes nothing. The error is the
 * start's. */
MUST_CHECK enum embtier_err server_check(const struct config *config, struct err_msg *msg);

/* Slabs of a tier that are kept for arrays of tables, behind those of the lanes. */
uint64_t server_array_slabs(const struct tier_spec *tier);
/* Slabs that one lane has of each tier, and of the first for maps. */
void server_lane_slabs(const struct config *config, uint32_t ret_slabs[TIERS_MAX],
                       uint32_t *ret_map_slabs);

#endif
