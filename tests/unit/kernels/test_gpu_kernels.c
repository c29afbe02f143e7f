/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the CUDA twins give the same bits as the C kernels. Without a GPU this is skipped, and
 * the test is that all functions report its absence. */
#include "tests/unit/kernels/gpu_fixture.h"

#include "kernels/cpu/init/init_rows.h"

static const uint32_t dims[] = { 1, 3, 64, 65, 200 };
static const enum embtier_dtype dtypes[] = {
#define X(name, number, word, bytes) EMBTIER_DTYPE_##name,
    EMBTIER_DTYPE_TABLE(X)
#undef X
};

/* ---- Initial values ---- */

static void check_init_rows(struct gpu_test *t, const struct table_spec *spec)
{
    const uint32_t count = 40;
    const uint32_t row_bytes = table_spec_weight_bytes(spec) + table_spec_state_bytes(spec);
    const struct rows rows = rows_new(t, row_bytes, 2, count);
    uint64_t *const ids = place_new(t, count * sizeof(*ids));

    for (uint32_t i = 0; i < count; i++)
        ids[i] = i < 20 ? i : fixture_random(&t->random);
    ids[count - 1] = UINT64_MAX;
    send_places(t);
    init_rows(spec, ids, count, rows.here);
    assert_int_equal(gpu_init_rows(spec, there(t, ids), count, there(t, rows.there), t->stream),
                     EMBTIER_OK);
    compare(t, rows.memory, init_word(spec->init), spec->dim);
    forget_places(t);
}

static void test_initial_values_are_the_same(void **state)
{
    static const struct {
        enum embtier_init init;
        double params[2];
    } inits[] = {
        { EMBTIER_INIT_ZEROS, { 0, 0 } },          { EMBTIER_INIT_CONSTANT, { -0.1, 0 } },
        { EMBTIER_INIT_UNIFORM, { -0.1, 0.1 } },   { EMBTIER_INIT_UNIFORM, { 1, 1.001 } },
        { EMBTIER_INIT_UNIFORM, { -1e39, 1e39 } }, { EMBTIER_INIT_NORMAL, { 0, 0.02 } },
        { EMBTIER_INIT_NORMAL, { 0, 1e38 } },      { EMBTIER_INIT_NORMAL, { 1, 1e-40 } },
    };
    static const enum embtier_optimizer optimizers[] = {
        EMBTIER_OPTIMIZER_NONE,
        EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD,
        EMBTIER_OPTIMIZER_ADAM,
    };
    struct gpu_test *t = begin(state, __func__);

    for (size_t i = 0; i < ARRAY_LEN(inits); i++)
        for (size_t d = 0; d < ARRAY_LEN(dims); d++)
            for (size_t y = 0; y < ARRAY_LEN(dtypes); y++)
                for (size_t o = 0; o < ARRAY_LEN(optimizers); o++) {
                    const struct table_spec spec = {
                        .name = "t",
                        .dim = dims[d],
                        .dtype = dtypes[y],
                        .optimizer = optimizers[o],
                        .init = inits[i].init,
                        .init_params = { inits[i].params[0], inits[i].params[1] },
                        .seed = UINT64_C(0xdeadbeefcafef00d),
                    };

                    check_init_rows(t, &spec);
                }
}

/* ---- Pooling ---- */

/* Empty bags at both ends and in the middle, one with a single row, and a huge one. */
static const uint32_t bag_rows[] = { 0, 1, 2, 7, 0, 33, 20000, 5, 0 };
#define BAGS ARRAY_LEN(bag_rows)

static uint32_t *bag_offsets(struct gpu_test *t)
{
    uint32_t *const offsets = place_new(t, (BAGS + 1) * sizeof(*offsets));

    offsets[0] = 0;
    for (size_t b = 0; b < BAGS; b++)
        offsets[b + 1] = offsets[b] + bag_rows[b];
    return offsets;
}

/* @bag_count bags from @first on, with the rows that @offsets names. The first bag already has
 * @begun rows. */
struct piece {
    uint32_t first;
    uint32_t bag_count;
    const uint32_t *offsets;
    uint32_t row; /* index of its first row among all bags' rows */
    uint32_t begun;
};

