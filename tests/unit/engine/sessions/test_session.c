/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a session works on any channel, and has one of the lanes as its home. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/access/rights.h"
#include "daemon/engine/sessions/session.h"
#include "tests/unit/engine/sessions/buffer_channel.h"

static void test_sessions_are_spread_over_the_lanes(void **state)
{
    struct buffer_channel *const buffer = buffer_channel_new(64, 1);

    (void)state;
    for (uint64_t id = 0; id < 8; id++) {
        struct session *session = NULL;
        struct err_msg msg = { { 0 } };

        assert_int_equal(session_new(id, &buffer->base.channel, 4, &session, &msg), EMBTIER_OK);
        assert_int_equal(session->home, id % 4);
        session_free(session);
    }
    buffer_channel_free(buffer);
}

static void test_an_answer_frees_its_slot_and_reaches_the_client(void **state)
{
    struct buffer_channel *const buffer = buffer_channel_new(64, 4);
    const struct answer answer = {
        .refusal = { .err = EMBTIER_NO_TABLE, .segment = 3, .value = 5, .limit = 7, .field = 9 },
        .hit_rows = 11,
        .ticket = 13,
    };
    struct session *session = NULL;
    struct err_msg msg = { { 0 } };

    (void)state;
    assert_int_equal(session_new(1, &buffer->base.channel, 1, &session, &msg), EMBTIER_OK);
    session->slot_busy[2] = session->slot_busy[3] = 1;
    session_answer(session, 6, &answer);
    assert_int_equal(session->slot_busy[2], 0);
    assert_int_equal(session->slot_busy[3], 1);
    assert_int_equal(buffer->completions[2].sequence, 7);
    assert_int_equal(buffer->completions[2].err, EMBTIER_NO_TABLE);
    assert_int_equal(buffer->completions[2].segment, 3);
    assert_int_equal(buffer->completions[2].value, 5);
    assert_int_equal(buffer->completions[2].limit, 7);
    assert_int_equal(buffer->completions[2].field, 9);
    assert_int_equal(buffer->completions[2].hit_rows, 11);
    assert_int_equal(buffer->completions[2].ticket, 13);
    session_free(session);
    buffer_channel_free(buffer);
}

/* A session of a user that may have @most bytes of requests under way. */
static struct session *limited_session(const struct buffer_channel *buffer, struct rights *rights,
                                       uint64_t most)
{
    struct session *session = NULL;
    struct err_msg msg = { { 0 } };

    assert_non_null(rights);
    rights_limit_bytes(rights, most);
    assert_int_equal(session_new(1, &buffer->base.channel, 1, &session, &msg), EMBTIER_OK);
    session->rights = rights;
    return session;
}

static void test_bytes_are_under_way_until_the_answer(void **state)
{
    struct buffer_channel *const buffer = buffer_channel_new(64, 4);
    struct rights *const rights = calloc(1, sizeof(*rights));
    struct session *const session = limited_session(buffer, rights, 1000);

    (void)state;
    assert_true(session_count(session, 100));
    session_begun(session, 6, true);
    assert_int_equal(rights->bytes, 128);
    assert_false(session_count(session, 900)); /* 960 in lines of 64 */
    assert_true(session_count(session, 800));
    session_begun(session, 7, false); /* it has to wait for memory, and asks again */
    assert_int_equal(rights->bytes, 128);
    assert_false(session_count(session, UINT64_MAX));
    rights_limit_bytes(rights, 0);
    assert_true(rights_take_bytes(rights, UINT64_MAX / 2)); /* a reload took the limit away */
    rights_give_bytes(rights, UINT64_MAX / 2);
    session_answer(session, 7, &(struct answer){ .ticket = 0 });
    assert_int_equal(rights->bytes, 128);
    session_answer(session, 6, &(struct answer){ .ticket = 0 });
    assert_int_equal(rights->bytes, 0);
    session_answer(session, 10, &(struct answer){ .ticket = 0 }); /* the same slot */
    assert_int_equal(rights->bytes, 0);
    session_free(session);
    free(rights);
    buffer_channel_free(buffer);
}

static void test_a_session_that_ends_gives_back_what_was_not_answered(void **state)
{
    struct buffer_channel *const buffer = buffer_channel_new(64, 4);
    struct rights *const rights = calloc(1, sizeof(*rights));
    struct session *const session = limited_session(buffer, rights, 1000);

    (void)state;
    for (uint32_t number = 0; number < 2; number++) {
        assert_true(session_count(session, 64));
        session_begun(session, number, true);
    }
    assert_int_equal(rights->bytes, 128);
    session_free(session);
    assert_int_equal(rights->bytes, 0);
    free(rights);
    buffer_channel_free(buffer);
}

/* An offset and length whose sum wraps must not reach outside the region. */
static void test_a_channel_holds_what_lies_in_its_payload(void **state)
{
    struct buffer_channel *const buffer = buffer_channel_new(192, 1);
    const struct channel *const channel = &buffer->base.channel;

    (void)state;
    assert_true(channel_holds(channel, channel->payload, 192, 8));
    assert_true(channel_holds(channel, channel->region_bytes, 0, 8));
    assert_false(channel_holds(channel, channel->payload, 193, 8));
    assert_false(channel_holds(channel, channel->payload - 8, 8, 8));
    assert_false(channel_holds(channel, channel->payload + 4, 8, 8));
    assert_false(channel_holds(channel, channel->region_bytes + 8, 0, 8));
    assert_false(channel_holds(channel, channel->payload, UINT64_MAX - 63, 8));
    assert_false(channel_holds(channel, UINT64_MAX - 7, 16, 8));
    buffer_channel_free(buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sessions_are_spread_over_the_lanes),
        cmocka_unit_test(test_an_answer_frees_its_slot_and_reaches_the_client),
        cmocka_unit_test(test_a_channel_holds_what_lies_in_its_payload),
        cmocka_unit_test(test_bytes_are_under_way_until_the_answer),
        cmocka_unit_test(test_a_session_that_ends_gives_back_what_was_not_answered),
    };

    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
