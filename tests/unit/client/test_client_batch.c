/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that batches have the rows and errors that the server gave, in any order. When the server
 * ends they must learn it, and stay usable with the next one. */
#include "tests/unit/client/client_fixture.h"

#include <math.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/connection.h"

#define SECOND UINT64_C(1000000000)
#define TRIES  20 /* a busy machine may need several to take less than a second */

static struct embtier_batch *new_batch(struct fixture *fixture, uint32_t count, uint64_t first_id)
{
    const struct embtier_part part = { fixture->users, count };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new(fixture->server, &part, 1, &batch), EMBTIER_OK);
    for (uint32_t i = 0; i < count; i++)
        embtier_batch_ids(batch, 0)[i] = first_id + i;
    return batch;
}

static void assert_rows(struct embtier_batch *batch, uint32_t part, uint64_t first_id,
                        size_t row_bytes)
{
    const uint8_t *rows = embtier_batch_rows(batch, part);

    for (uint32_t i = 0; i < embtier_batch_count(batch, part); i++)
        for (size_t b = 0; b < row_bytes; b++)
            assert_int_equal(rows[i * row_bytes + b], (first_id + i) & 0xff);
}

/* ---- Batches ---- */

static void test_get_fills_the_rows_of_every_part(void **state)
{
    struct fixture *fixture = *state;
    const struct embtier_part parts[] = {
        { fixture->users, 3 }, { fixture->words, 5 }, { fixture->users, 0 }, { fixture->users, 1 }
    };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new(fixture->server, parts, ARRAY_LEN(parts), &batch),
                     EMBTIER_OK);
    for (uint32_t p = 0; p < ARRAY_LEN(parts); p++) {
        assert_int_equal((uintptr_t)embtier_batch_ids(batch, p) % 8, 0);
        assert_int_equal((uintptr_t)embtier_batch_rows(batch, p) % 64, 0);
        for (uint32_t i = 0; i < parts[p].count; i++)
            embtier_batch_ids(batch, p)[i] = 10 * p + i;
    }
    for (int round = 0; round < 100; round++) {
        assert_int_equal(embtier_get(batch), EMBTIER_OK);
        assert_int_equal(embtier_batch_hit_rows(batch), 9);
    }
    assert_rows(batch, 0, 0, 16);
    assert_rows(batch, 1, 10, 4);
    assert_rows(batch, 3, 30, 16);
    assert_true(fixture->fake.doorbells >= 1);
    assert_int_equal(embtier_batch_free(batch), EMBTIER_OK);
}

/* Makes a batch in which "words" has an optimizer with state. */
static struct embtier_batch *new_batch_with_state(struct fixture *fixture, uint32_t count)
{
    struct embtier_part parts[] = { { NULL, count }, { fixture->users, count } };
    struct embtier_batch *batch = NULL;

    fixture->fake.words_optimizer = EMBTIER_OPTIMIZER_ADAM;
    assert_int_equal(embtier_table_open(fixture->server, "words", &parts[0].table), EMBTIER_OK);
    assert_int_equal(embtier_batch_new_with_state(fixture->server, parts, 2, &batch), EMBTIER_OK);
    for (uint32_t p = 0; p < 2; p++)
        for (uint32_t i = 0; i < count; i++)
            embtier_batch_ids(batch, p)[i] = 10 * p + i + 1;
    return batch;
}

static void test_a_batch_with_state_has_whole_rows(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *const batch = new_batch_with_state(fixture, 5);
    struct embtier_batch *const plain = new_batch(fixture, 1, 0);

    assert_int_equal(embtier_get(batch), EMBTIER_OK);
    assert_int_equal(embtier_batch_row_bytes(batch, 0), 4 + 16);
    assert_int_equal(embtier_batch_row_bytes(batch, 1), 16);
    assert_rows(batch, 0, 1, 20);
    assert_rows(batch, 1, 11, 16);
    assert_ptr_equal(embtier_batch_state(batch, 0), (char *)embtier_batch_rows(batch, 0) + 4);
    assert_null(embtier_batch_state(batch, 1)); /* its optimizer has no state */
    assert_null(embtier_batch_state(batch, 2));
    assert_int_equal(embtier_batch_row_bytes(batch, 2), 0);
    assert_null(embtier_batch_state(plain, 0));
    assert_int_equal(embtier_batch_row_bytes(plain, 0), 16);
    assert_int_equal(embtier_submit(batch, EMBTIER_GET_POOLED), EMBTIER_INVALID);
    /* The next part begins behind all of the state. */
    assert_true((char *)embtier_batch_rows(batch, 1) - (char *)embtier_batch_rows(batch, 0) >=
                5 * 20);
}

