/* SPDX-License-Identifier: Apache-2.0 */
/* test_coming_lookups.c: which share of the coming lookups do the rows take that were hottest in a
 * trace? The true share is known, as each lookup is drawn from known probabilities. */
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

#include "base/macros.h"
#include "placement/profile/steady.h"
#include "placement/synthetic/zipf.h"
#include "tests/unit/placement/profile_fixture.h"

#define CHUNK   1000
#define ALLOWED 0.02

struct source {
    uint64_t rows; /* that lookups are drawn from */
    double exponent;
    uint32_t chunks;
    bool is_unbounded;
    double past_error; /* at least, of the curve of past lookups */
};

/* Rows by past lookups. Ties are in random order. */
struct world {
    const struct source *source;
    uint64_t *keys; /* lookups, then a random number, then the row */
    double *shares; /* true ones of the lookups, by row */
    uint32_t seen;  /* rows */
};

static int compare(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left < right) - (left > right);
}

static void world_init(struct world *w, const struct source *source)
{
    double sum = 0;

    *w = (struct world){ .source = source,
                         .keys = calloc(source->rows, sizeof(*w->keys)),
                         .shares = calloc(source->rows, sizeof(*w->shares)) };
    assert_true(w->keys && w->shares);
    for (uint64_t i = 0; i < source->rows; i++)
        sum += w->shares[i] = pow((double)i + 1, -source->exponent);
    for (uint64_t i = 0; i < source->rows; i++)
        w->shares[i] /= sum;
}

static void world_free(struct world *w)
{
    free(w->keys);
    free(w->shares);
}

/* Draws the lookups, and returns their profile. */
static struct measured_profile *measure(struct world *w, const struct trace_table *table)
{
    const struct zipf zipf = zipf_make(w->source->rows, w->source->exponent);
    struct random random = { 5 };
    struct measured_profile *measured;
    struct profile *profile;
    struct err_msg msg;
    uint64_t ids[CHUNK];

    assert_int_equal(profile_new(table, 1, MIB, &profile, &msg), EMBTIER_OK);
    for (uint32_t i = 0; i < w->source->chunks; i++) {
        for (uint32_t k = 0; k < CHUNK; k++) {
            ids[k] = zipf_draw(&zipf, &random);
            w->keys[ids[k]] += UINT64_C(1) << 44;
        }
        add_bag(profile, i, 0, ids, CHUNK);
    }
    assert_int_equal(measured_profile_make(profile, table, &measured), EMBTIER_OK);
    profile_free(profile);
    for (uint64_t i = 0; i < w->source->rows; i++) {
        w->seen += w->keys[i] > 0;
        w->keys[i] |= random_below(&random, 1 << 20) << 24 | i;
    }
    qsort(w->keys, w->source->rows, sizeof(*w->keys), compare);
    return measured;
}

/* Returns the true share of the @rows hottest rows. */
static double true_share(const struct world *w, uint32_t rows)
{
    double share = 0;

    for (uint32_t i = 0; i < rows; i++)
        share += w->shares[w->keys[i] & ((1 << 24) - 1)];
    return share;
}

static double worst_error(const struct world *w, const struct access_cdf *cdf)
{
    static const double parts[] = { 0.01, 0.05, 0.1, 0.2, 0.5, 0.9, 1 };
    double worst = 0;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        const uint32_t rows = (uint32_t)(w->seen * parts[i]);
        const double exact = true_share(w, rows), share = access_cdf_share(cdf, rows);

        printf("  %u hottest of %u rows seen: %.4f, %.4f by the curve\n", rows, w->seen, exact,
               share);
        worst = MAX(worst, fabs(share - exact));
    }
    return worst;
}

static void check_concave(const struct access_cdf *cdf)
{
    double rows = 0, share = 0, slope = INFINITY;

    for (uint32_t i = 0; i < cdf->point_count; i++) {
        const double next = (cdf->shares[i] - share) / (cdf->rows[i] - rows);

        assert_true(cdf->rows[i] > rows && cdf->shares[i] >= share);
        assert_true(next <= slope * (1 + 1e-9) + 1e-12);
        rows = cdf->rows[i];
        share = cdf->shares[i];
        slope = next;
    }
    assert_true(share == 1);
}

