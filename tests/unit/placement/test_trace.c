/* SPDX-License-Identifier: Apache-2.0 */
/* test_trace.c: does a trace file give back what was written, and does a bad one end in a clear
 * error? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <fcntl.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "placement/trace/trace_reader.h"
#include "placement/trace/trace_writer.h"
#include "tests/unit/placement/trace_fixture.h"

static const struct trace_table tables[] = {
    { "users", 1000, 64, EMBTIER_DTYPE_F32 },
    { "words-of.all_kinds", 0, 128, EMBTIER_DTYPE_BF16 },
};

#define BATCHES   3
#define BIG_BAGS  (TRACE_BLOCK_BAGS_MAX + 10)
#define BIG_BAG   (3 * TRACE_BLOCK_IDS_MAX + 5)
#define BLOCKS_AT (24 + 2 * 16 + 8 + 24 + 8) /* header, records, names, checksum */

static struct trace_writer *writer_of(const char *path)
{
    struct trace_writer *writer = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(trace_writer_new(path, tables, ARRAY_LEN(tables), &writer, &msg), EMBTIER_OK);
    return writer;
}

static void add(struct trace_writer *writer, uint64_t batch, uint32_t table, bool is_update,
                uint32_t bag_count, const uint32_t *bag_ends, const uint64_t *ids)
{
    const struct trace_lookups lookups = { .batch = batch,
                                           .table = table,
                                           .is_update = is_update,
                                           .bag_count = bag_count,
                                           .id_count = bag_ends[bag_count - 1],
                                           .bag_ends = bag_ends,
                                           .ids = ids };
    struct err_msg msg = { { 0 } };

    assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_OK);
}

/* Writes a trace of two blocks a batch. */
static void write_small(const char *path)
{
    _cleanup_(trace_writer_freep) struct trace_writer *writer = writer_of(path);
    struct err_msg msg = { { 0 } };

    for (uint64_t batch = 0; batch < BATCHES; batch++) {
        add(writer, batch, 0, true, 3, (uint32_t[]){ 2, 2, 3 }, (uint64_t[]){ batch, 999, 7 });
        add(writer, batch, 1, false, 1, (uint32_t[]){ 1 }, (uint64_t[]){ UINT64_MAX });
    }
    assert_int_equal(trace_writer_finish(writer, &msg), EMBTIER_OK);
}

/* Reads to the end, or to the first error, whose text is in *@ret_msg. */
static enum embtier_err read_all(const char *path, struct err_msg *ret_msg)
{
    _cleanup_(trace_reader_freep) struct trace_reader *reader = NULL;
    struct trace_lookups lookups;
    bool end = false;

    *ret_msg = (struct err_msg){ { 0 } };
    TRY(trace_reader_open(path, &reader, ret_msg));
    while (!end)
        TRY(trace_reader_next(reader, &lookups, &end, ret_msg));
    return EMBTIER_OK;
}

static void test_reads_what_was_written(void **state)
{
    const struct trace_fixture *const fixture = *state;
    _cleanup_(trace_reader_freep) struct trace_reader *reader = NULL;
    const struct trace_table *got;
    struct trace_lookups lookups;
    struct err_msg msg;
    uint32_t count;
    bool end;

    write_small(fixture->path);
    assert_int_equal(trace_reader_open(fixture->path, &reader, &msg), EMBTIER_OK);
    got = trace_reader_tables(reader, &count);
    assert_int_equal(count, 2);
    for (uint32_t i = 0; i < count; i++) {
        assert_string_equal(got[i].name, tables[i].name);
        assert_int_equal(got[i].rows, tables[i].rows);
        assert_int_equal(got[i].dim, tables[i].dim);
        assert_int_equal(got[i].dtype, tables[i].dtype);
    }
    for (uint64_t batch = 0; batch < BATCHES; batch++) {
        assert_int_equal(trace_reader_next(reader, &lookups, &end, &msg), EMBTIER_OK);
        assert_false(end);
        assert_int_equal(lookups.batch, batch);
        assert_int_equal(lookups.table, 0);
        assert_true(lookups.is_update);
        assert_int_equal(lookups.bag_count, 3);
        assert_memory_equal(lookups.bag_ends, ((uint32_t[]){ 2, 2, 3 }), 12);
        assert_memory_equal(lookups.ids, ((uint64_t[]){ batch, 999, 7 }), 24);
        assert_int_equal(trace_reader_next(reader, &lookups, &end, &msg), EMBTIER_OK);
        assert_int_equal(lookups.table, 1);
        assert_false(lookups.is_update);
        assert_int_equal(lookups.ids[0], UINT64_MAX);
    }
    assert_int_equal(trace_reader_next(reader, &lookups, &end, &msg), EMBTIER_OK);
    assert_true(end);
    assert_int_equal(trace_reader_offset(reader), trace_reader_file_bytes(reader));
}