static void test_a_batch_of_nothing_succeeds(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new(fixture->server, NULL, 0, &batch), EMBTIER_OK);
    assert_int_equal(embtier_get(batch), EMBTIER_OK);
    assert_int_equal(embtier_batch_free(batch), EMBTIER_OK);
    batch = new_batch(fixture, 0, 0);
    assert_int_equal(embtier_set(batch), EMBTIER_OK);
    assert_int_equal(embtier_batch_free(batch), EMBTIER_OK);
}

static void test_a_full_arena_says_what_is_needed_and_what_is_free(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batches[80];
    struct embtier_batch *more = NULL;
    const struct embtier_part part = { fixture->users, 1000 };
    size_t count = 0;
    enum embtier_err err;

    while ((err = embtier_batch_new(fixture->server, &part, 1, &batches[count])) == EMBTIER_OK)
        assert_true(++count < ARRAY_LEN(batches));
    assert_int_equal(err, EMBTIER_ARENA_FULL);
    assert_non_null(strstr(embtier_message(fixture->server), "batch needs 24"));
    assert_int_equal(count, (1 << 20) / 24064);
    /* Freed in any order, the room is one piece again. */
    for (size_t i = 0; i < count; i += 2)
        assert_int_equal(embtier_batch_free(batches[i]), EMBTIER_OK);
    for (size_t i = 1; i < count; i += 2)
        assert_int_equal(embtier_batch_free(batches[i]), EMBTIER_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(embtier_batch_new(fixture->server, &part, 1, &batches[i]), EMBTIER_OK);
    assert_int_equal(embtier_batch_new(fixture->server, &part, 1, &more), EMBTIER_ARENA_FULL);
}

static void test_a_batch_over_the_server_s_limit_is_refused_before_it_is_made(void **state)
{
    struct fixture *fixture = *state;
    const struct embtier_part part = { fixture->users, 1001 };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new(fixture->server, &part, 1, &batch), EMBTIER_TOO_LARGE);
    assert_string_equal(embtier_message(fixture->server),
                        "batch of 1001 ids is over the server's limit of 1000 "
                        "(socket.max_batch_rows)");
}

static void test_an_error_is_told_with_table_part_and_numbers(void **state)
{
    struct fixture *fixture = *state;
    const struct embtier_part parts[] = { { fixture->words, 1 }, { fixture->users, 1 } };
    const struct {
        enum embtier_err err;
        uint32_t segment;
        const char *message;
    } cases[] = {
        { EMBTIER_ID_RANGE, 1,
          "row id 57 is out of range: table 'users' has 10 rows; allowed: 0 to 9 (part 1)" },
        { EMBTIER_OFFSET_RANGE, 1,
          "offset 57 is past the arena's end at 10 (part 1, table 'users')" },
        { EMBTIER_TOO_LARGE, UINT32_MAX, "batch of 57 ids is over the server's limit of 10" },
        { EMBTIER_DROPPED, 0, "table 'words' was dropped (part 0)" },
        { EMBTIER_NO_TABLE, 0,
          "no such table: 'words' was dropped or created again since it was opened; open it again "
          "(part 0)" },
        { EMBTIER_NO_SPACE, UINT32_MAX,
          "no space left on the server's disk: drop tables, delete checkpoints, or free space; the "
          "server's log names the directory" },
        { EMBTIER_NO_SPACE, 1,
          "no space left on the server's disk: the update may take 1 KiB, and there is room for 0 "
          "KiB (part 1, table 'users'): drop tables, delete checkpoints, or free space; the "
          "server's log names the directory" },
        { EMBTIER_IO, 7, "input/output error" },
        { (enum embtier_err)999, 0, "unknown error (part 0, table 'words')" },
    };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new(fixture->server, parts, 2, &batch), EMBTIER_OK);
    fixture->fake.err_value = 57;
    fixture->fake.err_limit = 10;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fixture->fake.err_segment = cases[i].segment;
        fixture->fake.err = cases[i].err;
        assert_int_equal(embtier_get(batch), cases[i].err);
        assert_string_equal(embtier_message(fixture->server), cases[i].message);
    }
    fixture->fake.err = 0;
    assert_int_equal(embtier_get(batch), EMBTIER_OK);
}

