/* SPDX-License-Identifier: Apache-2.0 */
/* test_hottest.c: are the hottest rows of a trace those that counting every lookup gives, in one
 * pass and in many? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <fcntl.h>
#include <sys/stat.h>

#include "placement/hot/hottest.h"
#include "placement/random.h"
#include "placement/trace/trace_writer.h"
#include "tests/unit/placement/trace_fixture.h"

#define ROWS    20000
#define BATCH   4096
#define BATCHES 24

/* ---- A trace, and the count of each row ---- */

/* Cubes favour small numbers. The step spreads the rows over all ids, and has no common factor with
 * their number. */
static uint64_t draw(struct random *random)
{
    const double unit = random_unit(random);

    return (uint64_t)(unit * unit * unit * ROWS) * 7919 % ROWS;
}

/* Table "a" is drawn, table "b" looks up row 1 each time. @ret_counts has ROWS counts of "a". */
static void write_trace(const char *path, uint64_t seed, uint64_t *ret_counts)
{
    const struct trace_table tables[] = {
        { .name = "a", .rows = ROWS, .dim = 4, .dtype = EMBTIER_DTYPE_F32 },
        { .name = "b", .rows = 0, .dim = 4, .dtype = EMBTIER_DTYPE_F32 },
    };
    _cleanup_(trace_writer_freep) struct trace_writer *writer = NULL;
    struct random random = { seed };
    struct err_msg msg = { { 0 } };
    uint64_t ids[2][BATCH];

    assert_int_equal(trace_writer_new(path, tables, 2, &writer, &msg), EMBTIER_OK);
    memset(ret_counts, 0, sizeof(*ret_counts) * ROWS);
    for (uint64_t batch = 0; batch < BATCHES; batch++) {
        for (uint32_t i = 0; i < BATCH; i++) {
            ids[0][i] = draw(&random);
            ids[1][i] = 1;
            ret_counts[ids[0][i]]++;
        }
        for (uint32_t table = 0; table < 2; table++) {
            const uint32_t end = BATCH;
            const struct trace_lookups lookups = { .batch = batch,
                                                   .table = table,
                                                   .bag_count = 1,
                                                   .id_count = BATCH,
                                                   .bag_ends = &end,
                                                   .ids = ids[table] };

            assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_OK);
        }
    }
    assert_int_equal(trace_writer_finish(writer, &msg), EMBTIER_OK);
}

/* A slow and simple judge: the order of row @at among all rows. */
static void check_hottest(const struct hot_rows *hot, const uint64_t *counts, uint64_t most)
{
    uint64_t distinct = 0;
    bool *const seen = calloc(ROWS, sizeof(*seen));

    for (uint64_t id = 0; id < ROWS; id++)
        distinct += counts[id] > 0;
    assert_int_equal(hot->distinct, distinct);
    assert_int_equal(hot->lookups, (uint64_t)BATCH * BATCHES);
    assert_int_equal(hot->count, MIN(distinct, most));
    assert_non_null(seen);
    for (uint64_t i = 0; i < hot->count; i++) {
        const struct hot_row *const row = &hot->rows[i];

        assert_true(row->id < ROWS && !seen[row->id]);
        seen[row->id] = true;
        assert_int_equal(row->lookups, counts[row->id]);
        if (i > 0 && row->lookups == hot->rows[i - 1].lookups)
            assert_true(row->id > hot->rows[i - 1].id);
        else if (i > 0)
            assert_true(row->lookups < hot->rows[i - 1].lookups);
    }
    for (uint64_t id = 0; hot->count > 0 && id < ROWS; id++) {
        const struct hot_row *const last = &hot->rows[hot->count - 1];

        if (!seen[id])
            assert_true(counts[id] < last->lookups ||
                        (counts[id] == last->lookups && id > last->id));
    }
    free(seen);
}

struct progress {
    uint64_t done;
    uint64_t calls;
};

