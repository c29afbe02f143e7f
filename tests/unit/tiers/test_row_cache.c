/* SPDX-License-Identifier: Apache-2.0 */
/* test_row_cache.c: tests the promises of the row cache's header one at a time. */
#include "tests/forms.h"
#include "tests/unit/tiers/row_cache_fixture.h"

#define T                7 /* a table number */
#define LENGTH_MAX_WORDS (102400 / 8 + 1)

/* Calls of evict(). */
struct evictions {
    uint64_t count, last_id;
    bool refuse;
};

static bool count_eviction(void *context, uint16_t table, uint64_t hash, uint64_t id,
                           const void *row, uint32_t bytes)
{
    struct evictions *e = context;

    (void)table, (void)hash, (void)row, (void)bytes;
    if (e->refuse)
        return false;
    e->count++;
    e->last_id = id;
    return true;
}

static void add_table(struct fixture *f, uint16_t table, uint32_t bytes)
{
    assert_int_equal(row_cache_add_table(f->cache, table, bytes, 0), EMBTIER_OK);
}

/* Every 8 bytes of a row name its table and id. */
static const uint64_t *pattern(uint16_t table, uint64_t id, uint32_t bytes)
{
    static uint64_t row[LENGTH_MAX_WORDS];

    for (uint32_t i = 0; i < bytes / 8 + 1; i++)
        row[i] = UINT64_C(0xeb7e000000000000) | (uint64_t)table << 32 | id;
    return row;
}

static uint64_t insert_many(struct fixture *f, uint16_t table, uint64_t from, uint64_t to,
                            uint32_t bytes, bool dirty)
{
    uint64_t inserted = 0;

    for (uint64_t id = from; id < to; id++)
        inserted += fixture_insert(f, table, id, pattern(table, id, bytes), dirty);
    return inserted;
}

static uint64_t count_found(struct fixture *f, uint16_t table, uint64_t from, uint64_t to,
                            uint32_t bytes)
{
    static uint64_t row[LENGTH_MAX_WORDS];
    uint64_t found = 0;

    for (uint64_t id = from; id < to; id++) {
        if (!fixture_get(f, table, id, row, bytes))
            continue;
        assert_memory_equal(row, pattern(table, id, bytes), bytes);
        found++;
    }
    return found;
}

static void test_hits_after_insert_and_misses_before(void **state)
{
    struct row_ref refs[100];
    const void *rows[100];
    uint64_t values[100], got[100] = { 0 };
    uint32_t missed[100];
    struct fixture f;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ 4 }, NULL, NULL);
    add_table(&f, T, 8);
    for (uint32_t i = 0; i < 100; i++) {
        values[i] = i * 3;
        rows[i] = &values[i];
        refs[i] = fixture_ref(T, i, 99 - i);
    }
    assert_int_equal(row_cache_get(f.cache, T, refs, 100, got, 8, 8, missed), 100);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(missed[i], i);
    assert_int_equal(row_cache_insert(f.cache, T, refs, 50, rows, NULL, missed), 0);
    assert_int_equal(row_cache_get(f.cache, T, refs, 100, got, 8, 8, missed), 50);
    assert_int_equal(missed[0], 50);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(got[99 - i], i * 3);
    assert_int_equal(fixture_stats(&f).misses, 150);
    assert_int_equal(fixture_stats(&f).tiers[0].hits, 50);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_insert_leaves_a_cached_row_as_it_is(void **state)
{
    uint64_t old = 1, newer = 2, got;
    struct fixture f;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ 2 }, NULL, NULL);
    add_table(&f, T, 8);
    assert_true(fixture_insert(&f, T, 5, &old, false));
    assert_true(fixture_set(&f, T, 5, &newer, 8));
    assert_true(fixture_insert(&f, T, 5, &old, false));
    assert_true(fixture_get(&f, T, 5, &got, 8));
    assert_int_equal(got, newer);
    assert_int_equal(fixture_rows(&f), 1);
    fixture_close(&f);
}

