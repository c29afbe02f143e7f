/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_fixture.h: a machine in a folder, whose files and system calls a test can change. It
 * begins as a good one, made up of lines in the form of Linux 6.18: two processors and three disks.
 */
#ifndef EMBTIER_TESTS_DOCTOR_FIXTURE_H
#define EMBTIER_TESTS_DOCTOR_FIXTURE_H

/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "config/config_load.h"
#include "daemon/budget/budget.h"
#include "tools/cli/doctor/checks.h"

struct recorded_file {
    const char *path;
    const char *text; /* NULL: a folder */
};

struct recorded_link {
    const char *path;
    const char *target;
};

static const struct recorded_file good_files[] = {
    { "/proc/sys/kernel/osrelease", "6.18.44-amd64\n" },
    { "/proc/sys/kernel/io_uring_disabled", "0\n" },
    { "/proc/self/status", "Name:\tembtier\nSeccomp:\t0\nSeccomp_filters:\t0\n" },
    { "/proc/self/cgroup", "0::/\n" },
    { "/proc/meminfo", "MemTotal:       67108864 kB\nMemFree:        60000000 kB\n"
                       "MemAvailable:   62914560 kB\n" },
    { "/proc/zoneinfo", "Node 0, zone Normal\n        low      100\n        high     200\n"
                        "        managed  1000000\n        protection: (0, 0)\n" },
    { "/proc/self/limits",
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max file size             unlimited            unlimited            bytes     \n"
      "Max open files            1024                 1048576              files     \n"
      "Max locked memory         8388608              8388608              bytes     \n"
      "Max nice priority         0                    0                    \n" },
    { "/proc/self/mountinfo",
      "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
      "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
      "40 27 259:1 / /data/a rw,relatime shared:1 - xfs /dev/nvme0n1p1 rw\n"
      "41 27 259:3 / /data/b rw,relatime shared:2 master:7 - ext4 /dev/nvme1n1 rw\n" },
    { "/sys/fs/cgroup/cgroup.controllers", "cpu memory io\n" },
    { "/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n" },
    { "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n" },
    { "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n" },
    { "/sys/devices/system/node/node0/cpulist", "0-1\n" },
    { "/sys/devices/system/node/node0/meminfo",
      "Node 0 MemTotal:       67108864 kB\nNode 0 MemFree:        60000000 kB\n" },
    { "/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n" },
    { "/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm\n" },
    { "/sys/devices/virtio1/block/vda/dev", "254:0\n" },
    { "/sys/devices/virtio1/block/vda/size", "2097152\n" },
    { "/sys/devices/virtio1/block/vda/queue/rotational", "0\n" },
    { "/sys/devices/virtio1/block/vda/queue/scheduler", "none [mq-deadline] kyber bfq\n" },
    { "/sys/devices/nvme/block/nvme0n1/dev", "259:0\n" },
    { "/sys/devices/nvme/block/nvme0n1/size", "1953125000\n" },
    { "/sys/devices/nvme/block/nvme0n1/queue/rotational", "0\n" },
    { "/sys/devices/nvme/block/nvme0n1/queue/scheduler", "[none] mq-deadline\n" },
    { "/sys/devices/nvme/block/nvme0n1/nvme0n1p1/dev", "259:1\n" },
    { "/sys/devices/nvme/block/nvme0n1/nvme0n1p1/partition", "1\n" },
    { "/sys/devices/nvme/block/nvme1n1/dev", "259:3\n" },
    { "/sys/devices/nvme/block/nvme1n1/size", "1953125000\n" },
    { "/sys/devices/nvme/block/nvme1n1/queue/rotational", "0\n" },
    { "/sys/devices/nvme/block/nvme1n1/queue/scheduler", "[none] mq-deadline\n" },
};

static const struct recorded_link good_links[] = {
    { "/sys/dev/block/254:0", "../../devices/virtio1/block/vda" },
    { "/sys/dev/block/259:0", "../../devices/nvme/block/nvme0n1" },
    { "/sys/dev/block/259:1", "../../devices/nvme/block/nvme0n1/nvme0n1p1" },
    { "/sys/dev/block/259:3", "../../devices/nvme/block/nvme1n1" },
    { "/sys/class/block/vda", "../../devices/virtio1/block/vda" },
    { "/sys/class/block/nvme0n1", "../../devices/nvme/block/nvme0n1" },
    { "/sys/class/block/nvme0n1p1", "../../devices/nvme/block/nvme0n1/nvme0n1p1" },
    { "/sys/class/block/nvme1n1", "../../devices/nvme/block/nvme1n1" },
};

