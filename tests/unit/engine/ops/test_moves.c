/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a table's rows are the same to the bit while they move from home to home, and after
 * it. Lookups with tickets, pushes, SETs, prefetches and epochs go on meanwhile. */
#include "tests/unit/engine/ops/push_fixture.h"

#include "daemon/engine/tables/progress.h"

/* The cache holds fewer rows than the tables have; with one lane and with several; without and with
 * maps. Tables of one shape are still there with the next, in arrays perhaps. */
static const struct lanes_shape moving_shapes[] = {
    { .lane_count = 1,
      .slabs_per_lane = 2,
      .readers = 2,
      .write_queue_bytes = 1 * MIB,
      .array_slabs = 40 },
    { .lane_count = 3,
      .slabs_per_lane = 2,
      .readers = 1,
      .write_queue_bytes = 1 * MIB,
      .array_slabs = 40 },
    { .lane_count = 1,
      .slabs_per_lane = 4,
      .map_slabs = 1,
      .readers = 2,
      .write_queue_bytes = 1 * MIB,
      .array_slabs = 40 },
};

/* A few rows are hot in one split, and two thirds in another. */
#define FEW_HOT  300
#define MANY_HOT 8000

static uint64_t hot_ids[MANY_HOT];

/* Each way from a home to another. */
static const struct table_move_opts places[] = {
    { .home = EMBTIER_HOME_ARRAY, .tier = "test" },
    { .home = EMBTIER_HOME_CACHE, .tier = "" },
    { .home = EMBTIER_HOME_SPLIT, .tier = "test", .hot = { hot_ids, MANY_HOT } },
    { .home = EMBTIER_HOME_ARRAY, .tier = "other" },
    { .home = EMBTIER_HOME_ARRAY, .tier = "test" },
    { .home = EMBTIER_HOME_SPLIT, .tier = "other", .hot = { hot_ids, FEW_HOT } },
    { .home = EMBTIER_HOME_CACHE, .tier = "" },
};

/* Some of the rows that are looked up most, and others. */
static void choose_hot_ids(void)
{
    for (uint32_t i = 0; i < MANY_HOT; i++)
        hot_ids[i] = i % 2 ? i / 2 * 3 : i / 2 * 3 + 1;
}

/* On a thread of its own a test cannot fail, so it ends the program. */
#define THREAD_CHECK(what)                                                                         \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A thread that moves a table round all places. */
struct mover {
    struct pushing *t;
    const char *name;
    uint64_t seed;
    pthread_t thread;
    _Atomic bool stop;
    _Atomic uint32_t moves;
    _Atomic uint32_t given_up;
    _Atomic uint32_t cancel; /* enum embtier_err, while a move is to be given up */
    uint32_t reports_left;   /* then it is */
};

static void count_report(void *context, uint64_t done, uint64_t total, const char *unit)
{
    struct mover *const mover = context;

    THREAD_CHECK(done <= total);
    (void)unit;
    if (mover->reports_left > 0 && --mover->reports_left == 0)
        atomic_store(&mover->cancel, (uint32_t)EMBTIER_CANCELLED);
}

/* True if the table has the home. */
static bool is_at(struct mover *mover, const struct table_move_opts *place)
{
    struct table_info info;
    struct err_msg msg = { { 0 } };

    THREAD_CHECK(tables_find(mover->t->p.x.tables, mover->name, &info, &msg) == EMBTIER_OK);
    return info.spec.home == place->home && strcmp(info.spec.home_tier, place->tier) == 0;
}

