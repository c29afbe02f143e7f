/* SPDX-License-Identifier: Apache-2.0 */
/* test_row_cache_random.c: tests that the cache holds what was put into it, under any mix of
 * operations.
 *
 * A model knows the value that SSD has of each row, the latest value, and the number of pins. The
 * cache may forget clean rows at any time and hand over dirty ones. It may never show an old value,
 * nor lose a dirty or pinned row. In an epoch it hands over only rows that were dirty when it
 * began, as they were then. EMBTIER_TEST_SEED replays a run. */
#include "tests/forms.h"
#include "tests/seed.h"
#include "tests/unit/tiers/row_cache_fixture.h"
#include "tiers/spots/row_spot.h"

#define TABLES     4 /* per shape */
#define TABLES_END (FIXTURE_TWIN_TABLES + TABLES)
#define IDS        50000 /* most ids in a table */
#define BATCH      64
#define ROUNDS     BY_BUILD(8000, 2000, 8000)
#define ROW_MAX    60000

struct shape {
    uint16_t first_table;
    uint32_t row_lengths[TABLES_END];
    uint32_t weight_lengths[TABLES_END];
    uint32_t id_counts[TABLES_END]; /* 0: the shape does not have this table */
    uint64_t bounds[TABLES_END];    /* limits of ids; 0: none */
    uint32_t map_slabs;
};

/* There are so many of the shortest rows that they fill the index. */
static const struct shape usual = {
    .row_lengths = { 1500, 512, 130, 2 },
    .weight_lengths = { 700, 512, 64, 2 },
    .id_counts = { 6000, 6000, 6000, IDS },
};

/* Some tables have a map, one has none, and one finds no room for its map. */
static const struct shape mapped = {
    .row_lengths = { 1500, 512, 130, 2 },
    .weight_lengths = { 700, 512, 64, 2 },
    .id_counts = { 6000, 6000, 6000, IDS },
    .bounds = { 6000, 0, UINT64_C(1) << 20, IDS + 1000 },
    .map_slabs = 1,
};

/* All tables have a map. */
static const struct shape long_mapped = {
    .row_lengths = { ROW_MAX, 30000, 16000, 512 },
    .weight_lengths = { 64, 64, 64, 512 },
    .id_counts = { 150, 300, 600, 6000 },
    .bounds = { 150, 300, 600, 6000 },
    .map_slabs = 1,
};

/* A slab has so few rows that a row which must leave is often one of the same batch. */
static const struct shape long_rows = {
    .row_lengths = { ROW_MAX, 30000, 16000, 512 },
    .weight_lengths = { 64, 64, 64, 512 },
    .id_counts = { 150, 300, 600, 6000 },
};

/* Rows share their home set with a few others. Each table adds a little to the index, so that old
 * and new sets overlap and are nearly full. */
static const struct shape twins = {
    .first_table = FIXTURE_TWIN_TABLES,
    .row_lengths = { [FIXTURE_TWIN_TABLES] = 250, 100, 50, 16 },
    .weight_lengths = { [FIXTURE_TWIN_TABLES] = 250, 50, 50, 16 },
    .id_counts = { [FIXTURE_TWIN_TABLES] = IDS, 5000, 5000, 5000 },
    .bounds = { [FIXTURE_TWIN_TABLES] = IDS, 5000, 0, 5000 },
    .map_slabs = 1,
};

/* The index suits the short rows, then the long ones, then the short ones again. */
static const struct shape changing = {
    .row_lengths = { 1500, 700, 2, 4 },
    .weight_lengths = { 700, 700, 2, 4 },
    .id_counts = { 6000, 6000, IDS, IDS },
    .bounds = { 6000, 0, 0, IDS },
    .map_slabs = 1,
};

struct model_row {
    uint32_t version; /* number of the newest value, from which its bytes follow */
    uint32_t state;   /* the version of the row's state: a SET may change weights only */
    uint32_t ssd_version, ssd_state;
    uint8_t pins;
    bool dirty;
    bool due; /* dirty since before the write-back began */
    bool old; /* dirty since before the epoch began, and not handed over */
};

