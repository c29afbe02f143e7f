/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that rows in arrays are what was put there, and that each dirty row is handed over once. An
 * epoch must hand over rows as they were at its beginning. Lanes share the arrays, and take turns
 * at random. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/seed.h"
#include "tiers/arena/arena.h"
#include "tiers/array/row_arrays.h"
#include "tiers/spots/row_spot.h"

#define LANES     3
#define TABLES    2
#define ROWS      3000
#define BYTES_MAX 40
#define CHUNK     64
#define STEPS     20000

static const uint32_t row_bytes[TABLES] = { 40, 12 };

struct lane {
    struct model *m;
    uint32_t number;
    struct row_arrays *arrays;
};

struct model {
    uint64_t seed;
    void *memory[TABLES];
    struct lane lanes[LANES];
    bool there[TABLES][ROWS];
    uint8_t rows[TABLES][ROWS][BYTES_MAX];   /* the rows now */
    uint8_t stored[TABLES][ROWS][BYTES_MAX]; /* the rows as last handed over */
    uint8_t moment[TABLES][ROWS][BYTES_MAX]; /* the rows when the epoch began */
    bool was_there[TABLES][ROWS];
    uint32_t refusals; /* percentage of rows refused */
    uint64_t handed;
};

static uint64_t next_random(struct model *m)
{
    m->seed ^= m->seed << 13, m->seed ^= m->seed >> 7, m->seed ^= m->seed << 17;
    return m->seed;
}

static uint64_t hash_of(uint16_t table, uint64_t id)
{
    return (id * 0x9e3779b97f4a7c15ull) ^ table;
}

static uint32_t lane_of(uint64_t hash)
{
    return (uint32_t)(hash >> 32) % LANES;
}

static uint64_t hash(void *context, uint16_t table, uint64_t id)
{
    (void)context;
    return hash_of(table, id);
}

static bool is_mine(void *context, uint64_t row_hash)
{
    return lane_of(row_hash) == ((struct lane *)context)->number;
}

static bool evict(void *context, uint16_t table, uint64_t row_hash, uint64_t id, const void *row,
                  uint32_t bytes)
{
    struct lane *const lane = context;
    struct model *const m = lane->m;

    assert_int_equal(row_hash, hash_of(table, id));
    assert_int_equal(lane_of(row_hash), lane->number);
    assert_int_equal(bytes, row_bytes[table]);
    if (next_random(m) % 100 < m->refusals)
        return false;
    memcpy(m->stored[table][id], row, bytes);
    m->handed++;
    return true;
}

static void model_open(struct model *m)
{
    struct err_msg msg = { { 0 } };

    memset(m, 0, sizeof(*m));
    m->seed = seed_of_test("arrays", seed_random()) | 1;
    for (uint32_t l = 0; l < LANES; l++) {
        m->lanes[l] = (struct lane){ .m = m, .number = l };
        assert_int_equal(row_arrays_new(&(struct row_arrays_opts){ .hash = hash,
                                                                   .evict = evict,
                                                                   .is_mine = is_mine,
                                                                   .context = &m->lanes[l] },
                                        &m->lanes[l].arrays, &msg),
                         EMBTIER_OK);
    }
    for (uint16_t t = 0; t < TABLES; t++) {
        const uint64_t bytes = row_array_memory_bytes(ROWS, row_bytes[t]);
        struct row_array *array;

        m->memory[t] = aligned_alloc(4096, bytes);
        memset(m->memory[t], 0xa5, bytes);
        array = row_array_new(m->memory[t], ROWS, row_bytes[t]);
        for (uint32_t l = 0; l < LANES; l++)
            assert_int_equal(row_arrays_add_table(m->lanes[l].arrays, t, array), EMBTIER_OK);
    }
}

static void model_close(struct model *m)
{
    for (uint32_t l = 0; l < LANES; l++)
        row_arrays_free(m->lanes[l].arrays);
    for (uint32_t t = 0; t < TABLES; t++)
        free(m->memory[t]);
}