static void pool_both(struct gpu_test *t, const struct pool_batch *all, const struct rows *named,
                      const struct piece *piece)
{
    struct pool_batch batch = *all;

    batch.rows = (const void *const *)named->here + piece->row;
    batch.weights = all->weights ? all->weights + piece->row : NULL;
    batch.offsets = piece->offsets;
    batch.bag_count = piece->bag_count;
    batch.begun = piece->begun;
    batch.bags = all->bags + (size_t)piece->first * all->dim;
    batch.winners = all->winners ? all->winners + (size_t)piece->first * all->dim : NULL;
    pool_rows(&batch);
    batch.rows = (const void *const *)there(t, named->there + piece->row);
    batch.weights = there(t, batch.weights);
    batch.offsets = there(t, batch.offsets);
    batch.bags = there(t, batch.bags);
    batch.winners = there(t, batch.winners);
    assert_int_equal(gpu_pool_rows(&batch, t->stream), EMBTIER_OK);
}

/* Makes pointers to the bags' rows: many pointers to few rows. */
static struct rows name_rows(struct gpu_test *t, const struct rows *rows, uint32_t count)
{
    const struct rows named = { NULL, place_new(t, count * sizeof(void *)),
                                place_new(t, count * sizeof(void *)), count };

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t row = fixture_below(&t->random, rows->count);

        named.here[i] = rows->here[row];
        named.there[i] = rows->there[row];
    }
    return named;
}

static void check_pool(struct gpu_test *t, enum embtier_dtype dtype, uint32_t dim,
                       enum embtier_pool mode, bool has_extra, uint32_t row_count)
{
    const struct rows rows = random_rows(t, dtype, dim, row_count);
    uint32_t *const offsets = bag_offsets(t);
    uint32_t *const rest_offsets = place_new(t, 4 * sizeof(*rest_offsets));
    const struct rows named = name_rows(t, &rows, offsets[BAGS]);
    uint32_t *const counts = place_new(t, sizeof(bag_rows));
    const struct pool_batch all = {
        .dtype = dtype,
        .dim = dim,
        .mode = mode,
        .weights = has_extra && mode != EMBTIER_POOL_MAX ? random_numbers(t, offsets[BAGS]) : NULL,
        .bags = place_new(t, BAGS * dim * sizeof(float)),
        .winners = has_extra && mode == EMBTIER_POOL_MAX
                       ? place_new(t, BAGS * dim * sizeof(uint32_t))
                       : NULL,
    };
    const struct piece whole = { 0, BAGS, offsets, 0, 0 };
    /* A bag of two rows goes on, and two bags behind it start anew. A long bag goes on, with no
     * rows. */
    const struct piece more = { 2, 3, rest_offsets, 11, bag_rows[2] };
    const struct piece none = { 6, 1, offsets, 0, bag_rows[6] };

    rest_offsets[0] = 0;
    rest_offsets[1] = 9;
    rest_offsets[2] = 12;
    rest_offsets[3] = 12;
    memcpy(counts, bag_rows, sizeof(bag_rows));
    send_places(t);
    pool_both(t, &all, &named, &whole);
    compare(t, all.bags, "pooled", dim);
    pool_both(t, &all, &named, &more);
    pool_both(t, &all, &named, &none);
    compare(t, all.bags, "pooled on", dim);
    if (all.winners)
        compare(t, all.winners, "winners", dim);
    pool_divide(all.bags, dim, counts, BAGS);
    assert_int_equal(gpu_pool_divide(there(t, all.bags), dim, there(t, counts), BAGS, t->stream),
                     EMBTIER_OK);
    compare(t, all.bags, "divided", dim);
    forget_places(t);
}

static void test_bags_are_pooled_the_same(void **state)
{
    static const enum embtier_pool modes[] = { EMBTIER_POOL_SUM, EMBTIER_POOL_MEAN,
                                               EMBTIER_POOL_MAX };
    struct gpu_test *t = begin(state, __func__);

    for (size_t m = 0; m < ARRAY_LEN(modes); m++)
        for (size_t d = 0; d < ARRAY_LEN(dims); d++)
            for (size_t y = 0; y < ARRAY_LEN(dtypes); y++)
                for (int has_extra = 0; has_extra <= 1; has_extra++)
                    check_pool(t, dtypes[y], dims[d], modes[m], has_extra, 50);
}

