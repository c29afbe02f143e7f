/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that every mistake in a table's description is found, and that the row layout follows from
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/spec/home_rules.h"
#include "base/spec/table_spec.h"

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
    strcpy(spec.name, "a b");
    assert_refused(&spec, "nor -, not 'a b'");
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

static struct table_spec spec_of(enum embtier_optimizer optimizer)
{
    struct table_spec spec = good_spec();

    spec.optimizer = optimizer;
#define X(name, field, lowest, highest, standard, text) spec.field = EMBTIER_DEFAULT;
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    return spec;
}

static void test_hyperparameters_that_are_not_given_have_the_optimizer_s_defaults(void **state)
{
    static const struct {
        enum embtier_optimizer optimizer;
        double eps, alpha, beta1, beta2, momentum, weight_decay;
    } expected[] = {
        { EMBTIER_OPTIMIZER_NONE, 0, 0, 0, 0, 0, 0 },
        { EMBTIER_OPTIMIZER_SGD, 0, 0, 0, 0, 0, 0 },
        { EMBTIER_OPTIMIZER_ADAGRAD, 1e-10, 0, 0, 0, 0, 0 },
        { EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD, 1e-10, 0, 0, 0, 0, 0 },
        { EMBTIER_OPTIMIZER_RMSPROP, 1e-8, 0.99, 0, 0, 0, 0 },
        { EMBTIER_OPTIMIZER_ADAM, 1e-8, 0, 0.9, 0.999, 0, 0 },
        { EMBTIER_OPTIMIZER_MOMENTUM, 0, 0, 0, 0, 0.9, 0 },
        { EMBTIER_OPTIMIZER_ADAMW, 1e-8, 0, 0.9, 0.999, 0, 0.01 },
        { EMBTIER_OPTIMIZER_SPARSE_ADAM, 1e-8, 0, 0.9, 0.999, 0, 0 },
        { (enum embtier_optimizer)99, 0, 0, 0, 0, 0, 0 },
    };
    struct table_spec spec;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        spec = spec_of(expected[i].optimizer);
        table_spec_fill_defaults(&spec);
        assert_true(spec.eps == expected[i].eps && spec.alpha == expected[i].alpha);
        assert_true(spec.beta1 == expected[i].beta1 && spec.beta2 == expected[i].beta2);
        assert_true(spec.momentum == expected[i].momentum);
        assert_true(spec.weight_decay == expected[i].weight_decay && spec.clip_norm == 0);
        if (optimizer_word(spec.optimizer))
            assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);
    }
    spec = spec_of(EMBTIER_OPTIMIZER_ADAM);
    spec.eps = 0; /* counts as given */
    spec.beta1 = -1;
    spec.clip_norm = 5;
    table_spec_fill_defaults(&spec);
    assert_true(spec.eps == 0 && spec.beta1 == -1 && spec.beta2 == 0.999 && spec.clip_norm == 5);
}