/* Picks some of the lane's ids, with ascending positions. An id may occur twice. */
static uint32_t pick(struct model *m, uint16_t table, uint32_t lane, struct row_ref *refs)
{
    const uint32_t most = 1 + (uint32_t)(next_random(m) % CHUNK);
    uint32_t count = 0;

    for (uint32_t i = 0; i < most; i++) {
        const uint64_t id = next_random(m) % ROWS;

        if (lane_of(hash_of(table, id)) == lane) {
            refs[count] =
                (struct row_ref){ .hash = hash_of(table, id), .id = id, .position = count };
            count++;
        }
    }
    return count;
}

static void random_bytes(struct model *m, uint8_t *to, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)next_random(m);
}

static void get_some(struct model *m, uint16_t t, struct lane *lane)
{
    struct row_ref refs[CHUNK];
    const uint32_t count = pick(m, t, lane->number, refs);
    uint8_t got[CHUNK][BYTES_MAX];
    uint32_t missed[CHUNK], next = 0;
    const uint32_t misses =
        row_arrays_get(lane->arrays, t, refs, count, got, BYTES_MAX, row_bytes[t], missed);

    for (uint32_t i = 0; i < count; i++) {
        if (!m->there[t][refs[i].id])
            assert_true(next < misses && missed[next++] == i);
        else
            assert_memory_equal(got[i], m->rows[t][refs[i].id], row_bytes[t]);
    }
    assert_int_equal(next, misses);
}

static void set_some(struct model *m, uint16_t t, struct lane *lane)
{
    struct row_ref refs[CHUNK];
    const uint32_t count = pick(m, t, lane->number, refs);
    const uint32_t bytes = next_random(m) % 2 ? row_bytes[t] : 8;
    uint8_t given[CHUNK][BYTES_MAX] = { { 0 } };
    uint32_t missed[CHUNK], misses, next = 0;

    for (uint32_t i = 0; i < count; i++)
        random_bytes(m, given[i], bytes);
    misses = row_arrays_set(lane->arrays, t, refs, count, given, BYTES_MAX, bytes, missed);
    for (uint32_t i = 0; i < count; i++) {
        if (!m->there[t][refs[i].id])
            assert_true(next < misses && missed[next++] == i);
        else
            memcpy(m->rows[t][refs[i].id], given[i], bytes);
    }
    assert_int_equal(next, misses);
}

static void change_some(struct model *m, uint16_t t, struct lane *lane)
{
    struct row_ref refs[CHUNK];
    const uint32_t count = pick(m, t, lane->number, refs);
    void *rows[CHUNK];
    uint32_t missed = 0;
    const uint32_t misses = row_arrays_change(lane->arrays, t, refs, count, rows);

    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(rows[i] != NULL, m->there[t][refs[i].id]);
        missed += !rows[i];
        if (!rows[i])
            continue;
        random_bytes(m, rows[i], row_bytes[t]);
        memcpy(m->rows[t][refs[i].id], rows[i], row_bytes[t]);
    }
    assert_int_equal(missed, misses);
}

/* Inserts rows; a clean row is as on SSD. */
static void insert_some(struct model *m, uint16_t t, struct lane *lane)
{
    struct row_ref refs[CHUNK];
    const uint32_t count = pick(m, t, lane->number, refs);
    uint8_t given[CHUNK][BYTES_MAX] = { { 0 } };
    const void *rows[CHUNK] = { NULL };
    uint64_t dirty[CHUNK / 64] = { 0 };

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t id = refs[i].id;

        if (next_random(m) % 2) {
            random_bytes(m, given[i], row_bytes[t]);
            dirty[i / 64] |= UINT64_C(1) << i % 64;
        } else {
            memcpy(given[i], m->stored[t][id], row_bytes[t]);
        }
        rows[i] = given[i];
    }
    row_arrays_insert(lane->arrays, t, refs, count, rows, dirty);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t id = refs[i].id;

        if (!m->there[t][id])
            memcpy(m->rows[t][id], given[i], row_bytes[t]);
        m->there[t][id] = true;
    }
}

