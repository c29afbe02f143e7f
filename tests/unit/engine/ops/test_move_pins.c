/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a move of a table takes no prefetch's pins away, and that no pins stay behind. */
#include "tests/unit/engine/ops/push_fixture.h"

#include "daemon/engine/tables/progress.h"

#define AHEAD 200 /* ids in a prefetch */

static const struct lanes_shape move_shapes[] = {
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
};

/* A move of the first table, on a thread of its own. */
struct mover {
    struct pushing *t;
    enum embtier_home home;
    pthread_t thread;
    enum embtier_err err;
    struct err_msg msg;
    _Atomic bool waits;      /* for pins */
    _Atomic uint32_t cancel; /* enum embtier_err */
};

static void note_report(void *context, uint64_t done, uint64_t total, const char *unit)
{
    struct mover *const mover = context;

    (void)done;
    (void)total;
    if (strcmp(unit, "pinned rows") == 0)
        atomic_store(&mover->waits, true);
}

static void *mover_main(void *context)
{
    struct mover *const mover = context;
    const struct table_move_opts opts = { .name = mover->t->tables[0].spec.name,
                                          .home = mover->home,
                                          .tier = mover->home == EMBTIER_HOME_ARRAY ? "test" : "" };
    const struct progress_sink progress = { .report = note_report,
                                            .context = mover,
                                            .stop = &mover->cancel };
    struct table_moved moved;

    mover->err = tables_move(mover->t->p.x.tables, &opts, &progress, &moved, &mover->msg);
    return NULL;
}

static void move_start(struct mover *mover, struct pushing *t, enum embtier_home home)
{
    *mover = (struct mover){ .t = t, .home = home };
    assert_int_equal(pthread_create(&mover->thread, NULL, mover_main, mover), 0);
}

static enum embtier_err move_wait(struct mover *mover)
{
    pthread_join(mover->thread, NULL);
    return mover->err;
}

static void move_to(struct pushing *t, enum embtier_home home)
{
    struct mover mover;

    move_start(&mover, t, home);
    assert_int_equal(move_wait(&mover), EMBTIER_OK);
}

/* Starts a move to an array, and waits until it waits for pins. */
static void move_until_it_waits(struct mover *mover, struct pushing *t)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    unsigned looks = 0;

    move_start(mover, t, EMBTIER_HOME_ARRAY);
    while (!atomic_load(&mover->waits)) {
        assert_true(now_ns() < until);
        fixture_pause(&looks);
    }
}

static uint64_t prefetch_ahead(struct pushing *t)
{
    const struct op_completion *const done = prefetch(t, 0, AHEAD);

    assert_int_equal(done->err, EMBTIER_OK);
    return done->ticket;
}

/* Releases a prefetch, and waits until its lanes have unpinned its rows: they do so in order. */
static void release_and_wait(struct pushing *t, uint64_t ticket)
{
    const uint64_t rows = pinned_rows(t);
    const struct op_completion *later;

    release_pins(t, ticket);
    later = prefetch(t, TABLE_ROWS / 2, 1);
    assert_int_equal(later->err, EMBTIER_OK);
    release_pins(t, later->ticket);
    if (pinned_rows(t) > rows)
        await_pinned(t, rows);
}

static void test_a_prefetch_of_an_array_takes_no_pins_of_others(void **state)
{
    for (size_t s = 0; s < ARRAY_LEN(move_shapes); s++) {
        struct pushing t;
        uint64_t before, after;

        pushing_start(&t, *state, &move_shapes[s]);
        move_to(&t, EMBTIER_HOME_ARRAY);
        before = prefetch_ahead(&t);
        assert_int_equal(pinned_rows(&t), AHEAD); /* of the other table */
        move_to(&t, EMBTIER_HOME_CACHE);
        after = prefetch_ahead(&t);
        assert_int_equal(pinned_rows(&t), TABLES * AHEAD);
        move_to(&t, EMBTIER_HOME_CACHE); /* is there */
        release_pins(&t, before);
        release_and_wait(&t, prefetch_ahead(&t));
        await_pinned(&t, TABLES * AHEAD); /* all rows are still pinned by the second prefetch */
        release_pins(&t, after);
        await_pinned(&t, 0);
        assert_rows(&t);
        pushing_stop(&t);
    }
}

