/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of all checks together: a good machine is found good, and no file, however damaged, does
 * harm. */
#include "doctor_fixture.h"

static void test_a_good_machine_is_found_good(void **state)
{
    static const char *const names[] = { "config",
                                         "kernel",
                                         "io_uring",
                                         "huge_pages.transparent",
                                         "huge_pages.pool",
                                         "memory.available",
                                         "memory.control_group",
                                         "limits.descriptors",
                                         "limits.file_length",
                                         "limits.locked_memory",
                                         "numa",
                                         "memory_kinds",
                                         "data.directories[0]",
                                         "data.directories[0].file_system",
                                         "data.directories[0].device",
                                         "data.directories[0].scheduler",
                                         "data.directories[0].direct_io",
                                         "data.directories[0].space",
                                         "data.directories[1].shared_device",
                                         "clock.synchronised",
                                         "clock.source" };

    (void)state;
    run(run_all);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_state(names[i], "good");
    assert_int_equal(fixture.findings.worst, FINDING_GOOD);
    assert_int_equal(fixture.findings.counts[FINDING_GOOD], json_array_size(fixture.findings.list));
}

/* Each check of the table has a finding whose name begins with the check's. */
static void test_findings_have_the_names_that_help_lists(void **state)
{
    const json_t *one;
    size_t i;

    (void)state;
    put_config(GOOD_CONFIG "cache: {tiers: [{bytes: 1GiB}, {kind: numa, numa_node: 0, "
                           "bytes: 1GiB}]}\n");
    assert_non_null(fixture.config);
    run(run_all);
    for (const struct check *check = checks; check->name; check++) {
        const size_t length = strcspn(check->name, "[");
        bool found = false;

        json_array_foreach(fixture.findings.list, i, one) found =
            found ||
            strncmp(json_string_value(json_object_get(one, "name")), check->name, length) == 0;
        assert_true(found);
    }
}

/* Not one of these is as the kernel writes it. */
static const char *const damages[] = {
    "",
    "\n",
    "\xff\xfe[\n",
    "[]\n",
    "]always[\n",
    "99999999999999999999999999\n",
    "-1\n",
    "0x10 12\n",
    "Node 0 MemTotal: 99999999999999999999999 kB\n",
    "MemTotal: 18446744073709551615 kB\nMemAvailable: 18446744073709551615 kB\n",
    "Max open files            \nMax file size x y\nMax locked memory 1",
    "40 27 259:1 / /data/a rw - \n40 27 259 / /x rw - a b\n40 - - - - -\n",
};
static const char zeros[16];

static void run_damaged(const char *path, const char *original)
{
    char *const longest = malloc(100000);

    assert_non_null(longest);
    memset(longest, '7', 100000);
    for (size_t d = 0; d < ARRAY_LEN(damages); d++) {
        put(path, damages[d]);
        run(run_all);
        assert_int_not_equal(fixture.findings.worst, FINDING_BAD);
    }
    put_bytes(path, longest, 100000);
    run(run_all);
    assert_int_not_equal(fixture.findings.worst, FINDING_BAD);
    put_bytes(path, zeros, sizeof(zeros));
    run(run_all);
    assert_int_not_equal(fixture.findings.worst, FINDING_BAD);
    drop(path);
    run(run_all);
    assert_int_not_equal(fixture.findings.worst, FINDING_BAD);
    put(path, original);
    free(longest);
}

static void test_no_damaged_or_missing_file_makes_a_machine_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good_files); i++)
        run_damaged(good_files[i].path, good_files[i].text);
}

static void test_no_lost_link_makes_a_machine_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good_links); i++) {
        drop(good_links[i].path);
        run(run_all);
        assert_int_not_equal(fixture.findings.worst, FINDING_BAD);
        put_link(good_links[i].path, "../nowhere");
        run(run_all);
        assert_int_not_equal(fixture.findings.worst, FINDING_BAD);
        put_link(good_links[i].path, good_links[i].target);
    }
}

static void test_without_proc_and_sys_all_is_unknown(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good_files); i++)
        drop(good_files[i].path);
    for (size_t i = 0; i < ARRAY_LEN(good_links); i++)
        drop(good_links[i].path);
    fixture.clock_errnum = EPERM;
    run(run_all);
    assert_int_equal(fixture.findings.worst, FINDING_NOTE);
    assert_state("kernel", "note");
    assert_says("kernel", "text", "unknown: /proc/sys/kernel/osrelease");
    assert_true(json_is_null(value("kernel")));
    assert_state("numa", "note");
    assert_state("clock.synchronised", "note");
    assert_state("limits.descriptors", "note");
    assert_state("data.directories[0].file_system", "note");
    assert_state("data.directories[0].device", "note");
}

static void test_a_configuration_with_a_mistake_is_bad_and_the_machine_is_looked_at(void **state)
{
    (void)state;
    put_config("data: {directories: [/data/a/rows]}\nno_such_key: 1\n");
    assert_null(fixture.config);
    run(run_all);
    assert_state("config", "bad");
    assert_says("config", "text", "test.yaml:2: no_such_key");
    assert_state("kernel", "good");
    assert_state("limits.descriptors", "good");
    assert_null(finding("data.directories[0]"));
    assert_int_equal(fixture.findings.worst, FINDING_BAD);
}

/* A text that is not UTF-8 still makes JSON. */
static void test_names_of_any_bytes_are_escaped(void **state)
{
    (void)state;
    put("/proc/sys/kernel/osrelease", "6.18.0-\xff\x1b[2J\n");
    put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "t\xe9\x07\n");
    run(run_all);
    assert_says("kernel", "text", "6.18.0-\\xff\\u001b[2J");
    assert_says("clock.source", "text", "t\\xe9\\u0007");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_good_machine_is_found_good, setup, teardown),
        cmocka_unit_test_setup_teardown(test_findings_have_the_names_that_help_lists, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_no_damaged_or_missing_file_makes_a_machine_bad, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_no_lost_link_makes_a_machine_bad, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_proc_and_sys_all_is_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_configuration_with_a_mistake_is_bad_and_the_machine_is_looked_at, setup,
            teardown),
        cmocka_unit_test_setup_teardown(test_names_of_any_bytes_are_escaped, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
