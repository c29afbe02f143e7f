/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the client library's promises about connections and tables with a server that is slow,
 * wrong or gone. */
#include "tests/unit/client/client_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/macros.h"
#include "client/lib/connection.h"

#define MS UINT64_C(1000000)

/* ---- Connecting ---- */

static void test_a_missing_server_is_reported_with_the_path(void **state)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    struct embtier *server = NULL;

    (void)state;
    options.socket_path = "/tmp/embtier-test-nobody.sock";
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_UNREACHABLE);
    assert_string_equal(embtier_message(NULL),
                        "no embtierd listens on /tmp/embtier-test-nobody.sock "
                        "(No such file or directory): is it running? EMBTIER_SOCKET, or an "
                        "argument, names another socket");
    assert_null(server);
}

static void test_a_stale_socket_is_unreachable_too(void **state)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct embtier *server = NULL;

    (void)state;
    snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/embtier-stale-%d.sock",
             (int)getpid());
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    close(fd); /* the file stays, as after a crash */
    options.socket_path = address.sun_path;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_UNREACHABLE);
    unlink(address.sun_path);
    assert_non_null(strstr(embtier_message(NULL), "Connection refused"));
}

static void test_wrong_options_are_refused_with_a_reason(void **state)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    struct embtier *server = NULL;
    char path[300];

    (void)state;
    memset(path, 'p', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    options.socket_path = path;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_INVALID);
    assert_non_null(strstr(embtier_message(NULL), "allowed: 1 to 107"));
    options.socket_path = "/tmp/x";
    options.max_in_flight = 0;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_INVALID);
    assert_non_null(strstr(embtier_message(NULL), "allowed: 1 to 1024"));
    options.max_in_flight = 64;
    options.arena_bytes = 100;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_INVALID);
    options.arena_bytes = 0;
    options.client_name = path + sizeof(path) - 1 - 129;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_INVALID);
    assert_non_null(strstr(embtier_message(NULL), "client_name is 129 bytes long"));
    options.client_name++;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_UNREACHABLE);
    options.client_name = NULL;
    for (size_t bytes = 0; bytes < sizeof(options) + 16; bytes++) {
        const bool is_known = bytes >= offsetof(struct embtier_connect_options, client_name) &&
                              bytes <= sizeof(options) && bytes % sizeof(uint64_t) == 0;

        options.struct_bytes = bytes;
        assert_int_equal(embtier_connect(&options, &server),
                         is_known ? EMBTIER_UNREACHABLE : EMBTIER_INVALID);
    }
}

/* The library never reads half a pointer or number. */
static void test_options_that_end_within_a_field_are_refused(void **state)
{
    struct fixture *fixture = *state;
    const size_t least = offsetof(struct embtier_table_options, progress);
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;

    options.name = "fresh";
    options.dim = 4;
    for (size_t bytes = 0; bytes <= sizeof(options) + 16; bytes++) {
        const bool is_known = bytes >= least && bytes <= sizeof(options) && bytes % 8 == 0;
        struct embtier_table *table = NULL;

        options.struct_bytes = bytes;
        assert_int_equal(embtier_table_create(fixture->server, &options, &table),
                         is_known ? EMBTIER_OK : EMBTIER_INVALID);
        if (!is_known)
            assert_non_null(strstr(embtier_message(fixture->server), "struct_bytes"));
        embtier_table_close(table);
    }
}

static void test_a_server_that_lies_about_its_memory_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_connect_options options = options_for(fixture);
    struct embtier *server = NULL;

    fixture->fake.unsealed = true;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_PROTOCOL);
    assert_non_null(strstr(embtier_message(NULL), "not sealed"));
    fixture->fake.unsealed = false;
    fixture->fake.short_arena = true;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_PROTOCOL);
    assert_non_null(strstr(embtier_message(NULL), "announced"));
    fixture->fake.short_arena = false;
    fixture->fake.garbage = true;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_PROTOCOL);
    assert_null(server);
}

static void test_a_server_that_never_answers_times_out(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_connect_options options = options_for(fixture);
    struct embtier *server = NULL;
    const uint64_t begin_ns = now_ns();

    fixture->fake.mute = true;
    options.timeout_ms = 100;
    assert_int_equal(embtier_connect(&options, &server), EMBTIER_TIMEOUT);
    assert_true(now_ns() - begin_ns >= 100 * MS);
}