struct model {
    struct fixture f;
    const struct shape *shape;
    uint64_t random;
    uint32_t refuse_percent;
    uint64_t handed_over;
    bool in_epoch;
    uint32_t epochs_saved; /* saved to the end */
    uint32_t epochs_forgotten;
    uint64_t index_bytes;
    uint32_t shrunk; /* times that the index became smaller */
    struct model_row rows[TABLES_END][IDS];
    uint64_t write_back_cursor;
};

/* Returns the bytes of a value of a row. Each byte is one more than the byte before it. */
static const uint8_t *bytes_of(uint32_t table, uint64_t id, uint32_t version)
{
    static uint8_t rising[UINT8_MAX + ROW_MAX];

    if (rising[1] == 0)
        for (uint32_t i = 0; i < sizeof(rising); i++)
            rising[i] = (uint8_t)i;
    return rising + (uint8_t)(table * 7 + id * 13 + version * 31 + (id >> 8) + (version >> 8));
}

static void fill(uint8_t *row, uint32_t table, uint64_t id, uint32_t version, uint32_t from,
                 uint32_t to)
{
    memcpy(row + from, bytes_of(table, id, version) + from, to - from);
}

static void check(const uint8_t *row, uint32_t table, uint64_t id, uint32_t version, uint32_t from,
                  uint32_t to)
{
    const uint8_t *const expected = bytes_of(table, id, version);
    uint32_t at = from;

    if (from >= to || memcmp(row + from, expected + from, to - from) == 0)
        return;
    while (row[at] == expected[at])
        at++;
    fail_msg("table %u row %u is not what was put in, from byte %u on", table, (unsigned)id, at);
}

static bool take_over(void *context, uint16_t table, uint64_t hash, uint64_t id, const void *row,
                      uint32_t bytes)
{
    struct model *m = context;
    struct model_row *r = &m->rows[table][id];

    if (fixture_random(&m->random) % 100 < m->refuse_percent)
        return false;
    assert_int_equal(bytes, m->shape->row_lengths[table]);
    assert_int_equal(hash, fixture_hash(NULL, table, id));
    assert_true(r->dirty);
    assert_true(!m->in_epoch || r->old);
    r->old = false;
    check(row, table, id, r->version, 0, m->shape->weight_lengths[table]);
    check(row, table, id, r->state, m->shape->weight_lengths[table], bytes);
    r->ssd_version = r->version;
    r->ssd_state = r->state;
    r->dirty = r->due = false;
    m->handed_over++;
    return true;
}

static uint32_t draw_refs(struct model *m, uint16_t table, struct row_ref *refs)
{
    uint32_t count = 1 + (uint32_t)(fixture_random(&m->random) % BATCH);
    uint64_t spread =
        MAX(m->shape->id_counts[table] / (fixture_random(&m->random) % 3 ? 1u : 20u), 1u);

    for (uint32_t i = 0; i < count; i++)
        refs[i] = fixture_ref(table, fixture_random(&m->random) % spread, i);
    return count;
}

static void expect_may_miss(const struct model *m, uint16_t table, uint64_t id)
{
    if (m->rows[table][id].dirty || m->rows[table][id].pins)
        fail_msg("table %u row %u was lost", table, (unsigned)id);
}

/* Draws the bytes of weights alone, or of weights and state. */
static uint32_t draw_bytes(struct model *m, uint16_t table)
{
    return fixture_random(&m->random) % 2 ? m->shape->weight_lengths[table]
                                          : m->shape->row_lengths[table];
}

static void do_get(struct model *m, uint16_t table)
{
    static uint8_t rows[BATCH][ROW_MAX];
    struct row_ref refs[BATCH];
    uint32_t missed[BATCH];
    uint32_t count = draw_refs(m, table, refs);
    uint32_t bytes = draw_bytes(m, table);
    uint32_t misses =
        row_cache_get(m->f.cache, table, refs, count, rows, sizeof(rows[0]), bytes, missed);

    for (uint32_t i = 0, next = 0; i < count; i++) {
        if (next < misses && missed[next] == i) {
            expect_may_miss(m, table, refs[i].id);
            next++;
            continue;
        }
        check(rows[i], table, refs[i].id, m->rows[table][refs[i].id].version, 0,
              m->shape->weight_lengths[table]);
        check(rows[i], table, refs[i].id, m->rows[table][refs[i].id].state,
              m->shape->weight_lengths[table], bytes);
    }
}

