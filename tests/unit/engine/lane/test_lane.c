/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lanes with a cache that is far too small. A session's requests must take effect in order,
 * every session must get its turn, and no row may be lost. */
#include "tests/forms.h"
#include "tests/unit/engine/lane/lane_fixture.h"

#include <math.h>

/* Two lanes, each with four slabs in each tier. */
static const struct lanes_shape small = {
    .lane_count = 2, .slabs_per_lane = 4, .readers = 2, .write_queue_bytes = 256 * KIB
};

/* ---- A model ---- */

/* Rows of three tables: a plain one, one with state, one with the longest rows. Every weight of a
 * row is the number of the SET that wrote it last. Every number of its state is minus the number of
 * the last SET with state. Half of the requests carry state. Each session has its own ids. */
#define MODEL_TABLES 3
static const struct {
    const char *name;
    uint32_t dim;
    enum embtier_optimizer optimizer;
    uint32_t state;    /* numbers of state */
    uint32_t rows;     /* per session */
    uint32_t batch[2]; /* most rows in a batch, without and with state */
} model_tables[MODEL_TABLES] = {
    { "plain", 32, EMBTIER_OPTIMIZER_NONE, 0, 40000, { 400, 400 } },
    { "state", 16, EMBTIER_OPTIMIZER_ADAGRAD, 16, 20000, { 400, 400 } },
    { "long", 8192, EMBTIER_OPTIMIZER_ADAM, 2 * 8192, 60, { 6, 2 } },
};
#define MODEL_SLOT_BYTES (256 * KIB)
#define MODEL_SESSIONS   3

struct expected {
    uint32_t table;
    uint32_t count;
    enum op_number op;
    bool with_state;
    float values[400];
    float states[400];
};

struct model {
    struct client client;
    uint64_t handles[MODEL_TABLES];
    uint64_t base_id; /* this session's ids start here */
    float *values[MODEL_TABLES];
    float *states[MODEL_TABLES];
    float next_value;
    uint64_t random;
    struct expected expected[FIXTURE_SLOTS];
};

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Returns how many numbers a row has in this request. */
static uint32_t model_numbers(const struct expected *expected)
{
    return model_tables[expected->table].dim +
           (expected->with_state ? model_tables[expected->table].state : 0);
}

static void model_check(struct model *model, uint32_t number)
{
    const struct expected *const expected = &model->expected[number % FIXTURE_SLOTS];
    const uint32_t dim = model_tables[expected->table].dim;
    const uint32_t numbers = model_numbers(expected);
    const struct op_completion *const done = client_wait(&model->client, number);
    const float *const rows = (float *)client_rows(&model->client, number, expected->count);
    const uint64_t *const ids = client_ids(&model->client, number);

    assert_int_equal(done->err, EMBTIER_OK);
    if (expected->op != OP_GET)
        return;
    for (uint32_t i = 0; i < expected->count; i++) {
        const uint32_t columns[] = { 0, dim - 1, dim, numbers - 1 }; /* the last two are state */

        for (uint32_t c = 0; c < (numbers > dim ? 4u : 2u); c++) {
            const float got = rows[i * numbers + columns[c]];
            const float wanted = c < 2 ? expected->values[i] : expected->states[i];

            if (got != wanted)
                fail_msg("request %u table %s id %llu column %u of %u: %g, expected %g", number,
                         model_tables[expected->table].name, (unsigned long long)ids[i], columns[c],
                         numbers, (double)got, (double)wanted);
        }
    }
}

/* Fills in row @i of a SET, or notes the values that a GET must find. */
static void model_row(struct model *model, struct expected *expected, float *rows, uint32_t i,
                      uint64_t row)
{
    const uint32_t t = expected->table;
    const uint32_t numbers = model_numbers(expected);

    if (expected->op == OP_GET) {
        expected->values[i] = model->values[t][row];
        expected->states[i] = model->states[t][row];
        for (uint32_t j = 0; j < numbers; j++)
            rows[(uint64_t)i * numbers + j] = NAN;
        return;
    }
    model->values[t][row] = model->next_value++;
    if (expected->with_state)
        model->states[t][row] = -model->values[t][row];
    for (uint32_t j = 0; j < numbers; j++)
        rows[(uint64_t)i * numbers + j] =
            j < model_tables[t].dim ? model->values[t][row] : model->states[t][row];
}