/* If the memory for requests is small, it allows less than the server's limit of rows. */
static void test_a_batch_that_the_memory_for_requests_has_no_room_for_is_told_so(void **state)
{
    struct fixture *fixture = *state;
    const struct embtier_part part = { fixture->users, 900 };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new(fixture->server, &part, 1, &batch), EMBTIER_OK);
    fixture->fake.err = EMBTIER_TOO_LARGE;
    fixture->fake.err_segment = UINT32_MAX;
    fixture->fake.err_value = 900;
    fixture->fake.err_limit = 300;
    assert_int_equal(embtier_get(batch), EMBTIER_TOO_LARGE);
    assert_string_equal(embtier_message(fixture->server),
                        "batch of 900 ids needs more memory than lanes.request_bytes gives one "
                        "request; use at most 300 ids, or raise the server's lanes.request_bytes "
                        "to 3.01 times its value, or times 16 MiB if it is less");
    fixture->fake.err_limit = 0;
    assert_int_equal(embtier_get(batch), EMBTIER_TOO_LARGE);
    assert_string_equal(
        embtier_message(fixture->server),
        "batch of 900 ids in 1 part needs more memory than lanes.request_bytes gives one request; "
        "use fewer ids and parts, or raise the server's lanes.request_bytes");
    fixture->fake.err_limit = 1000;
    assert_int_equal(embtier_get(batch), EMBTIER_TOO_LARGE);
    assert_string_equal(embtier_message(fixture->server),
                        "batch of 900 ids is over the server's limit of 1000 "
                        "(socket.max_batch_rows)");
    fixture->fake.err = 0;
}

/* ---- Requests in flight ---- */

static void test_a_batch_in_flight_is_left_alone(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_batch(fixture, 2, 5);

    assert_int_equal(embtier_poll(batch), EMBTIER_INVALID);
    fixture->fake.hold = true;
    assert_int_equal(embtier_submit(batch, EMBTIER_GET), EMBTIER_OK);
    assert_int_equal(embtier_poll(batch), EMBTIER_AGAIN);
    assert_int_equal(embtier_submit(batch, EMBTIER_GET), EMBTIER_BUSY);
    assert_int_equal(embtier_batch_free(batch), EMBTIER_BUSY);
    assert_int_equal(embtier_batch_set_count(batch, 0, 1), EMBTIER_BUSY);
    assert_int_equal(embtier_wait(batch, 30), EMBTIER_TIMEOUT);
    fixture->fake.hold = false;
    assert_int_equal(embtier_wait(batch, UINT32_MAX), EMBTIER_OK);
    assert_int_equal(embtier_poll(batch), EMBTIER_OK); /* polling again changes nothing */
    assert_rows(batch, 0, 5, 16);
    assert_int_equal(embtier_batch_set_count(batch, 0, 3), EMBTIER_TOO_LARGE);
    assert_int_equal(embtier_batch_set_count(batch, 0, 1), EMBTIER_OK);
    assert_int_equal(embtier_get(batch), EMBTIER_OK);
    assert_int_equal(embtier_batch_hit_rows(batch), 1);
}

static void test_slots_are_used_in_turn_and_sync_calls_wait_for_theirs(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batches[5];

    for (size_t i = 0; i < ARRAY_LEN(batches); i++)
        batches[i] = new_batch(fixture, 1, i);
    fixture->fake.hold = true;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(embtier_submit(batches[i], EMBTIER_GET), EMBTIER_OK);
    assert_int_equal(embtier_submit(batches[4], EMBTIER_GET), EMBTIER_BUSY);
    fixture->fake.hold = false;
    assert_int_equal(embtier_get(batches[4]), EMBTIER_OK);
    assert_rows(batches[4], 0, 4, 16);
    /* The batch's slot came from the first batch, whose result is still there. */
    assert_int_equal(embtier_submit(batches[0], EMBTIER_GET), EMBTIER_BUSY);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(embtier_wait(batches[i], UINT32_MAX), EMBTIER_OK);
    assert_int_equal(embtier_submit(batches[0], EMBTIER_GET), EMBTIER_OK);
    assert_int_equal(embtier_wait(batches[0], UINT32_MAX), EMBTIER_OK);
}