static void do_set(struct model *m, uint16_t table)
{
    static uint8_t rows[BATCH][ROW_MAX];
    struct row_ref refs[BATCH];
    uint32_t missed[BATCH];
    uint32_t count = draw_refs(m, table, refs);
    uint32_t bytes = draw_bytes(m, table);
    uint32_t versions[BATCH];
    uint32_t misses;

    for (uint32_t i = 0; i < count; i++) {
        versions[i] = (uint32_t)fixture_random(&m->random);
        fill(rows[i], table, refs[i].id, versions[i], 0, bytes);
    }
    /* A promotion inside may hand over a row before its new value arrives. In an epoch that does
     * not happen, and there is room for old rows. */
    m->refuse_percent = m->in_epoch ? 0 : 100;
    misses = row_cache_set(m->f.cache, table, refs, count, rows, sizeof(rows[0]), bytes, missed);
    for (uint32_t i = 0, next = 0; i < count; i++) {
        struct model_row *r = &m->rows[table][refs[i].id];

        if (next < misses && missed[next] == i) {
            expect_may_miss(m, table, refs[i].id);
            next++;
            continue;
        }
        r->version = versions[i];
        if (bytes == m->shape->row_lengths[table])
            r->state = versions[i];
        r->dirty = true;
    }
}

/* The map and the index must agree on a row. */
static void check_spot(const struct model *m, const struct row_spots *spots, uint16_t table,
                       uint64_t id, const void *row)
{
    const struct row_spot *spot = &spots->spots[id];
    const uint32_t slot = spot->slot_and_1 - 1;

    assert_int_equal(spot->slot_and_1 != 0, row != NULL);
    if (row == NULL)
        return;
    assert_int_equal(spot->dirty != 0, m->rows[table][id].dirty);
    if (slot < spots->slot_end)
        assert_ptr_equal(row, spots->base + ((uint64_t)slot << spots->slot_shift));
}

/* Reads rows where they lie, by their places or by the map. */
static void do_find(struct model *m, uint16_t table)
{
    struct row_ref refs[BATCH];
    const void *rows[BATCH];
    struct row_spots spots = { 0 };
    uint32_t count = draw_refs(m, table, refs);
    uint32_t bytes = draw_bytes(m, table);
    uint32_t misses = row_cache_find(m->f.cache, table, refs, count, bytes, rows);
    const bool has_map = row_cache_spots(m->f.cache, table, &spots);
    const bool by_map = has_map && fixture_random(&m->random) % 2;
    uint32_t found = 0, stamped = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct model_row *r = &m->rows[table][refs[i].id];

        if (has_map)
            check_spot(m, &spots, table, refs[i].id, rows[i]);
        if (rows[i] == NULL) {
            expect_may_miss(m, table, refs[i].id);
            continue;
        }
        check(rows[i], table, refs[i].id, r->version, 0, m->shape->weight_lengths[table]);
        check(rows[i], table, refs[i].id, r->state, m->shape->weight_lengths[table], bytes);
        if (by_map && spots.spots[refs[i].id].slot_and_1 - 1 < spots.slot_end) {
            spots.spots[refs[i].id].stamp = spots.now;
            stamped++;
            continue;
        }
        rows[found] = rows[i];
        refs[found++] = refs[i];
    }
    assert_int_equal(found + stamped, count - misses);
    row_cache_used(m->f.cache, table, refs, found, rows);
    if (by_map)
        row_cache_used_spots(m->f.cache, stamped);
}

/* Changes rows where they lie. */
static void do_change(struct model *m, uint16_t table)
{
    struct row_ref refs[BATCH];
    void *rows[BATCH];
    uint32_t count = draw_refs(m, table, refs);
    uint32_t bytes = draw_bytes(m, table);
    uint32_t misses;

    if (m->in_epoch)
        m->refuse_percent = 0; /* there is room for old rows */
    misses = row_cache_change(m->f.cache, table, refs, count, rows);

    for (uint32_t i = 0; i < count; i++) {
        struct model_row *r = &m->rows[table][refs[i].id];

        if (rows[i] == NULL) {
            expect_may_miss(m, table, refs[i].id);
            misses--;
            continue;
        }
        r->version = (uint32_t)fixture_random(&m->random);
        if (bytes == m->shape->row_lengths[table])
            r->state = r->version;
        r->dirty = true;
        fill(rows[i], table, refs[i].id, r->version, 0, bytes);
    }
    assert_int_equal(misses, 0);
    row_cache_changed(m->f.cache, table, refs, count, rows);
}

