/* SPDX-License-Identifier: Apache-2.0 */
/* test_steady.c: are hit rates that are predicted for a server that has long run those of an exact
 * LRU cache that was full before the trace began? */
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
#include "tests/unit/placement/exact_lru.h"
#include "tests/unit/placement/profile_fixture.h"

#define TABLES  3
#define CHUNK   1000
#define BEFORE  1500 /* chunks before the trace */
#define TRACE   400
#define SIZES   6
#define OLD     4 /* sizes whose rows leave before they are as old as the trace */
#define ALLOWED 0.01
/* Larger ones have rows older than the trace, of which only the mean age is known. */
#define ALLOWED_LARGE 0.02

struct source {
    uint32_t rows;
    double exponent;
    uint32_t lookups; /* of each chunk */
    double row_bytes;
    bool is_scan; /* its rows are looked up in turn, each once, in the middle of the trace */
};

struct world {
    const struct source *sources;
    struct zipf zipfs[TABLES];
    uint32_t bases[TABLES + 1];
    uint32_t scanned;
    struct exact_lru lrus[SIZES];
    struct profile *profile; /* NULL: before the trace */
    struct random random;
};

static void look_up(struct world *w, uint32_t table, uint32_t count, uint64_t batch)
{
    const struct source *const source = &w->sources[table];
    uint64_t ids[CHUNK];

    for (uint32_t i = 0; i < count; i++) {
        ids[i] =
            source->is_scan
                ? w->scanned++ % source->rows
                : (uint32_t)(zipf_draw(&w->zipfs[table], &w->random) * 2654435761u % source->rows);
        for (uint32_t k = 0; k < SIZES; k++)
            exact_lru_lookup(&w->lrus[k], table, w->bases[table] + (uint32_t)ids[i]);
    }
    if (w->profile)
        add_bag(w->profile, batch, table, ids, count);
}

static bool has_lookups(const struct source *source, const struct world *w, uint64_t batch)
{
    return source->lookups > 0 &&
           (!source->is_scan || (w->profile && batch > BEFORE + TRACE / 2 &&
                                 w->scanned + source->lookups <= source->rows));
}

static void run(struct world *w, uint64_t from, uint64_t to)
{
    for (uint64_t batch = from; batch < to; batch++)
        for (uint32_t table = 0; table < TABLES; table++)
            if (has_lookups(&w->sources[table], w, batch))
                look_up(w, table, w->sources[table].lookups, batch);
}

static void world_init(struct world *w, const struct source *sources)
{
    static const double shares[SIZES] = { 0.01, 0.05, 0.2, 0.35, 0.7, 1 };
    double bytes = 0;

    *w = (struct world){ .sources = sources, .random = { 11 } };
    for (uint32_t i = 0; i < TABLES; i++) {
        w->bases[i + 1] = w->bases[i] + sources[i].rows;
        w->zipfs[i] = zipf_make(sources[i].rows, sources[i].exponent);
        bytes += sources[i].rows * sources[i].row_bytes;
    }
    for (uint32_t k = 0; k < SIZES; k++) {
        const double half = bytes * shares[k] / 2;

        exact_lru_init(&w->lrus[k], w->bases[TABLES], (double[]){ half, half });
        for (uint32_t i = 0; i < TABLES; i++)
            w->lrus[k].row_bytes[i] = sources[i].row_bytes;
    }
}

static void predict(const struct measured_profile *measured, const struct exact_lru *lru,
                    double *ret_hits)
{
    const struct cache_tiers tiers = { LRU_TIERS, { lru->bytes[0], lru->bytes[1] } };
    struct table_prediction predicted[TABLES];
    double bytes = 0;
    struct err_msg msg;

    assert_int_equal(measured_profile_predict(measured, lru->row_bytes, &tiers, predicted, &msg),
                     EMBTIER_OK);
    for (uint32_t i = 0; i < TABLES; i++) {
        ret_hits[i] = predicted[i].hit_rates[0] + predicted[i].hit_rates[1];
        bytes += predicted[i].bytes[0] + predicted[i].bytes[1];
    }
    assert_true(bytes <= (lru->bytes[0] + lru->bytes[1]) * 1.001);
}

static double lookups_of(const struct measured_table *table)
{
    double lookups = 0;

    for (uint32_t i = 0; i < REUSE_SEGMENTS_MAX; i++)
        lookups += table->first[i];
    for (uint32_t i = 0; i < table->bin_count; i++)
        lookups += table->bins[i].lookups;
    return lookups;
}

/* Makes the profile steady, and compares both predictions with the cache. Returns the largest error
 * of the profile of the trace alone. */