static void model_send(struct model *model, const struct expected *expected)
{
    client_submit_flags(&model->client, expected->op, expected->with_state ? OP_FLAG_STATE : 0,
                        model->handles[expected->table], expected->count);
}

/* Ids crowd at the low end, and some occur twice. */
static void model_submit(struct model *model)
{
    const uint32_t number = model->client.submitted;
    const uint32_t t = (uint32_t)(next_random(&model->random) % MODEL_TABLES);
    struct expected *const expected = &model->expected[number % FIXTURE_SLOTS];
    uint64_t *const ids = client_ids(&model->client, number);
    float *rows;

    expected->table = t;
    expected->with_state = next_random(&model->random) % 2;
    expected->count =
        1 + (uint32_t)(next_random(&model->random) % model_tables[t].batch[expected->with_state]);
    expected->op = next_random(&model->random) % 2 ? OP_GET : OP_SET;
    rows = (float *)client_rows(&model->client, number, expected->count);
    for (uint32_t i = 0; i < expected->count; i++) {
        const uint64_t range =
            next_random(&model->random) % 4 ? model_tables[t].rows : model_tables[t].rows / 20;
        const uint64_t row = next_random(&model->random) % range;

        ids[i] = model->base_id + row;
        model_row(model, expected, rows, i, row);
    }
    model_send(model, expected);
}

static void model_open(struct model *model, struct lanes_fixture *x)
{
    model->client = client_attach(x, MODEL_SLOT_BYTES);
    for (uint32_t t = 0; t < MODEL_TABLES; t++)
        model->handles[t] = fixture_table(x, model_tables[t].name, EMBTIER_UNBOUNDED,
                                          model_tables[t].dim, model_tables[t].optimizer);
}

static struct model *model_new(struct lanes_fixture *x, uint64_t seed)
{
    struct model *const model = calloc(1, sizeof(*model));

    model_open(model, x);
    model->random = seed * UINT64_C(0x9e3779b97f4a7c15);
    model->base_id = seed << 40;
    model->next_value = 1;
    for (uint32_t t = 0; t < MODEL_TABLES; t++) {
        model->values[t] = malloc(model_tables[t].rows * sizeof(float));
        model->states[t] = calloc(model_tables[t].rows, sizeof(float));
        for (uint32_t i = 0; i < model_tables[t].rows; i++)
            model->values[t][i] = 0.5f; /* the initial value */
    }
    return model;
}

static void model_free(struct model *model)
{
    client_detach(&model->client);
    for (uint32_t t = 0; t < MODEL_TABLES; t++) {
        free(model->values[t]);
        free(model->states[t]);
    }
    free(model);
}

/* Keeps every slot in flight, so that requests of one session always overlap. */
static void *model_play(void *context)
{
    struct model *const model = context;
    const uint32_t rounds = BY_BUILD(1500, 500, 400);

    for (uint32_t i = 0; i < rounds; i++) {
        if (model->client.submitted >= FIXTURE_SLOTS)
            model_check(model, model->client.submitted - FIXTURE_SLOTS);
        model_submit(model);
    }
    for (uint32_t i = rounds - FIXTURE_SLOTS; i < rounds; i++)
        model_check(model, i);
    return NULL;
}

/* Checks every row and its state with GETs. */
static void model_check_all(struct model *model)
{
    for (uint32_t t = 0; t < MODEL_TABLES; t++) {
        const uint32_t batch = model_tables[t].batch[true];

        for (uint32_t first = 0; first < model_tables[t].rows; first += batch) {
            const uint32_t number = model->client.submitted;
            struct expected *const expected = &model->expected[number % FIXTURE_SLOTS];
            float *rows;

            expected->table = t;
            expected->op = OP_GET;
            expected->with_state = true;
            expected->count = MIN(batch, model_tables[t].rows - first);
            rows = (float *)client_rows(&model->client, number, expected->count);
            for (uint32_t i = 0; i < expected->count; i++) {
                client_ids(&model->client, number)[i] = model->base_id + first + i;
                model_row(model, expected, rows, i, first + i);
            }
            model_send(model, expected);
            model_check(model, number);
        }
    }
}

