/* SPDX-License-Identifier: Apache-2.0 */
/* row_cache_impl.h: shared by the files of the row cache: its struct, and the slow paths.
 *
 * row_cache.c finds rows (the fast paths), row_cache_insert.c adds them, row_cache_dirty.c hands
 * dirty ones over, row_cache_give.c gives a table's rows away, and row_cache_life.c makes the
 * cache. row_moves.c moves rows between tiers and out of the cache, and row_victims.c chooses the
 * next row to go. row_growth.c lets the index grow and shrink, row_resize.c the tiers, and
 * row_upkeep.c does a little of all slow work in each call. */
#ifndef EMBTIER_TIERS_CACHE_ROW_CACHE_IMPL_H
#define EMBTIER_TIERS_CACHE_ROW_CACHE_IMPL_H

#include "base/counter.h"
#include "tiers/arena/arena.h"
#include "tiers/cache/row_cache.h"
#include "tiers/cache/row_index.h"
#include "tiers/cache/row_map.h"
#include "tiers/cache/slab_pool.h"

enum cached_table_state { TABLE_UNKNOWN, TABLE_IN_USE, TABLE_PURGING };

struct cached_table {
    uint32_t row_bytes;
    union {
        uint32_t pinned_rows; /* while in use */
        uint32_t purge_set;   /* while purging: the next set to scan */
    };
    uint32_t rows;
    uint8_t length_class;
    uint8_t state;
    uint16_t map; /* its number, or ROW_MAP_NONE */
};
_Static_assert(sizeof(struct cached_table) == 16, "1 MiB of them per lane");

struct row_cache {
    struct row_index index;
    struct row_maps maps;
    uint16_t now;       /* the clock of the stamps */
    bool evict_refused; /* in this call: do not ask again */
    bool in_epoch;      /* old rows may exist; see row_cache_begin_epoch() */
    bool save_failed;
    uint8_t epoch; /* the epoch's parity: 0 or ROW_ENTRY_EPOCH */
    uint8_t granule_shift;
    uint8_t tier_count;
    uint8_t none_clean; /* bit per tier, in this call: do not look for clean rows again */
    uint32_t undrained; /* bit per tier: copied into since the last arena_drain() */
    uint32_t tier0_end; /* slots from here on are in slower tiers */
    struct slab_pool pools[TIERS_MAX];
    const struct arena *arenas[TIERS_MAX];

    bool (*evict)(void *context, uint16_t table, uint64_t hash, uint64_t id, const void *row,
                  uint32_t bytes);
    uint64_t (*hash)(void *context, uint16_t table, uint64_t id);
    void *context;

    struct cached_table *tables;
    uint8_t *bounce; /* one row on its way up */
    struct slab *slabs;

    uint32_t purging;      /* number of tables that are being purged */
    uint32_t shrink_steps; /* moves of rows downwards by the index: scans then start over */
    uint32_t wanted_sets;  /* the index changes its size until it has this many */
    uint32_t index_slabs;  /* at the front of tier 0, fixed parts included */
    uint32_t map_slabs;    /* at the end of tier 0's room */
    uint64_t fixed_bytes;  /* before the index */

    uint64_t pinned_most; /* bytes that may be pinned */

    uint64_t tick_rows; /* accesses per tick */
    uint64_t tick_left;
    uint32_t swept_set; /* stamps are clamped up to here */

    uint64_t
        departures; /* rows that ever left: a holder of a row_place checks whether it changed */

    uint32_t inserts_since; /* since the last check of the index's size */
    uint32_t look_after;    /* check the size after this many */

    struct row_cache_stats stats; /* counters (base/counter.h), which any thread reads */
};

/* A row in the index. */
struct row_place {
    struct row_set *set;
    uint32_t way;
};

/* Some ways of a set, one bit each. */
struct row_ways {
    struct row_set *set;
    uint32_t ways;
};

static inline struct row_entry *place_entry(struct row_place place)
{
    return &place.set->entries[place.way];
}

static inline struct row_place place_of(const struct row_cache *c, uint32_t number)
{
    return (struct row_place){ row_index_set_of(&c->index, number), number & 15 };
}