/* Bags and ids beyond a block's limits come back as they went in, in several blocks. */
static void test_splits_large_batches(void **state)
{
    const struct trace_fixture *const fixture = *state;
    _cleanup_(trace_writer_freep) struct trace_writer *writer = writer_of(fixture->path);
    _cleanup_(trace_reader_freep) struct trace_reader *reader = NULL;
    _cleanup_(freep) uint64_t *ids = malloc(sizeof(*ids) * (BIG_BAG + BIG_BAGS));
    _cleanup_(freep) uint32_t *ends = malloc(sizeof(*ends) * BIG_BAGS);
    struct trace_lookups lookups;
    struct err_msg msg = { { 0 } };
    uint64_t bags = 0, seen = 0;
    bool end = false;

    for (uint32_t i = 0; i < BIG_BAGS; i++)
        ends[i] = BIG_BAG + i / 3;
    for (uint32_t i = 0; i < ends[BIG_BAGS - 1]; i++)
        ids[i] = i;
    add(writer, 9, 1, true, BIG_BAGS, ends, ids);
    assert_int_equal(trace_writer_finish(writer, &msg), EMBTIER_OK);
    assert_int_equal(trace_reader_open(fixture->path, &reader, &msg), EMBTIER_OK);
    for (;;) {
        assert_int_equal(trace_reader_next(reader, &lookups, &end, &msg), EMBTIER_OK);
        if (end)
            break;
        bags -= lookups.continues ? 1 : 0;
        for (uint32_t i = 0; i < lookups.bag_count; i++, bags++)
            if (i + 1 < lookups.bag_count) /* the last one may go on */
                assert_int_equal(seen + lookups.bag_ends[i], ends[bags]);
        for (uint32_t i = 0; i < lookups.id_count; i++, seen++)
            assert_int_equal(lookups.ids[i], seen);
    }
    assert_int_equal(bags, BIG_BAGS);
    assert_int_equal(seen, ends[BIG_BAGS - 1]);
}

static void test_refuses_bad_lookups(void **state)
{
    const struct trace_fixture *const fixture = *state;
    _cleanup_(trace_writer_freep) struct trace_writer *writer = writer_of(fixture->path);
    const uint32_t ends[] = { 2, 1 }, one[] = { 1 };
    const uint64_t ids[] = { 1000, 0 };
    struct trace_lookups lookups = {
        .batch = 5, .bag_count = 2, .id_count = 1, .bag_ends = ends, .ids = ids
    };
    struct err_msg msg = { { 0 } };

    assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_BAG_RANGE);
    lookups.bag_count = 0;
    assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_BAG_RANGE);
    lookups.bag_count = 1;
    lookups.bag_ends = one;
    assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_ID_RANGE);
    assert_string_equal(msg.text, "id 1000; the table has 1000 rows");
    lookups.table = 2;
    assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_INVALID);
    lookups.table = 1;
    lookups.continues = true;
    assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_INVALID);
    lookups.continues = false;
    assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_OK);
    lookups.batch = 4;
    assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_INVALID);
    assert_string_equal(msg.text, "batch 4 comes after batch 5");
}

