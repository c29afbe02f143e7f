/* SPDX-License-Identifier: Apache-2.0 */
/* row_cache.c: the operations that find rows in the cache, and their fast paths.
 *
 * A lookup costs three dependent cache misses: its set's tags, its entry, the row itself. To have
 * many in flight at once, refs go in groups of 16 through the stages of a pipeline. Each stage uses
 * what the stage before has prefetched, and prefetches for the next. While group n is copied, the
 * rows of n + 1, the entries of n + 2 and the tags of n + 3 are on their way.
 *
 *   find set -> match tags -> (match tags of the second set) -> check entry -> use the row
 *
 * Between the stages rows may move (a hit in a slower tier moves two), but no entry does. The last
 * stage reads the slot from the entry again; the prefetch was only a guess. A row may even leave. A
 * promotion's chain of victims ends in the promoted row's hole, unless that lies in a draining slab
 * or in a slot of another class. So once a row has left, the last stage repeats the lookups of the
 * stages before it.
 *
 * Groups were measured against single refs that go through all stages per turn, which take half as
 * long again. Within a group the loop of a stage has no dependency from ref to ref, so a late line
 * delays no other. The remaining cost is three places in memory per row where an array has one.
 *
 * Rows of a table that has a map (row_map.h) take a shorter way, run_mapped(): the row's word of
 * the map, then the row. The index covers the cases that the word does not: a row in a slower tier,
 * or one that is not dirty yet. */
#include "tiers/cache/row_cache.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "tiers/cache/row_cache_impl.h"

#define GROUP       16
#define GROUPS      4 /* in the pipeline */
#define LINES_AHEAD 16
#define SPOTS_AHEAD 56 /* refs whose word of the map is being prefetched, */
#define ROWS_AHEAD  32 /* and whose row is, or their set and, half as far, entry of the index */

/* tests/unit builds this file once with pins that hold nothing, to check that the tests notice. */
#ifndef WITHOUT_PINS
#define WITHOUT_PINS 0
#endif

/* A group of refs in the pipeline. */
struct probes {
    struct row_set *sets[GROUP];
    uint16_t masks[GROUP]; /* ways whose tag matches */
    uint8_t ways[GROUP];
    uint32_t second; /* bit per ref: sets[] is its second set */
};

/* The last stage's action on a row. */
enum use { USE_GET, USE_SET, USE_FIND, USE_CHANGE, USE_CHANGE_THROUGH, USE_PIN, USE_UNPIN };

/* True if the call asks for places. */
static inline bool finds(enum use use)
{
    return use == USE_FIND || use == USE_CHANGE || use == USE_CHANGE_THROUGH;
}

/* One call's work on refs of a table. */
struct row_call {
    enum use use;
    uint16_t table;
    const struct row_ref *refs;
    uint32_t count;
    char *dest;
    const char *src;
    uint64_t stride;
    uint32_t bytes;    /* of each row */
    uint32_t *missed;  /* gets indexes, or */
    uint64_t *found;   /* gets bits, or */
    const void **rows; /* gets places */
    uint32_t missed_count;
    uint32_t hits;       /* in tier 0 */
    uint64_t departures; /* of the cache, when the call began */
};

static inline __attribute__((always_inline)) void
find_sets(const struct row_cache *c, const struct row_ref *refs, uint32_t count, struct probes *p)
{
    for (uint32_t i = 0; i < count; i++) {
        p->sets[i] = row_index_first_set(&c->index, refs[i].hash);
        __builtin_prefetch(p->sets[i]);
    }
}

static inline __attribute__((always_inline)) void
match_tags(const struct row_cache *c, const struct row_ref *refs, uint32_t count, struct probes *p)
{
    p->second = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct row_set *set = p->sets[i];
        uint32_t mask = row_set_match(set, row_index_tag(refs[i].hash));

        p->masks[i] = (uint16_t)mask;
        if (LIKELY(mask)) {
            __builtin_prefetch(&set->entries[__builtin_ctz(mask)]);
        } else if (set->pinned & ROW_SET_AWAY) {
            p->sets[i] = row_index_second_set(&c->index, refs[i].hash);
            __builtin_prefetch(p->sets[i]);
            p->second |= 1u << i;
        }
    }
}

