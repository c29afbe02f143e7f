/* SPDX-License-Identifier: Apache-2.0 */
/* test_new_file.c: does a file appear whole under its name, or not at all? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/system/new_file.h"

static int fchmod_error; /* 0: none */

/* In place of the C library's, to fail as some file systems do. */
int fchmod(int fd, mode_t mode)
{
    if (fchmod_error == 0)
        return (int)syscall(SYS_fchmod, fd, mode);
    errno = fchmod_error;
    return -1;
}

static mode_t shown_mode; /* 0: the file's own */

int fstat(int fd, struct stat *info)
{
    const int rc = fstatat(fd, "", info, AT_EMPTY_PATH);

    if (shown_mode != 0)
        info->st_mode = S_IFREG | shown_mode;
    return rc;
}

struct fixture {
    char folder[200];
    char path[220];
};

static int make_folder(void **state)
{
    struct fixture *const fixture = calloc(1, sizeof(*fixture));
    const char *const tmp = getenv("TMPDIR");

    if (!fixture)
        return -1;
    snprintf(fixture->folder, sizeof(fixture->folder), "%.150s/embtier-new-file-XXXXXX",
             tmp ? tmp : "/tmp");
    *state = fixture;
    if (!mkdtemp(fixture->folder))
        return -1;
    snprintf(fixture->path, sizeof(fixture->path), "%s/file", fixture->folder);
    return 0;
}

static int remove_folder(void **state)
{
    struct fixture *const fixture = *state;

    unlink(fixture->path);
    rmdir(fixture->folder);
    free(fixture);
    return 0;
}