static int open_fds(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; fd++) {
        struct stat status;

        count += fstat(fd, &status) == 0;
    }
    return count;
}

static void test_connections_leave_no_descriptors_behind(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_connect_options options = options_for(fixture);
    int before;

    for (int i = 0; i < 3; i++) {
        struct embtier *server = NULL;

        assert_int_equal(embtier_connect(&options, &server), EMBTIER_OK);
        embtier_disconnect(server);
        while (fixture->fake.ended <= (unsigned)i) /* the server is in this process, too */
            usleep(200);
        if (i == 0)
            before = open_fds();
        else
            assert_int_equal(open_fds(), before);
    }
}

/* ---- Tables and status ---- */

static void count_progress(void *context, uint64_t done, uint64_t total, const char *unit)
{
    assert_int_equal(done, 4);
    assert_int_equal(total, 8);
    assert_string_equal(unit, "rows");
    ++*(int *)context;
}

static void test_a_table_is_described_and_its_creation_reported(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
    struct embtier_table *table = NULL;
    int reports = 0;

    assert_string_equal(embtier_table_info(fixture->words)->name, "words");
    assert_int_equal(embtier_table_info(fixture->words)->weight_bytes, 4);
    options.name = "fresh";
    options.rows = 8;
    options.dim = 4;
    options.progress = count_progress;
    options.progress_context = &reports;
    assert_int_equal(embtier_table_create(fixture->server, &options, &table), EMBTIER_OK);
    assert_int_equal(reports, 1);
    assert_string_equal(embtier_table_info(table)->state, "live");
    embtier_table_close(table);
}

static void test_a_mistake_in_a_table_is_told_without_asking_the_server(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
    struct embtier_table *table = NULL;
    char name[200];

    options.name = "x";
    assert_int_equal(embtier_table_create(fixture->server, &options, &table), EMBTIER_INVALID);
    assert_non_null(strstr(embtier_message(fixture->server), "dim 0"));
    options.dim = 1;
    options.eps = 1e-8;
    assert_int_equal(embtier_table_create(fixture->server, &options, &table), EMBTIER_INVALID);
    assert_string_equal(embtier_message(fixture->server),
                        "optimizer none has no eps; it has no hyperparameters");
    options.optimizer = EMBTIER_OPTIMIZER_ADAM;
    options.eps = -1;
    assert_int_equal(embtier_table_create(fixture->server, &options, &table), EMBTIER_INVALID);
    assert_string_equal(embtier_message(fixture->server),
                        "eps -1 is out of range, allowed: 0 to 1");
    options.eps = NAN;
    assert_int_equal(embtier_table_create(fixture->server, &options, &table), EMBTIER_INVALID);
    assert_string_equal(embtier_message(fixture->server), "eps must be a finite number");
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(embtier_table_open(fixture->server, name, &table), EMBTIER_INVALID);
    assert_int_equal(embtier_table_open(fixture->server, "a\nb", &table), EMBTIER_INVALID);
    assert_int_equal(embtier_table_open(fixture->server, NULL, &table), EMBTIER_INVALID);
    assert_int_equal(embtier_table_open(fixture->server, "nope", &table), EMBTIER_NO_TABLE);
    assert_string_equal(embtier_message(fixture->server), "there is no such table");
    assert_null(table);
}

static void test_hyperparameters_come_back_and_those_not_given_are_the_defaults(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
    const struct embtier_table_info *info;
    struct embtier_table *table = NULL;

    options.name = "fresh";
    options.dim = 4;
    options.optimizer = EMBTIER_OPTIMIZER_ADAM;
    options.beta1 = 0;
    options.clip_norm = 2.5;
    options.rounds_to_nearest = 7;
    assert_int_equal(embtier_table_create(fixture->server, &options, &table), EMBTIER_OK);
    info = embtier_table_info(table);
    assert_true(info->eps == 1e-8 && info->alpha == 0 && info->beta1 == 0 && info->beta2 == 0.999);
    assert_true(info->weight_decay == 0 && info->clip_norm == 2.5);
    assert_true(info->rounds_to_nearest == 1 && info->allows_nonfinite == 0);
    embtier_table_close(table);
    options.rounds_to_nearest = 0;
    options.allows_nonfinite = 1;
    assert_int_equal(embtier_table_create(fixture->server, &options, &table), EMBTIER_OK);
    info = embtier_table_info(table);
    assert_true(info->rounds_to_nearest == 0 && info->allows_nonfinite == 1);
    embtier_table_close(table);
}

