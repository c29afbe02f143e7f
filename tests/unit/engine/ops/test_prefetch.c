/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a prefetched row stays in the cache until its batch has trained (MTrainS, section
 * 5.7), whatever other rows are asked for. All pins must come back. */
#include "tests/unit/engine/ops/push_fixture.h"

#define AHEAD 600 /* ids in a prefetch: a user may have two, and three lanes room for far more */

/* Shapes that are pressed. Those with maps have twice the memory to press. */
#define PRESSED_SHAPES BY_BUILD(ARRAY_LEN(shapes), ARRAY_LEN(shapes), 2)

/* Looks up @count rows from @first on. Returns how many of them were cached. */
static uint64_t look_at(struct pushing *t, uint64_t table, uint64_t first, uint32_t count)
{
    const uint32_t number = t->p.client.submitted;
    const struct op_completion *done;

    for (uint32_t i = 0; i < count; i++)
        client_ids(&t->p.client, number)[i] = first + i;
    client_submit(&t->p.client, OP_GET, table, count);
    done = client_wait(&t->p.client, number);
    assert_int_equal(done->err, EMBTIER_OK);
    return done->hit_rows;
}

/* Looks up new rows, @times as many as both tiers of all lanes hold. They are as long as the tested
 * tables' rows. */
static void press(struct pushing *t, uint32_t times)
{
    enum { BATCH = 2000 };
    static uint64_t next;
    const uint64_t tables[] = {
        fixture_table(&t->p.x, "long", EMBTIER_UNBOUNDED, DIM, EMBTIER_OPTIMIZER_ADAM),
        fixture_table(&t->p.x, "short", EMBTIER_UNBOUNDED, DIM, EMBTIER_OPTIMIZER_ADAGRAD),
    };
    const uint64_t slabs = (uint64_t)t->p.x.lane_count * t->p.x.tier_count * t->p.x.slabs_per_lane;
    const uint64_t row_bytes = (3 + 2) * DIM * sizeof(float); /* a row of each table */

    for (uint64_t rows = 0; rows * row_bytes < times * slabs * ARENA_SLAB_BYTES;
         rows += BATCH, next += BATCH)
        for (uint32_t n = 0; n < 2; n++)
            look_at(t, tables[n], next, BATCH);
}

static void assert_refused(struct pushing *t, enum embtier_err err, uint32_t segment)
{
    const struct op_completion *const done = submit_and_wait(t);

    assert_int_equal(done->err, err);
    assert_int_equal(done->segment, segment);
    assert_int_equal(done->ticket, 0);
}

/* Builds that lack a check of daemon/engine/ops/segment_copies.c (meson.build) must fail this. */
static void test_what_is_out_of_place_is_refused_and_pins_nothing(void **state)
{
    struct pushing t;
    uint64_t end;

    pushing_start(&t, *state, &shapes[1]);
    end = t.p.client.session->channel.region_bytes;
    lay_prefetch_out(&t, 0, 10);
    next_submission(&t)->segment_count = OP_POOL_SEGMENTS_MAX + 1;
    assert_refused(&t, EMBTIER_TOO_LARGE, UINT32_MAX);
    lay_prefetch_out(&t, 0, 10);
    next_submission(&t)->segments_offset = end - sizeof(struct op_push_segment);
    assert_refused(&t, EMBTIER_OFFSET_RANGE, UINT32_MAX);
    lay_prefetch_out(&t, 0, 10)[1].dim = DIM;
    assert_refused(&t, EMBTIER_INVALID, 1);
    lay_prefetch_out(&t, 0, 10)[1].count = 1 << 20;
    assert_refused(&t, EMBTIER_TOO_LARGE, UINT32_MAX);
    lay_prefetch_out(&t, 0, 10)[1].table += UINT64_C(1) << 32;
    assert_refused(&t, EMBTIER_NO_TABLE, 1);
    lay_prefetch_out(&t, 0, 10)[1].ids_offset = end - 19 * sizeof(uint64_t);
    assert_refused(&t, EMBTIER_OFFSET_RANGE, 1);
    await_pinned(&t, 0);
    release_pins(&t, prefetch(&t, 0, 10)->ticket); /* service goes on */
    await_pinned(&t, 0);
    pushing_stop(&t);
}

