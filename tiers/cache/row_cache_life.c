/* SPDX-License-Identifier: Apache-2.0 */
/* row_cache_life.c: makes a row cache, adds and purges tables, and checks its consistency.
 *
 * All fixed parts lie in tier 0's first slabs: struct row_cache, 16 bytes per table number (1 MiB),
 * the bounce buffer, 32 bytes per slab. The index follows. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "tiers/cache/row_cache_impl.h"

#define GRANULE_SHIFT_MIN 4 /* 16 bytes, enough for 64 GiB per lane; larger granules allow more */
#define GRANULE_SHIFT_MAX 8
#define BOUNCE_BYTES      align_up(LENGTH_CLASS_ROW_BYTES_MAX, CACHE_LINE)

/* Places of the cache's parts, from the front of tier 0. */
struct layout {
    uint32_t granule_shift;
    uint64_t tables_at;
    uint64_t bounce_at;
    uint64_t slabs_at;
    uint64_t fixed_bytes; /* the index follows */
};

static struct layout lay_out(uint64_t slabs)
{
    struct layout layout = { .granule_shift = GRANULE_SHIFT_MIN };

    while (slabs << (SLAB_BYTES_SHIFT - layout.granule_shift) > UINT64_C(1) << 32 &&
           layout.granule_shift <= GRANULE_SHIFT_MAX)
        layout.granule_shift++;
    layout.tables_at = align_up(sizeof(struct row_cache), CACHE_LINE);
    layout.bounce_at = layout.tables_at + (ROW_CACHE_TABLES_MAX + 1) * sizeof(struct cached_table);
    layout.slabs_at = layout.bounce_at + BOUNCE_BYTES;
    layout.fixed_bytes = align_up(layout.slabs_at + slabs * sizeof(struct slab), CACHE_LINE);
    return layout;
}

static uint64_t count_slabs(const uint32_t *slab_counts, uint32_t tier_count)
{
    uint64_t slabs = 0;

    for (uint32_t i = 0; i < tier_count; i++)
        slabs += slab_counts[i];
    return slabs;
}

enum embtier_err row_cache_check_slabs(const uint32_t *slab_counts, const uint32_t *room_slabs,
                                       uint32_t tier_count, uint32_t map_slabs, struct err_msg *msg)
{
    const uint64_t slabs = count_slabs(room_slabs, tier_count);
    const struct layout layout = lay_out(slabs);

    for (uint32_t i = 0; i < tier_count; i++)
        if (slab_counts[i] < (i ? 1 : 2))
            return err_set(msg, EMBTIER_INVALID,
                           "tier %" PRIu32 " has %" PRIu32
                           " slabs of 2 MiB per lane; %d are needed",
                           i, slab_counts[i], i ? 1 : 2);
    if (map_slabs > slab_counts[0] / 4)
        return err_set(msg, EMBTIER_INVALID, "maps of %" PRIu32 " of tier 0's %" PRIu32 " slabs",
                       map_slabs, slab_counts[0]);
    if (layout.granule_shift > GRANULE_SHIFT_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%" PRIu64
                       " slabs in one lane's cache, as it may grow to; use more lanes, or lower "
                       "max_bytes of the tiers",
                       slabs);
    if (div_round_up(layout.fixed_bytes + sizeof(struct row_set), ARENA_SLAB_BYTES) >
        slab_counts[0] / 2)
        return err_set(msg, EMBTIER_INVALID,
                       "tier 0 has %" PRIu32
                       " slabs of 2 MiB per lane, and half of them must hold the index of %" PRIu64
                       " in all tiers; make tier 0 larger, or lower max_bytes of the tiers",
                       slab_counts[0], slabs);
    return EMBTIER_OK;
}

static enum embtier_err check_opts(const struct row_cache_opts *opts, const uint32_t *room_slabs,
                                   struct err_msg *msg)
{
    if (!opts->hash || !opts->evict)
        return err_set(msg, EMBTIER_INVALID, "a row cache needs hash() and evict()");
    if (!opts->arena_count || opts->arena_count > TIERS_MAX)
        return err_set(msg, EMBTIER_INVALID, "%" PRIu32 " tiers; 1 to %d are allowed",
                       opts->arena_count, TIERS_MAX);
    for (uint32_t i = 0; i < opts->arena_count; i++) {
        uint64_t end = (uint64_t)opts->arena_first_slab[i] + room_slabs[i];

        if (room_slabs[i] < opts->arena_slab_count[i])
            return err_set(msg, EMBTIER_INVALID, "more slabs than room in tier %" PRIu32, i);
        if (end * ARENA_SLAB_BYTES > arena_bytes(opts->arenas[i]))
            return err_set(msg, EMBTIER_INVALID, "slabs past the end of tier %" PRIu32, i);
    }
    return row_cache_check_slabs(opts->arena_slab_count, room_slabs, opts->arena_count,
                                 opts->map_slabs, msg);
}

