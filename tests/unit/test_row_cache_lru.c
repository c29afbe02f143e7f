/* SPDX-License-Identifier: Apache-2.0 */
/* test_row_cache_lru.c: how close does the cache's hit rate come to exact LRU's?
 *
 * The same draws from Zipf distributions go to a row cache and to an exact LRU list of as many rows
 * as the cache holds when it is full. The design allows a loss of 1 %. */
#include <math.h>

#include "test_row_cache_fixture.h"

#define IDS       (1u << 19)
#define DRAWS     (3u << 20)
#define WARM_UP   (1u << 20)
#define BATCH     256
#define ROW_BYTES 64
#define RATIO     0.985

/* A list by array index, youngest first; 0 is the head. */
struct exact_lru {
    uint32_t capacity, count;
    uint32_t previous[IDS + 1], next[IDS + 1];
    bool present[IDS + 1];
};

static void unlink_row(struct exact_lru *l, uint32_t row)
{
    l->next[l->previous[row]] = l->next[row];
    l->previous[l->next[row]] = l->previous[row];
}

static bool exact_access(struct exact_lru *l, uint32_t row)
{
    bool hit = l->present[++row];

    if (hit) {
        unlink_row(l, row);
    } else if (l->count == l->capacity) {
        uint32_t oldest = l->previous[0];

        unlink_row(l, oldest);
        l->present[oldest] = false;
    } else {
        l->count++;
    }
    l->present[row] = true;
    l->previous[row] = 0;
    l->next[row] = l->next[0];
    l->previous[l->next[0]] = row;
    l->next[0] = row;
    return hit;
}

static void draw_zipf(double exponent, uint32_t *ret_draws)
{
    double *below = malloc(IDS * sizeof(*below));
    uint64_t random = UINT64_C(0x21bf);
    double sum = 0;

    assert_non_null(below);
    for (uint32_t i = 0; i < IDS; i++)
        below[i] = sum += pow(i + 1, -exponent);
    for (uint32_t i = 0; i < DRAWS; i++) {
        double at = (double)(fixture_random(&random) >> 11) * 0x1p-53 * sum;
        uint32_t low = 0, high = IDS - 1;

        while (low < high) {
            uint32_t middle = (low + high) / 2;

            if (below[middle] < at)
                low = middle + 1;
            else
                high = middle;
        }
        ret_draws[i] = low;
    }
    free(below);
}

static uint32_t access_cache(struct fixture *f, const uint32_t *draws)
{
    static uint8_t rows[BATCH][ROW_BYTES];
    static const uint8_t row[ROW_BYTES];
    struct row_ref refs[BATCH], missing[BATCH];
    const void *pointers[BATCH];
    uint32_t missed[BATCH], refused[BATCH];
    uint32_t misses;

    for (uint32_t i = 0; i < BATCH; i++)
        refs[i] = fixture_ref(1, draws[i], i);
    misses = row_cache_get(f->cache, 1, refs, BATCH, rows, ROW_BYTES, missed);
    for (uint32_t i = 0; i < misses; i++) {
        missing[i] = refs[missed[i]];
        pointers[i] = row;
    }
    /* An id may be among them twice: what is cached stays. */
    assert_int_equal(row_cache_insert(f->cache, 1, missing, misses, pointers, NULL, refused), 0);
    return BATCH - misses;
}

static void compare(uint32_t tier_count, const uint32_t *slabs, double exponent)
{
    uint32_t *draws = malloc(DRAWS * sizeof(*draws));
    struct exact_lru *exact = calloc(1, sizeof(*exact));
    uint64_t hits = 0, exact_hits = 0;
    struct fixture f;

    assert_true(draws && exact);
    draw_zipf(exponent, draws);
    fixture_open(&f, tier_count, slabs, NULL, NULL);
    assert_int_equal(row_cache_add_table(f.cache, 1, ROW_BYTES, ROW_BYTES), EMBTIER_OK);
    for (uint32_t i = 0; i < DRAWS; i += BATCH) {
        uint32_t found = access_cache(&f, draws + i);

        if (i >= WARM_UP)
            hits += found;
    }
    exact->capacity = (uint32_t)fixture_rows(&f);
    for (uint32_t i = 0; i < DRAWS; i += BATCH) {
        /* The cache answers a batch before it inserts what was missing: so does this. */
        uint32_t found = 0;

        for (uint32_t j = i; j < i + BATCH; j++)
            found += exact->present[draws[j] + 1];
        for (uint32_t j = i; j < i + BATCH; j++)
            exact_access(exact, draws[j]);
        if (i >= WARM_UP)
            exact_hits += found;
    }
    printf("Zipf %.2f, %u tiers, %u rows: %.4f of exact LRU's hits (%.4f)\n", exponent, tier_count,
           exact->capacity, (double)hits / (double)exact_hits,
           (double)exact_hits / (DRAWS - WARM_UP));
    assert_true((double)hits / (double)exact_hits >= RATIO);
    fixture_validate(&f);
    fixture_close(&f);
    free(exact);
    free(draws);
}

static const double exponents[] = { 0.8, 1.05, 1.2 };

static void test_one_tier_hits_as_exact_lru_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(exponents); i++)
        compare(1, (const uint32_t[]){ 6 }, exponents[i]);
}

static void test_two_tiers_hit_as_exact_lru_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(exponents); i++)
        compare(2, (const uint32_t[]){ 4, 4 }, exponents[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_tier_hits_as_exact_lru_does),
        cmocka_unit_test(test_two_tiers_hit_as_exact_lru_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
