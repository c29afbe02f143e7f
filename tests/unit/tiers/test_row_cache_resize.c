/* SPDX-License-Identifier: Apache-2.0 */
/* test_row_cache_resize.c: do tiers grow and shrink while rows come, change and go, without losing
 * one, and never below the pinned rows? The memory of slabs that have left is given back, so a row
 * that still lay there would be zeros. EMBTIER_TEST_SEED=N repeats the random test. */
#include "tests/unit/tiers/row_cache_fixture.h"

#include <time.h>

#define TABLES     4
#define IDS        6000
#define TIERS      2
#define ROOM_SLABS 24
#define IDLE_MAX   300 /* steps without any work: the slabs do not leave */
/* A step moves so many rows. */
#define STEP_ROWS 200

static const uint32_t lengths[TABLES] = { 64, 200, 2000, 40000 };

/* The version that each row is to have, and the one that was written. */
struct model {
    struct fixture f;
    uint32_t versions[TABLES][IDS]; /* 0: the first value, which nobody has to write */
    uint32_t written[TABLES][IDS];
    uint8_t pins[TABLES][IDS];
    uint32_t slabs[TIERS];
    uint64_t refuse_below; /* of 100 calls of evict() */
    uint64_t random;
    uint64_t evicted;
    uint32_t map_slabs;
};

static void fill(uint8_t *row, uint16_t table, uint64_t id, uint32_t version)
{
    uint32_t words[3] = { table, (uint32_t)id, version };

    for (uint32_t i = 0; i < lengths[table]; i += 4)
        memcpy(row + i, &words[i / 4 % 3], MIN(4u, lengths[table] - i));
}

static uint32_t version_of(const uint8_t *row)
{
    uint32_t version;

    memcpy(&version, row + 8, sizeof(version));
    return version;
}

static void assert_row(const uint8_t *row, uint16_t table, uint64_t id, uint32_t version)
{
    static uint8_t wanted[40000];

    fill(wanted, table, id, version);
    if (memcmp(row, wanted, lengths[table]) != 0)
        fail_msg("row %u of table %u is not its version %u", (uint32_t)id, table, version);
}

static bool take(void *context, uint16_t table, uint64_t hash, uint64_t id, const void *row,
                 uint32_t bytes)
{
    struct model *const m = context;

    (void)hash;
    assert_int_equal(bytes, lengths[table]);
    if (fixture_random(&m->random) % 100 < m->refuse_below)
        return false;
    m->written[table][id] = version_of(row);
    assert_row(row, table, id, m->written[table][id]);
    m->evicted++;
    return true;
}

