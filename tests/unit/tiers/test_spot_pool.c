/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that rows that are found while they are pooled give the same bits as given rows, with every
 * instruction set, and that the search reads and stamps no other spots. */
#include "tests/unit/kernels/pool_fixture.h"

#include "tiers/spots/spot_pool.h"

#define NOW 777

/* A table's rows, and the words with their places. Both memories end with their last byte before an
 * unmapped page. */
struct table {
    enum embtier_dtype dtype;
    uint32_t dim;
    uint32_t id_count;
    struct row_spots where;
    struct row_spot *before; /* the words before any search */
    struct fixture_guarded memory;
    struct fixture_guarded words;
};

/* Returns a word's value that says that the row is absent or elsewhere. */
static uint32_t slot_and_1_of_none(uint32_t slot_end, uint64_t *random)
{
    const uint32_t none[] = { 0, slot_end + 1, slot_end + 2, UINT32_MAX };

    return none[fixture_below(random, ARRAY_LEN(none))];
}

/* Rows lie in any order, with gaps. One id in @of has no row; 0: all have one. */
static struct table make_table(enum embtier_dtype dtype, uint32_t dim, uint32_t id_count,
                               uint32_t of, uint64_t *random)
{
    const uint32_t row_bytes = dim * dtype_bytes(dtype);
    const uint8_t shift = (uint8_t)(2 + fixture_below(random, 8));
    const uint32_t slots = (uint32_t)(align_up(row_bytes, UINT32_C(1) << shift) >> shift);
    struct table table = { .dtype = dtype,
                           .dim = dim,
                           .id_count = id_count,
                           .before = fixture_alloc(id_count, sizeof(*table.before)),
                           .words = fixture_guarded(id_count * sizeof(*table.before)) };
    uint32_t slot = fixture_below(random, 2);
    size_t bytes;

    for (uint32_t i = 0; i < id_count; i++) {
        const uint32_t other = fixture_below(random, i + 1);

        table.before[i] = table.before[other];
        table.before[other] = (struct row_spot){
            .slot_and_1 = slot + 1,
            .stamp = (uint16_t)(NOW - fixture_below(random, 3)),
            .dirty = (uint16_t)fixture_below(random, 2),
        };
        table.where.slot_end = slot + 1;
        slot += slots + fixture_below(random, 3);
    }
    table.where.slot_shift = shift;
    table.where.now = NOW;
    bytes = ((size_t)(table.where.slot_end - 1) << shift) + row_bytes;
    table.memory = fixture_guarded(bytes);
    table.where.base = (uint8_t *)table.memory.end - bytes;
    table.where.spots = (struct row_spot *)table.words.end - id_count;
    for (uint32_t i = 0; i < id_count; i++) {
        uint8_t *const row = table.where.base + ((size_t)(table.before[i].slot_and_1 - 1) << shift);

        for (uint32_t c = 0; c < dim; c++)
            fixture_set(dtype, row, c, fixture_float(random));
        if (of != 0 && fixture_below(random, of) == 0)
            table.before[i].slot_and_1 = slot_and_1_of_none(table.where.slot_end, random);
    }
    return table;
}

static void free_table(struct table *table)
{
    fixture_guarded_free(&table->memory);
    fixture_guarded_free(&table->words);
    free(table->before);
}

/* Returns the place of row @id, or NULL. */
static const void *row_of(const struct table *table, uint64_t id)
{
    const uint32_t slot_and_1 = table->before[id].slot_and_1;

    if (slot_and_1 == 0 || slot_and_1 > table->where.slot_end)
        return NULL;
    return table->where.base + ((size_t)(slot_and_1 - 1) << table->where.slot_shift);
}

/* Checks the words and places after a search for rows @ids. */
static void assert_found(const struct table *table, const struct spot_search *search,
                         const uint64_t *ids, const struct bags *bags)
{
    const size_t bytes = table->id_count * sizeof(*table->before);
    struct row_spot *const expected = fixture_alloc(table->id_count, sizeof(*expected));
    uint32_t missed = 0;

    memcpy(expected, table->before, bytes);
    for (uint32_t i = 0; i < bags->row_count; i++) {
        const void *const row = row_of(table, ids[i]);

        if (!row) {
            missed++;
            continue;
        }
        expected[ids[i]].stamp = NOW;
        assert_ptr_equal(search->rows[i], row);
    }
    assert_int_equal(search->missed, missed);
    assert_memory_equal(table->where.spots, expected, bytes);
    free(expected);
}

/* Searches for the rows of a piece, and counts the misses of all. */
static void pool_piece_by_search(enum kernels_isa isa, const struct pool_batch *batch,
                                 uint32_t first, void *context)
{
    struct spot_search *const whole = context;
    struct spot_search search = { .where = whole->where,
                                  .ids = whole->ids + first,
                                  .rows = whole->rows + first };

    spot_pool_with(isa, batch, &search);
    whole->missed += search.missed;
}

