/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the findings about memory, huge pages, control groups and limits. */
#include "doctor_fixture.h"

#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

/* ---- Huge pages ---- */

static void test_only_transparent_pages_that_are_off_are_a_warning(void **state)
{
    static const struct {
        const char *text, *mode, *state;
    } cases[] = { { "[always] madvise never\n", "always", "good" },
                  { "always [madvise] never\n", "madvise", "good" },
                  { "always madvise [never]\n", "never", "warn" } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        put("/sys/kernel/mm/transparent_hugepage/enabled", cases[i].text);
        run(check_huge_pages);
        assert_state("huge_pages.transparent", cases[i].state);
        assert_string_equal(json_string_value(value("huge_pages.transparent")), cases[i].mode);
    }
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise never\n");
    run(check_huge_pages);
    assert_says("huge_pages.transparent", "text", "unknown");
}

static void test_the_pool_is_compared_with_the_tiers_that_take_it(void **state)
{
    static const struct {
        const char *kind, *pages, *free_pages, *state, *advice;
    } cases[] = { { "dram_huge", "0\n", "0\n", "bad", "vm.nr_hugepages=512" },
                  { "dram_huge", "511\n", "511\n", "bad", "vm.nr_hugepages=512" },
                  { "dram_huge", "512\n", "512\n", "good", NULL },
                  { "dram_huge", "512\n", "4\n", "warn", "nothing if an embtierd that runs" },
                  { "dram", "0\n", "0\n", "good", NULL },
                  { "dram", "512\n", "512\n", "note", "vm.nr_hugepages=0" },
                  { "dram", "512\n", "0\n", "good", NULL },
                  { "dram", "5\n", "6\n", "note", "run this command where" } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[256];

        snprintf(text, sizeof(text), GOOD_CONFIG "cache: {tiers: [{kind: %s, bytes: 1GiB}]}\n",
                 cases[i].kind);
        put_config(text);
        put(POOL "nr_hugepages", cases[i].pages);
        put(POOL "free_hugepages", cases[i].free_pages);
        run(check_huge_pages);
        assert_state("huge_pages.pool", cases[i].state);
        if (cases[i].advice)
            assert_says("huge_pages.pool", "advice", cases[i].advice);
    }
}

/* ---- Memory ---- */

static void test_memory_that_a_start_lacks_is_a_warning(void **state)
{
    static const struct machine machine = { .memory_bytes = 64 * GIB,
                                            .available_bytes = GIB,
                                            .core_count = 2,
                                            .descriptor_limit = 1048576 };
    static const char text[] = GOOD_CONFIG "cache: {tiers: [{bytes: 20GiB}]}\n";

    (void)state;
    run(check_memory);
    assert_state("memory.available", "good");
    assert_int_equal(json_integer_value(value("memory.available")), 62914560 * KIB);
    config_free(fixture.config);
    fixture.config = NULL;
    assert_int_equal(config_parse("test.yaml", text, strlen(text), &machine, budget_unbudgeted,
                                  &fixture.config, NULL),
                     EMBTIER_OK);
    run(check_memory);
    assert_state("memory.available", "warn");
    assert_says("memory.available", "text", "available now");
}

