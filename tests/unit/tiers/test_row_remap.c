/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a remap knows the slot of each hot id and of no other, that ids which come twice or
 * change while it is made are refused, and that an id takes 16 bytes at most. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/row_hash.h"
#include "base/spec/array_shape.h"
#include "tests/seed.h"
#include "tiers/array/row_remap.h"

#define ROWS_MAX 5000
#define PORTION  77

struct ids {
    struct row_hasher hasher;
    struct row_ref refs[ROWS_MAX];
    uint32_t count;
    uint64_t multiple; /* hot ids are multiples of this */
    void *memory;
};

static struct row_ref ref_of(const struct ids *ids, uint64_t id)
{
    return (struct row_ref){ .hash = row_hash(&ids->hasher, 7, id), .id = id };
}

static void ids_open(struct ids *ids, uint32_t count, uint64_t multiple)
{
    const uint64_t seed = seed_of_test("remap", seed_random());
    const uint64_t bytes = remap_bytes_of(count);
    unsigned char key[ROW_HASH_KEY_BYTES] = { 0 };

    memcpy(key, &seed, sizeof(seed));
    row_hasher_init(&ids->hasher, key);
    ids->count = count;
    ids->multiple = multiple;
    ids->memory = aligned_alloc(CACHE_LINE, align_up(bytes, CACHE_LINE));
    memset(ids->memory, 0xa5, bytes);
    for (uint32_t i = 0; i < count; i++)
        ids->refs[i] = ref_of(ids, i * multiple);
}

static struct row_remap *remap_begin(const struct ids *ids)
{
    struct row_remap *const remap = row_remap_begin(ids->memory, ids->count);

    for (uint32_t i = 0; i < ids->count; i += PORTION)
        row_remap_count(remap, ids->refs + i, MIN(ids->count - i, (uint32_t)PORTION));
    return remap;
}

static enum embtier_err remap_end(const struct ids *ids, struct row_remap *remap, uint64_t *ret_id)
{
    for (uint32_t i = 0; i < ids->count; i += PORTION)
        row_remap_place(remap, ids->refs + i, MIN(ids->count - i, (uint32_t)PORTION));
    return row_remap_end(remap, ret_id);
}

/* Looks up hot and cold ids in turn. */
static void check_all(const struct ids *ids, const struct row_remap *remap)
{
    static bool is_taken[ROWS_MAX];
    static struct row_ref asked[2 * ROWS_MAX];
    static uint32_t slots[2 * ROWS_MAX];

    memset(is_taken, 0, sizeof(is_taken));
    for (uint32_t i = 0; i < ids->count; i++) {
        asked[2 * i] = ids->refs[i];
        asked[2 * i + 1] = ref_of(ids, i * ids->multiple + 1);
    }
    assert_int_equal(row_remap_find(remap, asked, 2 * ids->count, slots), ids->count);
    for (uint32_t i = 0; i < ids->count; i++) {
        assert_true(slots[2 * i] < ids->count);
        assert_false(is_taken[slots[2 * i]]);
        is_taken[slots[2 * i]] = true;
        assert_int_equal(row_remap_id(remap, slots[2 * i]), ids->refs[i].id);
        assert_int_equal(slots[2 * i + 1], ROW_REMAP_NO_SLOT);
    }
    assert_int_equal(row_remap_rows(remap), ids->count);
}

static void test_each_hot_id_has_a_slot_and_no_other_has(void **state)
{
    static const uint32_t counts[] = { 1, 2, 31, 32, 33, 1000, ROWS_MAX };
    static const uint64_t multiples[] = { 2, 1000003, UINT64_C(1) << 50 };
    static struct ids ids;
    uint64_t id;

    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(counts); c++)
        for (size_t m = 0; m < ARRAY_LEN(multiples); m++) {
            struct row_remap *remap;

            ids_open(&ids, counts[c], multiples[m]);
            remap = remap_begin(&ids);
            assert_int_equal(remap_end(&ids, remap, &id), EMBTIER_OK);
            check_all(&ids, remap);
            free(ids.memory);
        }
}

static void test_an_id_that_comes_twice_is_named(void **state)
{
    static struct ids ids;
    uint64_t id = 0;

    (void)state;
    ids_open(&ids, 1000, 3);
    ids.refs[999] = ids.refs[411];
    assert_int_equal(remap_end(&ids, remap_begin(&ids), &id), EMBTIER_EXISTS);
    assert_int_equal(id, ids.refs[411].id);
    free(ids.memory);
}

/* Others than were counted, fewer and more than announced. */
static void test_rows_that_change_while_it_is_made_are_refused(void **state)
{
    static struct ids ids;
    struct row_remap *remap;
    uint64_t id;

    (void)state;
    ids_open(&ids, 1000, 3);
    remap = remap_begin(&ids);
    for (uint32_t i = 0; i < 500; i++)
        ids.refs[i] = ref_of(&ids, i * 3 + 1);
    assert_int_equal(remap_end(&ids, remap, &id), EMBTIER_CORRUPT);
    ids.count = 999;
    remap = row_remap_begin(ids.memory, 1000);
    row_remap_count(remap, ids.refs, 999);
    assert_int_equal(remap_end(&ids, remap, &id), EMBTIER_CORRUPT);
    ids.count = 1000;
    remap = row_remap_begin(ids.memory, 999);
    row_remap_count(remap, ids.refs, 1000);
    assert_int_equal(remap_end(&ids, remap, &id), EMBTIER_CORRUPT);
    free(ids.memory);
}

static void test_an_id_takes_sixteen_bytes_at_most(void **state)
{
    (void)state;
    assert_true(remap_bytes_of(1000) <= 16 * 1000);
    assert_true(remap_bytes_of(100000000) <= UINT64_C(12) * 100000000 + KIB);
    assert_int_equal(remap_bytes_of(0), 0);
    assert_true(remap_bytes_of(REMAP_ROWS_MAX) > 0);
    assert_int_equal(remap_bytes_of(UINT64_C(1) + REMAP_ROWS_MAX), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_hot_id_has_a_slot_and_no_other_has),
        cmocka_unit_test(test_an_id_that_comes_twice_is_named),
        cmocka_unit_test(test_rows_that_change_while_it_is_made_are_refused),
        cmocka_unit_test(test_an_id_takes_sixteen_bytes_at_most),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