static void test_hyperparameters_are_finite_and_in_range(void **state)
{
    struct table_spec spec = good_spec();

    (void)state;
    spec.eps = 2;
    assert_refused(&spec, "eps 2 is out of range, allowed: 0 to 1");
    spec.eps = EMBTIER_DEFAULT; /* a table never has it */
    assert_refused(&spec, "eps -1e+300 is out of range");
    spec.eps = NAN;
    assert_refused(&spec, "eps must be a finite number");
    spec = good_spec();
    spec.beta2 = 1;
    assert_refused(&spec, "beta2 1 is out of range, allowed: 0 to 0.9999999");
    spec = good_spec();
    spec.clip_norm = INFINITY;
    assert_refused(&spec, "clip_norm must be a finite number");
#define X(name, field, lowest, highest, standard, text)                                            \
    spec = good_spec();                                                                            \
    if (!optimizer_has(spec.optimizer, EMBTIER_##name))                                            \
        spec.optimizer = EMBTIER_##name == EMBTIER_MOMENTUM ? EMBTIER_OPTIMIZER_MOMENTUM           \
                                                            : EMBTIER_OPTIMIZER_RMSPROP;           \
    if (!optimizer_has(spec.optimizer, EMBTIER_EPS))                                               \
        spec.eps = 0;                                                                              \
    spec.field = lowest;                                                                           \
    assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);                                   \
    spec.field = highest;                                                                          \
    assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);                                   \
    spec.field = nextafter(lowest, -1);                                                            \
    assert_refused(&spec, #field " -4.9");                                                         \
    spec.field = nextafter(highest, INFINITY);                                                     \
    assert_refused(&spec, #field " ");                                                             \
    spec.field = -INFINITY;                                                                        \
    assert_refused(&spec, #field " must be a finite number");
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
}

static void test_a_hyperparameter_of_another_optimizer_is_refused_with_those_it_has(void **state)
{
    struct table_spec spec = good_spec();

    (void)state;
    spec.alpha = 0.5;
    assert_refused(&spec, "optimizer adam has no alpha; it has eps, beta1, beta2, weight_decay, "
                          "clip_norm");
    spec = good_spec();
    spec.optimizer = EMBTIER_OPTIMIZER_SGD;
    spec.eps = NAN;
    assert_refused(&spec, "optimizer sgd has no eps; it has weight_decay, clip_norm");
    spec.eps = 0;
    spec.weight_decay = 0.1;
    spec.clip_norm = 1;
    assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);
    spec.optimizer = EMBTIER_OPTIMIZER_NONE;
    assert_refused(&spec, "optimizer none has no weight_decay; it has no hyperparameters");
    spec.weight_decay = 0;
    assert_refused(&spec, "optimizer none has no clip_norm");
}

static void test_hyperparameters_are_listed_as_they_were_given(void **state)
{
    struct hyperparameters_text text;
    struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_RMSPROP);

    (void)state;
    spec.alpha = 0.123456789012345;
    spec.weight_decay = 1e30;
    table_spec_fill_defaults(&spec);
    assert_string_equal(table_spec_hyperparameters(&spec, &text),
                        "eps 1e-08, alpha 0.123456789012345, weight_decay 1e+30, clip_norm 0");
    assert_string_equal(optimizer_defaults_text(&text, EMBTIER_OPTIMIZER_ADAM),
                        "eps 1e-08, beta1 0.9, beta2 0.999, weight_decay 0, clip_norm 0");
    assert_string_equal(optimizer_defaults_text(&text, EMBTIER_OPTIMIZER_NONE), "");
}

/* Tables made before this was refused are still served. */
static void test_new_tables_first_values_fit_their_dtype(void **state)
{
    struct table_spec spec = good_spec();
    struct err_msg msg = { { 0 } };

    (void)state;
    spec.optimizer = EMBTIER_OPTIMIZER_NONE;
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

/* The same holds here; an export of such a table can still be imported. */
static void test_new_tables_constants_are_not_0_where_that_divides(void **state)
{
    static const double eps[] = { 0, 1e-50, 1e-300 };
    struct table_spec spec = good_spec();
    struct err_msg msg = { { 0 } };

    (void)state;
    for (uint32_t n = 0; n < 6 * ARRAY_LEN(eps); n++) {
        spec.optimizer = (enum embtier_optimizer)(n / ARRAY_LEN(eps));
        spec.eps = optimizer_has((int)spec.optimizer, EMBTIER_EPS) ? eps[n % ARRAY_LEN(eps)] : 0;
        spec.alpha = optimizer_default((int)spec.optimizer, EMBTIER_ALPHA);
        spec.beta1 = optimizer_default((int)spec.optimizer, EMBTIER_BETA1);
        spec.beta2 = optimizer_default((int)spec.optimizer, EMBTIER_BETA2);
        assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);
        assert_int_equal(table_spec_check_loaded(&spec, NULL), EMBTIER_OK);
        assert_int_equal(table_spec_check_new(&spec, &msg),
                         spec.optimizer <= EMBTIER_OPTIMIZER_SGD ? EMBTIER_OK : EMBTIER_INVALID);
    }
    assert_non_null(strstr(msg.text, "eps 1e-300 is 0 in f32"));
    spec.eps = 1e-44;
    assert_int_equal(table_spec_check_new(&spec, &msg), EMBTIER_OK);
    spec.clip_norm = 1e-50;
    assert_int_equal(table_spec_check_new(&spec, &msg), EMBTIER_INVALID);
    assert_non_null(strstr(msg.text, "clip_norm 1e-50 is 0 in f32"));
}

static void test_row_layout_follows_dtype_and_optimizer(void **state)
{
    static const struct {
        enum embtier_optimizer optimizer;
        uint32_t state_bytes; /* for 10 columns */
    } expected[] = { { EMBTIER_OPTIMIZER_NONE, 0 },        { EMBTIER_OPTIMIZER_SGD, 0 },
                     { EMBTIER_OPTIMIZER_ADAGRAD, 40 },    { EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD, 4 },
                     { EMBTIER_OPTIMIZER_RMSPROP, 40 },    { EMBTIER_OPTIMIZER_ADAM, 80 },
                     { EMBTIER_OPTIMIZER_MOMENTUM, 40 },   { EMBTIER_OPTIMIZER_ADAMW, 80 },
                     { EMBTIER_OPTIMIZER_SPARSE_ADAM, 80 } };
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
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
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
#define X(name, field, lowest, highest, standard, text)                                            \
    assert_string_equal(hyperparameter_word(EMBTIER_##name), #field);
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    assert_null(hyperparameter_word(HYPERPARAMETER_COUNT));
    assert_null(hyperparameter_word(-1));
    assert_int_equal(rounding_parse(rounding_word(true)), true);
    assert_int_equal(rounding_parse(rounding_word(false)), false);
    assert_string_equal(rounding_word(true), "nearest");
    assert_int_equal(rounding_parse("up"), -1);
    assert_int_equal(dtype_parse("F32"), -1);
    assert_int_equal(optimizer_parse(""), -1);
    assert_int_equal(init_parse("gauss"), -1);
    assert_null(dtype_word(0));
    assert_null(optimizer_word(9));
    assert_null(init_word(-1));
    assert_string_equal(init_param_name(77, 0), "");
}

static void assert_home_keeps_its_rules(enum embtier_home home, const char *word)
{
    struct table_spec spec = good_spec();

    spec.home = home;
    spec.hot_rows = home_has_hot_rows(home) ? 3 : 0;
    assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);
    snprintf(spec.home_tier, sizeof(spec.home_tier), "dram");
    if (home_has_tier(home))
        assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);
    else
        assert_refused(&spec, "has no tier of its own");
    table_spec_set_cached(&spec);
    assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);

    spec.home = home;
    spec.rows = EMBTIER_UNBOUNDED;
    if (home_needs_rows(home))
        assert_refused(&spec, "needs a table with a number of rows");
    else
        assert_int_equal(table_spec_check(&spec, NULL), EMBTIER_OK);

    spec.rows = 1000;
    spec.hot_rows = 0;
    if (home_has_hot_rows(home))
        assert_refused(&spec, "needs hot rows");
    assert_int_equal(home_parse(word), home);
    assert_string_equal(home_word(home), word);
}