struct taker {
    struct model *m;
    const struct lane *lane;
    uint16_t table;
    uint32_t count;
};

/* Takes a row that leaves, as another home would. If it is clean, its value is stored. */
static bool take(void *context, const struct row_ref *ref, const void *row, bool dirty)
{
    struct taker *const taker = context;
    struct model *const m = taker->m;
    uint8_t *const stored = m->stored[taker->table][ref->id];

    assert_int_equal(ref->hash, hash_of(taker->table, ref->id));
    assert_int_equal(lane_of(ref->hash), taker->lane->number);
    assert_true(m->there[taker->table][ref->id]);
    assert_memory_equal(row, m->rows[taker->table][ref->id], row_bytes[taker->table]);
    if (next_random(m) % 100 < m->refusals)
        return false;
    if (dirty)
        memcpy(stored, row, row_bytes[taker->table]);
    else
        assert_memory_equal(row, stored, row_bytes[taker->table]);
    m->there[taker->table][ref->id] = false;
    taker->count++;
    return true;
}

/* Gives some rows of a table to another home. */
static void give_some(struct model *m, uint16_t t, struct lane *lane)
{
    struct taker taker = { .m = m, .lane = lane, .table = t };
    struct row_giving giving = { .cursor = next_random(m) % ROWS,
                                 .most_rows = 1 + (uint32_t)(next_random(m) % 40),
                                 .most_steps = 1 + (uint32_t)(next_random(m) % 400),
                                 .take = take,
                                 .context = &taker };
    const uint64_t rows = row_arrays_table_rows(lane->arrays, t);
    const uint32_t given = row_arrays_give(lane->arrays, t, &giving);

    assert_int_equal(given, taker.count);
    assert_true(given <= giving.most_rows && giving.cursor < ROWS);
    assert_int_equal(row_arrays_table_rows(lane->arrays, t), rows - given);
}

static void write_all_back(struct model *m)
{
    for (uint32_t l = 0; l < LANES; l++) {
        uint64_t cursor = 0;
        bool done = false;

        while (!done)
            (void)row_arrays_write_back(m->lanes[l].arrays, &cursor,
                                        1 + (uint32_t)(next_random(m) % 50), &done);
    }
}

static void check_all_stored(const struct model *m)
{
    for (uint32_t t = 0; t < TABLES; t++)
        for (uint32_t id = 0; id < ROWS; id++)
            if (m->there[t][id])
                assert_memory_equal(m->stored[t][id], m->rows[t][id], row_bytes[t]);
    for (uint32_t l = 0; l < LANES; l++) {
        struct row_arrays_stats stats;

        row_arrays_stats(m->lanes[l].arrays, &stats);
        assert_int_equal(stats.dirty_rows, 0);
        assert_int_equal(stats.tables, TABLES);
    }
}

static void step(struct model *m)
{
    struct lane *const lane = &m->lanes[next_random(m) % LANES];
    const uint16_t t = (uint16_t)(next_random(m) % TABLES);

    switch (next_random(m) % 4) {
    case 0:
        get_some(m, t, lane);
        break;
    case 1:
        set_some(m, t, lane);
        break;
    case 2:
        change_some(m, t, lane);
        break;
    default:
        insert_some(m, t, lane);
        break;
    }
}

static void test_rows_are_what_was_put_there_and_dirty_ones_are_handed_over(void **state)
{
    struct model *const m = malloc(sizeof(*m));

    (void)state;
    model_open(m);
    for (uint32_t i = 0; i < STEPS; i++) {
        m->refusals = i % 1000 < 500 ? 0 : 60;
        step(m);
        if (i % 2000 == 1999) {
            m->refusals = 0;
            write_all_back(m);
            check_all_stored(m);
        }
    }
    model_close(m);
    free(m);
}

static void begin_epochs(struct model *m)
{
    memcpy(m->moment, m->rows, sizeof(m->rows));
    memcpy(m->was_there, m->there, sizeof(m->there));
    for (uint32_t l = 0; l < LANES; l++)
        row_arrays_begin_epoch(m->lanes[l].arrays);
}

