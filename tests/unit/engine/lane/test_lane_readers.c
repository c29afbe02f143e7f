/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that clients get all rows of which lanes have none, while the number of readers changes
 * from one to the most and back. */
#include "tests/unit/engine/lane/lane_fixture.h"

#define LANES      2
#define DIM        16
#define BATCH      256 /* rows of a request */
#define CHANGES    24
#define SLOT_BYTES (UINT64_C(64) * 1024)

static const struct lanes_shape shape = {
    .lane_count = LANES, .slabs_per_lane = 6, .readers = 2, .write_queue_bytes = MIB
};

/* A client that asks for rows which nobody has asked for before. */
struct asker {
    struct lanes_fixture *x;
    uint64_t table;
    uint64_t first_id;
    pthread_t thread;
    struct client client;
    _Atomic bool stop;
    _Atomic uint64_t rows; /* that came */
    bool is_wrong;
};

static void *ask(void *context)
{
    struct asker *const asker = context;

    while (!atomic_load(&asker->stop) && !asker->is_wrong) {
        struct client *const client = &asker->client;
        const uint32_t number = client->submitted;
        const float *rows;

        for (uint32_t i = 0; i < BATCH; i++)
            client_ids(client, number)[i] = asker->first_id++;
        asker->is_wrong =
            client_wait(client, client_submit(client, OP_GET, asker->table, BATCH))->err !=
            EMBTIER_OK;
        rows = (const float *)client_rows(client, number, BATCH);
        for (uint32_t i = 0; i < BATCH * DIM; i++)
            asker->is_wrong |= rows[i] != 0.5F;
        atomic_fetch_add(&asker->rows, BATCH);
    }
    return NULL;
}

static void asker_start(struct asker *asker, struct lanes_fixture *x, uint64_t table,
                        uint64_t first_id)
{
    memset(asker, 0, sizeof(*asker));
    asker->x = x;
    asker->table = table;
    asker->first_id = first_id;
    asker->client = client_attach(x, SLOT_BYTES);
    assert_int_equal(pthread_create(&asker->thread, NULL, ask, asker), 0);
}

static void asker_end(struct asker *asker)
{
    atomic_store(&asker->stop, true);
    pthread_join(asker->thread, NULL);
    assert_false(asker->is_wrong);
    client_detach(&asker->client);
}

static void test_clients_get_their_rows_while_readers_come_and_go(void **state)
{
    static const uint32_t counts[] = { CONFIG_READERS_MAX, 1, 3, 2, CONFIG_READERS_MAX, 1 };
    static const _Atomic bool give_up;
    static struct lanes_fixture x;
    static struct asker askers[2];
    struct err_msg msg = { { 0 } };
    uint64_t table;

    lanes_start(&x, *state, &shape);
    table = fixture_table(&x, "t", EMBTIER_UNBOUNDED, DIM, EMBTIER_OPTIMIZER_NONE);
    for (uint32_t i = 0; i < ARRAY_LEN(askers); i++)
        asker_start(&askers[i], &x, table, (uint64_t)i << 40);
    for (uint32_t change = 0; change < CHANGES; change++) {
        const uint32_t count = counts[change % ARRAY_LEN(counts)];
        uint64_t rows[ARRAY_LEN(askers)];
        unsigned looks = 0;

        for (uint32_t i = 0; i < LANES; i++) {
            must(lane_set_readers(x.lanes[i], count, &give_up, &msg), &msg);
            assert_int_equal(lane_readers(x.lanes[i]), count);
        }
        for (uint32_t i = 0; i < ARRAY_LEN(askers); i++)
            rows[i] = atomic_load(&askers[i].rows);
        for (uint32_t i = 0; i < ARRAY_LEN(askers); i++)
            while (atomic_load(&askers[i].rows) < rows[i] + 2 * BATCH)
                fixture_pause(&looks); /* a client that waits too long fails by itself */
    }
    for (uint32_t i = 0; i < ARRAY_LEN(askers); i++)
        asker_end(&askers[i]);
    lanes_write_back(&x);
    lanes_stop(&x);
}

/* Readers that are too many wait for SSD when the server stops: it does not wait for their end. */
static void test_a_stop_ends_a_change(void **state)
{
    static const _Atomic bool goes_on, give_up = true;
    static struct lanes_fixture x;
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    lanes_start(&x, *state, &shape);
    must(lane_set_readers(x.lanes[0], 8, &goes_on, &msg), &msg);
    err = lane_set_readers(x.lanes[0], 1, &give_up, &msg);
    assert_true(err == EMBTIER_SHUTDOWN || err == EMBTIER_OK);
    assert_int_equal(lane_readers(x.lanes[0]), 1);
    lanes_stop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_clients_get_their_rows_while_readers_come_and_go,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_a_stop_ends_a_change, fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
