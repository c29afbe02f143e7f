/* SPDX-License-Identifier: Apache-2.0 */
/* row_cache.h: the rows of one lane in DRAM and slower memory, each in one tier only (MTrainS,
 * section 5: exclusive hierarchy of row granularity).
 *
 * Shape. The first tier's arena is cut in three: the index grows from its front, its last slabs are
 * for maps of small tables (row_map.h), slabs of rows fill the rest; the other tiers are all slabs.
 * The index is an array of 15-way sets, five cache lines each: one line of tags, ages, dirty and
 * pinned bits, four of entries (id, slot, table, pins, flags); a row lives in its first set or, if
 * that was full, in its second. A slab is 2 MiB of slots of one class of row lengths; each slot
 * knows its entry. A hit touches the tag line, one entry line and the row; of a table that has a
 * map, a word of that and the row.
 *
 * Rows leave a tier by age: the oldest of a sample of slots of the same class goes one tier down,
 * from the last tier it leaves the cache, through @evict first if it is dirty. Slabs move to the
 * class whose evicted rows were youngest; a class that has no slab uses longer slots meanwhile.
 * Full sets evict within themselves; a row for which no place can be had is simply not cached, and
 * the caller is told. The index is as large as the rows that are cached need, half of tier 0 at
 * most: it grows as they come, and shrinks when longer ones take their place.
 *
 * Thread: the owning lane only. Memory: all of it, index and slot tables included, lies inside the
 * arenas; nothing is allocated, not even by row_cache_new(). Of tier 0, 1.1 MiB per lane are for
 * the table numbers and one row on its way. Metadata: at most 32 bytes per cached row, in a cache
 * that is full (25 in the index, 4 with the slot), and the slabs for maps. */
#ifndef EMBTIER_TIERS_CACHE_ROW_CACHE_H
#define EMBTIER_TIERS_CACHE_ROW_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/spec/tier_spec.h"

struct arena;
struct row_cache;
struct row_spots;

/* A lane's cache knows tables by a small number that the daemon gives out; it may be used again
 * once row_cache_purge_table() is done with it. */
#define ROW_CACHE_TABLES_MAX  65535
#define ROW_CACHE_PINS_MAX    255
#define ROW_CACHE_PINNED_PART 2 /* one of so many parts of tier 0 may be pinned */

/* One id of a request, as it travels through a lane. */
struct row_ref {
    uint64_t hash;     /* row_hash() of (table id, row id) */
    uint64_t id;       /* row id */
    uint32_t position; /* the row's place in the caller's array of rows */
    uint32_t link;     /* the lane's, for chaining; the cache leaves it alone */
};
_Static_assert(sizeof(struct row_ref) == 24, "three of these per 72 bytes, written once per id");

struct row_cache_opts {
    struct arena *const
        *arenas; /* borrowed for the cache's life; fastest first; the first is ordinary memory */
    uint32_t arena_count;
    uint32_t arena_first_slab[TIERS_MAX]; /* this cache's part of each arena, in slabs of
                                             ARENA_SLAB_BYTES */
    uint32_t arena_slab_count[TIERS_MAX]; /* tier 0 needs 2 or more */
    uint32_t map_slabs; /* of tier 0's, for maps of small tables; at most a quarter */

    /* row_hash() of a row, as in row_ref.hash. Entries do not keep it (that would be 8 bytes more
     * per row), so it is asked for when a row leaves or moves within the index; never on a hit. */
    uint64_t (*hash)(void *context, uint16_t table, uint64_t id);

    /* Takes over a dirty row that leaves the cache: copies its @bytes and writes them to SSD in
     * time. May refuse (false: the queue is full); the row then stays and another one leaves.
     * Called from inside the operations below; must not call back into the cache. */
    bool (*evict)(void *context, uint16_t table, uint64_t hash, uint64_t id, const void *row,
                  uint32_t bytes);
    void *context;
};

struct row_cache_tier_stats {
    uint64_t capacity_bytes; /* slabs, or for tier 0 slabs and index */
    uint64_t used_bytes;     /* of rows, not rounded */
    uint64_t rows;
    uint64_t dirty_rows;
    uint64_t dirty_bytes; /* of these, not rounded */
    uint64_t hits;        /* rows read or written where they lay */
    uint64_t get_hits;    /* of these, rows read */
    uint64_t demotions;   /* rows moved from here to the next tier */
    uint64_t promotions;  /* rows moved from here to tier 0 */
    uint64_t evicted_clean;
    uint64_t evicted_dirty;
};

