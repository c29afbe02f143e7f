/* SPDX-License-Identifier: Apache-2.0 */
/* Which paths are NVMe drives, on a machine that is a folder? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tools/nvme/nvme_drive.h"

static const struct device {
    const char *path;
    mode_t mode;
    unsigned major, minor;
    const char *target; /* of its link in /sys; NULL: it has none */
} devices[] = {
    { "/dev/nvme0", S_IFCHR, 240, 0, "../../devices/pci/nvme/nvme0" },
    { "/dev/nvme0n1", S_IFBLK, 259, 0, "../../devices/pci/nvme/nvme0/nvme0n1" },
    { "/dev/nvme0n1p1", S_IFBLK, 259, 1, "../../devices/pci/nvme/nvme0/nvme0n1/nvme0n1p1" },
    { "/dev/nvme12n34", S_IFBLK, 259, 9, "../../devices/pci/nvme/nvme12/nvme12n34" },
    { "/dev/sda", S_IFBLK, 8, 0, "../../devices/pci/ata1/sda" },
    { "/dev/nvme", S_IFCHR, 240, 7, "../../devices/nvme" },
    { "/dev/nvmem0", S_IFCHR, 240, 8, "../../devices/nvmem0" },
    { "/dev/nvme-fabrics", S_IFCHR, 10, 122, "../../devices/virtual/misc/nvme-fabrics" },
    { "/dev/nvme9n1", S_IFBLK, 259, 90, NULL },
    { "/etc/nvme0n1", S_IFREG, 0, 0, NULL },
};

static struct host host;
static char root[64];

static int look(const char *path, struct statx *ret_info)
{
    for (size_t i = 0; i < ARRAY_LEN(devices); i++) {
        if (strcmp(devices[i].path, path) != 0)
            continue;
        *ret_info = (struct statx){ .stx_mask = STATX_BASIC_STATS,
                                    .stx_mode = (uint16_t)devices[i].mode,
                                    .stx_rdev_major = devices[i].major,
                                    .stx_rdev_minor = devices[i].minor };
        return 0;
    }
    return ENOENT;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static void make_folder(const char *name)
{
    char path[PATH_MAX];

    assert_true(snprintf(path, sizeof(path), "%s%s", root, name) < (int)sizeof(path));
    assert_int_equal(mkdir(path, 0700), 0);
}

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "%.40s/nvme-XXXXXX",
             getenv("TMPDIR") && strlen(getenv("TMPDIR")) <= 40 ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(root));
    host = (struct host){ .root = root, .look = look };
    make_folder("/sys");
    make_folder("/sys/dev");
    make_folder("/sys/dev/block");
    make_folder("/sys/dev/char");
    for (size_t i = 0; i < ARRAY_LEN(devices); i++) {
        char link[PATH_MAX];

        if (!devices[i].target)
            continue;
        assert_true(snprintf(link, sizeof(link), "%s/sys/dev/%s/%u:%u", root,
                             devices[i].mode == S_IFBLK ? "block" : "char", devices[i].major,
                             devices[i].minor) < (int)sizeof(link));
        assert_int_equal(symlink(devices[i].target, link), 0);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void assert_found(const char *path, const char *name, dev_t number, bool is_block)
{
    struct nvme_drive drive;
    struct err_msg msg = { { 0 } };

    assert_int_equal(nvme_drive_find(&host, path, &drive, &msg), EMBTIER_OK);
    assert_string_equal(drive.name.text, name);
    assert_int_equal(drive.number, number);
    assert_int_equal(drive.is_block, is_block);
}

static void assert_refused(const char *path, enum embtier_err why, const char *words)
{
    struct nvme_drive drive;
    struct err_msg msg = { { 0 } };

    assert_int_equal(nvme_drive_find(&host, path, &drive, &msg), why);
    if (!strstr(msg.text, words))
        print_error("'%s' is not in: %s\n", words, msg.text);
    assert_non_null(strstr(msg.text, words));
}

static void test_drives_are_found(void **state)
{
    (void)state;
    assert_found("/dev/nvme0n1", "nvme0n1", makedev(259, 0), true);
    assert_found("/dev/nvme12n34", "nvme12n34", makedev(259, 9), true);
    assert_found("/dev/nvme0", "nvme0", makedev(240, 0), false);
}

static void test_nothing_else_is(void **state)
{
    (void)state;
    assert_refused("/dev/nvme0n1p1", EMBTIER_INVALID, "and not its partition");
    assert_refused("/dev/sda", EMBTIER_INVALID, "'sda' is no NVMe drive");
    assert_refused("/dev/nvme", EMBTIER_INVALID, "is no NVMe drive");
    assert_refused("/dev/nvmem0", EMBTIER_INVALID, "is no NVMe drive");
    assert_refused("/dev/nvme-fabrics", EMBTIER_INVALID, "is no NVMe drive");
    assert_refused("/dev/nvme9n1", EMBTIER_INVALID, "no device that /sys knows");
    assert_refused("/etc/nvme0n1", EMBTIER_INVALID, "no device that /sys knows");
    assert_refused("/dev/missing", EMBTIER_NOT_FOUND, "/dev/missing");
}

/* The path that was looked at may name another file when it is opened. */
static void test_a_path_that_became_another_file_is_not_read(void **state)
{
    const struct nvme_drive drive = { .number = makedev(259, 0), .is_block = true };
    struct err_msg msg = { { 0 } };
    int fd = -1;

    (void)state;
    assert_int_equal(nvme_drive_open(&drive, "/dev/null", &fd, &msg), EMBTIER_MISMATCH);
    assert_int_equal(fd, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drives_are_found),
        cmocka_unit_test(test_nothing_else_is),
        cmocka_unit_test(test_a_path_that_became_another_file_is_not_read),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
