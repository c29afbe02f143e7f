/* SPDX-License-Identifier: Apache-2.0 */
/* hot_set.h: the hot rows of a split table, on their way from a client to SSD and from there into
 * the remap (tiers/array/row_remap.h). Thread: the job's. */
#ifndef EMBTIER_DAEMON_ENGINE_TABLES_HOT_SET_H
#define EMBTIER_DAEMON_ENGINE_TABLES_HOT_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/spec/table_spec.h"

struct hot_ids;
struct progress_sink;
struct row_array;
struct table;
struct tables;

/* Returns the sum by which the ids are known (store/hot_rows.h). */
uint64_t hot_set_sum(const struct hot_ids *ids);
/* A set on its way. CANCELLED, DISCONNECTED, SHUTDOWN, or DROPPED, as a drop waits, end the work.
 */
struct hot_work {
    struct tables *tables;
    const struct table *table; /* NULL: at a start, when no drop can wait */
    uint32_t table_id;
    const struct table_spec *spec;        /* with the number of hot rows, and their sum */
    const struct progress_sink *progress; /* may be NULL */
};

/* Fills the remap of @array, which table_arrays_take() has begun, with @ids, which a client may
 * change meanwhile. ID_RANGE: the table has no such id. INVALID: an id is there twice, or their sum
 * is not that of the spec. */
MUST_CHECK enum embtier_err hot_set_take(const struct hot_work *work, const struct hot_ids *ids,
                                         struct row_array *array, struct err_msg *msg);
/* Stores the ids of the array's remap, after the catalog has their number. NO_SPACE, IO. */
MUST_CHECK enum embtier_err hot_set_store(const struct hot_work *work, struct row_array *array,
                                          struct err_msg *msg);
/* Fills the remap of @array with the stored ids. NOT_FOUND, CORRUPT: they are not those of the
 * spec. */
MUST_CHECK enum embtier_err hot_set_load(const struct hot_work *work, struct row_array *array,
                                         struct err_msg *msg);
/* Removes stored ids of a table that is not split, and their number from the catalog. False, with a
 * line in the log: the next start does so. */
MUST_CHECK bool hot_set_forget(struct tables *tables, uint32_t table_id,
                               const struct table_spec *spec);

#endif
