/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that pairs are sorted by row, whatever the ids, and that the pairs of a row keep their
 * order. */
#include "tests/unit/kernels/kernels_fixture.h"

#include "kernels/cpu/cast/cast.h"

struct pairs {
    struct cast_pair *pairs;
    struct cast_pair *scratch;
    struct cast_pair *expected;
    uint32_t *starts;
    uint32_t count;
};

static struct pairs make_pairs(uint32_t count)
{
    return (struct pairs){ .pairs = fixture_alloc(count, sizeof(struct cast_pair)),
                           .scratch = fixture_alloc(count, sizeof(struct cast_pair)),
                           .expected = fixture_alloc(count, sizeof(struct cast_pair)),
                           .starts = fixture_alloc(count + 1, sizeof(uint32_t)),
                           .count = count };
}

static void free_pairs(struct pairs *pairs)
{
    free(pairs->pairs);
    free(pairs->scratch);
    free(pairs->expected);
    free(pairs->starts);
}

static int compare_pairs(const void *a, const void *b)
{
    const struct cast_pair *const x = a;
    const struct cast_pair *const y = b;

    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

/* Sorts pairs whose rows the caller has set; sets their bags and positions here. */
static void check_sort(struct pairs *p, const char *what)
{
    const struct cast_pair *sorted;
    uint32_t run_count = 0;

    for (uint32_t i = 0; i < p->count; i++) {
        p->pairs[i].bag = i / 3;
        p->pairs[i].position = i;
    }
    memcpy(p->expected, p->pairs, p->count * sizeof(*p->pairs));
    qsort(p->expected, p->count, sizeof(*p->expected), compare_pairs);
    sorted = cast_sort(p->pairs, p->scratch, p->count);
    assert_true(sorted == p->pairs || sorted == p->scratch);
    for (uint32_t i = 0; i < p->count; i++)
        if (memcmp(&sorted[i], &p->expected[i], sizeof(*sorted)) != 0)
            fail_msg("%s, %u pairs: place %u has row %#" PRIx64
                     " of position %u, expected %#" PRIx64 " of %u",
                     what, p->count, i, sorted[i].row, sorted[i].position, p->expected[i].row,
                     p->expected[i].position);
    assert_int_equal(cast_runs(sorted, p->count, p->starts),
                     cast_runs(p->expected, p->count, p->starts));
    for (uint32_t i = 0; i < p->count; i++)
        if (i == 0 || sorted[i].row != sorted[i - 1].row)
            assert_int_equal(p->starts[run_count++], i);
    assert_int_equal(p->starts[run_count], p->count);
    assert_int_equal(cast_runs(sorted, p->count, p->starts), run_count);
}

enum ids { FEW_ROWS, MANY_ROWS, WIDE, HIGH_BITS, TWO_FAR, EQUAL, SORTED, REVERSED, IDS_COUNT };

static uint64_t make_id(enum ids kind, uint32_t i, uint32_t count, uint64_t *random)
{
    const uint64_t word = fixture_random(random);

    switch (kind) {
    case FEW_ROWS:
        return word % 50;
    case MANY_ROWS:
        return word % 1000000;
    case WIDE:
        return word;
    case HIGH_BITS: /* no bits below */
        return word & UINT64_C(0xfff0000000000000);
    case TWO_FAR: /* no single digit holds these bits */
        return (word & 1) << 63 | (word & 2) << 20 | (word & 4) >> 2;
    case EQUAL:
        return UINT64_C(0x123456789abcdef0);
    case SORTED: /* all different */
        return (uint64_t)i * 3;
    case REVERSED:
        return UINT64_MAX - (uint64_t)i * 5;
    case IDS_COUNT:
        break;
    }
    return count;
}

static void test_pairs_are_sorted_by_row_and_then_by_position(void **state)
{
    static const char *const names[] = { "few rows", "many rows", "64-bit ids", "high bits",
                                         "far bits", "equal",     "sorted",     "reversed" };
    static const uint32_t counts[] = { 2,    3,    31,   32,   33,   100,   255,   256,
                                       1023, 1024, 1025, 2000, 8192, 20000, 163840 };
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t c = 0; c < ARRAY_LEN(counts); c++) {
        struct pairs pairs = make_pairs(counts[c]);

        for (enum ids kind = 0; kind < IDS_COUNT; kind++) {
            for (uint32_t i = 0; i < pairs.count; i++)
                pairs.pairs[i].row = make_id(kind, i, pairs.count, &random);
            check_sort(&pairs, names[kind]);
        }
        free_pairs(&pairs);
    }
}

/* Ids that differ in one bit each, so that every place of a digit is tested. */
static void test_every_bit_of_an_id_counts(void **state)
{
    enum { COUNT = 64 * 40 };
    struct pairs pairs = make_pairs(COUNT);
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t mask = 0; mask < 64; mask++) {
        for (uint32_t i = 0; i < COUNT; i++)
            pairs.pairs[i].row = UINT64_C(0x5555555555555555) ^ (fixture_random(&random) & 1)
                                                                    << mask;
        check_sort(&pairs, "one bit");
    }
    for (uint32_t i = 0; i < COUNT; i++)
        pairs.pairs[i].row = UINT64_C(1) << fixture_below(&random, 64);
    check_sort(&pairs, "single bits");
    free_pairs(&pairs);
}

static void test_none_and_one(void **state)
{
    struct cast_pair pair = { .row = 7, .bag = 8, .position = 9 };
    struct cast_pair scratch;
    uint32_t starts[2] = { 99, 99 };

    (void)state;
    assert_ptr_equal(cast_sort(&pair, &scratch, 0), &pair);
    assert_int_equal(cast_runs(&pair, 0, starts), 0);
    assert_int_equal(starts[0], 0);
    assert_int_equal(starts[1], 99);
    assert_ptr_equal(cast_sort(&pair, &scratch, 1), &pair);
    assert_int_equal(cast_runs(&pair, 1, starts), 1);
    assert_int_equal(starts[0], 0);
    assert_int_equal(starts[1], 1);
    assert_true(pair.row == 7 && pair.bag == 8 && pair.position == 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_are_sorted_by_row_and_then_by_position),
        cmocka_unit_test(test_every_bit_of_an_id_counts),
        cmocka_unit_test(test_none_and_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
