/* SPDX-License-Identifier: Apache-2.0 */
/* test_row_cache_map.c: tests that rows of a small table, which a map finds, are kept as well as
 * rows that the index finds. */
#include "tests/forms.h"
#include "tests/unit/tiers/row_cache_fixture.h"
#include "tiers/spots/row_spot.h"

#define T     7     /* a table with a map */
#define OTHER 6     /* a table without a map */
#define ROWS  12000 /* T's ids are below */
#define BYTES 512
#define WORDS (BYTES / sizeof(uint64_t))

/* Rows that one map slab could name. A map that long does not fit. */
#define MAP_ROWS_MAX (ARENA_SLAB_BYTES / sizeof(struct row_spot))

/* The last call of evict(). */
struct evictions {
    uint64_t count, id;
    uint64_t row[WORDS];
};

static bool note_eviction(void *context, uint16_t table, uint64_t hash, uint64_t id,
                          const void *row, uint32_t bytes)
{
    struct evictions *e = context;

    assert_int_equal(hash, fixture_hash(NULL, table, id));
    assert_int_equal(bytes, BYTES);
    e->count++;
    e->id = id;
    memcpy(e->row, row, bytes);
    return true;
}

static void open_cache(struct fixture *f, uint32_t tier_count, const uint32_t *slabs,
                       struct evictions *e)
{
    fixture_open_mapped(f, tier_count, slabs, 1, e ? note_eviction : NULL, e);
    assert_int_equal(row_cache_add_table(f->cache, OTHER, BYTES, 0), EMBTIER_OK);
    assert_int_equal(row_cache_add_table(f->cache, T, BYTES, ROWS), EMBTIER_OK);
}

/* Every word of a row names its table, id and value. */
static const uint64_t *row_of(uint16_t table, uint64_t id, uint64_t value)
{
    static uint64_t row[WORDS];

    for (uint32_t i = 0; i < WORDS; i++)
        row[i] = value << 48 | (uint64_t)table << 32 | id;
    return row;
}

static void insert(struct fixture *f, uint16_t table, uint64_t from, uint64_t to, bool dirty)
{
    for (uint64_t id = from; id < to; id++)
        assert_true(fixture_insert(f, table, id, row_of(table, id, 0), dirty));
}

static void expect_row(struct fixture *f, uint16_t table, uint64_t id, uint64_t value)
{
    uint64_t row[WORDS];

    assert_true(fixture_get(f, table, id, row, BYTES));
    assert_memory_equal(row, row_of(table, id, value), BYTES);
}

static struct row_spots spots_of(const struct fixture *f, uint16_t table)
{
    struct row_spots spots;

    assert_true(row_cache_spots(f->cache, table, &spots));
    return spots;
}

static bool has_map(const struct fixture *f, uint16_t table)
{
    struct row_spots spots;

    return row_cache_spots(f->cache, table, &spots);
}

/* Counts cached rows of T without touching their stamps. */
static uint64_t count_cached(const struct fixture *f, uint64_t from, uint64_t to)
{
    const struct row_spots spots = spots_of(f, T);
    uint64_t cached = 0;

    for (uint64_t id = from; id < to; id++)
        cached += spots.spots[id].slot_and_1 != 0;
    return cached;
}

/* Uses rows of T as a pooling loop does. Returns how many were there. */
static uint32_t use_spots(struct fixture *f, uint64_t from, uint64_t to)
{
    const struct row_spots spots = spots_of(f, T);
    uint32_t used = 0;

    for (uint64_t id = from; id < to; id++) {
        struct row_spot *spot = &spots.spots[id];

        if (spot->slot_and_1 == 0 || spot->slot_and_1 - 1 >= spots.slot_end)
            continue;
        assert_memory_equal(spots.base + ((uint64_t)(spot->slot_and_1 - 1) << spots.slot_shift),
                            row_of(T, id, 0), BYTES);
        spot->stamp = spots.now;
        used++;
    }
    row_cache_used_spots(f->cache, used);
    return used;
}

static void purge(struct fixture *f, uint16_t table, uint32_t step)
{
    while (!row_cache_purge_table(f->cache, table, step))
        fixture_validate(f);
}

