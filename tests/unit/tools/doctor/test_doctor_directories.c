/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the findings about data directories, tiers' paths, and what lies beneath them. */
#include "doctor_fixture.h"

#define A "data.directories[0]"
#define B "data.directories[1]"

static void put_mount(const char *rest)
{
    char text[512];

    snprintf(text, sizeof(text), "40 27 %s\n", rest);
    put("/proc/self/mountinfo", text);
}

/* ---- The directory itself ---- */

static void test_a_missing_directory_is_bad_unless_it_is_the_default(void **state)
{
    (void)state;
    fixture.path_count = 1;
    run(check_directories);
    assert_state(A, "good");
    assert_state(B, "bad");
    assert_says(B, "text", "/data/b/rows: No such file");
    assert_says(B, "advice", "mkdir -p /data/b/rows");
    assert_null(finding(B ".file_system"));
    put_config("");
    fixture.path_count = 0;
    run(check_directories);
    assert_state(A, "note");
    assert_says(A, "text", "the first start makes");
}

static void test_what_is_no_directory_or_not_the_users_is_bad(void **state)
{
    (void)state;
    fixture.paths[0].mode = S_IFREG | 0600;
    fixture.paths[1].write_errnum = EACCES;
    run(check_directories);
    assert_state(A, "bad");
    assert_says(A, "text", "Not a directory");
    assert_state(B, "bad");
    assert_says(B, "advice", "chown USER /data/b/rows");
    fixture.paths[1].write_errnum = EROFS;
    run(check_directories);
    assert_says(B, "text", "Read-only file system");
}

