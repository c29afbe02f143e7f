/* SPDX-License-Identifier: Apache-2.0 */
/* The C library and the real daemon together keep their promises. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tests/integration/harness.h"

#define DIM 8

static int setup(void **state)
{
    struct harness *harness = calloc(1, sizeof(*harness));

    if (!harness)
        return -1;
    harness_new(harness);
    harness_start(harness);
    *state = harness;
    return 0;
}

static int teardown(void **state)
{
    harness_done(*state);
    free(*state);
    return 0;
}

static struct embtier_table *create(struct embtier *server, const char *name, uint64_t rows)
{
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
    struct embtier_table *table = NULL;

    options.name = name;
    options.rows = rows;
    options.dim = DIM;
    options.init = EMBTIER_INIT_UNIFORM;
    options.init_first = -1;
    options.init_second = 1;
    options.seed = 11;
    assert_int_equal(embtier_table_create(server, &options, &table), EMBTIER_OK);
    return table;
}

static struct embtier_batch *new_batch(struct embtier *server, struct embtier_table *table,
                                       uint32_t count, uint64_t first_id)
{
    const struct embtier_part part = { table, count };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new(server, &part, 1, &batch), EMBTIER_OK);
    for (uint32_t i = 0; i < count; i++)
        embtier_batch_ids(batch, 0)[i] = first_id + i;
    return batch;
}

static void fill(struct embtier_batch *batch, float base)
{
    float *rows = embtier_batch_rows(batch, 0);

    for (uint32_t i = 0; i < embtier_batch_count(batch, 0); i++)
        for (uint32_t d = 0; d < DIM; d++)
            rows[i * DIM + d] = base + (float)i + (float)d / DIM;
}

static void assert_filled(struct embtier_batch *batch, float base)
{
    const float *rows = embtier_batch_rows(batch, 0);

    for (uint32_t i = 0; i < embtier_batch_count(batch, 0); i++)
        for (uint32_t d = 0; d < DIM; d++)
            assert_true(rows[i * DIM + d] == base + (float)i + (float)d / DIM);
}

static void test_what_is_set_is_got_and_the_rest_is_initial(void **state)
{
    struct embtier *server = harness_connect(*state);
    struct embtier_table *table = create(server, "roundtrip", 100000);
    struct embtier_batch *batch = new_batch(server, table, 1000, 500);
    struct embtier_batch *other = new_batch(server, table, 1000, 2000);
    const float *rows = embtier_batch_rows(other, 0);

    fill(batch, 3);
    assert_int_equal(embtier_set(batch), EMBTIER_OK);
    memset(embtier_batch_rows(batch, 0), 0, 1000 * DIM * sizeof(float));
    assert_int_equal(embtier_get(batch), EMBTIER_OK);
    assert_filled(batch, 3);
    assert_int_equal(embtier_get(other), EMBTIER_OK);
    for (uint32_t i = 0; i < 1000 * DIM; i++)
        assert_true(rows[i] >= -1 && rows[i] < 1);
    embtier_disconnect(server);
}

static void test_state_goes_with_its_rows_when_asked_for(void **state)
{
    struct embtier *server = harness_connect(*state);
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
    struct embtier_part part = { NULL, 1000 };
    struct embtier_batch *whole = NULL, *weights;

    options.name = "state";
    options.dim = DIM;
    options.optimizer = EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD;
    assert_int_equal(embtier_table_create(server, &options, &part.table), EMBTIER_OK);
    assert_int_equal(embtier_batch_new_with_state(server, &part, 1, &whole), EMBTIER_OK);
    assert_int_equal(embtier_batch_row_bytes(whole, 0), DIM * 4 + 4);
    weights = new_batch(server, part.table, 1000, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        float *const row = (float *)embtier_batch_rows(whole, 0) + (size_t)i * (DIM + 1);

        embtier_batch_ids(whole, 0)[i] = i;
        for (uint32_t d = 0; d < DIM; d++)
            row[d] = 3 + (float)i + (float)d / DIM;
        ((float *)embtier_batch_state(whole, 0))[(size_t)i * (DIM + 1)] = -(float)i;
        assert_true(row[DIM] == -(float)i);
    }
    assert_int_equal(embtier_set(whole), EMBTIER_OK);
    assert_int_equal(embtier_get(weights), EMBTIER_OK);
    assert_filled(weights, 3);
    fill(weights, 4);
    assert_int_equal(embtier_set(weights), EMBTIER_OK);
    memset(embtier_batch_rows(whole, 0), 0, 1000 * (DIM + 1) * sizeof(float));
    assert_int_equal(embtier_get(whole), EMBTIER_OK);
    for (uint32_t i = 0; i < 1000; i++) {
        const float *const row = (float *)embtier_batch_rows(whole, 0) + (size_t)i * (DIM + 1);

        assert_true(row[0] == 4 + (float)i && row[DIM - 1] == 4 + (float)i + (DIM - 1.0f) / DIM);
        assert_true(row[DIM] == -(float)i);
    }
    embtier_disconnect(server);
}

static void test_many_requests_in_flight_all_come_back(void **state)
{
    struct embtier *server = harness_connect(*state);
    struct embtier_table *table = create(server, "inflight", EMBTIER_UNBOUNDED);
    struct embtier_batch *batches[64];

    for (size_t i = 0; i < ARRAY_LEN(batches); i++)
        batches[i] = new_batch(server, table, 100, i * 100);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < ARRAY_LEN(batches); i++) {
            fill(batches[i], (float)(round * 1000 + (int)i));
            assert_int_equal(embtier_submit(batches[i], EMBTIER_SET), EMBTIER_OK);
        }
        for (size_t i = ARRAY_LEN(batches); i > 0; i--) {
            assert_int_equal(embtier_wait(batches[i - 1], UINT32_MAX), EMBTIER_OK);
            memset(embtier_batch_rows(batches[i - 1], 0), 0, 100 * DIM * sizeof(float));
        }
        for (size_t i = 0; i < ARRAY_LEN(batches); i++)
            assert_int_equal(embtier_submit(batches[i], EMBTIER_GET), EMBTIER_OK);
        for (size_t i = 0; i < ARRAY_LEN(batches); i++) {
            enum embtier_err err;

            while ((err = embtier_poll(batches[i])) == EMBTIER_AGAIN)
                ;
            assert_int_equal(err, EMBTIER_OK);
            assert_filled(batches[i], (float)(round * 1000 + (int)i));
        }
    }
    embtier_disconnect(server);
}

static void test_refusals_say_what_is_wrong(void **state)
{
    struct embtier *server = harness_connect(*state);
    struct embtier_table *table = create(server, "small", 10);
    struct embtier_batch *batch = new_batch(server, table, 2, 9);
    struct embtier_table *other = NULL;

    assert_int_equal(embtier_get(batch), EMBTIER_ID_RANGE);
    assert_string_equal(embtier_message(server),
                        "row id 10 is out of range: table 'small' has 10 rows; allowed: 0 to 9");
    assert_int_equal(embtier_table_open_as(server, "small", 9, 0, &other), EMBTIER_MISMATCH);
    assert_int_equal(embtier_table_drop(server, "small", NULL, NULL), EMBTIER_OK);
    assert_int_equal(embtier_get(batch), EMBTIER_NO_TABLE); /* the handle ended with its table */
    assert_non_null(strstr(embtier_message(server), "no such table: 'small'"));
    assert_int_equal(embtier_table_open(server, "small", &other), EMBTIER_NO_TABLE);
    embtier_disconnect(server);
}

