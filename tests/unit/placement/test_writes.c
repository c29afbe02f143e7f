/* SPDX-License-Identifier: Apache-2.0 */
/* test_writes.c: are the rows that a cache is predicted to write back those that an exact cache
 * writes, and does it hold as many rows as predicted? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <math.h>
#include <stdio.h>

#include "placement/profile/steady.h"
#include "placement/synthetic/zipf.h"
#include "placement/writes/room.h"
#include "placement/writes/writes.h"
#include "tests/unit/placement/exact_lru.h"
#include "tests/unit/placement/profile_fixture.h"

#define ROWS    (1u << 14)
#define BATCH   500
#define BEFORE  400 /* batches before the profile */
#define TRACE   400
#define ROW     256.0
#define ALLOWED 0.04
/* Which rows are updated is known from how hot they are. */
#define ALLOWED_SOME 0.08

/* A cache whose rows are written when they leave it dirty, and at checkpoints. */
struct world {
    double exponent;
    double updated;     /* share of the batches */
    uint32_t between;   /* batches between checkpoints; 0: there are none */
    double cached_rows; /* that the cache has room for */
    struct exact_lru lru;
    bool is_dirty[ROWS];
    uint64_t evicted, saved;
    struct profile *profile;
};

/* A row that left while it was dirty was written then. */
static void look_up(struct world *w, uint32_t row, bool is_update)
{
    w->evicted += w->is_dirty[row] && w->lru.nodes[row].tier == 0;
    w->is_dirty[row] = (w->is_dirty[row] && w->lru.nodes[row].tier != 0) || is_update;
    exact_lru_lookup(&w->lru, 0, row);
}

static void make_checkpoint(struct world *w)
{
    for (uint32_t row = 0; row < ROWS; row++) {
        w->evicted += w->is_dirty[row] && w->lru.nodes[row].tier == 0;
        w->saved += w->is_dirty[row] && w->lru.nodes[row].tier != 0;
        w->is_dirty[row] = false;
    }
}

static void add_batch(struct world *w, uint64_t batch, bool is_update, const uint64_t *ids)
{
    const uint32_t bag_ends[] = { BATCH };
    const struct trace_lookups lookups = { .batch = batch,
                                           .is_update = is_update,
                                           .bag_count = 1,
                                           .id_count = BATCH,
                                           .bag_ends = bag_ends,
                                           .ids = ids };

    assert_int_equal(profile_add(w->profile, &lookups), EMBTIER_OK);
}

static void run(struct world *w)
{
    const struct zipf zipf = zipf_make(ROWS, w->exponent);
    struct random random = { 7 };
    uint64_t ids[BATCH];

    for (uint64_t batch = 0; batch < BEFORE + TRACE; batch++) {
        const bool is_update = random_unit(&random) < w->updated;

        if (batch == BEFORE)
            w->evicted = w->saved = 0;
        for (uint32_t i = 0; i < BATCH; i++) {
            ids[i] = zipf_draw(&zipf, &random) * 2654435761u % ROWS;
            look_up(w, (uint32_t)ids[i], is_update);
        }
        if (batch >= BEFORE)
            add_batch(w, batch, is_update, ids);
        if (w->between > 0 && batch % w->between == w->between - 1)
            make_checkpoint(w);
    }
}

/* Compares, for each lookup. */
static void check(struct world *w, const char *what)
{
    const struct trace_table table = { .rows = ROWS };
    struct writes_opts opts = { .row_bytes = (const double[]){ ROW },
                                .cache_bytes = w->cached_rows * ROW,
                                .checkpoint_lookups =
                                    w->between > 0 ? w->between * (double)BATCH : INFINITY };
    struct measured_profile *measured;
    struct table_writes writes;
    struct err_msg msg;
    double exact, predicted;

    exact_lru_init(&w->lru, ROWS, (double[]){ w->cached_rows * ROW, 0 });
    w->lru.row_bytes[0] = ROW;
    assert_int_equal(profile_new(&table, 1, MIB, &w->profile, &msg), EMBTIER_OK);
    run(w);
    assert_int_equal(measured_profile_make(w->profile, &table, &measured), EMBTIER_OK);
    assert_int_equal(measured_profile_make_steady(measured, &msg), EMBTIER_OK);
    opts.profile = measured;
    assert_int_equal(writes_predict(&opts, &writes, &msg), EMBTIER_OK);
    exact = (double)(w->evicted + w->saved) / TRACE / BATCH;
    predicted = writes.evicted + writes.saved;
    printf("%s: exact %.4f (%.4f by checkpoints), predicted %.4f (%.4f)\n", what, exact,
           (double)w->saved / TRACE / BATCH, predicted, writes.saved);
    assert_true(fabs(predicted / exact - 1) <= (w->updated < 1 ? ALLOWED_SOME : ALLOWED));
    measured_profile_free(measured);
    profile_free(w->profile);
    exact_lru_free(&w->lru);
}

