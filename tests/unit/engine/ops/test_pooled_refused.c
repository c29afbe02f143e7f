/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a malformed pooled lookup is refused with the error that says why, and that service
 * goes on. Builds that lack a check of daemon/engine/ops/pooled/ or segment_copies.c
 * (meson.build) must fail this test. */
#include "tests/unit/engine/ops/pooled_fixture.h"

static void assert_refused(struct pooling *p, enum embtier_err err, uint32_t segment)
{
    const struct op_completion *const done = client_wait(&p->client, submit(p));

    assert_int_equal(done->err, err);
    assert_int_equal(done->segment, segment);
}

static struct op_pool_segment *good_bags(struct pooling *p)
{
    p->bags[0] = (struct bags){ .mode = EMBTIER_POOL_SUM, .id_count = 4, .bag_count = 2 };
    p->bags[0].ids[0] = 1;
    p->bags[0].offsets[1] = 2;
    p->bags[0].offsets[2] = 4;
    p->bags[1] = p->bags[0];
    return lay_bags_out(p, p->bags, 2);
}

static struct op_submission *submission(const struct pooling *p)
{
    return client_submission(&p->client, p->client.submitted);
}

static void test_what_is_out_of_place_is_refused(void **state)
{
    struct pooling p;
    uint64_t end;

    pooling_start(&p, *state, &shapes[1]);
    end = p.client.session->channel.region_bytes;
    good_bags(&p);
    submission(&p)->flags = 1;
    assert_refused(&p, EMBTIER_UNSUPPORTED, UINT32_MAX);
    good_bags(&p);
    submission(&p)->segment_count = OP_POOL_SEGMENTS_MAX + 1;
    assert_refused(&p, EMBTIER_TOO_LARGE, UINT32_MAX);
    good_bags(&p);
    submission(&p)->segments_offset = end - sizeof(struct op_pool_segment);
    assert_refused(&p, EMBTIER_OFFSET_RANGE, UINT32_MAX);
    good_bags(&p)[1].flags = 1;
    assert_refused(&p, EMBTIER_UNSUPPORTED, 1);
    good_bags(&p)[1].mode = 0;
    assert_refused(&p, EMBTIER_INVALID, 1);
    good_bags(&p)[1].mode = EMBTIER_POOL_MAX + 1;
    assert_refused(&p, EMBTIER_INVALID, 1);
    good_bags(&p)[1].id_count = 1 << 20;
    assert_refused(&p, EMBTIER_TOO_LARGE, UINT32_MAX);
    good_bags(&p)[1].bag_count = 1 << 20;
    assert_refused(&p, EMBTIER_TOO_LARGE, UINT32_MAX);
    good_bags(&p)[1].table += UINT64_C(1) << 32;
    assert_refused(&p, EMBTIER_NO_TABLE, 1);
    good_bags(&p)[1].ids_offset = end - 3 * sizeof(uint64_t);
    assert_refused(&p, EMBTIER_OFFSET_RANGE, 1);
    good_bags(&p)[1].ids_offset += 4;
    assert_refused(&p, EMBTIER_OFFSET_RANGE, 1);
    good_bags(&p)[1].bags_offset = end - 2 * DIM * sizeof(float) + 4;
    assert_refused(&p, EMBTIER_OFFSET_RANGE, 1);
    good_bags(&p)[1].bags_offset += 2;
    assert_refused(&p, EMBTIER_OFFSET_RANGE, 1);
    good_bags(&p)[1].offsets_offset = end - 2 * sizeof(uint32_t);
    assert_refused(&p, EMBTIER_OFFSET_RANGE, 1);
    good_bags(&p)[1].weights_offset = end - 3 * sizeof(float);
    assert_refused(&p, EMBTIER_OFFSET_RANGE, 1);
    p.bags[0].mode = EMBTIER_POOL_MAX;
    p.bags[0].weighted = true;
    lay_bags_out(&p, p.bags, 1);
    assert_refused(&p, EMBTIER_UNSUPPORTED, 0);
    pooling_stop(&p);
}

