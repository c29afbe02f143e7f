/* SPDX-License-Identifier: Apache-2.0 */
/* Is every mistake in a table's description found, and does the row layout follow from it? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/table_spec.h"

static struct table_spec good_spec(void)
{
    return (struct table_spec){
        .name = "clicks",
        .rows = 1000,
        .dim = 128,
        .dtype = EMBTIER_DTYPE_F32,
        .optimizer = EMBTIER_OPTIMIZER_ADAM,
        .init = EMBTIER_INIT_UNIFORM,
        .init_params = { -0.1, 0.1 },
    };
}

static void assert_refused(const struct table_spec *spec, const char *reason)
{
    struct err_msg msg = { { 0 } };

    assert_int_equal(table_spec_check(spec, &msg), EMBTIER_INVALID);
    if (!strstr(msg.text, reason))
        fail_msg("`%s` does not hold `%s`", msg.text, reason);
    assert_int_equal(table_spec_check(spec, NULL), EMBTIER_INVALID);
}

static void test_names_are_letters_digits_and_few_marks(void **state)
{
    static const char *const good[] = { "a", "A.b-c_9", "0", "_", "a..", "a-" };
    static const char *const bad[] = { "", ".a", "-a", "a b", "a/b", "a\n", "\xc3\xa4", "a:b" };
    struct table_spec spec = good_spec();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        strcpy(spec.name, good[i]);
        assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        strcpy(spec.name, bad[i]);
        assert_refused(&spec, "table name must be");
    }
    memset(spec.name, 'x', EMBTIER_TABLE_NAME_MAX);
    spec.name[EMBTIER_TABLE_NAME_MAX] = '\0';
    assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);
    spec.name[EMBTIER_TABLE_NAME_MAX] = 'x'; /* not terminated */
    assert_refused(&spec, "table name must be");
}

static void test_numbers_out_of_range_are_refused(void **state)
{
    struct table_spec spec = good_spec();

    (void)state;
    spec.dim = 0;
    assert_refused(&spec, "dim 0 is out of range, allowed: 1 to 8192");
    spec.dim = EMBTIER_DIM_MAX + 1;
    assert_refused(&spec, "dim 8193 is out of range");
    spec.dim = EMBTIER_DIM_MAX;
    assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);
    spec.dtype = 0;
    assert_refused(&spec, "dtype 0");
    spec = good_spec();
    spec.optimizer = 99;
    assert_refused(&spec, "optimizer 99");
    spec = good_spec();
    spec.init = 99;
    assert_refused(&spec, "init 99");
    spec = good_spec();
    spec.rows = EMBTIER_UNBOUNDED;
    assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);
    spec.eager = true;
    assert_refused(&spec, "unbounded");
}

static void test_distributions_need_sensible_parameters(void **state)
{
    struct table_spec spec = good_spec();

    (void)state;
    spec.init_params[0] = 0.2;
    assert_refused(&spec, "low 0.2 is above high 0.1");
    spec.init_params[0] = 0.1;
    assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);
    spec.init_params[1] = NAN;
    assert_refused(&spec, "high must be a finite number");
    spec.init_params[0] = -INFINITY;
    assert_refused(&spec, "low must be a finite number");
    spec.init = EMBTIER_INIT_NORMAL;
    spec.init_params[0] = 0;
    spec.init_params[1] = -1;
    assert_refused(&spec, "stddev -1 is negative");
    spec.init = EMBTIER_INIT_CONSTANT;
    spec.init_params[0] = INFINITY;
    assert_refused(&spec, "value must be a finite number");
}

/* But tables that were made before this was refused are served on. */
static void test_new_tables_first_values_fit_their_dtype(void **state)
{
    struct table_spec spec = good_spec();
    struct err_msg msg = { { 0 } };

    (void)state;
    spec.init = EMBTIER_INIT_CONSTANT;
    spec.init_params[0] = 1e40;
    assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);
    assert_int_equal(table_spec_check_new(&spec, &msg), EMBTIER_INVALID);
    assert_non_null(strstr(msg.text, "value 1e+40 is more than f32 holds"));
    spec.dtype = EMBTIER_DTYPE_F16;
    spec.init_params[0] = -65505;
    assert_int_equal(table_spec_check_new(&spec, &msg), EMBTIER_INVALID);
    spec.init_params[0] = -65504;
    assert_int_equal(table_spec_check_new(&spec, &msg), EMBTIER_OK);
    spec.dim = 0;
    assert_int_equal(table_spec_check_new(&spec, &msg), EMBTIER_INVALID);
}

static void test_row_layout_follows_dtype_and_optimizer(void **state)
{
    static const struct {
        enum embtier_optimizer optimizer;
        uint32_t state_bytes; /* of 10 columns */
    } expected[] = { { EMBTIER_OPTIMIZER_NONE, 0 },     { EMBTIER_OPTIMIZER_SGD, 0 },
                     { EMBTIER_OPTIMIZER_ADAGRAD, 40 }, { EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD, 4 },
                     { EMBTIER_OPTIMIZER_RMSPROP, 40 }, { EMBTIER_OPTIMIZER_ADAM, 80 } };
    struct table_spec spec = good_spec();

    (void)state;
    spec.dim = 10;
    assert_int_equal(table_spec_weight_bytes(&spec), 40);
    spec.dtype = EMBTIER_DTYPE_BF16;
    assert_int_equal(table_spec_weight_bytes(&spec), 20);
    spec.dtype = EMBTIER_DTYPE_F16;
    assert_int_equal(table_spec_weight_bytes(&spec), 20);
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        spec.optimizer = expected[i].optimizer;
        assert_int_equal(table_spec_state_bytes(&spec), expected[i].state_bytes);
    }
}

static void test_words_and_numbers_go_both_ways(void **state)
{
    (void)state;
#define X(name, number, word, bytes)                                                               \
    assert_int_equal(dtype_parse(word), number);                                                   \
    assert_string_equal(dtype_word(number), word);                                                 \
    assert_int_equal(dtype_bytes(EMBTIER_DTYPE_##name), bytes);
    EMBTIER_DTYPE_TABLE(X)
#undef X
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, text)                     \
    assert_int_equal(optimizer_parse(word), number);                                               \
    assert_string_equal(optimizer_word(number), word);
    EMBTIER_OPTIMIZER_TABLE(X)
#undef X
#define X(name, number, word, first, second, text)                                                 \
    assert_int_equal(init_parse(word), number);                                                    \
    assert_string_equal(init_word(number), word);                                                  \
    assert_string_equal(init_param_name(number, 1), second);
    EMBTIER_INIT_TABLE(X)
#undef X
    assert_int_equal(dtype_parse("F32"), -1);
    assert_int_equal(optimizer_parse(""), -1);
    assert_int_equal(init_parse("gauss"), -1);
    assert_null(dtype_word(0));
    assert_null(optimizer_word(6));
    assert_null(init_word(-1));
    assert_string_equal(init_param_name(77, 0), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_letters_digits_and_few_marks),
        cmocka_unit_test(test_numbers_out_of_range_are_refused),
        cmocka_unit_test(test_distributions_need_sensible_parameters),
        cmocka_unit_test(test_new_tables_first_values_fit_their_dtype),
        cmocka_unit_test(test_row_layout_follows_dtype_and_optimizer),
        cmocka_unit_test(test_words_and_numbers_go_both_ways),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