struct row_cache_stats {
    struct row_cache_tier_stats tiers[TIERS_MAX];
    uint64_t misses;
    uint64_t not_cached; /* rows for which no place could be had */
    uint64_t index_bytes;
    uint64_t map_bytes;  /* of tables that have a map */
    uint64_t slab_moves; /* slabs that went from one class to another */
    uint64_t pinned_rows;
    uint64_t pinned_bytes;
};

/* Whether a cache of so many slabs in each of @tier_count tiers, @map_slabs of the first for maps,
 * can be made: INVALID, TOO_LARGE, and the reason. */
MUST_CHECK enum embtier_err row_cache_check_slabs(const uint32_t *slab_counts, uint32_t tier_count,
                                                  uint32_t map_slabs, struct err_msg *msg);
MUST_CHECK enum embtier_err row_cache_new(const struct row_cache_opts *opts,
                                          struct row_cache **ret_cache, struct err_msg *msg);
void row_cache_free(struct row_cache *cache);
DEFINE_CLEANUP(struct row_cache, row_cache_free)

/* Makes table number @table known: rows of @row_bytes (weights and state together, 1 to 102,400),
 * whose ids are below @rows (0: any), which nobody checks later on. Its rows get a map if there is
 * room for one. */
MUST_CHECK enum embtier_err row_cache_add_table(struct row_cache *cache, uint16_t table,
                                                uint32_t row_bytes, uint64_t rows);

/* Forgets rows of @table, dirty or not, @step sets of the index further per call; true when all are
 * gone and the number is free. No request of the table is under way. */
bool row_cache_purge_table(struct row_cache *cache, uint16_t table, uint32_t step);

/* Copies the first @bytes (at most the row's: weights, or weights and state) of the rows of @table
 * that are cached to @dest + position * @stride, and moves them to tier 0. Indexes (into @refs) of
 * those that are not are written to @ret_missed, ascending; returns how many. */
MUST_CHECK uint32_t row_cache_get(struct row_cache *cache, uint16_t table,
                                  const struct row_ref *refs, uint32_t count, void *dest,
                                  uint64_t stride, uint32_t bytes, uint32_t *ret_missed);

/* Tells where rows of @table lie: @ret_rows[i] is row i, whole, in whatever tier, or NULL if it is
 * not cached. Returns how many are not. Nothing moves, so these places are good until the next call
 * that is neither this nor row_cache_change(). The processor is asked for the first @bytes of each,
 * so that few at a time are best. */
MUST_CHECK uint32_t row_cache_find(struct row_cache *cache, uint16_t table,
                                   const struct row_ref *refs, uint32_t count, uint32_t bytes,
                                   const void **ret_rows);
/* The same of rows that are to be changed: they are dirty now, and counted as hits. The processor
 * is not asked for them: the caller asks for some while it works on others. */
MUST_CHECK uint32_t row_cache_change(struct row_cache *cache, uint16_t table,
                                     const struct row_ref *refs, uint32_t count, void **ret_rows);
/* The same of rows that the caller has written to SSD as soon as they have changed: clean ones stay
 * so. */
MUST_CHECK uint32_t row_cache_change_through(struct row_cache *cache, uint16_t table,
                                             const struct row_ref *refs, uint32_t count,
                                             void **ret_rows);
/* They have been changed: moves those to tier 0 that were found (not NULL). */
void row_cache_changed(struct row_cache *cache, uint16_t table, const struct row_ref *refs,
                       uint32_t count, void *const *rows);
/* The rows that row_cache_find() found, all of them, were used and are no more: counts hits, and
 * moves rows to tier 0. */
void row_cache_used(struct row_cache *cache, uint16_t table, const struct row_ref *refs,
                    uint32_t count, const void *const *rows);

/* Where the rows of @table lie that are in tier 0, for a caller that follows that by itself
 * (kernels/cpu/pool/pool.h): a row that is used is stamped with the clock. Good as long as places
 * of row_cache_find() are, and as long as no call counts rows. False: the table has no map. */