static void write_back_all(struct fixture *f)
{
    uint64_t cursor = 0;
    bool done = false;

    while (!done)
        (void)row_cache_write_back(f->cache, &cursor, 1000, &done);
}

static void test_hits_and_misses_are_those_of_a_table_without_a_map(void **state)
{
    static uint64_t got[300][WORDS];
    const uint16_t tables[] = { OTHER, T };
    struct fixture f;

    (void)state;
    open_cache(&f, 1, (const uint32_t[]){ 6 }, NULL);
    assert_false(has_map(&f, OTHER));
    assert_true(has_map(&f, T));
    for (uint32_t t = 0; t < 2; t++) {
        const uint16_t table = tables[t];
        const struct row_cache_stats before = fixture_stats(&f);
        struct row_ref refs[300];
        uint32_t missed[300];
        struct row_cache_stats stats;

        for (uint32_t i = 0; i < 300; i++)
            refs[i] = fixture_ref(table, (uint64_t)i * 17 % 300, 299 - i);
        assert_int_equal(row_cache_get(f.cache, table, refs, 300, got, BYTES, BYTES, missed), 300);
        for (uint32_t i = 0; i < 300; i++)
            assert_int_equal(missed[i], i);
        /* Each third row is missing. */
        for (uint64_t id = 0; id < 300; id++)
            if (id % 3 != 0)
                insert(&f, table, id, id + 1, false);
        memset(got, 0, sizeof(got));
        assert_int_equal(row_cache_get(f.cache, table, refs, 300, got, BYTES, 40, missed), 100);
        for (uint32_t i = 0, next = 0; i < 300; i++) {
            const uint64_t id = refs[i].id;
            const uint64_t *row = got[refs[i].position];

            if (id % 3 == 0) {
                assert_int_equal(missed[next++], i);
                assert_int_equal(row[0], 0);
                continue;
            }
            assert_memory_equal(row, row_of(table, id, 0), 40);
            assert_int_equal(row[5], 0);
        }
        stats = fixture_stats(&f);
        assert_int_equal(stats.misses - before.misses, 400);
        assert_int_equal(stats.tiers[0].hits - before.tiers[0].hits, 200);
        assert_int_equal(stats.tiers[0].get_hits - before.tiers[0].get_hits, 200);

        for (uint32_t i = 0; i < 300; i++)
            memcpy(got[refs[i].position], row_of(table, refs[i].id, 1), BYTES);
        for (uint32_t again = 0; again < 2; again++) {
            assert_int_equal(row_cache_set(f.cache, table, refs, 300, got, BYTES, 256, missed),
                             100);
            for (uint32_t i = 0, next = 0; i < 300; i++)
                if (refs[i].id % 3 == 0)
                    assert_int_equal(missed[next++], i);
        }
        for (uint64_t id = 0; id < 300; id++) {
            uint64_t row[WORDS];

            assert_int_equal(fixture_get(&f, table, id, row, BYTES), id % 3 != 0);
            if (id % 3 == 0)
                continue;
            assert_memory_equal(row, row_of(table, id, 1), 256);
            assert_memory_equal(row + 32, row_of(table, id, 0), 256);
        }
        stats = fixture_stats(&f);
        assert_int_equal(stats.tiers[0].hits - before.tiers[0].hits, 800);
        assert_int_equal(stats.tiers[0].get_hits - before.tiers[0].get_hits, 400);
        assert_int_equal(stats.tiers[0].dirty_rows - before.tiers[0].dirty_rows, 200);
        /* A cached row is newer than an inserted one. */
        insert(&f, table, 1, 2, false);
        assert_true(fixture_get(&f, table, 1, got[0], BYTES));
        assert_memory_equal(got[0], row_of(table, 1, 1), 256);
        fixture_validate(&f);
    }
    fixture_close(&f);
}