static inline __attribute__((always_inline)) void match_second_tags(const struct row_ref *refs,
                                                                    struct probes *p)
{
    for (uint32_t rest = p->second; rest; rest &= rest - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(rest);
        uint32_t mask = row_set_match(p->sets[i], row_index_tag(refs[i].hash));

        p->masks[i] = (uint16_t)mask;
        if (mask)
            __builtin_prefetch(&p->sets[i]->entries[__builtin_ctz(mask)]);
    }
}

static inline __attribute__((always_inline)) void
check_entries(const struct row_cache *c, const struct row_call *call, const struct row_ref *refs,
              uint32_t count, uint32_t lines, struct probes *p)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t way = ROW_WAY_NONE;

        if (LIKELY(p->masks[i])) {
            const struct row_entry *entry;

            way = (uint32_t)__builtin_ctz(p->masks[i]);
            entry = &p->sets[i]->entries[way];
            /* The tag matched by chance, once in some thousands: take the slow way. */
            if (UNLIKELY(!row_entry_is(entry, call->table, refs[i].id)))
                way = row_index_find(&c->index, call->table, refs[i].hash, refs[i].id, &p->sets[i]);
        }
        p->ways[i] = (uint8_t)way;
        if (way != ROW_WAY_NONE && lines) {
            uint32_t tier;
            const uint8_t *row = row_cache_address(c, p->sets[i]->entries[way].slot, &tier);

            for (uint32_t line = 0; line < lines; line++)
                __builtin_prefetch(row + (uint64_t)line * CACHE_LINE, 0, 2);
        }
    }
}

static inline __attribute__((always_inline)) void touch(struct row_cache *c, struct row_place place)
{
    if (place.set->stamps[place.way] != c->now)
        place.set->stamps[place.way] = c->now;
}

/* Hits in tier 0 are added up, and counted when the call has run. */
static inline __attribute__((always_inline)) void count_hit(struct row_cache *c,
                                                            struct row_call *call, uint32_t tier)
{
    if (LIKELY(!tier)) {
        call->hits++;
        return;
    }
    counter_add(&c->stats.tiers[tier].hits, 1);
    if (call->use == USE_GET)
        counter_add(&c->stats.tiers[tier].get_hits, 1);
}

/* Copies a cached row, after moving it to tier 0 if possible. */
static inline __attribute__((always_inline)) void
copy_hit(struct row_cache *c, struct row_call *call, struct row_place place, uint32_t position)
{
    struct row_entry *entry = place_entry(place);
    uint32_t tier;
    uint8_t *row = (uint8_t *)row_cache_address(c, entry->slot, &tier);

    count_hit(c, call, tier);
    touch(c, place);
    if (UNLIKELY(tier) && row_moves_promote(c, place))
        row = (uint8_t *)row_cache_address(c, entry->slot, &tier);
    if (call->use == USE_GET) {
        memcpy(call->dest + position * call->stride, row, call->bytes);
        return;
    }
    row_cache_mark_dirty(c, place, tier);
    if (LIKELY(!tier)) {
        memcpy(row, call->src + position * call->stride, call->bytes);
        return;
    }
    arena_copy_in(c->arenas[tier], row, call->src + position * call->stride, call->bytes);
    c->undrained |= 1u << tier;
}

static bool pin(struct row_cache *c, struct row_place place)
{
    struct row_entry *entry = place_entry(place);
    const uint32_t bytes = c->tables[entry->table].row_bytes;

    if (entry->pins == ROW_CACHE_PINS_MAX ||
        (entry->pins == 0 && c->stats.pinned_bytes + bytes > c->pinned_most))
        return false;
    touch(c, place);
    if (UNLIKELY(entry->slot >= c->tier0_end))
        (void)row_moves_promote(c, place);
    if (entry->pins++ == 0) {
        if (!WITHOUT_PINS)
            place.set->pinned |= (uint16_t)(1u << place.way);
        row_cache_count_pinned(c, entry, 1);
    }
    return true;
}