static void test_each_home_has_the_rules_of_its_row(void **state)
{
    const int unknown[] = { -1, 99 };

    (void)state;
#define X(name, number, word, text) assert_home_keeps_its_rules(EMBTIER_HOME_##name, word);
    EMBTIER_HOME_TABLE(X)
#undef X
    assert_true(home_needs_rows(EMBTIER_HOME_ARRAY) && home_has_tier(EMBTIER_HOME_ARRAY));
    assert_true(home_has_hot_rows(EMBTIER_HOME_SPLIT) && !home_needs_rows(EMBTIER_HOME_SPLIT));
    for (size_t i = 0; i < 2; i++)
        assert_false(home_needs_rows(unknown[i]) || home_has_tier(unknown[i]) ||
                     home_has_hot_rows(unknown[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_letters_digits_and_few_marks),
        cmocka_unit_test(test_numbers_out_of_range_are_refused),
        cmocka_unit_test(test_distributions_need_sensible_parameters),
        cmocka_unit_test(test_hyperparameters_that_are_not_given_have_the_optimizer_s_defaults),
        cmocka_unit_test(test_hyperparameters_are_finite_and_in_range),
        cmocka_unit_test(test_a_hyperparameter_of_another_optimizer_is_refused_with_those_it_has),
        cmocka_unit_test(test_hyperparameters_are_listed_as_they_were_given),
        cmocka_unit_test(test_new_tables_first_values_fit_their_dtype),
        cmocka_unit_test(test_new_tables_constants_are_not_0_where_that_divides),
        cmocka_unit_test(test_row_layout_follows_dtype_and_optimizer),
        cmocka_unit_test(test_words_and_numbers_go_both_ways),
        cmocka_unit_test(test_each_home_has_the_rules_of_its_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
