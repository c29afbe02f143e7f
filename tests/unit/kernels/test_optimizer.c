/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that optimizers do what their papers say, to the given rows only, with the same bits on
 * every processor. test_rounding.c tests the rounding. */
#include "tests/unit/kernels/optimizer_fixture.h"

/* ---- The lazy form in f64 ---- */

struct model_row {
    double *weights;
    double *states[2];
    double row_state;
};

static void model_update(const struct table_spec *spec, double learning_rate, uint64_t step,
                         struct model_row *row, const float *gradient)
{
    const bool is_apart = spec->optimizer == EMBTIER_OPTIMIZER_ADAMW;
    const double decay = is_apart ? 0 : spec->weight_decay;
    const double fix = sqrt(1 - pow(spec->beta2, (double)step));
    double squares = 0, scale = 1, mean = 0;

    for (uint32_t c = 0; c < spec->dim; c++)
        squares += (double)gradient[c] * gradient[c];
    if (spec->clip_norm > 0 && sqrt(squares) > spec->clip_norm)
        scale = spec->clip_norm / sqrt(squares);
    for (uint32_t c = 0; c < spec->dim; c++)
        mean += pow(gradient[c] * scale + decay * row->weights[c], 2) / spec->dim;
    row->row_state += mean;
    for (uint32_t c = 0; c < spec->dim; c++) {
        const double g = gradient[c] * scale + decay * row->weights[c];
        double *const first = row->states[0] + c, *const second = row->states[1] + c;
        double change = 0;

        switch (spec->optimizer) {
        case EMBTIER_OPTIMIZER_NONE:
            break;
        case EMBTIER_OPTIMIZER_SGD:
            change = g;
            break;
        case EMBTIER_OPTIMIZER_ADAGRAD:
            *first += g * g;
            change = g / (sqrt(*first) + spec->eps);
            break;
        case EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD:
            change = g / (sqrt(row->row_state) + spec->eps);
            break;
        case EMBTIER_OPTIMIZER_RMSPROP:
            *first = spec->alpha * *first + (1 - spec->alpha) * g * g;
            change = g / (sqrt(*first) + spec->eps);
            break;
        case EMBTIER_OPTIMIZER_MOMENTUM:
            *first = spec->momentum * *first + g;
            change = *first;
            break;
        case EMBTIER_OPTIMIZER_ADAMW:
            row->weights[c] *= 1 - learning_rate * spec->weight_decay;
            __attribute__((fallthrough));
        case EMBTIER_OPTIMIZER_ADAM:
            *first = spec->beta1 * *first + (1 - spec->beta1) * g;
            *second = spec->beta2 * *second + (1 - spec->beta2) * g * g;
            change =
                *first / (1 - pow(spec->beta1, (double)step)) / (sqrt(*second) / fix + spec->eps);
            break;
        case EMBTIER_OPTIMIZER_SPARSE_ADAM:
            *first = spec->beta1 * *first + (1 - spec->beta1) * g;
            *second = spec->beta2 * *second + (1 - spec->beta2) * g * g;
            change =
                *first / (1 - pow(spec->beta1, (double)step)) * fix / (sqrt(*second) + spec->eps);
            break;
        }
        row->weights[c] -= learning_rate * change;
    }
}

static struct model_row *make_model(const struct table *table)
{
    struct model_row *const model = fixture_alloc(table->count, sizeof(*model));

    for (uint32_t i = 0; i < table->count; i++) {
        model[i].weights = fixture_alloc(table->spec.dim, sizeof(double));
        for (uint32_t s = 0; s < 2; s++)
            model[i].states[s] = fixture_alloc(table->spec.dim, sizeof(double));
        for (uint32_t c = 0; c < table->spec.dim; c++)
            model[i].weights[c] = weight_of(table, i, c);
    }
    return model;
}

static void free_model(const struct table *table, struct model_row *model)
{
    for (uint32_t i = 0; i < table->count; i++) {
        free(model[i].weights);
        free(model[i].states[0]);
        free(model[i].states[1]);
    }
    free(model);
}

