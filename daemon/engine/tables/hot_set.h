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
struct tables;

/* Returns the sum by which the ids are known (store/hot_rows.h). */
uint64_t hot_set_sum(const struct hot_ids *ids);
/* Stores the ids, after the catalog has @spec's number of hot rows for the table. ID_RANGE: the
 * table has no such id. INVALID: their sum is not that of @spec. NO_SPACE, IO, and errors of
 * progress_look(). */
MUST_CHECK enum embtier_err hot_set_store(struct tables *tables, uint32_t table_id,
                                          const struct table_spec *spec, const struct hot_ids *ids,
                                          const struct progress_sink *progress,
                                          struct err_msg *msg);
/* Fills the remap of @array, which table_arrays_take() has begun, with the stored ids. INVALID: an
 * id is there twice. NOT_FOUND, CORRUPT: they are not those of @spec. */
MUST_CHECK enum embtier_err hot_set_load(struct tables *tables, uint32_t table_id,
                                         const struct table_spec *spec, struct row_array *array,
                                         struct err_msg *msg);
/* Removes stored ids of a table that is not split, and their number from the catalog. False, with a
 * line in the log: the next start does so. */
MUST_CHECK bool hot_set_forget(struct tables *tables, uint32_t table_id,
                               const struct table_spec *spec);

#endif
