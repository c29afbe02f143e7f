/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the bytes worked out from the format of table files are those that RocksDB writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/macros.h"
#include "store/database/row_format.h"
#include "store/rocksdb/rocksdb_setup.h"
#include "store/rocksdb/table_size.h"

/* Beside blocks of rows, index and filter: properties, their index, a footer. */
#define REST_BYTES 4096

/* Writes the rows to a file with the store's options, and returns its bytes. */
static uint64_t written_bytes(const struct table_rows *rows)
{
    const struct config config = { .rocksdb.bloom_bits_per_key = rows->filter_bits };
    const uint32_t value_bytes = (uint32_t)sizeof(struct stored_row_head) + rows->row_bytes;
    char path[] = "table-size-XXXXXX";
    const int fd = mkstemp(path);
    char *const value = calloc(1, value_bytes);
    rocksdb_options_t *const options = rocksdb_options_create();
    rocksdb_envoptions_t *const env = rocksdb_envoptions_create();
    rocksdb_cache_t *const cache = rocksdb_cache_create_lru(MIB);
    rocksdb_sstfilewriter_t *writer;
    char *error = NULL;
    struct stat info;

    assert_true(fd >= 0 && value);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_table_options_apply(options, cache, &config);
    writer = rocksdb_sstfilewriter_create(env, options);
    rocksdb_sstfilewriter_open(writer, path, &error);
    assert_null(error);
    for (uint64_t i = 0; i < rows->rows; i++) {
        const struct row_key key = row_key_make(7, i * rows->id_step);

        rocksdb_sstfilewriter_put(writer, (const char *)key.bytes, sizeof(key.bytes), value,
                                  value_bytes, &error);
        assert_null(error);
    }
    rocksdb_sstfilewriter_finish(writer, &error);
    assert_null(error);
    assert_int_equal(stat(path, &info), 0);
    rocksdb_sstfilewriter_destroy(writer);
    rocksdb_cache_destroy(cache);
    rocksdb_envoptions_destroy(env);
    rocksdb_options_destroy(options);
    free(value);
    close(fd);
    unlink(path);
    return (uint64_t)info.st_size;
}

static void test_bytes_are_those_of_a_written_file(void **state)
{
    static const struct table_rows all[] = {
        { 100000, 1, 4, 10, false },       { 100000, 8, 64, 10, false },
        { 20000, 3, 512, 10, false },      { 20000, 300, 516, 0, false },
        { 5000, 8, 4084, 20, false },      { 5000, 4, 4100, 10, false },
        { 1000, 70000, 30000, 10, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const struct table_size size = table_size_of(&all[i]);
        const uint64_t written = written_bytes(&all[i]);
        const uint64_t expected = table_size_sum(&size);

        assert_in_range(written, expected - expected / 200, expected + expected / 200 + REST_BYTES);
    }
}

static void test_many_rows_are_like_a_sample_of_them(void **state)
{
    const struct table_rows few = { 1 << 16, 8, 256, 10, false };
    const struct table_rows many = { UINT64_C(1) << 40, 8, 256, 10, false };
    const uint64_t factor = many.rows / few.rows;
    const struct table_size a = table_size_of(&few), b = table_size_of(&many);

    (void)state;
    assert_in_range(b.data_bytes / factor, a.data_bytes - 1, a.data_bytes);
    assert_in_range(b.filter_bytes / factor, a.filter_bytes - a.filter_bytes / 50, a.filter_bytes);
}

static void test_no_rows_take_nothing_and_no_filter_is_none(void **state)
{
    const struct table_rows none = { 0, 1, 64, 10, false };
    const struct table_rows plain = { 1000, 1, 64, 0, false };
    const struct table_size size = table_size_of(&none);

    (void)state;
    assert_int_equal(table_size_sum(&size), 0);
    assert_int_equal(table_size_of(&plain).filter_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_those_of_a_written_file),
        cmocka_unit_test(test_many_rows_are_like_a_sample_of_them),
        cmocka_unit_test(test_no_rows_take_nothing_and_no_filter_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