static void test_get_and_set_touch_no_more_than_they_were_asked_for(void **state)
{
    const uint32_t row[4] = { 1, 2, 3, 4 }, other[4] = { 5, 6, 7, 8 };
    uint32_t got[4] = { 0 };
    struct fixture f;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ 2 }, NULL, NULL);
    add_table(&f, T, sizeof(row));
    assert_true(fixture_insert(&f, T, 5, row, false));
    assert_true(fixture_get(&f, T, 5, got, 12));
    assert_memory_equal(got, ((const uint32_t[]){ 1, 2, 3, 0 }), sizeof(got));
    assert_true(fixture_set(&f, T, 5, other, 4));
    assert_true(fixture_get(&f, T, 5, got, 16));
    assert_memory_equal(got, ((const uint32_t[]){ 5, 2, 3, 4 }), sizeof(got));
    assert_true(fixture_set(&f, T, 5, other, 16));
    assert_true(fixture_get(&f, T, 5, got, 16));
    assert_memory_equal(got, other, sizeof(got));
    fixture_close(&f);
}

static void test_set_keeps_the_state_and_the_last_of_an_id_wins(void **state)
{
    uint32_t row[4] = { 1, 2, 3, 4 }, weights[3][2] = { { 10, 20 }, { 11, 21 }, { 12, 22 } };
    struct row_ref refs[3];
    struct evictions e = { 0 };
    uint32_t missed[3];
    uint64_t cursor = 0;
    struct fixture f;
    bool done;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ 2 }, count_eviction, &e);
    add_table(&f, T, sizeof(row));
    assert_true(fixture_insert(&f, T, 5, row, false));
    for (uint32_t i = 0; i < 3; i++)
        refs[i] = fixture_ref(T, 5, i);
    assert_int_equal(row_cache_set(f.cache, T, refs, 3, weights, 8, 8, missed), 0);
    assert_true(fixture_get(&f, T, 5, row, sizeof(row)));
    assert_memory_equal(row, ((const uint32_t[]){ 12, 22, 3, 4 }), sizeof(row));
    assert_int_equal(fixture_stats(&f).tiers[0].dirty_rows, 1);
    assert_int_equal(row_cache_write_back(f.cache, &cursor, 10, &done), 1);
    assert_true(done);
    assert_int_equal(e.count, 1);
    assert_int_equal(fixture_stats(&f).tiers[0].dirty_rows, 0);
    fixture_close(&f);
}

/* Counts the table's rows whose pattern starts at a multiple of 64 bytes of the arena. */
static uint64_t rows_lying_in(const struct arena *arena, uint16_t table, uint32_t bytes)
{
    const uint8_t *base = arena_base(arena);
    uint64_t rows = 0;

    for (uint64_t at = 0; at + bytes <= arena_bytes(arena); at += 64) {
        uint64_t word;

        memcpy(&word, base + at, 8);
        if (word >> 32 != (UINT64_C(0xeb7e000000000000) | (uint64_t)table << 32) >> 32)
            continue;
        rows += !memcmp(base + at, pattern(table, word & UINT32_MAX, bytes), bytes);
    }
    return rows;
}

