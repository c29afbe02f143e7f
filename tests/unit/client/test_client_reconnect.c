/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how the library finds a server at one of several addresses, and comes back to it: requests
 * that may change rows are never repeated, and reads only if the caller allows it. */
#include "tests/unit/client/client_fixture.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/connection.h"

#define NOBODY "/tmp/embtier-test-nobody.sock"

static void assert_says(const char *message, const char *said)
{
    if (!strstr(message, said))
        fail_msg("'%s' does not say '%s'", message, said);
}

/* ---- Several addresses ---- */

static void test_an_address_without_a_server_is_passed_over(void **state)
{
    struct fixture *const fixture = *state;
    struct embtier_connect_options options = options_for(fixture);
    struct embtier *server = NULL;
    char list[300];

    snprintf(list, sizeof(list), NOBODY ",unix+rpc:" NOBODY ",tcp://127.0.0.1:0,%s",
             fixture->fake.path);
    options.socket_path = list;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_OK);
    assert_int_equal(server->address, 3);
    drop_client(fixture);
    assert_int_equal(embtier_reconnect(server), EMBTIER_OK); /* the list is over; it begins anew */
    assert_int_equal(server->address, 3);
    assert_int_equal(embtier_session_number(server), 2);
    embtier_disconnect(server);
}

static void test_each_address_gives_its_own_reason(void **state)
{
    struct fixture *const fixture = *state;
    struct embtier_connect_options options = options_for(fixture);
    struct embtier *server = NULL;
    char list[300];

    fixture->fake.unsealed = true;
    snprintf(list, sizeof(list), "%s,unix+rpc:" NOBODY, fixture->fake.path);
    options.socket_path = list;
    /* Not PROTOCOL: the second server may come back. */
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_UNREACHABLE);
    assert_null(server);
    assert_says(embtier_message(NULL),
                "no address has a server for this client: /tmp/embtier-fake");
    assert_says(embtier_message(NULL),
                "not sealed; unix+rpc:" NOBODY ": (No such file or directory): is it running?");
    snprintf(list, sizeof(list), "%s,%s", fixture->fake.path, fixture->fake.path);
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_PROTOCOL);
}

static void test_long_reasons_leave_room_for_those_of_others(void **state)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    struct embtier *server = NULL;
    char list[1000] = "";

    (void)state;
    for (int i = 1; i <= 8; i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s/nowhere/%d",
                 i > 1 ? "," : "", i);
    options.socket_path = list;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_UNREACHABLE);
    for (int i = 1; i <= 8; i++) {
        char path[32];

        snprintf(path, sizeof(path), "/nowhere/%d: (No such file", i);
        assert_says(embtier_message(NULL), path);
    }
}

static void test_wrong_lists_are_refused(void **state)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    struct embtier *server = NULL;

    (void)state;
    options.socket_path = NOBODY ",";
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_INVALID);
    assert_says(embtier_message(NULL), "address 2 is empty");
    options.socket_path = NOBODY;
    options.unused = 1;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_INVALID);
    assert_says(embtier_message(NULL), "unused is 1");
}

static void test_the_default_socket_may_have_a_comma(void **state)
{
    struct embtier *server = NULL;

    (void)state;
    assert_int_equal(unsetenv("EMBTIER_SOCKET"), 0);
    assert_int_equal(setenv("RUNTIME_DIRECTORY", "/nowhere,/else", 1), 0);
    assert_int_equal(embtier_connect(NULL, &server), EMBTIER_UNREACHABLE);
    assert_says(embtier_message(NULL), "listens on /nowhere,/else/embtier.sock");
    assert_int_equal(unsetenv("RUNTIME_DIRECTORY"), 0);
    assert_int_equal(setenv("EMBTIER_SOCKET", "/nowhere,/else", 1), 0);
    assert_int_equal(embtier_connect(NULL, &server), EMBTIER_UNREACHABLE);
    assert_says(embtier_message(NULL), "no address has a server for this client: ");
    assert_int_equal(unsetenv("EMBTIER_SOCKET"), 0);
}

