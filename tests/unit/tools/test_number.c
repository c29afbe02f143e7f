/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the command line's numbers equal the server's, to the bit. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/cast/dtype.h"
#include "tests/seed.h"
#include "tools/cli/number.h"

static void test_every_half_decodes_as_the_server_decodes_it(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const uint16_t half = (uint16_t)bits;
        const float f16 = f16_to_f32(half);
        const float bf16 = bf16_to_f32(half);
        const double ours_f16 = number_decode(EMBTIER_DTYPE_F16, &half);
        const double ours_bf16 = number_decode(EMBTIER_DTYPE_BF16, &half);

        assert_true(isnan(f16) ? isnan(ours_f16) : ours_f16 == (double)f16);
        assert_true(isnan(bf16) ? isnan(ours_bf16) : ours_bf16 == (double)bf16);
        assert_int_equal(signbit(f16) != 0,
                         isnan(f16) ? signbit(f16) != 0 : signbit(ours_f16) != 0);
    }
}

/* If the server would make a finite number infinite, the number does not fit the dtype. */
static void check_half(enum embtier_dtype dtype, float value, uint16_t expected)
{
    const bool fits = !isfinite(value) || isfinite(number_decode(dtype, &expected));
    uint16_t two = 0x1234;

    assert_int_equal(number_encode(dtype, (double)value, &two), fits);
    assert_int_equal(two, fits ? expected : 0x1234);
}

static void test_numbers_are_rounded_as_the_server_rounds_them(void **state)
{
    unsigned seed = (unsigned)seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (int i = 0; i < 2000000; i++) {
        const uint32_t bits = (uint32_t)rand_r(&seed) << 16 ^ (uint32_t)rand_r(&seed);
        const float value = f32_from_bits(i < 1000000 ? bits : bits & 0xfffff000);
        uint32_t four;

        if (isnan(value))
            continue;
        assert_true(number_encode(EMBTIER_DTYPE_F32, (double)value, &four));
        assert_int_equal(four, f32_bits(value));
        assert_true(number_decode(EMBTIER_DTYPE_F32, &four) == (double)value);
        check_half(EMBTIER_DTYPE_F16, value, f32_to_f16(value));
        check_half(EMBTIER_DTYPE_BF16, value, f32_to_bf16(value));
    }
}

static void test_printed_digits_bring_every_half_back(void **state)
{
    const enum embtier_dtype dtypes[] = { EMBTIER_DTYPE_F16, EMBTIER_DTYPE_BF16 };

    (void)state;
    for (size_t d = 0; d < ARRAY_LEN(dtypes); d++) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            const uint16_t half = (uint16_t)bits;
            const double value = number_decode(dtypes[d], &half);
            uint16_t back;
            char text[64];

            snprintf(text, sizeof(text), "%.*g", number_digits(dtypes[d]), value);
            assert_true(number_encode(dtypes[d], strtod(text, NULL), &back));
            if (!isnan(value))
                assert_int_equal(back, half);
        }
    }
}

static void test_a_nan_stays_a_nan_and_infinity_infinity(void **state)
{
    uint16_t half;

    (void)state;
    assert_true(number_encode(EMBTIER_DTYPE_F16, (double)NAN, &half));
    assert_true(isnan(number_decode(EMBTIER_DTYPE_F16, &half)));
    assert_true(number_encode(EMBTIER_DTYPE_F16, -(double)INFINITY, &half));
    assert_true(number_decode(EMBTIER_DTYPE_F16, &half) == -(double)INFINITY);
    assert_true(number_encode(EMBTIER_DTYPE_F16, 1e-300, &half));
    assert_int_equal(half, 0);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    static const struct {
        enum embtier_dtype dtype;
        double fits, too_large;
        const char *max;
    } limits[] = {
        { EMBTIER_DTYPE_F32, 0x1.ffffffp127 - 0x1p75, 0x1.ffffffp127, "3.40282347e+38" },
        { EMBTIER_DTYPE_F16, 65519.999, 65520, "65504" },
        { EMBTIER_DTYPE_BF16, 0x1.feffffp127, 0x1.ffp127, "3.39e+38" },
    };
    double value;
    char text[32];
    char *end;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        uint32_t bits = 0x12345678;

        for (int sign = -1; sign <= 1; sign += 2) {
            assert_false(number_encode(limits[i].dtype, sign * limits[i].too_large, &bits));
            assert_int_equal(bits, 0x12345678);
        }
        assert_true(number_encode(limits[i].dtype, -limits[i].fits, &bits));
        assert_true(number_decode(limits[i].dtype, &bits) == -number_max(limits[i].dtype));
        bits = 0x12345678;
        snprintf(text, sizeof(text), "%.*g", number_digits(limits[i].dtype),
                 number_max(limits[i].dtype));
        assert_string_equal(text, limits[i].max);
        assert_true(number_parse_f64("-1e400,", &value, &end));
        assert_string_equal(end, ",");
        assert_false(number_encode(limits[i].dtype, value, &bits));
    }
    assert_true(number_parse_f64("-inf", &value, &end));
    assert_true(value == -(double)INFINITY);
    assert_false(number_parse_f64("x", &value, &end));
}

