/* SPDX-License-Identifier: Apache-2.0 */
/* A scan gives all rows of a table as its checkpoint has them, and a load makes a table whole or
 * not at all. */
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/lib/connection.h"
#include "tests/integration/harness.h"

#define DIM   5
#define STEP  7 /* one row in STEP is written */
#define ROWS  20011
#define SMALL 4096 /* bytes of a small buffer */

static int setup(void **state)
{
    struct harness *harness = calloc(1, sizeof(*harness));

    if (!harness)
        return -1;
    harness_new(harness);
    harness_start(harness);
    *state = harness;
    return 0;
}

static int teardown(void **state)
{
    harness_done(*state);
    free(*state);
    return 0;
}

static struct embtier_table_options options_of(const char *name)
{
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;

    options.name = name;
    options.rows = ROWS;
    options.dim = DIM;
    options.optimizer = EMBTIER_OPTIMIZER_ADAGRAD;
    options.init = EMBTIER_INIT_UNIFORM;
    options.init_first = -1;
    options.init_second = 1;
    options.seed = 3;
    return options;
}

/* Column @column of row @id; the columns behind its weights are its state. */
static float number_of(uint64_t id, uint32_t column)
{
    return (float)id * 16 + (float)column;
}

static void write_some(struct embtier *server, struct embtier_table *table)
{
    const struct embtier_part part = { table, (ROWS + STEP - 1) / STEP };
    struct embtier_batch *batch = NULL;
    float *row;

    assert_int_equal(embtier_batch_new_with_state(server, &part, 1, &batch), EMBTIER_OK);
    row = embtier_batch_rows(batch, 0);
    for (uint32_t i = 0; i < part.count; i++) {
        embtier_batch_ids(batch, 0)[i] = (uint64_t)i * STEP;
        for (uint32_t c = 0; c < 2 * DIM; c++)
            *row++ = number_of((uint64_t)i * STEP, c);
    }
    assert_int_equal(embtier_set(batch), EMBTIER_OK);
    embtier_batch_free(batch);
}

static uint64_t make_checkpoint(struct embtier *server)
{
    struct embtier_checkpoint_list *list = NULL;
    uint64_t id;

    assert_int_equal(embtier_checkpoint_create(server, NULL, NULL, NULL, &list), EMBTIER_OK);
    id = embtier_checkpoint_list_at(list, 0)->id;
    embtier_checkpoint_list_free(list);
    return id;
}

static struct embtier_table *make_table(struct embtier *server, const char *name)
{
    const struct embtier_table_options options = options_of(name);
    struct embtier_table *table = NULL;

    assert_int_equal(embtier_table_create(server, &options, &table), EMBTIER_OK);
    write_some(server, table);
    return table;
}

/* Whole rows of all ids, with state, as a client gets them. */
static float *get_all(struct embtier *server, struct embtier_table *table)
{
    const struct embtier_part part = { table, ROWS };
    struct embtier_batch *batch = NULL;
    float *copy = malloc(sizeof(float) * ROWS * 2 * DIM);

    assert_non_null(copy);
    assert_int_equal(embtier_batch_new_with_state(server, &part, 1, &batch), EMBTIER_OK);
    for (uint32_t i = 0; i < ROWS; i++)
        embtier_batch_ids(batch, 0)[i] = i;
    assert_int_equal(embtier_get(batch), EMBTIER_OK);
    memcpy(copy, embtier_batch_rows(batch, 0), sizeof(float) * ROWS * 2 * DIM);
    embtier_batch_free(batch);
    return copy;
}

static void check_written(const struct embtier_scan_rows *rows, uint32_t columns, uint64_t *next_id)
{
    assert_int_equal(rows->row_bytes, columns * sizeof(float));
    for (uint32_t i = 0; i < rows->count; i++) {
        const float *const row = (const float *)rows->rows + (size_t)i * columns;

        assert_int_equal(rows->ids[i], *next_id);
        for (uint32_t c = 0; c < columns; c++)
            assert_true(row[c] == number_of(*next_id, c));
        *next_id += STEP;
    }
}