static void assert_near(const struct table *table, const char *what, uint32_t row, uint32_t column,
                        double got, double expected)
{
    /* A velocity is a sum of about ten gradients, which may cancel out: what is left has the
     * rounding errors of the gradients. */
    const bool is_sum = table->spec.optimizer == EMBTIER_OPTIMIZER_MOMENTUM;

    if (!(fabs(got - expected) <= (is_sum ? 2e-6 : 1e-7) + 1e-5 * fabs(expected)))
        fail_msg("%s, dim %u, clip %g, decay %g: %s of row %u, column %u: %.9g, expected %.9g",
                 optimizer_word((int)table->spec.optimizer), table->spec.dim, table->spec.clip_norm,
                 table->spec.weight_decay, what, row, column, got, expected);
}

static void assert_model(const struct table *table, const struct model_row *model)
{
    const uint32_t per_weight = states_per_weight(table->spec.optimizer);

    for (uint32_t i = 0; i < table->count; i++) {
        for (uint32_t c = 0; c < table->spec.dim; c++) {
            assert_near(table, "weight", i, c, weight_of(table, i, c), model[i].weights[c]);
            for (uint32_t s = 0; s < per_weight; s++)
                assert_near(table, "state", i, c, state_of(table, i, s * table->spec.dim + c),
                            model[i].states[s][c]);
        }
        if (table->spec.optimizer == EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD)
            assert_near(table, "row state", i, 0, state_of(table, i, 0), model[i].row_state);
    }
}

/* Updates each row with a probability of one in @one_in. */
static void update_some(const struct table *table, struct model_row *model, uint64_t step,
                        uint32_t one_in, uint64_t *random)
{
    const uint32_t dim = table->spec.dim;
    const double learning_rate = 0.002;
    uint32_t chosen[64], count = 0;
    float *const gradients = fixture_alloc((size_t)ARRAY_LEN(chosen) * dim, sizeof(float));

    for (uint32_t i = 0; i < MIN(table->count, (uint32_t)ARRAY_LEN(chosen)); i++)
        if (fixture_below(random, one_in) == 0)
            chosen[count++] = i;
    for (uint32_t n = 0; n < count; n++) {
        for (uint32_t c = 0; c < dim; c++)
            gradients[(size_t)n * dim + c] = (float)(fixture_below(random, 2001) * 1e-3 - 1);
        model_update(&table->spec, learning_rate, step, &model[chosen[n]],
                     gradients + (size_t)n * dim);
    }
    update_chosen(kernels_isa_best(), table, learning_rate, step, chosen, count, gradients);
    free(gradients);
}

static void test_a_hundred_steps_are_those_of_the_lazy_form(void **state)
{
    static const uint32_t dims[] = { 1, 3, 64, 200 };
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(dims) * OPTIMIZER_COUNT * 4; n++) {
        const uint32_t rest = n / OPTIMIZER_COUNT;
        struct table_spec spec = spec_of(1 + n % OPTIMIZER_COUNT, EMBTIER_DTYPE_F32, dims[rest / 4],
                                         rest % 2 ? 0.5 : 0, rest / 2 % 2 ? 0.01 : 0);
        struct table table = make_table(&spec, 10, &random);
        struct model_row *model;

        /* As small as embeddings are: with weights of 1 and more, an error in the last digit would
         * show once the weight is near 0. */
        for (uint32_t i = 0; i < table.count * spec.dim; i++)
            fixture_set(EMBTIER_DTYPE_F32, table.rows[i / spec.dim], i % spec.dim,
                        (float)(fixture_below(&random, 2001) * 1e-4 - 0.1));
        model = make_model(&table);
        for (uint64_t step = 1; step <= 100; step++)
            update_some(&table, model, step, 2, &random);
        assert_model(&table, model);
        free_model(&table, model);
        free_table(&table);
    }
}