/* Hands over the rows of the epoch's beginning while they change. */
static void save_epochs(struct model *m)
{
    uint64_t cursors[LANES] = { 0 };
    bool done[LANES] = { false };
    uint32_t done_lanes = 0;

    while (done_lanes < LANES) {
        const uint32_t l = (uint32_t)(next_random(m) % LANES);

        step(m);
        if (done[l])
            continue;
        (void)row_arrays_write_back(m->lanes[l].arrays, &cursors[l], 20, &done[l]);
        done_lanes += done[l];
    }
    for (uint32_t t = 0; t < TABLES; t++)
        for (uint32_t id = 0; id < ROWS; id++)
            if (m->was_there[t][id])
                assert_memory_equal(m->stored[t][id], m->moment[t][id], row_bytes[t]);
    for (uint32_t l = 0; l < LANES; l++)
        assert_true(row_arrays_end_epoch(m->lanes[l].arrays));
}

/* Changes rows while none can be handed over. */
static void fail_epochs(struct model *m)
{
    m->refusals = 100;
    for (uint32_t i = 0; i < 500; i++)
        step(m);
    m->refusals = 0;
    for (uint32_t l = 0; l < LANES; l++) {
        uint64_t cursor = 0;

        assert_false(row_arrays_end_epoch(m->lanes[l].arrays));
        while (!row_arrays_forget_epoch(m->lanes[l].arrays, &cursor, 100))
            continue;
    }
}

/* An epoch that is given up leaves its rows dirty, for the next one. */
static void test_rows_that_go_to_another_home_are_whole_and_then_not_there(void **state)
{
    struct model *const m = malloc(sizeof(*m));

    (void)state;
    model_open(m);
    for (uint32_t i = 0; i < STEPS; i++) {
        m->refusals = i % 1000 < 500 ? 0 : 60;
        step(m);
        if (i % 10 == 0)
            give_some(m, i / 10 % TABLES, &m->lanes[next_random(m) % LANES]);
        if (i % 2000 == 1999) {
            m->refusals = 0;
            write_all_back(m);
            check_all_stored(m);
        }
    }
    for (uint16_t t = 0; t < TABLES; t++)
        for (uint32_t l = 0; l < LANES; l++) {
            struct taker taker = { .m = m, .lane = &m->lanes[l], .table = t };
            struct row_giving giving = {
                .most_rows = 7, .most_steps = 100, .take = take, .context = &taker
            };

            for (uint32_t i = 0; i < ROWS && row_arrays_table_rows(m->lanes[l].arrays, t) > 0; i++)
                (void)row_arrays_give(m->lanes[l].arrays, t, &giving);
            assert_int_equal(row_arrays_table_rows(m->lanes[l].arrays, t), 0);
        }
    for (uint32_t l = 0; l < LANES; l++) {
        struct row_arrays_stats stats;

        row_arrays_stats(m->lanes[l].arrays, &stats);
        assert_int_equal(stats.rows + stats.bytes + stats.dirty_rows + stats.dirty_bytes, 0);
    }
    model_close(m);
    free(m);
}

static void test_an_epoch_hands_over_rows_as_they_were(void **state)
{
    struct model *const m = malloc(sizeof(*m));

    (void)state;
    model_open(m);
    for (uint32_t round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < 200; i++)
            step(m);
        begin_epochs(m);
        if (round % 5 < 2)
            fail_epochs(m);
        else
            save_epochs(m);
    }
    write_all_back(m);
    check_all_stored(m);
    model_close(m);
    free(m);
}

