/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a push is tried on the current row although SSD has an older one. The row waits in the
 * write queue, or is being written. The linker wraps store_write_back() to wait. */
#include "tests/unit/engine/lane/lane_fixture.h"

#define DIM        64
#define OTHERS     60000 /* more rows than the cache holds */
#define BATCH      1000
#define DIRTY_ROWS 10
#define SLOT_BYTES (BATCH * (8 + 4 * DIM) + 4096)

static _Atomic bool writes_wait;
static _Atomic uint32_t writing;

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
    atomic_fetch_add(&writing, 1);
    while (atomic_load(&writes_wait))
        usleep(100);
    return __real_store_write_back(store, shard, rows, count, msg);
}

static const struct lanes_shape one_lane = {
    .lane_count = 1, .slabs_per_lane = 3, .readers = 1, .write_queue_bytes = MIB
};

struct queued {
    struct lanes_fixture x;
    struct client client;
    uint64_t table, others;
};

static float get_row(struct queued *t, uint64_t id)
{
    float value = 0;

    assert_int_equal(client_get_one(&t->client, t->table, id, &value), EMBTIER_OK);
    return value;
}

/* Asks for so many rows that others leave the cache. */
static void ask_for_others(struct queued *t)
{
    for (uint64_t id = 0; id < OTHERS; id += BATCH) {
        const uint32_t number = t->client.submitted;

        for (uint32_t i = 0; i < BATCH; i++)
            client_ids(&t->client, number)[i] = id + i;
        assert_int_equal(
            client_wait(&t->client, client_submit(&t->client, OP_GET, t->others, BATCH))->err,
            EMBTIER_OK);
    }
}

static bool is_queued(struct queued *t, uint64_t id, float value)
{
    const uint64_t before = fixture_stats(&t->x).queued_get_rows;

    assert_true(get_row(t, id) == value);
    return fixture_stats(&t->x).queued_get_rows > before;
}

/* Finds a row that has left the cache and is not written yet. */
static uint64_t find_queued(struct queued *t, float value)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;

    for (;;) {
        ask_for_others(t);
        for (uint64_t id = 0; id < DIRTY_ROWS; id++)
            if (is_queued(t, id, value))
                return id;
        assert_true(now_ns() < until);
    }
}

static const struct op_completion *push_one(struct queued *t, uint64_t id, float gradient)
{
    struct client *const client = &t->client;
    const uint32_t number = client->submitted;
    struct op_push_segment *const segment = (void *)client_segment(client, number);
    uint64_t *const at = (uint64_t *)(segment + 1);
    float *const gradients = (float *)(at + 1);

    *at = id;
    for (uint32_t c = 0; c < DIM; c++)
        gradients[c] = gradient;
    *segment = (struct op_push_segment){ .table = t->table,
                                         .ids_offset = client_offset(client, at),
                                         .gradients_offset = client_offset(client, gradients),
                                         .learning_rate = 1,
                                         .count = 1,
                                         .dim = DIM };
    *client_submission(client, number) =
        (struct op_submission){ .op = OP_PUSH,
                                .segment_count = 1,
                                .segments_offset = client_offset(client, segment),
                                .step = 1 };
    client_publish(client);
    return client_wait(client, number);
}

/* On SSD the row is 0.5: either gradient could be added to that. */
static void test_a_row_in_the_write_queue_is_tried_as_it_is_there(void **state)
{
    const float large = 3e38f, gradient = 1e38f;
    const struct op_completion *done;
    struct queued t;
    uint64_t id;

    lanes_start(&t.x, *state, &one_lane);
    t.table = fixture_table(&t.x, "t", OTHERS, DIM, EMBTIER_OPTIMIZER_SGD);
    t.others = fixture_table(&t.x, "others", OTHERS, DIM, EMBTIER_OPTIMIZER_NONE);
    t.client = client_attach(&t.x, SLOT_BYTES);
    atomic_store(&writes_wait, true);
    for (id = 0; id < DIRTY_ROWS; id++)
        assert_int_equal(client_set_one(&t.client, t.table, id, DIM, large), EMBTIER_OK);
    id = find_queued(&t, large);
    for (const uint64_t until = now_ns() + FIXTURE_WAIT_NS; atomic_load(&writing) == 0;) {
        assert_true(now_ns() < until);
        usleep(100);
    }
    done = push_one(&t, id, -gradient);
    assert_int_equal(done->err, EMBTIER_NONFINITE);
    assert_int_equal(done->segment, 0);
    assert_int_equal(done->value, 0);
    assert_true(done->limit == OP_LIMIT_OF_UPDATE);
    assert_true(is_queued(&t, id, large)); /* the trial did not move it */
    assert_int_equal(push_one(&t, id, gradient)->err, EMBTIER_OK);
    assert_true(get_row(&t, id) == large - gradient);
    atomic_store(&writes_wait, false);
    lanes_write_back(&t.x);
    ask_for_others(&t);
    for (uint64_t i = 0; i < DIRTY_ROWS; i++)
        assert_true(get_row(&t, i) == (i == id ? large - gradient : large));
    client_detach(&t.client);
    lanes_stop(&t.x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_row_in_the_write_queue_is_tried_as_it_is_there,
                                        fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
