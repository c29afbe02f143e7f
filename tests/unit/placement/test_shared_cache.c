/* SPDX-License-Identifier: Apache-2.0 */
/* test_shared_cache.c: are predicted hit rates, and the parts that tables have of a cache, those of
 * an exact LRU cache? Hit rates within one point for one table, and within two for each table of a
 * shared cache. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <math.h>
#include <stdio.h>

#include "placement/synthetic/zipf.h"
#include "tests/forms.h"
#include "tests/unit/placement/exact_lru.h"
#include "tests/unit/placement/profile_fixture.h"

#define ONE_TABLE  0.01
#define EACH_TABLE 0.02
/* A table's part of a tier, mean over the trace. Errors come from the time in which a cache fills:
 * lookups are taken as spread evenly over a segment. */
#define PART         0.02
#define PART_FILLING 0.05
#define PART_SCAN    0.06
#define PART_LOOP    0.10
#define CHUNK        1000
#define CASE_TABLES  40

enum pattern {
    ZIPF,
    LOOP,    /* all rows in turn, again and again */
    ONE_SCAN /* all rows once, in the middle of the trace, and nothing else meanwhile */
};

struct source {
    enum pattern pattern;
    uint32_t rows;
    double exponent;
    double share; /* of the lookups */
    double row_bytes;
};

/* A row's number has nothing to do with its hotness, and differs by table. */
static uint32_t scatter(const struct source *source, uint64_t rank)
{
    return (uint32_t)((rank * 2654435761u + 12345) % source->rows);
}

static uint32_t draw(const struct source *source, const struct zipf *zipf, uint64_t lookups,
                     struct random *random)
{
    return source->pattern == ZIPF ? scatter(source, zipf_draw(zipf, random))
                                   : (uint32_t)(lookups % source->rows);
}

struct world {
    const struct source *sources;
    uint32_t count;
    uint32_t bases[CASE_TABLES + 1];
    struct zipf zipfs[CASE_TABLES];
    uint64_t looked_up[CASE_TABLES];
    struct profile *profile;
    struct exact_lru *lrus; /* one for each size */
    uint32_t lru_count;
    struct random random;
};

static void look_up(struct world *world, uint64_t batch, uint32_t table, uint32_t count)
{
    uint64_t ids[CHUNK];

    for (uint32_t i = 0; i < count; i++) {
        ids[i] = draw(&world->sources[table], &world->zipfs[table], world->looked_up[table]++,
                      &world->random);
        for (uint32_t k = 0; k < world->lru_count; k++)
            exact_lru_lookup(&world->lrus[k], table, world->bases[table] + (uint32_t)ids[i]);
    }
    add_bag(world->profile, batch, table, ids, count);
}

static void run(struct world *world, uint64_t lookups)
{
    double owed[CASE_TABLES] = { 0 };

    for (uint64_t batch = 0; batch < lookups / CHUNK; batch++) {
        for (uint32_t table = 0; table < world->count; table++) {
            uint32_t count;

            if (world->sources[table].pattern == ONE_SCAN) {
                for (uint32_t left = world->sources[table].rows;
                     left > 0 && batch == lookups / CHUNK / 2; left -= MIN(left, (uint32_t)CHUNK))
                    look_up(world, batch, table, MIN(left, (uint32_t)CHUNK));
                continue;
            }
            owed[table] += world->sources[table].share * CHUNK;
            count = MIN((uint32_t)owed[table], (uint32_t)CHUNK);
            owed[table] -= count;
            look_up(world, batch, table, count);
        }
    }
}