/* The loops of kernels/cpu/pool use these words. */
static void test_spots_lead_to_the_rows(void **state)
{
    struct model *const m = malloc(sizeof(*m));

    (void)state;
    model_open(m);
    for (uint32_t i = 0; i < 500; i++)
        step(m);
    for (uint16_t t = 0; t < TABLES; t++) {
        struct row_spots where;

        assert_true(row_arrays_spots(m->lanes[0].arrays, t, &where));
        for (uint64_t id = 0; id < ROWS; id++) {
            const uint32_t slot = where.spots[id].slot_and_1;

            assert_int_equal(slot != 0, m->there[t][id]);
            if (slot)
                assert_memory_equal(where.base + ((uint64_t)(slot - 1) << where.slot_shift),
                                    m->rows[t][id], row_bytes[t]);
        }
    }
    row_arrays_remove_table(m->lanes[0].arrays, 0);
    assert_false(row_arrays_has(m->lanes[0].arrays, 0));
    assert_true(row_arrays_has(m->lanes[0].arrays, 1));
    model_close(m);
    free(m);
}

static void test_memory_is_counted_and_the_largest_refused(void **state)
{
    (void)state;
    assert_int_equal(row_array_memory_bytes(1, 1), ARENA_SLAB_BYTES);
    assert_int_equal(row_array_memory_bytes(0, 4), 0);
    assert_true(row_array_memory_bytes(1000000, 256) >= 264000000);
    assert_true(row_array_memory_bytes(1000000, 256) < 264000000 + 2 * ARENA_SLAB_BYTES);
    assert_int_equal(row_array_memory_bytes(UINT64_C(1) << 33, 4), 0);
    assert_int_equal(row_array_memory_bytes(UINT64_MAX, 102400), 0);
}

static bool is_written(void *context, uint16_t table, uint64_t hash, uint64_t id, const void *row,
                       uint32_t bytes)
{
    (void)table;
    (void)hash;
    (void)row;
    (void)bytes;
    *(uint64_t *)context += id;
    return true;
}

static uint64_t hash_is_id(void *context, uint16_t table, uint64_t id)
{
    (void)context;
    (void)table;
    return id;
}

static bool all_are_mine(void *context, uint64_t hash)
{
    (void)context;
    (void)hash;
    return true;
}

/* A checkpoint takes small steps, with pauses. The scan must not stop for clean rows. */
static void test_a_scan_passes_over_rows_that_are_clean(void **state)
{
    const uint64_t rows = 4 * 1000 * 1000, bytes = row_array_memory_bytes(rows, 4);
    void *const memory = aligned_alloc(ARENA_SLAB_BYTES, bytes);
    const uint64_t all_dirty = UINT64_MAX;
    uint64_t written = 0, cursor = 0;
    _cleanup_(row_arrays_freep) struct row_arrays *arrays = NULL;
    struct err_msg msg = { { 0 } };
    const uint32_t value = 7;
    uint32_t steps = 0;
    bool done = false;

    (void)state;
    assert_non_null(memory);
    assert_int_equal(row_arrays_new(&(struct row_arrays_opts){ .hash = hash_is_id,
                                                               .evict = is_written,
                                                               .is_mine = all_are_mine,
                                                               .context = &written },
                                    &arrays, &msg),
                     EMBTIER_OK);
    assert_int_equal(row_arrays_add_table(arrays, 3, row_array_new(memory, rows, 4)), EMBTIER_OK);
    for (uint64_t id = rows - 8; id < rows; id++)
        row_arrays_insert(arrays, 3, &(struct row_ref){ .hash = id, .id = id }, 1,
                          (const void *const[]){ &value }, &all_dirty);
    for (; !done; steps++)
        (void)row_arrays_write_back(arrays, &cursor, 32, &done);
    assert_int_equal(written, 8 * rows - 36);
    assert_true(steps <= 4);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_what_was_put_there_and_dirty_ones_are_handed_over),
        cmocka_unit_test(test_rows_that_go_to_another_home_are_whole_and_then_not_there),
        cmocka_unit_test(test_an_epoch_hands_over_rows_as_they_were),
        cmocka_unit_test(test_a_scan_passes_over_rows_that_are_clean),
        cmocka_unit_test(test_spots_lead_to_the_rows),
        cmocka_unit_test(test_memory_is_counted_and_the_largest_refused),
    };

    return cmocka_run_group_tests_name("row_arrays", tests, NULL, NULL);
}
