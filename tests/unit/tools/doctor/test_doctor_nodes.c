/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the findings about NUMA nodes and memory beside DRAM. */
#include "doctor_fixture.h"

#define NODE "/sys/devices/system/node/node"

static void put_node(unsigned node, const char *processors, unsigned long kib)
{
    char path[PATH_MAX];
    char text[128];

    snprintf(path, sizeof(path), NODE "%u/cpulist", node);
    snprintf(text, sizeof(text), "%s\n", processors);
    put(path, text);
    snprintf(path, sizeof(path), NODE "%u/meminfo", node);
    snprintf(text, sizeof(text), "Node %u MemTotal: %lu kB\nNode %u MemFree: %lu kB\n", node, kib,
             node, kib / 2);
    put(path, text);
}

static void test_nodes_are_told_with_processors_and_memory(void **state)
{
    (void)state;
    run(check_numa);
    assert_says("numa", "text", "node 0: processors 0-1, 64GiB (");
    assert_int_equal(json_integer_value(value("numa")), 1);
    put_node(1, "2-3", 33554432);
    put_node(10, "", 134217728);
    run(check_numa);
    assert_state("numa", "note");
    assert_says("numa", "text", "node 1: processors 2-3, 32GiB");
    assert_says("numa", "text", "; node 10: no processors, 128GiB (64GiB available)");
    assert_says("numa", "advice", "numactl --interleave=all");
}

static void test_a_node_without_processors_does_not_make_two_sockets(void **state)
{
    (void)state;
    put_node(1, "", 134217728);
    run(check_numa);
    assert_state("numa", "good");
    assert_int_equal(json_integer_value(value("numa")), 2);
}

static void test_a_damaged_node_makes_the_list_unknown(void **state)
{
    (void)state;
    put(NODE "1/cpulist", "two\n");
    put(NODE "1/meminfo", "Node 1 MemTotal: 1 kB\n");
    run(check_numa);
    assert_says("numa", "text", "unknown");
}

static void test_far_memory_is_a_note_until_a_tier_uses_it(void **state)
{
    (void)state;
    put_node(2, "", 134217728);
    run(check_memory_kinds);
    assert_null(finding("memory_kinds"));
    assert_state("memory_kinds.node2", "note");
    assert_says("memory_kinds.node2", "advice", "kind: numa, numa_node: 2");
    assert_int_equal(json_integer_value(value("memory_kinds.node2")), 128 * GIB);
    put_config(GOOD_CONFIG "cache: {tiers: [{bytes: 1GiB}, {kind: numa, numa_node: 2, bytes: "
                           "1GiB}]}\n");
    run(check_memory_kinds);
    assert_state("memory_kinds.node2", "good");
    put_config("no_such_key: 1\n");
    run(check_memory_kinds);
    assert_state("memory_kinds.node2", "good"); /* nobody knows its use */
}

static void test_dax_devices_are_told_by_what_drives_them(void **state)
{
    (void)state;
    put("/sys/bus/dax/devices/dax0.0/size", "135291469824\n");
    put("/sys/bus/dax/devices/dax0.0/target_node", "2\n");
    put_link("/sys/bus/dax/devices/dax0.0/driver", "../../drivers/device_dax");
    put("/sys/bus/dax/devices/dax1.0/size", "much\n");
    run(check_memory_kinds);
    assert_state("memory_kinds.dax0.0", "note");
    assert_says("memory_kinds.dax0.0", "advice", "--mode=system-ram dax0.0");
    assert_null(finding("memory_kinds.dax1.0"));

    put_link("/sys/bus/dax/devices/dax0.0/driver", "../../drivers/kmem");
    put_node(2, "", 134217728);
    run(check_memory_kinds);
    assert_null(finding("memory_kinds.dax0.0"));
    assert_state("memory_kinds.node2", "note");
    assert_says("memory_kinds.node2", "advice", "kind: dax_kmem");
    put_config(GOOD_CONFIG "cache: {tiers: [{bytes: 1GiB}, {kind: dax_kmem, bytes: 1GiB}]}\n");
    run(check_memory_kinds);
    assert_state("memory_kinds.node2", "good");
}

static void test_persistent_memory_is_told_by_its_mode_and_mount(void **state)
{
    (void)state;
    put("/sys/bus/nd/devices/namespace0.0/size", "1073741824\n");
    put("/sys/bus/nd/devices/namespace0.0/mode", "fsdax\n");
    put("/sys/bus/nd/devices/namespace1.0/size", "0\n"); /* a seed */
    put("/sys/bus/nd/devices/namespace1.0/mode", "raw\n");
    put("/sys/bus/nd/devices/namespace2.0/size", "1073741824\n");
    put("/sys/bus/nd/devices/namespace2.0/mode", "raw\n");
    run(check_memory_kinds);
    assert_state("memory_kinds.namespace0.0", "note");
    assert_says("memory_kinds.namespace0.0", "advice", "mount -o dax=always");
    assert_null(finding("memory_kinds.namespace1.0"));
    assert_says("memory_kinds.namespace2.0", "advice", "--mode=fsdax");

    put("/proc/self/mountinfo",
        "50 27 259:9 / /mnt/never rw - ext4 /dev/pmem1 rw,dax=never\n"
        "51 27 259:8 / /mnt/pmem rw shared:3 - ext4 /dev/pmem0 rw,dax=always\n");
    run(check_memory_kinds);
    assert_state("memory_kinds.namespace0.0", "good");
    assert_null(finding("memory_kinds.mount50"));
    assert_state("memory_kinds.mount51", "note");
    assert_says("memory_kinds.mount51", "advice", "kind: file, path: /mnt/pmem,");
    put_config(GOOD_CONFIG "cache: {tiers: [{bytes: 1GiB}, {kind: file, path: /mnt/pmem/tier, "
                           "bytes: 1GiB}]}\n");
    put_path((struct recorded_path){ .path = "/mnt/pmem/tier", .mount = 51 });
    run(check_memory_kinds);
    assert_state("memory_kinds.mount51", "good");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nodes_are_told_with_processors_and_memory, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_node_without_processors_does_not_make_two_sockets,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_damaged_node_makes_the_list_unknown, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_far_memory_is_a_note_until_a_tier_uses_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_dax_devices_are_told_by_what_drives_them, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_persistent_memory_is_told_by_its_mode_and_mount, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