static void test_answers_in_any_order_find_their_batches(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batches[4];

    for (size_t i = 0; i < ARRAY_LEN(batches); i++)
        batches[i] = new_batch(fixture, 3, 10 * i);
    fixture->fake.reverse = true;
    for (int round = 0; round < 50; round++) {
        const uint32_t taken = fixture->fake.taken;

        fixture->fake.hold = true;
        for (size_t i = 0; i < ARRAY_LEN(batches); i++)
            assert_int_equal(embtier_submit(batches[i], EMBTIER_GET), EMBTIER_OK);
        wait_until_taken(fixture, taken + 4);
        fixture->fake.hold = false;
        for (size_t i = 0; i < ARRAY_LEN(batches); i++) {
            const size_t at = (i + (size_t)round) % ARRAY_LEN(batches);

            assert_int_equal(embtier_wait(batches[at], UINT32_MAX), EMBTIER_OK);
            assert_rows(batches[at], 0, 10 * at, 16);
        }
    }
}

/* ---- The end of a server ---- */

/* Ends the server. @done was answered before, unseen; @pending were not. Returns how long these
 * took to end. */
static uint64_t end_with(struct fixture *fixture, struct embtier_batch *done,
                         struct embtier_batch *const *pending)
{
    const uint32_t answered = fixture->fake.answered;
    uint64_t begin_ns, took_ns;

    fixture->fake.hold = false;
    assert_int_equal(embtier_submit(done, EMBTIER_GET), EMBTIER_OK);
    while (fixture->fake.answered == answered)
        usleep(200);
    fixture->fake.hold = true;
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(embtier_submit(pending[i], EMBTIER_GET), EMBTIER_OK);
    wait_until_taken(fixture, 3);
    begin_ns = now_ns();
    fixture->fake.drop_client = true;
    assert_int_equal(embtier_wait(pending[0], UINT32_MAX), EMBTIER_DISCONNECTED);
    took_ns = now_ns() - begin_ns;
    assert_string_equal(embtier_message(fixture->server),
                        "connection to embtierd lost: the server closed the connection");
    assert_int_equal(embtier_poll(pending[1]), EMBTIER_DISCONNECTED);
    assert_int_equal(embtier_poll(done), EMBTIER_OK);
    return took_ns;
}

static void test_pending_requests_end_within_a_second_when_the_server_dies(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *done = new_batch(fixture, 1, 1);
    struct embtier_batch *pending[2] = { new_batch(fixture, 1, 2), new_batch(fixture, 1, 3) };

    for (uint32_t tries = 1; end_with(fixture, done, pending) >= SECOND; tries++) {
        assert_true(tries < TRIES);
        assert_int_equal(embtier_reconnect(fixture->server), EMBTIER_OK);
    }
    assert_int_equal(embtier_submit(done, EMBTIER_GET), EMBTIER_DISCONNECTED);
    assert_rows(done, 0, 1, 16); /* still readable */
    assert_int_equal(embtier_batch_free(pending[0]), EMBTIER_OK);
}

static void test_polling_notices_a_dead_server_too(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_batch(fixture, 1, 1);
    uint64_t begin_ns;
    enum embtier_err err;

    fixture->fake.hold = true;
    assert_int_equal(embtier_submit(batch, EMBTIER_GET), EMBTIER_OK);
    wait_until_taken(fixture, 1);
    fixture->fake.drop_client = true;
    begin_ns = now_ns();
    while ((err = embtier_poll(batch)) == EMBTIER_AGAIN)
        assert_true(now_ns() - begin_ns < 60 * SECOND);
    assert_int_equal(err, EMBTIER_DISCONNECTED);
}