static void compare_source(const struct source *source)
{
    const struct trace_table table = { .name = "t",
                                       .rows = source->is_unbounded ? 0 : source->rows };
    struct measured_profile *measured;
    struct world w;
    struct err_msg msg;

    world_init(&w, source);
    measured = measure(&w, &table);
    printf("%llu rows, exponent %g, %u lookups: before\n", (unsigned long long)source->rows,
           source->exponent, source->chunks * CHUNK);
    assert_true(worst_error(&w, &measured->tables[0].cdf) >= source->past_error);
    for (uint32_t twice = 0; twice < 2; twice++) /* the second time changes nothing */
        assert_int_equal(measured_profile_make_steady(measured, &msg), EMBTIER_OK);
    printf(" coming\n");
    assert_true(worst_error(&w, &measured->tables[0].cdf) <= ALLOWED);
    check_concave(&measured->tables[0].cdf);
    if (!source->is_unbounded)
        assert_true(access_cdf_rows(&measured->tables[0].cdf, 1) <= (double)source->rows);
    measured_profile_free(measured);
    world_free(&w);
}

/* Each time the curve of past lookups is off by at least so much. */
static void test_rows_that_were_hot_take_so_many_lookups(void **state)
{
    static const struct source sources[] = {
        { 1 << 18, 1.05, 300, false, 0.09 }, { 1 << 18, 1.05, 3000, false, 0.02 },
        { 1 << 18, 1.05, 300, true, 0.09 },  { 1 << 16, 0.8, 400, false, 0.04 },
        { 1 << 18, 0.8, 400, false, 0.15 },  { 1 << 18, 1.2, 300, false, 0.04 },
        { 1 << 14, 0, 500, false, 0.05 },    { 1 << 16, 0, 100, false, 0.3 },
        { 1 << 17, 0, 100, true, 0.3 },      { 100, 1.05, 20, false, 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        compare_source(&sources[i]);
}

/* Returns the rows of the curve. */
static double check_alike(const struct access_cdf *past, double lookups, double rows)
{
    struct access_cdf coming;

    access_cdf_make_coming(past, lookups, rows, &coming);
    check_concave(&coming);
    assert_true(coming.point_count <= ACCESS_CDF_POINTS_MAX);
    for (uint32_t i = 0; i < coming.point_count; i++)
        assert_true(fabs(coming.shares[i] - coming.rows[i] / coming.rows[coming.point_count - 1]) <
                    1e-9);
    return coming.rows[coming.point_count - 1];
}

/* Rows that were all looked up equally often: no row is hotter than another. */
static void test_equal_rows_stay_equal(void **state)
{
    const struct access_cdf one = { 1, { 1000 }, { 1 } };

    (void)state;
    for (uint32_t times = 1; times < 20; times++) {
        assert_true(check_alike(&one, 1000 * times, 1000) == 1000);
        assert_true(check_alike(&one, 1000 * times, 2000) == (times == 1 ? 2000 : 1000));
        assert_true(check_alike(&one, 1000 * times, INFINITY) == (times == 1 ? 2000 : 1000));
    }
}

/* A sample stands for more or fewer lookups than there were. Its coldest rows still had one. */
static void test_lookups_of_a_sample_are_scaled(void **state)
{
    const struct access_cdf one = { 1, { 1000 }, { 1 } };

    (void)state;
    for (double scale = 0.5; scale < 1.7; scale += 0.1) {
        /* 300 rows with three lookups, 700 with two, 2000 with one. */
        const struct access_cdf many = { 3, { 300, 1000, 3000 }, { 9.0 / 43, 23.0 / 43, 1 } };
        struct access_cdf coming;

        assert_true(check_alike(&one, 1000 * scale, 2000) == 2000);
        access_cdf_make_coming(&many, 4300 * scale, INFINITY, &coming);
        check_concave(&coming);
        assert_true(fabs(access_cdf_share(&coming, 3000) - 23.0 / 43) < 1e-9);
        assert_true(fabs(access_cdf_share(&coming, 1000) - 9.0 / 43) < 1e-9);
        assert_true(fabs(coming.rows[coming.point_count - 1] - 3000 - 2000.0 * 2000 / 1400) < 1e-3);
    }
}

/* Rows without a lookup, behind rows with ever so many. */
static void test_rows_without_lookups_change_nothing(void **state)
{
    const struct access_cdf past = { 5, { 1e5, 2e5, 3e5, 4e5, 1e6 }, { 0.25, 0.5, 0.75, 1, 1 } };
    struct access_cdf coming;

    (void)state;
    for (double lookups = 1e7; lookups < 1e19; lookups *= 10) {
        access_cdf_make_coming(&past, lookups, 1e6, &coming);
        check_concave(&coming);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(fabs(coming.shares[i] - past.shares[i]) < 0.05);
    }
}

/* So many rows with one lookup that the square of their number would be no number of rows. */
static void test_unseen_rows_are_a_number_of_rows(void **state)
{
    const struct access_cdf past = { 2, { 1000, 1e8 }, { 0.5, 1 } };
    struct access_cdf coming;

    (void)state;
    access_cdf_make_coming(&past, 2e8, INFINITY, &coming);
    assert_int_equal(coming.point_count, 3);
    assert_true(coming.rows[2] > 1e8 && coming.rows[2] < 1e9);
}

/* Where all lookups have a time, as in a simulated model, the curve is the true one. */
static void test_endless_lookups_keep_their_curve(void **state)
{
    struct measured_table table = { .table = { .name = "t", .rows = 2000 },
                                    .summary = { .lookups = 1000, .rows = 1000 },
                                    .cdf = { 1, { 1000 }, { 1 } } };
    struct measured_profile measured = { .lookups = 1000,
                                         .segment_length = 1000,
                                         .segment_count = 1,
                                         .table_count = 1,
                                         .tables = &table };
    struct err_msg msg;

    (void)state;
    assert_int_equal(measured_profile_make_steady(&measured, &msg), EMBTIER_OK);
    assert_int_equal(table.cdf.point_count, 1);
    free(table.bins);
}

/* A curve of a file may have as many points as there can be, and rows without lookups. */
static void test_any_curve_has_a_coming_one(void **state)
{
    struct access_cdf past = { .point_count = ACCESS_CDF_POINTS_MAX }, coming;

    (void)state;
    for (uint32_t i = 0; i < past.point_count; i++) {
        past.rows[i] = i + 1.0;
        past.shares[i] = MIN(1, 1 - pow(0.5, i + 1.0));
    }
    past.shares[past.point_count - 1] = 1;
    for (double lookups = 1; lookups < 1e18; lookups *= 10)
        for (double rows = 100; rows < 1e18; rows *= 10) {
            access_cdf_make_coming(&past, lookups, rows, &coming);
            check_concave(&coming);
            assert_true(coming.point_count <= ACCESS_CDF_POINTS_MAX);
            for (uint32_t i = 0; i < past.point_count; i++)
                assert_true(access_cdf_share(&coming, past.rows[i]) <= past.shares[i] + 1e-9);
            assert_true(coming.rows[coming.point_count - 1] <= rows);
        }
    past.point_count = 0;
    access_cdf_make_coming(&past, 0, 100, &coming);
    assert_int_equal(coming.point_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_that_were_hot_take_so_many_lookups),
        cmocka_unit_test(test_equal_rows_stay_equal),
        cmocka_unit_test(test_lookups_of_a_sample_are_scaled),
        cmocka_unit_test(test_rows_without_lookups_change_nothing),
        cmocka_unit_test(test_unseen_rows_are_a_number_of_rows),
        cmocka_unit_test(test_endless_lookups_keep_their_curve),
        cmocka_unit_test(test_any_curve_has_a_coming_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