/* Reads rows that miss from SSD and inserts them, as the daemon does. */
static void do_insert(struct model *m, uint16_t table)
{
    static uint8_t rows[BATCH][ROW_MAX];
    const void *row_pointers[BATCH];
    struct row_ref refs[BATCH], missing[BATCH];
    uint64_t dirty[BATCH / 64 + 1] = { 0 };
    uint32_t missed[BATCH], refused[BATCH];
    uint32_t count = draw_refs(m, table, refs);
    uint32_t misses = row_cache_get(m->f.cache, table, refs, count, rows, sizeof(rows[0]),
                                    m->shape->weight_lengths[table], missed);
    uint32_t distinct = 0, not_cached;

    for (uint32_t i = 0; i < misses; i++) {
        const struct row_ref *ref = &refs[missed[i]];
        struct model_row *r = &m->rows[table][ref->id];
        bool again = false;

        for (uint32_t j = 0; j < distinct; j++)
            again |= missing[j].id == ref->id;
        if (again)
            continue;
        expect_may_miss(m, table, ref->id);
        r->version = r->ssd_version;
        r->state = r->ssd_state;
        if (fixture_random(&m->random) % 4 == 0) { /* an update of an uncached row */
            r->version++;
            r->state = r->version;
            dirty[distinct / 64] |= UINT64_C(1) << distinct % 64;
        }
        fill(rows[distinct], table, ref->id, r->version, 0, m->shape->weight_lengths[table]);
        fill(rows[distinct], table, ref->id, r->state, m->shape->weight_lengths[table],
             m->shape->row_lengths[table]);
        r->dirty = dirty[distinct / 64] >> distinct % 64 & 1;
        row_pointers[distinct] = rows[distinct];
        missing[distinct++] = *ref;
    }
    not_cached =
        row_cache_insert(m->f.cache, table, missing, distinct, row_pointers, dirty, refused);
    for (uint32_t i = 0; i < not_cached; i++) {
        struct model_row *r = &m->rows[table][missing[refused[i]].id];

        assert_true(i == 0 || refused[i] > refused[i - 1]);
        r->dirty = false; /* the daemon would write the row itself */
        r->version = r->ssd_version;
        r->state = r->ssd_state;
    }
}

static void do_pin(struct model *m, uint16_t table, uint64_t most_pinned)
{
    struct row_ref refs[BATCH];
    uint64_t pinned[BATCH / 64 + 1];
    uint32_t count = draw_refs(m, table, refs);
    struct row_cache_stats stats = fixture_stats(&m->f);
    const uint64_t bytes = stats.pinned_bytes + (uint64_t)count * m->shape->row_lengths[table];

    /* At most half of the first tier may be pinned. */
    if (stats.pinned_rows > most_pinned || bytes > stats.tiers[0].capacity_bytes / 2)
        return;
    row_cache_pin(m->f.cache, table, refs, count, pinned);
    for (uint32_t i = 0; i < count; i++) {
        if (pinned[i / 64] >> i % 64 & 1)
            m->rows[table][refs[i].id].pins++;
        else if (m->rows[table][refs[i].id].pins < ROW_CACHE_PINS_MAX)
            expect_may_miss(m, table, refs[i].id);
    }
}

static void do_unpin(struct model *m)
{
    for (uint16_t table = 0; table < TABLES_END; table++)
        for (uint64_t id = 0; id < m->shape->id_counts[table]; id++)
            for (; m->rows[table][id].pins; m->rows[table][id].pins--)
                fixture_unpin(&m->f, table, id);
    assert_int_equal(fixture_stats(&m->f).pinned_rows, 0);
}

static void add_table(struct model *m, uint16_t table)
{
    assert_int_equal(row_cache_add_table(m->f.cache, table, m->shape->row_lengths[table],
                                         m->shape->bounds[table]),
                     EMBTIER_OK);
}