static void test_a_scan_gives_the_written_rows_in_order(void **state)
{
    struct embtier *server = harness_connect(*state);
    struct embtier_table *table = make_table(server, "written");
    const uint64_t checkpoint = make_checkpoint(server);
    struct embtier_scan_rows rows = { 0 };

    write_some(server, table); /* the same rows again */
    for (int with_state = 0; with_state < 2; with_state++) {
        const struct embtier_scan_options options = { .struct_bytes = sizeof(options),
                                                      .with_state = with_state,
                                                      .buffer_bytes = SMALL };
        struct embtier_scan *scan = NULL;
        uint64_t next_id = 0;
        uint32_t calls = 0;

        assert_int_equal(embtier_scan_open(server, "written", &options, &scan), EMBTIER_OK);
        assert_int_equal(embtier_scan_checkpoint(scan), checkpoint);
        assert_int_equal(embtier_scan_table(scan)->dim, DIM);
        assert_in_range(embtier_scan_row_count(scan), 0, ROWS);
        do {
            assert_int_equal(embtier_scan_next(scan, &rows), EMBTIER_OK);
            check_written(&rows, with_state ? 2 * DIM : DIM, &next_id);
            calls++;
        } while (rows.count > 0);
        assert_true(next_id >= ROWS && next_id < ROWS + STEP);
        assert_true(calls > 10); /* since the buffer is small */
        assert_int_equal(embtier_scan_next(scan, &rows), EMBTIER_OK);
        assert_int_equal(rows.count, 0); /* the end stays the end */
        embtier_scan_close(scan);
    }
    embtier_disconnect(server);
}

static void test_a_scan_of_all_rows_gives_what_a_get_gives(void **state)
{
    struct embtier *server = harness_connect(*state);
    struct embtier_table *table = make_table(server, "all");
    float *const wanted = get_all(server, table);
    const struct embtier_scan_options options = { .struct_bytes = sizeof(options),
                                                  .with_state = 1,
                                                  .all_rows = 1 };
    struct embtier_scan *scan = NULL;
    struct embtier_scan_rows rows = { 0 };
    uint64_t next_id = 0;

    make_checkpoint(server);
    assert_int_equal(embtier_scan_open(server, "all", &options, &scan), EMBTIER_OK);
    assert_int_equal(embtier_scan_row_count(scan), ROWS);
    do {
        assert_int_equal(embtier_scan_next(scan, &rows), EMBTIER_OK);
        assert_null(rows.ids);
        assert_int_equal(rows.first_id, next_id);
        assert_memory_equal(rows.rows, wanted + next_id * 2 * DIM,
                            (size_t)rows.count * rows.row_bytes);
        next_id += rows.count;
    } while (rows.count > 0);
    assert_int_equal(next_id, ROWS);
    embtier_scan_close(scan);
    free(wanted);
    embtier_disconnect(server);
}

static void test_what_a_scan_cannot_do_is_said(void **state)
{
    struct embtier *server = harness_connect(*state);
    struct embtier *bare = NULL;
    struct embtier_table_options endless = options_of("endless");
    struct embtier_scan_options options = EMBTIER_SCAN_OPTIONS_INIT;
    struct embtier_table *table = NULL;
    struct embtier_scan *scan = NULL, *other = NULL;
    uint64_t checkpoint;

    endless.rows = EMBTIER_UNBOUNDED;
    assert_int_equal(embtier_scan_open(server, "none", NULL, &scan), EMBTIER_NOT_FOUND);
    assert_int_equal(embtier_table_create(server, &endless, &table), EMBTIER_OK);
    checkpoint = make_checkpoint(server);
    assert_int_equal(embtier_scan_open(server, "none", NULL, &scan), EMBTIER_NO_TABLE);
    assert_non_null(strstr(embtier_message(server), "has no table 'none'"));
    assert_int_equal(embtier_scan_open(server, "no table", NULL, &scan), EMBTIER_INVALID);
    options.checkpoint = checkpoint + 1;
    assert_int_equal(embtier_scan_open(server, "endless", &options, &scan), EMBTIER_NOT_FOUND);
    options = (struct embtier_scan_options){ .struct_bytes = sizeof(options), .all_rows = 1 };
    assert_int_equal(embtier_scan_open(server, "endless", &options, &scan), EMBTIER_INVALID);
    assert_non_null(strstr(embtier_message(server), "unbounded"));
    options = (struct embtier_scan_options){ .struct_bytes = sizeof(options),
                                             .buffer_bytes = UINT64_C(1) << 40 };
    assert_int_equal(embtier_scan_open(server, "endless", &options, &scan), EMBTIER_ARENA_FULL);

    assert_int_equal(embtier_scan_open(server, "endless", NULL, &scan), EMBTIER_OK);
    assert_int_equal(embtier_scan_open(server, "endless", NULL, &other), EMBTIER_BUSY);
    make_checkpoint(server);
    assert_int_equal(embtier_checkpoint_delete(server, checkpoint), EMBTIER_BUSY);
    embtier_scan_close(scan);
    assert_int_equal(embtier_checkpoint_delete(server, checkpoint), EMBTIER_OK);
    embtier_disconnect(server);

    {
        struct embtier_connect_options none = EMBTIER_CONNECT_OPTIONS_INIT;

        none.socket_path = ((struct harness *)*state)->socket;
        none.arena_bytes = 0;
        none.timeout_ms = 0;
        assert_int_equal(embtier_connect(&none, &bare), EMBTIER_OK);
        assert_int_equal(embtier_scan_open(bare, "endless", NULL, &scan), EMBTIER_INVALID);
        embtier_disconnect(bare);
    }
}