/* ---- Numbers worked out by hand ---- */

static void update_by_hand(struct table *table, double learning_rate, uint64_t step,
                           const float *gradient)
{
    float copy[16];

    memcpy(copy, gradient, table->spec.dim * sizeof(float));
    update_chosen(kernels_isa_best(), table, learning_rate, step, (uint32_t[]){ 0 }, 1, copy);
}

static struct table zero_table(const struct table_spec *spec, uint64_t *random)
{
    struct table table = make_table(spec, 1, random);

    memset(table.rows[0], 0, table.row_bytes);
    return table;
}

/* Sparse SGD with row-wise Adagrad has one number per row, to which the mean of g² is added. So do
 * FBGEMM's table batched embeddings and Gupta et al., "Training recommender systems at scale:
 * communication-efficient model and data parallelism" (2020). */
static void test_rowwise_adagrad_adds_up_the_rows_mean_square(void **state)
{
    struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD, EMBTIER_DTYPE_F32, 4, 0, 0);
    uint64_t random = 1;
    struct table table = zero_table(&spec, &random);

    (void)state;
    update_by_hand(&table, 0.5, 1, (float[]){ 3, 4, 0, 0 }); /* 25 / 4, with root 2.5 */
    assert_true(state_of(&table, 0, 0) == 6.25f);
    assert_near(&table, "weight", 0, 0, weight_of(&table, 0, 0), -0.5 * 3 / 2.5);
    assert_near(&table, "weight", 0, 1, weight_of(&table, 0, 1), -0.5 * 4 / 2.5);
    assert_true(weight_of(&table, 0, 2) == 0);
    update_by_hand(&table, 0.5, 2, (float[]){ 0, 0, 0, 7 }); /* + 49 / 4 */
    assert_true(state_of(&table, 0, 0) == 18.5f);
    assert_near(&table, "weight", 0, 3, weight_of(&table, 0, 3), -0.5 * 7 / sqrt(18.5));
    assert_near(&table, "weight", 0, 0, weight_of(&table, 0, 0), -0.5 * 3 / 2.5);
    free_table(&table);
}

static void test_adams_first_step_is_the_learning_rate_whatever_the_gradient(void **state)
{
    struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_ADAM, EMBTIER_DTYPE_F32, 3, 0, 0);
    uint64_t random = 1;
    struct table table = zero_table(&spec, &random);

    (void)state;
    update_by_hand(&table, 0.125, 1, (float[]){ 1000, -0.001f, 1 });
    assert_near(&table, "weight", 0, 0, weight_of(&table, 0, 0), -0.125);
    assert_near(&table, "weight", 0, 1, weight_of(&table, 0, 1), 0.125 / (1 + 1e-8 / 0.001));
    assert_near(&table, "weight", 0, 2, weight_of(&table, 0, 2), -0.125);
    assert_near(&table, "first moment", 0, 0, state_of(&table, 0, 0), 100);
    assert_near(&table, "second moment", 0, 0, state_of(&table, 0, 3), 1000);
    free_table(&table);
}

static void test_a_long_gradient_is_clipped_and_a_short_one_is_not(void **state)
{
    struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_SGD, EMBTIER_DTYPE_F32, 3, 5, 0);
    uint64_t random = 1;
    struct table table = zero_table(&spec, &random);

    (void)state;
    update_by_hand(&table, 1, 1, (float[]){ -3, 4, 0 }); /* length 5, not longer */
    assert_true(weight_of(&table, 0, 0) == 3 && weight_of(&table, 0, 1) == -4);
    update_by_hand(&table, 1, 2, (float[]){ 30, -40, 0 });
    assert_near(&table, "weight", 0, 0, weight_of(&table, 0, 0), 0);
    assert_near(&table, "weight", 0, 1, weight_of(&table, 0, 1), 0);
    update_by_hand(&table, 1, 3, (float[]){ 0, 0, 1e30f }); /* its square overflows f32 */
    assert_near(&table, "weight", 0, 2, weight_of(&table, 0, 2), -5);
    free_table(&table);
}