/* Inserts all rows of a table, as SSD has them. */
static void insert_all(struct model *m, uint16_t table)
{
    uint8_t row[ROW_MAX];

    for (uint64_t id = 0; id < m->shape->id_counts[table]; id++) {
        struct model_row *r = &m->rows[table][id];

        if (r->dirty || r->pins)
            continue;
        fill(row, table, id, r->ssd_version, 0, m->shape->weight_lengths[table]);
        fill(row, table, id, r->ssd_state, m->shape->weight_lengths[table],
             m->shape->row_lengths[table]);
        (void)fixture_insert(&m->f, table, id, row, false);
    }
}

static void do_purge(struct model *m, uint16_t table)
{
    while (
        !row_cache_purge_table(m->f.cache, table, 1 + (uint32_t)(fixture_random(&m->random) % 500)))
        ;
    for (uint64_t id = 0; id < m->shape->id_counts[table]; id++) {
        struct model_row *r = &m->rows[table][id];

        r->pins = 0;
        r->dirty = r->due = r->old = false;
        r->version = r->ssd_version;
        r->state = r->ssd_state;
    }
    add_table(m, table);
    m->write_back_cursor = 0;
}

static void do_write_back(struct model *m)
{
    uint64_t before = m->handed_over;
    bool start = m->write_back_cursor == 0;
    uint32_t count;
    bool done;

    for (uint16_t table = 0; start && table < TABLES_END; table++)
        for (uint64_t id = 0; id < m->shape->id_counts[table]; id++)
            m->rows[table][id].due =
                m->in_epoch ? m->rows[table][id].old : m->rows[table][id].dirty;
    count = row_cache_write_back(m->f.cache, &m->write_back_cursor, 200, &done);
    assert_int_equal(m->handed_over - before, count);
    if (!done)
        return;
    for (uint16_t table = 0; table < TABLES_END; table++)
        for (uint64_t id = 0; id < m->shape->id_counts[table]; id++)
            assert_false(m->rows[table][id].due || (m->in_epoch && m->rows[table][id].old));
    m->write_back_cursor = 0;
}

static void begin_epoch(struct model *m)
{
    for (uint16_t table = 0; table < TABLES_END; table++)
        for (uint64_t id = 0; id < m->shape->id_counts[table]; id++)
            m->rows[table][id].old = m->rows[table][id].dirty;
    row_cache_begin_epoch(m->f.cache);
    m->in_epoch = true;
    m->write_back_cursor = 0;
}

/* Ends the epoch, with or without old rows left. */
static void end_epoch(struct model *m)
{
    uint64_t left = 0, cursor = 0;

    assert_true(row_cache_end_epoch(m->f.cache));
    m->in_epoch = false;
    m->write_back_cursor = 0;
    for (uint16_t table = 0; table < TABLES_END; table++)
        for (uint64_t id = 0; id < m->shape->id_counts[table]; id++) {
            left += m->rows[table][id].old;
            m->rows[table][id].old = false;
        }
    m->epochs_saved += left == 0;
    m->epochs_forgotten += left > 0;
    if (left > 0)
        while (!row_cache_forget_epoch(m->f.cache, &cursor,
                                       1 + (uint32_t)(fixture_random(&m->random) % 500)))
            ;
}

/* The random operations of a short run may have forgotten each of its epochs. */
static void save_epoch(struct model *m)
{
    if (!m->in_epoch)
        begin_epoch(m);
    m->refuse_percent = 0;
    do
        do_write_back(m);
    while (m->write_back_cursor != 0);
    end_epoch(m);
}

static uint64_t first_seed(void)
{
    return seed_given(SEED_USUAL);
}