static void check_sizes(double updated, uint32_t between)
{
    static const double shares[] = { 0.1, 0.3, 0.6 };
    static const double exponents[] = { 0.6, 0.9 };

    for (size_t i = 0; i < ARRAY_LEN(shares); i++)
        for (size_t k = 0; k < ARRAY_LEN(exponents); k++) {
            static struct world w;
            char what[80];

            w = (struct world){ .exponent = exponents[k],
                                .updated = updated,
                                .between = between,
                                .cached_rows = shares[i] * ROWS };
            snprintf(what, sizeof(what), "room for %.0f %%, Zipf %.1f, %.0f %% updated, every %u",
                     100 * shares[i], exponents[k], 100 * updated, between);
            check(&w, what);
        }
}

static void test_each_updated_row_is_written_when_it_leaves(void **state)
{
    (void)state;
    check_sizes(1, 0);
}

static void test_rows_that_were_only_read_are_not_written(void **state)
{
    (void)state;
    check_sizes(0.5, 0);
    check_sizes(0.25, 0);
}

/* From rare checkpoints, which write few rows, to ones that leave nothing to evictions. */
static void test_checkpoints_write_what_is_dirty(void **state)
{
    (void)state;
    check_sizes(1, 100);
    check_sizes(1, 20);
    check_sizes(1, 4);
    check_sizes(0.5, 20);
}

/* As servers of two lanes had them: 8,065 rows of 256 bytes in a slab. */
static void test_the_room_is_that_of_whole_slabs(void **state)
{
    const double slab_rows = 8065;
    double bytes[2] = { 8.0 * MIB, 0 };
    struct cache_shape shape = {
        .lanes = 2, .row_bytes = ROW, .tier_count = 1, .tier_bytes = bytes
    };

    (void)state;
    assert_true(cache_room_bytes(&shape) ==
                2 * slab_rows * ROW); /* a lane: a slab, and the index */
    bytes[0] = 12.0 * MIB;
    assert_true(cache_room_bytes(&shape) == 4 * slab_rows * ROW);
    bytes[0] = 15.9 * MIB; /* what is no whole slab of each lane */
    assert_true(cache_room_bytes(&shape) == 4 * slab_rows * ROW);
    shape.tier_count = 2;
    bytes[1] = 4.0 * MIB;
    assert_true(cache_room_bytes(&shape) == 6 * slab_rows * ROW);
    shape.map_bytes = 2.0 * MIB;
    assert_true(cache_room_bytes(&shape) == 4 * slab_rows * ROW);
    bytes[0] = bytes[1] = 1;
    assert_true(cache_room_bytes(&shape) == 0);
}

/* The index takes its share of a large cache. */
static void test_a_large_cache_has_room_for_its_rows_and_their_index(void **state)
{
    const double bytes = 1024.0 * GIB;
    const struct cache_shape shape = {
        .lanes = 8, .row_bytes = ROW, .tier_count = 1, .tier_bytes = &bytes
    };
    const double share = ROW / (ROW + 4 + 320 / 12.75);

    (void)state;
    assert_true(fabs(cache_room_bytes(&shape) / bytes / share - 1) < 0.002);
}

static void test_nonsense_is_refused(void **state)
{
    const struct trace_table table = { .rows = ROWS };
    const uint64_t ids[BATCH] = { 1, 2 };
    struct world w = { 0 };
    struct measured_profile *measured;
    struct table_writes writes;
    struct err_msg msg;

    (void)state;
    assert_int_equal(profile_new(&table, 1, MIB, &w.profile, &msg), EMBTIER_OK);
    add_batch(&w, 0, true, ids);
    assert_int_equal(measured_profile_make(w.profile, &table, &measured), EMBTIER_OK);
    for (int i = 0; i < 3; i++) {
        const double row_bytes = i == 0 ? -1 : ROW;
        const struct writes_opts opts = { .profile = measured,
                                          .row_bytes = &row_bytes,
                                          .cache_bytes = i == 1 ? (double)NAN : 0,
                                          .checkpoint_lookups = i == 2 ? 0 : INFINITY };

        assert_int_equal(writes_predict(&opts, &writes, &msg), EMBTIER_INVALID);
    }
    measured_profile_free(measured);
    profile_free(w.profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_updated_row_is_written_when_it_leaves),
        cmocka_unit_test(test_rows_that_were_only_read_are_not_written),
        cmocka_unit_test(test_checkpoints_write_what_is_dirty),
        cmocka_unit_test(test_the_room_is_that_of_whole_slabs),
        cmocka_unit_test(test_a_large_cache_has_room_for_its_rows_and_their_index),
        cmocka_unit_test(test_nonsense_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