static inline uint32_t row_cache_tier_of(const struct row_cache *c, uint32_t slot)
{
    uint32_t tier = 0;

    while (tier + 1 < c->tier_count && slot >= c->pools[tier + 1].first_slot)
        tier++;
    return tier;
}

static inline uint64_t row_cache_hash(const struct row_cache *c, const struct row_entry *entry)
{
    return c->hash(c->context, entry->table, entry->id);
}

/* Returns the row's spot in its table's map, or NULL if there is no map. */
static inline struct row_spot *row_cache_spot(const struct row_cache *c,
                                              const struct row_entry *entry)
{
    const uint16_t map = c->tables[entry->table].map;

    return map == ROW_MAP_NONE ? NULL : &row_maps_spots(&c->maps, map)[entry->id];
}

/* Returns a spot's mark for a row that became dirty in an epoch of that parity. */
static inline uint16_t row_cache_dirty_mark(uint8_t epoch)
{
    return 1 + (epoch != 0);
}

/* Counts a row that got its first pin, or lost its last. */
static inline void row_cache_count_pinned(struct row_cache *c, const struct row_entry *entry,
                                          int change)
{
    struct cached_table *const t = &c->tables[entry->table];
    uint64_t *const in_tier = &c->stats.tiers[row_cache_tier_of(c, entry->slot)].pinned_bytes;

    assert(change > 0 || c->stats.pinned_rows > 0);
    if (t->state == TABLE_IN_USE) {
        assert(change > 0 || t->pinned_rows > 0);
        t->pinned_rows += (uint32_t)change;
    }
    counter_add(&c->stats.pinned_rows, (uint64_t)(int64_t)change);
    counter_add(&c->stats.pinned_bytes, (uint64_t)((int64_t)change * t->row_bytes));
    counter_add(in_tier, (uint64_t)((int64_t)change * t->row_bytes));
}

/* Returns how many slabs of the tier's end are maps. */
static inline uint32_t row_cache_maps_of(const struct row_cache *c, uint32_t tier)
{
    return tier == 0 ? c->map_slabs : 0;
}

/* Returns how many slabs the tier is to have, those of maps included. */
static inline uint32_t row_cache_wanted_slabs(const struct row_cache *c, uint32_t tier)
{
    return c->pools[tier].limit + row_cache_maps_of(c, tier);
}

/* True if a dirty row was dirty when the epoch began. */
static inline bool row_cache_is_old(const struct row_cache *c, const struct row_entry *entry)
{
    return c->in_epoch && (entry->flags & ROW_ENTRY_EPOCH) != c->epoch;
}

/* Returns the time of the row's last use, through the map or without, and notes it in the index. */
static inline uint16_t row_cache_stamp(const struct row_cache *c, struct row_set *set, uint32_t way)
{
    const struct row_spot *spot;

    if (c->maps.used_pages == 0)
        return set->stamps[way];
    spot = row_cache_spot(c, &set->entries[way]);
    if (spot && (uint16_t)(c->now - spot->stamp) < (uint16_t)(c->now - set->stamps[way]))
        set->stamps[way] = spot->stamp;
    return set->stamps[way];
}

static inline uint16_t row_cache_age(const struct row_cache *c, struct row_set *set, uint32_t way)
{
    return (uint16_t)(c->now - row_cache_stamp(c, set, way));
}

static inline const uint8_t *row_cache_address(const struct row_cache *c, uint32_t slot,
                                               uint32_t *ret_tier)
{
    uint32_t tier = 0;

    if (UNLIKELY(slot >= c->tier0_end))
        tier = row_cache_tier_of(c, slot);
    *ret_tier = tier;
    return slab_pool_address(&c->pools[tier], slot);
}

/* Hands over a dirty row for writing; false: it was refused. */
static inline bool row_cache_hand_over(struct row_cache *c, const struct row_entry *entry)
{
    uint32_t tier;
    const uint8_t *const row = row_cache_address(c, entry->slot, &tier);

    return c->evict(c->context, entry->table, row_cache_hash(c, entry), entry->id, row,
                    c->tables[entry->table].row_bytes);
}