static void set_up_pools(struct row_cache *c, const struct row_cache_opts *opts,
                         const uint32_t *room_slabs)
{
    uint32_t first_slab = 0;

    for (uint32_t i = 0; i < opts->arena_count; i++) {
        uint8_t *base =
            (uint8_t *)arena_base(opts->arenas[i]) + opts->arena_first_slab[i] * ARENA_SLAB_BYTES;

        c->arenas[i] = opts->arenas[i];
        slab_pool_init(&c->pools[i], base, room_slabs[i],
                       opts->arena_slab_count[i] - row_cache_maps_of(c, i),
                       first_slab << (SLAB_BYTES_SHIFT - c->granule_shift), c->granule_shift,
                       c->slabs + first_slab);
        row_resize_note(c, i);
        first_slab += room_slabs[i];
    }
    c->tier0_end = c->tier_count > 1 ? c->pools[1].first_slot : UINT32_MAX;
    for (uint32_t i = 0; i < c->index_slabs; i++)
        slab_pool_take_away(&c->pools[0], i);
    for (uint32_t i = 0; i < opts->map_slabs; i++)
        slab_pool_take_away(&c->pools[0], room_slabs[0] - 1 - i);
    row_maps_init(&c->maps, slab_pool_slab_base(&c->pools[0], room_slabs[0] - opts->map_slabs),
                  opts->map_slabs * ARENA_SLAB_BYTES);
}

enum embtier_err row_cache_new(const struct row_cache_opts *opts, struct row_cache **ret_cache,
                               struct err_msg *msg)
{
    uint32_t room_slabs[TIERS_MAX];
    struct layout layout;
    uint8_t *base;
    struct row_cache *c;

    for (uint32_t i = 0; i < TIERS_MAX; i++)
        room_slabs[i] =
            opts->arena_room_slabs[i] ? opts->arena_room_slabs[i] : opts->arena_slab_count[i];
    TRY(check_opts(opts, room_slabs, msg));
    layout = lay_out(count_slabs(room_slabs, opts->arena_count));
    base = (uint8_t *)arena_base(opts->arenas[0]) + opts->arena_first_slab[0] * ARENA_SLAB_BYTES;
    c = (struct row_cache *)base;
    memset(base, 0, layout.fixed_bytes);
    c->tables = (struct cached_table *)(base + layout.tables_at);
    c->bounce = base + layout.bounce_at;
    c->slabs = (struct slab *)(base + layout.slabs_at);
    c->fixed_bytes = layout.fixed_bytes;
    c->granule_shift = (uint8_t)layout.granule_shift;
    c->tier_count = (uint8_t)opts->arena_count;
    c->evict = opts->evict;
    c->hash = opts->hash;
    c->context = opts->context;
    c->map_slabs = opts->map_slabs;
    c->index_slabs =
        (uint32_t)div_round_up(c->fixed_bytes + sizeof(struct row_set), ARENA_SLAB_BYTES);
    set_up_pools(c, opts, room_slabs);
    c->wanted_sets =
        (uint32_t)((c->index_slabs * ARENA_SLAB_BYTES - c->fixed_bytes) / sizeof(struct row_set));
    row_index_init(&c->index, base + c->fixed_bytes, c->wanted_sets);
    c->stats.index_bytes = c->wanted_sets * sizeof(struct row_set);
    row_growth_look(c);
    *ret_cache = c;
    return EMBTIER_OK;
}

void row_cache_free(struct row_cache *c)
{
    /* Nothing to free: the whole cache lies in the arenas. */
    (void)c;
}

/* No table may take more than half of the room for maps. */
static uint64_t most_mapped_rows(const struct row_cache *c)
{
    return (uint64_t)c->maps.page_count * ROW_MAP_PAGE_BYTES / sizeof(struct row_spot) / 2;
}

