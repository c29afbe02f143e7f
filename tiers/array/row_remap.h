/* SPDX-License-Identifier: Apache-2.0 */
/* row_remap.h: the places of a table's hot rows in an array that has only these (the remap of
 * SCRec, section III-C).
 *
 * The rows of a split table are not numbered as its ids are. The remap gives each hot id a slot,
 * from 0 on, and says of any other id that it has none. It is made once and never changes, so it
 * has no free places: slots are in the order of the rows' hashes, and a row's hash leads to the few
 * slots where its id can be. An id and its part of the index take 12 bytes, whatever the number of
 * rows of the table.
 *
 * Layout: struct row_remap, the first slot of each bucket of hashes, then the ids by slot. Hashes
 * are keyed (base/row_hash.h), so no choice of ids makes buckets long. Thread: one while it is
 * made, any afterwards. The caller owns the memory. */
#ifndef EMBTIER_TIERS_ARRAY_ROW_REMAP_H
#define EMBTIER_TIERS_ARRAY_ROW_REMAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "tiers/cache/row_cache.h"

struct row_remap;

#define ROW_REMAP_NO_SLOT UINT32_MAX

/* Makes a remap of @rows rows in @memory, which has remap_bytes_of() them (array_shape.h), is
 * aligned to a line of the processor's cache and may have any content. The caller then passes all
 * rows to row_remap_count(), in any order and portions, all of them again to row_remap_place(), and
 * calls row_remap_end(). */
struct row_remap *row_remap_begin(void *memory, uint64_t rows);
void row_remap_count(struct row_remap *remap, const struct row_ref *refs, uint32_t count);
void row_remap_place(struct row_remap *remap, const struct row_ref *refs, uint32_t count);
/* EXISTS: *@ret_id came twice. CORRUPT: the rows were not as many as announced, or not the same
 * both times. */
MUST_CHECK enum embtier_err row_remap_end(struct row_remap *remap, uint64_t *ret_id);

/* Sets @ret_slots[i] to the slot of row i, or to ROW_REMAP_NO_SLOT. Returns how many have one. */
uint32_t row_remap_find(const struct row_remap *remap, const struct row_ref *refs, uint32_t count,
                        uint32_t *ret_slots);
/* The id in a slot. */
uint64_t row_remap_id(const struct row_remap *remap, uint64_t slot);
uint64_t row_remap_rows(const struct row_remap *remap);

#endif