static void test_a_server_s_last_words_are_passed_on(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_batch(fixture, 1, 1);
    struct embtier_table *table = NULL;

    fixture->fake.hold = true;
    assert_int_equal(embtier_submit(batch, EMBTIER_GET), EMBTIER_OK);
    fixture->fake.farewell = EMBTIER_SHUTDOWN;
    assert_int_equal(embtier_wait(batch, UINT32_MAX), EMBTIER_DISCONNECTED);
    assert_string_equal(embtier_message(fixture->server),
                        "connection to embtierd lost: the fake server has had enough");
    assert_int_equal(embtier_table_open(fixture->server, "users", &table), EMBTIER_DISCONNECTED);
}

/* A session without requests learns of its end by a call. */
static void test_a_call_meets_the_last_words(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_table *table = NULL;
    struct embtier *server = fixture->server;
    const uint64_t begin_ns = now_ns();

    fixture->fake.farewell = EMBTIER_SHUTDOWN;
    while (fixture->fake.farewell != 0)
        assert_true(now_ns() - begin_ns < 60 * SECOND);
    assert_int_equal(embtier_table_open(server, "users", &table), EMBTIER_DISCONNECTED);
    assert_string_equal(embtier_message(server),
                        "connection to embtierd lost: the fake server has had enough");
    assert_int_equal(embtier_table_open(server, "users", &table), EMBTIER_DISCONNECTED);
}

static void test_a_call_to_a_dead_server_raises_no_signal(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_status *status = NULL;

    fake_server_stop(&fixture->fake);
    assert_int_equal(embtier_status(fixture->server, &status), EMBTIER_DISCONNECTED);
    assert_int_equal(embtier_status(fixture->server, &status), EMBTIER_DISCONNECTED);
    assert_int_equal(embtier_reconnect(fixture->server), EMBTIER_UNREACHABLE);
}

static void test_reconnecting_keeps_batches_where_they_are(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *a = new_batch(fixture, 3, 1);
    struct embtier_batch *b = new_batch(fixture, 2, 6);
    uint64_t *const ids = embtier_batch_ids(b, 0);
    uint8_t *const rows = embtier_batch_rows(b, 0);

    assert_int_equal(embtier_reconnect(fixture->server), EMBTIER_OK); /* nothing to do */
    for (int round = 0; round < 3; round++) {
        assert_int_equal(embtier_get(b), EMBTIER_OK);
        memset(rows, 0xee, 32);
        ids[1] = 40 + (uint64_t)round;
        fixture->fake.hold = true;
        assert_int_equal(embtier_submit(a, EMBTIER_GET), EMBTIER_OK);
        fake_server_stop(&fixture->fake);
        assert_int_equal(embtier_wait(a, UINT32_MAX), EMBTIER_DISCONNECTED);
        assert_int_equal(embtier_reconnect(fixture->server), EMBTIER_UNREACHABLE);
        fixture->fake.hold = false;
        fake_server_start(&fixture->fake);
        assert_int_equal(embtier_reconnect(fixture->server), EMBTIER_OK);
        assert_ptr_equal(embtier_batch_ids(b, 0), ids);
        assert_ptr_equal(embtier_batch_rows(b, 0), rows);
        assert_int_equal(ids[0], 6);
        assert_int_equal(ids[1], 40 + round);
        assert_int_equal(rows[31], 0xee);
        assert_int_equal(embtier_get(b), EMBTIER_OK);
        assert_int_equal(rows[16], 40 + round);
        assert_int_equal(embtier_get(a), EMBTIER_OK);
        assert_rows(a, 0, 1, 16);
    }
}

static void test_a_table_that_is_gone_does_not_keep_others_from_coming_back(void **state)
{
    struct fixture *fixture = *state;
    const struct embtier_part part = { fixture->words, 1 };
    struct embtier_batch *users = new_batch(fixture, 1, 1);
    struct embtier_batch *words = NULL;

    assert_int_equal(embtier_batch_new(fixture->server, &part, 1, &words), EMBTIER_OK);
    drop_client(fixture);
    fixture->fake.words_gone = true;
    assert_int_equal(embtier_reconnect(fixture->server), EMBTIER_OK);
    assert_int_equal(embtier_get(users), EMBTIER_OK);
    assert_int_equal(embtier_get(words), EMBTIER_NO_TABLE);
    assert_non_null(strstr(embtier_message(fixture->server), "'words'"));
}