static void fill_slabs(struct model *m, uint32_t tier, uint64_t first, uint64_t end)
{
    struct err_msg msg = { "" };

    if (end > first && arena_fill(m->f.arenas[tier], first, end - first, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
}

static void open_model(struct model *m, const uint32_t slabs[TIERS], uint32_t map_slabs)
{
    struct row_cache_opts opts = { .arenas = m->f.arenas,
                                   .arena_count = TIERS,
                                   .map_slabs = map_slabs,
                                   .hash = fixture_hash,
                                   .evict = take,
                                   .context = m };
    struct err_msg msg = { "" };

    memset(m, 0, sizeof(*m));
    m->f.tier_count = TIERS;
    m->map_slabs = map_slabs;
    m->random = 1;
    for (uint32_t t = 0; t < TIERS; t++) {
        const struct tier_spec spec = { .name = "test" };
        const uint32_t maps = t == 0 ? map_slabs : 0;

        assert_int_equal(
            arena_new_empty(&spec, ROOM_SLABS * ARENA_SLAB_BYTES, &m->f.arenas[t], &msg),
            EMBTIER_OK);
        fill_slabs(m, t, 0, slabs[t] - maps);
        fill_slabs(m, t, ROOM_SLABS - maps, ROOM_SLABS);
        opts.arena_slab_count[t] = m->slabs[t] = slabs[t];
        opts.arena_room_slabs[t] = ROOM_SLABS;
    }
    if (row_cache_new(&opts, &m->f.cache, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    for (uint16_t i = 0; i < TABLES; i++)
        assert_int_equal(row_cache_add_table(m->f.cache, i, lengths[i], i == 1 ? IDS : 0),
                         EMBTIER_OK);
}

/* Puts a row into the cache as it was written last, if it is not there. */
static bool fetch(struct model *m, uint16_t table, uint64_t id)
{
    static uint8_t row[40000], there[40000];

    if (fixture_get(&m->f, table, id, there, lengths[table])) {
        assert_row(there, table, id, m->versions[table][id]);
        return true;
    }
    if (m->written[table][id] != m->versions[table][id])
        fail_msg("version %u of row %u of table %u is lost: %u was written", m->versions[table][id],
                 (uint32_t)id, table, m->written[table][id]);
    fill(row, table, id, m->versions[table][id]);
    return fixture_insert(&m->f, table, id, row, false);
}

static void change(struct model *m, uint16_t table, uint64_t id)
{
    static uint8_t row[40000];

    if (!fetch(m, table, id))
        return;
    fill(row, table, id, m->versions[table][id] + 1);
    if (fixture_set(&m->f, table, id, row, lengths[table]))
        m->versions[table][id]++;
}

/* Returns how many steps it took; 0: the slabs do not leave. */
static uint32_t shrink(struct model *m, uint32_t tier)
{
    const uint32_t maps = tier == 0 ? m->map_slabs : 0;
    uint32_t there = row_cache_slabs(m->f.cache, tier);
    uint64_t marker = 0;

    m->slabs[tier] = MIN(m->slabs[tier], there);
    for (uint32_t steps = 1, idle = 0; idle < IDLE_MAX; steps++) {
        const struct row_cache_leaving left = row_cache_resize_step(m->f.cache, tier, STEP_ROWS);
        struct err_msg msg = { "" };

        assert_int_equal(left.slabs, row_cache_slabs(m->f.cache, tier));
        assert_true(left.slabs <= there);
        assert_int_equal(
            arena_empty(m->f.arenas[tier], left.slabs - maps, there - left.slabs, &msg),
            EMBTIER_OK);
        there = left.slabs;
        if (left.done)
            return steps;
        idle = left.marker == marker ? idle + 1 : 0;
        marker = left.marker;
    }
    return 0;
}

static enum embtier_err resize(struct model *m, uint32_t tier, uint32_t slabs, struct err_msg *msg)
{
    const uint32_t maps = tier == 0 ? m->map_slabs : 0;
    const uint32_t there = row_cache_slabs(m->f.cache, tier);

    TRY(row_cache_check_resize(m->f.cache, tier, slabs, msg));
    fill_slabs(m, tier, there - maps, slabs - MIN(slabs, maps));
    row_cache_resize(m->f.cache, tier, slabs);
    if (slabs < there && shrink(m, tier) == 0)
        return EMBTIER_TIMEOUT;
    assert_int_equal(row_cache_slabs(m->f.cache, tier), slabs);
    m->slabs[tier] = slabs;
    return EMBTIER_OK;
}

static void must_resize(struct model *m, uint32_t tier, uint32_t slabs)
{
    struct err_msg msg = { "" };
    const enum embtier_err err = resize(m, tier, slabs, &msg);

    if (err != EMBTIER_OK)
        fail_msg("%u slabs in tier %u: %s %s", slabs, tier, err_name(err), msg.text);
    assert_int_equal(fixture_stats(&m->f).tiers[tier].capacity_bytes, slabs * ARENA_SLAB_BYTES);
}

/* Every row is in the cache, or was written as it is. */
static void assert_all(struct model *m)
{
    static uint8_t row[40000];

    fixture_validate(&m->f);
    for (uint16_t table = 0; table < TABLES; table++)
        for (uint64_t id = 0; id < IDS; id++)
            if (fixture_get(&m->f, table, id, row, lengths[table]))
                assert_row(row, table, id, m->versions[table][id]);
            else if (m->written[table][id] != m->versions[table][id])
                fail_msg("row %u of table %u is lost", (uint32_t)id, table);
    fixture_validate(&m->f);
}

static void act(struct model *m)
{
    const uint64_t r = fixture_random(&m->random);
    const uint16_t table = (uint16_t)(r % TABLES);
    const uint64_t id = (r >> 8) % (r >> 60 ? IDS / 8 : IDS);

    switch ((r >> 32) % 8) {
    case 0:
    case 1:
    case 2:
        (void)fetch(m, table, id);
        break;
    case 7:
        if (m->pins[table][id]) {
            fixture_unpin(&m->f, table, id);
            m->pins[table][id] = 0;
        } else if ((r >> 40) % 4 == 0) {
            m->pins[table][id] = fixture_pin(&m->f, table, id);
        }
        break;
    default:
        change(m, table, id);
    }
}

static void unpin_all(struct model *m)
{
    for (uint16_t table = 0; table < TABLES; table++)
        for (uint64_t id = 0; id < IDS; id++)
            if (m->pins[table][id]) {
                fixture_unpin(&m->f, table, id);
                m->pins[table][id] = 0;
            }
}

static void test_random_sizes_lose_no_row(void **state)
{
    const char *const given = getenv("EMBTIER_TEST_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    static struct model m;
    uint32_t done = 0;

    (void)state;
    print_message("EMBTIER_TEST_SEED=%lu\n", (unsigned long)seed);
    open_model(&m, (const uint32_t[TIERS]){ 8, 8 }, 1);
    m.random = seed | 1;
    for (uint32_t round = 0; round < 40; round++) {
        const uint32_t tier = (uint32_t)(fixture_random(&m.random) % TIERS);
        const uint32_t slabs = (uint32_t)(fixture_random(&m.random) % ROOM_SLABS) + 1;
        struct err_msg msg = { "" };
        enum embtier_err err;

        m.refuse_below = fixture_random(&m.random) % 3 * 40;
        for (uint32_t i = 0; i < 3000; i++)
            act(&m);
        err = resize(&m, tier, slabs, &msg);
        if (err == EMBTIER_TIMEOUT) { /* pins, or dirty rows that nobody takes, are in the way */
            m.refuse_below = 0;
            unpin_all(&m);
            assert_true(shrink(&m, tier) > 0);
            m.slabs[tier] = slabs;
        } else {
            assert_true(err == EMBTIER_OK || err == EMBTIER_INVALID || err == EMBTIER_BUSY);
        }
        done += err == EMBTIER_OK;
        fixture_validate(&m.f);
        if (round % 10 == 9)
            assert_all(&m);
    }
    assert_true(done > 10);
    assert_true(m.evicted > 0);
    fixture_close(&m.f);
}

/* Rows come and change between two steps, as on a lane that serves. */
static void test_a_tier_shrinks_by_the_work_of_requests_alone(void **state)
{
    static struct model m;
    uint32_t calls = 0;

    (void)state;
    open_model(&m, (const uint32_t[TIERS]){ 20, 20 }, 0);
    for (uint32_t i = 0; i < 20000; i++)
        act(&m);
    for (uint32_t tier = 0; tier < TIERS; tier++)
        row_cache_resize(m.f.cache, tier, 6);
    while (row_cache_slabs(m.f.cache, 0) > 6 || row_cache_slabs(m.f.cache, 1) > 6) {
        assert_true(calls++ < 1000000);
        act(&m);
    }
    assert_all(&m);
    fixture_close(&m.f);
}

static void test_a_tier_does_not_shrink_below_its_pins(void **state)
{
    static struct model m;
    struct err_msg msg = { "" };
    uint64_t pinned = 0;
    char bytes[32];

    (void)state;
    open_model(&m, (const uint32_t[TIERS]){ 16, 4 }, 0);
    for (uint64_t id = 0; id < 300; id++) {
        assert_true(fetch(&m, 3, id));
        pinned += fixture_pin(&m.f, 3, id);
    }
    assert_int_equal(pinned, 300);
    assert_int_equal(fixture_stats(&m.f).tiers[0].pinned_bytes, 300 * 40000);
    assert_int_equal(resize(&m, 0, 11, &msg), EMBTIER_BUSY);
    snprintf(bytes, sizeof(bytes), "%u bytes", 300 * 40000);
    assert_non_null(strstr(msg.text, bytes));
    must_resize(&m, 0, 12); /* half of it holds them */
    for (uint64_t id = 0; id < 300; id++)
        assert_true(fetch(&m, 3, id));
    for (uint64_t id = 300; id < 320; id++) { /* 12.4 MB would be more than half */
        assert_true(fetch(&m, 3, id));
        pinned += fixture_pin(&m.f, 3, id);
    }
    assert_int_equal(pinned, 12 * ARENA_SLAB_BYTES / 2 / 40000);
    for (uint64_t id = 0; id < 320; id++)
        fixture_unpin(&m.f, 3, id);
    assert_int_equal(fixture_stats(&m.f).tiers[0].pinned_bytes, 0);
    must_resize(&m, 0, 4);
    assert_all(&m);
    fixture_close(&m.f);
}

static void test_dirty_rows_that_nobody_takes_stay(void **state)
{
    static struct model m;
    struct err_msg msg = { "" };

    (void)state;
    open_model(&m, (const uint32_t[TIERS]){ 12, 2 }, 0);
    m.refuse_below = 100;
    for (uint64_t id = 0; id < 400; id++)
        change(&m, 3, id);
    assert_int_equal(resize(&m, 0, 4, &msg), EMBTIER_TIMEOUT);
    assert_int_equal(m.evicted, 0);
    assert_all(&m);
    row_cache_resize(m.f.cache, 0, row_cache_slabs(m.f.cache, 0)); /* it gives up */
    fixture_validate(&m.f);
    m.refuse_below = 0;
    must_resize(&m, 0, 4);
    assert_true(m.evicted > 0);
    assert_all(&m);
    fixture_close(&m.f);
}

static void test_rows_of_a_checkpoint_stay_until_it_has_them(void **state)
{
    static struct model m;
    struct err_msg msg = { "" };
    uint64_t cursor = 0;
    bool done = false;

    (void)state;
    open_model(&m, (const uint32_t[TIERS]){ 12, 2 }, 0);
    for (uint64_t id = 0; id < 400; id++)
        change(&m, 3, id);
    row_cache_begin_epoch(m.f.cache);
    m.evicted = 0;
    assert_int_equal(resize(&m, 0, 4, &msg), EMBTIER_TIMEOUT);
    assert_int_equal(m.evicted, 0);
    while (!done)
        (void)row_cache_write_back(m.f.cache, &cursor, 10, &done);
    assert_true(row_cache_end_epoch(m.f.cache));
    assert_true(shrink(&m, 0) > 0);
    assert_all(&m);
    fixture_close(&m.f);
}

static void test_an_index_that_is_too_large_shrinks_first(void **state)
{
    static struct model m;
    static uint8_t row[64];
    uint64_t index_bytes;

    (void)state;
    open_model(&m, (const uint32_t[TIERS]){ 24, 24 }, 0);
    fill(row, 0, 0, 0);
    for (uint64_t id = 0; id < 700000; id++)
        (void)fixture_insert(&m.f, 0, id, row, false);
    index_bytes = fixture_stats(&m.f).index_bytes;
    assert_true(index_bytes > 4 * ARENA_SLAB_BYTES);
    must_resize(&m, 0, 8);
    assert_true(fixture_stats(&m.f).index_bytes <= 4 * ARENA_SLAB_BYTES);
    fixture_validate(&m.f);
    must_resize(&m, 0, 24);
    for (uint64_t id = 0; id < 700000; id++)
        (void)fixture_insert(&m.f, 0, id, row, false);
    assert_true(fixture_stats(&m.f).index_bytes >= index_bytes / 2); /* and grows again */
    fixture_validate(&m.f);
    fixture_close(&m.f);
}

static void test_impossible_sizes_are_refused(void **state)
{
    static struct model m;
    struct err_msg msg = { "" };

    (void)state;
    open_model(&m, (const uint32_t[TIERS]){ 12, 4 }, 2);
    assert_int_equal(resize(&m, 0, ROOM_SLABS + 1, &msg), EMBTIER_TOO_LARGE);
    assert_non_null(strstr(msg.text, "addresses for 24"));
    assert_int_equal(resize(&m, 0, 1, &msg), EMBTIER_INVALID);
    assert_int_equal(resize(&m, 0, 7, &msg),
                     EMBTIER_INVALID); /* the maps are more than a quarter */
    assert_int_equal(resize(&m, 1, 0, &msg), EMBTIER_INVALID);
    must_resize(&m, 0, 8);
    must_resize(&m, 1, 1);
    must_resize(&m, 0, ROOM_SLABS);
    must_resize(&m, 1, ROOM_SLABS);
    fixture_close(&m.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_impossible_sizes_are_refused),
        cmocka_unit_test(test_a_tier_does_not_shrink_below_its_pins),
        cmocka_unit_test(test_dirty_rows_that_nobody_takes_stay),
        cmocka_unit_test(test_rows_of_a_checkpoint_stay_until_it_has_them),
        cmocka_unit_test(test_an_index_that_is_too_large_shrinks_first),
        cmocka_unit_test(test_a_tier_shrinks_by_the_work_of_requests_alone),
        cmocka_unit_test(test_random_sizes_lose_no_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