static void test_of_equal_rows_the_first_wins(void **state)
{
    struct gpu_test *t = begin(state, __func__);

    for (size_t y = 0; y < ARRAY_LEN(dtypes); y++)
        check_pool(t, dtypes[y], 65, EMBTIER_POOL_MAX, true, 1);
}

/* ---- Casting ---- */

static void check_cast(struct gpu_test *t, uint32_t count, uint64_t row_mask)
{
    const uint64_t pairs_bytes = count * sizeof(struct cast_pair);
    struct cast_pair *const pairs = place_new(t, pairs_bytes);
    uint32_t *const starts = place_new(t, (count + 1) * sizeof(*starts));
    struct cast_pair *const scratch = fixture_alloc(count + 1, sizeof(*scratch));
    uint32_t gpu_run_count = UINT32_MAX;
    uint32_t run_count;
    uint64_t scratch_bytes;
    void *gpu_scratch;

    assert_int_equal(gpu_cast_scratch_bytes(count, &scratch_bytes), EMBTIER_OK);
    assert_int_equal(gpu_memory_new(scratch_bytes, &gpu_scratch), EMBTIER_OK);
    for (uint32_t i = 0; i < count; i++)
        pairs[i] = (struct cast_pair){ fixture_random(&t->random) & row_mask, i / 3, i };
    send_places(t);
    assert_int_equal(gpu_cast_sort(there(t, pairs), count, gpu_scratch, scratch_bytes, t->stream),
                     EMBTIER_OK);
    memmove(pairs, cast_sort(pairs, scratch, count), pairs_bytes);
    compare(t, pairs, "sorted", count);
    run_count = cast_runs(pairs, count, starts);
    assert_int_equal(gpu_cast_runs(there(t, pairs), count, gpu_scratch, scratch_bytes, t->stream,
                                   there(t, starts), &gpu_run_count),
                     EMBTIER_OK);
    assert_int_equal(gpu_run_count, run_count);
    /* The bytes behind the last start are not defined. */
    assert_int_equal(gpu_memory_read((uint32_t *)there(t, starts),
                                     (run_count + 1) * sizeof(*starts), t->stream, scratch),
                     EMBTIER_OK);
    assert_memory_equal(scratch, starts, (run_count + 1) * sizeof(*starts));
    gpu_memory_free(gpu_scratch);
    free(scratch);
    forget_places(t);
}

static void test_pairs_are_sorted_and_cut_the_same(void **state)
{
    static const uint32_t counts[] = { 0, 1, 2, 1000, 70000, 1u << 20 };
    static const uint64_t masks[] = { 0, 0xff, 0xfffff, UINT64_C(0xff000000000000ff), UINT64_MAX };
    struct gpu_test *t = begin(state, __func__);

    for (size_t c = 0; c < ARRAY_LEN(counts); c++)
        for (size_t m = 0; m < ARRAY_LEN(masks); m++)
            check_cast(t, counts[c], masks[m]);
}

/* ---- Reducing ---- */

/* Makes sorted pairs, as many as the bags have rows. One row has half of them. */
static struct cast_pair *make_pairs(struct gpu_test *t, const uint32_t *offsets, uint32_t row_limit)
{
    const uint32_t count = offsets[BAGS];
    struct cast_pair *const pairs = place_new(t, count * sizeof(*pairs));
    struct cast_pair *const scratch = fixture_alloc(count, sizeof(*scratch));
    uint32_t bag = 0;

    for (uint32_t i = 0; i < count; i++) {
        while (i >= offsets[bag + 1])
            bag++;
        pairs[i] = (struct cast_pair){ i % 2 ? 7 : fixture_below(&t->random, row_limit), bag, i };
    }
    memmove(pairs, cast_sort(pairs, scratch, count), count * sizeof(*pairs));
    free(scratch);
    return pairs;
}

