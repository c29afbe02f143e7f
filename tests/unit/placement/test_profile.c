/* SPDX-License-Identifier: Apache-2.0 */
/* test_profile.c: are a table's figures and its access CDF those that counting every row gives? */
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

#include "placement/profile/profile.h"
#include "placement/synthetic/zipf.h"
#include "tests/unit/placement/chosen_rows.h"

/* Tables of @rows, 0: unbounded, with 1 MiB each. */
static struct profile *profile_of(uint32_t table_count, uint64_t rows)
{
    const struct trace_table tables[2] = { { .rows = rows }, { .rows = rows } };
    struct profile *profile = NULL;
    struct err_msg msg;

    assert_int_equal(profile_new(tables, table_count, table_count * MIB, &profile, &msg),
                     EMBTIER_OK);
    return profile;
}

static void add(struct profile *profile, uint64_t batch, uint32_t table, bool is_update,
                bool continues, uint32_t bags, uint32_t count, const uint64_t *ids)
{
    const struct trace_lookups lookups = { .batch = batch,
                                           .table = table,
                                           .is_update = is_update,
                                           .continues = continues,
                                           .bag_count = bags,
                                           .id_count = count,
                                           .ids = ids };

    assert_int_equal(profile_add(profile, &lookups), EMBTIER_OK);
}

static void test_counts_a_small_trace(void **state)
{
    _cleanup_(profile_freep) struct profile *profile = profile_of(2, 0);
    struct table_summary summary;
    struct access_cdf cdf;

    (void)state;
    add(profile, 10, 0, true, false, 2, 4, (uint64_t[]){ 5, 5, 7, UINT64_MAX });
    add(profile, 10, 0, true, true, 2, 2, (uint64_t[]){ 5, 8 });
    add(profile, 12, 0, false, false, 1, 3, (uint64_t[]){ 5, 0, 0 });
    summary = profile_summary(profile, 0);
    assert_int_equal(summary.lookups, 9);
    assert_int_equal(summary.batches, 2);
    assert_true(summary.rows == 5);
    assert_true(summary.batch_rows == 3);         /* 4 and 2 */
    assert_true(summary.updated_batch_rows == 2); /* 4 and 0 */
    assert_true(summary.sampling_rate == 1);
    assert_true(profile_pooling_factor(profile, 0) == 9.0 / 4);
    assert_int_equal(profile_batches(profile), 2);
    assert_int_equal(profile_lookups(profile), 9);
    assert_int_equal(profile_cdf(profile, 0, &cdf), EMBTIER_OK);
    assert_true(fabs(access_cdf_share(&cdf, 1) - 4.0 / 9) < 1e-9);
    assert_true(fabs(access_cdf_share(&cdf, 2) - 6.0 / 9) < 1e-9);
    assert_true(access_cdf_share(&cdf, 5) == 1 && access_cdf_share(&cdf, 1e9) == 1);
    assert_true(fabs(access_cdf_rows(&cdf, 4.0 / 9) - 1) < 1e-9);
    assert_true(fabs(access_cdf_rows(&cdf, 1) - 5) < 1e-9);
    /* Nothing was looked up in the other table. */
    assert_true(profile_summary(profile, 1).rows == 0);
    assert_true(profile_pooling_factor(profile, 1) == 0);
    assert_int_equal(profile_cdf(profile, 1, &cdf), EMBTIER_OK);
    assert_int_equal(cdf.point_count, 0);
    assert_true(access_cdf_share(&cdf, 5) == 0 && access_cdf_rows(&cdf, 0.5) == 0);
}

/* A batch may look a row up several times. It updates the row if one of these lookups does. */
static void test_one_updating_lookup_updates_a_row(void **state)
{
    _cleanup_(profile_freep) struct profile *profile = profile_of(2, 0);

    (void)state;
    for (uint64_t batch = 0; batch < 4; batch++)
        for (uint32_t table = 0; table < 2; table++) {
            add(profile, batch, table, table == 1, false, 1, 2, (uint64_t[]){ 7, batch });
            add(profile, batch, table, table == 0, false, 1, 2, (uint64_t[]){ 7, 7 });
        }
    assert_true(profile_summary(profile, 0).batch_rows == 2);
    assert_true(profile_summary(profile, 0).updated_batch_rows == 1);
    assert_true(profile_summary(profile, 1).batch_rows == 2);
    assert_true(profile_summary(profile, 1).updated_batch_rows == 2);
}