static void test_rows_beyond_dram_lie_in_the_file_tier_and_only_there(void **state)
{
    const enum tier_kind kinds[] = { TIER_KIND_DRAM, TIER_KIND_FILE };
    struct row_cache_stats stats;
    uint64_t evicted;
    struct fixture f;

    (void)state;
    fixture_open_kinds(&f, 2, (const uint32_t[]){ 2, 3 }, kinds, NULL, NULL);
    add_table(&f, T, 512);
    assert_int_equal(insert_many(&f, T, 0, 8000, 512, false), 8000);
    stats = fixture_stats(&f);
    evicted = stats.tiers[0].evicted_clean + stats.tiers[1].evicted_clean;
    assert_int_equal(stats.tiers[0].rows + stats.tiers[1].rows, 8000 - evicted);
    assert_int_equal(stats.tiers[1].used_bytes, stats.tiers[1].rows * 512);
    assert_true(stats.tiers[0].rows > 4000);
    assert_true(stats.tiers[1].rows > 3800);
    /* Slots keep the bytes of rows that left, so there may be a few more patterns than rows. */
    assert_in_range(rows_lying_in(f.arenas[1], T, 512), stats.tiers[1].rows,
                    stats.tiers[1].rows + stats.tiers[1].evicted_clean);
    assert_int_equal(count_found(&f, T, 0, 8000, 512), 8000 - evicted);
    assert_true(fixture_stats(&f).tiers[1].promotions > 3000);
    assert_int_equal(fixture_stats(&f).tiers[0].rows + fixture_stats(&f).tiers[1].rows,
                     8000 - evicted);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_eviction_writes_only_dirty_rows_and_those_once(void **state)
{
    struct evictions e = { 0 };
    struct row_cache_stats stats;
    struct fixture f;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ 2 }, count_eviction, &e);
    add_table(&f, T, 512);
    assert_int_equal(insert_many(&f, T, 0, 20000, 512, false), 20000);
    assert_int_equal(e.count, 0);
    assert_true(fixture_stats(&f).tiers[0].evicted_clean >= 20000 - 4064);
    assert_int_equal(insert_many(&f, T, 20000, 23000, 512, true), 3000);
    assert_int_equal(insert_many(&f, T, 30000, 60000, 512, false), 30000);
    stats = fixture_stats(&f);
    assert_int_equal(stats.tiers[0].dirty_rows, 0);
    assert_int_equal(stats.tiers[0].evicted_dirty, 3000);
    assert_int_equal(e.count, 3000);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_a_refused_eviction_keeps_the_row_and_sends_another(void **state)
{
    struct evictions e = { .refuse = true };
    uint64_t dirty, cached;
    struct fixture f;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ 2 }, count_eviction, &e);
    add_table(&f, T, 512);
    assert_int_equal(insert_many(&f, T, 0, 1000, 512, true), 1000);
    assert_int_equal(insert_many(&f, T, 10000, 30000, 512, false), 20000);
    assert_int_equal(count_found(&f, T, 0, 1000, 512), 1000);
    /* In the end all rows are dirty, so there is no room for more. */
    dirty = 1000 + insert_many(&f, T, 50000, 60000, 512, true);
    assert_true(dirty < 5000);
    cached = fixture_rows(&f);
    assert_int_equal(fixture_stats(&f).tiers[0].dirty_rows, dirty);
    assert_true(cached == dirty || fixture_stats(&f).not_cached > 0);
    assert_true(fixture_stats(&f).not_cached > 5000);
    assert_int_equal(count_found(&f, T, 0, 1000, 512), 1000);
    e.refuse = false;
    assert_int_equal(insert_many(&f, T, 80000, 90000, 512, false), 10000);
    assert_true(e.count > 1000);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_pinned_rows_survive_ten_times_the_cache(void **state)
{
    struct fixture f;

    (void)state;
    fixture_open(&f, 2, (const uint32_t[]){ 2, 1 }, NULL, NULL);
    add_table(&f, T, 512);
    assert_int_equal(insert_many(&f, T, 0, 1500, 512, false), 1500);
    for (uint64_t id = 0; id < 1000; id++) {
        assert_true(fixture_pin(&f, T, id));
        assert_true(fixture_pin(&f, T, id));
        fixture_unpin(&f, T, id);
    }
    assert_int_equal(fixture_stats(&f).pinned_rows, 1000);
    assert_int_equal(row_cache_pinned_rows(f.cache, T), 1000);
    assert_int_equal(insert_many(&f, T, 10000, 90000, 512, true), 80000);
    fixture_validate(&f);
    assert_int_equal(count_found(&f, T, 0, 1000, 512), 1000);
    assert_int_equal(count_found(&f, T, 1000, 1500, 512), 0);
    for (uint64_t id = 0; id < 1000; id++)
        fixture_unpin(&f, T, id);
    assert_int_equal(fixture_stats(&f).pinned_rows, 0);
    assert_int_equal(row_cache_pinned_rows(f.cache, T), 0);
    insert_many(&f, T, 100000, 180000, 512, false);
    assert_int_equal(count_found(&f, T, 0, 1000, 512), 0);
    fixture_close(&f);
}

