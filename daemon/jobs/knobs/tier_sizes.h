/* SPDX-License-Identifier: Apache-2.0 */
/* tier_sizes.h: lets the row caches' tiers grow and shrink on all lanes (tiers/cache/row_resize.c).
 * Thread: one at a time, that may wait for lanes, memory and SSD. */
#ifndef EMBTIER_DAEMON_JOBS_KNOBS_TIER_SIZES_H
#define EMBTIER_DAEMON_JOBS_KNOBS_TIER_SIZES_H

#include <stdint.h>

#include "base/err.h"
#include "daemon/jobs/knobs/knobs_opts.h"

struct tier_spec;

/* Gives tier @tier @bytes, arrays included. INVALID: it cannot have so many. BUSY: pinned rows need
 * more; or rows were not written for a minute, and the tier has some size between. NO_MEMORY,
 * NO_SPACE: the system has no more. SHUTDOWN: the server stops. */
MUST_CHECK enum embtier_err tier_sizes_set(const struct knobs_opts *opts, uint32_t tier,
                                           uint64_t bytes, struct err_msg *msg);
/* Returns how many bytes the lanes have of it, arrays included. */
uint64_t tier_sizes_in_force(const struct knobs_opts *opts, uint32_t tier);
/* Returns how many they would have of a tier like @spec: whole slabs, as many on each lane. */
uint64_t tier_sizes_follow(const struct knobs_opts *opts, const struct tier_spec *spec);
/* Returns the setting: @set_bytes, if the lanes have what follows from it, else what they have. */
uint64_t tier_sizes_read(const struct knobs_opts *opts, uint32_t tier, uint64_t set_bytes);

#endif