static void test_a_batch_may_look_up_nothing(void **state)
{
    _cleanup_(profile_freep) struct profile *profile = profile_of(1, 0);

    (void)state;
    add(profile, 0, 0, true, false, 7, 0, NULL);
    assert_int_equal(profile_summary(profile, 0).lookups, 0);
    assert_int_equal(profile_summary(profile, 0).batches, 0);
    assert_true(profile_pooling_factor(profile, 0) == 0);
}

/* ---- Against counts of every row ---- */

#define ROWS    (1u << 19)
#define LOOKUPS 1500000u
#define BATCH   5000u

struct counts {
    uint32_t *of_row;
    uint32_t *batch_of_row;
    uint64_t rows;
    double batch_rows, updated_batch_rows;
};

/* Every other batch updates its rows. */
static void count_batch(struct counts *counts, const uint64_t *ids, uint32_t batch)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        counts->rows += counts->of_row[ids[i]]++ == 0;
        if (counts->batch_of_row[ids[i]] == batch + 1)
            continue;
        counts->batch_of_row[ids[i]] = batch + 1;
        counts->batch_rows++;
        counts->updated_batch_rows += batch % 2;
    }
}

static int falling(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left < right) - (left > right);
}

static void assert_near(double got, double expected, double relative, const char *what)
{
    printf("  %s: %g, exactly %g\n", what, got, expected);
    assert_true(fabs(got - expected) <= relative * expected);
}

static void check_cdf(const struct profile *profile, struct counts *counts)
{
    struct access_cdf cdf;
    double sum = 0, worst = 0, last_slope = INFINITY;

    assert_int_equal(profile_cdf(profile, 0, &cdf), EMBTIER_OK);
    assert_true(cdf.point_count >= 50 && cdf.point_count <= ACCESS_CDF_POINTS_MAX);
    qsort(counts->of_row, ROWS, sizeof(*counts->of_row), falling);
    for (uint32_t row = 0; row < counts->rows; row++) {
        sum += counts->of_row[row];
        worst = MAX(worst, fabs(access_cdf_share(&cdf, row + 1) - sum / LOOKUPS));
    }
    printf("  CDF of %u points: the worst error is %.4f\n", cdf.point_count, worst);
    assert_true(worst < 0.015);
    for (uint32_t i = 0; i < cdf.point_count; i++) {
        const double rows = cdf.rows[i] - (i ? cdf.rows[i - 1] : 0);
        const double slope = (cdf.shares[i] - (i ? cdf.shares[i - 1] : 0)) / rows;

        assert_true(rows > 0 && slope >= 0 && slope <= last_slope * (1 + 1e-9));
        last_slope = slope;
        assert_true(fabs(access_cdf_share(&cdf, access_cdf_rows(&cdf, cdf.shares[i])) -
                         cdf.shares[i]) < 1e-9);
    }
    assert_true(cdf.shares[cdf.point_count - 1] == 1);
}

static void check_zipf(double exponent)
{
    _cleanup_(profile_freep) struct profile *profile = profile_of(1, 0);
    _cleanup_(freep) uint32_t *of_row = calloc(ROWS, sizeof(*of_row));
    _cleanup_(freep) uint32_t *batch_of_row = calloc(ROWS, sizeof(*batch_of_row));
    struct counts counts = { of_row, batch_of_row, 0, 0, 0 };
    const struct zipf zipf = zipf_make(ROWS, exponent);
    struct random random = { 3 };
    struct table_summary summary;
    uint64_t ids[BATCH];

    for (uint32_t batch = 0; batch < LOOKUPS / BATCH; batch++) {
        for (uint32_t i = 0; i < BATCH; i++)
            ids[i] = zipf_draw(&zipf, &random);
        count_batch(&counts, ids, batch);
        add(profile, batch, 0, batch % 2 == 1, false, BATCH, BATCH, ids);
    }
    summary = profile_summary(profile, 0);
    printf("Zipf %.2f, 1 of %.0f rows sampled\n", exponent, 1 / summary.sampling_rate);
    assert_true(summary.sampling_rate < 1);
    assert_near(summary.rows, (double)counts.rows, 0.02, "rows");
    assert_near(summary.batch_rows, counts.batch_rows * BATCH / LOOKUPS, 0.03, "rows a batch");
    assert_near(summary.updated_batch_rows, counts.updated_batch_rows * BATCH / LOOKUPS, 0.03,
                "updated");
    check_cdf(profile, &counts);
}

