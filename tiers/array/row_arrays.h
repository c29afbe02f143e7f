/* SPDX-License-Identifier: Apache-2.0 */
/* row_arrays.h: one lane's rows of whole tables in plain arrays, found by id alone. The plan
 * places such a table in one memory (SCRec, section IV-A, and MTrainS, section 5.2).
 *
 * All lanes share a table's array. Each row and its spot belong to one lane, the lane of its
 * shard. A row has a fixed place from the beginning, so nothing is evicted, promoted or indexed.
 * A row comes into the array when it is first read, changed or inserted; until then it is only
 * on SSD. Dirty rows are handed over for writing like those of the row cache (row_cache.h),
 * whose functions these mirror.
 *
 * Layout: struct row_spot[rows], then the rows, each on its own granule.
 *
 * The spot of row n leads to place n, or nowhere, so loops that follow spots (kernels/cpu/pool)
 * work on arrays too. Thread: the owning lane, except row_array_new() and row_arrays_stats(). The
 * caller owns the memory. */
#ifndef EMBTIER_TIERS_ARRAY_ROW_ARRAYS_H
#define EMBTIER_TIERS_ARRAY_ROW_ARRAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "tiers/cache/row_cache.h"

struct row_array;  /* one table's array */
struct row_arrays; /* one lane's share of all arrays */
struct row_remap;
struct row_spots;

/* Returns the memory for an array of @rows rows of @row_bytes, in whole slabs (ARENA_SLAB_BYTES).
 * 0: it exceeds the address space. */
uint64_t row_array_memory_bytes(uint64_t rows, uint32_t row_bytes);
/* Lays out an array without rows in @memory, which is aligned to a page and may have any content.
 * Any thread. */
struct row_array *row_array_new(void *memory, uint64_t rows, uint32_t row_bytes);
/* The remap of an array that has only a table's hot rows, whose ids here are slots. NULL: it has
 * all rows. Borrowed; set before any lane knows the array. */
void row_array_set_remap(struct row_array *array, struct row_remap *remap);
struct row_remap *row_array_remap(const struct row_array *array);

/* A lane's memory on the heap for each slab of arrays: the counters of its rows, and a table's
 * entry, since an array has at least one slab. */
#define ROW_ARRAYS_SLAB_HEAP_BYTES 256

struct row_arrays_opts {
    /* As in struct row_cache_opts. */
    uint64_t (*hash)(void *context, uint16_t table, uint64_t id);
    bool (*evict)(void *context, uint16_t table, uint64_t hash, uint64_t id, const void *row,
                  uint32_t bytes);
    /* True if the row belongs to this lane. */
    bool (*is_mine)(void *context, uint64_t hash);
    void *context;
};

/* All members are counters (base/counter.h). */
struct row_arrays_stats {
    uint64_t tables;
    uint64_t rows; /* present in the arrays */
    uint64_t bytes;
    uint64_t dirty_rows;
    uint64_t dirty_bytes;
    uint64_t hits;
    uint64_t get_hits;
};

MUST_CHECK enum embtier_err row_arrays_new(const struct row_arrays_opts *opts,
                                           struct row_arrays **ret_arrays, struct err_msg *msg);
void row_arrays_free(struct row_arrays *arrays);
DEFINE_CLEANUP(struct row_arrays, row_arrays_free)

/* Registers table number @table. NO_MEMORY. */
MUST_CHECK enum embtier_err row_arrays_add_table(struct row_arrays *arrays, uint16_t table,
                                                 struct row_array *array);
/* Forgets the table and its rows, dirty or not; does nothing if the table is unknown. Once all
 * lanes have done this, the array is free to reuse. */
void row_arrays_remove_table(struct row_arrays *arrays, uint16_t table);
bool row_arrays_has(const struct row_arrays *arrays, uint16_t table);
/* Returns the array of a table that is known. */
struct row_array *row_arrays_array(const struct row_arrays *arrays, uint16_t table);

/* Like the functions of row_cache.h with the same names. */
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
/* Inserts rows that are not present, and leaves present rows as they are. Never refuses a row. */
void row_arrays_insert(struct row_arrays *arrays, uint16_t table, const struct row_ref *refs,
                       uint32_t count, const void *const *rows, const uint64_t *dirty);
/* As row_cache_give(), with ids in the place of sets. Gives all rows: there must be no wants(). */
uint32_t row_arrays_give(struct row_arrays *arrays, uint16_t table, struct row_giving *giving);
/* Returns how many of the lane's rows of @table are present. */
uint64_t row_arrays_table_rows(const struct row_arrays *arrays, uint16_t table);
/* Counts hits for @count rows that were used in place. */
void row_arrays_used(struct row_arrays *arrays, uint32_t count);
/* False: the table is unknown. */
MUST_CHECK bool row_arrays_spots(const struct row_arrays *arrays, uint16_t table,
                                 struct row_spots *ret_spots);

uint32_t row_arrays_write_back(struct row_arrays *arrays, uint64_t *cursor, uint32_t most_rows,
                               bool *ret_done);
void row_arrays_begin_epoch(struct row_arrays *arrays);
MUST_CHECK bool row_arrays_end_epoch(struct row_arrays *arrays);
MUST_CHECK bool row_arrays_forget_epoch(struct row_arrays *arrays, uint64_t *cursor, uint32_t step);

/* Any thread: reads counters that the lane writes. */
void row_arrays_stats(const struct row_arrays *arrays, struct row_arrays_stats *ret_stats);

#endif
