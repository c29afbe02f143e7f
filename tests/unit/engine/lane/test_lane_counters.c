/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a lane's counters can be read while the lane is busy, and that they contain all that
 * was done for a request once it is answered. The test holds reads of SSD (the linker wraps
 * store_read()). */
#include "tests/unit/engine/lane/lane_fixture.h"

#include "daemon/engine/rows/read_pool.h"

#define DIM        4
#define ROWS       65536
#define SLOT_BYTES (256 * KIB)
#define READERS    1
#define MANY       ((READERS * READ_JOBS_PER_THREAD + 2) * READ_JOB_ROWS) /* more than all jobs take */

static _Atomic bool hold;

enum embtier_err __real_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg);
enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg);

enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg)
{
    while (atomic_load(&hold))
        usleep(100);
    return __real_store_read(store, shard, rows, count, msg);
}

static struct lanes_shape shape_of(uint32_t lanes)
{
    return (struct lanes_shape){
        .lane_count = lanes, .slabs_per_lane = 3, .readers = READERS, .write_queue_bytes = MIB
    };
}

/* ---- A lane that is held ---- */

struct holding {
    struct lane *lane;
    sem_t held, release, looked;
    struct lane_stats stats;
    struct lane_pulse pulse;
};

static void wait_for(sem_t *sem)
{
    while (sem_wait(sem) != 0)
        assert_int_equal(errno, EINTR);
}

static void call_hold(struct lane *lane, void *argument)
{
    struct holding *const holding = argument;

    (void)lane;
    sem_post(&holding->held);
    wait_for(&holding->release);
}

static void *hold_main(void *context)
{
    struct holding *const holding = context;

    lane_call(holding->lane, call_hold, holding);
    return NULL;
}

static void *look_main(void *context)
{
    struct holding *const holding = context;

    lane_stats(holding->lane, &holding->stats);
    lane_pulse(holding->lane, &holding->pulse);
    sem_post(&holding->looked);
    return NULL;
}

/* True if the thread that looks has ended in time. */
static bool has_looked(struct holding *holding)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FIXTURE_WAIT_NS / 1000000000;
    while (sem_clockwait(&holding->looked, CLOCK_MONOTONIC, &until) != 0)
        if (errno != EINTR)
            return false;
    return true;
}

