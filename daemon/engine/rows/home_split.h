/* SPDX-License-Identifier: Apache-2.0 */
/* home_split.h: the home of tables whose hot rows lie in an array, and all others in the cache over
 * SSD (the remap of SCRec, section III-C).
 *
 * The array has a slot for each hot row, which a remap finds (tiers/array/row_remap.h). A call is
 * dealt out: hot rows are looked for in the array only, all others in the cache only. So a hot row
 * is never in the cache but during a move. The cache knows the table as it knows any other, and
 * saves, evicts and pins its cold rows.
 *
 * Thread: the lane. docs/internals/homes.md has the reasons. */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_HOME_SPLIT_H
#define EMBTIER_DAEMON_ENGINE_ROWS_HOME_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/rows/home.h"

struct home_split;
struct row_arrays_opts;

/* @cache: the lane's; borrowed. @opts: as for arrays, with ids of rows. */
MUST_CHECK enum embtier_err home_split_new(const struct row_arrays_opts *opts,
                                           const struct home *cache, struct home_split **ret_split,
                                           struct err_msg *msg);
void home_split_free(struct home_split *split);
DEFINE_CLEANUP(struct home_split, home_split_free)

/* ---- For moves between the cache and a split, of which only the hot rows take part ---- */

/* Makes the hot part known. The cache knows the table already. */
MUST_CHECK enum embtier_err home_split_add_hot(struct home_split *split, uint16_t table,
                                               struct row_array *array);
/* Forgets the hot part, and leaves the cold one in the cache. */
void home_split_remove_hot(struct home_split *split, uint16_t table);
bool home_split_is_hot(const struct home_split *split, uint16_t table, const struct row_ref *ref);
/* Returns how many hot rows are in the array. */
uint64_t home_split_hot_rows(const struct home_split *split, uint16_t table);

#endif
