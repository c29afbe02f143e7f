/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a store that is behind (BUSY), then full, then well again. GETs of uncached rows must go
 * on, every SET must end, and acknowledged SETs must be kept. The linker wraps store_write_back()
 * so that the test can refuse writes. */
#include "tests/unit/engine/lane/lane_fixture.h"

#include "daemon/engine/lane/lane_impl.h"

#define DIM        256
#define SLOT_BYTES (64 * KIB)
#define WRITERS    3
#define ROWS       200000 /* per writer */
#define QUIET_NS   (UINT64_C(2) * 1000 * 1000 * 1000)

static _Atomic uint32_t refuse; /* enum embtier_err, or OK */

enum embtier_err __real_store_write_back(struct store *store, uint32_t shard,
                                         const struct store_row *rows, uint32_t count,
                                         struct err_msg *msg);
enum embtier_err __wrap_store_write_back(struct store *store, uint32_t shard,
                                         const struct store_row *rows, uint32_t count,
                                         struct err_msg *msg);

enum embtier_err __wrap_store_write_back(struct store *store, uint32_t shard,
                                         const struct store_row *rows, uint32_t count,
                                         struct err_msg *msg)
{
    const enum embtier_err err = (enum embtier_err)atomic_load(&refuse);

    return err == EMBTIER_OK ? __real_store_write_back(store, shard, rows, count, msg)
                             : err_set(msg, err, "refused by the test");
}

static const struct lanes_shape one_lane = {
    .lane_count = 1, .slabs_per_lane = 3, .readers = 2, .write_queue_bytes = MIB
};

/* A client whose requests SET one row each, ids in order. With @with_state, every second request
 * sets the state too. */
struct writer {
    struct client client;
    bool with_state;
    uint64_t first_id;
    uint32_t answered; /* all requests before this one are answered */
    uint32_t refused;
};

static uint64_t writer_id(const struct writer *writer, uint32_t number)
{
    return writer->first_id + number % ROWS;
}

static uint32_t set_flags(const struct writer *writer, uint32_t number)
{
    return writer->with_state && number % 2 ? OP_FLAG_STATE : 0;
}

static void writer_submit(struct writer *writer, uint64_t table)
{
    struct client *const client = &writer->client;
    float *const row = (float *)client_rows(client, client->submitted, 1);

    *client_ids(client, client->submitted) = writer_id(writer, client->submitted);
    for (uint32_t i = 0; i <= DIM; i++) /* one number of state */
        row[i] = (float)(client->submitted + 1);
    client_submit_flags(client, OP_SET, set_flags(writer, client->submitted), table, 1);
}

/* Checks that an acknowledged SET left its row. */
static void check_row(struct client *reader, uint64_t table, const struct writer *writer,
                      uint32_t number)
{
    const uint32_t request = reader->submitted;
    const float *const row = (float *)client_rows(reader, request, 1);
    const float value = (float)(number + 1);

    *client_ids(reader, request) = writer_id(writer, number);
    client_submit_flags(reader, OP_GET, OP_FLAG_STATE, table, 1);
    assert_int_equal(client_wait(reader, request)->err, EMBTIER_OK);
    assert_true(row[0] == value && row[DIM - 1] == value);
    if (writer->with_state)
        assert_true(row[DIM] == (set_flags(writer, number) ? value : 0));
}

/* Takes answers. True if there was one. */
static bool writer_take(struct writer *writer)
{
    const uint32_t before = writer->answered;

    while (writer->answered < writer->client.submitted &&
           client_is_done(&writer->client, writer->answered)) {
        writer->refused +=
            client_wait(&writer->client, writer->answered)->err != (uint32_t)EMBTIER_OK;
        writer->answered++;
    }
    return writer->answered > before;
}

/* Submits until no SET is answered any more. */
static void write_until_stuck(struct writer *writers, uint64_t table)
{
    uint64_t last_ns = now_ns();

    while (now_ns() - last_ns < QUIET_NS) {
        for (uint32_t w = 0; w < WRITERS; w++) {
            if (writer_take(&writers[w]))
                last_ns = now_ns();
            while (writers[w].client.submitted - writers[w].answered < FIXTURE_SLOTS)
                writer_submit(&writers[w], table);
        }
        sched_yield();
    }
}

static void writer_finish(struct writer *writer)
{
    while (writer->answered < writer->client.submitted) {
        client_wait(&writer->client, writer->answered);
        writer_take(writer);
    }
}

static void get_a_row_that_is_nowhere(struct client *client, uint64_t table, uint64_t id)
{
    float value;

    assert_int_equal(client_get_one(client, table, (UINT64_C(1) << 40) + id, &value), EMBTIER_OK);
    assert_true(value == 0.5f);
}

static void busy_then_full(struct store_fixture *f, enum embtier_optimizer optimizer,
                           bool with_state)
{
    struct lanes_fixture x;
    struct writer writers[WRITERS];
    struct client reader;
    uint64_t table;

    lanes_start(&x, f, &one_lane);
    table = fixture_table(&x, "t", EMBTIER_UNBOUNDED, DIM, optimizer);
    reader = client_attach(&x, SLOT_BYTES);
    for (uint64_t w = 0; w < WRITERS; w++)
        writers[w] = (struct writer){ .client = client_attach(&x, SLOT_BYTES),
                                      .with_state = with_state,
                                      .first_id = w * ROWS };
    atomic_store(&refuse, EMBTIER_BUSY);
    write_until_stuck(writers, table);
    for (uint64_t id = 0; id < 100; id++)
        get_a_row_that_is_nowhere(&reader, table, id);
    for (uint32_t w = 0; w < WRITERS; w++)
        assert_int_equal(writers[w].refused, 0);

    atomic_store(&refuse, EMBTIER_NO_SPACE);
    for (uint32_t w = 0; w < WRITERS; w++) {
        const uint32_t acknowledged = writers[w].answered;
        const uint64_t until = now_ns() + FIXTURE_WAIT_NS;

        writer_finish(&writers[w]);
        while (writers[w].refused == 0) { /* the store may have been slow, not full */
            assert_true(now_ns() < until);
            writer_submit(&writers[w], table);
            writer_finish(&writers[w]);
        }
        for (uint32_t i = 0; i < acknowledged; i += 7)
            check_row(&reader, table, &writers[w], i);
    }
    atomic_store(&refuse, EMBTIER_OK);
    for (uint32_t w = 0; w < WRITERS; w++) {
        const uint64_t until = now_ns() + FIXTURE_WAIT_NS;

        do {
            assert_true(now_ns() < until);
            writers[w].refused = 0;
            writer_submit(&writers[w], table);
            writer_finish(&writers[w]);
        } while (writers[w].refused > 0);
        client_detach(&writers[w].client);
    }
    client_detach(&reader);
    lanes_write_back(&x);
    lanes_stop(&x);
}

static void test_whole_rows(void **state)
{
    busy_then_full(*state, EMBTIER_OPTIMIZER_NONE, false);
}

/* The lane reads these rows before it sets them, and then finds no place for them. */
static void test_rows_with_state(void **state)
{
    busy_then_full(*state, EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD, false);
}

/* Every second SET carries state; the others do not. */
static void test_rows_with_state_that_is_set_and_is_not(void **state)
{
    busy_then_full(*state, EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_whole_rows),
        T(test_rows_with_state),
        T(test_rows_with_state_that_is_set_and_is_not),
#undef T
    };

    return cmocka_run_group_tests_name("lane before a busy store", tests, NULL, NULL);
}
