/* SPDX-License-Identifier: Apache-2.0 */
/* plan_diff.h: what has to move so that one plan becomes another.
 *
 * Both plans sort a table's rows by hotness. A row moves if its rank lies in another memory in the
 * other plan; hotness that has drifted between the plans is not seen. Bytes are those of rows and
 * optimizer state, without remap. Thread: any. */
#ifndef EMBTIER_PLACEMENT_PLAN_PLAN_DIFF_H
#define EMBTIER_PLACEMENT_PLAN_PLAN_DIFF_H

#include "placement/plan/plan.h"

enum plan_change {
    PLAN_MOVED,   /* rows, or the table's GPU */
    PLAN_ALTERED, /* rows, dim, dtype or optimizer differ: another table of the same name */
    PLAN_ADDED,
    PLAN_DROPPED,
};

struct plan_table_diff {
    enum plan_change change;
    const struct plan_table *before; /* NULL: added */
    const struct plan_table *after;  /* NULL: dropped */
    uint64_t rows_moved;             /* PLAN_MOVED; else 0 */
    uint64_t bytes_moved;            /* the same; at most UINT64_MAX */
};

/* A memory, which may be in one plan only. */
struct plan_memory_diff {
    const struct plan_memory *before, *after; /* NULL: it is not in that plan */
    uint64_t in_bytes, out_bytes; /* of rows that come, and of rows that go, those of added, dropped
                                     and altered tables too; rows of the cache count for the SSD */
};

struct plan_diff {
    uint32_t table_count;           /* of those that differ */
    struct plan_table_diff *tables; /* the most moved bytes first, then by name */
    uint32_t same_count;
    uint32_t change_counts[PLAN_DROPPED + 1];
    uint64_t rows_moved, bytes_moved;
    uint32_t memory_count;
    struct plan_memory_diff *memories; /* those of @before, then those that only @after has */
};

/* Both plans have passed plan_check(), and are borrowed for the life of the result. NO_MEMORY. */
MUST_CHECK enum embtier_err plan_diff_new(const struct plan *before, const struct plan *after,
                                          struct plan_diff **ret_diff);
void plan_diff_free(struct plan_diff *diff);
DEFINE_CLEANUP(struct plan_diff, plan_diff_free)

#endif