/* Lookups of no bags take no block, so they are nothing that a bag could go on after. */
static void test_no_bag_goes_on_in_another_batch(void **state)
{
    const struct trace_fixture *const fixture = *state;
    _cleanup_(trace_writer_freep) struct trace_writer *writer = writer_of(fixture->path);
    struct trace_lookups lookups = { .batch = 5, .table = 1 };
    struct err_msg msg = { { 0 } };

    add(writer, 4, 0, false, 1, (uint32_t[]){ 1 }, (uint64_t[]){ 7 });
    assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_OK);
    lookups = (struct trace_lookups){ .batch = 5,
                                      .continues = true,
                                      .bag_count = 1,
                                      .id_count = 1,
                                      .bag_ends = (uint32_t[]){ 1 },
                                      .ids = (uint64_t[]){ 8 } };
    assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_INVALID);
    assert_string_equal(msg.text, "there is no bag before that could go on here");
    assert_int_equal(trace_writer_finish(writer, &msg), EMBTIER_OK);
    assert_int_equal(read_all(fixture->path, &msg), EMBTIER_OK);
}

/* A file has its name when it is finished, an unfinished one goes, and one that exists stays. */
static void test_keeps_old_files(void **state)
{
    const struct trace_fixture *const fixture = *state;
    _cleanup_(trace_writer_freep) struct trace_writer *writer = writer_of(fixture->path);
    struct trace_writer *other = writer_of(fixture->path);
    struct err_msg msg = { { 0 } };

    assert_int_equal(access(fixture->path, F_OK), -1);
    trace_writer_free(other);
    assert_int_equal(access(fixture->path, F_OK), -1);
    other = writer_of(fixture->path);
    assert_int_equal(trace_writer_finish(writer, &msg), EMBTIER_OK);
    assert_int_equal(trace_writer_finish(other, &msg), EMBTIER_EXISTS);
    trace_writer_free(other);
    assert_int_equal(trace_writer_new(fixture->path, tables, 1, &other, &msg), EMBTIER_EXISTS);
    assert_int_equal(read_all(fixture->path, &msg), EMBTIER_OK);
}

static void test_refuses_bad_tables(void **state)
{
    const struct trace_fixture *const fixture = *state;
    struct trace_writer *writer = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(trace_writer_new(fixture->path, tables, 0, &writer, &msg), EMBTIER_INVALID);
    assert_int_equal(trace_writer_new(fixture->path, tables, TRACE_TABLES_MAX + 1, &writer, &msg),
                     EMBTIER_INVALID);
    for (int i = 0; i < 3; i++) {
        struct trace_table table = tables[0];

        if (i == 0)
            table.name[0] = '/';
        else if (i == 1)
            table.dim = 0;
        else
            table.dtype = (enum embtier_dtype)77;
        assert_int_equal(trace_writer_new(fixture->path, &table, 1, &writer, &msg),
                         EMBTIER_INVALID);
    }
}

/* ---- Damaged files ---- */

static size_t load(const char *path, unsigned char *ret_bytes, size_t room)
{
    const int fd = open(path, O_RDONLY);
    const ssize_t got = read(fd, ret_bytes, room);

    close(fd);
    assert_true(got > 0 && (size_t)got < room);
    return (size_t)got;
}

static void store(const char *path, const unsigned char *bytes, size_t count)
{
    const int fd = open(path, O_WRONLY | O_TRUNC);

    assert_int_equal(write(fd, bytes, count), (ssize_t)count);
    close(fd);
}

