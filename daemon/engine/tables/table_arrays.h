/* SPDX-License-Identifier: Apache-2.0 */
/* table_arrays.h: memory of tables whose home is an array, in the tiers that keep some for arrays
 * (cache.tiers[].array_bytes). Thread: any. */
#ifndef EMBTIER_DAEMON_ENGINE_TABLES_TABLE_ARRAYS_H
#define EMBTIER_DAEMON_ENGINE_TABLES_TABLE_ARRAYS_H

#include <stdint.h>

#include "base/err.h"
#include "base/spec/table_spec.h"
#include "base/spec/tier_spec.h"

struct array_space_stats;
struct row_array;
struct table_arrays;

/* A tier. Tiers are in the order of the configuration. */
struct array_tier {
    const char *name; /* borrowed for as long as the arrays exist */
    void *base;       /* on a slab boundary; not the caller's until the arrays are freed */
    uint64_t slabs;   /* 0: the tier keeps no memory for arrays */
};

MUST_CHECK enum embtier_err table_arrays_new(const struct array_tier *tiers, uint32_t tier_count,
                                             struct table_arrays **ret_arrays, struct err_msg *msg);
void table_arrays_free(struct table_arrays *arrays);
DEFINE_CLEANUP(struct table_arrays, table_arrays_free)

/* Takes memory for all rows of @spec; no row is there yet. For a split table, takes memory for its
 * hot rows and their remap, which is begun (row_remap.h). If @spec names no tier, fills in the
 * first one with room. For another home, takes nothing and returns no array. INVALID: there is no
 * such tier, or it keeps no memory for arrays. TOO_LARGE: more than the tier keeps. NO_MEMORY:
 * other tables have it. */
MUST_CHECK enum embtier_err table_arrays_take(struct table_arrays *arrays, struct table_spec *spec,
                                              struct row_array **ret_array, struct err_msg *msg);
/* The same for a table that exists already. If its own tier does not exist or has no room, any tier
 * with room is taken and put into @spec. The error is that of the named tier. It gives the reason
 * only, as the home of such a table cannot be chosen. */
MUST_CHECK enum embtier_err table_arrays_take_anywhere(struct table_arrays *arrays,
                                                       struct table_spec *spec,
                                                       struct row_array **ret_array,
                                                       struct err_msg *msg);
/* Gives back the memory of an array that no lane knows any more. NULL is allowed. */
void table_arrays_give(struct table_arrays *arrays, struct row_array *array);
/* Returns the number of the tier with this name, or TIERS_MAX. */
uint32_t table_arrays_find(const struct table_arrays *arrays, const char *tier);
/* Returns how much memory an array of @spec takes; 0 for another home. */
uint64_t table_arrays_needed_bytes(const struct table_spec *spec);
void table_arrays_stats(struct table_arrays *arrays, uint32_t tier,
                        struct array_space_stats *ret_stats);

#endif
