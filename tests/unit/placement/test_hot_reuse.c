/* SPDX-License-Identifier: Apache-2.0 */
/* test_hot_reuse.c: are hit rates of a cache from which the hottest rows were taken those of an
 * exact LRU cache that sees the other lookups only? Within three points of the lookups that are
 * left, four where lookups come after the trace, and nearer the more are left. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/profile/hot_reuse.h"
#include "placement/profile/steady.h"
#include "placement/synthetic/zipf.h"
#include "tests/unit/placement/exact_lru.h"
#include "tests/unit/placement/profile_fixture.h"

#define TABLES         2
#define LOOKUPS        600000
#define CHUNK          500
#define ALLOWED        0.03
#define ALLOWED_COMING 0.04
#define POINTS         64
#define CUTS           6

struct source {
    uint32_t rows;
    double exponent;
    double share; /* of the lookups */
    double row_bytes;
};

static const struct source sources[TABLES] = { { 1 << 16, 0.9, 0.6, 256 },
                                               { 1 << 15, 1.2, 0.4, 512 } };

/* A trace of both tables, and as many lookups that come after it. Rows are numbered by their
 * lookups in the trace, from 0 on for the hottest. */
struct trace {
    uint8_t tables[2 * LOOKUPS];
    uint32_t rows[2 * LOOKUPS];
    struct measured_profile *profile;
};

struct counted {
    uint32_t row, lookups;
};

static int compare_counts(const void *a, const void *b)
{
    const struct counted *const left = a, *const right = b;

    if (left->lookups != right->lookups)
        return left->lookups < right->lookups ? 1 : -1;
    return left->row < right->row ? -1 : 1;
}

/* Gives the rows of a table their numbers. */
static void sort_rows(struct trace *trace, uint32_t table)
{
    const uint32_t rows = sources[table].rows;
    _cleanup_(freep) struct counted *counts = calloc(rows, sizeof(*counts));
    _cleanup_(freep) uint32_t *numbers = calloc(rows, sizeof(*numbers));

    assert_true(counts && numbers);
    for (uint32_t i = 0; i < rows; i++)
        counts[i].row = i;
    for (uint32_t i = 0; i < LOOKUPS; i++)
        if (trace->tables[i] == table)
            counts[trace->rows[i]].lookups++;
    qsort(counts, rows, sizeof(*counts), compare_counts);
    for (uint32_t i = 0; i < rows; i++)
        numbers[counts[i].row] = i;
    for (uint32_t i = 0; i < 2 * LOOKUPS; i++)
        if (trace->tables[i] == table)
            trace->rows[i] = numbers[trace->rows[i]];
}

static struct trace *draw_trace(void)
{
    struct trace *const trace = calloc(1, sizeof(*trace));
    struct trace_table tables[TABLES] = { { .name = "a", .rows = sources[0].rows },
                                          { .name = "b", .rows = sources[1].rows } };
    _cleanup_(profile_freep) struct profile *profile = NULL;
    struct random random = { 11 };
    struct zipf zipfs[TABLES];
    uint64_t ids[CHUNK];
    struct err_msg msg;
    uint32_t at = 0;

    assert_non_null(trace);
    assert_int_equal(profile_new(tables, TABLES, TABLES * MIB, &profile, &msg), EMBTIER_OK);
    for (uint32_t t = 0; t < TABLES; t++)
        zipfs[t] = zipf_make(sources[t].rows, sources[t].exponent);
    for (uint32_t batch = 0; batch < 2 * LOOKUPS / CHUNK; batch++)
        for (uint32_t t = 0; t < TABLES; t++) {
            const uint32_t count = (uint32_t)(sources[t].share * CHUNK);

            for (uint32_t i = 0; i < count; i++, at++) {
                ids[i] = zipf_draw(&zipfs[t], &random);
                trace->tables[at] = (uint8_t)t;
                trace->rows[at] = (uint32_t)ids[i];
            }
            if (at <= LOOKUPS)
                add_bag(profile, batch, t, ids, count);
        }
    for (uint32_t t = 0; t < TABLES; t++)
        sort_rows(trace, t);
    assert_int_equal(measured_profile_make(profile, tables, &trace->profile), EMBTIER_OK);
    return trace;
}

static void free_trace(struct trace *trace)
{
    measured_profile_free(trace->profile);
    free(trace);
}

/* The tables without their hottest rows. */
struct rest {
    const struct measured_profile *profile;
    struct reuse_left left[TABLES];
};

static void get_rest(const void *context, uint32_t table, struct reuse_times *ret_times)
{
    const struct rest *const rest = context;

    measured_profile_reuse_left(rest->profile, table, &rest->left[table], ret_times);
}

static void play(const struct trace *trace, uint32_t from, const uint32_t *hot,
                 struct exact_lru *lru)
{
    for (uint32_t i = from; i < from + LOOKUPS; i++)
        if (trace->rows[i] >= hot[trace->tables[i]])
            exact_lru_lookup(lru, trace->tables[i],
                             trace->rows[i] + (trace->tables[i] ? sources[0].rows : 0));
}