/* The caller was compiled before tables had hyperparameters. The bytes behind its options do not
 * belong to them. */
static void test_an_older_caller_s_tables_have_the_defaults(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_table_options options;
    struct embtier_table *table = NULL;

    memset(&options, 0xff, sizeof(options));
    memcpy(&options, &(struct embtier_table_options)EMBTIER_TABLE_OPTIONS_INIT,
           offsetof(struct embtier_table_options, eps));
    options.struct_bytes = offsetof(struct embtier_table_options, eps);
    options.name = "fresh";
    options.dim = 4;
    options.optimizer = EMBTIER_OPTIMIZER_ADAGRAD;
    assert_int_equal(embtier_table_create(fixture->server, &options, &table), EMBTIER_OK);
    assert_true(embtier_table_info(table)->eps == 1e-10);
    assert_true(embtier_table_info(table)->weight_decay == 0);
    assert_int_equal(embtier_table_info(table)->allows_nonfinite, 0);
    embtier_table_close(table);
}

/* A program compiled before there was momentum finds every field that it knew in its place. */
static void test_an_older_caller_s_words_mean_what_they_meant(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
    struct embtier_table *table = NULL;
    const struct embtier_table_info *info;

    options.name = "aged";
    options.dim = 4;
    options.optimizer = EMBTIER_OPTIMIZER_MOMENTUM;
    options.weight_decay = 0.25;
    options.clip_norm = 2;
    options.allows_nonfinite = 1;
    options.durability = EMBTIER_DURABILITY_SYNC;
    options.momentum = 77; /* must not be read */
    options.struct_bytes = offsetof(struct embtier_table_options, momentum);
    assert_int_equal(embtier_table_create(fixture->server, &options, &table), EMBTIER_OK);
    info = embtier_table_info(table);
    assert_true(info->weight_decay == 0.25 && info->clip_norm == 2 && info->momentum == 0.9);
    assert_int_equal(info->allows_nonfinite, 1);
    assert_int_equal(info->durability, EMBTIER_DURABILITY_SYNC);
    assert_int_equal(offsetof(struct embtier_table_options, weight_decay), 120);
    assert_int_equal(offsetof(struct embtier_table_options, momentum), 152);
    embtier_table_close(table);
}

static void test_a_timed_out_call_does_not_spoil_the_next(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_status *status = NULL;

    fixture->fake.mute = true;
    fixture->server->socket.timeout_ms = 100;
    assert_int_equal(embtier_status(fixture->server, &status), EMBTIER_TIMEOUT);
    fixture->server->socket.timeout_ms = 0;
    fixture->fake.mute = false;
    assert_int_equal(embtier_status(fixture->server, &status), EMBTIER_OK);
    assert_string_equal(embtier_status_version(status), "fake");
    assert_int_equal(embtier_status_count(status), 1);
    assert_string_equal(embtier_status_at(status, 0)->label_value, "dram");
    assert_null(embtier_status_at(status, 1));
    embtier_status_free(status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_missing_server_is_reported_with_the_path),
        cmocka_unit_test(test_a_stale_socket_is_unreachable_too),
        cmocka_unit_test(test_wrong_options_are_refused_with_a_reason),
        cmocka_unit_test_setup_teardown(test_a_server_that_lies_about_its_memory_is_refused,
                                        setup_listening, teardown),
        cmocka_unit_test_setup_teardown(test_a_server_that_never_answers_times_out, setup_listening,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_connections_leave_no_descriptors_behind,
                                        setup_listening, teardown),
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
        WITH_SERVER(test_a_table_is_described_and_its_creation_reported),
        WITH_SERVER(test_a_mistake_in_a_table_is_told_without_asking_the_server),
        WITH_SERVER(test_hyperparameters_come_back_and_those_not_given_are_the_defaults),
        WITH_SERVER(test_an_older_caller_s_tables_have_the_defaults),
        WITH_SERVER(test_an_older_caller_s_words_mean_what_they_meant),
        WITH_SERVER(test_options_that_end_within_a_field_are_refused),
        WITH_SERVER(test_a_timed_out_call_does_not_spoil_the_next),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