static void check_counters(struct lanes_fixture *x)
{
    const struct lane_stats stats = fixture_stats(x);
    uint64_t hits = 0;

    for (uint32_t h = 0; h < HOME_KINDS; h++)
        hits += stats.homes[h].get_hits;
    print_message(
        "get %llu: hits %llu, queued %llu, stored %llu, initial %llu; shared %llu; "
        "written %llu\n",
        (unsigned long long)stats.get_rows, (unsigned long long)hits,
        (unsigned long long)stats.queued_get_rows, (unsigned long long)stats.stored_get_rows,
        (unsigned long long)stats.initial_get_rows, (unsigned long long)stats.shared_reads,
        (unsigned long long)stats.write_queue.rows_written);
    assert_int_equal(stats.failed_rows, 0);
    /* Each row of a GET is counted at the one place it was served from, and each miss is counted
     * once. */
    assert_int_equal(stats.get_rows,
                     hits + stats.queued_get_rows + stats.stored_get_rows + stats.initial_get_rows);
}

/* Reads the counters of lanes at work, as a scrape of the metrics does. */
struct watcher {
    struct lanes_fixture *x;
    _Atomic bool stop;
};

static void assert_none_fell(const struct lane_stats *before, const struct lane_stats *now)
{
    assert_true(now->requests >= before->requests && now->segments >= before->segments);
    assert_true(now->get_rows >= before->get_rows && now->set_rows >= before->set_rows);
    assert_true(now->missed_rows >= before->missed_rows);
    assert_true(now->queued_get_rows >= before->queued_get_rows);
    assert_true(now->stored_get_rows >= before->stored_get_rows);
    assert_true(now->initial_get_rows >= before->initial_get_rows);
    assert_true(now->shared_reads >= before->shared_reads);
    assert_true(now->write_queue.rows_written >= before->write_queue.rows_written);
    for (uint32_t h = 0; h < HOME_KINDS; h++)
        assert_true(now->homes[h].hits >= before->homes[h].hits);
    for (uint32_t t = 0; t < TIERS_MAX; t++) {
        assert_true(now->cache.tiers[t].demotions >= before->cache.tiers[t].demotions);
        assert_true(now->cache.tiers[t].promotions >= before->cache.tiers[t].promotions);
        assert_true(now->cache.tiers[t].evicted_dirty >= before->cache.tiers[t].evicted_dirty);
    }
}

static void *watch_main(void *context)
{
    struct watcher *const watcher = context;
    struct lane_stats seen[LANES_MOST] = { 0 };
    struct lane_pulse pulses[LANES_MOST] = { 0 };

    while (!atomic_load(&watcher->stop)) {
        for (uint32_t i = 0; i < watcher->x->lane_count; i++) {
            const struct lane_stats before = seen[i];
            const uint64_t waits = pulses[i].reader_waits;

            lane_stats(watcher->x->lanes[i], &seen[i]);
            lane_pulse(watcher->x->lanes[i], &pulses[i]);
            assert_none_fell(&before, &seen[i]);
            assert_true(pulses[i].reader_waits >= waits);
        }
        usleep(200);
    }
    return NULL;
}