static void test_pins_stop_at_their_most(void **state)
{
    uint64_t row = 0;
    struct fixture f;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ 2 }, NULL, NULL);
    add_table(&f, T, 8);
    assert_false(fixture_pin(&f, T, 1));
    assert_true(fixture_insert(&f, T, 1, &row, false));
    for (uint32_t i = 0; i < ROW_CACHE_PINS_MAX; i++)
        assert_true(fixture_pin(&f, T, 1));
    assert_false(fixture_pin(&f, T, 1));
    for (uint32_t i = 0; i < ROW_CACHE_PINS_MAX; i++)
        fixture_unpin(&f, T, 1);
    assert_int_equal(fixture_stats(&f).pinned_rows, 0);
    fixture_unpin(&f, T, 1);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_slabs_move_to_the_class_that_needs_them(void **state)
{
    uint64_t long_rows, found;
    struct fixture f;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ 12 }, NULL, NULL);
    add_table(&f, 1, 1024);
    add_table(&f, 2, 128);
    insert_many(&f, 1, 0, 20000, 1024, false);
    long_rows = fixture_rows(&f);
    /* Uses rows of 128 bytes again and again, far more than fit in a slab. */
    for (uint32_t round = 0; round < 12; round++)
        for (uint64_t id = 0; id < 60000; id++)
            if (!count_found(&f, 2, id, id + 1, 128))
                insert_many(&f, 2, id, id + 1, 128, false);
    found = count_found(&f, 2, 0, 60000, 128);
    printf("%u long rows before; %u slab moves, %u of 60,000 short rows after\n",
           (unsigned)long_rows, (unsigned)fixture_stats(&f).slab_moves, (unsigned)found);
    assert_true(fixture_stats(&f).slab_moves >= 3);
    assert_true(found > 58000);
    fixture_validate(&f);
    /* Then the other way round. */
    for (uint32_t round = 0; round < 12; round++)
        for (uint64_t id = 0; id < 9000; id++)
            if (!count_found(&f, 1, id, id + 1, 1024))
                insert_many(&f, 1, id, id + 1, 1024, false);
    assert_true(count_found(&f, 1, 0, 9000, 1024) > 7000);
    fixture_validate(&f);
    fixture_close(&f);
}

static double metadata_per_row(const struct fixture *f)
{
    return (double)fixture_stats(f).index_bytes / (double)fixture_rows(f) + 4;
}

static void test_metadata_is_at_most_32_bytes_per_row(void **state)
{
    struct fixture f;

    (void)state;
    fixture_open(&f, 2, (const uint32_t[]){ 20, 20 }, NULL, NULL);
    add_table(&f, T, 128);
    insert_many(&f, T, 0, 1000000, 128, false);
    printf("%u rows, %.1f bytes of metadata per row\n", (unsigned)fixture_rows(&f),
           metadata_per_row(&f));
    assert_true(metadata_per_row(&f) <= 32);
    /* Nearly every slot has a row. */
    assert_true(fixture_rows(&f) * 132 + fixture_stats(&f).index_bytes >
                40 * ARENA_SLAB_BYTES * 95 / 100);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_rows_stay_findable_while_the_index_grows(void **state)
{
    struct evictions e = { .refuse = true }; /* dirty rows stay, whichever set is full */
    uint64_t before, inserted = 0;
    struct fixture f;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ 64 }, count_eviction, &e);
    add_table(&f, 1, 2000);
    inserted = insert_many(&f, 1, 0, 30000, 2000, true);
    assert_int_equal(inserted, 30000);
    assert_int_equal(count_found(&f, 1, 0, 30000, 2000), 30000);
    before = fixture_stats(&f).index_bytes;
    add_table(&f, 2, 40);
    inserted = 0;
    for (uint32_t i = 0; i < 9000; i++) {
        const uint32_t id = i % 3000 * 10;

        assert_int_equal(count_found(&f, 1, id, id + 10, 2000), 10);
        inserted += fixture_insert(&f, 2, i, pattern(2, i, 40), true);
        if (i % 100 == 0)
            fixture_validate(&f);
    }
    assert_true(fixture_stats(&f).index_bytes > before);
    assert_int_equal(count_found(&f, 1, 0, 30000, 2000), 30000);
    assert_true(inserted > 8900);
    assert_int_equal(count_found(&f, 2, 0, 9000, 40), inserted);
    /* Adds so many short rows that they need a larger index. */
    e.refuse = false;
    before = fixture_stats(&f).index_bytes;
    insert_many(&f, 2, 10000, 1000000, 40, false);
    insert_many(&f, 2, 10000, 1000000, 40, false);
    assert_true(fixture_stats(&f).index_bytes > before);
    fixture_validate(&f);
    fixture_close(&f);
}