static void test_a_move_waits_for_pins_and_takes_no_new_ones(void **state)
{
    for (size_t s = 0; s < ARRAY_LEN(move_shapes); s++) {
        struct pushing t;
        struct mover mover;
        uint64_t first, second;

        pushing_start(&t, *state, &move_shapes[s]);
        move_to(&t, EMBTIER_HOME_CACHE);
        first = prefetch_ahead(&t);
        move_until_it_waits(&mover, &t);
        assert_int_equal(pinned_rows(&t), TABLES * AHEAD);
        second = prefetch_ahead(&t);
        release_pins(&t, first);
        assert_int_equal(move_wait(&mover), EMBTIER_OK);
        await_pinned(&t, AHEAD); /* the other table's */
        move_to(&t, EMBTIER_HOME_CACHE);
        release_pins(&t, second);
        await_pinned(&t, 0);
        assert_rows(&t);
        pushing_stop(&t);
    }
}

static void test_a_move_given_up_while_it_waits_leaves_the_pins(void **state)
{
    for (size_t s = 0; s < ARRAY_LEN(move_shapes); s++) {
        struct pushing t;
        struct mover mover;
        uint64_t ticket;

        pushing_start(&t, *state, &move_shapes[s]);
        move_to(&t, EMBTIER_HOME_CACHE);
        ticket = prefetch_ahead(&t);
        move_until_it_waits(&mover, &t);
        atomic_store(&mover.cancel, (uint32_t)EMBTIER_CANCELLED);
        assert_int_equal(move_wait(&mover), EMBTIER_CANCELLED);
        assert_non_null(strstr(mover.msg.text, "keeps its home cache"));
        assert_int_equal(pinned_rows(&t), TABLES * AHEAD);
        release_pins(&t, ticket);
        await_pinned(&t, 0);
        ticket = prefetch_ahead(&t); /* it takes pins again */
        assert_int_equal(pinned_rows(&t), TABLES * AHEAD);
        release_pins(&t, ticket);
        await_pinned(&t, 0);
        assert_rows(&t);
        pushing_stop(&t);
    }
}

/* Pins of a table that is dropped go with its rows, from every home. */
static void test_a_dropped_table_takes_its_pins_along(void **state)
{
    static const uint64_t hot[] = { 0, 7, AHEAD / 2, TABLE_ROWS - 1 };
    static const struct table_move_opts homes[] = {
        { .home = EMBTIER_HOME_CACHE, .tier = "" },
        { .home = EMBTIER_HOME_ARRAY, .tier = "test" },
        { .home = EMBTIER_HOME_SPLIT, .tier = "test", .hot = { hot, ARRAY_LEN(hot) } },
    };

    for (size_t s = 0; s < ARRAY_LEN(move_shapes) * ARRAY_LEN(homes); s++) {
        struct table_move_opts opts = homes[s % ARRAY_LEN(homes)];
        struct table_moved moved;
        struct table_info info;
        struct err_msg msg = { { 0 } };
        struct pushing t;
        uint64_t ticket;

        pushing_start(&t, *state, &move_shapes[s / ARRAY_LEN(homes)]);
        opts.name = t.tables[0].spec.name;
        must(tables_move(t.p.x.tables, &opts, NULL, &moved, &msg), &msg);
        ticket = prefetch_ahead(&t);
        must(tables_drop(t.p.x.tables, opts.name, NULL, &info, &msg), &msg);
        assert_int_equal(pinned_rows(&t), AHEAD); /* of the other table */
        release_pins(&t, ticket);
        await_pinned(&t, 0);
        pushing_stop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_a_prefetch_of_an_array_takes_no_pins_of_others),
        T(test_a_move_waits_for_pins_and_takes_no_new_ones),
        T(test_a_move_given_up_while_it_waits_leaves_the_pins),
        T(test_a_dropped_table_takes_its_pins_along),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