static void test_refuses_every_cut(void **state)
{
    const struct trace_fixture *const fixture = *state;
    unsigned char bytes[1024];
    struct err_msg msg;
    size_t count;

    write_small(fixture->path);
    count = load(fixture->path, bytes, sizeof(bytes));
    for (size_t cut = 0; cut < count; cut++) {
        store(fixture->path, bytes, cut);
        assert_int_equal(read_all(fixture->path, &msg), EMBTIER_CORRUPT);
        assert_non_null(strstr(msg.text, ": byte "));
        assert_non_null(strstr(msg.text, "cut short"));
    }
    bytes[count] = 0;
    store(fixture->path, bytes, count + 1);
    assert_int_equal(read_all(fixture->path, &msg), EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, "bytes follow the end block"));
}

static void test_finds_every_turned_bit(void **state)
{
    const struct trace_fixture *const fixture = *state;
    unsigned char bytes[1024];
    struct err_msg msg;
    size_t count;

    write_small(fixture->path);
    count = load(fixture->path, bytes, sizeof(bytes));
    for (size_t bit = 0; bit < count * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        store(fixture->path, bytes, count);
        assert_int_not_equal(read_all(fixture->path, &msg), EMBTIER_OK);
        assert_non_null(strstr(msg.text, ": byte "));
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

/* Puts @value at byte @at, and makes the sums of header and first block right again. */
static void bend(const char *path, size_t at, uint32_t value, size_t bytes_of_value)
{
    unsigned char bytes[1024];
    const size_t count = load(path, bytes, sizeof(bytes));
    const size_t block = trace_block_bytes(3, 3) - TRACE_CHECKSUM_BYTES;
    uint64_t checksum;

    memcpy(bytes + at, &value, bytes_of_value);
    checksum = XXH3_64bits(bytes, BLOCKS_AT - 8);
    memcpy(bytes + BLOCKS_AT - 8, &checksum, sizeof(checksum));
    checksum = XXH3_64bits(bytes + BLOCKS_AT, block);
    memcpy(bytes + BLOCKS_AT + block, &checksum, sizeof(checksum));
    store(path, bytes, count);
}

static void test_explains_bad_values(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
        size_t bytes;
        enum embtier_err err;
        const char *text;
    } cases[] = {
        { 0, 0, 1, EMBTIER_CORRUPT, "byte 0: this is no trace" },
        { 8, 2, 4, EMBTIER_VERSION, "byte 8: version 2 of the format is newer than 1" },
        { 8, 0, 4, EMBTIER_CORRUPT, "byte 8: version 0" },
        { 12, 8193, 4, EMBTIER_TOO_LARGE, "byte 12: 8193 tables; allowed: at most 8192" },
        { 12, 0, 4, EMBTIER_CORRUPT, "byte 12: no tables" },
        { 16, UINT32_MAX, 4, EMBTIER_CORRUPT, "byte 16: the list of tables has 4294967295 bytes" },
        { 12, 1, 4, EMBTIER_CORRUPT, "byte 48: bytes follow the last table" },
        { 12, 3, 4, EMBTIER_CORRUPT, "byte 88: the list of tables is too short" },
        { 32, 0, 4, EMBTIER_CORRUPT, "byte 32: table 'users': dim 0" },
        { 36, 9, 1, EMBTIER_CORRUPT, "byte 36: table 'users': unknown dtype 9" },
        { 37, 0, 1, EMBTIER_CORRUPT, "byte 24: a table's name is not allowed" },
        { 40, '/', 1, EMBTIER_CORRUPT, "byte 24: a table's name is not allowed" },
        { 20, 5, 4, EMBTIER_CORRUPT, "byte 20: 0x5 in a reserved field" },
        { 38, 9, 2, EMBTIER_CORRUPT, "byte 38: table 'users': 0x9 in a reserved field" },
        { 42, 0, 1, EMBTIER_CORRUPT, "byte 24: a table's name is not allowed" },
        { 47, 1, 1, EMBTIER_CORRUPT, "byte 47: table 'users': a byte that is not 0 follows" },
        { BLOCKS_AT + 44, 1, 4, EMBTIER_CORRUPT, "byte 140: bytes that are not 0 follow the bag" },
        { BLOCKS_AT, 7, 4, EMBTIER_CORRUPT, "byte 96: no block begins here" },
        { BLOCKS_AT + 4, 3, 4, EMBTIER_CORRUPT, "byte 100: unknown kind of block, 3" },
        { BLOCKS_AT + 16, 2, 4, EMBTIER_CORRUPT, "byte 112: table 2; the trace has 2" },
        { BLOCKS_AT + 20, 4, 4, EMBTIER_CORRUPT, "byte 116: unknown flags 0x4" },
        { BLOCKS_AT + 20, 2, 4, EMBTIER_CORRUPT, "byte 116: there is no bag before" },
        { BLOCKS_AT + 24, UINT32_MAX, 4, EMBTIER_CORRUPT, "byte 120: 4294967295 bags" },
        { BLOCKS_AT + 28, UINT32_MAX, 4, EMBTIER_CORRUPT, "byte 124: 4294967295 ids" },
        { BLOCKS_AT + 36, 1, 4, EMBTIER_CORRUPT, "byte 132: a bag ends at 1; allowed: 2 to 3" },
        { BLOCKS_AT + 40, 2, 4, EMBTIER_CORRUPT, "byte 124: 1 ids are in no bag" },
        { BLOCKS_AT + 48, 1000, 4, EMBTIER_CORRUPT,
          "byte 144: id 1000; table 'users' has 1000 rows" },
        { BLOCKS_AT + 8, 1, 4, EMBTIER_CORRUPT, "batch 0 comes after batch 1" },
    };
    const struct trace_fixture *const fixture = *state;
    struct err_msg msg;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        unlink(fixture->path);
        write_small(fixture->path);
        bend(fixture->path, cases[i].at, cases[i].value, cases[i].bytes);
        assert_int_equal(read_all(fixture->path, &msg), cases[i].err);
        if (!strstr(msg.text, cases[i].text))
            fail_msg("case %zu: %s", i, msg.text);
    }
}