static void test_a_row_s_number_is_decimal_or_a_word(void **state)
{
    static const char *const bad[] = { "",         " 1",   "0x10", "-0X1p3", "nan(12345)",
                                       "infinity", "nanx", "-",    ".",      "e5",
                                       "\t1",      "in",   "--1",  "+-inf" };
    const enum embtier_dtype dtypes[] = { EMBTIER_DTYPE_F32, EMBTIER_DTYPE_F16,
                                          EMBTIER_DTYPE_BF16 };
    uint32_t bits;
    double value;
    char *end;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(number_parse_f64(bad[i], &value, &end));
    assert_true(number_parse_f64("-NaN,1", &value, &end));
    assert_true(isnan(value));
    assert_string_equal(end, ",1");
    assert_true(number_parse_f64("1e-999:", &value, &end));
    assert_true(value > 0); /* not 0 */
    assert_string_equal(end, ":");
    assert_true(number_parse_f64("-0e-999", &value, &end));
    assert_true(value == 0);
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++) {
        bits = 0;
        assert_true(number_encode(dtypes[i], number_min(dtypes[i]), &bits));
        assert_int_equal(bits, 1);
    }
}

static void test_only_plain_numbers_are_row_ids(void **state)
{
    const char *const bad[] = { "", "-1", "+1", " 1", "1 ", "0x10", "1e3", "18446744073709551616" };
    uint64_t value = 7;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(number_parse_u64(bad[i], &value));
    assert_int_equal(value, 7);
    assert_true(number_parse_u64("18446744073709551615", &value));
    assert_true(value == UINT64_MAX);
}

static void test_a_double_is_a_decimal_number_and_nothing_else(void **state)
{
    static const char *const bad[] = { "",       " ",        " 5",  "5 ",   "5x",    "-",
                                       "+",      ".",        "-.",  "--5",  "nan",   "inf",
                                       "-inf",   "infinity", "0x5", "-0X5", "1e999", "-1e9999",
                                       "1e-999", "0x1p-5",   "1,5", "e5",   "5\n" };
    static const struct {
        const char *text;
        double value;
    } good[] = { { "5", 5 },      { "-0.5", -0.5 },     { "+5", 5 },
                 { ".5", 0.5 },   { "1e3", 1000 },      { "0", 0 },
                 { "0e-999", 0 }, { "1e-310", 1e-310 }, { "-1.5E2", -150 } };
    const char *end = NULL;
    double value = 7;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(number_is_double(bad[i], &value));
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(number_is_double(good[i].text, &value));
        assert_true(value == good[i].value);
    }
    assert_true(number_parse_double("0.25,7", &value, &end));
    assert_true(value == 0.25);
    assert_string_equal(end, ",7");
}

static void test_people_read_numbers_with_units(void **state)
{
    struct number_text text;

    (void)state;
    assert_string_equal(number_count(&text, 1234567), "1,234,567");
    assert_string_equal(number_count(&text, 123), "123");
    assert_string_equal(number_count(&text, -1000), "-1,000");
    assert_string_equal(number_count(&text, 0.25), "0.25");
    assert_string_equal(number_bytes(&text, 1023), "1023 B");
    assert_string_equal(number_bytes(&text, 1536), "1.5 KiB");
    assert_string_equal(number_duration(&text, 59.9), "59s");
    assert_string_equal(number_duration(&text, 3660), "1h01m");
    assert_string_equal(number_duration(&text, 200000), "2d07h");
    assert_string_equal(number_time(&text, 0), "0 s");
    assert_string_equal(number_time(&text, 30), "30 s");
    assert_string_equal(number_time(&text, 0.99951), "1 s");
    assert_string_equal(number_time(&text, 0.9994), "999 ms");
    assert_string_equal(number_time(&text, 1.2345e-3), "1.23 ms");
    assert_string_equal(number_time(&text, 5e-6), "5 us");
    assert_string_equal(number_time(&text, 5e-12), "0.005 ns");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_double_is_a_decimal_number_and_nothing_else),
        cmocka_unit_test(test_every_half_decodes_as_the_server_decodes_it),
        cmocka_unit_test(test_numbers_are_rounded_as_the_server_rounds_them),
        cmocka_unit_test(test_printed_digits_bring_every_half_back),
        cmocka_unit_test(test_a_nan_stays_a_nan_and_infinity_infinity),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
        cmocka_unit_test(test_a_row_s_number_is_decimal_or_a_word),
        cmocka_unit_test(test_only_plain_numbers_are_row_ids),
        cmocka_unit_test(test_people_read_numbers_with_units),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