static void test_weight_decay_comes_after_clipping(void **state)
{
    struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_SGD, EMBTIER_DTYPE_F32, 1, 1, 0.5);
    uint64_t random = 1;
    struct table table = zero_table(&spec, &random);

    (void)state;
    fixture_set(EMBTIER_DTYPE_F32, table.rows[0], 0, 100);
    update_by_hand(&table, 0.1, 1, (float[]){ 10 }); /* 1 + 50 */
    assert_near(&table, "weight", 0, 0, weight_of(&table, 0, 0), 100 - 0.1 * 51);
    free_table(&table);
}

static void test_adams_bias_correction(void **state)
{
    static const uint64_t steps[] = { 1, 2, 3, 1000, 4096, UINT64_C(1) << 40, OPTIMIZER_STEP_MAX };
    struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_ADAM, EMBTIER_DTYPE_F32, 1, 0, 0);

    (void)state;
    for (uint32_t n = 0; n < 3 * ARRAY_LEN(steps); n++) {
        static const double betas[][2] = { { 0.9, 0.999 }, { 0, 0 }, { 0.9999999, 0.9999999 } };
        const uint64_t step = steps[n / 3];
        struct optimizer_push push;
        double size, fix;

        spec.beta1 = betas[n % 3][0];
        spec.beta2 = betas[n % 3][1];
        optimizer_prepare(&spec, 0.25, step, &push);
        size = 0.25 / (double)(1 - powl((long double)spec.beta1, (long double)step));
        fix = sqrt((double)(1 - powl((long double)spec.beta2, (long double)step)));
        if (fabs(push.numbers.step_size / size - 1) > 1e-6 ||
            fabs(push.numbers.second_moment_fix / fix - 1) > 1e-6)
            fail_msg("step %" PRIu64 ": %.9g, expected %.9g; %.9g, expected %.9g", step,
                     (double)push.numbers.step_size, size, (double)push.numbers.second_moment_fix,
                     fix);
        if (step >= UINT64_C(1) << 40)
            assert_true(push.numbers.step_size == 0.25f && push.numbers.second_moment_fix == 1);
    }
}

static void test_constants_stay_finite(void **state)
{
    struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_ADAM, EMBTIER_DTYPE_F32, 1, 1e30, 1e30);
    struct optimizer_push push;

    (void)state;
    spec.beta1 = 0.9999999;
    optimizer_prepare(&spec, -1e300, 1, &push);
    assert_true(push.numbers.learning_rate == -FLT_MAX && push.numbers.step_size == -FLT_MAX);
    assert_true(isfinite(push.numbers.weight_decay) && isfinite(push.numbers.clip_norm));
}

/* ---- Which rows, which bits ---- */

static void test_rows_without_a_gradient_stay(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < OPTIMIZER_COUNT * 3; n++) {
        struct table_spec spec =
            spec_of(1 + n % OPTIMIZER_COUNT, 1 + n / OPTIMIZER_COUNT, 65, 0.5, 0.1);
        struct table table = make_table(&spec, 5, &random);
        struct table before = copy_table(&table);
        float gradients[2 * 65];

        for (uint32_t i = 0; i < ARRAY_LEN(gradients); i++)
            gradients[i] = fixture_float(&random);
        update_chosen(kernels_isa_best(), &table, 0.1, 1, (uint32_t[]){ 3, 1 }, 2, gradients);
        for (uint32_t i = 0; i < table.count; i++)
            assert_int_equal(memcmp(table.rows[i], before.rows[i], table.row_bytes) == 0,
                             i != 1 && i != 3);
        free_table(&table);
        free_table(&before);
    }
}

