/* SPDX-License-Identifier: Apache-2.0 */
/* test_synthetic_trace.c: are rows of a generated trace used as often as in the published ones? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>

#include "placement/synthetic/synthetic_trace.h"
#include "placement/trace/trace_reader.h"
#include "tests/unit/placement/trace_fixture.h"

/* Most of a table's lookups of the highest rates go to less than one row, so several tables are
 * taken together. */
#define TABLES 16

/* ---- The published numbers ---- */

/* Reads the numbers of a line "(LOW, HIGH]: SHARE". */
static void read_shares(FILE *file, const char *title, double ret_shares[LOCALITY_BINS])
{
    char line[512];
    uint32_t bin = 0;

    while (fgets(line, sizeof(line), file) && strncmp(line, title, strlen(title)) != 0)
        ;
    for (; bin < LOCALITY_BINS && fgets(line, sizeof(line), file); bin++)
        ret_shares[bin] = strtod(strchr(line, ':') + 1, NULL);
    assert_int_equal(bin, LOCALITY_BINS);
}

static double read_number(FILE *file)
{
    char line[512];

    assert_non_null(fgets(line, sizeof(line), file));
    return strtod(strchr(line, ':') + 1, NULL);
}

/* The numbers in the code are those of the file that Meta published. */
static void test_has_the_published_numbers(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < LOCALITY_PUBLISHED_COUNT; i++) {
        const struct locality_published *const published = &locality_published[i];
        double shares[LOCALITY_BINS];
        char path[512], line[512];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", TEST_DATA, published->file);
        file = fopen(path, "r");
        assert_non_null(file);
        while (fgets(line, sizeof(line), file) &&
               strncmp(line, published->block, strlen(published->block)) != 0)
            ;
        assert_non_null(fgets(line, sizeof(line), file));
        assert_true(read_number(file) == published->lookups);
        assert_true(read_number(file) == published->rows);
        read_shares(file, "Histogram of col sizes", shares);
        assert_memory_equal(shares, published->row_shares, sizeof(shares));
        read_shares(file, "Ratio of index", shares);
        assert_memory_equal(shares, published->lookup_shares, sizeof(shares));
        fclose(file);
    }
}

/* ---- Generated traces ---- */

static struct trace_table table_of(const char *name, uint64_t rows)
{
    struct trace_table table = { .rows = rows, .dim = 64, .dtype = EMBTIER_DTYPE_F32 };

    snprintf(table.name, sizeof(table.name), "%s", name);
    return table;
}

struct histogram {
    double rows[LOCALITY_BINS], lookups[LOCALITY_BINS];
    double all_rows, all_lookups;
};

static void count_uses(struct histogram *histogram, uint32_t *uses, uint64_t rows)
{
    for (uint64_t row = 0; row < rows; row++) {
        if (uses[row] == 0)
            continue;
        histogram->rows[locality_bin(uses[row])]++;
        histogram->lookups[locality_bin(uses[row])] += uses[row];
        histogram->all_rows++;
        histogram->all_lookups += uses[row];
    }
    memset(uses, 0, sizeof(*uses) * rows);
}

/* Reads a trace of one batch, whose tables come one after the other. */
static struct histogram measure(const char *path, uint64_t rows)
{
    _cleanup_(trace_reader_freep) struct trace_reader *reader = NULL;
    _cleanup_(freep) uint32_t *uses = calloc(rows, sizeof(*uses));
    struct histogram histogram = { { 0 }, { 0 }, 0, 0 };
    struct trace_lookups lookups;
    struct err_msg msg;
    uint32_t table = 0;
    bool end;

    assert_int_equal(trace_reader_open(path, &reader, &msg), EMBTIER_OK);
    for (;;) {
        assert_int_equal(trace_reader_next(reader, &lookups, &end, &msg), EMBTIER_OK);
        if (end || lookups.table != table)
            count_uses(&histogram, uses, rows);
        if (end)
            return histogram;
        table = lookups.table;
        for (uint32_t i = 0; i < lookups.id_count; i++)
            uses[lookups.ids[i]]++;
    }
}

