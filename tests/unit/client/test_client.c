/* SPDX-License-Identifier: Apache-2.0 */
/* Does the client library keep its promises with a server that is slow, wrong, or gone? */
#include "tests/unit/client/client_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/lib/connection.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)
#define TRIES  20 /* of what must not take a second, on a machine that may be busy */

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

static uint64_t now_ns(void)
{
    return clock_now_ns(&clock_monotonic);
}

/* ---- Connecting ---- */

static void test_nobody_listening_is_said_with_the_path(void **state)
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
    close(fd); /* as after a crash: the file stays */
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
        const bool is_known = bytes == sizeof(options) ||
                              bytes == offsetof(struct embtier_connect_options, client_name);

        options.struct_bytes = bytes;
        assert_int_equal(embtier_connect(&options, &server),
                         is_known ? EMBTIER_UNREACHABLE : EMBTIER_INVALID);
    }
}

/* Half a pointer or number is never read. */
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
        while (fixture->fake.ended <= (unsigned)i) /* it is in this process, too */
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

/* A program compiled before there were hyperparameters: what lies behind its options is not theirs.
 */
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

/* A program compiled before there was momentum finds all that it knew in its place. */
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
    options.momentum = 77; /* is not looked at */
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

/* "words" as a table whose optimizer has state. */
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
    assert_null(embtier_batch_state(batch, 1)); /* an optimizer without state */
    assert_null(embtier_batch_state(batch, 2));
    assert_int_equal(embtier_batch_row_bytes(batch, 2), 0);
    assert_null(embtier_batch_state(plain, 0));
    assert_int_equal(embtier_batch_row_bytes(plain, 0), 16);
    assert_int_equal(embtier_submit(batch, EMBTIER_GET_POOLED), EMBTIER_INVALID);
    /* The part behind it begins behind all of it. */
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
        { EMBTIER_ID_RANGE, 1, "row id 57 is out of range: table 'users' has 10 rows (part 1)" },
        { EMBTIER_OFFSET_RANGE, 1,
          "offset 57 is past the arena's end at 10 (part 1, table 'users')" },
        { EMBTIER_TOO_LARGE, UINT32_MAX, "batch of 57 ids is over the server's limit of 10" },
        { EMBTIER_DROPPED, 0, "table 'words' was dropped (part 0)" },
        { EMBTIER_NO_TABLE, 0,
          "no such table: 'words' was dropped, or made anew, since it was opened; open it again "
          "(part 0)" },
        { EMBTIER_NO_SPACE, UINT32_MAX, "no space left on device" },
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

/* The server's limit of rows is not the real one where the memory for requests is small. */
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
                        "request; use at most 300 ids, or have the server's lanes.request_bytes "
                        "raised to 3.01 times what it is, counted from 16 MiB on");
    fixture->fake.err_limit = 0;
    assert_int_equal(embtier_get(batch), EMBTIER_TOO_LARGE);
    assert_string_equal(embtier_message(fixture->server),
                        "batch of 900 ids in 1 parts needs more memory than lanes.request_bytes "
                        "gives one request; use fewer ids and parts, or have the server's "
                        "lanes.request_bytes raised");
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
    assert_int_equal(embtier_poll(batch), EMBTIER_OK); /* again */
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
    /* Its slot was taken from the first, whose result is still there. */
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

/* @done is answered before, and nobody has looked; @pending are not. Returns how long they took to
 * end. */
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
    assert_non_null(strstr(embtier_message(fixture->server), "another optimizer"));
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
        cmocka_unit_test(test_nobody_listening_is_said_with_the_path),
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
        WITH_SERVER(test_a_call_to_a_dead_server_raises_no_signal),
        WITH_SERVER(test_reconnecting_keeps_batches_where_they_are),
        WITH_SERVER(test_a_table_that_is_gone_does_not_keep_others_from_coming_back),
        WITH_SERVER(test_a_table_of_another_shape_stops_the_reconnect),
        WITH_SERVER(test_a_table_of_another_state_stops_the_reconnect_if_a_batch_has_it),
        WITH_SERVER(test_a_closed_table_lives_on_for_its_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
