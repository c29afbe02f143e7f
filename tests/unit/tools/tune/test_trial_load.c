/* SPDX-License-Identifier: Apache-2.0 */
/* Does a shard write the rows that its cache hands over, in the server's proportions? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trial/trial_load.h"

#define ROWS  1000
#define BATCH 100
#define DRAWS 200000

static struct trial_load *load_of(const struct trial_load_opts *opts)
{
    struct trial_load *load = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(trial_load_new(opts, &load, &msg), EMBTIER_OK);
    return load;
}

/* Writes @count rows and counts how often each is among them. */
static void write_rows(struct trial_load *load, uint32_t count, uint32_t *times)
{
    uint32_t rows[BATCH];

    for (uint32_t done = 0; done < count;) {
        bool is_checkpoint;
        const uint32_t some = trial_load_write(load, BATCH, rows, &is_checkpoint);

        for (uint32_t i = 0; i < some; i++) {
            assert_true(rows[i] < ROWS);
            times[rows[i]]++;
        }
        done += some;
    }
}

static int compare_down(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x < y) - (x > y);
}

static void test_without_a_cache_each_update_is_written(void **state)
{
    struct trial_load *const load =
        load_of(&(struct trial_load_opts){ .rows = ROWS, .each_of = 1, .seed = 1 });
    uint32_t times[ROWS] = { 0 };

    (void)state;
    write_rows(load, DRAWS, times);
    assert_int_equal(trial_load_updates(load), DRAWS);
    for (uint32_t i = 0; i < ROWS; i++) /* 200 on average */
        assert_true(times[i] > 100 && times[i] < 300);
    trial_load_free(load);
}

/* The trial has every nth rank. With 50, its hottest row has 1/25 of the weight that the hottest of
 * all has, not the sum of fifty. */
static void check_shares(double each_of, double zipf)
{
    struct trial_load *const load = load_of(
        &(struct trial_load_opts){ .rows = ROWS, .each_of = each_of, .zipf = zipf, .seed = 1 });
    uint32_t times[ROWS] = { 0 };
    double sum = 0;

    write_rows(load, DRAWS, times);
    qsort(times, ROWS, sizeof(*times), compare_down);
    for (uint32_t g = 0; g < ROWS; g++)
        sum += pow(g * each_of + (each_of + 1) / 2, -zipf);
    for (uint32_t g = 0; g < 5; g++) {
        const double share = pow(g * each_of + (each_of + 1) / 2, -zipf) / sum;
        const double error = fabs(times[g] / (double)DRAWS - share);

        if (error > 0.05 * share + 5 * sqrt(share / DRAWS))
            fail_msg("each of %g, zipf %g: row %u has %u draws", each_of, zipf, g, times[g]);
    }
    trial_load_free(load);
}

static void test_a_sample_has_every_nth_rank(void **state)
{
    (void)state;
    check_shares(50, 1);
    check_shares(1, 1.2);
    check_shares(1.5, 0.8);
}

/* Where the first ranks have nearly all draws, a draw takes no longer than elsewhere. */
static void test_a_steep_sample_has_every_nth_rank(void **state)
{
    (void)state;
    check_shares(1042, 2);
    check_shares(1042, 3);
    check_shares(1e6, 10);
}

static void test_a_cache_writes_hot_rows_rarely(void **state)
{
    struct trial_load *const load = load_of(&(struct trial_load_opts){
        .rows = ROWS, .each_of = 1, .zipf = 1.2, .cache_rows = ROWS / 4, .seed = 1 });
    uint32_t times[ROWS] = { 0 };
    uint64_t hottest;

    (void)state;
    write_rows(load, DRAWS / 10, times);
    assert_true(trial_load_updates(load) > 4 * (DRAWS / 10));
    hottest = times[0]; /* rank 0 has number 0 */
    assert_true(hottest < DRAWS / 10 / 100);
    trial_load_free(load);
}

/* A row is clean after a checkpoint, so a second one writes only what changed since. */
static void test_a_checkpoint_writes_each_dirty_row_once(void **state)
{
    struct trial_load *const load = load_of(&(struct trial_load_opts){
        .rows = ROWS, .each_of = 1, .cache_rows = ROWS, .checkpoint_updates = 100, .seed = 1 });
    uint32_t rows[ROWS];

    (void)state;
    for (uint32_t i = 1; i <= 3; i++) {
        bool is_checkpoint;
        const uint32_t some = trial_load_write(load, ROWS, rows, &is_checkpoint);

        assert_true(is_checkpoint);
        assert_int_equal(trial_load_updates(load), 100 * i);
        assert_true(some > 80 && some <= 100);
        for (uint32_t j = 1; j < some; j++)
            assert_true(rows[j] > rows[j - 1]);
    }
    trial_load_free(load);
}

/* All rows are cached and stay dirty, so none has to be written, ever. */
static void test_a_call_ends_where_nothing_is_written(void **state)
{
    struct trial_load *const load = load_of(
        &(struct trial_load_opts){ .rows = ROWS, .each_of = 1, .cache_rows = ROWS, .seed = 1 });
    uint32_t rows[BATCH];
    bool is_checkpoint = true;

    (void)state;
    assert_int_equal(trial_load_write(load, BATCH, rows, &is_checkpoint), 0);
    assert_false(is_checkpoint);
    assert_true(trial_load_updates(load) > ROWS);
    trial_load_free(load);
}

static void test_reads_are_of_rows_that_are_not_cached(void **state)
{
    struct trial_load *const load = load_of(&(struct trial_load_opts){
        .rows = ROWS, .each_of = 1, .zipf = 1, .cache_rows = ROWS / 2, .seed = 1 });
    struct random random = { 3 };
    uint32_t times[ROWS] = { 0 };

    (void)state;
    write_rows(load, 10 * ROWS, times);
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(trial_load_read(load, &random) != 0); /* the hottest is in the cache */
    trial_load_free(load);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_cache_each_update_is_written),
        cmocka_unit_test(test_a_sample_has_every_nth_rank),
        cmocka_unit_test(test_a_steep_sample_has_every_nth_rank),
        cmocka_unit_test(test_a_cache_writes_hot_rows_rarely),
        cmocka_unit_test(test_a_checkpoint_writes_each_dirty_row_once),
        cmocka_unit_test(test_a_call_ends_where_nothing_is_written),
        cmocka_unit_test(test_reads_are_of_rows_that_are_not_cached),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