/* Returns how often the index became smaller. */
static uint32_t run_model(const struct shape *shape, uint64_t seed, uint32_t tier_count,
                          const uint32_t *slabs, uint32_t rounds)
{
    struct model *m = calloc(1, sizeof(*m));
    uint16_t tables = 0;
    uint32_t shrunk;

    assert_non_null(m);
    printf("seed %#llx, %u tiers\n", (unsigned long long)seed, tier_count);
    m->shape = shape;
    m->random = seed;
    fixture_open_mapped(&m->f, tier_count, slabs, shape->map_slabs, take_over, m);
    for (uint32_t round = 0; round < rounds; round++) {
        uint16_t table;
        uint32_t what = (uint32_t)(fixture_random(&m->random) % 1000);

        /* Tables come one after another, with shorter rows later, so the index grows. */
        if (tables < TABLES && round >= tables * rounds / (2 * TABLES)) {
            add_table(m, shape->first_table + tables);
            insert_all(m, shape->first_table + tables);
            tables++;
        }
        /* Each table is the busy one for a while, so slabs change hands. */
        table =
            (uint16_t)(shape->first_table +
                       (fixture_random(&m->random) % 4 ? round / 100 : fixture_random(&m->random)) %
                           tables);
        m->refuse_percent = round / 100 % 4 == 3 ? 100 : round / 100 % 4 == 2 ? 30 : 0;
        if (what < 200)
            do_get(m, table);
        else if (what < 300)
            do_find(m, table);
        else if (what < 400)
            do_set(m, table);
        else if (what < 500)
            do_change(m, table);
        else if (what < 900)
            do_insert(m, table);
        else if (what < 950)
            do_pin(m, table, 1500);
        else if (what < 970)
            do_unpin(m);
        else if (what < 990)
            do_write_back(m);
        else if (what < 998 && m->in_epoch)
            end_epoch(m);
        else if (what < 998)
            begin_epoch(m);
        else
            do_purge(m, table);
        if (m->in_epoch && round % 2 == 0)
            do_write_back(m);
        m->shrunk += fixture_stats(&m->f).index_bytes < m->index_bytes;
        m->index_bytes = fixture_stats(&m->f).index_bytes;
        if (round % 100 == 0)
            fixture_validate(&m->f);
    }
    save_epoch(m);
    fixture_validate(&m->f);
    assert_true(m->epochs_saved > 0);
    printf("  %u epochs saved, %u not, %u rows, %u handed over, %u refused, %u slab moves, "
           "%u promotions, %u KiB of index, which shrank %u times\n",
           m->epochs_saved, m->epochs_forgotten, (unsigned)fixture_rows(&m->f),
           (unsigned)m->handed_over, (unsigned)fixture_stats(&m->f).not_cached,
           (unsigned)fixture_stats(&m->f).slab_moves,
           (unsigned)fixture_stats(&m->f).tiers[tier_count - 1].promotions,
           (unsigned)(fixture_stats(&m->f).index_bytes / 1024), m->shrunk);
    fixture_close(&m->f);
    shrunk = m->shrunk;
    free(m);
    return shrunk;
}

static void test_one_tier_agrees_with_the_model(void **state)
{
    (void)state;
    (void)run_model(&usual, first_seed(), 1, (const uint32_t[]){ 6 }, ROUNDS);
}

static void test_two_tiers_agree_with_the_model(void **state)
{
    (void)state;
    (void)run_model(&usual, first_seed(), 2, (const uint32_t[]){ 5, 3 }, ROUNDS);
}

static void test_three_tiers_agree_with_the_model(void **state)
{
    (void)state;
    (void)run_model(&usual, first_seed(), 3, (const uint32_t[]){ 3, 2, 3 }, ROUNDS);
}

static void test_the_smallest_cache_agrees_with_the_model(void **state)
{
    (void)state;
    (void)run_model(&usual, first_seed(), 1, (const uint32_t[]){ 2 }, ROUNDS / 2);
    (void)run_model(&usual, first_seed(), 2, (const uint32_t[]){ 2, 1 }, ROUNDS / 2);
}

static void test_a_growing_index_agrees_with_the_model(void **state)
{
    (void)state;
    (void)run_model(&usual, first_seed(), 2, (const uint32_t[]){ 30, 4 }, ROUNDS);
}

static void test_a_shrinking_index_agrees_with_the_model(void **state)
{
    uint32_t shrunk = 0;

    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        shrunk += run_model(&changing, first_seed() + i, 1, (const uint32_t[]){ 6 }, ROUNDS);
        shrunk += run_model(&changing, first_seed() + i, 2, (const uint32_t[]){ 8, 4 }, ROUNDS);
    }
    assert_true(shrunk > 0);
}

static void test_long_rows_agree_with_the_model(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 6; i++) {
        (void)run_model(&long_rows, first_seed() + i, 2, (const uint32_t[]){ 5, 5 }, ROUNDS / 4);
        (void)run_model(&long_rows, first_seed() + i, 3, (const uint32_t[]){ 4, 3, 3 }, ROUNDS / 4);
    }
}

