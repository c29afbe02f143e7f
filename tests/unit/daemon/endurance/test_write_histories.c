/* SPDX-License-Identifier: Apache-2.0 */
/* Is the file of histories read as it was written, and does a damaged one cost nothing else? */
#include "tests/unit/daemon/endurance/endurance_fixture.h"

#include <jansson.h>

#include "daemon/endurance/write_histories.h"
#include "store/files/summed_json.h"

#define HOUR UINT64_C(3600000)
#define NOW  (UINT64_C(20000) * 24 * HOUR)

static struct write_histories histories, loaded;

static int setup(void **state)
{
    (void)state;
    make_root();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return remove_root();
}

static struct named_history *get(struct write_histories *from, const char *id, bool is_new)
{
    struct host_line line;
    struct named_history *item;
    bool was_new;

    snprintf(line.text, sizeof(line.text), "%s", id);
    item = write_histories_get(from, &line, NOW, &was_new);
    assert_int_equal(was_new, is_new);
    return item;
}

/* Writes two histories. */
static void save(void)
{
    struct named_history *device;
    struct err_msg msg = { { 0 } };

    memset(&histories, 0, sizeof(histories));
    snprintf(histories.boot.text, sizeof(histories.boot.text), "boot-1");
    write_history_add(&get(&histories, "server", true)->history, NOW, 12345);
    device = get(&histories, "eui.0025388b11b2a1e7", true);
    device->counter = 987654321;
    device->is_over = device->is_held = true;
    assert_int_equal(write_histories_save(&histories, root, &msg), EMBTIER_OK);
}

static bool exists(const char *name)
{
    char path[PATH_MAX];

    root_path(name, path);
    return access(path, F_OK) == 0;
}

static size_t read_file(char *text, size_t room)
{
    char path[PATH_MAX];
    FILE *file;
    size_t count;

    root_path("/endurance.json", path);
    file = fopen(path, "re");
    assert_non_null(file);
    count = fread(text, 1, room - 1, file);
    fclose(file);
    text[count] = '\0';
    return count;
}

static void test_histories_are_read_as_they_were_written(void **state)
{
    struct named_history *device;

    (void)state;
    save();
    assert_true(write_histories_load(root, NOW + HOUR, &loaded));
    assert_int_equal(loaded.count, 2);
    assert_string_equal(loaded.boot.text, "boot-1");
    assert_int_equal(get(&loaded, "server", false)->history.past.total_bytes, 12345);
    device = get(&loaded, "eui.0025388b11b2a1e7", false);
    assert_int_equal(device->counter, 987654321);
    assert_true(device->is_over && device->is_held);
    assert_false(get(&loaded, "server", false)->is_held);
    assert_false(exists("/endurance.json.damaged"));
}

static void test_without_a_file_there_are_none(void **state)
{
    (void)state;
    assert_true(write_histories_load(root, NOW, &loaded));
    assert_int_equal(loaded.count, 0);
    assert_false(exists("/endurance.json.damaged"));
}

/* A device that was taken out is forgotten. */
static void test_histories_of_last_month_are_left_out(void **state)
{
    (void)state;
    save();
    assert_true(write_histories_load(root, NOW + 167 * HOUR, &loaded));
    assert_int_equal(loaded.count, 2);
    assert_true(write_histories_load(root, NOW + 169 * HOUR, &loaded));
    assert_int_equal(loaded.count, 0);
}

static void expect_damage(const char *text)
{
    put("/endurance.json", text);
    assert_true(write_histories_load(root, NOW, &loaded));
    assert_int_equal(loaded.count, 0);
    assert_string_equal(loaded.boot.text, "");
    assert_false(exists("/endurance.json"));
    assert_true(exists("/endurance.json.damaged"));
}

static void test_a_damaged_file_is_set_aside(void **state)
{
    static char text[64 << 10], cut[64 << 10];
    size_t count;

    (void)state;
    save();
    count = read_file(text, sizeof(text));
    assert_true(count > 500);
    for (size_t length = 0; length < count - 1; length += 97) {
        memcpy(cut, text, length);
        cut[length] = '\0';
        expect_damage(cut);
    }
    for (size_t at = 0; at < count; at += 89) { /* one wrong digit */
        memcpy(cut, text, count + 1);
        cut[at] ^= 1;
        expect_damage(cut);
    }
    expect_damage("nonsense");
    expect_damage("{\"crc32c\": \"00000000\", \"version\": 1}");
    put("/endurance.json", text); /* it was the text, not the place */
    assert_true(write_histories_load(root, NOW, &loaded));
    assert_int_equal(loaded.count, 2);
}

static void test_a_file_that_is_whole_but_of_another_version_is_set_aside(void **state)
{
    json_t *const root_json = json_pack("{s:s, s:i, s:s, s:[]}", "crc32c", "00000000", "version", 1,
                                        "boot", "", "histories");
    struct err_msg msg = { { 0 } };

    (void)state;
    assert_int_equal(summed_json_write(root, WRITE_HISTORIES_FILE, root_json, &msg), EMBTIER_OK);
    json_decref(root_json);
    assert_true(write_histories_load(root, NOW, &loaded));
    assert_true(exists("/endurance.json.damaged"));
}

/* As a disk that fails for a moment, or a file without rights. */
static void test_a_file_that_cannot_be_read_stays_as_it_is(void **state)
{
    char path[PATH_MAX];
    struct stat info;

    (void)state;
    put_link("/endurance.json", "endurance.json");
    assert_false(write_histories_load(root, NOW, &loaded));
    assert_int_equal(loaded.count, 0);
    assert_false(exists("/endurance.json.damaged"));
    root_path("/endurance.json", path);
    assert_int_equal(lstat(path, &info), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_histories_are_read_as_they_were_written),
        TEST(test_without_a_file_there_are_none),
        TEST(test_histories_of_last_month_are_left_out),
        TEST(test_a_damaged_file_is_set_aside),
        TEST(test_a_file_that_cannot_be_read_stays_as_it_is),
        TEST(test_a_file_that_is_whole_but_of_another_version_is_set_aside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