/* Reduces some of the runs, with a list of the bags' places. */
static void check_reduce_of_some(struct gpu_test *t, const struct reduce_batch *all)
{
    const struct rows bags = random_rows(t, EMBTIER_DTYPE_F32, all->dim, BAGS);
    uint32_t *const runs = place_new(t, all->run_count * sizeof(*runs));
    float *const rows = place_new(t, (uint64_t)all->run_count * all->dim * sizeof(float));
    struct reduce_batch batch = *all;

    batch.bags = NULL;
    batch.bag_places = (const float *const *)bags.here;
    batch.runs = runs;
    batch.rows = rows;
    batch.run_count = 0;
    for (uint32_t r = 0; r < all->run_count; r++)
        if (r % 5 < 2)
            runs[batch.run_count++] = r;
    send_places(t);
    reduce_runs(&batch);
    batch.bag_places = there(t, bags.there);
    batch.runs = there(t, runs);
    batch.pairs = there(t, batch.pairs);
    batch.scales = there(t, batch.scales);
    batch.winners = there(t, batch.winners);
    batch.offsets = there(t, batch.offsets);
    batch.starts = there(t, batch.starts);
    batch.rows = there(t, rows);
    assert_int_equal(gpu_reduce_runs(&batch, t->stream), EMBTIER_OK);
    compare(t, rows, "some runs reduced", all->dim);
}

static void check_reduce(struct gpu_test *t, uint32_t dim, bool has_scales, bool is_max)
{
    uint32_t *const offsets = bag_offsets(t);
    struct cast_pair *const pairs = make_pairs(t, offsets, 500);
    uint32_t *const starts = place_new(t, (offsets[BAGS] + 1) * sizeof(*starts));
    uint32_t *const winners = place_new(t, BAGS * dim * sizeof(*winners));
    struct reduce_batch batch = {
        .dim = dim,
        .bags = random_numbers(t, BAGS * (uint64_t)dim),
        .pairs = pairs,
        .scales = has_scales ? random_numbers(t, offsets[BAGS]) : NULL,
        .winners = is_max ? winners : NULL,
        .offsets = is_max ? offsets : NULL,
        .starts = starts,
        .run_count = cast_runs(pairs, offsets[BAGS], starts),
    };
    float *rows;

    rows = place_new(t, (uint64_t)batch.run_count * dim * sizeof(float));
    batch.rows = rows;
    for (uint32_t i = 0; i < BAGS * dim; i++)
        winners[i] =
            bag_rows[i / dim] > 0 ? fixture_below(&t->random, bag_rows[i / dim]) : UINT32_MAX;
    check_reduce_of_some(t, &batch);
    send_places(t);
    reduce_runs(&batch);
    batch.bags = there(t, batch.bags);
    batch.pairs = there(t, batch.pairs);
    batch.scales = there(t, batch.scales);
    batch.winners = there(t, batch.winners);
    batch.offsets = there(t, batch.offsets);
    batch.starts = there(t, batch.starts);
    batch.rows = there(t, rows);
    assert_int_equal(gpu_reduce_runs(&batch, t->stream), EMBTIER_OK);
    compare(t, rows, is_max ? "reduced, of maxima" : "reduced", dim);
    forget_places(t);
}

static void test_gradients_are_reduced_the_same(void **state)
{
    struct gpu_test *t = begin(state, __func__);

    for (size_t d = 0; d < ARRAY_LEN(dims); d++)
        for (int kind = 0; kind < 4; kind++)
            check_reduce(t, dims[d], kind % 2 == 1, kind / 2 == 1);
}

static bool gpu_says_all_finite(struct gpu_test *t, const float *numbers, uint64_t count,
                                uint32_t *scratch)
{
    bool is_finite = false;

    send_places(t);
    assert_int_equal(
        gpu_reduce_all_finite(there(t, numbers), count, there(t, scratch), t->stream, &is_finite),
        EMBTIER_OK);
    return is_finite;
}