/* Called before the row changes. */
static inline void row_cache_mark_dirty(struct row_cache *c, struct row_place place, uint32_t tier)
{
    struct row_entry *const entry = place_entry(place);
    struct row_spot *spot;

    if (place.set->dirty >> place.way & 1) {
        if (LIKELY(!row_cache_is_old(c, entry)))
            return;
        c->save_failed |= !row_cache_hand_over(c, entry);
    } else {
        place.set->dirty |= (uint16_t)(1u << place.way);
        counter_add(&c->stats.tiers[tier].dirty_rows, 1);
        counter_add(&c->stats.tiers[tier].dirty_bytes, c->tables[entry->table].row_bytes);
    }
    entry->flags = (uint8_t)((entry->flags & ~ROW_ENTRY_EPOCH) | c->epoch);
    spot = row_cache_spot(c, entry);
    if (spot)
        spot->dirty = row_cache_dirty_mark(c->epoch);
}

/* row_victims.c: finds the next row of a class to leave a tier; false: none can. @clean_only: skip
 * rows that would have to be written. */
bool row_victims_next(struct row_cache *c, uint32_t tier, uint32_t class_index, bool clean_only,
                      struct row_place *ret_place);
/* Returns the approximate age, in ticks, of the class's next victim; 0 if there is none. */
uint32_t row_victims_age(struct row_cache *c, uint32_t tier, uint32_t class_index);

/* row_moves.c. */

/* Returns a slot for a row of the class in the tier, if need be by moving another row down or out.
 * SLOT_NONE if that fails. */
uint32_t row_moves_make_slot(struct row_cache *c, uint32_t tier, uint32_t class_index);
/* Lets the oldest row of these or those ways leave the cache, or another one if that row may not.
 * False: none can leave now. */
bool row_moves_let_oldest_go(struct row_cache *c, struct row_ways these, struct row_ways those,
                             struct row_place *ret_place);
/* Returns a free way in one of two sets (may be the same), if need be by letting a row go.
 * ROW_WAY_NONE if that fails. */
uint32_t row_moves_make_way(struct row_cache *c, struct row_set *first, struct row_set *second,
                            struct row_set **ret_set);
/* Moves a row to a slot that was taken for it, and frees its old slot. */
void row_moves_move(struct row_cache *c, struct row_place place, uint32_t slot);
/* Moves a row down a tier, or out of the cache; false: it stays. */
bool row_moves_push_down(struct row_cache *c, struct row_place place);
/* Moves a row to another slot of its tier if it is younger than the rows that would leave for it,
 * else down. False: it stays. */
bool row_moves_relocate(struct row_cache *c, struct row_place place);
/* Moves a row to tier 0; false: it stays where it is. */
bool row_moves_promote(struct row_cache *c, struct row_place place);
/* Forgets a row, dirty or not. */
void row_moves_forget(struct row_cache *c, struct row_place place);
/* Counts a row that came to a tier (@sign 1) or left it (-1). */
void row_moves_account(struct row_cache *c, uint32_t tier, uint32_t row_bytes, bool dirty,
                       int sign);

/* row_resize.c: counts what the tier has now. */
void row_resize_note(struct row_cache *c, uint32_t tier);

/* row_growth.c: resizes the index by @steps more sets; takes the slabs for the index first. */
void row_growth_step(struct row_cache *c, uint32_t steps);
/* Decides how many sets the index should have for the rows cached now. */
void row_growth_look(struct row_cache *c);
/* After the first tier's size has changed: gives up plans that do not fit it. */
void row_growth_fit(struct row_cache *c);
/* Return the next set of a bottom-up scan from @cursor (0: the start), and the cursor of a scan
 * that goes on with @set. */
uint32_t row_growth_scan_set(const struct row_cache *c, uint64_t cursor);
uint64_t row_growth_scan_cursor(const struct row_cache *c, uint32_t set);

/* row_upkeep.c: call it first in each operation, with the operation's number of rows. */
void row_upkeep(struct row_cache *c, uint32_t rows);
/* The same without the clock: slow work as in an operation of so many rows. */
void row_upkeep_work(struct row_cache *c, uint32_t rows);
/* Sets the clock for a cache with room for @rows. */
void row_upkeep_set_tick(struct row_cache *c, uint64_t rows);
/* Call it last: makes moved rows readable by all threads. */
void row_upkeep_end(struct row_cache *c);

#endif