/* Returns the worst error of a hit rate without the @hot hottest rows of each table. */
static double compare(const struct trace *trace, struct hot_reuse *const *hots, const uint32_t *hot,
                      double bytes)
{
    const double row_bytes[TABLES] = { sources[0].row_bytes, sources[1].row_bytes };
    const struct cache_tiers tiers = { LRU_TIERS, { bytes / 2, bytes / 2 } };
    struct rest rest = { .profile = trace->profile };
    const struct reuse_source source = { TABLES, get_rest, &rest };
    struct table_prediction predicted[TABLES];
    struct exact_lru lru;
    double worst = 0;

    exact_lru_init(&lru, sources[0].rows + sources[1].rows, tiers.bytes);
    for (uint32_t t = 0; t < TABLES; t++) {
        lru.row_bytes[t] = row_bytes[t];
        hot_reuse_left(hots[t], hot[t], &rest.left[t]);
    }
    play(trace, 0, hot, &lru);
    if (trace->profile->is_steady) { /* coming lookups find a full cache */
        memset(lru.hits, 0, sizeof(lru.hits));
        memset(lru.lookups, 0, sizeof(lru.lookups));
        play(trace, LOOKUPS, hot, &lru);
    }
    assert_int_equal(predict_shared_cache(&source, row_bytes, &tiers, predicted, NULL), EMBTIER_OK);
    for (uint32_t t = 0; t < TABLES; t++) {
        const double lookups = (double)MAX(lru.lookups[t], UINT64_C(1));

        printf("  %u without %u rows: %.3f of the lookups left, %.3f expected;", t, hot[t],
               lookups / (LOOKUPS * sources[t].share), rest.left[t].lookups);
        assert_true(fabs(lookups / (LOOKUPS * sources[t].share) - rest.left[t].lookups) < ALLOWED);
        for (uint32_t k = 0; k < LRU_TIERS; k++) {
            const double exact = (double)lru.hits[t][k] / lookups;

            printf(" %.4f predicted, %.4f exact;", predicted[t].hit_rates[k], exact);
            worst = fmax(worst, fabs(predicted[t].hit_rates[k] - exact));
        }
        printf("\n");
    }
    exact_lru_free(&lru);
    return worst;
}

static void compare_with_an_exact_cache(const struct trace *trace)
{
    static const double shares[] = { 0.02, 0.1, 0.4 };
    static const uint32_t hots_of[CUTS][TABLES] = { { 0, 0 },    { 60, 0 },      { 600, 300 },
                                                    { 0, 3000 }, { 6000, 3000 }, { 30000, 100 } };
    struct hot_reuse *hots[TABLES] = { NULL };
    double worst = 0;

    for (uint32_t t = 0; t < TABLES; t++)
        assert_int_equal(hot_reuse_new(trace->profile, t, POINTS, &hots[t]), EMBTIER_OK);
    for (size_t i = 0; i < CUTS; i++)
        for (size_t k = 0; k < ARRAY_LEN(shares); k++) {
            const double all =
                sources[0].rows * sources[0].row_bytes + sources[1].rows * sources[1].row_bytes;
            const double error = compare(trace, hots, hots_of[i], shares[k] * all);

            printf("%.3f of all bytes: the worst error is %.4f\n", shares[k], error);
            worst = fmax(worst, error);
        }
    assert_true(worst <= (trace->profile->is_steady ? ALLOWED_COMING : ALLOWED));
    for (uint32_t t = 0; t < TABLES; t++)
        hot_reuse_free(hots[t]);
}

static void test_hit_rates_without_hot_rows_are_those_of_an_exact_cache(void **state)
{
    struct trace *const trace = draw_trace();

    (void)state;
    compare_with_an_exact_cache(trace);
    free_trace(trace);
}

static void test_the_same_for_a_cache_that_has_long_been_full(void **state)
{
    struct trace *const trace = draw_trace();
    struct err_msg msg;

    (void)state;
    assert_int_equal(measured_profile_make_steady(trace->profile, &msg), EMBTIER_OK);
    compare_with_an_exact_cache(trace);
    free_trace(trace);
}

/* Nothing is left of any bin without all rows, all is with all, and less with each more. */
static void test_what_is_left_never_grows_and_adds_up(void **state)
{
    struct trace *const trace = draw_trace();

    (void)state;
    for (uint32_t t = 0; t < TABLES; t++) {
        _cleanup_(hot_reuse_freep) struct hot_reuse *hot = NULL;
        const struct measured_table *const table = &trace->profile->tables[t];
        struct reuse_left before, left;
        double all, rows;

        assert_int_equal(hot_reuse_new(trace->profile, t, POINTS, &hot), EMBTIER_OK);
        assert_int_equal(hot->cdf.point_count, POINTS);
        all = hot->cdf.rows[POINTS - 1];
        hot_reuse_left(hot, 0, &before);
        assert_true(before.lookups == 1 && before.batch_rows == 1);
        for (uint32_t step = 1; step <= 500; step++) {
            double lookups = 0;

            rows = all * pow(step / 500.0, 4);
            hot_reuse_left(hot, rows, &left);
            for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
                assert_true(left.bins[bin] >= 0 && left.bins[bin] <= before.bins[bin]);
            for (uint32_t i = 0; i < trace->profile->segment_count; i++) {
                assert_true(left.firsts[i] >= 0 && left.firsts[i] <= before.firsts[i]);
                lookups += table->first[i] * left.firsts[i];
            }
            assert_true(left.batch_rows <= before.batch_rows);
            for (uint32_t i = 0; i < table->bin_count; i++)
                lookups += table->bins[i].lookups * left.bins[table->bins[i].bin];
            assert_true(fabs(lookups / (double)table->summary.lookups - left.lookups) < 0.01);
            before = left;
        }
        assert_true(left.lookups == 0 && left.batch_rows == 0);
        for (uint32_t i = 0; i < table->bin_count; i++)
            assert_true(left.bins[table->bins[i].bin] == 0);
    }
    free_trace(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hit_rates_without_hot_rows_are_those_of_an_exact_cache),
        cmocka_unit_test(test_the_same_for_a_cache_that_has_long_been_full),
        cmocka_unit_test(test_what_is_left_never_grows_and_adds_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