static void test_the_counters_of_a_held_lane_can_be_read(void **state)
{
    const struct lanes_shape shape = shape_of(1);
    struct lanes_fixture x;
    struct holding holding = { 0 };
    struct client client;
    pthread_t holder, looker;
    uint64_t table;
    bool looked;

    lanes_start(&x, *state, &shape);
    table = fixture_table(&x, "t", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
    client = client_attach(&x, SLOT_BYTES);
    assert_int_equal(client_set_one(&client, table, 1, DIM, 2), EMBTIER_OK);
    holding.lane = x.lanes[0];
    sem_init(&holding.held, 0, 0);
    sem_init(&holding.release, 0, 0);
    sem_init(&holding.looked, 0, 0);
    assert_int_equal(pthread_create(&holder, NULL, hold_main, &holding), 0);
    wait_for(&holding.held);
    assert_int_equal(pthread_create(&looker, NULL, look_main, &holding), 0);
    looked = has_looked(&holding);
    sem_post(&holding.release);
    pthread_join(holder, NULL);
    pthread_join(looker, NULL);
    assert_true(looked);
    assert_int_equal(holding.stats.requests, 1);
    assert_int_equal(holding.stats.set_rows, 1);
    assert_int_equal(holding.pulse.unwritten_rows, 1);
    assert_int_equal(holding.pulse.reader_waits, 0);
    sem_destroy(&holding.held);
    sem_destroy(&holding.release);
    sem_destroy(&holding.looked);
    client_detach(&client);
    lanes_write_back(&x);
    lanes_stop(&x);
}

/* ---- After an answer ---- */

/* Rows of GETs, by the places that served them. */
static uint64_t served_rows(const struct lane_stats *stats)
{
    uint64_t sum = stats->queued_get_rows + stats->stored_get_rows + stats->initial_get_rows;

    for (uint32_t h = 0; h < HOME_KINDS; h++)
        sum += stats->homes[h].get_hits;
    return sum;
}

static uint64_t rows_in_memory(const struct lane_stats *stats)
{
    uint64_t sum = 0;

    for (uint32_t h = 0; h < HOME_KINDS; h++)
        sum += stats->homes[h].rows;
    return sum;
}

/* Sends a request for @count rows from @first on, and waits for its answer. */
static void ask(struct client *client, enum op_number op, uint64_t table, uint64_t first,
                uint32_t count)
{
    const uint32_t number = client->submitted;

    for (uint32_t i = 0; i < count; i++)
        client_ids(client, number)[i] = first + i;
    memset(client_rows(client, number, count), 0, (size_t)count * DIM * sizeof(float));
    assert_int_equal(client_wait(client, client_submit(client, op, table, count))->err, EMBTIER_OK);
}

/* The counters are read right after each answer, while lanes still run the ends of their turns. */
static void test_a_client_that_has_an_answer_finds_its_rows_counted(void **state)
{
    const struct lanes_shape shape = shape_of(3);
    const uint32_t batch = 40, rounds = 300;
    uint64_t gets = 0, sets = 0, missed = 0;
    struct lanes_fixture x;
    struct client client;
    uint64_t table;

    lanes_start(&x, *state, &shape);
    table = fixture_table(&x, "t", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
    client = client_attach(&x, SLOT_BYTES);
    for (uint32_t round = 0; round < rounds; round++) {
        /* New rows are read, others set without a read, then all are found. */
        const uint64_t first = (uint64_t)round * 2 * batch;
        const struct {
            enum op_number op;
            uint64_t first;
            uint32_t count, missed;
        } requests[] = { { OP_GET, first, batch, batch },
                         { OP_SET, first + batch, batch, batch },
                         { OP_GET, first, 2 * batch, 0 } };

        for (uint32_t i = 0; i < ARRAY_LEN(requests); i++) {
            const bool is_get = requests[i].op == OP_GET;
            struct lane_stats found;

            ask(&client, requests[i].op, table, requests[i].first, requests[i].count);
            found = fixture_stats(&x);
            *(is_get ? &gets : &sets) += requests[i].count;
            missed += requests[i].missed;
            assert_int_equal(found.requests, round * ARRAY_LEN(requests) + i + 1);
            assert_int_equal(found.get_rows, gets);
            assert_int_equal(served_rows(&found), gets);
            assert_int_equal(found.set_rows, sets);
            assert_int_equal(found.missed_rows, missed);
            assert_int_equal(rows_in_memory(&found), missed);
            assert_int_equal(found.reading_rows, 0);
        }
    }
    client_detach(&client);
    lanes_write_back(&x);
    lanes_stop(&x);
}

/* ---- Waiting for readers ---- */

static uint64_t reader_waits(const struct lanes_fixture *x)
{
    struct lane_pulse pulse;

    lane_pulse(x->lanes[0], &pulse);
    return pulse.reader_waits;
}

static void test_rows_that_wait_for_a_reader_are_noticed(void **state)
{
    const struct lanes_shape shape = shape_of(1);
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    struct lanes_fixture x;
    struct client client;
    uint64_t table, waits;
    uint32_t number;
    unsigned looks = 0;

    lanes_start(&x, *state, &shape);
    table = fixture_table(&x, "t", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
    client = client_attach(&x, SLOT_BYTES);
    ask(&client, OP_GET, table, 0, 1);
    assert_int_equal(reader_waits(&x), 0); /* a reader was free */
    atomic_store(&hold, true);
    number = client.submitted;
    for (uint32_t i = 0; i < MANY; i++)
        client_ids(&client, number)[i] = 1 + i;
    client_submit(&client, OP_GET, table, MANY);
    while (reader_waits(&x) == 0) {
        assert_true(now_ns() < until);
        fixture_pause(&looks);
    }
    atomic_store(&hold, false);
    assert_int_equal(client_wait(&client, number)->err, EMBTIER_OK);
    waits = reader_waits(&x);
    ask(&client, OP_GET, table, 0, MANY); /* all are cached */
    assert_int_equal(reader_waits(&x), waits);
    client_detach(&client);
    lanes_stop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_the_counters_of_a_held_lane_can_be_read),
        T(test_a_client_that_has_an_answer_finds_its_rows_counted),
        T(test_rows_that_wait_for_a_reader_are_noticed),
#undef T
    };

    return cmocka_run_group_tests_name("lane counters", tests, NULL, NULL);
}