static void test_prefetched_rows_stay_until_they_are_released(void **state)
{
    for (size_t s = SHAPES_FIRST; s < PRESSED_SHAPES; s += SHAPES_STEP) {
        struct pushing t;
        uint64_t first, second;

        pushing_start(&t, *state, &shapes[s]);
        press(&t, 2);
        first = prefetch(&t, 0, AHEAD)->ticket;
        second = prefetch(&t, AHEAD / 2, AHEAD)->ticket; /* overlaps half of the first */
        assert_true(first != 0 && second != 0 && first != second);
        assert_int_equal(pinned_rows(&t), TABLES * (AHEAD + AHEAD / 2));
        press(&t, 4);
        for (uint32_t n = 0; n < TABLES; n++)
            assert_int_equal(look_at(&t, t.tables[n].handle, 0, AHEAD + AHEAD / 2),
                             AHEAD + AHEAD / 2);
        release_pins(&t, first);
        await_pinned(&t, TABLES * AHEAD);
        press(&t, 2);
        for (uint32_t n = 0; n < TABLES; n++)
            assert_int_equal(look_at(&t, t.tables[n].handle, AHEAD / 2, AHEAD), AHEAD);
        release_pins(&t, second);
        await_pinned(&t, 0);
        press(&t, 2);
        assert_true(look_at(&t, t.tables[0].handle, 0, AHEAD) < AHEAD / 2);
        pushing_stop(&t);
    }
}

static void test_a_push_releases_the_prefetch_it_names(void **state)
{
    for (size_t s = SHAPES_FIRST; s < PRESSED_SHAPES; s += SHAPES_STEP) {
        struct pushing t;

        pushing_start(&t, *state, &shapes[s]);
        for (uint32_t round = 0; round < rounds_of(12); round++) {
            struct op_pool_segment looked_up[SEGMENTS], *segments;
            const uint64_t ahead = prefetch(&t, 0, 500)->ticket;
            uint64_t ticket;

            make_bags(&t, &t.p.bags[0], 0, false, 500, 200);
            make_bags(&t, &t.p.bags[1], 1, false, 500, 200);
            press(&t, 2);
            ticket = look_up(&t, t.p.bags, &segments);
            memcpy(looked_up, segments, sizeof(looked_up));
            lay_push_out(&t, t.p.bags, looked_up, ticket);
            next_submission(&t)->prefetch = ahead;
            assert_push_ends_with(&t, EMBTIER_OK, UINT32_MAX);
            push_to_shadows(&t, t.p.bags, looked_up, 0.01);
            await_pinned(&t, 0);
            *next_submission(&t) = (struct op_submission){ .op = OP_RELEASE, .ticket = ahead };
            assert_push_ends_with(&t, EMBTIER_TICKET_USED, UINT32_MAX);
        }
        assert_rows(&t);
        pushing_stop(&t);
    }
}

static void test_pins_of_the_dead_the_late_and_the_greedy_come_back(void **state)
{
    for (size_t s = SHAPES_FIRST; s < PRESSED_SHAPES; s += SHAPES_STEP) {
        struct lanes_shape shape = shapes[s];
        const struct op_completion *done;
        struct pushing t;
        uint64_t until;

        shape.ticket_ns = UINT64_C(300) * 1000 * 1000;
        pushing_start(&t, *state, &shape);
        assert_int_equal(prefetch(&t, 0, AHEAD)->err, EMBTIER_OK);
        client_detach(&t.p.client);
        assert_int_equal(pinned_rows(&t), 0);
        t.p.client = client_attach(&t.p.x, SLOT_BYTES);
        until = now_ns() + FIXTURE_WAIT_NS;
        do { /* the pins may expire before they are looked at */
            assert_true(now_ns() < until);
            assert_int_equal(prefetch(&t, 0, AHEAD)->err, EMBTIER_OK);
        } while (pinned_rows(&t) != TABLES * AHEAD);
        await_pinned(&t, 0); /* the client did not release them in time */
        done = prefetch(&t, 0, TABLE_ROWS);
        assert_int_equal(done->err, EMBTIER_PINS_FULL);
        assert_int_equal(done->ticket, 0);
        assert_int_equal(pinned_rows(&t), 0);
        press(&t, 2); /* service goes on */
        assert_int_equal(prefetch(&t, 100, AHEAD)->err, EMBTIER_OK);
        assert_rows(&t);
        pushing_stop(&t);
    }
}