/* A table of short rows takes only as much of the index as it has rows. */
static void test_a_table_without_rows_costs_no_index(void **state)
{
    struct fixture f;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ 64 }, NULL, NULL);
    add_table(&f, 1, 4);
    insert_many(&f, 1, 0, 1000, 4, false);
    add_table(&f, T, 256);
    insert_many(&f, T, 0, 1000000, 256, false);
    printf("%u rows, %.1f bytes of metadata per row\n", (unsigned)fixture_rows(&f),
           metadata_per_row(&f));
    assert_true(metadata_per_row(&f) <= 32);
    assert_true(fixture_rows(&f) * 260 + fixture_stats(&f).index_bytes >
                64 * ARENA_SLAB_BYTES * 95 / 100);
    fixture_validate(&f);
    fixture_close(&f);
}

/* Each takes a third of a second. With half of them, metadata takes more than it may. */
#define SHRINKING_SLABS 30

static void test_the_index_shrinks_when_longer_rows_come(void **state)
{
    const uint64_t cache_bytes = SHRINKING_SLABS * ARENA_SLAB_BYTES;
    const uint64_t rows = SHRINKING_SLABS * 100000;
    struct fixture f;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ SHRINKING_SLABS }, NULL, NULL);
    add_table(&f, 1, 4);
    add_table(&f, T, 256);
    for (uint32_t round = BY_BUILD(0, 1, 1); round < 2; round++) { /* clean rows, then dirty ones */
        insert_many(&f, 1, 0, rows, 4, round > 0);
        /* About half of the tier: 25 bytes per row plus 20 for its slot. */
        assert_true(fixture_stats(&f).index_bytes > cache_bytes * 45 / 100);
        fixture_validate(&f);
        for (uint64_t id = 0; id < rows / 6; id += rows / 60) {
            insert_many(&f, T, id, id + rows / 60, 256, round > 0);
            fixture_validate(&f);
        }
        printf("%u rows, %.1f bytes of metadata per row\n", (unsigned)fixture_rows(&f),
               metadata_per_row(&f));
        assert_true(metadata_per_row(&f) <= 32);
        assert_true(fixture_rows(&f) * 260 + fixture_stats(&f).index_bytes >
                    cache_bytes * 95 / 100);
        /* The newest rows are there, except for a few that full sets lost. */
        assert_true(count_found(&f, T, rows / 60 * 7, rows / 60 * 10, 256) > rows / 60 * 299 / 100);
    }
    fixture_close(&f);
}

static void test_the_oldest_row_is_known_after_stamps_wrapped(void **state)
{
    struct fixture f;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ 2 }, NULL, NULL);
    add_table(&f, T, 1024);
    /* First old rows, then the same few hot rows for more than 65,536 ticks. */
    insert_many(&f, T, 0, 2000, 1024, false);
    for (uint32_t i = 0; i < 100000; i++)
        count_found(&f, T, i % 50 * 10, i % 50 * 10 + 10, 1024);
    insert_many(&f, T, 5000, 6000, 1024, false);
    assert_int_equal(count_found(&f, T, 0, 500, 1024), 500);
    assert_true(count_found(&f, T, 5000, 6000, 1024) > 990);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_purge_forgets_a_table_and_only_that(void **state)
{
    uint64_t steps = 1;
    struct fixture f;

    (void)state;
    fixture_open(&f, 2, (const uint32_t[]){ 4, 2 }, NULL, NULL);
    add_table(&f, 1, 512);
    add_table(&f, 2, 600);
    assert_int_equal(row_cache_add_table(f.cache, 2, 600, 0), EMBTIER_EXISTS);
    insert_many(&f, 1, 0, 3000, 512, true);
    insert_many(&f, 2, 0, 3000, 600, true);
    assert_true(fixture_pin(&f, 1, 7));
    while (!row_cache_purge_table(f.cache, 1, 10))
        steps++;
    assert_true(steps > 10);
    fixture_validate(&f);
    assert_int_equal(fixture_stats(&f).pinned_rows, 0);
    assert_int_equal(fixture_rows(&f), 3000);
    add_table(&f, 1, 256);
    assert_int_equal(count_found(&f, 1, 0, 3000, 256), 0);
    assert_int_equal(count_found(&f, 2, 0, 3000, 600), 3000);
    fixture_close(&f);
}

