/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which data directories count as one drive: on a machine with partitions, a volume over two
 * disks, and memory, whose files lie in a folder. */
#include "tests/unit/daemon/endurance/endurance_fixture.h"

#include "store/files/drive_number.h"

static const struct {
    const char *path;
    uint64_t mount;
    unsigned major, minor;
} paths[] = {
    { "/home/a", 40, 259, 1 },   /* the first partition of nvme0n1 */
    { "/home/b", 41, 259, 2 },   /* the second */
    { "/other", 42, 259, 3 },    /* nvme1n1 */
    { "/volume", 43, 252, 0 },   /* LVM over nvme1n1 and nvme2n1 */
    { "/third", 44, 259, 4 },    /* nvme2n1 */
    { "/mem", 45, 0, 40 },       /* tmpfs */
    { "/mem/also", 45, 0, 40 },  /* the same */
    { "/mem-other", 46, 0, 41 }, /* another tmpfs */
};

static struct host host;

static int look(const char *path, struct statx *ret_info)
{
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        if (strcmp(paths[i].path, path) != 0)
            continue;
        *ret_info = (struct statx){ .stx_mask = STATX_BASIC_STATS | STATX_MNT_ID,
                                    .stx_mode = S_IFDIR,
                                    .stx_dev_major = paths[i].major,
                                    .stx_dev_minor = paths[i].minor,
                                    .stx_mnt_id = paths[i].mount };
        return 0;
    }
    return ENOENT;
}

/* @folder below /sys/devices/block. */
static void put_device(const char *folder, const char *name, const char *number)
{
    char path[128], target[128], text[64];

    snprintf(path, sizeof(path), "/sys/devices/block/%s/dev", folder);
    snprintf(text, sizeof(text), "%s\n", number);
    put(path, text);
    snprintf(target, sizeof(target), "../../devices/block/%s", folder);
    snprintf(path, sizeof(path), "/sys/class/block/%s", name);
    put_link(path, target);
    snprintf(path, sizeof(path), "/sys/dev/block/%s", number);
    put_link(path, target);
}

static int setup(void **state)
{
    (void)state;
    make_root();
    put("/proc/self/mountinfo", "40 27 259:1 / /home/a rw - xfs /dev/nvme0n1p1 rw\n"
                                "41 27 259:2 / /home/b rw - ext4 /dev/nvme0n1p2 rw\n"
                                "42 27 259:3 / /other rw - ext4 /dev/nvme1n1 rw\n"
                                "43 27 252:0 / /volume rw - xfs /dev/mapper/volume rw\n"
                                "44 27 259:4 / /third rw - xfs /dev/nvme2n1 rw\n"
                                "45 27 0:40 / /mem rw - tmpfs tmpfs rw\n"
                                "46 27 0:41 / /mem-other rw - tmpfs tmpfs rw\n");
    put_device("nvme0n1", "nvme0n1", "259:0");
    put_device("nvme0n1/nvme0n1p1", "nvme0n1p1", "259:1");
    put_device("nvme0n1/nvme0n1p2", "nvme0n1p2", "259:2");
    put("/sys/devices/block/nvme0n1/nvme0n1p1/partition", "1\n");
    put("/sys/devices/block/nvme0n1/nvme0n1p2/partition", "2\n");
    put_device("nvme1n1", "nvme1n1", "259:3");
    put_device("nvme2n1", "nvme2n1", "259:4");
    put_device("dm-0", "dm-0", "252:0");
    put_link("/sys/devices/block/dm-0/slaves/nvme1n1", "../../nvme1n1");
    put_link("/sys/devices/block/dm-0/slaves/nvme2n1", "../../nvme2n1");
    host = (struct host){ .root = root, .look = look };
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return remove_root();
}

/* Numbers directories one after the other, as a store does. */
static void check_numbers(const char *const *directories, const uint32_t *numbers, uint32_t count)
{
    struct drive_place places[ARRAY_LEN(paths)];

    for (uint32_t i = 0; i < count; i++) {
        places[i] = (struct drive_place){ .path = directories[i] };
        places[i].number = drive_number(&host, places, i, directories[i]);
        assert_int_equal(places[i].number, numbers[i]);
    }
}

static void test_partitions_of_a_disk_are_one_drive(void **state)
{
    (void)state;
    check_numbers((const char *const[]){ "/home/a", "/other", "/home/b" },
                  (const uint32_t[]){ 0, 1, 0 }, 3);
}

static void test_a_volume_shares_the_drive_of_each_of_its_disks(void **state)
{
    (void)state;
    check_numbers((const char *const[]){ "/volume", "/home/a", "/other", "/third" },
                  (const uint32_t[]){ 0, 1, 0, 0 }, 4);
}

static void test_without_a_disk_a_file_system_is_a_drive(void **state)
{
    (void)state;
    check_numbers((const char *const[]){ "/mem", "/mem-other", "/home/a", "/mem/also" },
                  (const uint32_t[]){ 0, 1, 2, 0 }, 4);
}

static void test_an_unknown_directory_is_a_drive_of_its_own(void **state)
{
    (void)state;
    check_numbers((const char *const[]){ "/home/a", "/nowhere", "/nowhere", "/home/b" },
                  (const uint32_t[]){ 0, 1, 2, 0 }, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_partitions_of_a_disk_are_one_drive, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_volume_shares_the_drive_of_each_of_its_disks, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_without_a_disk_a_file_system_is_a_drive, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_an_unknown_directory_is_a_drive_of_its_own, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