/* Compares the predictions for one size, and prints them. */
static void compare(const struct world *world, const struct exact_lru *lru, double allowed,
                    double allowed_part)
{
    const struct cache_tiers tiers = { LRU_TIERS, { lru->bytes[0], lru->bytes[1] } };
    struct table_prediction predicted[CASE_TABLES];
    struct err_msg msg;
    double bytes = 0, worst = 0, worst_bytes = 0;

    assert_int_equal(profile_predict(world->profile, lru->row_bytes, &tiers, predicted, &msg),
                     EMBTIER_OK);
    for (uint32_t table = 0; table < world->count; table++)
        for (uint32_t tier = 0; tier < LRU_TIERS; tier++) {
            const double exact =
                (double)lru->hits[table][tier] / (double)MAX(lru->lookups[table], UINT64_C(1));
            const double error = predicted[table].hit_rates[tier] - exact;
            const double exact_bytes = exact_lru_bytes(lru, table, tier);
            const double bytes_error =
                (predicted[table].bytes[tier] - exact_bytes) / lru->bytes[tier];

            bytes += predicted[table].bytes[tier];
            worst = fabs(error) > fabs(worst) ? error : worst;
            worst_bytes = fabs(bytes_error) > fabs(worst_bytes) ? bytes_error : worst_bytes;
            if (world->count < 5)
                printf("  table %u, tier %u of %.0f bytes: %.4f predicted, %.4f exact; %.0f and "
                       "%.0f of the bytes\n",
                       table, tier, lru->bytes[tier], predicted[table].hit_rates[tier], exact,
                       predicted[table].bytes[tier], exact_bytes);
        }
    printf("  %.0f and %.0f bytes: the worst error is %+.4f, and %+.4f of a tier's bytes\n",
           lru->bytes[0], lru->bytes[1], worst, worst_bytes);
    assert_true(fabs(worst) <= allowed);
    assert_true(fabs(worst_bytes) <= allowed_part);
    assert_true(bytes <= (lru->bytes[0] + lru->bytes[1]) * 1.001);
}

#define SIZES 4

/* Runs a case with caches that hold these shares of all bytes, half of them in each tier. */
static void predict(const struct source *sources, uint32_t count, uint64_t lookups,
                    uint64_t memory_bytes, double allowed, double allowed_part)
{
    static const double shares[SIZES] = { 0.004, 0.03, 0.2, 0.6 };
    struct world world = {
        .sources = sources, .count = count, .lru_count = SIZES, .random = { 7 }
    };
    struct trace_table tables[CASE_TABLES] = { 0 };
    struct exact_lru lrus[SIZES];
    struct err_msg msg;
    double bytes = 0;

    for (uint32_t i = 0; i < count; i++)
        tables[i].rows = sources[i].rows;
    assert_int_equal(profile_new(tables, count, memory_bytes, &world.profile, &msg), EMBTIER_OK);
    world.lrus = lrus;
    for (uint32_t i = 0; i < count; i++) {
        world.bases[i + 1] = world.bases[i] + sources[i].rows;
        world.zipfs[i] = zipf_make(sources[i].rows, sources[i].exponent);
        bytes += sources[i].rows * sources[i].row_bytes;
    }
    for (uint32_t k = 0; k < SIZES; k++) {
        const double half = bytes * shares[k] / 2;

        exact_lru_init(&lrus[k], world.bases[count], (double[]){ half, half });
        for (uint32_t i = 0; i < count; i++)
            lrus[k].row_bytes[i] = sources[i].row_bytes;
    }
    run(&world, lookups);
    for (uint32_t k = 0; k < SIZES; k++) {
        compare(&world, &lrus[k], allowed, allowed_part);
        exact_lru_free(&lrus[k]);
    }
    profile_free(world.profile);
}

static void test_predicts_one_table(void **state)
{
    static const double exponents[] = { 0.8, 1.05, 1.2 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(exponents); i += BY_BUILD(1, 2, 2)) {
        const struct source source = { ZIPF, 1 << 18, exponents[i], 1, 256 };

        printf("Zipf %.2f\n", exponents[i]);
        predict(&source, 1, 1500000, MIB, ONE_TABLE, PART_FILLING);
    }
}

/* No row is left out: the sample holds them all. */
static void test_predicts_a_small_table(void **state)
{
    const struct source source = { ZIPF, 20000, 0.9, 1, 100 };

    (void)state;
    predict(&source, 1, 300000, MIB, ONE_TABLE / 4, PART_FILLING);
}

/* Uniform lookups, so few that most are the first of their row. */
static void test_counts_first_lookups(void **state)
{
    const struct source source = { ZIPF, 1 << 18, 0, 1, 4 };

    (void)state;
    predict(&source, 1, 150000, MIB, ONE_TABLE, PART);
}