static double compare(struct world *w, struct measured_profile *measured,
                      uint64_t (*before)[TABLES][3], uint32_t sizes)
{
    double cold[SIZES][TABLES], warm[TABLES], lookups[TABLES], worst_cold = 0;
    struct err_msg msg;

    for (uint32_t k = 0; k < SIZES; k++)
        predict(measured, &w->lrus[k], cold[k]);
    for (uint32_t i = 0; i < TABLES; i++)
        lookups[i] = lookups_of(&measured->tables[i]);
    for (uint32_t twice = 0; twice < 2; twice++) /* the second time changes nothing */
        assert_int_equal(measured_profile_make_steady(measured, &msg), EMBTIER_OK);
    for (uint32_t i = 0; i < TABLES; i++)
        assert_true(fabs(lookups_of(&measured->tables[i]) - lookups[i]) <= lookups[i] * 1e-4);
    for (uint32_t k = 0; k < sizes; k++) {
        const struct exact_lru *const lru = &w->lrus[k];

        predict(measured, lru, warm);
        for (uint32_t i = 0; i < TABLES; i++) {
            const double count = (double)(lru->lookups[i] - before[k][i][2]);
            const double exact =
                (double)(lru->hits[i][0] - before[k][i][0] + lru->hits[i][1] - before[k][i][1]) /
                MAX(count, 1.0);

            if (count == 0)
                continue;
            printf("  table %u, %.0f bytes: exact %.4f, of the trace alone %.4f, steady %.4f\n", i,
                   2 * lru->bytes[0], exact, cold[k][i], warm[i]);
            if (k + 1 < SIZES)
                assert_true(fabs(warm[i] - exact) <= (k < OLD ? ALLOWED : ALLOWED_LARGE));
            else /* all rows fit; some are looked up for the first time ever in the trace */
                assert_true(warm[i] >= MAX(exact - ALLOWED, 1 - ALLOWED));
            worst_cold = MAX(worst_cold, fabs(cold[k][i] - exact));
        }
    }
    return worst_cold;
}

static double compare_sources(const struct source *sources, uint32_t sizes)
{
    uint64_t before[SIZES][TABLES][3];
    struct trace_table tables[TABLES] = { 0 };
    struct measured_profile *measured;
    struct world w;
    struct err_msg msg;
    double error;

    world_init(&w, sources);
    for (uint32_t i = 0; i < TABLES; i++)
        tables[i].rows = sources[i].rows;
    run(&w, 0, BEFORE);
    for (uint32_t k = 0; k < SIZES; k++)
        for (uint32_t i = 0; i < TABLES; i++) {
            before[k][i][0] = w.lrus[k].hits[i][0];
            before[k][i][1] = w.lrus[k].hits[i][1];
            before[k][i][2] = w.lrus[k].lookups[i];
        }
    assert_int_equal(profile_new(tables, TABLES, TABLES * MIB, &w.profile, &msg), EMBTIER_OK);
    run(&w, BEFORE, BEFORE + TRACE);
    assert_int_equal(measured_profile_make(w.profile, tables, &measured), EMBTIER_OK);
    error = compare(&w, measured, before, sizes);
    measured_profile_free(measured);
    profile_free(w.profile);
    for (uint32_t k = 0; k < SIZES; k++)
        exact_lru_free(&w.lrus[k]);
    return error;
}

/* Each time the trace alone is far off, as its cache starts empty. */
static void test_a_full_cache_is_predicted(void **state)
{
    static const struct source mixtures[][TABLES] = {
        { { 1 << 16, 0.8, 1000, 256, false }, { 1, 0, 0, 1, false }, { 1, 0, 0, 1, false } },
        { { 1 << 17, 1.05, 1000, 256, false }, { 1, 0, 0, 1, false }, { 1, 0, 0, 1, false } },
        { { 1 << 16, 1.2, 500, 256, false },
          { 1 << 15, 0.8, 400, 512, false },
          { 1 << 10, 0.5, 100, 64, false } },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(mixtures); i++) {
        printf("mixture %zu\n", i);
        assert_true(compare_sources(mixtures[i], SIZES) > 1.5 * ALLOWED);
    }
}

/* Rows that are looked up for the first time in the middle of the trace have no reuse time, so
 * nothing is made up for them. */
static void test_a_scan_stays_one(void **state)
{
    static const struct source sources[TABLES] = { { 1 << 16, 1.05, 1000, 256, false },
                                                   { 1 << 14, 0, 500, 256, true },
                                                   { 1, 0, 0, 1, false } };

    (void)state;
    compare_sources(sources, OLD);
}

static void add(struct profile *profile, uint32_t table, uint64_t batch, uint64_t rows)
{
    uint64_t ids[CHUNK];

    for (uint32_t i = 0; i < CHUNK; i++)
        ids[i] = i % rows;
    add_bag(profile, batch, table, ids, CHUNK);
}

/* An unbounded table that is looked up only in the first segment stays as it was: it is not known
 * when its rows would come again. */