static void unpin(struct row_cache *c, struct row_place place)
{
    struct row_entry *entry = place_entry(place);

    if (entry->pins == 0)
        return;
    if (--entry->pins == 0) {
        place.set->pinned &= (uint16_t) ~(1u << place.way);
        row_cache_count_pinned(c, entry, -1);
    }
}

/* Handles ref @at of the call, with its place, or none. */
static inline __attribute__((always_inline)) void
use_row(struct row_cache *c, struct row_call *call, uint32_t at, struct row_place place)
{
    if (UNLIKELY(place.way == ROW_WAY_NONE)) {
        if (call->missed)
            call->missed[call->missed_count] = at;
        else if (finds(call->use))
            call->rows[at] = NULL;
        call->missed_count++;
    } else if (finds(call->use)) {
        uint32_t tier;

        touch(c, place);
        call->rows[at] = row_cache_address(c, place_entry(place)->slot, &tier);
        if (call->use == USE_CHANGE)
            row_cache_mark_dirty(c, place, tier);
        if (call->use != USE_FIND)
            count_hit(c, call, tier);
    } else if (call->use == USE_PIN) {
        if (pin(c, place))
            call->found[at / 64] |= UINT64_C(1) << at % 64;
    } else if (call->use == USE_UNPIN) {
        unpin(c, place);
    } else {
        copy_hit(c, call, place, call->refs[at].position);
    }
}

static struct row_place look_up(const struct row_cache *c, const struct row_call *call, uint32_t at)
{
    const struct row_ref *const ref = &call->refs[at];
    struct row_place place;

    place.way = row_index_find(&c->index, call->table, ref->hash, ref->id, &place.set);
    return place;
}

static inline __attribute__((always_inline)) void use_rows(struct row_cache *c,
                                                           struct row_call *call, uint32_t first,
                                                           uint32_t count, const struct probes *p)
{
    for (uint32_t i = 0; i < count; i++) {
        struct row_place place = { p->sets[i], p->ways[i] };

        if (UNLIKELY(c->departures != call->departures))
            place = look_up(c, call, first + i);
        use_row(c, call, first + i, place);
    }
}

/* Finds the group that has reached the stage @behind groups behind the first; false: none has. */
static inline __attribute__((always_inline)) bool group_at(const struct row_call *call,
                                                           uint32_t step, uint32_t behind,
                                                           uint32_t *ret_first, uint32_t *ret_count)
{
    uint64_t first = ((uint64_t)step - behind) * GROUP;

    if (step < behind || first >= call->count)
        return false;
    *ret_first = (uint32_t)first;
    *ret_count = (uint32_t)MIN(UINT64_C(0) + GROUP, call->count - first);
    return true;
}

/* True if the map is enough. The row must lie in tier 0; if it is to be changed, it must be dirty
 * and not old. For other cached rows the index has more. */
static inline bool says_all(const struct row_cache *c, const struct row_spot *spot, bool changes)
{
    return spot->slot_and_1 - 1 < c->tier0_end &&
           (!changes || spot->dirty == row_cache_dirty_mark(c->epoch));
}

/* Prefetches the row, and its set if the index will be needed. */
static inline __attribute__((always_inline)) void ask_for_spot(const struct row_cache *c,
                                                               const struct row_spot *spot,
                                                               uint64_t hash, bool changes,
                                                               uint32_t lines)
{
    const uint32_t slot = spot->slot_and_1 - 1;

    if (LIKELY(slot < c->tier0_end))
        for (uint32_t line = 0; line < lines; line++)
            __builtin_prefetch(slab_pool_address(&c->pools[0], slot) + line * CACHE_LINE, 0, 2);
    if (UNLIKELY(!says_all(c, spot, changes)))
        __builtin_prefetch(row_index_first_set(&c->index, hash));
}

static inline __attribute__((always_inline)) void
ask_for_entry(const struct row_cache *c, const struct row_spot *spot, uint64_t hash, bool changes)
{
    const struct row_set *set;
    uint32_t mask;

    if (LIKELY(says_all(c, spot, changes)) || spot->slot_and_1 == 0)
        return;
    set = row_index_first_set(&c->index, hash);
    mask = row_set_match(set, row_index_tag(hash));
    if (mask)
        __builtin_prefetch(&set->entries[__builtin_ctz(mask)]);
}