static void test_one_number_that_is_not_finite_is_found(void **state)
{
    static const uint64_t counts[] = { 1, 1000, 3000001 };
    static const uint32_t bad[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0xff800001 };
    struct gpu_test *t = begin(state, __func__);
    uint32_t *const scratch = place_new(t, sizeof(*scratch));
    float *const numbers = random_numbers(t, counts[ARRAY_LEN(counts) - 1]);

    assert_true(gpu_says_all_finite(t, numbers, 0, scratch));
    for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
        assert_true(gpu_says_all_finite(t, numbers, counts[c], scratch));
        for (size_t b = 0; b < ARRAY_LEN(bad); b++) {
            const uint64_t at = b == 0 ? counts[c] - 1 : fixture_random(&t->random) % counts[c];
            const float before = numbers[at];

            numbers[at] = f32_from_bits(bad[b]);
            assert_false(gpu_says_all_finite(t, numbers, counts[c], scratch));
            numbers[at] = before;
        }
    }
}

static void check_weight_gradients(struct gpu_test *t, enum embtier_dtype dtype, uint32_t dim,
                                   bool has_divisors)
{
    const uint32_t count = 301;
    const struct rows rows = random_rows(t, dtype, dim, count);
    const struct rows bags = random_rows(t, EMBTIER_DTYPE_F32, dim, BAGS);
    const struct rows row_bags = name_rows(t, &bags, count);
    float *const divisors = has_divisors ? place_new(t, count * sizeof(float)) : NULL;
    float *const gradients = place_new(t, count * sizeof(float));

    for (uint32_t i = 0; divisors && i < count; i++)
        divisors[i] = (float)(1 + fixture_below(&t->random, 100));
    send_places(t);
    reduce_weight_gradients(dtype, dim, (const void *const *)rows.here,
                            (const float *const *)row_bags.here, divisors, count, gradients);
    assert_int_equal(gpu_reduce_weight_gradients(dtype, dim, there(t, rows.there),
                                                 there(t, row_bags.there), there(t, divisors),
                                                 count, t->stream, there(t, gradients)),
                     EMBTIER_OK);
    compare(t, gradients, "gradients of weights", dim);
    forget_places(t);
}

static void test_gradients_of_weights_are_the_same(void **state)
{
    struct gpu_test *t = begin(state, __func__);

    for (size_t d = 0; d < ARRAY_LEN(dims); d++)
        for (size_t y = 0; y < ARRAY_LEN(dtypes); y++)
            for (int has_divisors = 0; has_divisors <= 1; has_divisors++)
                check_weight_gradients(t, dtypes[y], dims[d], has_divisors);
}

/* ---- Optimizers ---- */

#define STEPS 3

static void check_optimizer(struct gpu_test *t, const struct table_spec *spec)
{
    const uint32_t count = 61;
    const uint32_t weight_bytes = table_spec_weight_bytes(spec);
    const uint32_t state_bytes = table_spec_state_bytes(spec);
    const struct rows rows =
        rows_new(t, weight_bytes + state_bytes, dtype_bytes(spec->dtype), count);
    uint64_t *const ids = place_new(t, count * sizeof(*ids));
    float *const gradients = place_new(t, (uint64_t)count * spec->dim * sizeof(float));

    for (uint32_t i = 0; i < count; i++) {
        ids[i] = fixture_random(&t->random);
        for (uint32_t c = 0; c < spec->dim; c++)
            fixture_set(spec->dtype, rows.here[i], c, random_number(t));
        memset((char *)rows.here[i] + weight_bytes, 0, state_bytes);
    }
    send_places(t);
    for (uint64_t step = 1; step <= STEPS; step++) {
        /* The last step shows whether both halves of the number are used. */
        const uint64_t number = step == STEPS ? OPTIMIZER_STEP_MAX : step;
        struct optimizer_push push;

        for (uint64_t i = 0; i < (uint64_t)count * spec->dim; i++)
            gradients[i] = random_number(t);
        assert_int_equal(gpu_memory_write(there(t, gradients), gradients,
                                          (uint64_t)count * spec->dim * sizeof(float), t->stream),
                         EMBTIER_OK);
        optimizer_prepare(spec, 0.01, number, &push);
        optimizer_update(&push, ids, rows.here, gradients, count);
        assert_int_equal(gpu_optimizer_update(&push, there(t, ids), there(t, rows.there),
                                              there(t, gradients), count, t->stream),
                         EMBTIER_OK);
        compare(t, rows.memory, optimizer_word(spec->optimizer), spec->dim);
    }
    forget_places(t);
}