/* Checks bags of random rows of the table, in all modes, whole or in pieces, with every instruction
 * set. The result is as with given rows, with zeros for absent ones. */
static void check_search(const struct table *table, const uint32_t *lengths, uint32_t bag_count,
                         uint64_t *random)
{
    static const struct {
        enum embtier_pool mode;
        bool weights;
        bool winners;
    } kinds[] = {
        { EMBTIER_POOL_SUM, false, false }, { EMBTIER_POOL_SUM, true, false },
        { EMBTIER_POOL_MEAN, true, false }, { EMBTIER_POOL_MAX, false, false },
        { EMBTIER_POOL_MAX, false, true },
    };
    static const uint32_t pieces[] = { 0, 1, 7, 50 };
    static const float nothing[EMBTIER_DIM_MAX];
    const struct rows one = { .count = 1, .pointers = (const void *[]){ table->where.base } };
    struct bags bags = make_bags(&one, lengths, bag_count, random);
    struct fixture_guarded ids_memory = fixture_guarded(bags.row_count * sizeof(uint64_t));
    struct fixture_guarded rows_memory = fixture_guarded(bags.row_count * sizeof(void *));
    uint64_t *const ids = (uint64_t *)ids_memory.end - bags.row_count;
    const void **const rows = (const void **)rows_memory.end - bags.row_count;

    for (uint32_t i = 0; i < bags.row_count; i++) {
        const void *row;

        ids[i] = fixture_below(random, table->id_count);
        row = row_of(table, ids[i]);
        bags.rows[i] = row ? row : nothing;
    }
    for (uint32_t k = 0; k < ARRAY_LEN(kinds); k++) {
        struct result expected = make_result(bag_count, table->dim);
        struct pool_batch batch = { .dtype = table->dtype,
                                    .dim = table->dim,
                                    .mode = kinds[k].mode,
                                    .rows = bags.rows,
                                    .weights = kinds[k].weights ? bags.weights : NULL,
                                    .offsets = bags.offsets,
                                    .bag_count = bag_count,
                                    .bags = expected.bags,
                                    .winners = kinds[k].winners ? expected.winners : NULL };

        pool_plainly(&batch);
        batch.rows = rows;
        FOR_EACH_ISA(isa)
        {
            for (uint32_t p = 0; p < ARRAY_LEN(pieces); p++) {
                struct spot_search search = { .where = table->where, .ids = ids, .rows = rows };
                struct result got = make_result(bag_count, table->dim);

                memcpy(table->where.spots, table->before, table->id_count * sizeof(*table->before));
                memset(rows, 0, bags.row_count * sizeof(*rows));
                batch.bags = got.bags;
                batch.winners = kinds[k].winners ? got.winners : NULL;
                pool_in_pieces(isa, &batch, pieces[p], pool_piece_by_search, &search);
                assert_found(table, &search, ids, &bags);
                assert_same(&batch, &got, &expected, kernels_isa_name(isa));
                free_result(&got);
            }
        }
        free_result(&expected);
    }
    fixture_guarded_free(&ids_memory);
    fixture_guarded_free(&rows_memory);
    free_bags(&bags);
}

/* All rows are there, each at its own place; no words say where. */
static void check_places(enum embtier_dtype dtype, uint32_t dim, uint64_t *random)
{
    enum { IDS = 50, BAGS = 9, ROWS_MOST = BAGS * 30 };
    const uint32_t row_bytes = dim * dtype_bytes(dtype);
    const uint64_t stride = row_bytes + 2 * fixture_below(random, 40);
    struct fixture_guarded memory = fixture_guarded((IDS - 1) * stride + row_bytes);
    uint8_t *const base = (uint8_t *)memory.end - ((IDS - 1) * stride + row_bytes);
    uint64_t ids[ROWS_MOST];
    const void *rows[ROWS_MOST], *found[ROWS_MOST];
    uint32_t offsets[BAGS + 1] = { 0 };

    for (uint32_t id = 0; id < IDS; id++)
        for (uint32_t c = 0; c < dim; c++)
            fixture_set(dtype, base + id * stride, c, fixture_float(random));
    for (uint32_t b = 0; b < BAGS; b++)
        offsets[b + 1] = offsets[b] + fixture_below(random, 30);
    for (uint32_t i = 0; i < offsets[BAGS]; i++)
        rows[i] = base + (ids[i] = fixture_below(random, IDS)) * stride;
    FOR_EACH_ISA(isa)
    {
        struct spot_search search = { .where = { .base = base, .row_stride = stride },
                                      .ids = ids,
                                      .rows = found };
        struct result expected = make_result(BAGS, dim), got = make_result(BAGS, dim);
        struct pool_batch batch = { .dtype = dtype,
                                    .dim = dim,
                                    .mode = EMBTIER_POOL_SUM,
                                    .rows = rows,
                                    .offsets = offsets,
                                    .bag_count = BAGS,
                                    .bags = expected.bags };

        pool_rows_with(isa, &batch);
        batch.rows = found;
        batch.bags = got.bags;
        spot_pool_with(isa, &batch, &search);
        assert_same(&batch, &got, &expected, kernels_isa_name(isa));
        assert_memory_equal(found, rows, offsets[BAGS] * sizeof(*rows));
        assert_int_equal(search.missed, 0);
        free_result(&got);
        free_result(&expected);
    }
    fixture_guarded_free(&memory);
}

