/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that initial values have the same bits on every path, and follow the distribution that was
 * asked for. */
#include "tests/unit/kernels/kernels_fixture.h"

#include <float.h>

#include "kernels/cpu/cast/dtype.h"
#include "kernels/cpu/init/init_rows.h"
#include "kernels/cpu/init/init_rows_loops.h"
#include "kernels/cpu/init/init_values.h"
#include "kernels/cpu/init/philox.h"

#define GUARD_BYTES 64
#define GUARD       0xa5

static struct table_spec spec_of(enum embtier_init init, double first, double second, uint32_t dim)
{
    return (struct table_spec){ .name = "t",
                                .dim = dim,
                                .dtype = EMBTIER_DTYPE_F32,
                                .init = init,
                                .init_params = { first, second },
                                .seed = 42,
                                .init_version = 1 };
}

/* Rows in one block of memory, each between guards, all at odd multiples of 2. */
struct rows {
    unsigned char *memory;
    void **pointers;
    uint32_t row_bytes;
    uint32_t count;
};

/* stands for init_rows(), which chooses an instruction set itself */
#define ISA_BEST KERNELS_ISA_COUNT

static struct rows make_rows(const struct table_spec *spec, enum kernels_isa isa,
                             const uint64_t *ids, uint32_t count)
{
    const uint32_t row_bytes = table_spec_weight_bytes(spec) + table_spec_state_bytes(spec);
    const size_t stride = align_up(row_bytes, 4) + GUARD_BYTES;
    struct rows rows = { malloc(count * stride + GUARD_BYTES), calloc(count, sizeof(void *)),
                         row_bytes, count };

    assert_non_null(rows.memory);
    assert_non_null(rows.pointers);
    memset(rows.memory, GUARD, count * stride + GUARD_BYTES);
    for (uint32_t i = 0; i < count; i++)
        rows.pointers[i] = rows.memory + GUARD_BYTES / 2 + 2 + i * stride;
    if (isa != ISA_BEST)
        init_rows_with(isa, spec, ids, count, rows.pointers);
    else
        init_rows(spec, ids, count, rows.pointers);
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *end = (unsigned char *)rows.pointers[i] + row_bytes;

        for (uint32_t g = 0; g < 16; g++)
            if (end[g] != GUARD || ((unsigned char *)rows.pointers[i])[-1 - (int)g] != GUARD)
                fail_msg("row %u of %u bytes: wrote outside it", i, row_bytes);
    }
    return rows;
}

static void free_rows(struct rows *rows)
{
    free(rows->memory);
    free(rows->pointers);
}

static float value_at(const struct rows *rows, uint32_t row, uint32_t column)
{
    float value;

    memcpy(&value, (char *)rows->pointers[row] + column * sizeof(float), sizeof(value));
    return value;
}

