/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that daemon, client and tools find the default places where base/paths.h says they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"

#define OTHER_USER 54321

static const char *const variables[] = { "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "EMBTIER_SOCKET",
                                         "XDG_STATE_HOME",  "XDG_RUNTIME_DIR",   "HOME" };

static int clear_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(variables); i++)
        unsetenv(variables[i]);
    return 0;
}

static void assert_path(char *path, const char *expected)
{
    assert_non_null(path);
    assert_string_equal(path, expected);
    free(path);
}

static void assert_data(const char *expected)
{
    struct err_msg msg = { { 0 } };
    char *path = NULL;

    assert_int_equal(default_data_directory(&path, &msg), EMBTIER_OK);
    assert_path(path, expected);
}

static void test_systemd_directories_come_first(void **state)
{
    (void)state;
    setenv("XDG_STATE_HOME", "/xdg", 1);
    setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two", 1);
    assert_data("/var/lib/one");
    setenv("XDG_RUNTIME_DIR", "/xdg", 1);
    setenv("RUNTIME_DIRECTORY", "/run/one:/run/two", 1);
    assert_path(default_socket_path(), "/run/one/embtier.sock");
    setenv("EMBTIER_SOCKET", "/s", 1);
    assert_path(default_socket_path(), "/s");
}

static void test_root_uses_system_directories(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    setenv("STATE_DIRECTORY", "", 1); /* empty counts as unset */
    setenv("XDG_STATE_HOME", "/xdg", 1);
    setenv("XDG_RUNTIME_DIR", "/xdg", 1);
    assert_data("/var/lib/embtier");
    assert_path(default_socket_path(), "/run/embtier/embtier.sock");
}

/* Runs as another user if the test is root. */
static void test_users_have_directories_of_their_own(void **state)
{
    const uid_t before = geteuid();
    uid_t user = before;
    char expected[64];

    (void)state;
    if (before == 0) {
        assert_int_equal(seteuid(OTHER_USER), 0);
        user = OTHER_USER;
    }
    setenv("HOME", "/people/u", 1);
    assert_data("/people/u/.local/state/embtier");
    setenv("XDG_STATE_HOME", "relative", 1); /* the specification says to ignore it */
    assert_data("/people/u/.local/state/embtier");
    setenv("XDG_STATE_HOME", "/state", 1);
    assert_data("/state/embtier");
    snprintf(expected, sizeof(expected), "/tmp/embtier-%u/embtier.sock", (unsigned)user);
    assert_path(default_socket_path(), expected);
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    assert_path(default_socket_path(), "/run/user/7/embtier.sock");
    assert_int_equal(seteuid(before), 0);
}

/* A user without an entry and without HOME gets no data in /tmp, which belongs to all. */
static void test_without_a_home_there_is_no_default_for_data(void **state)
{
    const uid_t before = geteuid();
    struct err_msg msg = { { 0 } };
    char *path = NULL;

    (void)state;
    if (before != 0)
        skip();
    assert_int_equal(seteuid(OTHER_USER), 0);
    assert_int_equal(default_data_directory(&path, &msg), EMBTIER_CONFIG);
    assert_null(path);
    assert_non_null(strstr(msg.text, "HOME is not set"));
    assert_non_null(strstr(msg.text, "54321"));
    setenv("HOME", "relative", 1);
    setenv("XDG_STATE_HOME", "relative", 1);
    assert_int_equal(default_data_directory(&path, &msg), EMBTIER_CONFIG);
    setenv("XDG_STATE_HOME", "/state", 1);
    assert_data("/state/embtier");
    assert_int_equal(seteuid(before), 0);
    unsetenv("HOME");
    unsetenv("XDG_STATE_HOME");
    assert_int_equal(seteuid(1), 0); /* user "daemon" in every Debian */
    assert_data("/usr/sbin/.local/state/embtier");
    assert_int_equal(seteuid(before), 0);
}

static void test_only_the_user_s_own_default_is_looked_at(void **state)
{
    const uid_t before = geteuid();

    (void)state;
    if (before == 0) {
        assert_false(default_socket_is_users());
        assert_int_equal(seteuid(OTHER_USER), 0);
    }
    assert_true(default_socket_is_users());
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    assert_true(default_socket_is_users());
    setenv("RUNTIME_DIRECTORY", "/run/one", 1);
    assert_false(default_socket_is_users());
    unsetenv("RUNTIME_DIRECTORY");
    setenv("EMBTIER_SOCKET", "/s", 1);
    assert_false(default_socket_is_users());
    assert_int_equal(seteuid(before), 0);
}

static void assert_refused(const char *directory, const char *why)
{
    struct err_msg msg = { { 0 } };

    assert_int_equal(users_directory_check(directory, &msg), EMBTIER_PERMISSION);
    if (!strstr(msg.text, why) || !strstr(msg.text, directory))
        fail_msg("'%s' does not say '%s' of %s", msg.text, why, directory);
}

static void test_a_directory_that_is_not_the_user_s_own_is_refused(void **state)
{
    const uid_t before = geteuid();
    char root[] = "/tmp/embtier-paths-XXXXXX";
    char directory[64], link[64];
    struct err_msg msg = { { 0 } };

    (void)state;
    if (before != 0)
        skip();
    assert_non_null(mkdtemp(root));
    assert_int_equal(chmod(root, 0755), 0);
    snprintf(directory, sizeof(directory), "%s/d", root);
    snprintf(link, sizeof(link), "%s/l", root);
    assert_int_equal(mkdir(directory, 0700), 0);
    assert_int_equal(symlink(directory, link), 0);
    assert_int_equal(seteuid(OTHER_USER), 0);
    assert_int_equal(users_directory_check(directory, &msg), EMBTIER_OK); /* root owns it */
    assert_refused(link, "is a symbolic link");
    assert_int_equal(seteuid(before), 0);
    for (uid_t owner = OTHER_USER; owner <= OTHER_USER + 1; owner++) {
        assert_int_equal(chown(directory, owner, owner), 0);
        for (mode_t mode = 0; mode < 02000; mode++) {
            assert_int_equal(chmod(directory, mode), 0);
            assert_int_equal(seteuid(OTHER_USER), 0);
            if (owner != OTHER_USER)
                assert_refused(directory, "belongs to user 54322");
            else if (mode & 022)
                assert_refused(directory, "can be written to by others");
            else
                assert_int_equal(users_directory_check(directory, &msg), EMBTIER_OK);
            assert_int_equal(seteuid(before), 0);
        }
    }
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(users_directory_check(directory, &msg), EMBTIER_NOT_FOUND);
    assert_int_equal(mknod(directory, S_IFREG | 0600, 0), 0);
    assert_refused(directory, "is none");
    assert_int_equal(unlink(directory), 0);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(root), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_systemd_directories_come_first, clear_environment),
        cmocka_unit_test_setup(test_root_uses_system_directories, clear_environment),
        cmocka_unit_test_setup(test_users_have_directories_of_their_own, clear_environment),
        cmocka_unit_test_setup(test_without_a_home_there_is_no_default_for_data, clear_environment),
        cmocka_unit_test_setup(test_only_the_user_s_own_default_is_looked_at, clear_environment),
        cmocka_unit_test(test_a_directory_that_is_not_the_user_s_own_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