static void test_predicts_a_mixture(void **state)
{
    const struct source sources[] = {
        { ZIPF, 1 << 17, 0.8, 0.5, 512 },
        { ZIPF, 1 << 18, 1.05, 0.3, 128 },
        { ZIPF, 3000, 1.2, 0.15, 256 },
        { ZIPF, 1 << 16, 0.6, 0.05, 1024 },
    };

    (void)state;
    predict(sources, ARRAY_LEN(sources), 1500000, 4 * MIB, EACH_TABLE, PART_FILLING);
}

static void test_predicts_one_scan(void **state)
{
    const struct source sources[] = {
        { ZIPF, 1 << 17, 1.05, 1, 256 },
        { ONE_SCAN, 1 << 17, 0, 0, 256 },
    };

    (void)state;
    predict(sources, ARRAY_LEN(sources), 1500000, 2 * MIB, ONE_TABLE, PART_SCAN);
}

static void test_predicts_a_loop_beside_others(void **state)
{
    const struct source sources[] = {
        { ZIPF, 1 << 17, 1.05, 0.7, 256 },
        { LOOP, 20000, 0, 0.3, 256 },
    };

    (void)state;
    predict(sources, ARRAY_LEN(sources), 1500000, 2 * MIB, EACH_TABLE, PART_LOOP);
}

/* Tables that get less than 1 MiB each. */
static void test_predicts_many_tables(void **state)
{
    struct source sources[CASE_TABLES];

    (void)state;
    for (uint32_t i = 0; i < CASE_TABLES; i++)
        sources[i] =
            (struct source){ ZIPF, 2000u << i % 7, 0.7 + i % 6 / 10.0,
                             (i + 1) / (CASE_TABLES * (CASE_TABLES + 1) / 2.0), 64u << i % 4 };
    predict(sources, CASE_TABLES, 1500000, CASE_TABLES * 300 * KIB, EACH_TABLE, PART);
}

static void test_refuses_bad_numbers(void **state)
{
    const struct trace_table table = { .rows = 9 };
    struct profile *profile = NULL;
    struct table_prediction prediction;
    struct err_msg msg;

    (void)state;
    assert_int_equal(profile_new(NULL, 0, GIB, &profile, &msg), EMBTIER_INVALID);
    assert_int_equal(profile_new(NULL, PROFILE_TABLES_MAX + 1, GIB, &profile, &msg),
                     EMBTIER_INVALID);
    assert_int_equal(profile_new(NULL, 1000, MIB, &profile, &msg), EMBTIER_TOO_LARGE);
    assert_int_equal(profile_new(&table, 1, MIB, &profile, &msg), EMBTIER_OK);
    for (int i = 0; i < 6; i++) {
        const double rows[] = { 8, 8, 8, 8, (double)NAN, -1 };
        const double bytes[] = { (double)NAN, -1, (double)INFINITY, 8, 8, 8 };
        const struct cache_tiers tiers = { i == 3 ? CACHE_TIERS_MAX + 1 : 1, { bytes[i] } };

        assert_int_equal(profile_predict(profile, &rows[i], &tiers, &prediction, &msg),
                         EMBTIER_INVALID);
    }
    /* A profile without lookups predicts no hits. */
    assert_int_equal(profile_predict(profile, (double[]){ 8 }, &(struct cache_tiers){ 1, { 100 } },
                                     &prediction, &msg),
                     EMBTIER_OK);
    assert_true(prediction.hit_rates[0] == 0 && prediction.bytes[0] == 0);
    profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_predicts_one_table),
        cmocka_unit_test(test_predicts_a_small_table),
        cmocka_unit_test(test_counts_first_lookups),
        cmocka_unit_test(test_predicts_a_mixture),
        cmocka_unit_test(test_predicts_one_scan),
        cmocka_unit_test(test_predicts_a_loop_beside_others),
        cmocka_unit_test(test_predicts_many_tables),
        cmocka_unit_test(test_refuses_bad_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