static void test_philox_gives_the_published_values(void **state)
{
    /* Random123, tests/kat_vectors: philox4x32 10. */
    static const struct {
        uint32_t counter[4];
        uint32_t key[2];
        uint32_t expected[4];
    } known[] = {
        { { 0 }, { 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        struct philox_block counter;
        struct philox_block got;

        memcpy(counter.word, known[i].counter, sizeof(counter.word));
        got = philox4x32_10(counter, known[i].key[0], known[i].key[1]);
        assert_memory_equal(got.word, known[i].expected, sizeof(got.word));
    }
}

static void test_values_of_version_1_never_change(void **state)
{
    /* From a model in another language, with integers and separately rounded operations. */
    static const struct {
        uint64_t seed;
        uint64_t row;
        uint32_t column;
        uint32_t uniform; /* in [-0.1, 0.1) */
        uint32_t normal;  /* mean 0.5, standard deviation 0.02 */
    } golden[] = {
        { 0, 0, 0, 0xbd83827c, 0x3ef695bb },
        { 42, 7, 0, 0x3d8f9e05, 0x3f055202 },
        { 42, 7, 1, 0x3d886417, 0x3f04f232 },
        { 42, 7, 127, 0xbb0a02a0, 0x3effbace },
        { 42, 8, 0, 0x3d8fc819, 0x3f055446 },
        { UINT64_C(0xdeadbeefcafef00d), UINT64_MAX, 8191, 0x3d41bf6e, 0x3f033d30 },
        { 1, UINT64_C(0x100000000), 5, 0xbd8d6b6a, 0x3ef597c4 },
        { 1, 0, 5, 0xbca9b174, 0x3efd4f99 },
    };

    (void)state;
    for (size_t g = 0; g < ARRAY_LEN(golden); g++) {
        struct table_spec uniform = spec_of(EMBTIER_INIT_UNIFORM, -0.1, 0.1, 8192);
        struct table_spec normal = spec_of(EMBTIER_INIT_NORMAL, 0.5, 0.02, 8192);

        uniform.seed = normal.seed = golden[g].seed;
        for (enum kernels_isa isa = 0; isa < KERNELS_ISA_COUNT; isa++) {
            struct rows u, n;

            if (!kernels_isa_is_there(isa))
                continue;
            u = make_rows(&uniform, isa, &golden[g].row, 1);
            n = make_rows(&normal, isa, &golden[g].row, 1);
            assert_int_equal(f32_bits(value_at(&u, 0, golden[g].column)), golden[g].uniform);
            assert_int_equal(f32_bits(value_at(&n, 0, golden[g].column)), golden[g].normal);
            free_rows(&u);
            free_rows(&n);
        }
    }
}

/* Makes the tables of the next two tests: every dtype and distribution, with dims near the vectors'
 * lengths. Returns their number. */
static uint32_t next_spec(uint32_t number, struct table_spec *ret_spec)
{
    static const uint32_t dims[] = {
        1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 100, 128, 1023, 1025, 8192
    };
    static const struct {
        enum embtier_init init;
        double params[2];
    } inits[] = { { EMBTIER_INIT_ZEROS, { 0 } },
                  { EMBTIER_INIT_CONSTANT, { -0.3 } },
                  { EMBTIER_INIT_UNIFORM, { -0.05, 0.1 } },
                  { EMBTIER_INIT_UNIFORM, { -3e38, 3e38 } },
                  { EMBTIER_INIT_NORMAL, { 0.1, 3 } },
                  { EMBTIER_INIT_NORMAL, { 0, 1e38 } } };
    const uint32_t count = ARRAY_LEN(dims) * ARRAY_LEN(inits) * 3;
    const uint32_t init = number % ARRAY_LEN(inits);

    *ret_spec = spec_of(inits[init].init, inits[init].params[0], inits[init].params[1],
                        dims[number / ARRAY_LEN(inits) % ARRAY_LEN(dims)]);
    ret_spec->dtype = EMBTIER_DTYPE_F32 + number / (ARRAY_LEN(inits) * ARRAY_LEN(dims)) % 3;
    ret_spec->optimizer = (number + number / ARRAY_LEN(inits)) % OPTIMIZERS_AND_NONE;
    ret_spec->seed = number * UINT64_C(0x9e3779b97f4a7c15);
    return count;
}

static void test_all_instruction_sets_give_the_same_bits(void **state)
{
    uint64_t ids[37];
    struct table_spec spec;

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(ids); i++)
        ids[i] = i * UINT64_C(0xd1342543de82ef95);
    for (enum kernels_isa isa = 0; isa < KERNELS_ISA_COUNT; isa++)
        print_message("instruction set %s: %s\n", kernels_isa_name(isa),
                      kernels_isa_is_there(isa) ? "is there" : "not on this processor");
    for (uint32_t n = 0; n < next_spec(n, &spec); n++) {
        struct rows expected = make_rows(&spec, ISA_BEST, ids, ARRAY_LEN(ids));

        for (enum kernels_isa isa = 0; isa < KERNELS_ISA_COUNT; isa++) {
            struct rows got;

            if (!kernels_isa_is_there(isa))
                continue;
            got = make_rows(&spec, isa, ids, ARRAY_LEN(ids));
            for (uint32_t r = 0; r < ARRAY_LEN(ids); r++)
                if (memcmp(got.pointers[r], expected.pointers[r], got.row_bytes) != 0)
                    fail_msg("%s: dim %u, dtype %d, init %d, row %u", kernels_isa_name(isa),
                             spec.dim, (int)spec.dtype, (int)spec.init, r);
            free_rows(&got);
        }
        free_rows(&expected);
    }
}

static void test_a_row_is_the_same_alone_and_in_any_batch(void **state)
{
    uint64_t ids[101];
    struct table_spec spec;

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(ids); i++)
        ids[i] = i < 50 ? i : UINT64_MAX - (i % 60);
    for (uint32_t n = 2; n < next_spec(n, &spec); n += 5) {
        struct rows batch = make_rows(&spec, ISA_BEST, ids, ARRAY_LEN(ids));

        for (uint32_t r = 0; r < ARRAY_LEN(ids); r += 7) {
            struct rows alone = make_rows(&spec, ISA_BEST, &ids[r], 1);

            assert_memory_equal(alone.pointers[0], batch.pointers[r], alone.row_bytes);
            free_rows(&alone);
        }
        free_rows(&batch);
    }
}