/* Handles a row for which the map is enough. */
static inline __attribute__((always_inline)) void
use_spot(struct row_cache *c, const struct row_call *call, uint32_t at, struct row_spot *spot)
{
    uint8_t *const row = slab_pool_address(&c->pools[0], spot->slot_and_1 - 1);
    const uint32_t position = call->refs[at].position;

    if (spot->stamp != c->now)
        spot->stamp = c->now;
    if (call->use == USE_GET)
        memcpy(call->dest + position * call->stride, row, call->bytes);
    else if (call->use == USE_SET)
        memcpy(row, call->src + position * call->stride, call->bytes);
    else
        call->rows[at] = row;
}

/* Runs all refs through the map of their table. */
static inline __attribute__((always_inline)) void
run_mapped(struct row_cache *c, struct row_call *call, struct row_spot *spots, uint32_t lines)
{
    const struct row_ref *const refs = call->refs;
    const uint32_t count = call->count;
    const bool changes = call->use == USE_SET || call->use == USE_CHANGE;
    const uint32_t ahead = MIN(count, (uint32_t)ROWS_AHEAD);
    uint32_t hits = 0;

    for (uint32_t i = 0; i < MIN(count, (uint32_t)SPOTS_AHEAD); i++)
        __builtin_prefetch(&spots[refs[i].id]);
    for (uint32_t i = 0; i < count + ahead; i++) {
        if (i + SPOTS_AHEAD < count)
            __builtin_prefetch(&spots[refs[i + SPOTS_AHEAD].id]);
        if (i < count)
            ask_for_spot(c, &spots[refs[i].id], refs[i].hash, changes, lines);
        if (i >= ahead / 2 && i - ahead / 2 < count) {
            const struct row_ref *const ref = &refs[i - ahead / 2];

            ask_for_entry(c, &spots[ref->id], ref->hash, changes);
        }
        if (i >= ahead) {
            const uint32_t at = i - ahead;
            struct row_spot *const spot = &spots[refs[at].id];

            if (LIKELY(says_all(c, spot, changes))) {
                use_spot(c, call, at, spot);
                hits++;
            } else if (spot->slot_and_1 == 0) {
                use_row(c, call, at, (struct row_place){ NULL, ROW_WAY_NONE });
            } else {
                use_row(c, call, at, look_up(c, call, at));
            }
        }
    }
    call->hits += hits;
}

/* Runs all refs through the pipeline. @use is a constant wherever this is inlined. */
static inline __attribute__((always_inline)) void run(struct row_cache *c, struct row_call *call,
                                                      enum use use)
{
    const uint16_t map = c->tables[call->table].map;
    struct probes probes[GROUPS];
    uint32_t steps = (uint32_t)div_round_up(call->count, GROUP) + GROUPS - 1;
    const struct row_ref *refs = call->refs;
    uint32_t lines = 0;
    uint32_t at, n;

    call->use = use;
    call->departures = c->departures;
    if (use == USE_GET || use == USE_SET || use == USE_FIND)
        lines = (uint32_t)MIN(div_round_up(call->bytes, CACHE_LINE), (uint64_t)LINES_AHEAD);
    if (map != ROW_MAP_NONE && use != USE_PIN && use != USE_UNPIN) {
        run_mapped(c, call, row_maps_spots(&c->maps, map), lines);
        return;
    }
    for (uint32_t step = 0; step < steps; step++) {
        if (group_at(call, step, 3, &at, &n))
            use_rows(c, call, at, n, &probes[(step - 3) % GROUPS]);
        if (group_at(call, step, 2, &at, &n)) {
            match_second_tags(refs + at, &probes[(step - 2) % GROUPS]);
            check_entries(c, call, refs + at, n, lines, &probes[(step - 2) % GROUPS]);
        }
        if (group_at(call, step, 1, &at, &n))
            match_tags(c, refs + at, n, &probes[(step - 1) % GROUPS]);
        if (group_at(call, step, 0, &at, &n))
            find_sets(c, refs + at, n, &probes[step % GROUPS]);
    }
}