static void test_sessions_agree_with_a_model_and_no_row_is_lost(void **state)
{
    struct lanes_fixture x;
    struct watcher watcher = { .x = &x };
    pthread_t watcher_thread;
    struct model *models[MODEL_SESSIONS];
    pthread_t threads[MODEL_SESSIONS];

    lanes_start(&x, *state, &small);
    for (uint32_t i = 0; i < MODEL_SESSIONS; i++)
        models[i] = model_new(&x, i + 1);
    assert_int_equal(pthread_create(&watcher_thread, NULL, watch_main, &watcher), 0);
    for (uint32_t i = 0; i < MODEL_SESSIONS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, model_play, models[i]), 0);
    for (uint32_t i = 0; i < MODEL_SESSIONS; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < MODEL_SESSIONS; i++) {
        model_check_all(models[i]);
        client_detach(&models[i]->client);
    }
    atomic_store(&watcher.stop, true);
    pthread_join(watcher_thread, NULL);
    check_counters(&x);
    lanes_write_back(&x);
    lanes_stop(&x);

    /* Now check the disk. */
    lanes_start(&x, *state, &small);
    for (uint32_t i = 0; i < MODEL_SESSIONS; i++) {
        memset(&models[i]->client, 0, sizeof(models[i]->client));
        model_open(models[i], &x);
        model_check_all(models[i]);
        model_free(models[i]);
    }
    lanes_stop(&x);
}

/* ---- Rows with state ---- */

#define STATE_DIM 3

/* One request in a pipeline, for one row: each weight is @weight, each number of the state is
 * @state. */
struct step {
    enum op_number op;
    bool with_state;
    float weight;
    float state;
};

static float *step_row(struct client *client, uint32_t number)
{
    return (float *)client_rows(client, number, 1);
}

/* Submits all steps at once, so that most find the row being read. */
static void submit_steps(struct client *client, const struct step *steps, uint32_t count,
                         uint64_t table, uint64_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t number = client->submitted + i;

        *client_ids(client, number) = id;
        for (uint32_t j = 0; j <= 2 * STATE_DIM; j++)
            step_row(client, number)[j] = steps[i].op == OP_GET ? NAN
                                          : j < STATE_DIM       ? steps[i].weight
                                                                : steps[i].state;
        client_fill(client, number, steps[i].op, steps[i].with_state ? OP_FLAG_STATE : 0, table, 1);
    }
    client->submitted += count - 1;
    client_publish(client);
}

static void check_steps(struct client *client, const struct step *steps, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t number = client->submitted - count + i;
        const float *const row = step_row(client, number);

        assert_int_equal(client_wait(client, number)->err, EMBTIER_OK);
        if (steps[i].op == OP_SET)
            continue;
        assert_true(row[0] == steps[i].weight && row[STATE_DIM - 1] == steps[i].weight);
        if (steps[i].with_state)
            assert_true(row[STATE_DIM] == steps[i].state &&
                        row[2 * STATE_DIM - 1] == steps[i].state);
        else
            assert_true(isnan(row[STATE_DIM])); /* the memory behind a row is left alone */
        assert_true(isnan(row[2 * STATE_DIM]));
    }
}

static void test_requests_with_state_and_without_of_a_row_being_read_are_in_order(void **state)
{
    static const struct step steps[] = {
        { OP_GET, false, 0.5f, 0 }, { OP_SET, false, 1, 0 },  { OP_GET, true, 1, 0 },
        { OP_SET, true, 2, 20 },    { OP_GET, true, 2, 20 },  { OP_SET, false, 3, 0 },
        { OP_GET, true, 3, 20 },    { OP_GET, false, 3, 20 }, { OP_SET, true, 4, 40 },
        { OP_SET, true, 5, 50 },    { OP_SET, false, 6, 0 },  { OP_GET, true, 6, 50 },
    };
    static const uint32_t begins[] = { 0, 1, 3 }; /* has the row read; the last one does not */
    struct lanes_fixture x;
    struct client client;
    uint64_t table;

    lanes_start(&x, *state, &small);
    table = fixture_table(&x, "state", EMBTIER_UNBOUNDED, STATE_DIM, EMBTIER_OPTIMIZER_ADAGRAD);
    client = client_attach(&x, MODEL_SLOT_BYTES);
    for (uint64_t id = 0; id < 300; id++) {
        const uint32_t first = begins[id % ARRAY_LEN(begins)];

        submit_steps(&client, steps + first, ARRAY_LEN(steps) - first, table, id);
        check_steps(&client, steps + first, ARRAY_LEN(steps) - first);
    }
    assert_true(fixture_stats(&x).shared_reads > 30);
    client_detach(&client);
    lanes_stop(&x);
}

