/* SPDX-License-Identifier: Apache-2.0 */
/* Are tables and shared bytes together all that was written, over drops and restarts, and does a
 * damaged file cost nothing else? */
#include "tests/unit/daemon/endurance/endurance_fixture.h"

#include "daemon/endurance/table_histories.h"
#include "store/files/durable_file.h"
#include "tests/seed.h"

#define NOW (UINT64_C(20000) * DAY_MS + 90000)

static struct table_histories *histories;

static int setup(void **state)
{
    (void)state;
    make_root();
    assert_int_equal(table_histories_new(root, NOW, &histories), EMBTIER_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    table_histories_free(histories);
    return remove_root();
}

static void restart(uint64_t now_ms)
{
    table_histories_free(histories);
    assert_int_equal(table_histories_new(root, now_ms, &histories), EMBTIER_OK);
}

static void save(void)
{
    struct err_msg msg = { { 0 } };

    assert_int_equal(table_histories_save(histories, &msg), EMBTIER_OK);
}

static struct table_bytes table(uint32_t table_id, uint64_t bytes)
{
    struct table_bytes written = { .table_id = table_id, .bytes = bytes };

    snprintf(written.uuid, sizeof(written.uuid), "%032x", table_id * 7919);
    return written;
}

/* A round with these tables; @all bytes were written. */
static void look(const struct table_bytes *tables, uint32_t count, uint64_t all, uint64_t now_ms)
{
    table_histories_begin(histories);
    table_histories_add(histories, tables, count, now_ms);
    table_histories_end(histories, all, true, now_ms);
}

static uint64_t total_of(uint32_t table_id)
{
    struct table_history history;

    assert_true(table_histories_get(histories, table_id, &history));
    return history.past.total_bytes;
}

static uint64_t window_of(uint32_t table_id, enum write_window window, uint64_t now_ms)
{
    struct table_history history;

    assert_true(table_histories_get(histories, table_id, &history));
    return table_history_rate(&history, window, now_ms).bytes;
}

static uint64_t shared_total(void)
{
    struct table_history history;

    table_histories_shared(histories, &history);
    return history.past.total_bytes;
}

static void test_bytes_of_no_table_are_shared(void **state)
{
    struct table_history history;

    (void)state;
    look((struct table_bytes[]){ table(3, 100), table(8, 50) }, 2, 175, NOW);
    assert_int_equal(total_of(3), 100);
    assert_int_equal(total_of(8), 50);
    assert_int_equal(shared_total(), 25);
    look((struct table_bytes[]){ table(3, 140), table(5, 7), table(8, 50) }, 3, 222,
         NOW + MINUTE_MS);
    assert_int_equal(total_of(3), 140);
    assert_int_equal(total_of(5), 7);
    assert_int_equal(window_of(3, WRITE_HOUR, NOW + MINUTE_MS), 140);
    assert_int_equal(shared_total(), 25);
    assert_false(table_histories_get(histories, 4, &history));
}

/* The kernel may count a log before the table of its rows is known. */
static void test_bytes_that_were_shared_too_early_are_given_back(void **state)
{
    (void)state;
    look((struct table_bytes[]){ table(1, 0) }, 1, 60, NOW);
    assert_int_equal(shared_total(), 60);
    look((struct table_bytes[]){ table(1, 100) }, 1, 110, NOW + MINUTE_MS);
    look((struct table_bytes[]){ table(1, 100) }, 1, 200, NOW + 2 * MINUTE_MS);
    assert_int_equal(total_of(1) + shared_total(), 200);
}

static void test_bytes_of_a_dropped_table_become_shared(void **state)
{
    struct table_history history;

    (void)state;
    look((struct table_bytes[]){ table(1, 100), table(2, 30) }, 2, 130, NOW);
    look((struct table_bytes[]){ table(2, 40) }, 1, 145, NOW + MINUTE_MS);
    assert_false(table_histories_get(histories, 1, &history));
    assert_int_equal(shared_total(), 105);
    table_histories_shared(histories, &history);
    assert_int_equal(table_history_rate(&history, WRITE_DAY, NOW + MINUTE_MS).bytes, 105);
    table_histories_begin(histories); /* memory lacks for the list */
    table_histories_end(histories, 145, false, NOW + 2 * MINUTE_MS);
    assert_int_equal(total_of(2), 40);
}

static void test_another_table_with_the_same_number_begins_anew(void **state)
{
    struct table_bytes other = table(1, 20);

    (void)state;
    look((struct table_bytes[]){ table(1, 100) }, 1, 100, NOW);
    memset(other.uuid, 'f', TABLE_UUID_CHARS);
    look(&other, 1, 120, NOW + MINUTE_MS);
    assert_int_equal(total_of(1), 20);
    assert_int_equal(shared_total(), 100);
}

static void test_histories_outlive_the_server(void **state)
{
    (void)state;
    look((struct table_bytes[]){ table(1, 100), table(70, 30) }, 2, 140, NOW);
    save();
    restart(NOW + HOUR_MS);
    assert_int_equal(total_of(1), 100);
    look((struct table_bytes[]){ table(1, 5), table(70, 0) }, 2, 6, NOW + 2 * HOUR_MS);
    assert_int_equal(total_of(1), 105);
    assert_int_equal(total_of(70), 30);
    assert_int_equal(shared_total(), 11);
    assert_int_equal(window_of(1, WRITE_NOW, NOW + 2 * HOUR_MS), 5);
    assert_int_equal(window_of(1, WRITE_HOUR, NOW + 2 * HOUR_MS), 5);
    assert_int_equal(window_of(1, WRITE_DAY, NOW + 2 * HOUR_MS), 105);
    assert_int_equal(window_of(1, WRITE_WEEK, NOW + 2 * HOUR_MS), 105);
}

/* Thousands of tables may write, and a server that does nothing must not write for that. */
static void test_nothing_is_saved_while_nothing_is_written(void **state)
{
    char path[PATH_MAX];

    (void)state;
    root_path("/" TABLE_HISTORIES_FILE, path);
    save();
    assert_int_equal(access(path, F_OK), -1);
    look((struct table_bytes[]){ table(1, 100) }, 1, 100, NOW);
    save();
    assert_int_equal(unlink(path), 0);
    look((struct table_bytes[]){ table(1, 100) }, 1, 100, NOW + MINUTE_MS);
    save();
    assert_int_equal(access(path, F_OK), -1);
    table_histories_note_own(histories, 40); /* of the save */
    look((struct table_bytes[]){ table(1, 100) }, 1, 130, NOW + 2 * MINUTE_MS);
    look((struct table_bytes[]){ table(1, 100) }, 1, 140, NOW + 3 * MINUTE_MS);
    save();
    assert_int_equal(access(path, F_OK), -1);
    look((struct table_bytes[]){ table(1, 100) }, 1, 141, NOW + 4 * MINUTE_MS);
    save();
    assert_int_equal(access(path, F_OK), 0);
}

static void test_there_are_so_many_at_most(void **state)
{
    static struct table_bytes tables[TABLE_HISTORIES_MAX + 1000];
    struct table_history history;
    char path[PATH_MAX];
    struct stat info;

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(tables); i++)
        tables[i] = table(i + 1, UINT64_C(1) << 40);
    look(tables, ARRAY_LEN(tables), (uint64_t)ARRAY_LEN(tables) << 40, NOW);
    assert_false(table_histories_get(histories, TABLE_HISTORIES_MAX + 1, &history));
    assert_int_equal(shared_total(), UINT64_C(1000) << 40);
    save();
    root_path("/" TABLE_HISTORIES_FILE, path);
    assert_int_equal(stat(path, &info), 0);
    assert_true((size_t)info.st_size < DURABLE_FILE_BYTES_MAX / 8);
    restart(NOW);
    assert_int_equal(total_of(TABLE_HISTORIES_MAX), UINT64_C(1) << 40);
}