/* With and without clipping, weight decay and stochastic rounding. */
static void check_optimizer_variants(struct gpu_test *t, enum embtier_optimizer optimizer,
                                     enum embtier_dtype dtype, uint32_t dim)
{
    for (int variant = 0; variant < 8; variant++) {
        const struct table_spec spec = {
            .name = "t",
            .dim = dim,
            .dtype = dtype,
            .optimizer = optimizer,
            .eps = 1e-8,
            .alpha = 0.99,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .momentum = 0.9,
            .clip_norm = variant & 1 ? 3.0 : 0,
            .weight_decay = variant & 2 ? 0.01 : 0,
            .rounds_to_nearest = variant & 4,
            .seed = UINT64_C(0xdeadbeefcafef00d),
        };

        check_optimizer(t, &spec);
    }
}

static void test_rows_are_updated_the_same(void **state)
{
    static const enum embtier_optimizer optimizers[] = {
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    EMBTIER_OPTIMIZER_##name,
        EMBTIER_OPTIMIZER_TABLE(X)
#undef X
    };
    struct gpu_test *t = begin(state, __func__);

    for (size_t o = 0; o < ARRAY_LEN(optimizers); o++)
        for (size_t y = 0; y < ARRAY_LEN(dtypes); y++)
            for (size_t d = 0; d < ARRAY_LEN(dims); d++)
                if (optimizers[o] != EMBTIER_OPTIMIZER_NONE)
                    check_optimizer_variants(t, optimizers[o], dtypes[y], dims[d]);
}

/* ---- No work, and no GPU ---- */

static void test_no_work_is_no_error(void **state)
{
    struct gpu_test *t = begin(state, __func__);
    const struct table_spec spec = {
        .name = "t", .dim = 8, .dtype = EMBTIER_DTYPE_F32, .optimizer = EMBTIER_OPTIMIZER_SGD
    };
    const struct pool_batch pool = { .dtype = EMBTIER_DTYPE_F32,
                                     .dim = 8,
                                     .mode = EMBTIER_POOL_SUM };
    const struct reduce_batch reduce = { .dim = 8 };
    struct optimizer_push push;

    optimizer_prepare(&spec, 0.1, 1, &push);
    assert_int_equal(gpu_init_rows(&spec, NULL, 0, NULL, t->stream), EMBTIER_OK);
    assert_int_equal(gpu_pool_rows(&pool, t->stream), EMBTIER_OK);
    assert_int_equal(gpu_pool_divide(NULL, 8, NULL, 0, t->stream), EMBTIER_OK);
    assert_int_equal(gpu_cast_sort(NULL, 0, NULL, 0, t->stream), EMBTIER_OK);
    assert_int_equal(gpu_reduce_runs(&reduce, t->stream), EMBTIER_OK);
    assert_int_equal(
        gpu_reduce_weight_gradients(EMBTIER_DTYPE_F32, 8, NULL, NULL, NULL, 0, t->stream, NULL),
        EMBTIER_OK);
    assert_int_equal(gpu_optimizer_update(&push, NULL, NULL, NULL, 0, t->stream), EMBTIER_OK);
    assert_int_equal(gpu_stream_wait(t->stream), EMBTIER_OK);
}

static void test_memory_that_the_gpu_does_not_have_is_refused(void **state)
{
    struct gpu_test *t = begin(state, __func__);
    float *const bag = random_numbers(t, 8);
    uint32_t *const count = place_new(t, sizeof(*count));
    void *memory = NULL;

    assert_int_equal(gpu_memory_new(UINT64_C(1) << 50, &memory), EMBTIER_NO_MEMORY);
    assert_null(memory);
    /* The next call knows nothing of the error. */
    count[0] = 1;
    send_places(t);
    assert_int_equal(gpu_pool_divide(there(t, bag), 8, there(t, count), 1, t->stream), EMBTIER_OK);
    assert_int_equal(gpu_stream_wait(t->stream), EMBTIER_OK);
}