/* Counts the hits and misses of a call that has run. */
static inline __attribute__((always_inline)) void count_use(struct row_cache *c,
                                                            const struct row_call *call, bool gets)
{
    counter_add(&c->stats.tiers[0].hits, call->hits);
    if (gets)
        counter_add(&c->stats.tiers[0].get_hits, call->hits);
    counter_add(&c->stats.misses, call->missed_count);
}

uint32_t row_cache_get(struct row_cache *c, uint16_t table, const struct row_ref *refs,
                       uint32_t count, void *dest, uint64_t stride, uint32_t bytes,
                       uint32_t *ret_missed)
{
    struct row_call call = {
        .table = table,
        .refs = refs,
        .count = count,
        .dest = dest,
        .stride = stride,
        .bytes = bytes,
        .missed = ret_missed,
    };

    assert(c->tables[table].state == TABLE_IN_USE && bytes <= c->tables[table].row_bytes);
    row_upkeep(c, count);
    run(c, &call, USE_GET);
    row_upkeep_end(c);
    count_use(c, &call, true);
    return call.missed_count;
}

uint32_t row_cache_find(struct row_cache *c, uint16_t table, const struct row_ref *refs,
                        uint32_t count, uint32_t bytes, const void **ret_rows)
{
    struct row_call call = {
        .table = table, .refs = refs, .count = count, .bytes = bytes, .rows = ret_rows
    };

    assert(c->tables[table].state == TABLE_IN_USE && bytes <= c->tables[table].row_bytes);
    run(c, &call, USE_FIND);
    return call.missed_count;
}

uint32_t row_cache_change(struct row_cache *c, uint16_t table, const struct row_ref *refs,
                          uint32_t count, void **ret_rows)
{
    struct row_call call = {
        .table = table, .refs = refs, .count = count, .rows = (const void **)ret_rows
    };

    assert(c->tables[table].state == TABLE_IN_USE);
    run(c, &call, USE_CHANGE);
    count_use(c, &call, false);
    return call.missed_count;
}

uint32_t row_cache_change_through(struct row_cache *c, uint16_t table, const struct row_ref *refs,
                                  uint32_t count, void **ret_rows)
{
    struct row_call call = {
        .table = table, .refs = refs, .count = count, .rows = (const void **)ret_rows
    };

    assert(c->tables[table].state == TABLE_IN_USE);
    run(c, &call, USE_CHANGE_THROUGH);
    count_use(c, &call, false);
    return call.missed_count;
}

/* Returns the tier of @row, which is a row of this cache. */
static uint32_t tier_at(const struct row_cache *c, const void *row)
{
    uint32_t tier = 0;

    while ((uintptr_t)row - (uintptr_t)c->pools[tier].base >= (uint64_t)c->pools[tier].slab_count
                                                                  << SLAB_BYTES_SHIFT) {
        tier++;
        assert(tier < c->tier_count);
    }
    return tier;
}

/* Moves up a row of a lower tier that was read in place, if it is still there. */
static void move_up(struct row_cache *c, uint16_t table, const struct row_ref *ref)
{
    struct row_place place;

    place.way = row_index_find(&c->index, table, ref->hash, ref->id, &place.set);
    if (place.way != ROW_WAY_NONE && place_entry(place)->slot >= c->tier0_end)
        (void)row_moves_promote(c, place);
}

/* Returns how many rows lie in tier 0; @ret_absent: how many are NULL. */
static uint32_t count_first_tier(const struct row_cache *c, const void *const *rows, uint32_t count,
                                 uint32_t *ret_absent)
{
    const uintptr_t base = (uintptr_t)c->pools[0].base;
    const uint64_t bytes = (uint64_t)c->pools[0].slab_count << SLAB_BYTES_SHIFT;
    uint32_t in_first = 0;
    uint32_t absent = 0;

    for (uint32_t i = 0; i < count; i++) {
        in_first += (uintptr_t)rows[i] - base < bytes;
        absent += rows[i] == NULL;
    }
    *ret_absent = absent;
    return in_first;
}

