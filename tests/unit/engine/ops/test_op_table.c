/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that an operation is one file and one row of the table. Built with one operation more than
 * the server has. */
#include "tests/unit/engine/lane/lane_fixture.h"

#include "daemon/engine/ops/op.h"
#include "daemon/engine/ops/op_table.h"
#include "tests/unit/engine/ops/op_checksum.h"

#define CHECKSUM (OP_LAST + 1)
#define DIM      16
#define ROWS     20000 /* more than the cache holds */
#define COUNT    5000
#define SLOT     (1 * MIB)

static uint64_t *sums_at(const struct client *client, uint32_t number)
{
    return (uint64_t *)client_rows(client, number, COUNT);
}

/* Rows are cached, on their way to SSD, and on SSD. An id may occur twice. */
static void test_a_row_of_the_table_is_an_operation(void **state)
{
    static const struct lanes_shape shapes[] = {
        { .lane_count = 1, .slabs_per_lane = 2, .readers = 2, .write_queue_bytes = 1 * MIB },
        { .lane_count = 3, .slabs_per_lane = 2, .readers = 1, .write_queue_bytes = 1 * MIB },
    };

    for (uint32_t shape = 0; shape < ARRAY_LEN(shapes); shape++) {
        struct lanes_fixture x;
        struct client client;
        uint64_t table;

        lanes_start(&x, *state, &shapes[shape]);
        table = fixture_table(&x, "t", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
        client = client_attach(&x, SLOT);
        for (uint64_t first = 0; first < ROWS; first += COUNT) {
            const uint32_t number = client.submitted;
            float *const rows = (float *)client_rows(&client, number, COUNT);

            for (uint32_t i = 0; i < COUNT; i++) {
                client_ids(&client, number)[i] = first + i;
                for (uint32_t d = 0; d < DIM; d++)
                    rows[i * DIM + d] = (float)(first + i) + (float)d / DIM;
            }
            assert_int_equal(
                client_wait(&client, client_submit(&client, OP_SET, table, COUNT))->err,
                EMBTIER_OK);
        }
        for (uint64_t step = 1; step < 8; step++) {
            const uint32_t number = client.submitted;

            for (uint32_t i = 0; i < COUNT; i++)
                client_ids(&client, number)[i] = i * step * 7 % ROWS;
            assert_int_equal(
                client_wait(&client, client_submit(&client, (enum op_number)CHECKSUM, table, COUNT))
                    ->err,
                EMBTIER_OK);
            for (uint32_t i = 0; i < COUNT; i++) {
                const uint64_t id = i * step * 7 % ROWS;
                float row[DIM];

                for (uint32_t d = 0; d < DIM; d++)
                    row[d] = (float)id + (float)d / DIM;
                assert_int_equal(sums_at(&client, number)[i], op_checksum_of(row, sizeof(row)));
            }
        }
        client_detach(&client);
        lanes_stop(&x);
    }
}

/* The common code, not the operation, checks the segments. */
static void test_it_is_checked_as_others_are(void **state)
{
    const struct lanes_shape shape = {
        .lane_count = 1, .slabs_per_lane = 2, .readers = 1, .write_queue_bytes = 1 * MIB
    };
    struct lanes_fixture x;
    struct client client;
    uint64_t table;
    uint32_t number;

    lanes_start(&x, *state, &shape);
    table = fixture_table(&x, "t", 10, DIM, EMBTIER_OPTIMIZER_NONE);
    client = client_attach(&x, SLOT);
    number = client.submitted;
    *client_ids(&client, number) = 10;
    number = client_submit(&client, (enum op_number)CHECKSUM, table, 1);
    assert_int_equal(client_wait(&client, number)->err, EMBTIER_ID_RANGE);
    number = client.submitted;
    client_fill(&client, number, (enum op_number)CHECKSUM, 0, table, 1);
    client_segment(&client, number)->rows_offset = client.session->channel.region_bytes;
    client_publish(&client);
    assert_int_equal(client_wait(&client, number)->err, EMBTIER_OFFSET_RANGE);
    number = client_submit(&client, (enum op_number)(CHECKSUM + 1), table, 1);
    assert_int_equal(client_wait(&client, number)->err, EMBTIER_INVALID);
    assert_int_equal(client_wait(&client, number)->limit, CHECKSUM);
    client_detach(&client);
    lanes_stop(&x);
}

static void test_each_has_a_name(void **state)
{
    (void)state;
    assert_null(op_of(0));
    for (uint32_t op = 1; op <= op_last(); op++) {
        assert_non_null(op_of(op));
        assert_non_null(op_of(op)->name);
        assert_non_null(op_of(op)->begin);
    }
    assert_null(op_of(op_last() + 1));
    assert_null(op_of(UINT32_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_row_of_the_table_is_an_operation, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_it_is_checked_as_others_are, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test(test_each_has_a_name),
    };

    return cmocka_run_group_tests_name("op_table", tests, NULL, NULL);
}