static void test_a_set_of_whole_rows_reads_none(void **state)
{
    const struct step with = { OP_SET, true, 1, 10 }, without = { OP_SET, false, 2, 0 };
    const struct step found[] = { { OP_GET, true, 1, 10 }, { OP_GET, true, 2, 0 } };
    struct lanes_fixture x;
    struct client client;
    uint64_t table;

    lanes_start(&x, *state, &small);
    table = fixture_table(&x, "state", EMBTIER_UNBOUNDED, STATE_DIM, EMBTIER_OPTIMIZER_ADAGRAD);
    client = client_attach(&x, MODEL_SLOT_BYTES);
    for (uint64_t id = 0; id < 100; id++) {
        submit_steps(&client, &with, 1, table, id);
        check_steps(&client, &with, 1);
    }
    assert_int_equal(tables_totals(x.tables).rows_initialised, 0);
    for (uint64_t id = 100; id < 200; id++) {
        submit_steps(&client, &without, 1, table, id);
        check_steps(&client, &without, 1);
    }
    assert_int_equal(tables_totals(x.tables).rows_initialised, 100); /* for the state */
    for (uint64_t id = 0; id < 200; id++) {
        submit_steps(&client, &found[id / 100], 1, table, id);
        check_steps(&client, &found[id / 100], 1);
    }
    client_detach(&client);
    lanes_stop(&x);
}

/* ---- Turns ---- */

struct hammer {
    struct client client;
    uint64_t table;
    uint64_t rows;
    _Atomic bool stop;
};

/* Keeps all slots full. */
static void *hammer_main(void *context)
{
    struct hammer *const hammer = context;
    struct client *const client = &hammer->client;
    const uint32_t count = 400;
    uint64_t id = 0;

    while (!atomic_load(&hammer->stop)) {
        if (client->submitted >= FIXTURE_SLOTS)
            client_wait(client, client->submitted - FIXTURE_SLOTS);
        for (uint32_t i = 0; i < count; i++)
            client_ids(client, client->submitted)[i] = id++ % hammer->rows;
        client_submit(client, OP_GET, hammer->table, count);
    }
    for (uint32_t i = client->submitted - FIXTURE_SLOTS; i < client->submitted; i++)
        client_wait(client, i);
    return NULL;
}

/* A session that was silent must ring. The lane must hear it although the lane is never idle. */
static void test_silent_session_is_heard_while_another_keeps_the_lane_busy(void **state)
{
    struct lanes_shape shape = small;
    struct lanes_fixture x;
    struct hammer hammer = { .rows = 1000 };
    struct client silent;
    pthread_t thread;
    float value;

    shape.lane_count = 1;
    shape.spin_ns = 10000000; /* as on a machine with many cores */
    lanes_start(&x, *state, &shape);
    hammer.table = fixture_table(&x, "plain", 1000, 32, EMBTIER_OPTIMIZER_NONE);
    hammer.client = client_attach(&x, MODEL_SLOT_BYTES);
    silent = client_attach(&x, MODEL_SLOT_BYTES);
    assert_int_equal(pthread_create(&thread, NULL, hammer_main, &hammer), 0);
    for (uint32_t i = 0; i < 20; i++) {
        const uint64_t until = now_ns() + FIXTURE_WAIT_NS;

        while (!client_must_ring(&silent)) {
            assert_true(now_ns() < until);
            usleep(200);
        }
        assert_int_equal(client_get_one(&silent, hammer.table, i, &value), EMBTIER_OK);
    }
    atomic_store(&hammer.stop, true);
    pthread_join(thread, NULL);
    client_detach(&silent);
    client_detach(&hammer.client);
    lanes_stop(&x);
}