/* A command with half a path would be of no use. */
static void test_a_long_path_is_shown_whole(void **state)
{
    char path[301];
    char text[512];

    (void)state;
    memset(path, 'a', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    snprintf(text, sizeof(text), "data: {directories: [%s]}\n", path);
    put_config(text);
    run(check_directories);
    assert_state(A, "bad");
    assert_says(A, "text", path);
    assert_says(A, "advice", path);
}

/* ---- File systems ---- */

static void test_file_systems_are_judged_by_their_type(void **state)
{
    static const struct {
        const char *type, *state;
    } cases[] = { { "ext4", "good" }, { "xfs", "good" },   { "btrfs", "note" },
                  { "zfs", "note" },  { "tmpfs", "warn" }, { "overlay", "warn" },
                  { "nfs", "warn" },  { "nfs4", "warn" },  { "fuse.sshfs", "warn" },
                  { "9p", "warn" },   { "ext", "note" },   { "xfs2", "note" },
                  { "\\040", "note" } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char mount[128];

        snprintf(mount, sizeof(mount), "259:1 / /data/a rw - %s /dev/nvme0n1p1 rw", cases[i].type);
        put_mount(mount);
        run(check_directories);
        assert_state(A ".file_system", cases[i].state);
        assert_string_equal(json_string_value(value(A ".file_system")), cases[i].type);
    }
}

static void test_without_a_mount_the_file_system_is_unknown(void **state)
{
    static const char *const mounts[] = { "", "259:1 / /data/a rw ext4 /dev/x rw",
                                          "259 / /data/a rw - ext4 /dev/x rw",
                                          "259:1 / /data/a rw - ext4", "x:1 / / rw - ext4 a b" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(mounts); i++) {
        put_mount(mounts[i]);
        run(check_directories);
        assert_state(A ".file_system", "note");
        assert_says(A ".file_system", "text", "unknown");
        assert_state(A ".device", "good"); /* by the number that stat() gives */
    }
    fixture.paths[0].mount = 0; /* before Linux 5.8 */
    run(check_directories);
    assert_says(A ".file_system", "text", "unknown");
}

/* ---- Devices ---- */

static void test_a_partition_has_the_queue_of_its_disk(void **state)
{
    (void)state;
    run(check_directories);
    assert_says(A ".device", "text", "nvme0n1 does not rotate, 931.32GiB");
    assert_string_equal(json_string_value(json_array_get(value(A ".device"), 0)), "nvme0n1");
    put("/sys/devices/nvme/block/nvme0n1/queue/rotational", "1\n");
    put("/sys/devices/nvme/block/nvme0n1/queue/scheduler", "none mq-deadline [bfq]\n");
    run(check_directories);
    assert_state(A ".device", "warn");
    assert_says(A ".device", "advice", "/sys/class/block/nvme0n1/queue/rotational");
    assert_state(A ".scheduler", "warn");
    assert_says(A ".scheduler", "advice", "echo none >/sys/class/block/nvme0n1/queue/scheduler");
    assert_state(B ".scheduler", "good");
}

/* A volume of LVM on a partition of one disk, and on a whole one. */
static void test_volumes_are_followed_down_to_their_disks(void **state)
{
    (void)state;
    put_link("/sys/dev/block/253:0", "../../devices/virtual/block/dm-0");
    put_link("/sys/class/block/dm-0", "../../devices/virtual/block/dm-0");
    put("/sys/devices/virtual/block/dm-0/dev", "253:0\n");
    put("/sys/devices/virtual/block/dm-0/slaves/nvme0n1p1/dev", "259:1\n");
    put("/sys/devices/virtual/block/dm-0/slaves/vda/dev", "254:0\n");
    put_mount("253:0 / /data/a rw - ext4 /dev/mapper/vg-lv rw");
    run(check_directories);
    assert_int_equal(json_array_size(value(A ".device")), 2);
    assert_says(A ".device", "text", "nvme0n1 does not rotate");
    assert_says(A ".device", "text", "; vda does not rotate, 1GiB");
}

/* Slaves that lead back to themselves do not hang the command. */
static void test_a_loop_of_devices_ends(void **state)
{
    (void)state;
    put("/sys/devices/nvme/block/nvme1n1/slaves/nvme1n1/dev", "259:3\n");
    run(check_directories);
    assert_state(B ".device", "note");
}

static void test_a_file_system_with_a_number_of_its_own_names_its_device(void **state)
{
    (void)state;
    put_mount("0:45 /@ /data/a rw - btrfs /dev/nvme0n1p1 rw,subvol=/@");
    run(check_directories);
    assert_state(A ".device", "note"); /* /dev has no such name */
    put_path((struct recorded_path){
        .path = "/dev/nvme0n1p1", .mode = S_IFBLK | 0600, .device_major = 259, .device_minor = 1 });
    run(check_directories);
    assert_state(A ".device", "good");
    assert_says(A ".device", "text", "nvme0n1");
}

static void test_directories_on_one_device_are_a_warning_and_one_twice_is_bad(void **state)
{
    (void)state;
    run(check_directories);
    assert_state(A ".shared_device", "good");
    fixture.paths[1] = fixture.paths[0];
    fixture.paths[1].path = "/data/b/rows";
    fixture.paths[1].inode = 6;
    run(check_directories);
    assert_state(A ".shared_device", "good");
    assert_state(B ".shared_device", "warn");
    assert_string_equal(json_string_value(value(B ".shared_device")), A);
    fixture.paths[1].inode = fixture.paths[0].inode;
    run(check_directories);
    assert_state(B ".shared_device", "bad");
    put_config("data: {directories: [/data/a/rows]}\n");
    run(check_directories);
    assert_null(finding(A ".shared_device"));
}

/* ---- Stores ---- */

static void test_a_directory_that_a_start_refuses_is_bad(void **state)
{
    (void)state;
    put("/data/a/rows/LOCK", "");
    run(check_directories);
    assert_null(finding(A ".store"));
    put("/data/a/rows/letter.txt", "");
    run(check_directories);
    assert_state(A ".store", "bad");
    assert_says(A ".store", "text", "not empty (letter.txt)");
    assert_null(finding(B ".store"));
    put("/data/a/rows/embtier.json", "{\"state\": \"ready\", \"directory_count\": 2}");
    run(check_directories);
    assert_null(finding(A ".store"));
    assert_state(B ".store", "bad");
    assert_says(B ".store", "text", "/data/a/rows belongs to a store");
    put_config("data: {directories: [/data/a/rows]}\n");
    run(check_directories);
    assert_state(A ".store", "bad");
    assert_says(A ".store", "text", "its store has 2 directories");
    put("/data/a/rows/directories.json", "{}");
    run(check_directories);
    assert_null(finding(A ".store"));
}

/* ---- Direct I/O and space ---- */

static void test_missing_direct_io_is_as_bad_as_the_configuration_makes_it(void **state)
{
    static const struct {
        const char *wanted, *state;
    } cases[] = { { "auto", "warn" }, { "on", "bad" }, { "off", "note" } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[256];

        snprintf(text, sizeof(text), GOOD_CONFIG "rocksdb: {direct_io: %s}\n", cases[i].wanted);
        put_config(text);
        fixture.paths[0].direct_errnum = EINVAL;
        fixture.paths[1].direct_errnum = EOPNOTSUPP;
        run(check_directories);
        assert_state(A ".direct_io", cases[i].state);
        assert_true(json_is_false(value(A ".direct_io")));
        assert_state(B ".direct_io", "note");
        assert_says(B ".direct_io", "text", "unknown");
    }
}

static void test_little_space_is_a_warning_and_none_is_bad(void **state)
{
    static const struct {
        uint64_t free_bytes;
        const char *state;
    } cases[] = { { 91 * GIB, "good" },
                  { 89 * GIB, "warn" },
                  { 64 * MIB, "warn" },
                  { 63 * MIB, "bad" },
                  { 0, "bad" } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fixture.paths[0].free_bytes = cases[i].free_bytes;
        run(check_directories);
        assert_state(A ".space", cases[i].state);
        assert_int_equal(json_integer_value(value(A ".space")), cases[i].free_bytes);
    }
    fixture.paths[0].bytes = 0; /* statvfs() fails */
    run(check_directories);
    assert_says(A ".space", "text", "unknown");
}

/* ---- Tiers ---- */

static void test_a_tier_in_a_file_wants_dax_and_space(void **state)
{
    struct recorded_path *tier;

    (void)state;
    put_config(GOOD_CONFIG "cache: {tiers: [{bytes: 1GiB}, {kind: file, path: /tier, bytes: "
                           "10GiB}, {name: other, kind: file, path: /tier, bytes: 10GiB}]}\n");
    assert_non_null(fixture.config);
    run(check_tiers);
    assert_state("cache.tiers[1].path", "bad");
    tier = put_path((struct recorded_path){ .path = "/tier",
                                            .mount = 40,
                                            .major = 259,
                                            .minor = 1,
                                            .free_bytes = 15 * GIB,
                                            .bytes = 100 * GIB });
    run(check_tiers);
    assert_state("cache.tiers[1].path", "good");
    assert_state("cache.tiers[1].path.file_system", "warn");
    assert_says("cache.tiers[1].path.file_system", "text", "on the device of data.directories[0]");
    assert_state("cache.tiers[1].path.space", "good");
    assert_state("cache.tiers[2].path.space", "warn"); /* both together */
    assert_says("cache.tiers[2].path.space", "advice", "free 5GiB");

    tier->bytes = 19 * GIB;
    run(check_tiers);
    assert_state("cache.tiers[2].path.space", "bad");

    put_mount("259:8 / /tier rw - ext4 /dev/pmem0 rw,dax=always");
    tier->bytes = 100 * GIB;
    tier->free_bytes = 20 * GIB;
    run(check_tiers);
    assert_state("cache.tiers[1].path.file_system", "good");
    assert_state("cache.tiers[2].path.space", "good");
    put_mount("0:45 / /tier rw - tmpfs tmpfs rw");
    run(check_tiers);
    assert_state("cache.tiers[1].path.file_system", "good");
    assert_says("cache.tiers[1].path.file_system", "text", "memory");
}

static void test_tiers_of_nodes_and_dax_devices_want_their_memory(void **state)
{
    (void)state;
    put_config(GOOD_CONFIG
               "cache: {tiers: [{bytes: 1GiB}, {kind: numa, numa_node: 0, bytes: "
               "8GiB}, {name: other, kind: numa, numa_node: 7, bytes: 1GiB}, {kind: dax_kmem, "
               "bytes: 1GiB}]}\n");
    assert_non_null(fixture.config);
    run(check_tiers);
    assert_state("cache.tiers[1].numa_node", "good");
    assert_state("cache.tiers[2].numa_node", "bad");
    assert_says("cache.tiers[2].numa_node", "text", "no NUMA node 7");
    assert_state("cache.tiers[3].kind", "bad");
    assert_says("cache.tiers[3].kind", "advice", "daxctl");
    put("/sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal: 67108864 kB\nNode 0 MemFree: 1000 kB\n");
    put("/sys/bus/dax/devices/dax0.0/size", "1073741824\n");
    put_link("/sys/bus/dax/devices/dax0.0/driver", "../../drivers/kmem");
    run(check_tiers);
    assert_state("cache.tiers[1].numa_node", "warn");
    assert_state("cache.tiers[3].kind", "good");
    put("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 1000 kB\n");
    run(check_tiers);
    assert_state("cache.tiers[1].numa_node", "bad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_directory_that_a_start_refuses_is_bad, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_missing_directory_is_bad_unless_it_is_the_default,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_directory_or_not_the_users_is_bad, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_long_path_is_shown_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file_systems_are_judged_by_their_type, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_without_a_mount_the_file_system_is_unknown, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_partition_has_the_queue_of_its_disk, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_volumes_are_followed_down_to_their_disks, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_loop_of_devices_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_file_system_with_a_number_of_its_own_names_its_device, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_directories_on_one_device_are_a_warning_and_one_twice_is_bad, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_missing_direct_io_is_as_bad_as_the_configuration_makes_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_little_space_is_a_warning_and_none_is_bad, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_tier_in_a_file_wants_dax_and_space, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tiers_of_nodes_and_dax_devices_want_their_memory,
                                        setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
