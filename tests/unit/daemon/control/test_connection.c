/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that answers that a client does not read, and requests that it sends bit by bit, count as
 * its user's and are limited. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/control/connection.h"
#include "daemon/engine/memory/accounts.h"
#include "proto/control.pb-c.h"

#define ALL_BYTES   (4 * MIB)
#define REPLY_BYTES (64 * KIB)
#define MANY        256

struct pair {
    struct connection *connection;
    int client;
};

static struct accounts *make_accounts(void)
{
    struct accounts *accounts = NULL;

    assert_int_equal(accounts_new(&accounts, NULL), EMBTIER_OK);
    accounts_limit(accounts, ACCOUNT_SESSIONS, MANY, MANY);
    accounts_limit(accounts, ACCOUNT_ANSWER_BYTES, ALL_BYTES, 0);
    return accounts;
}

static struct pair connect_one(struct accounts *accounts)
{
    struct pair pair = { 0 };
    int fds[2];
    uid_t uid;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(connection_new(fds[0], NULL, accounts, &pair.connection, &uid), EMBTIER_OK);
    assert_int_equal(uid, geteuid());
    pair.client = fds[1];
    return pair;
}

static void end(struct pair *pair)
{
    connection_free(pair->connection);
    close(pair->client);
}

static enum embtier_err answer(struct connection *connection, struct err_msg *msg)
{
    static char text[REPLY_BYTES];
    Embtier__Metric metric = EMBTIER__METRIC__INIT;
    Embtier__Metric *metrics[] = { &metric };
    Embtier__StatusReply status = EMBTIER__STATUS_REPLY__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    memset(text, 'x', sizeof(text) - 1);
    metric.help = text;
    status.n_metrics = 1;
    status.metrics = metrics;
    reply.id = 1;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_STATUS;
    reply.status = &status;
    return connection_reply(connection, &reply, NULL, 0, msg);
}

static void test_unread_answers_end_at_the_users_part(void **state)
{
    struct accounts *const accounts = make_accounts();
    struct account *const account = account_open(accounts, geteuid());
    struct pair pairs[MANY];
    enum embtier_err err = EMBTIER_OK;
    struct err_msg msg = { { 0 } };
    uint32_t count = 0;

    (void)state;
    while (count < MANY && err == EMBTIER_OK) {
        const uint64_t before = account_has(account, ACCOUNT_ANSWER_BYTES);

        pairs[count] = connect_one(accounts);
        err = answer(pairs[count++].connection, &msg);
        if (err == EMBTIER_OK) /* nearly all of it, since the system keeps little */
            assert_true(account_has(account, ACCOUNT_ANSWER_BYTES) - before >= REPLY_BYTES / 4);
        assert_true(account_has(account, ACCOUNT_ANSWER_BYTES) <= ALL_BYTES / 4 * 3);
    }
    assert_int_equal(err, EMBTIER_BUSY);
    assert_non_null(strstr(msg.text, "buffered messages"));
    assert_true(account_has(account, ACCOUNT_ANSWER_BYTES) > ALL_BYTES / 2);
    while (count > 0)
        end(&pairs[--count]);
    assert_int_equal(account_has(account, ACCOUNT_ANSWER_BYTES), 0);
    account_close(account);
    accounts_free(accounts);
}

static void test_what_is_read_is_given_back(void **state)
{
    struct accounts *const accounts = make_accounts();
    struct account *const account = account_open(accounts, geteuid());
    struct pair pair = connect_one(accounts);
    char bytes[REPLY_BYTES];

    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(answer(pair.connection, NULL), EMBTIER_OK);
        assert_true(account_has(account, ACCOUNT_ANSWER_BYTES) > 0);
        while (connection_has_unsent(pair.connection)) {
            assert_true(read(pair.client, bytes, sizeof(bytes)) > 0);
            assert_int_equal(connection_flush(pair.connection, NULL), EMBTIER_OK);
        }
        assert_int_equal(account_has(account, ACCOUNT_ANSWER_BYTES), 0);
        while (read(pair.client, bytes, sizeof(bytes)) > 0)
            ;
    }
    end(&pair);
    account_close(account);
    accounts_free(accounts);
}

/* Sends all but the last byte of a request of the greatest length. */
static enum embtier_err send_nearly_all(struct pair *pair, struct err_msg *msg)
{
    static uint8_t bytes[FRAME_REQUEST_BYTES_MAX + 3];
    const uint32_t length = htole32(FRAME_REQUEST_BYTES_MAX);
    size_t sent = 0;

    memcpy(bytes, &length, sizeof(length));
    while (sent < sizeof(bytes)) {
        const ssize_t some = write(pair->client, bytes + sent, sizeof(bytes) - sent);

        sent += some > 0 ? (size_t)some : 0;
        TRY(connection_receive(pair->connection, msg));
    }
    while (pair->connection->reader.used < sizeof(bytes))
        TRY(connection_receive(pair->connection, msg));
    return EMBTIER_OK;
}

static void test_requests_that_do_not_end_are_the_users_too(void **state)
{
    struct accounts *const accounts = make_accounts();
    struct account *const account = account_open(accounts, geteuid());
    struct pair pairs[MANY];
    enum embtier_err err = EMBTIER_OK;
    struct err_msg msg = { { 0 } };
    const uint8_t *payload;
    uint32_t count = 0, length;

    (void)state;
    while (count < MANY && err == EMBTIER_OK) {
        pairs[count] = connect_one(accounts);
        err = send_nearly_all(&pairs[count++], &msg);
        assert_true(account_has(account, ACCOUNT_ANSWER_BYTES) <= ALL_BYTES / 4 * 3);
    }
    assert_int_equal(err, EMBTIER_BUSY);
    assert_true(account_has(account, ACCOUNT_ANSWER_BYTES) > ALL_BYTES / 2);
    while (count > 1)
        end(&pairs[--count]);
    /* A request whose end arrives is handled, and gives everything back. */
    assert_int_equal(write(pairs[0].client, "", 1), 1);
    assert_int_equal(connection_receive(pairs[0].connection, &msg), EMBTIER_OK);
    assert_int_equal(frame_reader_next(&pairs[0].connection->reader, &payload, &length, &msg),
                     EMBTIER_OK);
    assert_int_equal(length, FRAME_REQUEST_BYTES_MAX);
    assert_true(account_has(account, ACCOUNT_ANSWER_BYTES) >= FRAME_REQUEST_BYTES_MAX / 2);
    frame_reader_next_done(&pairs[0].connection->reader);
    connection_received(pairs[0].connection);
    assert_int_equal(account_has(account, ACCOUNT_ANSWER_BYTES), 0);
    end(&pairs[0]);
    account_close(account);
    accounts_free(accounts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unread_answers_end_at_the_users_part),
        cmocka_unit_test(test_what_is_read_is_given_back),
        cmocka_unit_test(test_requests_that_do_not_end_are_the_users_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