static void test_samples_of_large_tables_are_close(void **state)
{
    (void)state;
    check_zipf(0);
    check_zipf(0.8);
    check_zipf(1.05);
    check_zipf(1.2);
}

/* A full sample loses an eighth of its rows at a time, and not often a quarter. */
static void test_the_rate_falls_by_an_eighth(void **state)
{
    enum { ROWS_MAX = TABLE_PROFILE_SLOTS_MAX / 4 * 3 };
    static const double rates[] = { 1, 7.0 / 8, 49.0 / 64 };

    (void)state;
    for (uint64_t seed = PROFILE_SEED; seed != PROFILE_SEED * 17; seed += PROFILE_SEED) {
        struct table_profile profile;
        uint64_t row = 0;

        table_profile_init(&profile, TABLE_PROFILE_SLOTS_MAX, 0, seed);
        for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
            assert_true(fabs(table_profile_summary(&profile).sampling_rate - rates[i]) < 1e-9);
            for (; row < ROWS_MAX / rates[i] * 1.02; row++) {
                const struct table_moment moment = { .time = row + 1 };

                assert_int_equal(table_profile_add(&profile, &row, 1, &moment), EMBTIER_OK);
            }
        }
        table_profile_clear(&profile);
    }
}

/* Numbers that are saved with nine digits must still rise. */
static void test_points_of_a_cdf_differ(void **state)
{
    static const struct {
        uint32_t count;
        struct access_group groups[3];
    } cases[] = {
        /* One row takes the curve over the next fiftieth of the lookups. */
        { 3, { { 1e9, 1 }, { 1, 0.9 }, { 49e10 + 241, 0.1 } } },
        { 2, { { 1e9, 1 }, { 1, 0.9 } } },
        { 3, { { 1, 5 }, { 0, 0 }, { 0, 0 } } },
        { 3, { { 1, 5 }, { 1e-17, 1 }, { 1e-17, 1 } } },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct access_group groups[3];
        struct access_cdf cdf;

        memcpy(groups, cases[i].groups, sizeof(groups));
        access_cdf_make(groups, cases[i].count, &cdf);
        assert_true(cdf.point_count >= 1 && cdf.shares[cdf.point_count - 1] == 1);
        for (uint32_t k = 1; k < cdf.point_count; k++)
            assert_true(cdf.rows[k] > cdf.rows[k - 1] * (1 + 1e-8));
    }
}

/* Estimates of different rows do not exceed the rows that a table has. */
static void test_finds_no_more_rows_than_there_are(void **state)
{
    enum { COUNT = 20, FEW_ROWS = 1000 };
    struct random random = { 17 };

    (void)state;
    for (uint64_t seed = 0; seed < COUNT; seed++) {
        struct table_profile profile;
        struct table_summary summary;
        struct access_cdf cdf;

        table_profile_init(&profile, TABLE_PROFILE_SLOTS_MIN, FEW_ROWS, PROFILE_SEED * seed);
        for (uint64_t time = 1; time <= 20 * FEW_ROWS; time++) {
            const uint64_t row = random_below(&random, FEW_ROWS);
            const struct table_moment moment = { time, time / (10 * FEW_ROWS), true };

            assert_int_equal(table_profile_add(&profile, &row, 1, &moment), EMBTIER_OK);
        }
        summary = table_profile_summary(&profile);
        assert_true(summary.sampling_rate < 1);
        assert_true(summary.rows <= FEW_ROWS && summary.rows >= FEW_ROWS * 0.9);
        assert_true(summary.batch_rows <= summary.rows);
        assert_int_equal(table_profile_cdf(&profile, &cdf), EMBTIER_OK);
        assert_true(cdf.rows[cdf.point_count - 1] <= FEW_ROWS * (1 + 1e-9));
        table_profile_clear(&profile);
    }
}

/* Draws of ranks have the probabilities that the distribution says. */
static void test_zipf_is_exact(void **state)
{
    static const double exponents[] = { 0, 0.5, 1, 1.2, 3 };
    enum { RANKS = 20, DRAWS = 400000 };

    (void)state;
    for (size_t e = 0; e < ARRAY_LEN(exponents); e++) {
        const struct zipf zipf = zipf_make(RANKS, exponents[e]);
        struct random random = { 11 };
        uint32_t counts[RANKS] = { 0 };
        double all = 0;

        for (uint32_t i = 0; i < DRAWS; i++)
            counts[zipf_draw(&zipf, &random)]++;
        for (uint32_t rank = 1; rank <= RANKS; rank++)
            all += pow(rank, -exponents[e]);
        for (uint32_t rank = 1; rank <= RANKS; rank++) {
            const double expected = DRAWS * pow(rank, -exponents[e]) / all;

            assert_true(fabs(counts[rank - 1] - expected) <= 5 * sqrt(expected) + 1);
        }
    }
}