/* Loads rows 0, STEP, … of a new table, with or without state. */
static enum embtier_err load_some(struct embtier *server, const char *name, int with_state,
                                  enum embtier_durability durability,
                                  struct embtier_load **ret_load)
{
    struct embtier_table_options options = options_of(name);
    struct embtier_load_buffer buffer;
    const uint32_t columns = with_state ? 2 * DIM : DIM;
    uint32_t count = 0;

    options.durability = durability;
    TRY(embtier_load_open(server, &options, with_state, SMALL, ret_load));
    buffer = embtier_load_buffer(*ret_load);
    assert_int_equal(buffer.row_bytes, columns * sizeof(float));
    for (uint64_t id = 0; id < ROWS; id += STEP) {
        buffer.ids[count] = id;
        for (uint32_t c = 0; c < columns; c++)
            ((float *)buffer.rows)[(size_t)count * columns + c] = number_of(id, c);
        if (++count == buffer.capacity || id + STEP >= ROWS) {
            TRY(embtier_load_rows(*ret_load, count));
            count = 0;
        }
    }
    return EMBTIER_OK;
}

/* Loaded rows are as sent, and the others have the initial values of a table with the same
 * options. */
static void check_loaded(struct embtier *server, const char *name, int with_state)
{
    struct embtier_table_options fresh_options = options_of("fresh");
    struct embtier_table *table = NULL, *fresh = NULL;
    float *got, *initial;

    assert_int_equal(embtier_table_open(server, name, &table), EMBTIER_OK);
    assert_int_equal(embtier_table_create(server, &fresh_options, &fresh), EMBTIER_OK);
    got = get_all(server, table);
    initial = get_all(server, fresh);
    for (uint64_t id = 0; id < ROWS; id++)
        for (uint32_t c = 0; c < 2 * DIM; c++) {
            const float other = id % STEP ? initial[id * 2 * DIM + c] : 0; /* for the state too */

            assert_true(got[id * 2 * DIM + c] ==
                        (id % STEP == 0 && (with_state || c < DIM) ? number_of(id, c) : other));
        }
    free(got);
    free(initial);
    assert_int_equal(embtier_table_drop(server, "fresh", NULL, NULL), EMBTIER_OK);
}

static void test_a_load_makes_a_table_that_a_crash_leaves_whole(void **state)
{
    static const enum embtier_durability durabilities[] = { EMBTIER_DURABILITY_REPLAY,
                                                            EMBTIER_DURABILITY_ASYNC,
                                                            EMBTIER_DURABILITY_SYNC };
    struct harness *const harness = *state;

    for (uint32_t i = 0; i < 2 * ARRAY_LEN(durabilities); i++) {
        struct embtier *server = harness_connect(harness);
        struct embtier_load *load = NULL;
        char name[32];

        snprintf(name, sizeof(name), "loaded-%u", i);
        assert_int_equal(load_some(server, name, i % 2, durabilities[i / 2], &load), EMBTIER_OK);
        assert_int_equal(embtier_load_end(load, NULL, NULL), EMBTIER_OK);
        embtier_load_close(load);
        embtier_disconnect(server);
        harness_kill(harness);
        harness_start(harness);
        server = harness_connect(harness);
        check_loaded(server, name, i % 2);
        embtier_disconnect(server);
    }
}