struct taker {
    bool taken[3000];
    uint32_t count;
    uint32_t dirty;
    uint32_t asked;
};

static bool take(void *context, const struct row_ref *ref, const void *row, bool dirty)
{
    struct taker *const taker = context;
    struct row_ref wanted = fixture_ref(1, ref->id, 0);

    assert_int_equal(ref->hash, wanted.hash);
    assert_true(ref->id < ARRAY_LEN(taker->taken) && !taker->taken[ref->id]);
    assert_non_null(row);
    if (++taker->asked % 7 == 0)
        return false;
    taker->taken[ref->id] = true;
    taker->count++;
    taker->dirty += dirty;
    return true;
}

/* Rows of both tiers, dirty and clean ones, go to another home while the index grows. */
static void test_a_table_is_given_away_row_by_row_and_only_that(void **state)
{
    struct taker taker = { 0 };
    struct row_giving giving = {
        .most_rows = 13, .most_steps = 50, .take = take, .context = &taker
    };
    struct fixture f;
    uint64_t calls = 0;

    (void)state;
    fixture_open(&f, 2, (const uint32_t[]){ 4, 2 }, NULL, NULL);
    add_table(&f, 1, 512);
    add_table(&f, 2, 600);
    insert_many(&f, 1, 0, 1500, 512, true);
    insert_many(&f, 1, 1500, 3000, 512, false);
    insert_many(&f, 2, 0, 2000, 600, true);
    assert_int_equal(row_cache_table_rows(f.cache, 1), 3000);
    for (; row_cache_table_rows(f.cache, 1) > 0; calls++) {
        assert_true(calls < 100000);
        assert_true(row_cache_give(f.cache, 1, &giving) <= giving.most_rows);
        assert_int_equal(row_cache_table_rows(f.cache, 1), 3000 - taker.count);
        if (calls < 500)
            insert_many(&f, 2, 2000 + calls * 2, 2002 + calls * 2, 600, false);
    }
    fixture_validate(&f);
    assert_int_equal(taker.count, 3000);
    assert_int_equal(taker.dirty, 1500);
    assert_int_equal(fixture_stats(&f).pinned_rows, 0);
    assert_int_equal(count_found(&f, 1, 0, 3000, 512), 0);
    assert_int_equal(count_found(&f, 2, 0, 3000, 600), 3000);
    assert_true(row_cache_purge_table(f.cache, 1, 1));
    fixture_close(&f);
}

