/* SPDX-License-Identifier: Apache-2.0 */
/* row_cache.h: the rows of one lane in DRAM and slower memory, each in one tier only (MTrainS,
 * section 5: exclusive hierarchy of row granularity).
 *
 * Shape. The first tier's arena has three parts. The index grows from its front, its last slabs
 * hold maps of small tables (row_map.h), and slabs of rows fill the rest. The other tiers consist
 * of slabs of rows. The index is an array of 15-way sets of five cache lines. One line has tags,
 * ages, dirty and pinned bits; four have entries (id, slot, table, pins, flags). A row lives in its
 * first set or, if that was full, in its second. A slab is 2 MiB of slots of one class of row
 * lengths; each slot knows its entry. A hit touches the tag line, one entry line and the row. In a
 * table with a map, it touches a word of the map and the row.
 *
 * Rows leave a tier by age: the oldest in a sample of slots of one class goes one tier down. From
 * the last tier it leaves the cache, through @evict first if it is dirty. Slabs move to the class
 * whose evicted rows were youngest; a class without a slab uses longer slots meanwhile. Full sets
 * evict within themselves. If no place can be found for a row, it is not cached, and the caller is
 * told. The index is as large as the cached rows need, at most half of tier 0. It grows as rows
 * come, and shrinks when longer rows replace them. Each tier grows and shrinks by slabs.
 *
 * Thread: the owning lane only, but row_cache_stats(). Memory: all of it, including index and slot
 * tables, lies inside the arenas; nothing is allocated, not even by row_cache_new(). In tier 0, 1.1
 * MiB per lane hold the table numbers and one row in transit. Metadata in a full cache: at most 32
 * bytes per cached row (25 in the index, 4 with the slot), and the slabs for maps. */
#ifndef EMBTIER_TIERS_CACHE_ROW_CACHE_H
#define EMBTIER_TIERS_CACHE_ROW_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/spec/tier_spec.h"

struct arena;
struct row_cache;
struct row_spots;

/* A lane's cache knows tables by a small number that the daemon assigns. The daemon may reuse a
 * number once row_cache_purge_table() has finished with it. */
#define ROW_CACHE_TABLES_MAX  65535
#define ROW_CACHE_PINS_MAX    255
#define ROW_CACHE_PINNED_PART 2 /* pinned rows may fill 1/this of tier 0 */

/* One id of a request on its way through a lane. */
struct row_ref {
    uint64_t hash;     /* row_hash() of (table id, row id) */
    uint64_t id;       /* row id */
    uint32_t position; /* the row's place in the caller's array of rows */
    uint32_t link;     /* for the lane's chains; the cache ignores it */
};
_Static_assert(sizeof(struct row_ref) == 24, "three of these per 72 bytes, written once per id");

struct row_cache_opts {
    struct arena *const
        *arenas; /* borrowed for the cache's life; fastest first; the first is ordinary memory */
    uint32_t arena_count;
    uint32_t arena_first_slab[TIERS_MAX]; /* the first slab of this cache's part of each arena, in
                                             units of ARENA_SLAB_BYTES */
    uint32_t arena_slab_count[TIERS_MAX]; /* tier 0 needs 2 or more */
    uint32_t arena_room_slabs[TIERS_MAX]; /* addresses of this cache's part, for growth; 0: none
                                             more than slabs. The first slabs are there, and of tier
                                             0 the last @map_slabs of the room. */
    uint32_t map_slabs; /* slabs of tier 0 for maps of small tables; at most a quarter */

    /* Returns row_hash() of a row, as in row_ref.hash. Entries do not keep it, which saves 8 bytes
     * per row. It is called when a row leaves or moves within the index, never on a hit. */
    uint64_t (*hash)(void *context, uint16_t table, uint64_t id);

    /* Takes over a dirty row that leaves the cache: copies its @bytes and writes them to SSD later.
     * May refuse (false: the queue is full); then the row stays and another one leaves. Called from
     * inside the operations below; must not call back into the cache. */
    bool (*evict)(void *context, uint16_t table, uint64_t hash, uint64_t id, const void *row,
                  uint32_t bytes);
    void *context;
};