static void test_where_there_is_no_gpu_every_call_says_so(void **state)
{
    const struct table_spec spec = {
        .name = "t", .dim = 1, .dtype = EMBTIER_DTYPE_F32, .optimizer = EMBTIER_OPTIMIZER_SGD
    };
    float numbers[2] = { 1, 2 };
    void *rows[1] = { numbers };
    const uint64_t id = 0;
    const uint32_t ends[2] = { 0, 1 };
    struct cast_pair pair = { 0 };
    const struct pool_batch pool = { .dtype = EMBTIER_DTYPE_F32,
                                     .dim = 1,
                                     .mode = EMBTIER_POOL_SUM,
                                     .rows = (const void *const *)rows,
                                     .offsets = ends,
                                     .bag_count = 1,
                                     .bags = numbers };
    const struct reduce_batch reduce = {
        .dim = 1, .bags = numbers, .pairs = &pair, .starts = ends, .run_count = 1, .rows = numbers
    };
    const struct optimizer_push push = {
        .optimizer = EMBTIER_OPTIMIZER_SGD, .dtype = EMBTIER_DTYPE_F32, .dim = 1, .weight_bytes = 4
    };
    struct gpu_stream *stream = NULL;
    void *memory = NULL;
    uint64_t bytes;
    uint32_t word = 0;
    bool is_finite;

    (void)state;
    if (gpu_is_there() > 0)
        skip();
    assert_int_equal(gpu_stream_new(&stream), EMBTIER_UNSUPPORTED);
    assert_null(stream);
    assert_int_equal(gpu_stream_wait(NULL), EMBTIER_UNSUPPORTED);
    assert_int_equal(gpu_memory_new(256, &memory), EMBTIER_UNSUPPORTED);
    assert_null(memory);
    assert_int_equal(gpu_memory_write(numbers, numbers, 4, NULL), EMBTIER_UNSUPPORTED);
    assert_int_equal(gpu_memory_read(numbers, 4, NULL, numbers), EMBTIER_UNSUPPORTED);
    assert_int_equal(gpu_init_rows(&spec, &id, 1, rows, NULL), EMBTIER_UNSUPPORTED);
    assert_int_equal(gpu_pool_rows(&pool, NULL), EMBTIER_UNSUPPORTED);
    assert_int_equal(gpu_pool_divide(numbers, 1, ends, 1, NULL), EMBTIER_UNSUPPORTED);
    assert_int_equal(gpu_cast_scratch_bytes(1, &bytes), EMBTIER_UNSUPPORTED);
    assert_int_equal(gpu_cast_sort(&pair, 1, numbers, 8, NULL), EMBTIER_UNSUPPORTED);
    assert_int_equal(gpu_cast_runs(&pair, 1, numbers, 8, NULL, &word, &word), EMBTIER_UNSUPPORTED);
    assert_int_equal(gpu_reduce_runs(&reduce, NULL), EMBTIER_UNSUPPORTED);
    assert_int_equal(gpu_reduce_all_finite(numbers, 2, &word, NULL, &is_finite),
                     EMBTIER_UNSUPPORTED);
    assert_int_equal(gpu_reduce_weight_gradients(EMBTIER_DTYPE_F32, 1, (const void *const *)rows,
                                                 (const float *const *)rows, NULL, 1, NULL,
                                                 numbers),
                     EMBTIER_UNSUPPORTED);
    assert_int_equal(gpu_optimizer_update(&push, &id, rows, numbers, 1, NULL), EMBTIER_UNSUPPORTED);
    gpu_stream_free(NULL);
    gpu_memory_free(NULL);
}

#define GPU_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GPU_TEST(test_initial_values_are_the_same),
        GPU_TEST(test_bags_are_pooled_the_same),
        GPU_TEST(test_of_equal_rows_the_first_wins),
        GPU_TEST(test_pairs_are_sorted_and_cut_the_same),
        GPU_TEST(test_gradients_are_reduced_the_same),
        GPU_TEST(test_one_number_that_is_not_finite_is_found),
        GPU_TEST(test_gradients_of_weights_are_the_same),
        GPU_TEST(test_rows_are_updated_the_same),
        GPU_TEST(test_no_work_is_no_error),
        GPU_TEST(test_memory_that_the_gpu_does_not_have_is_refused),
        cmocka_unit_test(test_where_there_is_no_gpu_every_call_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