static void test_rows_are_used_as_published(void **state)
{
    const struct trace_fixture *const fixture = *state;
    const uint64_t rows = 1 << 20;

    for (uint32_t i = 0; i < LOCALITY_PUBLISHED_COUNT; i++) {
        const struct locality_published *const published = &locality_published[i];
        const struct locality locality = locality_fit(published);
        struct trace_table tables[TABLES];
        double pooling_factors[TABLES];
        const struct synthetic_options options = {
            .table_count = i == 0 ? TABLES : TABLES / 4,
            .tables = tables,
            .pooling_factors = pooling_factors,
            .batches = 1,
            .batch_bags = published->batch_bags,
            .locality = &locality,
            .seed = 7,
        };
        struct histogram got;
        struct err_msg msg;
        uint64_t lookups;
        char name[16];

        for (uint32_t table = 0; table < TABLES; table++) {
            snprintf(name, sizeof(name), "t%" PRIu32, table);
            tables[table] = table_of(name, rows);
            pooling_factors[table] = published->mean_pooling_factor;
        }
        assert_int_equal(synthetic_trace_write(fixture->path, &options, NULL, NULL, &lookups, &msg),
                         EMBTIER_OK);
        got = measure(fixture->path, rows);
        unlink(fixture->path);
        assert_true(got.all_lookups == (double)lookups);
        printf("%s: %.2f uses a row, published %.2f\n", published->name,
               got.all_lookups / got.all_rows, published->lookups / published->rows);
        for (uint32_t bin = 0; bin < LOCALITY_BINS; bin++)
            printf("  up to %6u uses: rows %.3f, published %.3f; lookups %.3f, published %.3f\n",
                   1u << bin, got.rows[bin] / got.all_rows, published->row_shares[bin],
                   got.lookups[bin] / got.all_lookups, published->lookup_shares[bin]);
        for (uint32_t bin = 0; bin < LOCALITY_BINS; bin++) {
            assert_true(fabs(got.rows[bin] / got.all_rows - published->row_shares[bin]) < 0.015);
            assert_true(fabs(got.lookups[bin] / got.all_lookups - published->lookup_shares[bin]) <
                        0.02);
        }
        assert_true(
            fabs(got.all_lookups / got.all_rows * published->rows / published->lookups - 1) < 0.05);
    }
}

static void test_shapes_are_as_published(void **state)
{
    enum { COUNT = 4000 };
    _cleanup_(freep) uint64_t *rows = malloc(sizeof(*rows) * COUNT);
    _cleanup_(freep) double *pooling = malloc(sizeof(*pooling) * COUNT);

    (void)state;
    for (uint32_t i = 0; i < LOCALITY_PUBLISHED_COUNT; i++) {
        const struct locality_published *const published = &locality_published[i];
        double log_rows = 0, sum = 0;

        synthetic_shapes(published, 1, COUNT, rows, pooling);
        for (uint32_t table = 0; table < COUNT; table++) {
            assert_true(rows[table] >= 1);
            assert_true(pooling[table] >= 0 && pooling[table] <= published->pooling_factor_max);
            log_rows += log((double)rows[table]) / COUNT;
            sum += pooling[table] / COUNT;
        }
        assert_true(fabs(log_rows + 2.5 * 2.5 / 2 - log(published->mean_table_rows)) < 0.15);
        assert_true(fabs(sum / published->mean_pooling_factor - 1) < 0.05);
    }
}

/* ---- Options ---- */

static struct synthetic_options options_of(const struct trace_table *table, const double *pooling)
{
    return (struct synthetic_options){ .table_count = 1,
                                       .tables = table,
                                       .pooling_factors = pooling,
                                       .batches = 3,
                                       .batch_bags = 5000,
                                       .is_update = true,
                                       .zipf_exponent = 1,
                                       .seed = 1 };
}