static void note_progress(void *ctx, uint64_t done, uint64_t total, const char *unit)
{
    struct progress *const progress = ctx;

    assert_true(done >= progress->done && done <= total);
    assert_string_equal(unit, "bytes");
    progress->done = done;
    progress->calls++;
}

/* ---- Tests ---- */

/* With little memory, the trace is read many times. */
static void test_rows_are_those_that_counting_gives(void **state)
{
    static const uint64_t memories[] = { 0, 64 * KIB, 256 * KIB, MIB };
    static const uint64_t most[] = { 1, 100, 1000, ROWS + 1 };
    const struct trace_fixture *const fixture = *state;
    static uint64_t counts[ROWS];

    write_trace(fixture->path, 1, counts);
    for (uint32_t m = 0; m < ARRAY_LEN(memories); m++)
        for (uint32_t i = 0; i < ARRAY_LEN(most); i++) {
            const struct hottest_opts opts = { .table = "a",
                                               .rows = most[i],
                                               .memory_bytes = memories[m] };
            _cleanup_(hot_rows_freep) struct hot_rows *hot = NULL;
            struct err_msg msg = { { 0 } };
            const enum embtier_err err = hottest_rows(fixture->path, &opts, &hot, &msg);

            if (memories[m] > 0 && most[i] * 32 + 1024 * 32 > memories[m]) {
                assert_int_equal(err, EMBTIER_TOO_LARGE);
                assert_non_null(strstr(msg.text, "do not fit into"));
                continue;
            }
            assert_int_equal(err, EMBTIER_OK);
            check_hottest(hot, counts, most[i]);
        }
}

static void test_another_table_and_none(void **state)
{
    const struct trace_fixture *const fixture = *state;
    struct hottest_opts opts = { .table = "b", .rows = 5 };
    _cleanup_(hot_rows_freep) struct hot_rows *hot = NULL;
    _cleanup_(hot_rows_freep) struct hot_rows *none = NULL;
    static uint64_t counts[ROWS];
    struct err_msg msg = { { 0 } };

    write_trace(fixture->path, 2, counts);
    assert_int_equal(hottest_rows(fixture->path, &opts, &hot, &msg), EMBTIER_OK);
    assert_int_equal(hot->count, 1);
    assert_int_equal(hot->rows[0].id, 1);
    assert_int_equal(hot->rows[0].lookups, (uint64_t)BATCH * BATCHES);
    assert_string_equal(hot->table.name, "b");
    opts.table = "c";
    assert_int_equal(hottest_rows(fixture->path, &opts, &none, &msg), EMBTIER_NO_TABLE);
    assert_non_null(strstr(msg.text, "the trace has no table 'c'"));
    assert_null(none);
}

/* A pipe can be read once, which is enough for few rows only. */
static void test_a_pipe_is_read_once(void **state)
{
    const struct trace_fixture *const fixture = *state;
    static uint64_t counts[ROWS];
    char fifo[320], command[1024];

    write_trace(fixture->path, 3, counts);
    snprintf(fifo, sizeof(fifo), "%s/fifo", fixture->folder);
    snprintf(command, sizeof(command), "cat '%s' 2>/dev/null > '%s' &", fixture->path, fifo);
    for (uint32_t i = 0; i < 2; i++) {
        const struct hottest_opts opts = { .table = "a",
                                           .rows = 10,
                                           .memory_bytes = i == 0 ? 0 : 64 * KIB };
        _cleanup_(hot_rows_freep) struct hot_rows *hot = NULL;
        struct err_msg msg = { { 0 } };
        enum embtier_err err;

        assert_int_equal(mkfifo(fifo, 0600), 0);
        assert_int_equal(system(command), 0);
        err = hottest_rows(fifo, &opts, &hot, &msg);
        unlink(fifo);
        if (i == 0) {
            assert_int_equal(err, EMBTIER_OK);
            check_hottest(hot, counts, 10);
        } else {
            assert_int_equal(err, EMBTIER_INVALID);
            assert_non_null(strstr(msg.text, "this is no file that can be read again"));
        }
    }
}