static void test_optimizer_state_starts_at_zero(void **state)
{
    const uint64_t id = 5;
    struct table_spec spec = spec_of(EMBTIER_INIT_CONSTANT, 1, 0, 3);

    (void)state;
    spec.dtype = EMBTIER_DTYPE_F16;
    for (int optimizer = 0; optimizer < OPTIMIZERS_AND_NONE; optimizer++) {
        struct rows rows;

        spec.optimizer = optimizer;
        rows = make_rows(&spec, ISA_BEST, &id, 1);
        for (uint32_t i = 0; i < rows.row_bytes; i++)
            assert_int_equal(((unsigned char *)rows.pointers[0])[i],
                             i < 6 ? (i % 2 ? 0x3c : 0) : 0);
        free_rows(&rows);
    }
}

static void test_values_differ_by_seed_row_and_column(void **state)
{
    const uint64_t ids[] = { 1, 2, UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1 };
    struct table_spec spec = spec_of(EMBTIER_INIT_UNIFORM, 0, 1, 8);
    uint32_t bits[2 * ARRAY_LEN(ids) * 8];
    uint32_t used = 0;

    (void)state;
    for (uint32_t s = 0; s < 2; s++) {
        struct rows rows;

        spec.seed = s ? UINT64_C(1) << 32 : 1;
        rows = make_rows(&spec, ISA_BEST, ids, ARRAY_LEN(ids));
        for (uint32_t r = 0; r < ARRAY_LEN(ids); r++)
            for (uint32_t c = 0; c < 8; c++)
                bits[used++] = f32_bits(value_at(&rows, r, c));
        free_rows(&rows);
    }
    for (uint32_t i = 0; i < used; i++)
        for (uint32_t j = 0; j < i; j++)
            assert_int_not_equal(bits[i], bits[j]);
}