static void assert_no_table(struct embtier *server, const char *name)
{
    struct embtier_table_list *list = NULL;

    assert_int_equal(embtier_table_list(server, &list), EMBTIER_OK);
    for (size_t i = 0; i < embtier_table_list_count(list); i++)
        assert_string_not_equal(embtier_table_list_at(list, i)->name, name);
    embtier_table_list_free(list);
}

/* As a process that ends: closes the socket without a word. */
static void leave(struct embtier *server)
{
    const int fd = server->socket.rpc ? rpc_connection_fd(server->socket.rpc) : server->socket.fd;

    assert_int_equal(shutdown(fd, SHUT_RDWR), 0);
}

static void await_no_table(struct embtier *server, const char *name)
{
    const uint64_t until_ns = clock_now_ns(&clock_monotonic) + UINT64_C(120) * 1000000000;
    bool is_there;

    do {
        struct embtier_table_list *list = NULL;

        assert_true(clock_now_ns(&clock_monotonic) < until_ns);
        usleep(10000);
        is_there = false;
        assert_int_equal(embtier_table_list(server, &list), EMBTIER_OK);
        for (size_t t = 0; t < embtier_table_list_count(list); t++)
            is_there |= strcmp(embtier_table_list_at(list, t)->name, name) == 0;
        embtier_table_list_free(list);
    } while (is_there);
}

static void test_a_load_that_does_not_end_leaves_nothing(void **state)
{
    struct harness *const harness = *state;
    struct embtier *server = harness_connect(harness), *other, *goer;
    struct embtier_load *load = NULL;
    struct embtier_table *table = NULL;

    /* Until the load ends no client can use the table, or take its name. */
    assert_int_equal(load_some(server, "half", 0, EMBTIER_DURABILITY_ASYNC, &load), EMBTIER_OK);
    other = harness_connect(harness);
    assert_int_equal(embtier_table_open(other, "half", &table), EMBTIER_BUSY);
    assert_int_equal(embtier_table_drop(other, "half", NULL, NULL), EMBTIER_BUSY);
    make_checkpoint(other); /* no checkpoint has it either */
    {
        struct embtier_scan *scan = NULL;

        assert_int_equal(embtier_scan_open(other, "half", NULL, &scan), EMBTIER_NO_TABLE);
    }
    embtier_load_close(load);
    assert_no_table(other, "half");

    /* The same if the client leaves, or the server dies. */
    assert_int_equal(load_some(server, "half", 0, EMBTIER_DURABILITY_REPLAY, &load), EMBTIER_OK);
    embtier_load_close(load);
    goer = harness_connect(harness);
    assert_int_equal(load_some(goer, "half", 0, EMBTIER_DURABILITY_REPLAY, &load), EMBTIER_OK);
    leave(goer);
    await_no_table(other, "half");
    embtier_load_close(load);
    embtier_disconnect(goer);
    assert_int_equal(load_some(server, "half", 0, EMBTIER_DURABILITY_SYNC, &load), EMBTIER_OK);
    harness_kill(harness);
    assert_int_equal(embtier_load_rows(load, 1), EMBTIER_DISCONNECTED);
    harness_start(harness);
    assert_int_equal(embtier_reconnect(server), EMBTIER_OK);
    assert_no_table(server, "half");
    assert_int_equal(embtier_load_rows(load, 1), EMBTIER_DISCONNECTED); /* its session is gone */
    embtier_load_close(load);
    table = make_table(server, "half");
    assert_non_null(table);
    embtier_disconnect(server);
    embtier_disconnect(other);
}