static void test_a_table_of_another_shape_stops_the_reconnect(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_batch(fixture, 1, 1);

    drop_client(fixture);
    fixture->fake.users_dim = 5;
    assert_int_equal(embtier_reconnect(fixture->server), EMBTIER_MISMATCH);
    assert_int_equal(embtier_get(batch), EMBTIER_DISCONNECTED);
    fixture->fake.users_dim = 4;
    assert_int_equal(embtier_reconnect(fixture->server), EMBTIER_OK);
    assert_int_equal(embtier_get(batch), EMBTIER_OK);
}

static void reconnect_with_optimizer(struct fixture *fixture, enum embtier_optimizer optimizer,
                                     enum embtier_err expected)
{
    drop_client(fixture);
    fixture->fake.words_optimizer = optimizer;
    assert_int_equal(embtier_reconnect(fixture->server), expected);
}

/* The server would write rows longer than the batch has room for. */
static void test_a_table_of_another_state_stops_the_reconnect_if_a_batch_has_it(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = NULL;

    reconnect_with_optimizer(fixture, EMBTIER_OPTIMIZER_ADAGRAD, EMBTIER_OK);
    batch = new_batch_with_state(fixture, 3);
    reconnect_with_optimizer(fixture, EMBTIER_OPTIMIZER_ADAGRAD, EMBTIER_MISMATCH);
    assert_non_null(strstr(embtier_message(fixture->server), "a different optimizer"));
    fixture->fake.words_optimizer = EMBTIER_OPTIMIZER_ADAM;
    assert_int_equal(embtier_reconnect(fixture->server), EMBTIER_OK);
    assert_int_equal(embtier_get(batch), EMBTIER_OK);
    assert_rows(batch, 0, 1, 20);
    assert_int_equal(embtier_batch_free(batch), EMBTIER_OK);
    reconnect_with_optimizer(fixture, EMBTIER_OPTIMIZER_NONE, EMBTIER_OK);
}

static void test_a_closed_table_lives_on_for_its_batches(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_batch(fixture, 1, 9);

    embtier_table_close(fixture->users);
    assert_int_equal(embtier_get(batch), EMBTIER_OK);
    assert_rows(batch, 0, 9, 16);
    assert_int_equal(embtier_batch_free(batch), EMBTIER_OK);
    embtier_table_close(fixture->words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
        WITH_SERVER(test_get_fills_the_rows_of_every_part),
        WITH_SERVER(test_a_batch_with_state_has_whole_rows),
        WITH_SERVER(test_a_batch_of_nothing_succeeds),
        WITH_SERVER(test_a_full_arena_says_what_is_needed_and_what_is_free),
        WITH_SERVER(test_a_batch_over_the_server_s_limit_is_refused_before_it_is_made),
        WITH_SERVER(test_an_error_is_told_with_table_part_and_numbers),
        WITH_SERVER(test_a_batch_that_the_memory_for_requests_has_no_room_for_is_told_so),
        WITH_SERVER(test_a_batch_in_flight_is_left_alone),
        WITH_SERVER(test_slots_are_used_in_turn_and_sync_calls_wait_for_theirs),
        WITH_SERVER(test_answers_in_any_order_find_their_batches),
        WITH_SERVER(test_pending_requests_end_within_a_second_when_the_server_dies),
        WITH_SERVER(test_polling_notices_a_dead_server_too),
        WITH_SERVER(test_a_server_s_last_words_are_passed_on),
        WITH_SERVER(test_a_call_meets_the_last_words),
        WITH_SERVER(test_a_call_to_a_dead_server_raises_no_signal),
        WITH_SERVER(test_reconnecting_keeps_batches_where_they_are),
        WITH_SERVER(test_a_table_that_is_gone_does_not_keep_others_from_coming_back),
        WITH_SERVER(test_a_table_of_another_shape_stops_the_reconnect),
        WITH_SERVER(test_a_table_of_another_state_stops_the_reconnect_if_a_batch_has_it),
        WITH_SERVER(test_a_closed_table_lives_on_for_its_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