static void *mover_main(void *context)
{
    struct mover *const mover = context;
    uint32_t at = 0;

    while (!atomic_load(&mover->stop)) {
        struct table_move_opts opts = places[at % ARRAY_LEN(places)];
        const struct progress_sink progress = { .report = count_report,
                                                .context = mover,
                                                .stop = &mover->cancel };
        struct table_moved moved;
        struct err_msg msg = { { 0 } };
        enum embtier_err err;

        mover->seed = mover->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        opts.name = mover->name;
        opts.rate_bytes = mover->seed >> 63 ? 64 * MIB : 0;
        mover->reports_left = mover->seed >> 61 & 1 ? 1 + (mover->seed >> 40 & 31) : 0;
        err = tables_move(mover->t->p.x.tables, &opts, &progress, &moved, &msg);
        if (err == EMBTIER_OK) {
            atomic_fetch_add(&mover->moves, 1);
            at++;
        } else {
            THREAD_CHECK(err == EMBTIER_CANCELLED);
            atomic_fetch_add(&mover->given_up, 1);
        }
        THREAD_CHECK(is_at(mover, &opts) == (err == EMBTIER_OK));
        atomic_store(&mover->cancel, (uint32_t)EMBTIER_OK);
    }
    return NULL;
}

static void mover_start(struct mover *mover, struct pushing *t, uint32_t table)
{
    *mover =
        (struct mover){ .t = t, .name = t->tables[table].spec.name, .seed = t->p.seed + table };
    assert_int_equal(pthread_create(&mover->thread, NULL, mover_main, mover), 0);
}

/* True once each table was everywhere, and a move of each was given up. A thread may be late. */
static bool have_moved(struct mover movers[TABLES])
{
    for (uint32_t n = 0; n < TABLES; n++)
        if (movers[n].moves < ARRAY_LEN(places) || movers[n].given_up == 0)
            return false;
    return true;
}

static void mover_end(struct mover *mover)
{
    atomic_store(&mover->stop, true);
    pthread_join(mover->thread, NULL);
}

/* Sets whole rows of a table, or weights alone. */
static void set_some(struct pushing *t, struct shadow *shadow, bool with_state)
{
    struct client *const client = &t->p.client;
    const uint32_t number = client->submitted, count = 1 + below(t, 400);
    const uint32_t numbers = with_state ? shadow->numbers : DIM;
    float *const rows = (float *)client_rows(client, number, count);

    for (uint32_t i = 0; i < count; i++) {
        client_ids(client, number)[i] = below(t, TABLE_ROWS);
        for (uint32_t c = 0; c < numbers; c++)
            rows[i * numbers + c] = fabsf(some_float(t));
        memcpy(row_of(shadow, client_ids(client, number)[i]), rows + (size_t)i * numbers,
               numbers * sizeof(float));
    }
    client_submit_flags(client, OP_SET, with_state ? OP_FLAG_STATE : 0, shadow->handle, count);
    assert_int_equal(client_wait(client, number)->err, EMBTIER_OK);
}

/* A lookup, its push, SETs and a prefetch. */
static void train(struct pushing *t, uint32_t round)
{
    struct op_pool_segment looked_up[SEGMENTS], *segments;
    const struct op_completion *done;
    uint64_t ticket;

    make_bags(t, &t->p.bags[0], 0, round % 3 == 0, round % 4 ? TABLE_ROWS : 500, 1 + below(t, 300));
    make_bags(t, &t->p.bags[1], round / 2 % 2, round % 3 == 0, TABLE_ROWS, below(t, 300));
    ticket = look_up(t, t->p.bags, &segments);
    memcpy(looked_up, segments, sizeof(looked_up));
    lay_push_out(t, t->p.bags, looked_up, ticket);
    assert_int_equal(submit_and_wait(t)->err, EMBTIER_OK);
    push_to_shadows(t, t->p.bags, looked_up, 0.01);
    set_some(t, &t->tables[below(t, TABLES)], round % 2);
    if (round % 4 != 0)
        return;
    done = prefetch(t, below(t, TABLE_ROWS - 100), 100);
    if (done->err == EMBTIER_OK)
        release_pins(t, done->ticket);
    else /* so many are pinned, or a row that waited for its pin went to another home */
        assert_int_equal(done->err, EMBTIER_PINS_FULL);
}