static void test_a_slab_does_not_go_to_a_table_that_was_purged(void **state)
{
    struct fixture f;

    (void)state;
    fixture_open(&f, 1, (const uint32_t[]){ 3 }, NULL, NULL);
    add_table(&f, 1, 512);
    add_table(&f, 2, 64);
    insert_many(&f, 1, 0, 20000, 512, false);
    assert_true(fixture_rows(&f) > 8000);
    /* The row lies in a long slot, and a slab begins to drain for rows of its length. */
    assert_int_equal(insert_many(&f, 2, 0, 1, 64, false), 1);
    (void)count_found(&f, 1, 0, 1, 512);
    while (!row_cache_purge_table(f.cache, 2, 100))
        ;
    insert_many(&f, 1, 0, 40000, 512, false);
    assert_true(fixture_rows(&f) > 8000);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_rows_of_2_bytes_and_of_100_kib_live_side_by_side(void **state)
{
    struct fixture f;

    (void)state;
    fixture_open(&f, 2, (const uint32_t[]){ 4, 4 }, NULL, NULL);
    add_table(&f, 1, 2);
    add_table(&f, 2, 102400);
    assert_int_equal(row_cache_add_table(f.cache, 3, 102401, 0), EMBTIER_INVALID);
    assert_int_equal(row_cache_add_table(f.cache, 3, 0, 0), EMBTIER_INVALID);
    assert_int_equal(insert_many(&f, 2, 0, 60, 102400, true), 60);
    assert_int_equal(insert_many(&f, 1, 0, 5000, 2, true), 5000);
    assert_int_equal(count_found(&f, 2, 0, 60, 102400), 60);
    assert_int_equal(count_found(&f, 1, 0, 5000, 2), 5000);
    assert_int_equal(count_found(&f, 2, 0, 60, 102400), 60);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_write_back_hands_over_each_dirty_row_once(void **state)
{
    struct evictions e = { 0 };
    uint64_t cursor = 0, handed_over = 0;
    struct fixture f;
    bool done = false;

    (void)state;
    fixture_open(&f, 2, (const uint32_t[]){ 2, 2 }, count_eviction, &e);
    add_table(&f, T, 512);
    insert_many(&f, T, 0, 6000, 512, true);
    while (!done) {
        uint32_t count = row_cache_write_back(f.cache, &cursor, 100, &done);

        assert_true(count <= 100);
        handed_over += count;
        e.refuse = !e.refuse && count == 100;
        if (e.refuse) {
            assert_int_equal(row_cache_write_back(f.cache, &cursor, 100, &done), 0);
            e.refuse = false;
        }
    }
    assert_int_equal(e.count, 6000);
    assert_true(handed_over <= 6000);
    assert_int_equal(fixture_stats(&f).tiers[0].dirty_rows, 0);
    assert_int_equal(fixture_stats(&f).tiers[1].dirty_rows, 0);
    fixture_validate(&f);
    fixture_close(&f);
}

static void test_a_cache_that_cannot_be_is_refused(void **state)
{
    struct tier_spec spec = { .name = "test", .kind = TIER_KIND_DRAM };
    struct row_cache *cache = NULL;
    struct arena *arena;
    struct row_cache_opts opts = { .arenas = &arena,
                                   .arena_count = 1,
                                   .arena_slab_count = { 2 },
                                   .hash = fixture_hash,
                                   .evict = fixture_evict_all };
    struct err_msg msg;

    (void)state;
    assert_int_equal(arena_new(&spec, 4 * MIB, &arena, NULL), EMBTIER_OK);
    opts.arena_first_slab[0] = 1;
    assert_int_equal(row_cache_new(&opts, &cache, &msg), EMBTIER_INVALID);
    opts.arena_first_slab[0] = 0;
    opts.arena_slab_count[0] = 1;
    assert_int_equal(row_cache_new(&opts, &cache, &msg), EMBTIER_INVALID);
    opts.arena_slab_count[0] = 2;
    opts.hash = NULL;
    assert_int_equal(row_cache_new(&opts, &cache, &msg), EMBTIER_INVALID);
    assert_null(cache);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits_after_insert_and_misses_before),
        cmocka_unit_test(test_insert_leaves_a_cached_row_as_it_is),
        cmocka_unit_test(test_get_and_set_touch_no_more_than_they_were_asked_for),
        cmocka_unit_test(test_set_keeps_the_state_and_the_last_of_an_id_wins),
        cmocka_unit_test(test_rows_beyond_dram_lie_in_the_file_tier_and_only_there),
        cmocka_unit_test(test_eviction_writes_only_dirty_rows_and_those_once),
        cmocka_unit_test(test_a_refused_eviction_keeps_the_row_and_sends_another),
        cmocka_unit_test(test_pinned_rows_survive_ten_times_the_cache),
        cmocka_unit_test(test_pins_stop_at_their_most),
        cmocka_unit_test(test_slabs_move_to_the_class_that_needs_them),
        cmocka_unit_test(test_metadata_is_at_most_32_bytes_per_row),
        cmocka_unit_test(test_rows_stay_findable_while_the_index_grows),
        cmocka_unit_test(test_a_table_without_rows_costs_no_index),
        cmocka_unit_test(test_the_index_shrinks_when_longer_rows_come),
        cmocka_unit_test(test_the_oldest_row_is_known_after_stamps_wrapped),
        cmocka_unit_test(test_purge_forgets_a_table_and_only_that),
        cmocka_unit_test(test_a_table_is_given_away_row_by_row_and_only_that),
        cmocka_unit_test(test_a_slab_does_not_go_to_a_table_that_was_purged),
        cmocka_unit_test(test_rows_of_2_bytes_and_of_100_kib_live_side_by_side),
        cmocka_unit_test(test_write_back_hands_over_each_dirty_row_once),
        cmocka_unit_test(test_a_cache_that_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