static int file_count(const struct fixture *fixture)
{
    DIR *const folder = opendir(fixture->folder);
    int count = 0;

    assert_non_null(folder);
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void assert_contents(const struct fixture *fixture, const char *expected)
{
    FILE *const file = fopen(fixture->path, "re");
    char text[64] = "";

    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    assert_string_equal(text, expected);
    assert_int_equal(fclose(file), 0);
}

static struct new_file *begin(const struct fixture *fixture, const char *text)
{
    struct new_file *file = NULL;
    struct err_msg msg;

    if (new_file_open(fixture->path, &file, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    assert_true(fputs(text, new_file_stream(file)) >= 0);
    return file;
}

static void test_appears_when_it_is_whole(void **state)
{
    const struct fixture *const fixture = *state;
    struct new_file *const file = begin(fixture, "whole");
    const mode_t mask = umask(0);
    struct stat info;
    struct err_msg msg;

    umask(mask);
    assert_int_equal(access(fixture->path, F_OK), -1);
    assert_int_equal(new_file_finish(file, &msg), EMBTIER_OK);
    assert_contents(fixture, "whole");
    new_file_free(file);
    assert_contents(fixture, "whole");
    assert_int_equal(file_count(fixture), 1);
    assert_int_equal(stat(fixture->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask);
}

static void test_leaves_nothing_without_an_end(void **state)
{
    const struct fixture *const fixture = *state;

    new_file_free(begin(fixture, "half"));
    assert_int_equal(file_count(fixture), 0);
    new_file_free(NULL);
}

static void test_takes_the_place_of_a_file_when_it_is_whole(void **state)
{
    const struct fixture *const fixture = *state;
    struct new_file *file = begin(fixture, "old");
    struct err_msg msg = { { 0 } };
    char link[300];

    assert_int_equal(new_file_finish(file, &msg), EMBTIER_OK);
    new_file_free(file);
    snprintf(link, sizeof(link), "%s.link", fixture->path);
    assert_int_equal(symlink(fixture->path, link), 0);
    for (uint32_t whole = 0; whole < 2; whole++) {
        assert_int_equal(new_file_open_over(link, &file, &msg), EMBTIER_OK);
        assert_true(fputs("new", new_file_stream(file)) >= 0);
        assert_contents(fixture, "old");
        if (whole)
            assert_int_equal(new_file_finish(file, &msg), EMBTIER_OK);
        new_file_free(file);
        assert_contents(fixture, whole ? "new" : "old");
        assert_int_equal(file_count(fixture), 2);
    }
    assert_int_equal(unlink(fixture->path), 0);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(new_file_open_over(fixture->path, &file, &msg), EMBTIER_OK);
    assert_true(fputs("first", new_file_stream(file)) >= 0);
    assert_int_equal(new_file_finish(file, &msg), EMBTIER_OK);
    new_file_free(file);
    assert_contents(fixture, "first");
}

static void test_a_file_that_is_replaced_keeps_its_mode(void **state)
{
    const struct fixture *const fixture = *state;
    struct new_file *file = begin(fixture, "old");
    struct err_msg msg = { { 0 } };
    struct stat info;

    assert_int_equal(new_file_finish(file, &msg), EMBTIER_OK);
    new_file_free(file);
    assert_int_equal(chmod(fixture->path, 0440), 0);
    assert_int_equal(new_file_open_over(fixture->path, &file, &msg), EMBTIER_OK);
    assert_true(fputs("new", new_file_stream(file)) >= 0);
    assert_int_equal(new_file_finish(file, &msg), EMBTIER_OK);
    new_file_free(file);
    assert_contents(fixture, "new");
    assert_int_equal(stat(fixture->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0440);
}

/* As FAT and CIFS, which have one mode for all files. */
static void test_replaces_a_file_where_modes_cannot_be_changed(void **state)
{
    static const int errors[] = { EPERM, EOPNOTSUPP, EIO };
    const struct fixture *const fixture = *state;
    struct new_file *file = begin(fixture, "old");
    struct err_msg msg = { { 0 } };

    assert_int_equal(new_file_finish(file, &msg), EMBTIER_OK);
    new_file_free(file);
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        fchmod_error = errors[i];
        assert_int_equal(chmod(fixture->path, 0111), 0); /* no new file has this mode */
        if (errors[i] == EIO) {
            assert_int_equal(new_file_open_over(fixture->path, &file, &msg), EMBTIER_IO);
            continue;
        }
        assert_int_equal(new_file_open_over(fixture->path, &file, &msg), EMBTIER_OK);
        assert_true(fputs("new", new_file_stream(file)) >= 0);
        assert_int_equal(new_file_finish(file, &msg), EMBTIER_OK);
        new_file_free(file);
        assert_contents(fixture, "new");
    }
    fchmod_error = 0;
    assert_int_equal(file_count(fixture), 1);
}

static void test_asks_for_no_mode_that_a_file_has(void **state)
{
    const struct fixture *const fixture = *state;
    struct new_file *file = begin(fixture, "old");
    struct err_msg msg = { { 0 } };

    assert_int_equal(new_file_finish(file, &msg), EMBTIER_OK);
    new_file_free(file);
    fchmod_error = EIO;
    assert_int_equal(new_file_open_over(fixture->path, &file, &msg), EMBTIER_OK);
    new_file_free(file);
    fchmod_error = 0;
}

static void write_with_mode(const struct fixture *fixture, mode_t mode, bool over)
{
    struct new_file *file = NULL;
    struct err_msg msg;

    if (new_file_open_mode(fixture->path, mode, over, &file, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    assert_true(fputs("text", new_file_stream(file)) >= 0);
    assert_int_equal(new_file_finish(file, &msg), EMBTIER_OK);
    new_file_free(file);
}

static void test_a_file_has_the_mode_that_was_asked_for(void **state)
{
    static const mode_t modes[] = { 0600, 0644 }, masks[] = { 0, 077, 0777 };
    const struct fixture *const fixture = *state;
    struct stat info;

    for (size_t i = 0; i < ARRAY_LEN(modes) * ARRAY_LEN(masks) * 2; i++) {
        const mode_t mode = modes[i % 2], mask = umask(masks[i / 4]);

        if (i % 4 < 2) /* the others replace this one, of another mode */
            (void)unlink(fixture->path);
        write_with_mode(fixture, mode, i % 4 >= 2);
        umask(mask);
        assert_int_equal(stat(fixture->path, &info), 0);
        assert_int_equal(info.st_mode & 0777, mode);
        assert_int_equal(chmod(fixture->path, 0666), 0);
    }
}

static void test_a_file_with_a_mode_replaces_none_unless_asked(void **state)
{
    const struct fixture *const fixture = *state;
    struct err_msg msg = { { 0 } };
    struct new_file *file;

    write_with_mode(fixture, 0600, false);
    assert_int_equal(new_file_open_mode(fixture->path, 0600, false, &file, &msg), EMBTIER_EXISTS);
}

/* A secret must not lie where its mode means nothing. */
static void test_a_file_system_without_modes_gets_no_secret(void **state)
{
    const struct fixture *const fixture = *state;
    struct err_msg msg = { { 0 } };
    struct new_file *file;

    fchmod_error = EPERM;
    shown_mode = 0755;
    assert_int_equal(new_file_open_mode(fixture->path, 0600, false, &file, &msg),
                     EMBTIER_UNSUPPORTED);
    assert_non_null(strstr(msg.text, "/file: the file system gives it mode 0755"));
    assert_int_equal(file_count(fixture), 0);
    write_with_mode(fixture, 0644, false);
    fchmod_error = 0;
    shown_mode = 0;
}

static void test_replaces_no_link_that_names_no_file(void **state)
{
    const struct fixture *const fixture = *state;
    struct err_msg msg = { { 0 } };
    struct new_file *file;

    assert_int_equal(symlink("missing", fixture->path), 0);
    assert_int_equal(new_file_open_over(fixture->path, &file, &msg), EMBTIER_NOT_FOUND);
    assert_non_null(strstr(msg.text, "/file: a symbolic link to a file that does not exist: make"));
    assert_int_equal(unlink(fixture->path), 0);
    assert_int_equal(symlink("file", fixture->path), 0); /* to itself */
    assert_int_not_equal(new_file_open_over(fixture->path, &file, &msg), EMBTIER_OK);
    assert_non_null(strstr(msg.text, "/file: Too many levels of symbolic links"));
    assert_int_equal(file_count(fixture), 1);
}

static void test_takes_the_longest_names(void **state)
{
    const struct fixture *const fixture = *state;
    struct err_msg msg = { { 0 } };
    struct new_file *file;
    char path[600];
    int bytes = snprintf(path, sizeof(path), "%s/", fixture->folder);

    for (uint32_t i = 0; i < 127; i++) /* of two bytes each */
        bytes += snprintf(path + bytes, sizeof(path) - (size_t)bytes, "\xc3\xa4");
    snprintf(path + bytes, sizeof(path) - (size_t)bytes, "b");
    assert_int_equal(new_file_open(path, &file, &msg), EMBTIER_OK);
    assert_int_equal(new_file_finish(file, &msg), EMBTIER_OK);
    new_file_free(file);
    assert_int_equal(file_count(fixture), 1);
    assert_int_equal(unlink(path), 0);
    snprintf(path + bytes, sizeof(path) - (size_t)bytes, "bc");
    assert_int_not_equal(new_file_open(path, &file, &msg), EMBTIER_OK);
    assert_non_null(strstr(msg.text, "File name too long"));
    assert_int_equal(file_count(fixture), 0);
}

static void test_replaces_no_file(void **state)
{
    const struct fixture *const fixture = *state;
    struct new_file *first = begin(fixture, "first"), *second;
    struct err_msg msg = { { 0 } };
    FILE *other;

    /* Another program's file comes while this one is written. */
    other = fopen(fixture->path, "wxe");
    assert_non_null(other);
    assert_true(fputs("other", other) >= 0);
    assert_int_equal(fclose(other), 0);
    assert_int_equal(new_file_finish(first, &msg), EMBTIER_EXISTS);
    assert_non_null(strstr(msg.text, "/file already exists"));
    new_file_free(first);
    assert_int_equal(new_file_open(fixture->path, &second, &msg), EMBTIER_EXISTS);
    assert_contents(fixture, "other");
    assert_int_equal(file_count(fixture), 1);
}

static void test_reports_a_full_disk(void **state)
{
    const struct fixture *const fixture = *state;
    struct new_file *const file = begin(fixture, "text");
    FILE *const full = fopen("/dev/full", "we");
    struct err_msg msg;

    assert_non_null(full);
    assert_int_not_equal(dup2(fileno(full), fileno(new_file_stream(file))), -1);
    assert_int_equal(fclose(full), 0);
    assert_int_equal(new_file_finish(file, &msg), EMBTIER_NO_SPACE);
    new_file_free(file);
    assert_int_equal(file_count(fixture), 0);
}

static void test_names_a_missing_folder(void **state)
{
    struct new_file *file;
    struct err_msg msg = { { 0 } };

    (void)state;
    assert_int_equal(new_file_open("/no-such-folder/file", &file, &msg), EMBTIER_NOT_FOUND);
    assert_non_null(strstr(msg.text, "/no-such-folder/file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_appears_when_it_is_whole, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_leaves_nothing_without_an_end, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_takes_the_place_of_a_file_when_it_is_whole,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_a_file_that_is_replaced_keeps_its_mode, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_replaces_a_file_where_modes_cannot_be_changed,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_asks_for_no_mode_that_a_file_has, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_a_file_has_the_mode_that_was_asked_for, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_a_file_with_a_mode_replaces_none_unless_asked,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_a_file_system_without_modes_gets_no_secret,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_replaces_no_link_that_names_no_file, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_takes_the_longest_names, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_replaces_no_file, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_reports_a_full_disk, make_folder, remove_folder),
        cmocka_unit_test(test_names_a_missing_folder),
    };

    return cmocka_run_group_tests_name("new_file", tests, NULL, NULL);
}