/* ---- Hostile traces ---- */

/* Rows of which all would be sampled at any rate, and all lie in one slot if slots were not random:
 * the figures are wrong, but possible. */
static void test_chosen_rows_do_no_harm(void **state)
{
    enum { COUNT = 200000 };
    struct table_profile profile;
    struct table_summary summary;
    struct access_cdf cdf;

    (void)state;
    table_profile_init(&profile, TABLE_PROFILE_SLOTS_MAX, 0, 5);
    for (uint64_t i = 0; i < COUNT; i++) {
        const uint64_t row = row_of_hash(5, i << 15);
        const struct table_moment moment = { .time = i + 1, .batch = i / 1000, .is_update = true };

        assert_int_equal(tracked_rows_hash(5, row), i << 15);
        assert_int_equal(table_profile_add(&profile, &row, 1, &moment), EMBTIER_OK);
    }
    summary = table_profile_summary(&profile);
    assert_true(summary.rows >= 1 && summary.rows <= COUNT);
    assert_true(summary.batch_rows >= 0 && summary.batch_rows <= 1000);
    assert_true(summary.updated_batch_rows <= summary.batch_rows);
    assert_int_equal(table_profile_cdf(&profile, &cdf), EMBTIER_OK);
    for (uint32_t i = 0; i < cdf.point_count; i++)
        assert_true(isfinite(cdf.rows[i]) && cdf.shares[i] >= 0 && cdf.shares[i] <= 1);
    table_profile_clear(&profile);
}

/* The sum of all parts stays below the limit, and each table's part below 1 MiB. */
static void test_memory_is_bounded(void **state)
{
    (void)state;
    assert_true(table_profile_bytes(TABLE_PROFILE_SLOTS_MAX) < MIB);
    assert_true(table_profile_bytes(TABLE_PROFILE_SLOTS_MIN) * PROFILE_TABLES_MAX <
                PROFILE_MEMORY_BYTES_DEFAULT);
}

static void test_histogram_bins_cover_all_times(void **state)
{
    struct time_histogram histogram = { { 0 } };
    struct time_curve curve;

    (void)state;
    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++) {
        const uint64_t begin = time_histogram_begin(bin), end = time_histogram_begin(bin + 1);

        assert_true(begin < end);
        assert_true(begin < TIME_HISTOGRAM_STEPS || (end - begin) * TIME_HISTOGRAM_STEPS <= begin);
        time_histogram_add(&histogram, begin, 1);
        time_histogram_add(&histogram, end - 1, 1);
        assert_true(histogram.weights[bin] == 2);
    }
    time_curve_make(&histogram, &curve);
    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
        assert_true(time_curve_up_to(&curve, (double)time_histogram_begin(bin + 1) - 1) ==
                    2.0 * (bin + 1));
    assert_true(time_curve_up_to(&curve, -1) == 0 && time_curve_sum(&curve, 0) == 0);
    assert_true(time_curve_sum(&curve, 1) == 2 * TIME_HISTOGRAM_BINS - 2); /* all but 0 */
    assert_true(time_curve_sum(&curve, 2) == 2 * (2 * TIME_HISTOGRAM_BINS - 4) + 2);
    time_histogram_add(&histogram, UINT64_MAX, 1);
    assert_true(histogram.weights[TIME_HISTOGRAM_BINS - 1] == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_a_small_trace),
        cmocka_unit_test(test_one_updating_lookup_updates_a_row),
        cmocka_unit_test(test_a_batch_may_look_up_nothing),
        cmocka_unit_test(test_samples_of_large_tables_are_close),
        cmocka_unit_test(test_the_rate_falls_by_an_eighth),
        cmocka_unit_test(test_points_of_a_cdf_differ),
        cmocka_unit_test(test_finds_no_more_rows_than_there_are),
        cmocka_unit_test(test_zipf_is_exact),
        cmocka_unit_test(test_chosen_rows_do_no_harm),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_histogram_bins_cover_all_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
