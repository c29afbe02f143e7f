/* SPDX-License-Identifier: Apache-2.0 */
/* table_arrays.h: memory for tables whose home is an array, in the tiers that keep some
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

/* A tier of the configuration, in its order. */
struct array_tier {
    const char *name; /* borrowed as long as the arrays */
    void *base;       /* on a slab boundary; not the caller's until the arrays are freed */
    uint64_t slabs;   /* 0: the tier keeps no memory for arrays */
};

MUST_CHECK enum embtier_err table_arrays_new(const struct array_tier *tiers, uint32_t tier_count,
                                             struct table_arrays **ret_arrays, struct err_msg *msg);
void table_arrays_free(struct table_arrays *arrays);
DEFINE_CLEANUP(struct table_arrays, table_arrays_free)

/* Takes memory for all rows of @spec, none of which is there yet. Its tier is filled in if it has
 * none: the first one with room. Takes nothing, and returns no array, for another home. INVALID: no
 * such tier, or one that keeps no memory for arrays. TOO_LARGE: more than the tier keeps.
 * NO_MEMORY: other tables have it. */
MUST_CHECK enum embtier_err table_arrays_take(struct table_arrays *arrays, struct table_spec *spec,
                                              struct row_array **ret_array, struct err_msg *msg);
/* The same, but in any tier with room if its own has none or is not there: then the tier is
 * changed. The error is of its own tier. */
MUST_CHECK enum embtier_err table_arrays_take_anywhere(struct table_arrays *arrays,
                                                       struct table_spec *spec,
                                                       struct row_array **ret_array,
                                                       struct err_msg *msg);
/* NULL: nothing is given back. No lane knows the array any more. */
void table_arrays_give(struct table_arrays *arrays, struct row_array *array);
void table_arrays_stats(struct table_arrays *arrays, uint32_t tier,
                        struct array_space_stats *ret_stats);

#endif