/* All members are counters (base/counter.h). */
struct row_cache_tier_stats {
    uint64_t capacity_bytes; /* slabs; for tier 0, slabs and index */
    uint64_t pinned_bytes;   /* of the pinned rows, not rounded */
    uint64_t used_bytes;     /* of rows, not rounded */
    uint64_t rows;
    uint64_t dirty_rows;
    uint64_t dirty_bytes; /* of the dirty rows, not rounded */
    uint64_t hits;        /* rows read or written in place */
    uint64_t get_hits;    /* part of hits: rows read */
    uint64_t demotions;   /* rows moved from here to the next tier */
    uint64_t promotions;  /* rows moved from here to tier 0 */
    uint64_t evicted_clean;
    uint64_t evicted_dirty;
};

struct row_cache_stats {
    struct row_cache_tier_stats tiers[TIERS_MAX];
    uint64_t misses;
    uint64_t not_cached; /* rows for which no place could be found */
    uint64_t index_bytes;
    uint64_t map_bytes;  /* of tables that have a map */
    uint64_t slab_moves; /* slabs that went from one class to another */
    uint64_t pinned_rows;
    uint64_t pinned_bytes;
};

/* Checks that a cache can be made from this many slabs in each of @tier_count tiers, with
 * @map_slabs of the first for maps, that may grow to @room_slabs. Otherwise returns INVALID or
 * TOO_LARGE, and the reason. */
MUST_CHECK enum embtier_err row_cache_check_slabs(const uint32_t *slab_counts,
                                                  const uint32_t *room_slabs, uint32_t tier_count,
                                                  uint32_t map_slabs, struct err_msg *msg);
MUST_CHECK enum embtier_err row_cache_new(const struct row_cache_opts *opts,
                                          struct row_cache **ret_cache, struct err_msg *msg);
void row_cache_free(struct row_cache *cache);
DEFINE_CLEANUP(struct row_cache, row_cache_free)

/* Registers table number @table with rows of @row_bytes (weights and state together, 1 to 102,400).
 * Its ids must be below @rows (0: any); later calls do not check this. Its rows get a map if there
 * is room for one. */
MUST_CHECK enum embtier_err row_cache_add_table(struct row_cache *cache, uint16_t table,
                                                uint32_t row_bytes, uint64_t rows);

/* Forgets the rows of @table, dirty or not, and advances by @step sets of the index per call.
 * Returns true when all rows are gone and the number is free. The table must have no request in
 * progress. */
bool row_cache_purge_table(struct row_cache *cache, uint16_t table, uint32_t step);

/* Rows of a table on their way to another home. */
struct row_giving {
    uint64_t cursor;     /* starts at 0 */
    uint32_t most_rows;  /* that a call gives */
    uint32_t most_steps; /* sets or ids that a call looks at */
    /* Says if a row is to be given; the others stay. NULL: all are. @ref has its hash and id. */
    bool (*wants)(void *context, const struct row_ref *ref);
    /* Takes a row over. False: it has no room now, and the row stays. Called from inside the
     * operation; must not call back into the home that gives. */
    bool (*take)(void *context, const struct row_ref *ref, const void *row, bool dirty);
    void *context;
};
/* Gives rows of @table, none of which is pinned, to giving->take(), and forgets them. Stops when
 * take() refuses, or at one of the limits; the next call goes on from there. After the last set the
 * cursor is 0, and the next call begins anew. A walk from 0 to 0 sees all rows that were there all
 * the time. Returns how many were given. Not in an epoch: a walk over old rows might miss them.
 */
uint32_t row_cache_give(struct row_cache *cache, uint16_t table, struct row_giving *giving);
/* Return how many rows of @table are cached, and how many of these are pinned. */
uint32_t row_cache_table_rows(const struct row_cache *cache, uint16_t table);
uint32_t row_cache_pinned_rows(const struct row_cache *cache, uint16_t table);

/* Copies the first @bytes (weights, or weights and state) of @table's cached rows to @dest +
 * position * @stride, and moves the rows to tier 0. Writes the indexes (into @refs) of rows that
 * are not cached to @ret_missed, ascending; returns their number. */