/* Blocks are whole and their sums are right, but one is missing, or the end block counts otherwise.
 */
static void test_counts_what_came_before_the_end(void **state)
{
    const struct trace_fixture *const fixture = *state;
    const size_t block = trace_block_bytes(3, 3);
    unsigned char bytes[1024], bent[1024];
    struct err_msg msg;
    size_t count, end_at;

    write_small(fixture->path);
    count = load(fixture->path, bytes, sizeof(bytes));
    end_at = count - sizeof(struct trace_end_block) - TRACE_CHECKSUM_BYTES;
    memcpy(bent, bytes, BLOCKS_AT);
    memcpy(bent + BLOCKS_AT, bytes + BLOCKS_AT + block, count - BLOCKS_AT - block);
    store(fixture->path, bent, count - block);
    assert_int_equal(read_all(fixture->path, &msg), EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, "6 blocks, 12 bags and 12 ids; before it came 5, 9 and 9"));
    for (size_t at = 8; at < sizeof(struct trace_end_block); at += 8) {
        uint64_t checksum;

        memcpy(bent, bytes, count);
        bent[end_at + at]++;
        checksum = XXH3_64bits(bent + end_at, sizeof(struct trace_end_block));
        memcpy(bent + count - TRACE_CHECKSUM_BYTES, &checksum, sizeof(checksum));
        store(fixture->path, bent, count);
        assert_int_equal(read_all(fixture->path, &msg), EMBTIER_CORRUPT);
        assert_non_null(strstr(msg.text, "the end block counts "));
        assert_non_null(strstr(msg.text, "before it came 6, 12 and 12"));
    }
}