static void test_tables_with_maps_agree_with_the_model(void **state)
{
    (void)state;
    (void)run_model(&mapped, first_seed(), 1, (const uint32_t[]){ 6 }, ROUNDS / 2);
    (void)run_model(&mapped, first_seed() + 1, 2, (const uint32_t[]){ 5, 3 }, ROUNDS / 2);
    (void)run_model(&mapped, first_seed() + 2, 3, (const uint32_t[]){ 4, 2, 3 }, ROUNDS / 2);
    (void)run_model(&mapped, first_seed() + 3, 2, (const uint32_t[]){ 30, 4 }, ROUNDS / 2);
    (void)run_model(&long_mapped, first_seed(), 2, (const uint32_t[]){ 5, 5 }, ROUNDS / 4);
    (void)run_model(&long_mapped, first_seed() + 1, 3, (const uint32_t[]){ 4, 3, 3 }, ROUNDS / 4);
}

static void check_tables(struct model *m, uint16_t first, uint16_t end)
{
    uint8_t row[ROW_MAX];

    for (uint16_t table = first; table < end; table++)
        for (uint64_t id = 0; id < m->shape->id_counts[table]; id++) {
            const uint32_t weights = m->shape->weight_lengths[table];
            const uint32_t bytes = m->shape->row_lengths[table];

            if (fixture_get(&m->f, table, id, row, bytes)) {
                check(row, table, id, m->rows[table][id].version, 0, weights);
                check(row, table, id, m->rows[table][id].state, weights, bytes);
            } else {
                expect_may_miss(m, table, id);
            }
        }
}

/* The index of a cache full of dirty rows grows while few of them may leave. */
static void run_full_model(uint64_t seed, uint32_t tier_count, const uint32_t *slabs)
{
    struct model *m = calloc(1, sizeof(*m));
    uint64_t index_bytes = 0;
    uint32_t grown = 0;

    assert_non_null(m);
    printf("seed %#llx, %u tiers\n", (unsigned long long)seed, tier_count);
    m->shape = &twins;
    m->random = seed;
    fixture_open_mapped(&m->f, tier_count, slabs, twins.map_slabs, take_over, m);
    for (uint16_t tables = 1; tables <= TABLES; tables++) {
        add_table(m, twins.first_table + tables - 1);
        for (uint32_t round = 0; round < (tables == 1 ? ROUNDS / 4 : ROUNDS / 16); round++) {
            uint16_t table =
                (uint16_t)(twins.first_table + (tables > 1 && round % 4 == 0
                                                    ? fixture_random(&m->random) % tables
                                                    : 0));

            m->refuse_percent = tables == 1 ? 100 : 80;
            do_insert(m, table);
            do_set(m, table);
            if (round % 10 == 0)
                do_pin(m, table, 1500);
            if (round % 500 == 0)
                do_unpin(m);
            if (tables > 1 && round % 100 == 0)
                fixture_validate(&m->f);
        }
        check_tables(m, twins.first_table, twins.first_table + tables);
        fixture_validate(&m->f);
        grown += fixture_stats(&m->f).index_bytes > index_bytes;
        index_bytes = fixture_stats(&m->f).index_bytes;
        printf("  %u rows, %u handed over, %u refused, %u KiB of index\n",
               (unsigned)fixture_rows(&m->f), (unsigned)m->handed_over,
               (unsigned)fixture_stats(&m->f).not_cached, (unsigned)(index_bytes / 1024));
    }
    assert_true(grown > 1);
    fixture_close(&m->f);
    free(m);
}

static void test_a_growing_index_loses_no_rows_that_share_a_home(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 8; i++)
        run_full_model(first_seed() + i, 1, (const uint32_t[]){ 8 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_tier_agrees_with_the_model),
        cmocka_unit_test(test_two_tiers_agree_with_the_model),
        cmocka_unit_test(test_three_tiers_agree_with_the_model),
        cmocka_unit_test(test_the_smallest_cache_agrees_with_the_model),
        cmocka_unit_test(test_a_growing_index_agrees_with_the_model),
        cmocka_unit_test(test_a_shrinking_index_agrees_with_the_model),
        cmocka_unit_test(test_long_rows_agree_with_the_model),
        cmocka_unit_test(test_tables_with_maps_agree_with_the_model),
        cmocka_unit_test(test_a_growing_index_loses_no_rows_that_share_a_home),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
