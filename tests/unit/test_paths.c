/* SPDX-License-Identifier: Apache-2.0 */
/* Do daemon, client and tools find the default places where base/paths.h says they are? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static void test_systemd_directories_come_first(void **state)
{
    (void)state;
    setenv("XDG_STATE_HOME", "/xdg", 1);
    setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two", 1);
    assert_path(default_data_directory(), "/var/lib/one");
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
    setenv("STATE_DIRECTORY", "", 1); /* empty is unset */
    setenv("XDG_STATE_HOME", "/xdg", 1);
    setenv("XDG_RUNTIME_DIR", "/xdg", 1);
    assert_path(default_data_directory(), "/var/lib/embtier");
    assert_path(default_socket_path(), "/run/embtier/embtier.sock");
}

/* As another user, where we are root. */
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
    assert_path(default_data_directory(), "/people/u/.local/state/embtier");
    setenv("XDG_STATE_HOME", "relative", 1); /* to be ignored, says the specification */
    assert_path(default_data_directory(), "/people/u/.local/state/embtier");
    setenv("XDG_STATE_HOME", "/state", 1);
    assert_path(default_data_directory(), "/state/embtier");
    snprintf(expected, sizeof(expected), "/tmp/embtier-%u/embtier.sock", (unsigned)user);
    assert_path(default_socket_path(), expected);
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    assert_path(default_socket_path(), "/run/user/7/embtier.sock");
    assert_int_equal(seteuid(before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_systemd_directories_come_first, clear_environment),
        cmocka_unit_test_setup(test_root_uses_system_directories, clear_environment),
        cmocka_unit_test_setup(test_users_have_directories_of_their_own, clear_environment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