static void test_all_instruction_sets_give_the_same_bits(void **state)
{
    static const uint32_t dims[] = { 1, 2, 7, 8, 15, 16, 17, 63, 64, 65, 100, 128, 200, 8192 };
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(dims) * OPTIMIZER_COUNT * 3 * 4; n++) {
        const uint32_t rest = n / OPTIMIZER_COUNT;
        struct table_spec spec = spec_of(1 + n % OPTIMIZER_COUNT, 1 + rest % 3, dims[rest / 12],
                                         rest / 3 % 2, rest / 6 % 2 * 0.01);
        struct table table = make_table(&spec, 5, &random);
        const uint32_t chosen[] = { 4, 0, 2, 1 };
        const size_t gradient_count = (size_t)ARRAY_LEN(chosen) * spec.dim;
        float *const gradients = fixture_alloc(gradient_count, sizeof(float));
        float *const copy = fixture_alloc(gradient_count, sizeof(float));
        struct table expected;

        table.spec.rounds_to_nearest = (rest + rest / 12) % 2;
        for (size_t i = 0; i < gradient_count; i++)
            gradients[i] = fixture_float(&random);
        expected = copy_table(&table);
        memcpy(copy, gradients, gradient_count * sizeof(float));
        update_chosen(KERNELS_ISA_baseline, &expected, 0.1, n + 1, chosen, 4, copy);
        FOR_EACH_ISA(isa)
        {
            struct table got = copy_table(&table);

            memcpy(copy, gradients, gradient_count * sizeof(float));
            update_chosen(isa, &got, 0.1, n + 1, chosen, 4, copy);
            for (uint32_t i = 0; i < got.count; i++)
                if (memcmp(got.rows[i], expected.rows[i], got.row_bytes) != 0)
                    fail_msg("%s: %s, %s, dim %u, row %u", kernels_isa_name(isa),
                             optimizer_word((int)spec.optimizer), dtype_word((int)spec.dtype),
                             spec.dim, i);
            free_table(&got);
        }
        free_table(&expected);
        free_table(&table);
        free(gradients);
        free(copy);
    }
}

/* ---- Gradients made during the update ---- */

#define RUNS        20
#define BAGS        8
#define POSITIONS   4
#define LONG_RUN    300 /* pairs of the last run; others have up to 4 */
#define PAIRS_MAX   (RUNS * 4 + LONG_RUN)
#define DIM_LONGEST 8192

/* Pairs of some bags' gradients in random runs. */
struct casted {
    float *bags;
    const float *places[BAGS];
    struct cast_pair pairs[PAIRS_MAX];
    float scales[POSITIONS];
    uint32_t *winners;
    uint32_t offsets[BAGS];
    uint32_t starts[RUNS + 1];
    uint32_t runs[RUNS];
    uint32_t run_count;
};

static struct casted make_casted(uint32_t dim, uint64_t *random)
{
    struct casted casted = { .bags = fixture_alloc(BAGS * (size_t)dim, sizeof(float)),
                             .winners = fixture_alloc(BAGS * (size_t)dim, sizeof(uint32_t)) };
    uint32_t pair = 0;

    for (size_t i = 0; i < BAGS * (size_t)dim; i++) {
        casted.bags[i] = fixture_float(random);
        casted.winners[i] = fixture_below(random, 4);
    }
    for (uint32_t position = 0; position < POSITIONS; position++)
        casted.scales[position] = fixture_float(random);
    for (uint32_t bag = 0; bag < BAGS; bag++)
        casted.places[bag] = casted.bags + (size_t)bag * dim;
    for (uint32_t run = 0; run < RUNS; run++) {
        if (run % 3)
            casted.runs[casted.run_count++] = run;
        for (uint32_t n = run == RUNS - 1 ? LONG_RUN : 1 + fixture_below(random, 4); n > 0;
             n--, pair++) {
            casted.pairs[pair] = (struct cast_pair){ run, fixture_below(random, BAGS),
                                                     fixture_below(random, POSITIONS) };
        }
        casted.starts[run + 1] = pair;
    }
    return casted;
}

/* Returns all runs, or all but every third. */
static struct reduce_batch batch_of(const struct casted *casted, uint32_t dim, uint32_t n)
{
    const bool all = n % 7 == 0;