static const uint32_t searched_dims[] = { 1, 3, 16, 17, 64, 100, 128, 1000 };

/* Checks tables of all dtypes, with batches shorter and longer than the look-ahead. */
static void check_searches(uint32_t id_count, uint32_t of, uint64_t *random)
{
    /* Kernels look ahead up to 64 rows, and 24 more words. */
    static const uint32_t only_bags[] = { 0, 1, 2, 3, 5, 23, 26, 63, 64, 65, 87, 88, 89, 500 };

    for (uint32_t n = 0; n < ARRAY_LEN(searched_dims) * 3; n++) {
        struct table table =
            make_table(EMBTIER_DTYPE_F32 + n % 3, searched_dims[n / 3], id_count, of, random);
        uint32_t lengths[14] = { 0, 1, 2, 0, 0, 40, 1, 1, 1, 150 };

        for (uint32_t i = 0; i < ARRAY_LEN(only_bags); i++)
            check_search(&table, &only_bags[i], 1, random);
        for (uint32_t b = 10; b < ARRAY_LEN(lengths) - 1; b++)
            lengths[b] = fixture_below(random, 30);
        check_search(&table, lengths, ARRAY_LEN(lengths), random);
        check_search(&table, lengths, 4, random);
        check_search(&table, lengths + 3, 2, random);
        check_search(&table, NULL, 0, random);
        free_table(&table);
    }
}

static void test_rows_that_are_searched_for_are_added_up_like_given_ones(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    check_searches(1, 0, &random);
    check_searches(60, 0, &random);
}

static void test_rows_at_their_own_places_are_found_without_words(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(searched_dims) * 3; n++)
        check_places(EMBTIER_DTYPE_F32 + n % 3, searched_dims[n / 3], &random);
}

static void test_rows_that_are_not_there_are_counted(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    check_searches(1, 1, &random); /* the row is absent */
    check_searches(60, 4, &random);
}

static void test_of_a_table_without_slots_all_rows_are_missed(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(searched_dims) * 3; n++) {
        struct table table =
            make_table(EMBTIER_DTYPE_F32 + n % 3, searched_dims[n / 3], 1, 0, &random);
        const uint32_t lengths[] = { 3, 0, 100 };

        table.where.slot_end = 0;
        check_search(&table, lengths, ARRAY_LEN(lengths), &random);
        free_table(&table);
    }
}

/* Only the first and the last page of the slots exist. */
static void test_slots_may_lie_beyond_four_gigabytes(void **state)
{
    enum { SHIFT = 6 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes = (UINT64_C(1) << 32) + page;
    const uint32_t slot = UINT32_C(1) << (32 - SHIFT);
    const uint32_t offsets[2] = { 0, 1 };
    char *const base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(base != MAP_FAILED);
    assert_int_equal(mprotect(base, page, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(mprotect(base + bytes - page, page, PROT_READ | PROT_WRITE), 0);
    fixture_set(EMBTIER_DTYPE_F32, base, 0, 1);
    fixture_set(EMBTIER_DTYPE_F32, base + ((uint64_t)slot << SHIFT), 0, 2);
    FOR_EACH_ISA(isa)
    {
        struct row_spot spot = { .slot_and_1 = slot + 1 };
        const void *row = NULL;
        float value = 0;
        struct spot_search search = { .where = { .spots = &spot,
                                                 .base = (uint8_t *)base,
                                                 .slot_end = slot + 1,
                                                 .slot_shift = SHIFT,
                                                 .now = NOW },
                                      .ids = &(uint64_t){ 0 },
                                      .rows = &row };

        spot_pool_with(isa,
                       &(struct pool_batch){ .dtype = EMBTIER_DTYPE_F32,
                                             .dim = 1,
                                             .mode = EMBTIER_POOL_SUM,
                                             .rows = &row,
                                             .offsets = offsets,
                                             .bag_count = 1,
                                             .bags = &value },
                       &search);
        assert_int_equal(search.missed, 0);
        assert_true(value == 2);
    }
    assert_int_equal(munmap(base, bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_that_are_searched_for_are_added_up_like_given_ones),
        cmocka_unit_test(test_rows_at_their_own_places_are_found_without_words),
        cmocka_unit_test(test_rows_that_are_not_there_are_counted),
        cmocka_unit_test(test_of_a_table_without_slots_all_rows_are_missed),
        cmocka_unit_test(test_slots_may_lie_beyond_four_gigabytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