/* Prefetches different rows until refused. Returns how many rows of each table were granted. */
static uint32_t prefetch_all(struct pushing *t, uint32_t chunk, uint64_t *tickets, uint32_t *ret_n)
{
    const struct op_completion *done;

    for (*ret_n = 0;; ++*ret_n) {
        assert_in_range(*ret_n, 0, TABLE_ROWS / chunk - 1); /* must be refused before */
        done = prefetch(t, *ret_n * chunk, chunk);
        if (done->err != EMBTIER_OK)
            break;
        tickets[*ret_n] = done->ticket;
    }
    assert_int_equal(done->err, EMBTIER_PINS_FULL);
    assert_int_equal(done->segment, UINT32_MAX); /* no row is named */
    return *ret_n * chunk;
}

static void test_a_user_s_prefetches_leave_room_to_others(void **state)
{
    /* Less than the cache can pin, wherever the rows lie in it. */
    enum { CHUNK = 100, OTHERS_UID = FIXTURE_UID + 1, ALL_BYTES = 1 << 20 };

    for (size_t s = SHAPES_FIRST; s < ARRAY_LEN(shapes); s += SHAPES_STEP) {
        static uint64_t tickets[TABLE_ROWS / CHUNK];
        const struct op_completion *done;
        struct pushing t;
        struct client one, other;
        struct account *account;
        uint64_t part, row_bytes = 0;
        uint32_t count, rows;

        pushing_start(&t, *state, &shapes[s]);
        accounts_limit(t.p.x.accounts, ACCOUNT_PINNED_BYTES, ALL_BYTES, 0);
        for (uint32_t n = 0; n < TABLES; n++)
            row_bytes += t.tables[n].numbers * sizeof(float);
        rows = prefetch_all(&t, CHUNK, tickets, &count);
        part = account_has(t.p.x.account, ACCOUNT_PINNED_BYTES);
        assert_int_equal(part, rows * row_bytes); /* equal ids are one row */
        assert_in_range(part, ALL_BYTES / 4 * 3 - CHUNK * row_bytes, ALL_BYTES / 4 * 3);
        one = t.p.client;
        other = client_attach(&t.p.x, SLOT_BYTES);
        account = account_open(t.p.x.accounts, OTHERS_UID);
        other.session->account = other.session->ticket_share.account = account;
        t.p.client = other;
        assert_int_equal(prefetch(&t, 0, 1)->err, EMBTIER_OK);
        assert_int_equal(prefetch(&t, 0, CHUNK)->err, EMBTIER_OK);
        client_detach(&t.p.client);
        assert_int_equal(account_has(account, ACCOUNT_PINNED_BYTES), 0);
        account_close(account);
        t.p.client = one;
        for (uint32_t i = 0; i < count; i++)
            release_pins(&t, tickets[i]);
        /* The next prefetches wait for the released pins. */
        assert_int_equal(prefetch_all(&t, CHUNK, tickets, &count), rows);
        for (uint32_t i = 0; i < count; i++)
            release_pins(&t, tickets[i]);
        /* They also wait for a release that has not been answered. */
        for (uint32_t round = 0; round < 50; round++) {
            const uint64_t ticket = prefetch(&t, 0, rows)->ticket;

            assert_true(ticket != 0);
            *next_submission(&t) = (struct op_submission){ .op = OP_RELEASE, .ticket = ticket };
            client_publish(&t.p.client);
            done = prefetch(&t, rows, CHUNK);
            assert_int_equal(done->err, EMBTIER_OK);
            release_pins(&t, done->ticket);
        }
        await_pinned(&t, 0);
        pushing_stop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_what_is_out_of_place_is_refused_and_pins_nothing),
        T(test_prefetched_rows_stay_until_they_are_released),
        T(test_a_push_releases_the_prefetch_it_names),
        T(test_pins_of_the_dead_the_late_and_the_greedy_come_back),
        T(test_a_user_s_prefetches_leave_room_to_others),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