enum embtier_err row_cache_add_table(struct row_cache *c, uint16_t table_number, uint32_t row_bytes,
                                     uint64_t rows)
{
    struct cached_table *table = &c->tables[table_number];

    if (!row_bytes || row_bytes > LENGTH_CLASS_ROW_BYTES_MAX)
        return EMBTIER_INVALID;
    if (table->state != TABLE_UNKNOWN)
        return EMBTIER_EXISTS;
    *table = (struct cached_table){
        .row_bytes = row_bytes,
        .length_class = (uint8_t)length_class_of(row_bytes, c->granule_shift),
        .state = TABLE_IN_USE,
        .map = rows <= most_mapped_rows(c) ? row_maps_add(&c->maps, rows) : ROW_MAP_NONE,
    };
    counter_set(&c->stats.map_bytes, row_maps_bytes(&c->maps));
    return EMBTIER_OK;
}

/* Validation's own counts, to compare with the recorded ones. */
struct counts {
    struct row_cache_tier_stats tiers[TIERS_MAX];
    uint64_t pinned;
    uint64_t pinned_bytes;
    uint64_t mapped;
};

static const char *validate_entry(const struct row_cache *c, struct row_set *set, uint32_t way,
                                  struct counts *counts)
{
    const struct row_entry *entry = &set->entries[way];
    const struct cached_table *table = &c->tables[entry->table];
    uint32_t tier = row_cache_tier_of(c, entry->slot);
    const struct slab_pool *pool = &c->pools[tier];
    uint64_t hash = row_cache_hash(c, entry);
    const struct row_spot *spot;
    struct row_set *found;
    const struct slab *slab;

    if (table->state == TABLE_UNKNOWN)
        return "a row of no table";
    if (set->tags[way] != row_index_tag(hash))
        return "a tag is not its row's";
    if ((entry->flags & ROW_ENTRY_SECOND ? row_index_second_set : row_index_first_set)(&c->index,
                                                                                       hash) != set)
        return "a row is in a set that is none of its own";
    if (row_index_find(&c->index, entry->table, hash, entry->id, &found) != way || found != set)
        return "a row is there twice, or cannot be found";
    if ((set->pinned >> way & 1) != (entry->pins != 0))
        return "a row's pins and its pinned bit disagree";
    if (!slab_pool_has(pool, entry->slot))
        return "a slot outside of every tier";
    slab = &pool->slabs[slab_pool_slab_of(pool, entry->slot)];
    if (slab->state != SLAB_USED && slab->state != SLAB_DRAINING)
        return "a row in a slab that has none";
    if (pool->classes[slab->length_class].slot_bytes < table->row_bytes)
        return "a row is longer than its slot";
    if (*slab_pool_owner(pool, entry->slot) != row_index_number(&c->index, set, way))
        return "a slot's owner is not the row that lies in it";
    spot = row_cache_spot(c, entry);
    if (spot &&
        (spot->slot_and_1 != entry->slot + 1 ||
         spot->dirty !=
             (set->dirty >> way & 1 ? row_cache_dirty_mark(entry->flags & ROW_ENTRY_EPOCH) : 0)))
        return "a map and the index disagree";
    counts->mapped += spot != NULL;
    counts->tiers[tier].rows++;
    counts->tiers[tier].used_bytes += table->row_bytes;
    counts->tiers[tier].dirty_rows += set->dirty >> way & 1;
    counts->tiers[tier].dirty_bytes += set->dirty >> way & 1 ? table->row_bytes : 0;
    counts->pinned += entry->pins != 0;
    counts->tiers[tier].pinned_bytes += entry->pins != 0 ? table->row_bytes : 0;
    counts->pinned_bytes += entry->pins != 0 ? table->row_bytes : 0;
    return NULL;
}

static const char *validate_set(const struct row_cache *c, struct row_set *set,
                                struct counts *counts, uint64_t *away)
{
    uint32_t free_ways = row_set_free_ways(set);

    if ((set->dirty & free_ways) || (set->pinned & free_ways) || set->dirty >> ROW_SET_WAYS)
        return "a free way is dirty or pinned";
    if ((set->away != 0) != ((set->pinned & ROW_SET_AWAY) != 0))
        return "a set's count of rows that live elsewhere and its bit disagree";
    *away += set->away;
    for (uint32_t way = 0; way < ROW_SET_WAYS; way++) {
        const char *wrong;

        if (free_ways >> way & 1)
            continue;
        wrong = validate_entry(c, set, way, counts);
        if (wrong)
            return wrong;
        *away -= set->entries[way].flags & ROW_ENTRY_SECOND ? 1 : 0;
    }
    return NULL;
}