static void test_limits_of_control_groups_of_both_versions_are_found(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/system.slice/embtierd.service\n");
    put("/sys/fs/cgroup/system.slice/memory.max", "8589934592\n");
    put("/sys/fs/cgroup/system.slice/memory.current", "3221225472\n");
    put("/sys/fs/cgroup/system.slice/memory.stat", "inactive_file 1073741824\nactive_file 0\n");
    put("/sys/fs/cgroup/system.slice/embtierd.service/memory.max", "max\n");
    run(check_memory);
    assert_state("memory.control_group", "note");
    assert_says("memory.control_group", "text", "(version 2) may have 8GiB, of which 2GiB are");
    assert_int_equal(json_integer_value(value("memory.control_group")), 8 * GIB);
    put("/sys/fs/cgroup/system.slice/memory.current", "9500000000\n");
    run(check_memory);
    assert_state("memory.control_group", "warn");

    drop("/sys/fs/cgroup/cgroup.controllers");
    put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/jobs/a\n0::/\n");
    put("/sys/fs/cgroup/memory/jobs/a/memory.limit_in_bytes", "4294967296\n");
    put("/sys/fs/cgroup/memory/jobs/a/memory.usage_in_bytes", "1073741824\n");
    put("/sys/fs/cgroup/memory/jobs/a/memory.stat", "total_inactive_file 0\n");
    run(check_memory);
    assert_says("memory.control_group", "text", "(version 1) may have 4GiB, of which 1GiB are");
    put("/sys/fs/cgroup/memory/jobs/a/memory.limit_in_bytes", "9223372036854771712\n");
    run(check_memory);
    assert_state("memory.control_group", "good");
}

/* ---- Limits ---- */

static void put_limits(const char *soft, const char *hard)
{
    char text[512];

    snprintf(text, sizeof(text),
             "Limit                     Soft Limit           Hard Limit           Units     \n"
             "Max file size             %-20s %-20s bytes     \n"
             "Max open files            %-20s %-20s files     \n"
             "Max locked memory         %-20s %-20s bytes     \n",
             soft, hard, soft, hard, soft, hard);
    put("/proc/self/limits", text);
}

static void test_descriptors_are_compared_with_the_needs_of_the_configuration(void **state)
{
    (void)state;
    run(check_limits);
    assert_state("limits.descriptors", "good"); /* the server raises its soft limit */
    assert_int_equal(json_integer_value(value("limits.descriptors")), 1048576);
    put_limits("64", "100");
    run(check_limits);
    assert_state("limits.descriptors", "bad");
    assert_says("limits.descriptors", "text", "file descriptors are needed");
    assert_says("limits.descriptors", "advice", "LimitNOFILE=");
    put_limits("unlimited", "unlimited");
    run(check_limits);
    assert_state("limits.descriptors", "good");
}

static void test_descriptors_for_fewer_sessions_are_a_warning(void **state)
{
    static const struct machine machine = { .memory_bytes = 64 * GIB,
                                            .core_count = 2,
                                            .descriptor_limit = 2048 };

    (void)state;
    config_free(fixture.config);
    fixture.config = NULL;
    assert_int_equal(config_parse("test.yaml", GOOD_CONFIG, strlen(GOOD_CONFIG), &machine,
                                  budget_unbudgeted, &fixture.config, NULL),
                     EMBTIER_OK);
    put_limits("1024", "2048");
    run(check_limits);
    assert_state("limits.descriptors", "warn");
    assert_says("limits.descriptors", "text", "instead of 1024");
}

static void test_short_files_and_little_locked_memory_are_told(void **state)
{
    (void)state;
    run(check_limits);
    assert_state("limits.file_length", "good");
    assert_true(json_is_null(value("limits.file_length")));
    put_limits("65536", "1048576");
    run(check_limits);
    assert_state("limits.file_length", "warn");
    assert_says("limits.file_length", "text", "above 1MiB");
    assert_state("limits.locked_memory", "good");
    put_limits("0", "0");
    run(check_limits);
    assert_state("limits.locked_memory", "note");
    assert_says("limits.locked_memory", "advice", "LimitMEMLOCK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_only_transparent_pages_that_are_off_are_a_warning,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_pool_is_compared_with_the_tiers_that_take_it,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_that_a_start_lacks_is_a_warning, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_limits_of_control_groups_of_both_versions_are_found,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_descriptors_are_compared_with_the_needs_of_the_configuration, setup, teardown),
        cmocka_unit_test_setup_teardown(test_descriptors_for_fewer_sessions_are_a_warning, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_short_files_and_little_locked_memory_are_told, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