MUST_CHECK bool row_cache_spots(const struct row_cache *cache, uint16_t table,
                                struct row_spots *ret_spots);
/* @count rows were used in this way: counts hits. */
void row_cache_used_spots(struct row_cache *cache, uint32_t count);

/* Overwrites the first @bytes of the rows of @table that are cached from @src + position * @stride,
 * keeps what is behind these, marks them dirty, moves them to tier 0. Misses as in row_cache_get().
 * The same id twice: the last one wins. */
MUST_CHECK uint32_t row_cache_set(struct row_cache *cache, uint16_t table,
                                  const struct row_ref *refs, uint32_t count, const void *src,
                                  uint64_t stride, uint32_t bytes, uint32_t *ret_missed);

/* Puts whole rows that are not cached into tier 0, row i from @rows[i]; bit i of @dirty (may be
 * NULL: all clean) says whether SSD lacks this value. Makes room by eviction. Indexes of rows for
 * which no place could be had go to
 * @ret_refused, ascending; returns how many. A row that is cached after all is left as it is: what
 * is cached is newer. So the first of two with the same id stays. */
MUST_CHECK uint32_t row_cache_insert(struct row_cache *cache, uint16_t table,
                                     const struct row_ref *refs, uint32_t count,
                                     const void *const *rows, const uint64_t *dirty,
                                     uint32_t *ret_refused);

/* Pins the rows that are cached: they are moved to tier 0 if that can be, and stay in the cache, in
 * whatever tier, until unpinned as often (MTrainS, section 5.7: a prefetched row is not evicted
 * before its batch has trained). Pins count to ROW_CACHE_PINS_MAX, and pinned rows may fill one
 * part of ROW_CACHE_PINNED_PART of tier 0. Bit i of @ret_pinned says whether row i was. */
void row_cache_pin(struct row_cache *cache, uint16_t table, const struct row_ref *refs,
                   uint32_t count, uint64_t *ret_pinned);
enum row_pin { ROW_PINNED, ROW_NOT_CACHED, ROW_NOT_PINNED };
/* The same for one row, and why not: it is not cached, or there are pins enough. */
MUST_CHECK enum row_pin row_cache_pin_one(struct row_cache *cache, uint16_t table,
                                          const struct row_ref *ref);
void row_cache_unpin(struct row_cache *cache, uint16_t table, const struct row_ref *refs,
                     uint32_t count);

/* Hands dirty rows, in an epoch old ones only, to @evict, which then are clean, until it refuses,
 * @most_rows are handed over or the whole index has been seen. @cursor starts at 0 and is kept by
 * the caller. Returns the number handed over; *@ret_done is set when no row that was dirty when the
 * cursor was 0 still is. When the index has shrunk meanwhile, it is seen from its beginning again.
 */
uint32_t row_cache_write_back(struct row_cache *cache, uint64_t *cursor, uint32_t most_rows,
                              bool *ret_done);

/* ---- Epochs: the rows as they are at one moment, written while they change (checkpoints) ----
 *
 * Rows that are dirty when an epoch begins are old until they have been handed to evict(). The
 * caller has row_cache_write_back() hand them over, a few at a time. Who changes an old row before
 * has it handed over first, for which the caller has seen to it that evict() has room: one row for
 * each that row_cache_set(), row_cache_change() are asked for. No other row is handed to evict()
 * before the epoch has ended: rows that became dirty since stay in the cache. */
void row_cache_begin_epoch(struct row_cache *cache);
/* False: evict() had no room for one that was changed; what has been handed over is not the rows as
 * they were. */
MUST_CHECK bool row_cache_end_epoch(struct row_cache *cache);
/* If the epoch is ended before all old rows have been handed over: takes those in @step more sets
 * for dirty rows like others; true when that is done. @cursor as above. To be called to its end
 * before the next epoch begins. */
MUST_CHECK bool row_cache_forget_epoch(struct row_cache *cache, uint64_t *cursor, uint32_t step);

void row_cache_stats(const struct row_cache *cache, struct row_cache_stats *ret_stats);

/* Walks everything and checks that it holds together: each row in one tier, entries and slots in
 * agreement, counts right. For tests and debug builds; slow. Returns NULL, or what is wrong. */
const char *row_cache_validate(const struct row_cache *cache);

#endif