static const char *validate_pools(const struct row_cache *c, const struct counts *counts)
{
    for (uint32_t tier = 0; tier < c->tier_count; tier++) {
        const struct row_cache_tier_stats *stats = &c->stats.tiers[tier];
        uint64_t used = 0;
        const char *wrong = slab_pool_validate(&c->pools[tier]);

        if (wrong)
            return wrong;
        for (uint32_t i = 0; i < c->pools[tier].slab_count; i++)
            if (c->pools[tier].slabs[i].state == SLAB_USED ||
                c->pools[tier].slabs[i].state == SLAB_DRAINING)
                used += c->pools[tier].slabs[i].used_slots;
        if (used != stats->rows || stats->rows != counts->tiers[tier].rows)
            return "a tier's count of rows is wrong";
        if (stats->used_bytes != counts->tiers[tier].used_bytes)
            return "a tier's count of bytes is wrong";
        if (stats->dirty_rows != counts->tiers[tier].dirty_rows)
            return "a tier's count of dirty rows is wrong";
        if (stats->dirty_bytes != counts->tiers[tier].dirty_bytes)
            return "a tier's count of dirty bytes is wrong";
        if (stats->pinned_bytes != counts->tiers[tier].pinned_bytes)
            return "a tier's count of pinned bytes is wrong";
    }
    return NULL;
}

const char *row_cache_validate(const struct row_cache *c)
{
    struct counts counts = { 0 };
    uint64_t away = 0; /* recorded minus found; wraps below zero if the recorded counts miss rows */
    const char *wrong;

    for (uint32_t s = 0; row_index_next_set(&c->index, &s); s++) {
        wrong = validate_set(c, &c->index.sets[s], &counts, &away);
        if (wrong)
            return wrong;
    }
    if (!c->index.has_resized && away)
        return "sets miscount their rows that live elsewhere";
    if (counts.pinned != c->stats.pinned_rows || counts.pinned_bytes != c->stats.pinned_bytes)
        return "the count of pinned rows is wrong";
    if (row_maps_count_rows(&c->maps) != counts.mapped)
        return "a map has rows that are not cached";
    return validate_pools(c, &counts);
}

/* A class that may have lost its last table no longer waits for a slab; rows of another table ask
 * again. */
static void withdraw_wish(struct row_cache *c, uint32_t class_index)
{
    for (uint32_t tier = 0; tier < c->tier_count; tier++) {
        struct slab_pool *pool = &c->pools[tier];

        if (pool->starved == class_index)
            pool->starved = LENGTH_CLASS_NONE;
        if (pool->draining != SLAB_NONE && pool->slabs[pool->draining].heir == class_index)
            pool->slabs[pool->draining].heir = SLAB_HEIR_POOL;
    }
}

bool row_cache_purge_table(struct row_cache *c, uint16_t table_number, uint32_t step)
{
    struct cached_table *table = &c->tables[table_number];
    uint32_t s;

    if (table->state == TABLE_UNKNOWN)
        return true;
    if (table->state == TABLE_IN_USE) {
        table->state = TABLE_PURGING;
        table->purge_set = 0;
        c->purging++;
    }
    s = table->purge_set;
    for (; step && table->rows && row_index_next_set(&c->index, &s); step--, s++) {
        struct row_set *set = &c->index.sets[s];
        uint32_t taken = ~row_set_free_ways(set) & ROW_SET_WAYS_MASK;

        for (; taken; taken &= taken - 1) {
            uint32_t way = (uint32_t)__builtin_ctz(taken);
            uint32_t slot = set->entries[way].slot;

            if (set->entries[way].table != table_number)
                continue;
            row_moves_forget(c, (struct row_place){ set, way });
            slab_pool_release_if_empty(&c->pools[row_cache_tier_of(c, slot)], slot);
        }
    }
    table->purge_set = s;
    if (table->rows)
        return false;
    assert(c->purging > 0);
    c->purging--;
    if (table->map != ROW_MAP_NONE) {
        row_maps_remove(&c->maps, table->map);
        counter_set(&c->stats.map_bytes, row_maps_bytes(&c->maps));
    }
    withdraw_wish(c, table->length_class);
    *table = (struct cached_table){ 0 };
    return true;
}

_Static_assert(sizeof(struct row_cache_stats) % sizeof(uint64_t) == 0, "all of it are counters");

void row_cache_stats(const struct row_cache *c, struct row_cache_stats *ret_stats)
{
    counter_get_all((const uint64_t *)&c->stats, (uint64_t *)ret_stats,
                    sizeof(*ret_stats) / sizeof(uint64_t));
}
