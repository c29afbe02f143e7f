/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_fixture.h: memory that lies here and on a GPU, so that each byte has a twin, and the numbers
 * that fill it. Tests of the CUDA twins run one kernel here and one there, and compare. */
#ifndef EMBTIER_TESTS_UNIT_KERNELS_GPU_FIXTURE_H
#define EMBTIER_TESTS_UNIT_KERNELS_GPU_FIXTURE_H

#include "tests/unit/kernels/kernels_fixture.h"

#include "kernels/gpu/gpu.h"

/* ---- A test's memory, in both places ---- */

#define PLACES_MAX 32
#define GUARD      0xa5

/* Bytes here, and as many on the GPU. */
struct place {
    unsigned char *here;
    unsigned char *there;
    uint64_t bytes;
};

/* A test's memory, which is freed after it. */
struct gpu_test {
    struct gpu_stream *stream;
    uint64_t random;
    struct place places[PLACES_MAX];
    uint32_t place_count;
};

static inline void forget_places(struct gpu_test *t)
{
    while (t->place_count > 0) {
        const struct place *const place = &t->places[--t->place_count];

        free(place->here);
        gpu_memory_free(place->there);
    }
}

static inline int set_up(void **state)
{
    *state = fixture_alloc(1, sizeof(struct gpu_test));
    return 0;
}

static inline int tear_down(void **state)
{
    struct gpu_test *t = *state;

    forget_places(t);
    gpu_stream_free(t->stream);
    free(t);
    return 0;
}

/* Begins the test named @test. Skips it if there is no GPU. */
static inline struct gpu_test *begin(void **state, const char *test)
{
    struct gpu_test *t = *state;

    if (gpu_is_there() == 0) {
        print_message("no GPU here\n");
        skip();
    }
    t->random = seed_of_test(test, SEED_USUAL);
    assert_int_equal(gpu_stream_new(&t->stream), EMBTIER_OK);
    return t;
}

/* Makes a place of @bytes, which may be 0. It has guards here, and nothing on the GPU yet. */
static inline void *place_new(struct gpu_test *t, uint64_t bytes)
{
    struct place *const place = &t->places[t->place_count];
    void *there;

    assert_true(t->place_count < PLACES_MAX);
    place->bytes = MAX(bytes, UINT64_C(1));
    place->here = malloc(place->bytes);
    assert_non_null(place->here);
    memset(place->here, GUARD, place->bytes);
    assert_int_equal(gpu_memory_new(place->bytes, &there), EMBTIER_OK);
    place->there = there;
    t->place_count++;
    return place->here;
}

static inline const struct place *place_of(const struct gpu_test *t, const void *here)
{
    for (uint32_t i = 0; i < t->place_count; i++) {
        const struct place *const place = &t->places[i];

        if ((uintptr_t)here >= (uintptr_t)place->here &&
            (uintptr_t)here < (uintptr_t)place->here + place->bytes)
            return place;
    }
    fail_msg("no place of the test's");
    return NULL;
}

/* Returns the GPU's twin of an address here; NULL stays NULL. */
static inline void *there(const struct gpu_test *t, const void *here)
{
    const struct place *place;

    if (!here)
        return NULL;
    place = place_of(t, here);
    return place->there + ((const unsigned char *)here - place->here);
}

/* Copies all places to the GPU. */
static inline void send_places(struct gpu_test *t)
{
    for (uint32_t i = 0; i < t->place_count; i++) {
        const struct place *const place = &t->places[i];

        assert_int_equal(gpu_memory_write(place->there, place->here, place->bytes, t->stream),
                         EMBTIER_OK);
    }
}

/* Fails if a bit differs in the place that begins at @here. @what and @dim describe it. */
static inline void compare(struct gpu_test *t, const void *here, const char *what, uint32_t dim)
{
    const struct place *const place = place_of(t, here);
    unsigned char *const got = fixture_alloc(1, place->bytes);

    assert_int_equal(gpu_memory_read(place->there, place->bytes, t->stream, got), EMBTIER_OK);
    for (uint64_t i = 0; i < place->bytes; i++)
        if (got[i] != place->here[i])
            fail_msg("%s, dim %u: byte %llu of %llu is 0x%02x here and 0x%02x on the GPU", what,
                     dim, (unsigned long long)i, (unsigned long long)place->bytes, place->here[i],
                     got[i]);
    free(got);
}

/* ---- Numbers ---- */

/* Returns a number, mostly of everyday size; also zeros of both signs, denormals and large numbers.
 * No NaN and no infinity, since it is not defined which NaN they lead to. */
static inline float random_number(struct gpu_test *t)
{
    const uint32_t bits = (uint32_t)(fixture_random(&t->random) >> 32);
    const uint32_t sign_and_fraction = bits & 0x807fffff;

    switch (fixture_below(&t->random, 16)) {
    case 0:
        return f32_from_bits(bits & 0x80000000);
    case 1: /* f32's denormals */
        return f32_from_bits(sign_and_fraction);
    case 2: /* f16's denormals: 2^-24 … 2^-15 */
        return f32_from_bits(sign_and_fraction | (103 + bits % 10) << 23);
    case 3:
        return f32_from_bits(sign_and_fraction | (135 + bits % 6) << 23);
    default:
        return f32_from_bits(sign_and_fraction | (119 + bits % 10) << 23);
    }
}

static inline float *random_numbers(struct gpu_test *t, uint64_t count)
{
    float *const numbers = place_new(t, count * sizeof(float));

    for (uint64_t i = 0; i < count; i++)
        numbers[i] = random_number(t);
    return numbers;
}

/* ---- Rows ---- */

/* Rows with guards between them, every other one at an odd multiple of @align. */
struct rows {
    unsigned char *memory;
    void **here;
    void **there; /* here: addresses on the GPU; the GPU gets this array's twin */
    uint32_t count;
};

static inline struct rows rows_new(struct gpu_test *t, uint32_t row_bytes, uint32_t align,
                                   uint32_t count)
{
    const uint64_t stride = align_up(row_bytes, 2 * align) + 3 * align;
    struct rows rows = { place_new(t, count * stride), place_new(t, count * sizeof(void *)),
                         place_new(t, count * sizeof(void *)), count };

    for (uint32_t i = 0; i < count; i++) {
        rows.here[i] = rows.memory + i * stride;
        rows.there[i] = there(t, rows.here[i]);
    }
    return rows;
}

static inline struct rows random_rows(struct gpu_test *t, enum embtier_dtype dtype, uint32_t dim,
                                      uint32_t count)
{
    const struct rows rows = rows_new(t, dim * dtype_bytes(dtype), dtype_bytes(dtype), count);

    for (uint32_t i = 0; i < count; i++)
        for (uint32_t c = 0; c < dim; c++)
            fixture_set(dtype, rows.here[i], c, random_number(t));
    return rows;
}

#endif