/* ---- Epochs: a checkpoint, as lanes see it ---- */

static void begin_epoch(struct lanes_fixture *x)
{
    for (uint32_t i = 0; i < x->lane_count; i++)
        lane_begin_epoch(x->lanes[i]);
}

static void save(struct lanes_fixture *x)
{
    for (uint32_t i = 0; i < x->lane_count; i++) {
        const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
        struct lane_saving saving = { .mark = 0 };

        while (!lane_save_step(x->lanes[i], &saving, 64).done) {
            THREAD_CHECK(now_ns() < until);
            usleep(100);
        }
    }
}

static void end_epoch(struct lanes_fixture *x)
{
    for (uint32_t i = 0; i < x->lane_count; i++)
        THREAD_CHECK(lane_end_epoch(x->lanes[i]));
}

static void *save_main(void *context)
{
    save(context);
    end_epoch(context); /* rows that find no place wait for that */
    return NULL;
}

/* Trains while old rows are saved. */
static void train_in_epoch(struct pushing *t, uint32_t round)
{
    struct lanes_fixture *const x = &t->p.x;
    pthread_t saver;

    begin_epoch(x);
    assert_int_equal(pthread_create(&saver, NULL, save_main, x), 0);
    train(t, round);
    train(t, round + 1);
    pthread_join(saver, NULL);
}

static uint64_t dirty_rows(struct pushing *t)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < t->p.x.lane_count; i++) {
        struct lane_stats stats;

        lane_stats(t->p.x.lanes[i], &stats);
        for (uint32_t h = 0; h < HOME_KINDS; h++)
            rows += stats.homes[h].dirty_rows;
    }
    return rows;
}

/* An epoch in which nothing changes leaves no row dirty, in whatever home it was. */
static void save_all(struct pushing *t)
{
    struct lanes_fixture *const x = &t->p.x;

    begin_epoch(x);
    save(x);
    assert_int_equal(dirty_rows(t), 0);
    end_epoch(x);
}

/* ---- Tests ---- */

static void reopen(struct pushing *t, struct store_fixture *f, const struct lanes_shape *shape)
{
    client_detach(&t->p.client);
    lanes_write_back(&t->p.x);
    lanes_stop(&t->p.x);
    lanes_start(&t->p.x, f, shape);
    t->p.client = client_attach(&t->p.x, SLOT_BYTES);
    for (uint32_t n = 0; n < TABLES; n++) {
        struct table_info info;
        struct err_msg msg = { { 0 } };

        must(tables_find(t->p.x.tables, t->tables[n].spec.name, &info, &msg), &msg);
        t->tables[n].handle = info.handle;
    }
}

static void test_rows_are_the_same_while_their_tables_move(void **state)
{
    for (size_t s = SHAPES_FIRST; s < ARRAY_LEN(moving_shapes); s += SHAPES_STEP) {
        const struct lanes_shape *const shape = &moving_shapes[s];
        struct mover movers[TABLES];
        struct pushing t;

        pushing_start(&t, *state, shape);
        for (uint32_t n = 0; n < TABLES; n++)
            mover_start(&movers[n], &t, n);
        for (uint32_t round = 0; round < rounds_of(60) || !have_moved(movers); round++) {
            if (round % 6 == 5)
                train_in_epoch(&t, round);
            else if (round % 6 == 2)
                save_all(&t);
            else
                train(&t, round);
            if (round % 10 == 9)
                assert_rows(&t);
        }
        for (uint32_t n = 0; n < TABLES; n++)
            mover_end(&movers[n]);
        print_message("%u moves, %u given up\n", movers[0].moves + movers[1].moves,
                      movers[0].given_up + movers[1].given_up);
        assert_rows(&t);
        reopen(&t, *state, shape); /* the disk has them all */
        assert_rows(&t);
        pushing_stop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_rows_are_the_same_while_their_tables_move),
#undef T
    };

    choose_hot_ids();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