static void test_what_a_load_cannot_do_is_said(void **state)
{
    struct embtier *server = harness_connect(*state);
    struct embtier_table_options options = options_of("refused");
    struct embtier_load *load = NULL, *other = NULL;
    struct embtier_load_buffer buffer;

    make_table(server, "taken");
    options.name = "taken";
    assert_int_equal(embtier_load_open(server, &options, 0, 0, &load), EMBTIER_EXISTS);
    options.name = "refused";
    options.dim = 0;
    assert_int_equal(embtier_load_open(server, &options, 0, 0, &load), EMBTIER_INVALID);
    options.dim = DIM;
    assert_int_equal(embtier_load_open(server, &options, 0, UINT64_C(1) << 40, &load),
                     EMBTIER_ARENA_FULL);
    assert_int_equal(embtier_load_open(server, &options, 0, SMALL, &load), EMBTIER_OK);
    options.name = "second";
    assert_int_equal(embtier_load_open(server, &options, 0, SMALL, &other), EMBTIER_BUSY);
    buffer = embtier_load_buffer(load);
    assert_int_equal(embtier_load_rows(load, buffer.capacity + 1), EMBTIER_INVALID);
    buffer.ids[0] = ROWS;
    assert_int_equal(embtier_load_rows(load, 1), EMBTIER_ID_RANGE);
    assert_non_null(strstr(embtier_message(server), "has rows 0 to 20010, not 20011"));
    buffer.ids[0] = 0;
    assert_int_equal(embtier_load_rows(load, 1), EMBTIER_INVALID); /* it has ended */
    assert_int_equal(embtier_load_end(load, NULL, NULL), EMBTIER_INVALID);
    embtier_load_close(load);
    assert_no_table(server, "refused");
    embtier_disconnect(server);
}