static void test_offsets_that_are_none_are_refused(void **state)
{
    static const uint32_t bad[][3] = {
        { 1, 2, 4 }, { 0, 3, 2 }, { 0, 5, 4 }, { 0, 2, 3 }, { 0, 2, 5 }, { 0, UINT32_MAX, 4 },
    };

    for (size_t s = SHAPES_FIRST; s < ARRAY_LEN(shapes); s += SHAPES_STEP) {
        struct pooling p;

        pooling_start(&p, *state, &shapes[s]);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
            good_bags(&p);
            memcpy(p.bags[1].offsets, bad[i], sizeof(bad[i]));
            lay_bags_out(&p, p.bags, 2);
            assert_refused(&p, EMBTIER_BAG_RANGE, 1);
        }
        /* Ids without bags. */
        good_bags(&p);
        p.bags[1].bag_count = 0;
        lay_bags_out(&p, p.bags, 2);
        assert_refused(&p, EMBTIER_BAG_RANGE, 1);
        /* An id out of range, in the second of many waves. */
        p.bags[0] = (struct bags){ .mode = EMBTIER_POOL_SUM, .id_count = 9000, .bag_count = 1 };
        p.bags[0].offsets[1] = 9000;
        p.bags[0].ids[5000] = ROWS;
        lay_bags_out(&p, p.bags, 1);
        assert_refused(&p, EMBTIER_ID_RANGE, 0);
        /* Service goes on. */
        good_bags(&p);
        assert_refused(&p, EMBTIER_OK, UINT32_MAX);
        pooling_stop(&p);
    }
}

/* Maps of tables lie one behind the other. An id outside one table may be a place in the next one's
 * map. */
static void test_an_id_of_the_next_map_is_refused(void **state)
{
    const uint64_t rows_per_page = 4096 / sizeof(struct row_spot);
    struct pooling p;
    uint64_t next;

    pooling_start(&p, *state, &shapes[2]);
    next = fixture_table(&p.x, "next", 1000, DIM, EMBTIER_OPTIMIZER_NONE);
    p.bags[0] = (struct bags){
        .table = next, .mode = EMBTIER_POOL_SUM, .id_count = 1, .bag_count = 1, .offsets = { 0, 1 }
    };
    for (uint32_t i = 0; i < 2; i++) {
        lay_bags_out(&p, p.bags, 1);
        assert_refused(&p, EMBTIER_OK, UINT32_MAX);
    }
    p.bags[0].table = p.table;
    p.bags[0].ids[0] = align_up(ROWS, rows_per_page);
    lay_bags_out(&p, p.bags, 1);
    assert_refused(&p, EMBTIER_ID_RANGE, 0);
    p.bags[0].ids[0] = UINT64_MAX / 8 + 1; /* eight times this is 0 */
    lay_bags_out(&p, p.bags, 1);
    assert_refused(&p, EMBTIER_ID_RANGE, 0);
    pooling_stop(&p);
}

static void test_nothing_at_all_is_answered(void **state)
{
    for (size_t s = SHAPES_FIRST; s < ARRAY_LEN(shapes); s += SHAPES_STEP) {
        struct pooling p;
        const struct op_pool_segment *segments;

        pooling_start(&p, *state, &shapes[s]);
        lay_bags_out(&p, p.bags, 0);
        assert_refused(&p, EMBTIER_OK, UINT32_MAX);
        memset(p.bags, 0, 2 * sizeof(*p.bags));
        p.bags[0].mode = p.bags[1].mode = EMBTIER_POOL_MEAN;
        p.bags[1].bag_count = 5;
        segments = lay_bags_out(&p, p.bags, 2);
        assert_refused(&p, EMBTIER_OK, UINT32_MAX);
        for (uint32_t i = 0; i < 5 * DIM; i++)
            assert_true(bags_at(&p, &segments[1])[i] == 0);
        pooling_stop(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_what_is_out_of_place_is_refused),
        T(test_offsets_that_are_none_are_refused),
        T(test_an_id_of_the_next_map_is_refused),
        T(test_nothing_at_all_is_answered),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