    return (struct reduce_batch){ .dim = dim,
                                  .bags = casted->bags,
                                  .bag_places = n % 2 ? casted->places : NULL,
                                  .pairs = casted->pairs,
                                  .scales = n / 2 % 2 ? casted->scales : NULL,
                                  .winners = n / 4 % 2 ? casted->winners : NULL,
                                  .offsets = casted->offsets,
                                  .starts = casted->starts,
                                  .bag_count = n % 2 ? UINT32_MAX : BAGS,
                                  .runs = all ? NULL : casted->runs,
                                  .run_count = all ? RUNS : casted->run_count };
}

static void check_on_the_way(enum kernels_isa isa, const struct table *table,
                             struct reduce_batch batch, float *gradients)
{
    struct table expected = copy_table(table), got = copy_table(table);
    struct optimizer_push push;

    optimizer_prepare(&table->spec, 0.1, 3, &push);
    batch.rows = gradients;
    reduce_runs_with(isa, &batch);
    optimizer_update_with(isa, &push, expected.ids, expected.rows, gradients, batch.run_count);
    batch.rows = fixture_alloc(batch.dim, sizeof(float)); /* for one gradient */
    optimizer_update_runs_with(isa, &push, got.ids, got.rows, &batch);
    for (uint32_t i = 0; i < got.count; i++) {
        if (memcmp(got.rows[i], expected.rows[i], got.row_bytes) != 0)
            fail_msg("%s: %s, %s, dim %u, row %u", kernels_isa_name(isa),
                     optimizer_word((int)table->spec.optimizer), dtype_word((int)table->spec.dtype),
                     batch.dim, i);
        if (i >= batch.run_count)
            assert_memory_equal(got.rows[i], table->rows[i], got.row_bytes);
    }
    free(batch.rows);
    free_table(&expected);
    free_table(&got);
}

static void test_gradients_made_on_the_way_are_those_made_before(void **state)
{
    static const uint32_t dims[] = { 1, 7, 16, 17, 64, 100, DIM_LONGEST };
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(dims) * OPTIMIZER_COUNT * 3 * 8; n++) {
        const uint32_t rest = n / (8 * OPTIMIZER_COUNT);
        struct table_spec spec = spec_of(1 + n / 8 % OPTIMIZER_COUNT, 1 + rest % 3, dims[rest / 3],
                                         n % 3 * 0.5, n % 5 * 0.01);
        struct casted casted;
        struct table table;
        float *gradients;

        /* A few cases have the longest rows: each pair of optimizer, type and kind of gradients. */
        if (spec.dim == DIM_LONGEST && n % 5 != 0)
            continue;
        casted = make_casted(spec.dim, &random);
        gradients = fixture_alloc((size_t)RUNS * spec.dim, sizeof(float));
        spec.rounds_to_nearest = false;
        table = make_table(&spec, RUNS, &random);
        FOR_EACH_ISA(isa)
        check_on_the_way(isa, &table, batch_of(&casted, spec.dim, n), gradients);
        free(gradients);
        free_table(&table);
        free(casted.bags);
        free(casted.winners);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hundred_steps_are_those_of_the_lazy_form),
        cmocka_unit_test(test_rowwise_adagrad_adds_up_the_rows_mean_square),
        cmocka_unit_test(test_adams_first_step_is_the_learning_rate_whatever_the_gradient),
        cmocka_unit_test(test_a_long_gradient_is_clipped_and_a_short_one_is_not),
        cmocka_unit_test(test_weight_decay_comes_after_clipping),
        cmocka_unit_test(test_adams_bias_correction),
        cmocka_unit_test(test_constants_stay_finite),
        cmocka_unit_test(test_rows_without_a_gradient_stay),
        cmocka_unit_test(test_all_instruction_sets_give_the_same_bits),
        cmocka_unit_test(test_gradients_made_on_the_way_are_those_made_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