static void test_found_and_changed_rows_are_where_the_map_says(void **state)
{
    struct row_ref refs[200];
    const void *found[200];
    void *changed[200];
    struct row_spots spots;
    struct row_cache_stats before, after;
    struct fixture f;

    (void)state;
    open_cache(&f, 2, (const uint32_t[]){ 6, 6 }, NULL);
    for (uint64_t id = 0; id < 200; id += 2)
        insert(&f, T, id, id + 1, false);
    for (uint32_t i = 0; i < 200; i++)
        refs[i] = fixture_ref(T, i, i);
    before = fixture_stats(&f);
    assert_int_equal(row_cache_find(f.cache, T, refs, 200, BYTES, found), 100);
    assert_int_equal(fixture_stats(&f).tiers[0].hits, before.tiers[0].hits);
    spots = spots_of(&f, T);
    assert_int_equal(row_cache_change(f.cache, T, refs, 200, changed), 100);
    after = fixture_stats(&f);
    assert_int_equal(after.tiers[0].hits - before.tiers[0].hits, 100);
    assert_int_equal(after.tiers[0].get_hits, before.tiers[0].get_hits);
    assert_int_equal(after.misses - before.misses, 100);
    assert_int_equal(after.tiers[0].dirty_rows, 100);
    for (uint32_t i = 0; i < 200; i++) {
        const struct row_spot *spot = &spots.spots[i];

        assert_ptr_equal(found[i], changed[i]);
        if (i % 2 == 1) {
            assert_null(found[i]);
            assert_int_equal(spot->slot_and_1, 0);
            continue;
        }
        assert_ptr_equal(found[i],
                         spots.base + ((uint64_t)(spot->slot_and_1 - 1) << spots.slot_shift));
        assert_memory_equal(found[i], row_of(T, i, 0), BYTES);
        assert_int_equal(spot->dirty, 1);
        assert_int_equal(spot->stamp, spots.now);
        memcpy(changed[i], row_of(T, i, 2), BYTES);
    }
    row_cache_changed(f.cache, T, refs, 200, changed);
    /* Changes them again, now that they are dirty. */
    assert_int_equal(row_cache_change(f.cache, T, refs, 200, changed), 100);
    row_cache_changed(f.cache, T, refs, 200, changed);
    after = fixture_stats(&f);
    assert_int_equal(after.tiers[0].hits - before.tiers[0].hits, 200);
    assert_int_equal(after.tiers[0].dirty_rows, 100);
    for (uint32_t i = 0; i < 200; i += 2) {
        assert_ptr_equal(changed[i], found[i]);
        expect_row(&f, T, i, 2);
    }
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_uses_of_spots_are_hits(void **state)
{
    struct row_cache_stats before, after;
    struct fixture f;

    (void)state;
    open_cache(&f, 1, (const uint32_t[]){ 6 }, NULL);
    insert(&f, T, 0, 100, false);
    before = fixture_stats(&f);
    assert_int_equal(use_spots(&f, 0, 200), 100);
    after = fixture_stats(&f);
    assert_int_equal(after.tiers[0].hits - before.tiers[0].hits, 100);
    assert_int_equal(after.tiers[0].get_hits - before.tiers[0].get_hits, 100);
    assert_int_equal(after.misses, before.misses);
    fixture_close(&f);
}

static void test_a_table_that_does_not_fit_works_without_a_map(void **state)
{
    struct fixture f;

    (void)state;
    open_cache(&f, 1, (const uint32_t[]){ 8 }, NULL);
    assert_int_equal(fixture_stats(&f).map_bytes, 24 * 4096);
    assert_int_equal(row_cache_add_table(f.cache, 1, BYTES, MAP_ROWS_MAX), EMBTIER_OK);
    assert_int_equal(row_cache_add_table(f.cache, 2, BYTES, UINT64_MAX), EMBTIER_OK);
    assert_int_equal(row_cache_add_table(f.cache, 3, BYTES, 1), EMBTIER_OK);
    assert_int_equal(fixture_stats(&f).map_bytes, 25 * 4096);
    assert_false(has_map(&f, 1));
    assert_false(has_map(&f, 2));
    assert_true(has_map(&f, 3));
    insert(&f, 1, MAP_ROWS_MAX - 500, MAP_ROWS_MAX, false);
    insert(&f, 2, UINT64_MAX - 500, UINT64_MAX, false);
    insert(&f, 3, 0, 1, false);
    insert(&f, T, ROWS - 500, ROWS, false);
    fixture_validate(&f);
    for (uint64_t i = 1; i <= 500; i++) {
        expect_row(&f, 1, MAP_ROWS_MAX - i, 0);
        expect_row(&f, 2, UINT64_MAX - i, 0);
        expect_row(&f, T, ROWS - i, 0);
    }
    expect_row(&f, 3, 0, 0);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_more_slabs_of_maps_than_a_quarter_are_refused(void **state)
{
    struct tier_spec spec = { .name = "test", .kind = TIER_KIND_DRAM };
    struct row_cache *cache = NULL;
    struct arena *arena;
    struct row_cache_opts opts = { .arenas = &arena,
                                   .arena_count = 1,
                                   .arena_slab_count = { 7 },
                                   .map_slabs = 2,
                                   .hash = fixture_hash,
                                   .evict = fixture_evict_all };
    struct err_msg msg;

    (void)state;
    assert_int_equal(arena_new(&spec, 8 * ARENA_SLAB_BYTES, &arena, NULL), EMBTIER_OK);
    assert_int_equal(row_cache_new(&opts, &cache, &msg), EMBTIER_INVALID);
    assert_null(cache);
    opts.arena_slab_count[0] = 8;
    assert_int_equal(row_cache_new(&opts, &cache, &msg), EMBTIER_OK);
    row_cache_free(cache);
    arena_free(arena);
}

static void test_a_purged_table_gives_its_room_back(void **state)
{
    struct row_spots spots;
    struct fixture f;
    uint64_t others;

    (void)state;
    open_cache(&f, 2, (const uint32_t[]){ 5, 3 }, NULL);
    insert(&f, OTHER, 0, 1000, false);
    /* A map of more than half of the room is refused. */
    assert_int_equal(row_cache_add_table(f.cache, 5, BYTES, MAP_ROWS_MAX * 3 / 5), EMBTIER_OK);
    assert_false(has_map(&f, 5));
    /* So long that only one more map of this length has room. */
    assert_int_equal(row_cache_add_table(f.cache, 4, BYTES, MAP_ROWS_MAX * 2 / 5), EMBTIER_OK);
    assert_int_equal(row_cache_add_table(f.cache, 1, BYTES, MAP_ROWS_MAX * 2 / 5), EMBTIER_OK);
    assert_true(has_map(&f, 4));
    assert_true(has_map(&f, 1));
    others = fixture_stats(&f).map_bytes / 2 + 24 * 4096 / 2; /* both are equally long */
    spots = spots_of(&f, 1);
    for (uint32_t round = 0; round < 5; round++) {
        insert(&f, T, 0, 1000, true);
        insert(&f, 1, 1000, 7000, round % 2);
        assert_true(fixture_pin(&f, 1, 6500));
        purge(&f, 1, 100);
        fixture_validate(&f);
        assert_int_equal(fixture_stats(&f).map_bytes, others);
        assert_int_equal(count_cached(&f, 0, 1000), 1000);
        assert_int_equal(row_cache_add_table(f.cache, 1, BYTES, MAP_ROWS_MAX * 2 / 5), EMBTIER_OK);
        assert_ptr_equal(spots_of(&f, 1).spots, spots.spots);
        for (uint64_t id = 1000; id < 7000; id++) {
            const struct row_spot none = { 0 };
            uint64_t row[WORDS];

            assert_memory_equal(&spots.spots[id], &none, sizeof(none));
            assert_false(fixture_get(&f, 1, id, row, BYTES));
        }
        for (uint64_t id = 0; id < 1000; id++)
            expect_row(&f, T, id, 0);
        fixture_validate(&f);
    }
    /* The table's number may then go to a table without a map. */
    purge(&f, 1, 100);
    assert_int_equal(row_cache_add_table(f.cache, 1, BYTES, 0), EMBTIER_OK);
    assert_false(has_map(&f, 1));
    insert(&f, 1, 0, 10, false);
    expect_row(&f, 1, 9, 0);
    fixture_validate(&f);
    fixture_close(&f);
}

static void expect_dirty(struct fixture *f, uint64_t id, bool dirty)
{
    assert_int_equal(spots_of(f, T).spots[id].dirty, dirty);
    assert_int_equal(fixture_stats(f).tiers[0].dirty_rows, dirty);
    fixture_validate(f);
}

static void test_each_new_value_is_written_once(void **state)
{
    struct evictions e = { 0 };
    struct row_ref ref = fixture_ref(T, 5, 0);
    struct fixture f;
    void *row;

    (void)state;
    open_cache(&f, 1, (const uint32_t[]){ 4 }, &e);
    insert(&f, T, 5, 6, false);
    expect_dirty(&f, 5, false);
    for (uint64_t value = 1; value < 10; value += 2) {
        assert_true(fixture_set(&f, T, 5, row_of(T, 5, value), BYTES));
        expect_dirty(&f, 5, true);
        assert_true(fixture_set(&f, T, 5, row_of(T, 5, value + 1), BYTES));
        expect_dirty(&f, 5, true);
        write_back_all(&f);
        assert_int_equal(e.count, value);
        assert_int_equal(e.id, 5);
        assert_memory_equal(e.row, row_of(T, 5, value + 1), BYTES);
        expect_dirty(&f, 5, false);
        write_back_all(&f);
        assert_int_equal(e.count, value);
        /* The same with row_cache_change(). */
        assert_int_equal(row_cache_change(f.cache, T, &ref, 1, &row), 0);
        expect_dirty(&f, 5, true);
        memcpy(row, row_of(T, 5, value + 100), BYTES);
        row_cache_changed(f.cache, T, &ref, 1, &row);
        write_back_all(&f);
        assert_int_equal(e.count, value + 1);
        assert_memory_equal(e.row, row_of(T, 5, value + 100), BYTES);
        expect_dirty(&f, 5, false);
    }
    /* A row that leaves takes its mark along, and comes back without it. */
    assert_true(fixture_set(&f, T, 5, row_of(T, 5, 3), BYTES));
    insert(&f, OTHER, 0, 20000, false);
    assert_int_equal(e.count, 11);
    assert_memory_equal(e.row, row_of(T, 5, 3), BYTES);
    assert_int_equal(count_cached(&f, 0, ROWS), 0);
    expect_dirty(&f, 5, false);
    insert(&f, T, 5, 6, false);
    expect_dirty(&f, 5, false);
    insert(&f, T, 6, 7, true);
    expect_dirty(&f, 6, true);
    fixture_close(&f);
}

/* Counts rows of T in the second tier. */
static uint64_t count_below(const struct fixture *f)
{
    const struct row_spots spots = spots_of(f, T);
    uint64_t below = 0;

    for (uint64_t id = 0; id < ROWS; id++)
        below += spots.spots[id].slot_and_1 > spots.slot_end;
    return below;
}

/* Brings up one row with operation @how, for each operation that moves rows up. */
static void bring_up(struct fixture *f, uint32_t how, uint64_t id, uint64_t value)
{
    struct row_ref ref = fixture_ref(T, id, 0);
    const void *found;
    void *changed;

    switch (how) {
    case 0:
        expect_row(f, T, id, value);
        break;
    case 1:
        assert_true(fixture_set(f, T, id, row_of(T, id, value), BYTES));
        break;
    case 2:
        assert_int_equal(row_cache_find(f->cache, T, &ref, 1, BYTES, &found), 0);
        assert_memory_equal(found, row_of(T, id, value), BYTES);
        row_cache_used(f->cache, T, &ref, 1, &found);
        break;
    case 3:
        assert_int_equal(row_cache_change(f->cache, T, &ref, 1, &changed), 0);
        assert_memory_equal(changed, row_of(T, id, value), BYTES);
        row_cache_changed(f->cache, T, &ref, 1, &changed);
        break;
    default:
        assert_true(fixture_pin(f, T, id));
        fixture_unpin(f, T, id);
    }
}

static void test_rows_of_the_second_tier_are_found_and_move_up(void **state)
{
    struct fixture f;

    (void)state;
    for (uint32_t how = 0; how < 5; how++) {
        uint64_t below, promotions;

        open_cache(&f, 2, (const uint32_t[]){ 4, 8 }, NULL);
        insert(&f, T, 0, 3000, how % 2);
        insert(&f, OTHER, 0, 10000, false);
        below = count_below(&f);
        assert_int_equal(below, 3000);
        fixture_validate(&f);
        promotions = fixture_stats(&f).tiers[1].promotions;
        for (uint64_t id = 0; id < 500; id++) {
            struct row_spots spots;

            bring_up(&f, how, id, 0);
            spots = spots_of(&f, T);
            assert_in_range(spots.spots[id].slot_and_1, 1, spots.slot_end);
        }
        assert_int_equal(fixture_stats(&f).tiers[1].promotions - promotions, 500);
        assert_int_equal(count_below(&f), below - 500);
        fixture_validate(&f);
        /* The rows are where the map says. */
        assert_int_equal(use_spots(&f, 0, ROWS), 500);
        for (uint64_t id = 0; id < 3000; id++)
            expect_row(&f, T, id, 0);
        fixture_validate(&f);
        fixture_close(&f);
    }
}

/* Rows 0 to 399 of T are used now and then, while many others come and go. */
static void expect_used_rows_to_stay(uint32_t tier_count, const uint32_t *slabs, bool by_spots)
{
    struct fixture f;

    open_cache(&f, tier_count, slabs, NULL);
    insert(&f, T, 0, 800, false);
    for (uint64_t id = 0; id < 40000; id += 500) {
        insert(&f, OTHER, id, id + 500, false);
        if (by_spots) {
            assert_int_equal(use_spots(&f, 0, 400), 400);
            continue;
        }
        for (uint64_t hot = 0; hot < 400; hot++)
            expect_row(&f, T, hot, 0);
    }
    assert_int_equal(count_cached(&f, 0, 400), 400);
    assert_int_equal(count_cached(&f, 400, ROWS), 0);
    /* The rows were in the first tier all the time. */
    if (tier_count > 1)
        assert_int_equal(fixture_stats(&f).tiers[1].promotions, 0);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_rows_that_get_hits_by_the_map_stay(void **state)
{
    (void)state;
    expect_used_rows_to_stay(1, (const uint32_t[]){ 4 }, false);
    expect_used_rows_to_stay(2, (const uint32_t[]){ 4, 2 }, false);
}

static void test_rows_that_are_stamped_stay(void **state)
{
    (void)state;
    expect_used_rows_to_stay(1, (const uint32_t[]){ 4 }, true);
    expect_used_rows_to_stay(2, (const uint32_t[]){ 4, 2 }, true);
}

/* Rows next in line to leave are used at the last moment, and then stay. */
static void test_a_queued_victim_that_is_stamped_stays(void **state)
{
    uint64_t cached, next = 0;
    struct fixture f;

    (void)state;
    open_cache(&f, 1, (const uint32_t[]){ 4 }, NULL);
    insert(&f, T, 0, 2000, false);
    while (fixture_stats(&f).tiers[0].evicted_clean < 2) {
        insert(&f, OTHER, next, next + 1, false);
        next++;
    }
    cached = count_cached(&f, 0, 2000);
    assert_true(cached < 2000); /* the rest of the queue probably holds such rows too */
    row_cache_used_spots(f.cache, 1000);
    assert_int_equal(use_spots(&f, 0, 2000), cached);
    for (uint64_t i = 0; i < 200; i++)
        insert(&f, OTHER, next + i, next + i + 1, false);
    assert_int_equal(count_cached(&f, 0, 2000), cached);
    fixture_close(&f);
}

/* There are slots for far more rows than the index can name, so full sets drop their oldest
 * rows. */
static void test_a_full_set_keeps_rows_that_are_stamped(void **state)
{
    const uint16_t hot = 1, cold = 2;
    const uint64_t row[2] = { 0 };
    struct row_spots spots;
    struct fixture f;

    (void)state;
    fixture_open_mapped(&f, 2, (const uint32_t[]){ 4, 8 }, 1, NULL, NULL);
    assert_int_equal(row_cache_add_table(f.cache, hot, sizeof(row), ROWS), EMBTIER_OK);
    assert_int_equal(row_cache_add_table(f.cache, cold, sizeof(row), 0), EMBTIER_OK);
    for (uint64_t id = 0; id < 400; id++)
        assert_true(fixture_insert(&f, hot, id, row, false));
    for (uint64_t id = 0; id < 400000; id++) {
        assert_true(fixture_insert(&f, cold, id, row, false));
        if (id % 4000 != 0)
            continue;
        spots = spots_of(&f, hot);
        for (uint64_t i = 0; i < 400; i++)
            spots.spots[i].stamp = spots.now;
        row_cache_used_spots(f.cache, 400);
    }
    assert_true(fixture_rows(&f) < 200000); /* this many have left */
    spots = spots_of(&f, hot);
    for (uint64_t i = 0; i < 400; i++)
        assert_int_not_equal(spots.spots[i].slot_and_1, 0);
    fixture_validate(&f);
    fixture_close(&f);
}

/* Advances the clock by @ticks: in jumps of @rows uses while at least 0x8000 ticks are left, then
 * one use at a time. */
static void advance_clock(struct fixture *f, uint32_t ticks, uint32_t rows)
{
    uint16_t last = spots_of(f, T).now;

    while (ticks > 0) {
        uint16_t now, step;

        row_cache_used_spots(f->cache, ticks >= 0x8000 ? rows : 1); /* at most 0x8000 ticks */
        now = spots_of(f, T).now;
        step = (uint16_t)(now - last);
        last = now;
        ticks -= MIN(ticks, (uint32_t)step);
    }
}

/* Fills the cache with rows used @ticks before some younger ones. The younger rows must stay,
 * though they were not used for a while. */
static void expect_old_rows_to_leave(uint16_t table, uint32_t ticks, uint32_t rows)
{
    const uint64_t young = ROWS - 500;
    struct row_spots spots;
    struct fixture f;
    uint64_t old = 0;

    open_cache(&f, 1, (const uint32_t[]){ 4 }, NULL);
    while (fixture_stats(&f).tiers[0].evicted_clean == 0) {
        insert(&f, table, old, old + 1, false);
        old++;
    }
    assert_in_range(old, 4000, young - 1);
    /* For half of these rows, the index knows an older use than the map. */
    (void)use_spots(&f, 0, old / 2);
    advance_clock(&f, ticks, rows);
    spots = spots_of(&f, T);
    for (uint64_t id = 0; id < young; id++)
        if (spots.spots[id].slot_and_1 != 0)
            assert_true((uint16_t)(spots.now - spots.spots[id].stamp) >= 0x8000);
    insert(&f, T, young, ROWS, false);
    assert_in_range((uint16_t)(spots_of(&f, T).now - spots.spots[young].stamp), 0, 1000);
    assert_int_equal(use_spots(&f, young, young + 250), 250);
    advance_clock(&f, 3000, 1);
    insert(&f, OTHER, ROWS, ROWS + 2000, false);
    assert_int_equal(count_cached(&f, young, ROWS), 500);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_old_rows_stay_old_however_far_the_clock_goes(void **state)
{
    /* Without sweeps, some of these would make old rows look as young as young ones. */
    static const uint32_t ticks[] = { 0x8000, 0x10000 - 2000, 0x10000, 0x20000 - 2000, 0x20000 };
    static const uint32_t rows[] = { 50000, UINT32_MAX };

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(ticks); i += BY_BUILD(1, 2, 2))
        for (uint32_t j = 0; j < ARRAY_LEN(rows); j++)
            for (uint16_t table = OTHER; table <= T; table++)
                expect_old_rows_to_leave(table, ticks[i], rows[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits_and_misses_are_those_of_a_table_without_a_map),
        cmocka_unit_test(test_found_and_changed_rows_are_where_the_map_says),
        cmocka_unit_test(test_uses_of_spots_are_hits),
        cmocka_unit_test(test_a_table_that_does_not_fit_works_without_a_map),
        cmocka_unit_test(test_more_slabs_of_maps_than_a_quarter_are_refused),
        cmocka_unit_test(test_a_purged_table_gives_its_room_back),
        cmocka_unit_test(test_each_new_value_is_written_once),
        cmocka_unit_test(test_rows_of_the_second_tier_are_found_and_move_up),
        cmocka_unit_test(test_rows_that_get_hits_by_the_map_stay),
        cmocka_unit_test(test_rows_that_are_stamped_stay),
        cmocka_unit_test(test_a_queued_victim_that_is_stamped_stays),
        cmocka_unit_test(test_a_full_set_keeps_rows_that_are_stamped),
        cmocka_unit_test(test_old_rows_stay_old_however_far_the_clock_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
