/* SPDX-License-Identifier: Apache-2.0 */
/* Is a drive's health taken from the helper, and does a bad helper give an error and no figures? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tools/cli/endurance/health.h"

static char program[PATH_MAX];

#define MINUTE_NS UINT64_C(60000000000)

static enum embtier_err ask(const char *device, json_t **ret_health, struct err_msg *msg)
{
    struct child child = NO_CHILD;

    TRY(health_start(program, device, &child, msg));
    assert_true(child_is_started(&child));
    return health_finish(&child, clock_now_ns(&clock_monotonic) + MINUTE_NS, ret_health, msg);
}

/* Makes the helper a script. */
static void put_helper(const char *script)
{
    FILE *const file = fopen(program, "we");

    assert_non_null(file);
    assert_true(fprintf(file, "#!/bin/sh\n%s\n", script) > 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(program, 0700), 0);
}

static int setup(void **state)
{
    int fd;

    (void)state;
    snprintf(program, sizeof(program), "%s/health-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    fd = mkstemp(program);
    assert_true(fd >= 0);
    close(fd);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(program);
}

static void test_the_helper_is_given_the_device_and_its_answer_is_taken(void **state)
{
    struct err_msg msg = { { 0 } };
    json_t *health = NULL;

    (void)state;
    put_helper("echo \"{\\\"path\\\": \\\"$1\\\", \\\"count\\\": $#, \\\"used_percent\\\": 3}\"");
    assert_int_equal(ask("nvme12n3", &health, &msg), EMBTIER_OK);
    assert_string_equal(json_string_value(json_object_get(health, "path")), "/dev/nvme12n3");
    assert_int_equal(json_integer_value(json_object_get(health, "count")), 1);
    assert_int_equal(json_integer_value(json_object_get(health, "used_percent")), 3);
    json_decref(health);
}

static void assert_fails(const char *device, enum embtier_err why, const char *words)
{
    struct err_msg msg = { { 0 } };
    json_t *health = NULL;

    assert_int_equal(ask(device, &health, &msg), why);
    assert_null(health);
    if (!strstr(msg.text, words))
        print_error("'%s' is not in: %s\n", words, msg.text);
    assert_non_null(strstr(msg.text, words));
}

static void test_a_helper_that_fails_is_quoted(void **state)
{
    (void)state;
    put_helper("echo 'embtier-nvme-health: no right: run it as root' >&2; echo more >&2; exit 1");
    assert_fails("nvme0n1", EMBTIER_IO, "no right: run it as root");
    put_helper("echo '{}'; exit 1");
    assert_fails("nvme0n1", EMBTIER_IO, "status 1 and no message");
    put_helper("kill -9 $$");
    assert_fails("nvme0n1", EMBTIER_IO, "no message");
    put_helper("printf 'bad \\033[31m\\377' >&2; exit 1");
    assert_fails("nvme0n1", EMBTIER_IO, "bad ");
}

static void test_rubbish_is_no_health(void **state)
{
    static const char *const scripts[] = { "", "echo hello", "echo '[1]'", "echo '{\"a\": '",
                                           "yes | head -c 200000" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        put_helper(scripts[i]);
        assert_fails("nvme0n1", EMBTIER_PROTOCOL, "something else than JSON");
    }
}

/* The server names the device, and may be bad. */
static void test_only_names_of_drives_are_asked_for(void **state)
{
    static const char *const names[] = {
        "vda",        "",         "nvme0",  "nvme0n1p1", "nvme0n1/../sda",
        "../nvme0n1", "nvme0n1 ", "nvme0n", "dm-0"
    };

    (void)state;
    put_helper("echo '{}'");
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_fails(names[i], EMBTIER_UNSUPPORTED, "no NVMe drive");
}

/* It would never end by itself. Nothing waits for it, not even for its end after it was killed. */
static void test_a_drive_that_does_not_answer_keeps_no_one_waiting(void **state)
{
    struct child slow = NO_CHILD, quick = NO_CHILD;
    struct err_msg msg = { { 0 } };
    json_t *health = NULL;

    (void)state;
    put_helper("[ $1 = /dev/nvme1n1 ] && exec sleep 1000; echo '{}'");
    assert_int_equal(health_start(program, "nvme1n1", &slow, &msg), EMBTIER_OK);
    assert_int_equal(health_start(program, "nvme2n1", &quick, &msg), EMBTIER_OK);
    assert_int_equal(
        health_finish(&quick, clock_now_ns(&clock_monotonic) + MINUTE_NS, &health, &msg),
        EMBTIER_OK); /* although the other still runs */
    json_decref(health);
    health = NULL;
    assert_int_equal(health_finish(&slow, clock_now_ns(&clock_monotonic), &health, &msg),
                     EMBTIER_TIMEOUT);
    assert_non_null(strstr(msg.text, "the drive did not answer within 10 s"));
    assert_null(health);
    assert_false(child_is_started(&slow));
}

static void test_a_missing_helper_is_named(void **state)
{
    (void)state;
    assert_int_equal(chmod(program, 0600), 0);
    assert_int_equal(unlink(program), 0);
    assert_fails("nvme0n1", EMBTIER_NOT_FOUND, "cannot be started");
    put_helper("");
}

static void take(const char *meaning, void *context)
{
    char *const all = context;

    strcat(all, meaning);
    strcat(all, ";");
}

static void test_warnings_have_meanings(void **state)
{
    json_t *const health = json_pack("{s:i}", "warnings", 0x41 | 0x04);
    char all[512] = "";

    (void)state;
    health_each_warning(health, take, all);
    assert_non_null(strstr(all, "below the drive's threshold"));
    assert_non_null(strstr(all, "worn out or unreliable"));
    assert_int_equal(strcspn(strchr(all, ';') + 1, ";") + 1,
                     strlen(strchr(all, ';') + 1)); /* two */
    json_decref(health);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_helper_is_given_the_device_and_its_answer_is_taken),
        cmocka_unit_test(test_a_helper_that_fails_is_quoted),
        cmocka_unit_test(test_rubbish_is_no_health),
        cmocka_unit_test(test_only_names_of_drives_are_asked_for),
        cmocka_unit_test(test_a_drive_that_does_not_answer_keeps_no_one_waiting),
        cmocka_unit_test(test_a_missing_helper_is_named),
        cmocka_unit_test(test_warnings_have_meanings),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
