/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the kernels give the same bits on every machine, with every processor, compiler and C
 * library.
 *
 * Other tests compare instruction sets with one another on one machine. This one hashes the bytes
 * that each kernel makes from the same random numbers, and compares with recorded hashes. */
#include <xxhash.h>

#include "kernels/cpu/init/init_rows.h"
#include "kernels/cpu/pool/pool.h"
#include "kernels/cpu/reduce/reduce.h"
#include "tests/unit/kernels/optimizer_fixture.h"

#define ROWS 40
#define BAGS 8
#define DIM  37 /* not a multiple of a vector's length */

struct bits {
    XXH64_state_t *state;
    uint64_t random;
};

static struct bits bits_begin(void)
{
    struct bits bits = { .state = XXH64_createState(), .random = UINT64_C(0x5eed0001) };

    assert_non_null(bits.state);
    assert_int_equal(XXH64_reset(bits.state, 0), XXH_OK);
    return bits;
}

static void add_bits(struct bits *bits, const void *bytes, size_t count)
{
    assert_int_equal(XXH64_update(bits->state, bytes, count), XXH_OK);
}

static void check_bits(struct bits *bits, uint64_t expected)
{
    const uint64_t hash = XXH64_digest(bits->state);

    XXH64_freeState(bits->state);
    if (hash != expected)
        fail_msg("these bits have the hash %#" PRIx64 ", and on other machines %#" PRIx64, hash,
                 expected);
}

static void add_table(struct bits *bits, const struct table *table)
{
    for (uint32_t i = 0; i < table->count; i++)
        add_bits(bits, table->rows[i], table->row_bytes);
}

static float *random_floats(struct bits *bits, size_t count)
{
    float *const numbers = fixture_alloc(count, sizeof(*numbers));

    for (size_t i = 0; i < count; i++)
        numbers[i] = fixture_float(&bits->random);
    return numbers;
}

static void test_initial_values(void **state)
{
    struct bits bits = bits_begin();

    (void)state;
    for (int init = 0; init <= 3; init++)
        for (int dtype = 1; dtype <= 3; dtype++) {
            struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_NONE, dtype, DIM, 0, 0);
            struct table table;

            spec.init = init;
            spec.init_params[0] = -0.25;
            spec.init_params[1] = 0.75;
            table = make_table(&spec, ROWS, &bits.random);
            init_rows(&spec, table.ids, ROWS, table.rows);
            add_table(&bits, &table);
            free_table(&table);
        }
    check_bits(&bits, UINT64_C(0x290797f1d0fbe1ed));
}

static void test_pooling(void **state)
{
    static const uint32_t offsets[BAGS + 1] = { 0, 0, 1, 3, 6, 10, 20, 21, ROWS };
    struct bits bits = bits_begin();

    (void)state;
    for (int mode = 1; mode <= 3; mode++)
        for (int dtype = 1; dtype <= 3; dtype++)
            for (int is_weighted = 0; is_weighted < 2; is_weighted++) {
                const struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_NONE, dtype, DIM, 0, 0);
                struct table table = make_table(&spec, ROWS, &bits.random);
                float *const weights = random_floats(&bits, ROWS);
                float *const sums = random_floats(&bits, BAGS * DIM);
                uint32_t counts[BAGS];

                pool_rows(&(struct pool_batch){
                    .dtype = dtype,
                    .dim = DIM,
                    .mode = mode,
                    .rows = (const void *const *)table.rows,
                    .weights = is_weighted && mode != EMBTIER_POOL_MAX ? weights : NULL,
                    .offsets = offsets,
                    .bag_count = BAGS,
                    .bags = sums });
                for (uint32_t b = 0; b < BAGS; b++)
                    counts[b] = offsets[b + 1] - offsets[b];
                if (mode == EMBTIER_POOL_MEAN)
                    pool_divide(sums, DIM, counts, BAGS);
                add_bits(&bits, sums, BAGS * DIM * sizeof(*sums));
                free(sums);
                free(weights);
                free_table(&table);
            }
    check_bits(&bits, UINT64_C(0x800fa47f739cac53));
}