static size_t read_file(char *text, size_t room)
{
    char path[PATH_MAX];
    FILE *file;
    size_t count;

    root_path("/" TABLE_HISTORIES_FILE, path);
    file = fopen(path, "re");
    assert_non_null(file);
    count = fread(text, 1, room - 1, file);
    fclose(file);
    text[count] = '\0';
    return count;
}

static void expect_damage(const char *text)
{
    struct table_history history;
    char path[PATH_MAX];

    put("/" TABLE_HISTORIES_FILE, text);
    restart(NOW);
    assert_false(table_histories_get(histories, 1, &history));
    assert_int_equal(shared_total(), 0);
    root_path("/" TABLE_HISTORIES_FILE ".damaged", path);
    assert_int_equal(unlink(path), 0);
    look((struct table_bytes[]){ table(1, 9) }, 1, 9, NOW); /* it goes on */
    save();
}

static void test_a_damaged_file_is_set_aside(void **state)
{
    static char text[64 << 10], cut[64 << 10];
    size_t count;

    (void)state;
    look((struct table_bytes[]){ table(1, 100), table(2, 30) }, 2, 140, NOW);
    save();
    count = read_file(text, sizeof(text));
    assert_true(count > 400);
    for (size_t length = 0; length < count - 1; length += 41) {
        memcpy(cut, text, length);
        cut[length] = '\0';
        expect_damage(cut);
    }
    for (size_t at = 0; at < count; at += 37) {
        memcpy(cut, text, count + 1);
        cut[at] ^= 1;
        expect_damage(cut);
    }
    put("/" TABLE_HISTORIES_FILE, text); /* it was the text */
    restart(NOW);
    assert_int_equal(total_of(1), 100);
}