MUST_CHECK uint32_t row_cache_get(struct row_cache *cache, uint16_t table,
                                  const struct row_ref *refs, uint32_t count, void *dest,
                                  uint64_t stride, uint32_t bytes, uint32_t *ret_missed);

/* Finds rows of @table: @ret_rows[i] is the place of row i, whole, in any tier, or NULL if it is
 * not cached. Returns the number of rows that are not cached. Nothing moves, so the places stay
 * valid until the next call other than this and row_cache_change(). Prefetches the first @bytes of
 * each row, so calls with few rows work best. */
MUST_CHECK uint32_t row_cache_find(struct row_cache *cache, uint16_t table,
                                   const struct row_ref *refs, uint32_t count, uint32_t bytes,
                                   const void **ret_rows);
/* The same for rows about to be changed: marks them dirty, and counts them as hits. Does not
 * prefetch rows: the caller prefetches some while it works on others. */
MUST_CHECK uint32_t row_cache_change(struct row_cache *cache, uint16_t table,
                                     const struct row_ref *refs, uint32_t count, void **ret_rows);
/* The same for rows that the caller writes to SSD as soon as they have changed: clean rows stay
 * clean. */
MUST_CHECK uint32_t row_cache_change_through(struct row_cache *cache, uint16_t table,
                                             const struct row_ref *refs, uint32_t count,
                                             void **ret_rows);
/* Called after the change: moves the rows that were found (not NULL) to tier 0. */
void row_cache_changed(struct row_cache *cache, uint16_t table, const struct row_ref *refs,
                       uint32_t count, void *const *rows);
/* Called when the rows that row_cache_find() found, all of them, have been used and are no longer
 * needed. Counts hits, and moves rows to tier 0. */
void row_cache_used(struct row_cache *cache, uint16_t table, const struct row_ref *refs,
                    uint32_t count, const void *const *rows);

/* Returns the places of @table's rows in tier 0, for a caller that follows them itself
 * (tiers/spots/spot_pool.h). The caller stamps each used row with the clock. They are valid as long
 * as places from row_cache_find(), and until a call counts rows. False: the table has no map. */
MUST_CHECK bool row_cache_spots(const struct row_cache *cache, uint16_t table,
                                struct row_spots *ret_spots);
/* Counts hits for @count rows that were used in this way. */
void row_cache_used_spots(struct row_cache *cache, uint32_t count);

/* Overwrites the first @bytes of the cached rows of @table from @src + position * @stride, and
 * keeps the bytes after these. Marks the rows dirty, and moves them to tier 0. Misses are as in
 * row_cache_get(). If an id occurs twice, the last one wins. */
MUST_CHECK uint32_t row_cache_set(struct row_cache *cache, uint16_t table,
                                  const struct row_ref *refs, uint32_t count, const void *src,
                                  uint64_t stride, uint32_t bytes, uint32_t *ret_missed);

/* Puts whole rows that are not cached into tier 0, row i from @rows[i]. Bit i of @dirty (NULL: all
 * clean) tells if SSD lacks this value. Makes room by eviction. Writes the indexes of rows for
 * which no place could be found to @ret_refused, ascending; returns their number. Leaves a row that
 * is cached after all as it is, because the cached value is newer. So the first of two rows with
 * the same id stays. */
MUST_CHECK uint32_t row_cache_insert(struct row_cache *cache, uint16_t table,
                                     const struct row_ref *refs, uint32_t count,
                                     const void *const *rows, const uint64_t *dirty,
                                     uint32_t *ret_refused);

/* Pins the cached rows: moves them to tier 0 if possible, and keeps them in the cache, in any tier,
 * until unpinned as often. So a prefetched row is not evicted before its batch has trained
 * (MTrainS, section 5.7). A row's pins count up to ROW_CACHE_PINS_MAX, and pinned rows may fill
 * 1/ROW_CACHE_PINNED_PART of tier 0. Bit i of @ret_pinned tells if row i was pinned. */
void row_cache_pin(struct row_cache *cache, uint16_t table, const struct row_ref *refs,
                   uint32_t count, uint64_t *ret_pinned);