/* More misses are in flight than the lane has entries for: all ids of the large session are new. */
static void test_large_batches_that_miss_do_not_starve_another_session(void **state)
{
    struct lanes_shape shape = small;
    struct lanes_fixture x;
    struct client large, other;
    const uint32_t count = 200000; /* three times the entries of a lane */
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    uint64_t id = 0, other_id = UINT64_C(1) << 50;
    uint32_t served;
    uint64_t table;
    float value;

    shape.lane_count = 1;
    shape.readers = 1;
    lanes_start(&x, *state, &shape);
    table = fixture_table(&x, "narrow", EMBTIER_UNBOUNDED, 1, EMBTIER_OPTIMIZER_NONE);
    large = client_attach(&x, 4 * MIB);
    other = client_attach(&x, MODEL_SLOT_BYTES);
    do { /* repeat if the other session came too late to be served meanwhile */
        uint32_t number;

        assert_true(now_ns() < until);
        for (uint32_t i = 0; i < count; i++)
            client_ids(&large, large.submitted)[i] = id++;
        number = client_submit(&large, OP_GET, table, count);
        for (served = 0; !client_is_done(&large, number); served++)
            assert_int_equal(client_get_one(&other, table, other_id++, &value), EMBTIER_OK);
    } while (served <= 1);
    print_message("%u requests served meanwhile\n", served);
    client_detach(&other);
    client_detach(&large);
    lanes_stop(&x);
}

/* ---- Request memory ---- */

/* Four of these requests use up 16 MiB. */
static void test_requests_wait_for_memory_and_all_are_answered(void **state)
{
    struct lanes_fixture x;
    struct client clients[2];
    const uint32_t count = 100000;
    uint64_t table;

    lanes_start(&x, *state, &small);
    table = fixture_table(&x, "narrow", EMBTIER_UNBOUNDED, 1, EMBTIER_OPTIMIZER_NONE);
    for (uint32_t c = 0; c < 2; c++)
        clients[c] = client_attach(&x, 2 * MIB);
    for (uint32_t n = 0; n < FIXTURE_SLOTS; n++) {
        for (uint32_t c = 0; c < 2; c++) {
            for (uint32_t i = 0; i < count; i++)
                client_ids(&clients[c], n)[i] = i % 1000;
            client_submit(&clients[c], OP_GET, table, count);
        }
    }
    for (uint32_t n = 0; n < FIXTURE_SLOTS; n++)
        for (uint32_t c = 0; c < 2; c++)
            assert_int_equal(client_wait(&clients[c], n)->err, EMBTIER_OK);
    for (uint32_t c = 0; c < 2; c++)
        client_detach(&clients[c]);
    lanes_stop(&x);
}

/* ---- Drop ---- */

static void test_dropped_table_gives_nothing_to_the_next_of_its_number(void **state)
{
    struct lanes_shape shape = small;
    struct lanes_fixture x;
    struct client client;
    struct table_info info;
    struct err_msg msg = { { 0 } };

    shape.slabs_per_lane = 2;
    lanes_start(&x, *state, &shape);
    client = client_attach(&x, MODEL_SLOT_BYTES);
    for (uint32_t round = 0; round < 4; round++) {
        const uint64_t table =
            fixture_table(&x, "t", EMBTIER_UNBOUNDED, 8192, EMBTIER_OPTIMIZER_ADAM);
        float value;

        for (uint64_t id = 0; id < 200; id++) { /* 20 MB: cache and write queue overflow */
            assert_int_equal(client_get_one(&client, table, id, &value), EMBTIER_OK);
            if (value != 0.5f)
                fail_msg("round %u id %llu: %g", round, (unsigned long long)id, (double)value);
            assert_int_equal(client_set_one(&client, table, id, 8192, (float)round + 1),
                             EMBTIER_OK);
        }
        must(tables_drop(x.tables, "t", NULL, &info, &msg), &msg);
        assert_int_equal(client_get_one(&client, table, 0, &value), EMBTIER_NO_TABLE);
    }
    client_detach(&client);
    lanes_stop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_sessions_agree_with_a_model_and_no_row_is_lost),
        T(test_requests_with_state_and_without_of_a_row_being_read_are_in_order),
        T(test_a_set_of_whole_rows_reads_none),
        T(test_silent_session_is_heard_while_another_keeps_the_lane_busy),
        T(test_large_batches_that_miss_do_not_starve_another_session),
        T(test_requests_wait_for_memory_and_all_are_answered),
        T(test_dropped_table_gives_nothing_to_the_next_of_its_number),
#undef T
    };

    return cmocka_run_group_tests_name("lane", tests, NULL, NULL);
}