/* So many bytes are never written, but a file may say so. */
static void test_numbers_stay_such_that_a_file_holds_them(void **state)
{
    struct table_history history, other, read;
    char text[TABLE_HISTORY_TEXT_BYTES];

    (void)state;
    table_history_begin(&history, NOW);
    history.past.total_bytes = WRITE_TOTAL_MAX;
    for (uint32_t i = 0; i < TABLE_HISTORY_BUCKETS; i++)
        history.buckets[i] = WRITE_BUCKET_MAX;
    other = history;
    table_history_add(&history, NOW, 1000);
    table_history_join(&history, &other);
    assert_int_equal(history.past.total_bytes, WRITE_TOTAL_MAX);
    table_history_print(&history, text);
    assert_true(table_history_parse(text, &read));
    assert_memory_equal(read.buckets, history.buckets, sizeof(read.buckets));
}

static void test_other_text_is_no_buckets(void **state)
{
    struct table_history history, read;
    char text[TABLE_HISTORY_TEXT_BYTES];
    size_t length;

    (void)state;
    table_history_begin(&history, NOW);
    table_history_add(&history, NOW, 77);
    table_history_print(&history, text);
    read = history;
    memset(read.buckets, 0xff, sizeof(read.buckets));
    assert_true(table_history_parse(text, &read));
    assert_memory_equal(&read, &history, sizeof(read));
    length = strlen(text);
    for (size_t cut = 0; cut < length; cut++) {
        text[cut] = '\0';
        assert_false(table_history_parse(text, &read));
        table_history_print(&history, text);
    }
    text[length - 1] = '1';
    assert_false(table_history_parse(text, &read));
    text[0] = '-';
    assert_false(table_history_parse(text, &read));
}

static int compare_tables(const void *a, const void *b)
{
    const struct table_bytes *const x = a, *const y = b;

    return x->table_id < y->table_id ? -1 : x->table_id > y->table_id;
}

static uint64_t sum_of(const struct table_bytes *tables, uint32_t count, enum write_window window,
                       uint64_t now_ms)
{
    struct table_history shared;
    uint64_t sum;

    table_histories_shared(histories, &shared);
    sum = table_history_rate(&shared, window, now_ms).bytes;
    for (uint32_t i = 0; i < count; i++)
        sum += window_of(tables[i].table_id, window, now_ms);
    return sum;
}

/* Tables come and go meanwhile. */
static void test_tables_and_shared_bytes_are_all_bytes_in_each_window(void **state)
{
    struct table_bytes tables[20];
    struct table_history reference;
    uint32_t next = 1;
    uint64_t now_ms = NOW, all = 0;

    (void)state;
    srandom((unsigned)seed_of_test("test_table_histories", seed_random()));
    table_history_begin(&reference, now_ms);
    for (uint32_t i = 0; i < ARRAY_LEN(tables); i++)
        tables[i] = table(next++, 0);
    for (uint32_t turn = 0; turn < 1000; turn++) {
        const uint64_t before = all;

        now_ms += (uint64_t)random() % (turn % 50 == 0 ? DAY_MS : 5 * MINUTE_MS);
        all += (uint64_t)random() % 1000; /* of no table */
        for (uint32_t i = 0; i < ARRAY_LEN(tables); i++) {
            const uint64_t more = (uint64_t)random() % 1000;

            if (random() % 100 == 0)
                tables[i] = table(next++, 0);
            tables[i].bytes += more;
            all += more;
        }
        qsort(tables, ARRAY_LEN(tables), sizeof(tables[0]), compare_tables);
        look(tables, ARRAY_LEN(tables), all, now_ms);
        table_history_add(&reference, now_ms, all - before);
        for (uint32_t w = 0; w < WRITE_WINDOWS; w++)
            assert_int_equal(sum_of(tables, ARRAY_LEN(tables), (enum write_window)w, now_ms),
                             table_history_rate(&reference, (enum write_window)w, now_ms).bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_bytes_of_no_table_are_shared),
        TEST(test_bytes_that_were_shared_too_early_are_given_back),
        TEST(test_bytes_of_a_dropped_table_become_shared),
        TEST(test_another_table_with_the_same_number_begins_anew),
        TEST(test_histories_outlive_the_server),
        TEST(test_nothing_is_saved_while_nothing_is_written),
        TEST(test_there_are_so_many_at_most),
        TEST(test_a_damaged_file_is_set_aside),
        TEST(test_numbers_stay_such_that_a_file_holds_them),
        TEST(test_other_text_is_no_buckets),
        TEST(test_tables_and_shared_bytes_are_all_bytes_in_each_window),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
