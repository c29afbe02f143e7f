/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the findings about the kernel, io_uring and the clock. */
#include "doctor_fixture.h"

/* ---- Version ---- */

static void test_old_kernels_are_bad_and_newer_ones_better(void **state)
{
    static const struct {
        const char *release, *state;
    } cases[] = { { "3.10.0-1160.el7.x86_64", "bad" },
                  { "5.14.21\n", "bad" },
                  { "5.15.0-91-generic\n", "note" },
                  { "6.1.0-18-amd64\n", "note" },
                  { "6.11.9\n", "note" },
                  { "6.12.0\n", "good" },
                  { "10.0-rc1\n", "good" } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        put("/proc/sys/kernel/osrelease", cases[i].release);
        run(check_kernel);
        assert_state("kernel", cases[i].state);
    }
    put("/proc/sys/kernel/osrelease", "5.10.0-28-amd64\n");
    run(check_kernel);
    assert_string_equal(json_string_value(value("kernel")), "5.10.0-28-amd64");
    assert_says("kernel", "advice", "install Linux 5.15 or newer");
}

static void test_a_version_that_is_none_is_unknown(void **state)
{
    static const char *const releases[] = {
        "six\n", "6\n", "6.\n", ".1\n", "6.x\n", "0.1\n", "99999999999999999999.1\n", "6.-1\n"
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(releases); i++) {
        put("/proc/sys/kernel/osrelease", releases[i]);
        run(check_kernel);
        assert_state("kernel", "note");
        assert_says("kernel", "text", "unknown");
    }
}

/* ---- io_uring ---- */

static void test_advice_names_what_forbids_rings(void **state)
{
    static const struct {
        int errnum;
        const char *disabled, *seccomp, *advice;
    } cases[] = {
        { EPERM, "2\n", "0", "sysctl -w kernel.io_uring_disabled=0" },
        { EPERM, "1\n", "0", "kernel.io_uring_group=GID" },
        { EPERM, "0\n", "2", "docker run --security-opt seccomp" },
        { ENOSYS, "0\n", "2", "docker run --security-opt seccomp" },
        { EPERM, "0\n", "0", "security module" },
        { EACCES, "", "0", "security module" },
        { ENOSYS, "0\n", "0", "CONFIG_IO_URING" },
        { ENOMEM, "0\n", "0", "LimitMEMLOCK" },
        { EMFILE, "0\n", "0", "ulimit -n" },
        { EOPNOTSUPP, "0\n", "0", "newer kernel" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char status[64];

        snprintf(status, sizeof(status), "Name:\tx\nSeccomp:\t%s\n", cases[i].seccomp);
        put("/proc/self/status", status);
        put("/proc/sys/kernel/io_uring_disabled", cases[i].disabled);
        fixture.ring_errnum = cases[i].errnum;
        run(check_io_uring);
        assert_state("io_uring", "warn");
        assert_says("io_uring", "advice", cases[i].advice);
        assert_true(json_is_false(value("io_uring")));
    }
}

static void test_a_missing_ring_is_bad_only_where_the_configuration_wants_one(void **state)
{
    static const struct {
        const char *text, *state;
    } cases[] = {
        { "", "warn" },
        { "rocksdb: {io_uring: on}\n", "bad" },
        { "rocksdb: {io_uring: off}\nrpc: {io_uring: off}\n", "note" },
        { "rpc: {io_uring: on}\n", "warn" }, /* and no address to listen at */
        { "rpc: {io_uring: on, listen: ['tcp://127.0.0.1:7411']}\n", "bad" },
        { "no_such_key: 1\n", "warn" },
    };

    (void)state;
    fixture.ring_errnum = EPERM;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[512];

        snprintf(text, sizeof(text), GOOD_CONFIG "%s", cases[i].text);
        put_config(text);
        run(check_io_uring);
        assert_state("io_uring", cases[i].state);
    }
}

static void test_a_ring_that_other_users_may_lack_is_a_note(void **state)
{
    (void)state;
    put("/proc/sys/kernel/io_uring_disabled", "1\n");
    run(check_io_uring);
    assert_state("io_uring", "note");
    assert_true(json_is_true(value("io_uring")));
    drop("/proc/sys/kernel/io_uring_disabled"); /* before Linux 6.6 */
    run(check_io_uring);
    assert_state("io_uring", "good");
}

/* ---- Clock ---- */

static void test_an_unsynchronised_clock_is_worse_with_certificates(void **state)
{
    (void)state;
    fixture.is_synchronised = false;
    run(check_clock);
    assert_state("clock.synchronised", "note");
    assert_says("clock.synchronised", "advice", "timedatectl set-ntp true");
    put_config(GOOD_CONFIG "rpc: {listen: ['tls://127.0.0.1:7411']}\n"
                           "tls: {certificate: /c.crt, key: /c.key}\n");
    assert_non_null(fixture.config);
    run(check_clock);
    assert_state("clock.synchronised", "warn");
    fixture.clock_errnum = ENOSYS;
    run(check_clock);
    assert_says("clock.synchronised", "text", "unknown");
}

static void test_a_source_that_needs_system_calls_is_a_warning(void **state)
{
    static const struct {
        const char *source, *available, *state, *advice;
    } cases[] = { { "tsc\n", "tsc\n", "good", NULL },
                  { "kvm-clock\n", "kvm-clock tsc\n", "good", NULL },
                  { "arch_sys_counter\n", "arch_sys_counter\n", "good", NULL },
                  { "hpet\n", "hpet acpi_pm\n", "warn", "tsc=reliable" },
                  { "hpet\n", "tsc hpet\n", "warn", "echo tsc >/sys/" } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        put("/sys/devices/system/clocksource/clocksource0/current_clocksource", cases[i].source);
        put("/sys/devices/system/clocksource/clocksource0/available_clocksource",
            cases[i].available);
        run(check_clock);
        assert_state("clock.source", cases[i].state);
        if (cases[i].advice)
            assert_says("clock.source", "advice", cases[i].advice);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_old_kernels_are_bad_and_newer_ones_better, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_version_that_is_none_is_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_advice_names_what_forbids_rings, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_missing_ring_is_bad_only_where_the_configuration_wants_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_ring_that_other_users_may_lack_is_a_note, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_an_unsynchronised_clock_is_worse_with_certificates,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_source_that_needs_system_calls_is_a_warning, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