static void test_reducing(void **state)
{
    struct cast_pair pairs[ROWS * 4], scratch[ROWS * 4], *sorted;
    struct bits bits = bits_begin();
    uint32_t starts[ROWS * 4 + 1], run_count;
    float *gradients, *scales, *rows;

    (void)state;
    gradients = random_floats(&bits, BAGS * DIM);
    scales = random_floats(&bits, ARRAY_LEN(pairs));
    rows = random_floats(&bits, ARRAY_LEN(pairs) * DIM);
    for (uint32_t i = 0; i < ARRAY_LEN(pairs); i++)
        pairs[i] = (struct cast_pair){ .row = fixture_below(&bits.random, ROWS),
                                       .bag = i * BAGS / ARRAY_LEN(pairs),
                                       .position = i };
    sorted = cast_sort(pairs, scratch, ARRAY_LEN(pairs));
    run_count = cast_runs(sorted, ARRAY_LEN(pairs), starts);
    reduce_runs(&(struct reduce_batch){ .dim = DIM,
                                        .bags = gradients,
                                        .bag_count = BAGS,
                                        .pairs = sorted,
                                        .scales = scales,
                                        .starts = starts,
                                        .run_count = run_count,
                                        .rows = rows });
    add_bits(&bits, sorted, sizeof(pairs));
    add_bits(&bits, rows, run_count * DIM * sizeof(*rows));
    free(rows);
    free(scales);
    free(gradients);
    check_bits(&bits, UINT64_C(0xb200a0d23c8c17c1));
}

/* Gradients of the samples' weights are sums in an order of their own. */
static void test_gradients_of_weights(void **state)
{
    struct bits bits = bits_begin();

    (void)state;
    for (int dtype = 1; dtype <= 3; dtype++) {
        const struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_NONE, dtype, DIM, 0, 0);
        struct table table = make_table(&spec, ROWS, &bits.random);
        float *const gradients = random_floats(&bits, ROWS * DIM);
        float *const divisors = random_floats(&bits, ROWS);
        const float *bags[ROWS];
        float made[ROWS];

        for (uint32_t i = 0; i < ROWS; i++)
            bags[i] = gradients + i * DIM;
        reduce_weight_gradients(dtype, DIM, (const void *const *)table.rows, bags, divisors, ROWS,
                                made);
        add_bits(&bits, made, sizeof(made));
        free(divisors);
        free(gradients);
        free_table(&table);
    }
    check_bits(&bits, UINT64_C(0x164eebafbd284336));
}

static void add_updates(struct bits *bits, const struct table_spec *spec)
{
    static const uint64_t steps[] = { 1, 2, 1000, 123456789 };
    struct table table = make_table(spec, ROWS, &bits->random);
    uint32_t chosen[ROWS];

    for (uint32_t i = 0; i < ROWS; i++)
        chosen[i] = i;
    for (size_t s = 0; s < ARRAY_LEN(steps); s++) {
        float *const gradients = random_floats(bits, ROWS * DIM);

        update_chosen(kernels_isa_best(), &table, 0.01, steps[s], chosen, ROWS, gradients);
        add_table(bits, &table);
        free(gradients);
    }
    free_table(&table);
}

/* Returns the bits of the optimizers numbered @first to @last. */
static struct bits bits_of_optimizers(int first, int last)
{
    struct bits bits = bits_begin();

#define X(name, number, ...)                                                                       \
    for (int dtype = 1; dtype <= 3 && (number) >= first && (number) <= last; dtype++)              \
        for (int to_nearest = 0; to_nearest < 2; to_nearest++) {                                   \
            struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_##name, dtype, DIM, 3, 0.01);       \
                                                                                                   \
            spec.rounds_to_nearest = to_nearest;                                                   \
            add_updates(&bits, &spec);                                                             \
        }
    EMBTIER_OPTIMIZER_TABLE(X)
#undef X
    return bits;
}

static void test_updates(void **state)
{
    struct bits first = bits_of_optimizers(EMBTIER_OPTIMIZER_SGD, EMBTIER_OPTIMIZER_ADAM);
    struct bits then = bits_of_optimizers(EMBTIER_OPTIMIZER_MOMENTUM, LAST_OPTIMIZER);

    (void)state;
    check_bits(&first, UINT64_C(0xb800f98a0bd0dac2));
    check_bits(&then, UINT64_C(0x0aae7e865296a6dc));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_initial_values), cmocka_unit_test(test_pooling),
        cmocka_unit_test(test_reducing),       cmocka_unit_test(test_gradients_of_weights),
        cmocka_unit_test(test_updates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