/* A block of no bags, which the writer does not write, comes before one that goes on. */
static void test_nothing_goes_on_after_no_bags(void **state)
{
    const struct trace_fixture *const fixture = *state;
    struct trace_block_header empty = { .magic = TRACE_BLOCK_MAGIC, .kind = TRACE_BLOCK_LOOKUPS };
    const size_t block = trace_block_bytes(3, 3) - TRACE_CHECKSUM_BYTES;
    unsigned char bytes[1024], bent[1024];
    struct err_msg msg;
    uint64_t checksum;
    size_t count;

    write_small(fixture->path);
    count = load(fixture->path, bytes, sizeof(bytes));
    bytes[BLOCKS_AT + offsetof(struct trace_block_header, flags)] |= TRACE_FLAG_CONTINUES;
    checksum = XXH3_64bits(bytes + BLOCKS_AT, block);
    memcpy(bytes + BLOCKS_AT + block, &checksum, sizeof(checksum));
    checksum = XXH3_64bits(&empty, sizeof(empty));
    memcpy(bent, bytes, BLOCKS_AT);
    memcpy(bent + BLOCKS_AT, &empty, sizeof(empty));
    memcpy(bent + BLOCKS_AT + sizeof(empty), &checksum, sizeof(checksum));
    memcpy(bent + BLOCKS_AT + sizeof(empty) + sizeof(checksum), bytes + BLOCKS_AT,
           count - BLOCKS_AT);
    store(fixture->path, bent, count + sizeof(empty) + sizeof(checksum));
    assert_int_equal(read_all(fixture->path, &msg), EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, "byte 156: there is no bag before that could go on here"));
}

/* A file whose tables "users" and "userz" get the same name. */
static void test_refuses_a_name_twice(void **state)
{
    const struct trace_fixture *const fixture = *state;
    struct trace_table twins[] = { tables[0], tables[0] };
    const size_t summed = sizeof(struct trace_file_header) + 2 * 24;
    struct trace_writer *writer = NULL;
    struct err_msg msg = { { 0 } };
    unsigned char bytes[1024];
    uint64_t checksum;
    size_t count;

    assert_int_equal(trace_writer_new(fixture->path, twins, 2, &writer, &msg), EMBTIER_INVALID);
    assert_string_equal(msg.text, "two tables have the name 'users'");
    twins[1].name[4] = 'z';
    assert_int_equal(trace_writer_new(fixture->path, twins, 2, &writer, &msg), EMBTIER_OK);
    assert_int_equal(trace_writer_finish(writer, &msg), EMBTIER_OK);
    trace_writer_free(writer);
    assert_int_equal(read_all(fixture->path, &msg), EMBTIER_OK);
    count = load(fixture->path, bytes, sizeof(bytes));
    bytes[summed - 8 + 4] = 's';
    checksum = XXH3_64bits(bytes, summed);
    memcpy(bytes + summed, &checksum, sizeof(checksum));
    store(fixture->path, bytes, count);
    assert_int_equal(read_all(fixture->path, &msg), EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, "byte 48: two tables have the name 'users'"));
}

static void test_names_the_file_that_it_cannot_open(void **state)
{
    const struct trace_fixture *const fixture = *state;
    struct err_msg msg;

    assert_int_equal(read_all(fixture->path, &msg), EMBTIER_NOT_FOUND);
    assert_non_null(strstr(msg.text, fixture->path));
    assert_int_not_equal(read_all(fixture->folder, &msg), EMBTIER_OK);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, trace_fixture_new, trace_fixture_free)
    const struct CMUnitTest tests[] = {
        TEST(test_reads_what_was_written),
        TEST(test_splits_large_batches),
        TEST(test_refuses_bad_lookups),
        TEST(test_no_bag_goes_on_in_another_batch),
        TEST(test_keeps_old_files),
        TEST(test_refuses_bad_tables),
        TEST(test_refuses_every_cut),
        TEST(test_finds_every_turned_bit),
        TEST(test_explains_bad_values),
        TEST(test_counts_what_came_before_the_end),
        TEST(test_nothing_goes_on_after_no_bags),
        TEST(test_refuses_a_name_twice),
        TEST(test_names_the_file_that_it_cannot_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