/* ---- Reads that are repeated ---- */

struct client {
    struct embtier *server;
    struct embtier_table *users;
    struct embtier_batch *rows, *bags, *prefetch;
};

static void client_open(struct fixture *fixture, bool retries_reads, struct client *client)
{
    struct embtier_connect_options options = options_for(fixture);

    options.reconnect_ms = 60000;
    options.retry_reads = retries_reads;
    assert_int_equal(embtier_connect(&options, &client->server), EMBTIER_OK);
    assert_int_equal(embtier_table_open(client->server, "users", &client->users), EMBTIER_OK);
    assert_int_equal(embtier_batch_new(client->server, &(struct embtier_part){ client->users, 1 },
                                       1, &client->rows),
                     EMBTIER_OK);
    embtier_batch_ids(client->rows, 0)[0] = 5;
    assert_int_equal(embtier_batch_new_bags(client->server,
                                            &(struct embtier_bag_part){ .table = client->users,
                                                                        .count = 1,
                                                                        .bag_count = 1,
                                                                        .mode = EMBTIER_POOL_SUM },
                                            1, &client->bags),
                     EMBTIER_OK);
    embtier_batch_ids(client->bags, 0)[0] = 5;
    embtier_batch_offsets(client->bags, 0)[0] = 0;
    embtier_batch_offsets(client->bags, 0)[1] = 1;
    assert_int_equal(embtier_batch_new_prefetch(client->server,
                                                &(struct embtier_part){ client->users, 1 }, 1,
                                                &client->prefetch),
                     EMBTIER_OK);
    embtier_batch_ids(client->prefetch, 0)[0] = 5;
}

static enum embtier_err get_rows(struct client *client)
{
    return embtier_get(client->rows);
}

static enum embtier_err get_bags(struct client *client)
{
    return embtier_get_pooled(client->bags);
}

static enum embtier_err get_prefetch(struct client *client)
{
    return embtier_prefetch(client->prefetch);
}

static enum embtier_err get_status(struct client *client)
{
    struct embtier_status *status = NULL;
    const enum embtier_err err = embtier_status(client->server, &status);

    embtier_status_free(status);
    return err;
}

static enum embtier_err get_list(struct client *client)
{
    struct embtier_table_list *list = NULL;
    const enum embtier_err err = embtier_table_list(client->server, &list);

    embtier_table_list_free(list);
    return err;
}

static enum embtier_err open_table(struct client *client)
{
    struct embtier_table *table = NULL;
    const enum embtier_err err = embtier_table_open(client->server, "users", &table);

    embtier_table_close(table);
    return err;
}

static enum embtier_err set_rows(struct client *client)
{
    return embtier_set(client->rows);
}

static enum embtier_err get_ticket(struct client *client)
{
    return embtier_get_pooled_ticket(client->bags);
}

static enum embtier_err create_table(struct client *client)
{
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
    struct embtier_table *table = NULL;

    options.name = "fresh";
    options.dim = 4;
    return embtier_table_create(client->server, &options, &table);
}

static enum embtier_err drop_table(struct client *client)
{
    return embtier_table_drop(client->server, "users", NULL, NULL);
}

typedef enum embtier_err call_fn(struct client *client);
static call_fn *const reads[] = {
    get_rows, get_bags, get_prefetch, get_status, get_list, open_table,
};
static call_fn *const writes[] = { set_rows, get_ticket, create_table, drop_table };

static void run_calls(struct fixture *fixture, bool retries_reads, call_fn *const *calls,
                      size_t count, enum embtier_err expected)
{
    for (size_t i = 0; i < count; i++) {
        struct client client = { 0 };

        client_open(fixture, retries_reads, &client);
        drop_client(fixture);
        assert_int_equal(calls[i](&client), expected);
        assert_int_equal(embtier_session_number(client.server), expected == EMBTIER_OK ? 2 : 1);
        embtier_disconnect(client.server);
    }
}