/* Stops the server, so that calls time out until thaw(), which removes the limit again. */
static void freeze(const struct harness *harness, struct embtier *server)
{
    int status;

    assert_int_equal(kill(harness->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(harness->pid, &status, WUNTRACED), harness->pid);
    assert_true(WIFSTOPPED(status));
    server->socket.timeout_ms = 300;
}

static void thaw(const struct harness *harness, struct embtier *server)
{
    server->socket.timeout_ms = 0;
    assert_int_equal(kill(harness->pid, SIGCONT), 0);
}

/* A server that is silent for a while may answer later, and then write into the buffer or read
 * from it. */
static void test_what_was_not_answered_keeps_its_buffer_and_ends(void **state)
{
    struct harness *const harness = *state;
    struct embtier *server = harness_connect(harness), *other = harness_connect(harness);
    const struct embtier_scan_options options = { .struct_bytes = sizeof(options),
                                                  .buffer_bytes = SMALL };
    struct embtier_table_options load_options = options_of("silent");
    const uint64_t free_bytes = arena_alloc_free_bytes(server->alloc);
    struct embtier_scan *scan = NULL;
    struct embtier_scan_rows rows = { 0 };
    struct embtier_load *load = NULL;

    make_table(other, "asked");
    make_checkpoint(other);
    embtier_disconnect(other);

    /* The scan is closed while the server may still write. */
    assert_int_equal(embtier_scan_open(server, "asked", &options, &scan), EMBTIER_OK);
    freeze(harness, server);
    assert_int_equal(embtier_scan_next(scan, &rows), EMBTIER_TIMEOUT);
    embtier_scan_close(scan);
    thaw(harness, server);
    assert_int_equal(arena_alloc_free_bytes(server->alloc), free_bytes - SMALL);

    /* Asking again would skip rows, so it is refused. Closed after the server's answer, the scan
     * leaves nothing. */
    assert_int_equal(embtier_scan_open(server, "asked", &options, &scan), EMBTIER_OK);
    freeze(harness, server);
    assert_int_equal(embtier_scan_next(scan, &rows), EMBTIER_TIMEOUT);
    thaw(harness, server);
    assert_int_equal(embtier_scan_next(scan, &rows), EMBTIER_INVALID);
    embtier_scan_close(scan);
    assert_int_equal(arena_alloc_free_bytes(server->alloc), free_bytes - SMALL);

    /* A scan opened without an answer does not stay open. */
    freeze(harness, server);
    assert_int_equal(embtier_scan_open(server, "asked", &options, &scan), EMBTIER_TIMEOUT);
    assert_int_equal(embtier_load_open(server, &load_options, 0, SMALL, &load), EMBTIER_TIMEOUT);
    thaw(harness, server);
    assert_int_equal(embtier_scan_open(server, "asked", &options, &scan), EMBTIER_OK);
    embtier_scan_close(scan);

    assert_int_equal(embtier_load_open(server, &load_options, 0, SMALL, &load), EMBTIER_OK);
    memset(embtier_load_buffer(load).ids, 0, sizeof(uint64_t));
    freeze(harness, server);
    assert_int_equal(embtier_load_rows(load, 1), EMBTIER_TIMEOUT);
    thaw(harness, server);
    assert_int_equal(embtier_load_rows(load, 1), EMBTIER_INVALID);
    assert_int_equal(embtier_load_end(load, NULL, NULL), EMBTIER_INVALID);
    embtier_load_close(load);
    assert_no_table(server, "silent");
    embtier_disconnect(server);
}

/* As for an export: the checkpoint must stay until it is read, although loads of tables make the
 * server's own checkpoints meanwhile. */
static void test_a_checkpoint_made_to_be_read_is_there_to_be_read(void **state)
{
    struct embtier *server = harness_connect(*state);
    const struct embtier_checkpoint_options made = { .struct_bytes = sizeof(made), .automatic = 1 };
    struct embtier_scan_options options = { .struct_bytes = sizeof(options),
                                            .buffer_bytes = SMALL };
    struct embtier_checkpoint_list *list = NULL;
    struct embtier_scan *scan = NULL;
    char name[16];

    make_table(server, "read");
    assert_int_equal(embtier_checkpoint_create(server, &made, NULL, NULL, &list), EMBTIER_OK);
    options.checkpoint = embtier_checkpoint_list_at(list, 0)->id;
    embtier_checkpoint_list_free(list);
    for (int i = 0; i < 4; i++) { /* more than the server keeps of its own */
        struct embtier_load *load = NULL;

        snprintf(name, sizeof(name), "loaded%d", i);
        assert_int_equal(load_some(server, name, 0, EMBTIER_DURABILITY_REPLAY, &load), EMBTIER_OK);
        assert_int_equal(embtier_load_end(load, NULL, NULL), EMBTIER_OK);
        embtier_load_close(load);
    }
    assert_int_equal(embtier_scan_open(server, "read", &options, &scan), EMBTIER_OK);
    assert_int_equal(embtier_scan_checkpoint(scan), options.checkpoint);
    embtier_scan_close(scan);
    embtier_disconnect(server);
}

/* Flips a bit in the middle byte of the first file of checkpoint 1 whose name has @part. */
static void damage(const struct harness *harness, const char *part)
{
    char command[512], path[256] = { 0 };
    uint8_t byte;
    FILE *file;
    long at;

    snprintf(command, sizeof(command),
             "find %s/rows/checkpoints/000001 -size +0 -path '*replay*%s*'", harness->directory,
             part);
    file = popen(command, "r"); // NOLINT(cert-env33-c)
    assert_non_null(file);
    assert_non_null(fgets(path, sizeof(path), file));
    pclose(file);
    path[strcspn(path, "\n")] = '\0';
    file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    at = ftell(file) / 2;
    fseek(file, at, SEEK_SET);
    assert_int_equal(fread(&byte, 1, 1, file), 1);
    byte ^= 4;
    fseek(file, at, SEEK_SET);
    assert_int_equal(fwrite(&byte, 1, 1, file), 1);
    fclose(file);
}

static void test_of_a_damaged_checkpoint_no_wrong_row_comes(void **state)
{
    struct harness *const harness = *state;
    struct embtier *server = harness_connect(harness);
    const struct embtier_scan_options options = { .struct_bytes = sizeof(options),
                                                  .checkpoint = 1,
                                                  .buffer_bytes = SMALL };
    struct embtier_scan_rows rows = { 0 };
    struct embtier_scan *scan = NULL;
    enum embtier_err err = EMBTIER_OK;
    uint64_t next_id = 0;

    make_table(server, "hurt");
    assert_int_equal(make_checkpoint(server), 1);
    damage(harness, ".sst");
    err = embtier_scan_open(server, "hurt", &options, &scan);
    while (err == EMBTIER_OK) {
        err = embtier_scan_next(scan, &rows);
        if (err == EMBTIER_OK)
            check_written(&rows, DIM, &next_id);
        assert_true(err != EMBTIER_OK || rows.count > 0); /* it must not come to the end */
    }
    assert_int_equal(err, EMBTIER_CORRUPT);
    if (scan)
        assert_int_equal(embtier_scan_next(scan, &rows), EMBTIER_INVALID);
    embtier_scan_close(scan);
    damage(harness, "MANIFEST");
    assert_int_equal(embtier_scan_open(server, "hurt", &options, &scan), EMBTIER_CORRUPT);
    assert_non_null(strstr(embtier_message(server), "MANIFEST"));
    embtier_disconnect(server);
}

/* ---- Imports ---- */

static void write_text(const char *path, const char *bytes, size_t count)
{
    FILE *const file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* Writes zeros of f32, shape [1, 2]. */
static void write_array(const char *path)
{
    char bytes[128 + 8] = "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, "
                          "'shape': (1, 2), }";

    memset(bytes + 10 + strlen(bytes + 10), ' ', 118 - strlen(bytes + 10));
    bytes[127] = '\n';
    memset(bytes + 128, 0, 8);
    write_text(path, bytes, sizeof(bytes));
}

/* The caller was compiled before there were hyperparameters: its options end where a page begins
 * that cannot be read. */
static void test_of_an_older_caller_s_options_no_more_is_read_than_there_is(void **state)
{
    const size_t bytes = offsetof(struct embtier_table_options, eps);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct embtier *const server = harness_connect(*state);
    struct embtier_import_options import = EMBTIER_IMPORT_OPTIONS_INIT;
    struct embtier_table_options options = options_of("");
    struct embtier_imported imported;
    char path[128];
    char *const pages =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    options.struct_bytes = bytes;
    import.table = (void *)memcpy(pages + page - bytes, &options, bytes);
    snprintf(path, sizeof(path), "%s/array.npy", ((struct harness *)*state)->directory);
    write_array(path);
    assert_int_equal(embtier_import(server, "old", path, &import, NULL, NULL, &imported),
                     EMBTIER_OK);
    assert_int_equal(imported.rows, 1);
    munmap(pages, 2 * page);
    embtier_disconnect(server);
}

static void test_a_durability_that_is_none_is_refused(void **state)
{
    static const int wrong[] = { -2, INT_MIN, 3, 256, INT_MAX };
    struct embtier *const server = harness_connect(*state);
    struct embtier_import_options import = EMBTIER_IMPORT_OPTIONS_INIT;
    char path[128];

    snprintf(path, sizeof(path), "%s/array.npy", ((struct harness *)*state)->directory);
    write_array(path);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        import.durability = wrong[i];
        assert_int_equal(embtier_import(server, "new", path, &import, NULL, NULL, NULL),
                         EMBTIER_INVALID);
        assert_non_null(strstr(embtier_message(server), "durability"));
    }
    import.durability = EMBTIER_DURABILITY_SYNC;
    assert_int_equal(embtier_import(server, "new", path, &import, NULL, NULL, NULL), EMBTIER_OK);
    embtier_disconnect(server);
}

static void test_one_user_has_no_more_than_his_share_of_loads(void **state)
{
    enum { SHARE = 6 }; /* three quarters of the 8 that may load at a time */
    struct embtier *servers[SHARE + 1];
    struct embtier_load *loads[SHARE + 1] = { NULL };
    struct embtier_table_options options;
    char name[16];

    for (uint32_t i = 0; i < ARRAY_LEN(servers); i++) {
        servers[i] = harness_connect(*state);
        snprintf(name, sizeof(name), "load-%u", i);
        options = options_of(name);
        assert_int_equal(embtier_load_open(servers[i], &options, 0, SMALL, &loads[i]),
                         i < SHARE ? EMBTIER_OK : EMBTIER_BUSY);
    }
    embtier_load_close(loads[0]);
    assert_int_equal(embtier_load_open(servers[SHARE], &options, 0, SMALL, &loads[SHARE]),
                     EMBTIER_OK);
    for (uint32_t i = 0; i < ARRAY_LEN(servers); i++) {
        if (i > 0)
            embtier_load_close(loads[i]);
        embtier_disconnect(servers[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_scan_gives_the_written_rows_in_order, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_scan_of_all_rows_gives_what_a_get_gives, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_a_scan_cannot_do_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_load_makes_a_table_that_a_crash_leaves_whole, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_load_that_does_not_end_leaves_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_a_load_cannot_do_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_was_not_answered_keeps_its_buffer_and_ends, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_checkpoint_made_to_be_read_is_there_to_be_read,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_of_a_damaged_checkpoint_no_wrong_row_comes, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_of_an_older_caller_s_options_no_more_is_read_than_there_is, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_durability_that_is_none_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_user_has_no_more_than_his_share_of_loads, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