#define GOOD_CONFIG                                                                                \
    "data: {directories: [/data/a/rows, /data/b/rows]}\nsocket: {path: /run/embtier.sock}\n"

/* The system calls' answers for a path. */
struct recorded_path {
    const char *path;
    uint64_t mount;
    unsigned major, minor;
    uint64_t inode;
    mode_t mode;
    unsigned device_major, device_minor; /* of a block device */
    uint64_t free_bytes, bytes;
    int write_errnum, direct_errnum;
};

#define PATHS_MAX 8

static struct doctor_fixture {
    char root[64];
    struct host host;
    struct recorded_path paths[PATHS_MAX];
    size_t path_count;
    int ring_errnum, clock_errnum;
    bool is_synchronised;
    struct config *config;
    struct err_msg mistake;
    struct findings findings;
} fixture;

/* ---- The folder ---- */

static inline void fixture_path(const char *path, char ret_path[PATH_MAX])
{
    assert_true(snprintf(ret_path, PATH_MAX, "%s%s", fixture.root, path) < PATH_MAX);
    for (char *at = ret_path + strlen(fixture.root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        assert_true(mkdir(ret_path, 0700) == 0 || errno == EEXIST);
        *at = '/';
    }
}

static inline void put_bytes(const char *path, const char *text, size_t bytes)
{
    char full[PATH_MAX];
    FILE *file;

    fixture_path(path, full);
    file = fopen(full, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void put(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

static inline void put_link(const char *path, const char *target)
{
    char full[PATH_MAX];

    fixture_path(path, full);
    (void)unlink(full);
    assert_int_equal(symlink(target, full), 0);
}

static inline void drop(const char *path)
{
    char full[PATH_MAX];

    fixture_path(path, full);
    assert_int_equal(unlink(full), 0);
}

static inline int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

/* ---- System calls ---- */

static inline struct recorded_path *find_path(const char *path)
{
    for (size_t i = 0; i < fixture.path_count; i++)
        if (strcmp(fixture.paths[i].path, path) == 0)
            return &fixture.paths[i];
    return NULL;
}

static inline int fake_look(const char *path, struct statx *ret_info)
{
    const struct recorded_path *const found = find_path(path);

    if (!found)
        return ENOENT;
    *ret_info = (struct statx){ .stx_mask = STATX_BASIC_STATS | (found->mount ? STATX_MNT_ID : 0),
                                .stx_mode = (uint16_t)found->mode,
                                .stx_ino = found->inode,
                                .stx_dev_major = found->major,
                                .stx_dev_minor = found->minor,
                                .stx_rdev_major = found->device_major,
                                .stx_rdev_minor = found->device_minor,
                                .stx_mnt_id = found->mount };
    return 0;
}

static inline int fake_room(const char *path, struct statvfs *ret_room)
{
    const struct recorded_path *const found = find_path(path);

    if (!found || found->bytes == 0)
        return EIO;
    *ret_room = (struct statvfs){ .f_frsize = 4096,
                                  .f_blocks = found->bytes / 4096,
                                  .f_bavail = found->free_bytes / 4096 };
    return 0;
}

static inline int fake_may_write(const char *path)
{
    return find_path(path)->write_errnum;
}

static inline int fake_direct_io(const char *path)
{
    return find_path(path)->direct_errnum;
}

static inline int fake_ring(void)
{
    return fixture.ring_errnum;
}

static inline int fake_clock(bool *ret_is)
{
    *ret_is = fixture.is_synchronised;
    return fixture.clock_errnum;
}

/* ---- Tests ---- */

static inline struct recorded_path *put_path(struct recorded_path path)
{
    struct recorded_path *const at = &fixture.paths[fixture.path_count++];

    assert_true(fixture.path_count <= PATHS_MAX);
    path.mode = path.mode ? path.mode : S_IFDIR | 0700;
    *at = path;
    return at;
}

/* NULL: there is a mistake in it, which findings then name. */
static inline void put_config(const char *text)
{
    const struct machine machine = { .memory_bytes = 64 * GIB,
                                     .available_bytes = 60 * GIB,
                                     .core_count = 2,
                                     .descriptor_limit = 1048576 };

    config_free(fixture.config);
    fixture.config = NULL;
    if (config_parse("test.yaml", text, strlen(text), &machine, budget_unbudgeted, &fixture.config,
                     &fixture.mistake) != EMBTIER_OK)
        assert_null(fixture.config);
}

static inline int setup(void **state)
{
    (void)state;
    memset(&fixture, 0, sizeof(fixture));
    snprintf(fixture.root, sizeof(fixture.root), "%.40s/doctor-XXXXXX",
             getenv("TMPDIR") && strlen(getenv("TMPDIR")) <= 40 ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(fixture.root));
    fixture.host = (struct host){ .root = fixture.root,
                                  .look = fake_look,
                                  .room = fake_room,
                                  .may_write = fake_may_write,
                                  .try_direct_io = fake_direct_io,
                                  .try_ring = fake_ring,
                                  .clock_is_synchronised = fake_clock };
    fixture.is_synchronised = true;
    for (size_t i = 0; i < ARRAY_LEN(good_files); i++)
        put(good_files[i].path, good_files[i].text);
    for (size_t i = 0; i < ARRAY_LEN(good_links); i++)
        put_link(good_links[i].path, good_links[i].target);
    put_path((struct recorded_path){ .path = "/data/a/rows",
                                     .mount = 40,
                                     .major = 259,
                                     .minor = 1,
                                     .inode = 5,
                                     .free_bytes = 500 * GIB,
                                     .bytes = 900 * GIB });
    put_path((struct recorded_path){ .path = "/data/b/rows",
                                     .mount = 41,
                                     .major = 259,
                                     .minor = 3,
                                     .inode = 5,
                                     .free_bytes = 500 * GIB,
                                     .bytes = 900 * GIB });
    put_config(GOOD_CONFIG);
    assert_non_null(fixture.config);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    findings_clear(&fixture.findings);
    config_free(fixture.config);
    return nftw(fixture.root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Each finding says something, and what to do if it is not good; no name occurs twice. */
static inline void check_form(void)
{
    const json_t *finding, *other;
    size_t i, j;

    assert_false(fixture.findings.is_incomplete);
    json_array_foreach(fixture.findings.list, i, finding)
    {
        const char *const name = json_string_value(json_object_get(finding, "name"));
        const json_t *const advice = json_object_get(finding, "advice");
        const char *const state = json_string_value(json_object_get(finding, "state"));

        assert_true(strlen(name) > 0);
        assert_true(strlen(json_string_value(json_object_get(finding, "text"))) > 0);
        assert_non_null(json_object_get(finding, "value"));
        if (strcmp(state, "good") == 0)
            assert_true(json_is_null(advice));
        else
            assert_true(strlen(json_string_value(advice)) > 0);
        for (j = 0; j < i; j++) {
            other = json_array_get(fixture.findings.list, j);
            assert_string_not_equal(name, json_string_value(json_object_get(other, "name")));
        }
    }
}

static inline void run(check_fn *check)
{
    const struct examination e = { .host = &fixture.host,
                                   .config = fixture.config,
                                   .config_path = "test.yaml",
                                   .config_mistake = fixture.mistake.text,
                                   .findings = &fixture.findings };

    findings_clear(&fixture.findings);
    findings_init(&fixture.findings);
    check(&e);
    check_form();
}

static inline void run_all(const struct examination *e)
{
    checks_run(e);
}

/* NULL: there is no finding of that name. */
static inline const json_t *finding(const char *name)
{
    const json_t *one;
    size_t i;

    json_array_foreach(fixture.findings.list, i,
                       one) if (strcmp(json_string_value(json_object_get(one, "name")), name) ==
                                0) return one;
    return NULL;
}

static inline const char *member(const char *name, const char *key)
{
    assert_non_null(finding(name));
    return json_string_value(json_object_get(finding(name), key));
}

static inline const json_t *value(const char *name)
{
    assert_non_null(finding(name));
    return json_object_get(finding(name), "value");
}

static inline void assert_state(const char *name, const char *state)
{
    if (!finding(name) || strcmp(member(name, "state"), state) != 0)
        print_error("%s: %s\n", name, finding(name) ? member(name, "text") : "no such finding");
    assert_string_equal(member(name, "state"), state);
}

/* @words: a part of the text, or of the advice. */
static inline void assert_says(const char *name, const char *key, const char *words)
{
    if (!strstr(member(name, key), words))
        print_error("%s: '%s' is not in: %s\n", name, words, member(name, key));
    assert_non_null(strstr(member(name, key), words));
}

#endif