static void test_reads_are_repeated_if_the_caller_asks_for_it(void **state)
{
    run_calls(*state, true, reads, ARRAY_LEN(reads), EMBTIER_OK);
}

static void test_reads_are_not_repeated_behind_the_callers_back(void **state)
{
    run_calls(*state, false, reads, ARRAY_LEN(reads), EMBTIER_DISCONNECTED);
}

static void test_calls_that_may_change_something_are_never_repeated(void **state)
{
    run_calls(*state, true, writes, ARRAY_LEN(writes), EMBTIER_DISCONNECTED);
}

/* The server takes the request, and the connection ends before the answer. */
static void test_a_read_that_was_under_way_is_made_once_more(void **state)
{
    struct fixture *const fixture = *state;
    struct client client = { 0 };

    client_open(fixture, true, &client);
    fixture->fake.hold = true;
    fixture->fake.farewell = EMBTIER_SHUTDOWN; /* as soon as the server looks */
    (void)!embtier_submit(client.rows, EMBTIER_GET);
    (void)!embtier_wait(client.rows, UINT32_MAX);
    fixture->fake.hold = false;
    assert_int_equal(embtier_poll(client.rows), EMBTIER_DISCONNECTED); /* submitted by itself */
    assert_int_equal(embtier_get(client.rows), EMBTIER_OK);
    assert_int_equal(((float *)embtier_batch_rows(client.rows, 0))[0] != 0, 1);
    embtier_disconnect(client.server);
}

static void test_a_repeated_read_does_not_hide_what_was_lost(void **state)
{
    struct fixture *const fixture = *state;
    struct embtier_push_options push = EMBTIER_PUSH_OPTIONS_INIT;
    struct client client = { 0 };

    push.step = 1;
    client_open(fixture, true, &client);
    assert_int_equal(get_ticket(&client), EMBTIER_OK);
    assert_int_equal(get_prefetch(&client), EMBTIER_OK);
    drop_client(fixture);
    assert_int_equal(get_rows(&client), EMBTIER_OK);
    assert_int_equal(embtier_session_number(client.server), 2);
    assert_int_equal(embtier_push(client.bags, &push), EMBTIER_NO_TICKET);
    assert_says(embtier_message(client.server), "ticket ended with its session");
    assert_int_equal(embtier_release(client.prefetch), EMBTIER_OK); /* nothing is left to release */
    assert_int_equal(get_ticket(&client), EMBTIER_OK);
    push.prefetch = client.prefetch;
    assert_int_equal(embtier_push(client.bags, &push), EMBTIER_NO_TICKET);
    assert_says(embtier_message(client.server), "prefetch to be released with the push ended with");
    push.prefetch = NULL;
    assert_int_equal(embtier_push(client.bags, &push), EMBTIER_OK);
    assert_int_equal(embtier_push(client.bags, &push), EMBTIER_INVALID); /* used, not lost */
    embtier_disconnect(client.server);
}

static void test_a_failed_reconnect_ends_the_read(void **state)
{
    struct fixture *const fixture = *state;
    struct client client = { 0 };

    client_open(fixture, true, &client);
    fixture->fake.users_dim = 5;
    drop_client(fixture);
    assert_int_equal(get_rows(&client), EMBTIER_MISMATCH);
    assert_int_equal(embtier_session_number(client.server), 1);
    embtier_disconnect(client.server);
}

/* ---- Limits of time ---- */

