/* SPDX-License-Identifier: Apache-2.0 */
/* row_arrays.h: whole tables of one lane's rows in plain arrays, found by id alone (SCRec, section
 * IV-A, and MTrainS, section 5.2: a table that the plan places in one memory).
 *
 * A table's array is shared by all lanes; a row, and what is noted of it, is one lane's, the same
 * as that of its shard. Each row has a place from the beginning and never leaves it, so nothing is
 * evicted, promoted or indexed. A row comes into the array when it is first read, changed or put
 * there; until then it is on SSD only. Dirty rows are handed over to be written as those of the row
 * cache are (row_cache.h), whose functions these mirror.
 *
 *   struct row_spot[rows] | rows, each on a granule of its own
 *
 * The spot of row n leads to place n, or nowhere; so loops that follow spots (kernels/cpu/pool)
 * work on arrays too. Thread: the owning lane, but for row_array_new(). Memory: the caller's. */
#ifndef EMBTIER_TIERS_ARRAY_ROW_ARRAYS_H
#define EMBTIER_TIERS_ARRAY_ROW_ARRAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "tiers/cache/row_cache.h"

struct row_array;  /* one table's */
struct row_arrays; /* one lane's share of all */
struct row_spots;

/* The memory that an array of @rows rows of @row_bytes takes, in whole slabs (ARENA_SLAB_BYTES); 0:
 * it would be more than can be addressed. */
uint64_t row_array_memory_bytes(uint64_t rows, uint32_t row_bytes);
/* Lays an array out in @memory, aligned to a page, which may have anything in it; no row is there
 * yet. Any thread. */
struct row_array *row_array_new(void *memory, uint64_t rows, uint32_t row_bytes);

struct row_arrays_opts {
    /* As those of struct row_cache_opts. */
    uint64_t (*hash)(void *context, uint16_t table, uint64_t id);
    bool (*evict)(void *context, uint16_t table, uint64_t hash, uint64_t id, const void *row,
                  uint32_t bytes);
    /* The row is this lane's. */
    bool (*is_mine)(void *context, uint64_t hash);
    void *context;
};

struct row_arrays_stats {
    uint64_t tables;
    uint64_t rows; /* that are there */
    uint64_t bytes;
    uint64_t dirty_rows;
    uint64_t dirty_bytes;
    uint64_t hits;
    uint64_t get_hits;
    uint64_t misses;
};

MUST_CHECK enum embtier_err row_arrays_new(const struct row_arrays_opts *opts,
                                           struct row_arrays **ret_arrays, struct err_msg *msg);
void row_arrays_free(struct row_arrays *arrays);
DEFINE_CLEANUP(struct row_arrays, row_arrays_free)

/* Makes table number @table known. NO_MEMORY. */
MUST_CHECK enum embtier_err row_arrays_add_table(struct row_arrays *arrays, uint16_t table,
                                                 struct row_array *array);
/* Forgets the table, whose array is nobody's then once all lanes have; its rows, dirty or not, are
 * gone. Nothing if it is not known. */
void row_arrays_remove_table(struct row_arrays *arrays, uint16_t table);
bool row_arrays_has(const struct row_arrays *arrays, uint16_t table);

/* As the functions of row_cache.h of the same names. */
MUST_CHECK uint32_t row_arrays_get(struct row_arrays *arrays, uint16_t table,
                                   const struct row_ref *refs, uint32_t count, void *dest,
                                   uint64_t stride, uint32_t bytes, uint32_t *ret_missed);
MUST_CHECK uint32_t row_arrays_set(struct row_arrays *arrays, uint16_t table,
                                   const struct row_ref *refs, uint32_t count, const void *src,
                                   uint64_t stride, uint32_t bytes, uint32_t *ret_missed);
MUST_CHECK uint32_t row_arrays_find(struct row_arrays *arrays, uint16_t table,
                                    const struct row_ref *refs, uint32_t count,
                                    const void **ret_rows);
MUST_CHECK uint32_t row_arrays_change(struct row_arrays *arrays, uint16_t table,
                                      const struct row_ref *refs, uint32_t count, void **ret_rows);
MUST_CHECK uint32_t row_arrays_change_through(struct row_arrays *arrays, uint16_t table,
                                              const struct row_ref *refs, uint32_t count,
                                              void **ret_rows);
/* Puts rows there that are not; one that is, is left as it is. All find their place. */
void row_arrays_insert(struct row_arrays *arrays, uint16_t table, const struct row_ref *refs,
                       uint32_t count, const void *const *rows, const uint64_t *dirty);
/* @count rows were used where they lay: counts hits. */
void row_arrays_used(struct row_arrays *arrays, uint32_t count);
/* False: the table is not known. */
MUST_CHECK bool row_arrays_spots(const struct row_arrays *arrays, uint16_t table,
                                 struct row_spots *ret_spots);

uint32_t row_arrays_write_back(struct row_arrays *arrays, uint64_t *cursor, uint32_t most_rows,
                               bool *ret_done);
void row_arrays_begin_epoch(struct row_arrays *arrays);
MUST_CHECK bool row_arrays_end_epoch(struct row_arrays *arrays);
MUST_CHECK bool row_arrays_forget_epoch(struct row_arrays *arrays, uint64_t *cursor, uint32_t step);

void row_arrays_stats(const struct row_arrays *arrays, struct row_arrays_stats *ret_stats);

#endif