static float stored_value(const struct table_spec *spec, const struct rows *rows, uint32_t row,
                          uint32_t column)
{
    uint16_t half;

    if (spec->dtype == EMBTIER_DTYPE_F32)
        return value_at(rows, row, column);
    memcpy(&half, (char *)rows->pointers[row] + column * sizeof(half), sizeof(half));
    return spec->dtype == EMBTIER_DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static void test_uniform_stays_below_high_after_rounding_too(void **state)
{
    /* Intervals with few numbers of a dtype (but at least one), where rounding up to `high` is
     * likely, and absurd intervals. */
    static const double intervals[][2] = { { 0.99, 1 },       { -1, -0.5 },      { 0, 1 },
                                           { -1, 0 },         { -0.001, 0.001 }, { 1000, 1001 },
                                           { 0, 1e-7 },       { -1e300, 1e300 }, { 1, 1.0000001 },
                                           { -70000, 70000 }, { 2048, 2049 },    { 0, 1e-40 },
                                           { -2.02, -2.0 } };
    const uint64_t ids[] = { 1, 2, 3, 4 };

    (void)state;
    for (size_t n = 0; n < 3 * ARRAY_LEN(intervals); n++) {
        const double *interval = intervals[n / 3];
        struct table_spec spec = spec_of(EMBTIER_INIT_UNIFORM, interval[0], interval[1], 4096);
        struct rows rows;

        spec.dtype = EMBTIER_DTYPE_F32 + n % 3;
        rows = make_rows(&spec, ISA_BEST, ids, ARRAY_LEN(ids));
        for (uint32_t r = 0; r < ARRAY_LEN(ids); r++) {
            for (uint32_t c = 0; c < spec.dim; c++) {
                const float value = stored_value(&spec, &rows, r, c);

                /* Leaves room for the rounding of `low` itself. */
                if (!isfinite(value) || value >= interval[1] ||
                    value < interval[0] - fabs(interval[0]) / 128 - 1e-7)
                    fail_msg("%s [%g, %g): %.9g", dtype_word((int)spec.dtype), interval[0],
                             interval[1], (double)value);
            }
        }
        free_rows(&rows);
    }
}

static void test_equal_bounds_give_that_value(void **state)
{
    const uint64_t id = 9;
    struct table_spec spec = spec_of(EMBTIER_INIT_UNIFORM, 0.25, 0.25, 100);

    (void)state;
    for (int d = 1; d <= 3; d++) {
        struct rows rows;

        spec.dtype = d;
        rows = make_rows(&spec, ISA_BEST, &id, 1);
        for (uint32_t c = 0; c < spec.dim; c++)
            assert_true(stored_value(&spec, &rows, 0, c) == 0.25f);
        free_rows(&rows);
    }
}

static void test_values_are_finite_whatever_the_parameters(void **state)
{
    const uint64_t ids[] = { 1, 2, 3 };

    (void)state;
    for (uint32_t n = 0; n < 12; n++) {
        struct table_spec spec = n % 4 == 0   ? spec_of(EMBTIER_INIT_CONSTANT, 1e300, 0, 1000)
                                 : n % 4 == 1 ? spec_of(EMBTIER_INIT_NORMAL, -1e300, 1e300, 1000)
                                 : n % 4 == 2
                                     ? spec_of(EMBTIER_INIT_NORMAL, 0, DBL_MAX, 1000)
                                     : spec_of(EMBTIER_INIT_UNIFORM, -DBL_MAX, DBL_MAX, 1000);
        struct rows rows;

        spec.dtype = EMBTIER_DTYPE_F32 + n / 4;
        rows = make_rows(&spec, ISA_BEST, ids, ARRAY_LEN(ids));
        for (uint32_t r = 0; r < ARRAY_LEN(ids); r++)
            for (uint32_t c = 0; c < spec.dim; c++)
                assert_true(isfinite(stored_value(&spec, &rows, r, c)));
        free_rows(&rows);
    }
}

static int compare_floats(const void *a, const void *b)
{
    const float left = *(const float *)a;
    const float right = *(const float *)b;

    return (left > right) - (left < right);
}

static double normal_cdf(double value)
{
    return 0.5 * erfc(-value / sqrt(2));
}

static double uniform_cdf(double value)
{
    return value;
}

/* Checks the Kolmogorov-Smirnov distance and the moments. The values are fixed, so this cannot fail
 * by chance. */
static void check_distribution(enum embtier_init init, double (*cdf)(double), double mean,
                               double variance, double kurtosis)
{
    enum { ROWS = 2048, DIM = 128, COUNT = ROWS * DIM };
    struct table_spec spec = spec_of(init, 0, 1, DIM);
    float *values = malloc(COUNT * sizeof(float));
    uint64_t *ids = malloc(ROWS * sizeof(*ids));
    double moments[5] = { 0 };
    double distance = 0;
    struct rows rows;

    assert_non_null(values);
    assert_non_null(ids);
    for (uint32_t i = 0; i < ROWS; i++)
        ids[i] = i;
    rows = make_rows(&spec, ISA_BEST, ids, ROWS);
    for (uint32_t i = 0; i < COUNT; i++) {
        const double centred = (values[i] = value_at(&rows, i / DIM, i % DIM)) - mean;

        moments[1] += centred / COUNT;
        moments[2] += centred * centred / COUNT;
        moments[3] += centred * centred * centred / COUNT;
        moments[4] += centred * centred * centred * centred / COUNT;
    }
    qsort(values, COUNT, sizeof(float), compare_floats);
    for (uint32_t i = 0; i < COUNT; i++)
        distance = fmax(distance, fabs(cdf(values[i]) - (i + 0.5) / COUNT));
    print_message("KS %.3f/sqrt(n), mean %+.5f, variance %.5f, skew %+.5f, kurtosis %.5f\n",
                  distance * sqrt(COUNT), moments[1], moments[2], moments[3],
                  moments[4] / (moments[2] * moments[2]));
    assert_true(distance * sqrt(COUNT) < 1.6); /* 1% of fair samples are above 1.63 */
    assert_true(fabs(moments[1]) < 4 * sqrt(variance / COUNT));
    assert_true(fabs(moments[2] - variance) < 0.01 * variance);
    assert_true(fabs(moments[3]) < 0.03);
    assert_true(fabs(moments[4] / (moments[2] * moments[2]) - kurtosis) < 0.05);
    free_rows(&rows);
    free(values);
    free(ids);
}

static void test_uniform_is_uniform(void **state)
{
    (void)state;
    check_distribution(EMBTIER_INIT_UNIFORM, uniform_cdf, 0.5, 1.0 / 12, 1.8);
}

static void test_normal_is_normal(void **state)
{
    (void)state;
    check_distribution(EMBTIER_INIT_NORMAL, normal_cdf, 0, 1, 3);
}

static void test_normal_inverts_its_distribution_far_into_the_tails(void **state)
{
    double worst = 0;

    (void)state;
    /* Every magnitude of the distance to the end, with some steps in each. */
    for (uint32_t shift = 0; shift < 31; shift++) {
        for (uint32_t step = 0; step < 1000; step++) {
            const uint32_t rest =
                (uint32_t)(((UINT64_C(1) << shift) * (1000 + step) / 1000) & 0x7fffffff);
            const uint32_t word = 0xffffffff - rest;
            const double tail = (rest + 0.5) * 0x1p-32;
            const double value = init_normal_v1(word);
            /* One step of Newton's method shows how far off the value is. */
            const double off = (0.5 * erfc(value / sqrt(2)) - tail) /
                               (exp(-value * value / 2) / sqrt(8 * atan(1)));

            worst = fmax(worst, fabs(off) / fmax(fabs(value), 1e-3));
            assert_true(f32_bits(init_normal_v1(~word)) == (f32_bits((float)value) ^ 0x80000000));
        }
    }
    print_message("worst relative error %.2g, furthest %.3f\n", worst,
                  (double)init_normal_v1(UINT32_MAX));
    assert_true(worst < 2e-6);
    assert_true(init_normal_v1(UINT32_MAX) > 6.2f);
    assert_true(init_normal_v1(0) < -6.2f);
}

static void test_halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        const float low = f16_to_f32((uint16_t)h);
        const float high = f16_to_f32((uint16_t)(h + 1));
        const float middle = (low + high) / 2; /* exact */

        assert_int_equal(f32_to_f16(low), h);
        assert_int_equal(f32_to_f16(-low), h | 0x8000);
        assert_int_equal(f32_to_f16(middle), h + (h & 1));
        assert_int_equal(f32_to_f16(-middle), (h + (h & 1)) | 0x8000);
        assert_int_equal(f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_int_equal(f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(f32_to_f16(NAN) & 0x7fff, 0x7e00);
    assert_int_equal(f32_to_f16(0x1p-149f), 0);
    assert_true(isnan(f16_to_f32(0x7e00)) && isinf(f16_to_f32(0x7c00)));
    for (uint32_t h = 0; h < 0x7f7f; h++) {
        const uint32_t bits = h << 16;

        assert_int_equal(f32_to_bf16(f32_from_bits(bits)), h);
        assert_int_equal(f32_to_bf16(f32_from_bits(bits + 0x7fff)), h);
        assert_int_equal(f32_to_bf16(f32_from_bits(bits + 0x8000)), h + (h & 1));
        assert_int_equal(f32_to_bf16(f32_from_bits(bits + 0x8001)), h + 1);
        assert_true(bf16_to_f32((uint16_t)h) == f32_from_bits(bits));
    }
    assert_int_equal(f32_to_bf16(FLT_MAX), 0x7f80);
    assert_int_equal(f32_to_bf16(f32_from_bits(0x7f800001)), 0x7fc0);
    assert_int_equal(f32_to_bf16(-INFINITY), 0xff80);
}

static void test_no_rows_is_no_work(void **state)
{
    struct table_spec spec = spec_of(EMBTIER_INIT_UNIFORM, 0, 1, 8);

    (void)state;
    init_rows(&spec, NULL, 0, NULL);
}

static void test_versions_that_are_not_known_are_refused(void **state)
{
    struct table_spec spec = spec_of(EMBTIER_INIT_CONSTANT, 0, 0, 4);
    struct err_msg msg = { { 0 } };

    (void)state;
    for (spec.init_version = 1; spec.init_version <= INIT_ROWS_VERSION; spec.init_version++)
        assert_int_equal(init_rows_check_version(&spec, &msg), EMBTIER_OK);
    assert_int_equal(init_rows_check_version(&spec, &msg), EMBTIER_VERSION);
    assert_non_null(strstr(msg.text, "table 't' has initial values of version "));
    spec.init_version = 0; /* only a request may ask for the newest */
    assert_int_equal(init_rows_check_version(&spec, &msg), EMBTIER_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_gives_the_published_values),
        cmocka_unit_test(test_values_of_version_1_never_change),
        cmocka_unit_test(test_all_instruction_sets_give_the_same_bits),
        cmocka_unit_test(test_a_row_is_the_same_alone_and_in_any_batch),
        cmocka_unit_test(test_optimizer_state_starts_at_zero),
        cmocka_unit_test(test_values_differ_by_seed_row_and_column),
        cmocka_unit_test(test_uniform_stays_below_high_after_rounding_too),
        cmocka_unit_test(test_equal_bounds_give_that_value),
        cmocka_unit_test(test_values_are_finite_whatever_the_parameters),
        cmocka_unit_test(test_uniform_is_uniform),
        cmocka_unit_test(test_normal_is_normal),
        cmocka_unit_test(test_normal_inverts_its_distribution_far_into_the_tails),
        cmocka_unit_test(test_halves_round_to_nearest_even),
        cmocka_unit_test(test_no_rows_is_no_work),
        cmocka_unit_test(test_versions_that_are_not_known_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