/* Progress never goes back, though a pass may turn out to count fewer rows than it began with. */
static void test_progress_rises(void **state)
{
    const struct trace_table table = { .name = "a", .dim = 4, .dtype = EMBTIER_DTYPE_F32 };
    const struct trace_fixture *const fixture = *state;
    _cleanup_(trace_writer_freep) struct trace_writer *writer = NULL;
    _cleanup_(hot_rows_freep) struct hot_rows *hot = NULL;
    struct progress progress = { 0 };
    const struct hottest_opts opts = { .table = "a",
                                       .rows = 10,
                                       .memory_bytes = 4 * MIB,
                                       .progress = note_progress,
                                       .ctx = &progress };
    static uint64_t ids[65536];
    struct err_msg msg = { { 0 } };

    assert_int_equal(trace_writer_new(fixture->path, &table, 1, &writer, &msg), EMBTIER_OK);
    for (uint64_t batch = 0; batch < 80; batch++) { /* 40 MiB */
        const uint32_t end = ARRAY_LEN(ids);
        const struct trace_lookups lookups = {
            .batch = batch, .bag_count = 1, .id_count = end, .bag_ends = &end, .ids = ids
        };

        for (uint32_t i = 0; i < end; i++)
            ids[i] = i + batch * 4096;
        assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_OK);
    }
    assert_int_equal(trace_writer_finish(writer, &msg), EMBTIER_OK);
    assert_int_equal(hottest_rows(fixture->path, &opts, &hot, &msg), EMBTIER_OK);
    assert_int_equal(hot->distinct, 65536 + 79 * 4096);
    assert_int_equal(hot->rows[0].id, 15 * 4096); /* the first that 16 batches look up */
    assert_int_equal(hot->rows[0].lookups, 16);
    assert_true(progress.calls > 2); /* of one pass */
}

static void test_more_passes_than_allowed(void **state)
{
    const struct trace_table table = { .name = "a", .dim = 4, .dtype = EMBTIER_DTYPE_F32 };
    const struct trace_fixture *const fixture = *state;
    const struct hottest_opts opts = { .table = "a", .rows = 10, .memory_bytes = 64 * KIB };
    _cleanup_(trace_writer_freep) struct trace_writer *writer = NULL;
    struct hot_rows *hot = NULL;
    static uint64_t ids[65536];
    struct err_msg msg = { { 0 } };

    assert_int_equal(trace_writer_new(fixture->path, &table, 1, &writer, &msg), EMBTIER_OK);
    for (uint64_t batch = 0; batch < 32; batch++) {
        const uint32_t end = ARRAY_LEN(ids);
        const struct trace_lookups lookups = {
            .batch = batch, .bag_count = 1, .id_count = end, .bag_ends = &end, .ids = ids
        };

        for (uint32_t i = 0; i < end; i++)
            ids[i] = i + batch * end;
        assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_OK);
    }
    assert_int_equal(trace_writer_finish(writer, &msg), EMBTIER_OK);
    assert_int_equal(hottest_rows(fixture->path, &opts, &hot, &msg), EMBTIER_TOO_LARGE);
    assert_non_null(strstr(msg.text, "over 1024 passes; allow more memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows_are_those_that_counting_gives, trace_fixture_new,
                                        trace_fixture_free),
        cmocka_unit_test_setup_teardown(test_another_table_and_none, trace_fixture_new,
                                        trace_fixture_free),
        cmocka_unit_test_setup_teardown(test_a_pipe_is_read_once, trace_fixture_new,
                                        trace_fixture_free),
        cmocka_unit_test_setup_teardown(test_progress_rises, trace_fixture_new, trace_fixture_free),
        cmocka_unit_test_setup_teardown(test_more_passes_than_allowed, trace_fixture_new,
                                        trace_fixture_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