static void count_hits_of_get(struct row_cache *c, uint32_t tier, uint32_t count)
{
    counter_add(&c->stats.tiers[tier].hits, count);
    counter_add(&c->stats.tiers[tier].get_hits, count);
}

void row_cache_used(struct row_cache *c, uint16_t table, const struct row_ref *refs, uint32_t count,
                    const void *const *rows)
{
    uint32_t absent;
    const uint32_t in_first = count_first_tier(c, rows, count, &absent);

    row_upkeep(c, count); /* may move rows; the places are used only to tell their tier */
    count_hits_of_get(c, 0, in_first);
    for (uint32_t i = 0; i < count && in_first < count; i++) {
        const uint32_t tier = tier_at(c, rows[i]);

        if (LIKELY(tier == 0))
            continue;
        count_hits_of_get(c, tier, 1);
        move_up(c, table, &refs[i]);
    }
    row_upkeep_end(c);
}

bool row_cache_spots(const struct row_cache *c, uint16_t table, struct row_spots *ret_spots)
{
    const uint16_t map = c->tables[table].map;

    if (map == ROW_MAP_NONE)
        return false;
    *ret_spots = (struct row_spots){
        .spots = row_maps_spots(&c->maps, map),
        .base = c->pools[0].base,
        .slot_end = c->tier0_end,
        .slot_shift = c->granule_shift,
        .now = c->now,
    };
    return true;
}

void row_cache_used_spots(struct row_cache *c, uint32_t count)
{
    row_upkeep(c, count);
    count_hits_of_get(c, 0, count);
    row_upkeep_end(c);
}

void row_cache_changed(struct row_cache *c, uint16_t table, const struct row_ref *refs,
                       uint32_t count, void *const *rows)
{
    uint32_t absent;
    const uint32_t in_first = count_first_tier(c, (const void *const *)rows, count, &absent);

    row_upkeep(c, count);
    for (uint32_t i = 0; i < count && in_first + absent < count; i++)
        if (rows[i] && UNLIKELY(tier_at(c, rows[i]) > 0))
            move_up(c, table, &refs[i]);
    row_upkeep_end(c);
}

uint32_t row_cache_set(struct row_cache *c, uint16_t table, const struct row_ref *refs,
                       uint32_t count, const void *src, uint64_t stride, uint32_t bytes,
                       uint32_t *ret_missed)
{
    struct row_call call = {
        .table = table,
        .refs = refs,
        .count = count,
        .src = src,
        .stride = stride,
        .bytes = bytes,
        .missed = ret_missed,
    };

    assert(c->tables[table].state == TABLE_IN_USE && bytes <= c->tables[table].row_bytes);
    row_upkeep(c, count);
    run(c, &call, USE_SET);
    row_upkeep_end(c);
    count_use(c, &call, false);
    return call.missed_count;
}

void row_cache_pin(struct row_cache *c, uint16_t table, const struct row_ref *refs, uint32_t count,
                   uint64_t *ret_pinned)
{
    struct row_call call = { .table = table, .refs = refs, .count = count, .found = ret_pinned };

    assert(c->tables[table].state == TABLE_IN_USE);
    memset(ret_pinned, 0, div_round_up(count, 64) * sizeof(*ret_pinned));
    row_upkeep(c, count);
    run(c, &call, USE_PIN);
    row_upkeep_end(c);
}

enum row_pin row_cache_pin_one(struct row_cache *c, uint16_t table, const struct row_ref *ref)
{
    struct row_place place;

    assert(c->tables[table].state == TABLE_IN_USE);
    place.way = row_index_find(&c->index, table, ref->hash, ref->id, &place.set);
    if (place.way == ROW_WAY_NONE)
        return ROW_NOT_CACHED;
    return pin(c, place) ? ROW_PINNED : ROW_NOT_PINNED;
}

void row_cache_unpin(struct row_cache *c, uint16_t table, const struct row_ref *refs,
                     uint32_t count)
{
    struct row_call call = { .table = table, .refs = refs, .count = count };

    run(c, &call, USE_UNPIN);
}