static void test_without_later_lookups_nothing_is_known(void **state)
{
    const struct trace_table tables[] = { { .rows = EMBTIER_UNBOUNDED }, { .rows = CHUNK } };
    struct measured_profile *measured;
    struct profile *profile;
    struct err_msg msg;
    double reused = 0;

    (void)state;
    assert_int_equal(profile_new(tables, 2, 2 * MIB, &profile, &msg), EMBTIER_OK);
    add(profile, 0, 0, CHUNK / 2);
    for (uint64_t batch = 1; batch < 100; batch++)
        add(profile, 1, batch, CHUNK);
    assert_int_equal(measured_profile_make(profile, tables, &measured), EMBTIER_OK);
    assert_int_equal(measured_profile_make_steady(measured, &msg), EMBTIER_OK);
    assert_true(measured->segment_count > 8);
    assert_true(fabs(measured->tables[0].first[0] - CHUNK / 2.0) < 0.001);
    for (uint32_t i = 0; i < measured->tables[0].bin_count; i++)
        reused += measured->tables[0].bins[i].lookups;
    assert_true(fabs(reused - CHUNK / 2.0) < 0.001);
    /* All rows of the other table come again after so many lookups. */
    for (uint32_t i = 0; i < measured->segment_count; i++)
        assert_true(measured->tables[1].first[i] < 1);
    measured_profile_free(measured);
    profile_free(profile);
}

/* Half of the rows have one lookup each, so they come again after twice the trace in the mean. A
 * cache that holds all rows misses none. */
static void test_rows_that_are_seen_once_come_again(void **state)
{
    const struct trace_table table = { .rows = 2 * CHUNK };
    const double row_bytes = 100;
    const struct cache_tiers all = { 1, { 2 * CHUNK * row_bytes * 1.001 } };
    const struct cache_tiers few = { 1, { CHUNK * row_bytes / 10 } };
    struct table_prediction predicted;
    struct measured_profile *measured;
    struct profile *profile;
    double time = 0, lookups = 0;
    struct err_msg msg;

    (void)state;
    assert_int_equal(profile_new(&table, 1, MIB, &profile, &msg), EMBTIER_OK);
    add(profile, 0, 0, CHUNK);
    assert_int_equal(measured_profile_make(profile, &table, &measured), EMBTIER_OK);
    assert_int_equal(measured_profile_make_steady(measured, &msg), EMBTIER_OK);
    for (uint32_t i = 0; i < measured->segment_count; i++)
        assert_true(measured->tables[0].first[i] == 0);
    for (uint32_t i = 0; i < measured->tables[0].bin_count; i++) {
        const struct measured_bin *const bin = &measured->tables[0].bins[i];

        time += bin->lookups * (double)time_histogram_begin(bin->bin);
        lookups += bin->lookups;
    }
    assert_true(fabs(lookups - CHUNK) < 0.01);
    assert_true(fabs(time / lookups - 2 * CHUNK) < 0.1 * 2 * CHUNK);
    assert_int_equal(measured_profile_predict(measured, &row_bytes, &all, &predicted, &msg), 0);
    assert_true(predicted.hit_rates[0] > 0.999);
    assert_int_equal(measured_profile_predict(measured, &row_bytes, &few, &predicted, &msg), 0);
    assert_true(predicted.hit_rates[0] < 0.01);
    measured_profile_free(measured);
    profile_free(profile);
}

/* Segments may be far longer than the trace, as in a file that was written by hand. */
static void test_segments_longer_than_the_trace(void **state)
{
    struct measured_table table = { .bin_count = 1, .bins = calloc(1, sizeof(*table.bins)) };
    struct measured_profile measured = { .lookups = 100,
                                         .segment_length = INT64_MAX,
                                         .segment_count = REUSE_SEGMENTS_MAX,
                                         .table_count = 1,
                                         .tables = &table };
    struct err_msg msg;

    (void)state;
    table.bins[0] = (struct measured_bin){ .segment = 1, .bin = 5, .lookups = 25 };
    table.first[1] = 25;
    table.first[REUSE_SEGMENTS_MAX - 1] = 10;
    assert_int_equal(measured_profile_make_steady(&measured, &msg), EMBTIER_OK);
    /* The trace is as old as all of it, so no first lookup there has a time of 5. */
    assert_true(fabs(table.first[REUSE_SEGMENTS_MAX - 1] - 10) < 1e-6);
    assert_int_equal(table.bin_count, 1);
    free(table.bins);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_full_cache_is_predicted),
        cmocka_unit_test(test_a_scan_stays_one),
        cmocka_unit_test(test_without_later_lookups_nothing_is_known),
        cmocka_unit_test(test_rows_that_are_seen_once_come_again),
        cmocka_unit_test(test_segments_longer_than_the_trace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