static void test_an_empty_batch_succeeds(void **state)
{
    struct embtier *server = harness_connect(*state);
    struct embtier_table *table = create(server, "empty", 10);
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new(server, NULL, 0, &batch), EMBTIER_OK);
    assert_int_equal(embtier_get(batch), EMBTIER_OK);
    assert_int_equal(embtier_set(batch), EMBTIER_OK);
    assert_int_equal(embtier_get(new_batch(server, table, 0, 0)), EMBTIER_OK);
    embtier_disconnect(server);
}

static void test_the_most_slots_fit_the_least_arena(void **state)
{
    const struct harness *harness = *state;
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    struct embtier *server = NULL;
    struct embtier_table *table;
    struct embtier_batch *batch;

    options.socket_path = harness->socket;
    options.max_in_flight = 1024;
    options.arena_bytes = 68 << 10;
    options.timeout_ms = 0;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_OK);
    table = create(server, "slots", 10);
    batch = new_batch(server, table, 2, 0);
    for (int i = 0; i < 3000; i++)
        assert_int_equal(embtier_get(batch), EMBTIER_OK);
    embtier_disconnect(server);
}

static void test_a_killed_daemon_is_noticed_and_reconnected_to(void **state)
{
    struct harness *harness = *state;
    struct embtier *server = harness_connect(harness);
    struct embtier_table *table = create(server, "phoenix", 1000);
    struct embtier_batch *batch = new_batch(server, table, 100, 0);
    void *const rows = embtier_batch_rows(batch, 0);
    uint64_t begin_ns;

    fill(batch, 7);
    assert_int_equal(embtier_set(batch), EMBTIER_OK);
    harness_stop(harness); /* a clean stop loses nothing */
    begin_ns = clock_now_ns(&clock_monotonic);
    assert_int_equal(embtier_get(batch), EMBTIER_DISCONNECTED);
    assert_true(clock_now_ns(&clock_monotonic) - begin_ns < UINT64_C(60000000000));
    harness_start(harness);
    assert_int_equal(embtier_reconnect(server), EMBTIER_OK);
    assert_ptr_equal(embtier_batch_rows(batch, 0), rows);
    assert_filled(batch, 7);
    memset(rows, 0, 100 * DIM * sizeof(float));
    assert_int_equal(embtier_get(batch), EMBTIER_OK);
    assert_filled(batch, 7);

    harness_kill(harness);
    assert_int_equal(embtier_get(batch), EMBTIER_DISCONNECTED);
    assert_int_equal(embtier_reconnect(server), EMBTIER_UNREACHABLE);
    harness_start(harness);
    assert_int_equal(embtier_reconnect(server), EMBTIER_OK);
    assert_int_equal(embtier_set(batch), EMBTIER_OK);
    embtier_disconnect(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_set_is_got_and_the_rest_is_initial),
        cmocka_unit_test(test_state_goes_with_its_rows_when_asked_for),
        cmocka_unit_test(test_many_requests_in_flight_all_come_back),
        cmocka_unit_test(test_refusals_say_what_is_wrong),
        cmocka_unit_test(test_an_empty_batch_succeeds),
        cmocka_unit_test(test_the_most_slots_fit_the_least_arena),
        cmocka_unit_test(test_a_killed_daemon_is_noticed_and_reconnected_to),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