/* Writes and reads a trace; returns a sum over its ids. */
static uint64_t write_and_sum(const char *path, const struct synthetic_options *options,
                              uint64_t *ret_bags, uint64_t *ret_lookups)
{
    _cleanup_(trace_reader_freep) struct trace_reader *reader = NULL;
    struct trace_lookups lookups;
    struct err_msg msg;
    uint64_t written, sum = 0;
    bool end;

    assert_int_equal(synthetic_trace_write(path, options, NULL, NULL, &written, &msg), EMBTIER_OK);
    assert_int_equal(trace_reader_open(path, &reader, &msg), EMBTIER_OK);
    for (*ret_bags = *ret_lookups = 0;;) {
        assert_int_equal(trace_reader_next(reader, &lookups, &end, &msg), EMBTIER_OK);
        if (end)
            break;
        assert_true(lookups.is_update == options->is_update);
        *ret_bags += lookups.bag_count;
        *ret_lookups += lookups.id_count;
        for (uint32_t i = 0; i < lookups.id_count; i++)
            sum = sum * 31 + lookups.ids[i];
    }
    assert_int_equal(*ret_lookups, written);
    unlink(path);
    return sum;
}

static void test_a_seed_gives_the_same_trace(void **state)
{
    const struct trace_fixture *const fixture = *state;
    const struct trace_table table = table_of("users", 1000);
    const double pooling = 2.25;
    struct synthetic_options options = options_of(&table, &pooling);
    uint64_t bags, lookups;
    const uint64_t sum = write_and_sum(fixture->path, &options, &bags, &lookups);

    assert_int_equal(bags, 15000);
    assert_true(fabs((double)lookups / 15000 - pooling) < 0.02);
    assert_int_equal(write_and_sum(fixture->path, &options, &bags, &lookups), sum);
    options.seed = 2;
    assert_int_not_equal(write_and_sum(fixture->path, &options, &bags, &lookups), sum);
}

/* Tables of one row, bags of none and of very many, and fewer rows than the statistics ask for. */
static void test_extremes(void **state)
{
    static const uint64_t rows[] = { 1, 2, UINT64_MAX };
    static const double pooling[] = { 0, 0.001, SYNTHETIC_POOLING_FACTOR_MAX };
    const struct trace_fixture *const fixture = *state;
    const struct locality locality = locality_fit(&locality_published[0]);
    uint64_t bags, lookups;

    for (int i = 0; i < 18; i++) {
        const struct trace_table table = table_of("users", rows[i % 3]);
        struct synthetic_options options = options_of(&table, &pooling[i / 3 % 3]);

        options.batch_bags = 20;
        options.locality = i < 9 ? &locality : NULL;
        (void)write_and_sum(fixture->path, &options, &bags, &lookups);
        assert_int_equal(bags, 60);
        assert_true(fabs((double)lookups - 60 * pooling[i / 3 % 3]) <= 1);
    }
}

static void test_refuses_bad_options(void **state)
{
    static const double bad[] = { -1, (double)NAN, (double)INFINITY, 10001 };
    const struct trace_fixture *const fixture = *state;
    const struct trace_table table = table_of("users", 10);
    struct err_msg msg;
    uint64_t lookups;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct synthetic_options options = options_of(&table, &bad[i]);

        assert_int_equal(synthetic_trace_write(fixture->path, &options, NULL, NULL, &lookups, &msg),
                         EMBTIER_INVALID);
        options = options_of(&table, (const double[]){ 1 });
        options.zipf_exponent = bad[i];
        assert_int_equal(synthetic_trace_write(fixture->path, &options, NULL, NULL, &lookups, &msg),
                         EMBTIER_INVALID);
        assert_int_equal(access(fixture->path, F_OK), -1);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, trace_fixture_new, trace_fixture_free)
    const struct CMUnitTest tests[] = {
        TEST(test_has_the_published_numbers),
        TEST(test_rows_are_used_as_published),
        TEST(test_shapes_are_as_published),
        TEST(test_a_seed_gives_the_same_trace),
        TEST(test_extremes),
        TEST(test_refuses_bad_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
