/* SPDX-License-Identifier: Apache-2.0 */
/* machine_fixture.h: a machine with NVMe drives, partitions, RAID, LVM and persistent memory, in a
 * folder, and the endurance of a server on it. Each test program includes it once. */
#ifndef EMBTIER_TESTS_MACHINE_FIXTURE_H
#define EMBTIER_TESTS_MACHINE_FIXTURE_H

#include "tests/unit/daemon/endurance/endurance_fixture.h"

#include "config/config.h"
#include "daemon/endurance/endurance.h"
#include "store/files/written.h"

#define HOUR   UINT64_C(3600000)
#define NOW    (UINT64_C(20000) * 24 * HOUR + 1800000)
#define SECTOR UINT64_C(512)

static const struct {
    const char *path;
    uint64_t mount;
    unsigned major, minor;
} paths[] = {
    { "/data/a", 40, 259, 1 }, { "/data/b", 41, 9, 0 }, { "/data/c", 42, 252, 0 },
    { "/mem", 43, 0, 40 },     { "/pmem", 44, 259, 9 }, { "/data/a/2", 40, 259, 1 },
};

static struct host host;
static struct config config;
static char *directories[4];

static inline int look(const char *path, struct statx *ret_info)
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

static inline void put_counter(const char *device, uint64_t sectors)
{
    char path[64], text[128];

    snprintf(path, sizeof(path), "/sys/devices/block/%s/stat", device);
    snprintf(text, sizeof(text),
             "    1002        3    24906       45     2008     1120 %8llu     5124        0      "
             "632     5170\n",
             (unsigned long long)sectors);
    put(path, text);
}

static inline void put_disk(const char *name, const char *number)
{
    char path[64], target[64], text[64];

    snprintf(path, sizeof(path), "/sys/devices/block/%s/dev", name);
    snprintf(text, sizeof(text), "%s\n", number);
    put(path, text);
    snprintf(path, sizeof(path), "/sys/devices/block/%s/size", name);
    put(path, "2000000\n"); /* 1,024,000,000 bytes */
    snprintf(target, sizeof(target), "../../devices/block/%s", name);
    snprintf(path, sizeof(path), "/sys/class/block/%s", name);
    put_link(path, target);
    snprintf(path, sizeof(path), "/sys/dev/block/%s", number);
    put_link(path, target);
    put_counter(name, 1000);
}

/* Bytes of pages that the process has made dirty, and dropped; KiB that wait in the page cache. */
static inline void put_io(uint64_t dirtied, uint64_t dropped, uint64_t waiting_kib)
{
    char text[256];

    snprintf(text, sizeof(text),
             "rchar: 1\nwchar: 2\nread_bytes: 3\nwrite_bytes: %llu\ncancelled_write_bytes: %llu\n",
             (unsigned long long)dirtied, (unsigned long long)dropped);
    put("/proc/self/io", text);
    snprintf(text, sizeof(text), "MemTotal: 9 kB\nDirty:     %llu kB\nWriteback:      0 kB\n",
             (unsigned long long)waiting_kib);
    put("/proc/meminfo", text);
}

static inline void put_machine(void)
{
    put("/proc/self/mountinfo", "40 27 259:1 / /data/a rw - xfs /dev/nvme0n1p1 rw\n"
                                "41 27 9:0 / /data/b rw - ext4 /dev/md0 rw\n"
                                "42 27 252:0 / /data/c rw - xfs /dev/mapper/c rw\n"
                                "43 27 0:40 / /mem rw - tmpfs tmpfs rw\n"
                                "44 27 259:9 / /pmem rw - ext4 /dev/pmem0 rw,dax=always\n");
    put_io(0, 0, 0);
    put("/proc/sys/kernel/random/boot_id", "boot-1\n");
    put("/proc/stat", "cpu  1 2 3\nbtime 1700000000\nprocesses 9\n");
    put_disk("nvme0n1", "259:0");
    put_disk("nvme1n1", "259:3");
    put_disk("nvme2n1", "259:4");
    put_disk("nvme3n1", "259:5");
    put_disk("pmem0", "259:9");
    put_disk("md0", "9:0");
    put_disk("dm-0", "252:0");
    put("/sys/devices/block/nvme0n1/wwid", "eui.0001\n");
    put("/sys/devices/block/nvme0n1/nvme0n1p1/dev", "259:1\n");
    put("/sys/devices/block/nvme0n1/nvme0n1p1/partition", "1\n");
    put_link("/sys/class/block/nvme0n1p1", "../../devices/block/nvme0n1/nvme0n1p1");
    put_link("/sys/dev/block/259:1", "../../devices/block/nvme0n1/nvme0n1p1");
    put_link("/sys/devices/block/md0/slaves/nvme1n1", "../../nvme1n1");
    put_link("/sys/devices/block/md0/slaves/nvme2n1", "../../nvme2n1");
    put_link("/sys/devices/block/dm-0/slaves/nvme3n1", "../../nvme3n1");
}

static inline int setup(void **state)
{
    (void)state;
    make_root();
    put_machine();
    put("/store/keep", "");
    host = (struct host){ .root = root, .look = look };
    memset(&config, 0, sizeof(config));
    config.data.directories = directories;
    config.data.directory_count = 0;
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    return remove_root();
}

static inline void use_directories(const char *first, const char *second)
{
    directories[0] = (char *)(uintptr_t)first;
    directories[1] = (char *)(uintptr_t)second;
    config.data.directory_count = second ? 2 : 1;
    written_begin(directories, config.data.directory_count);
}

static inline void use_tier(uint32_t tier, const char *path)
{
    config.cache.tiers[tier].kind = TIER_KIND_FILE;
    snprintf(config.cache.tiers[tier].path, sizeof(config.cache.tiers[tier].path), "%s", path);
    config.cache.tier_count = tier + 1;
}

static uint32_t held; /* bit i: data directory i */
static uint64_t held_bytes;

static inline void hold(void *context, const char *directory, bool is_held, uint64_t bytes)
{
    for (uint32_t i = 0; i < config.data.directory_count; i++)
        if (strcmp(directory, directories[i]) == 0)
            held = is_held ? held | 1u << i : held & ~(1u << i);
    assert_ptr_equal(context, &held);
    held_bytes = bytes;
}

static inline struct endurance *begin(uint64_t now_ms)
{
    struct endurance *endurance = NULL;
    struct err_msg msg = { { 0 } };
    char directory[PATH_MAX];

    root_path("/store", directory);
    assert_int_equal(endurance_new(&(struct endurance_opts){ .config = &config,
                                                             .host = &host,
                                                             .directory = directory,
                                                             .hold = hold,
                                                             .context = &held },
                                   now_ms, &endurance, &msg),
                     EMBTIER_OK);
    return endurance;
}

static inline const struct endurance_state *sample(struct endurance *endurance, uint64_t now_ms)
{
    static struct endurance_state state;

    endurance_turn(endurance, now_ms);
    endurance_get(endurance, now_ms, &state);
    return &state;
}

static inline const struct endurance_device *device(const struct endurance_state *state,
                                                    const char *name)
{
    for (uint32_t i = 0; i < state->device_count; i++)
        if (strcmp(state->devices[i].name.text, name) == 0)
            return &state->devices[i];
    fail_msg("%s is not found", name);
    return NULL;
}

static inline void write_below(uint32_t directory, uint64_t bytes)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/shard-0000/000007.sst", directories[directory]);
    written_add(written_place(path), bytes);
}

#endif