enum row_pin {
    ROW_PINNED,
    ROW_NOT_CACHED,
    ROW_NOT_PINNED,
    ROW_UNPINNED, /* cached, and takes no pins; only from homes (daemon/engine/rows/home.h) */
};
/* The same for one row. Also returns the reason if it was not pinned: it is not cached, or a limit
 * on pins is reached. */
MUST_CHECK enum row_pin row_cache_pin_one(struct row_cache *cache, uint16_t table,
                                          const struct row_ref *ref);
void row_cache_unpin(struct row_cache *cache, uint16_t table, const struct row_ref *refs,
                     uint32_t count);

/* Hands dirty rows, in an epoch only old ones, to @evict, which makes them clean. Stops when @evict
 * refuses, @most_rows are handed over, or the whole index has been scanned. @cursor starts at 0 and
 * belongs to the caller. Returns the number handed over. Sets *@ret_done when no row that was dirty
 * when the cursor was 0 still is. If the index has shrunk meanwhile, the scan starts over. */
uint32_t row_cache_write_back(struct row_cache *cache, uint64_t *cursor, uint32_t most_rows,
                              bool *ret_done);

/* ---- Sizes of tiers, while the cache serves (row_resize.c) ---- */

/* Returns OK if @tier may have @slabs. TOO_LARGE: it has no addresses for so many. INVALID: it is
 * too little for the index or the maps. BUSY: pinned rows need more. */
MUST_CHECK enum embtier_err row_cache_check_resize(const struct row_cache *cache, uint32_t tier,
                                                   uint32_t slabs, struct err_msg *msg);
/* Gives @tier @slabs, which row_cache_check_resize() has found good. To grow, their memory must be
 * there: the first ones of the room. To shrink, row_cache_resize_step() is called until no slab
 * leaves. A call for more slabs meanwhile, at most row_cache_slabs(), keeps those that are left. */
void row_cache_resize(struct row_cache *cache, uint32_t tier, uint32_t slabs);
/* The memory of slabs from @slabs on (in tier 0, of @slabs less the maps') is used no more. */
struct row_cache_leaving {
    uint32_t slabs;  /* that are there, those that leave included */
    bool done;       /* none leaves */
    uint64_t marker; /* another number than before: some work was done */
};
/* Moves about @rows rows out of slabs that leave: to other slots of the tier, to slower tiers, or
 * out. Does nothing that waits: dirty rows that evict() does not take stay for a later call. */
struct row_cache_leaving row_cache_resize_step(struct row_cache *cache, uint32_t tier,
                                               uint32_t rows);
/* Returns the number of slabs that are there, as capacity_bytes has them. */
uint32_t row_cache_slabs(const struct row_cache *cache, uint32_t tier);

/* ---- Epochs: the rows as they are at one moment, written while they change (checkpoints) ----
 *
 * Rows that are dirty when an epoch begins are old until they have been handed to evict(). The
 * caller lets row_cache_write_back() hand them over, a few at a time. A call that changes an old
 * row before that hands it over first. For this the caller makes sure that evict() has room for one
 * row for each row passed to row_cache_set() and row_cache_change(). No other row is handed to
 * evict() before the epoch ends: rows that have become dirty since stay in the cache. */
void row_cache_begin_epoch(struct row_cache *cache);
/* Ends the epoch. False: evict() had no room for a row that was changed, so the rows handed over
 * are not those of the epoch's beginning. */
MUST_CHECK bool row_cache_end_epoch(struct row_cache *cache);
/* For an epoch that ended before all old rows were handed over: turns old rows into ordinary dirty
 * ones, in @step more sets per call. Returns true when all sets are done, which must happen before
 * the next epoch begins. @cursor is as above. */
MUST_CHECK bool row_cache_forget_epoch(struct row_cache *cache, uint64_t *cursor, uint32_t step);

/* Any thread: reads counters that the lane writes. */
void row_cache_stats(const struct row_cache *cache, struct row_cache_stats *ret_stats);

/* Walks everything and checks its consistency: each row in one tier, entries and slots in
 * agreement, counts right. For tests and debug builds; slow. Returns NULL, or the fault. On the
 * lane's thread, or while the lane rests: the counts must be those of the rows that it walks. */
const char *row_cache_validate(const struct row_cache *cache);

#endif