static void test_a_request_without_an_answer_stays_in_flight(void **state)
{
    struct fixture *const fixture = *state;
    struct embtier_connect_options options = options_for(fixture);
    struct embtier_batch *batch = NULL;
    struct embtier *server = NULL;
    struct embtier_table *users = NULL;

    options.request_timeout_ms = 20;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_OK);
    assert_int_equal(embtier_table_open(server, "users", &users), EMBTIER_OK);
    assert_int_equal(embtier_batch_new(server, &(struct embtier_part){ users, 1 }, 1, &batch),
                     EMBTIER_OK);
    embtier_batch_ids(batch, 0)[0] = 5;
    fixture->fake.hold = true;
    assert_int_equal(embtier_set(batch), EMBTIER_TIMEOUT);
    assert_says(embtier_message(server), "request_timeout_ms");
    assert_int_equal(embtier_poll(batch), EMBTIER_AGAIN);
    assert_int_equal(embtier_batch_free(batch), EMBTIER_BUSY);
    assert_int_equal(embtier_set(batch), EMBTIER_BUSY);
    fixture->fake.hold = false;
    assert_int_equal(embtier_wait(batch, UINT32_MAX), EMBTIER_OK); /* this limit is the caller's */
    assert_int_equal(embtier_batch_free(batch), EMBTIER_OK);
    embtier_disconnect(server);
}

static void test_a_slot_that_does_not_become_free_is_reported(void **state)
{
    struct fixture *const fixture = *state;
    struct embtier_connect_options options = options_for(fixture);
    struct embtier_batch *batches[2] = { NULL };
    struct embtier *server = NULL;
    struct embtier_table *users = NULL;

    options.request_timeout_ms = 20;
    options.max_in_flight = 1;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_OK);
    assert_int_equal(embtier_table_open(server, "users", &users), EMBTIER_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            embtier_batch_new(server, &(struct embtier_part){ users, 1 }, 1, &batches[i]),
            EMBTIER_OK);
    fixture->fake.hold = true;
    assert_int_equal(embtier_submit(batches[0], EMBTIER_GET), EMBTIER_OK);
    assert_int_equal(embtier_get(batches[1]), EMBTIER_BUSY);
    assert_says(embtier_message(server), "this one was not made");
    assert_int_equal(embtier_poll(batches[1]), EMBTIER_INVALID); /* it was never submitted */
    fixture->fake.hold = false;
    assert_int_equal(embtier_wait(batches[0], UINT32_MAX), EMBTIER_OK);
    embtier_disconnect(server);
}

static void test_reconnecting_goes_on_until_the_server_is_back(void **state)
{
    struct fixture *const fixture = *state;
    struct client client = { 0 };

    client_open(fixture, false, &client);
    fake_server_stop(&fixture->fake);
    assert_int_equal(get_rows(&client), EMBTIER_DISCONNECTED);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(embtier_reconnect_within(client.server, 1), EMBTIER_UNREACHABLE);
        assert_says(embtier_message(client.server), "no embtierd listens");
        assert_int_equal(embtier_batch_set_count(client.rows, 9, 1), EMBTIER_INVALID);
    }
    fake_server_start(&fixture->fake);
    assert_int_equal(embtier_reconnect(client.server), EMBTIER_OK);
    assert_int_equal(get_rows(&client), EMBTIER_OK);
    embtier_disconnect(client.server);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup_listening, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_address_without_a_server_is_passed_over),
        TEST(test_each_address_gives_its_own_reason),
        cmocka_unit_test(test_long_reasons_leave_room_for_those_of_others),
        cmocka_unit_test(test_wrong_lists_are_refused),
        cmocka_unit_test(test_the_default_socket_may_have_a_comma),
        TEST(test_reads_are_repeated_if_the_caller_asks_for_it),
        TEST(test_reads_are_not_repeated_behind_the_callers_back),
        TEST(test_calls_that_may_change_something_are_never_repeated),
        TEST(test_a_read_that_was_under_way_is_made_once_more),
        TEST(test_a_repeated_read_does_not_hide_what_was_lost),
        TEST(test_a_failed_reconnect_ends_the_read),
        TEST(test_a_request_without_an_answer_stays_in_flight),
        TEST(test_a_slot_that_does_not_become_free_is_reported),
        TEST(test_reconnecting_goes_on_until_the_server_is_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
