/* SPDX-License-Identifier: Apache-2.0 */
#include "base/host/place.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define SECTOR_BYTES 512 /* of /sys, whatever the disk's own */
#define STACK_MAX    8   /* volumes on volumes */

/* ---- Mounts ---- */

static bool take_word(char **at, struct host_line *ret_word)
{
    const char *const word = strsep(at, " ");

    if (!word || word[0] == '\0' || strlen(word) >= sizeof(ret_word->text))
        return false;
    memcpy(ret_word->text, word, strlen(word) + 1);
    return true;
}

static bool take_number(char **at, const char *ends, uint64_t *ret_number)
{
    const char *const word = strsep(at, ends);

    return word && host_parse_number(word, ret_number);
}

/* Options such as "rw,dax=always"; dax=never is no DAX, and dax=inode only for files that ask. */
static bool has_dax(char *options)
{
    const char *option;

    while ((option = strsep(&options, ",")))
        if (strcmp(option, "dax") == 0 || strcmp(option, "dax=always") == 0)
            return true;
    return false;
}

/* 36 35 98:0 /folder /mnt rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue */
bool mount_parse(char *line, struct mount *ret_mount)
{
    struct mount mount = { 0 };
    struct host_line ignored;
    uint64_t parent, major, minor;
    char *rest = strstr(line, " - ");
    char *at = line;

    line[strcspn(line, "\n")] = '\0';
    if (!rest)
        return false;
    *rest = '\0';
    rest += 3;
    if (!take_number(&at, " ", &mount.id) || !take_number(&at, " ", &parent) ||
        !take_number(&at, ":", &major) || !take_number(&at, " ", &minor) || major > UINT32_MAX ||
        minor > UINT32_MAX)
        return false;
    if (!take_word(&at, &ignored) || !take_word(&at, &mount.point) || !at ||
        !take_word(&rest, &mount.file_system) || !take_word(&rest, &mount.source))
        return false;
    mount.major = (unsigned)major;
    mount.minor = (unsigned)minor;
    mount.has_dax = has_dax(strsep(&at, " ")) || (rest && has_dax(rest));
    *ret_mount = mount;
    return true;
}

void mounts_each(const struct host *host, bool (*take)(const struct mount *mount, void *context),
                 void *context)
{
    FILE *const file = host_open(host, "/proc/self/mountinfo");
    _cleanup_(freep) char *line = NULL;
    struct mount mount;
    size_t room = 0;

    if (!file)
        return;
    while (getline(&line, &room, file) > 0)
        if (mount_parse(line, &mount) && !take(&mount, context))
            break;
    fclose(file);
}

struct wanted_mount {
    uint64_t id;
    struct place *place;
};

static bool take_mount(const struct mount *mount, void *context)
{
    struct wanted_mount *const wanted = context;

    if (mount->id != wanted->id)
        return true;
    wanted->place->mount = *mount;
    wanted->place->has_mount = true;
    return false;
}

/* ---- Disks ---- */

static void read_queue(const struct host *host, struct disk *disk)
{
    const char *const name = disk->name.text;
    uint64_t rotational;
    uint64_t sectors;

    disk->has_queue = host_number(host, &rotational, "/sys/class/block/%s/queue/rotational", name);
    disk->is_rotating = disk->has_queue && rotational != 0;
    if (!host_choice(host, &disk->scheduler, "/sys/class/block/%s/queue/scheduler", name))
        disk->scheduler.text[0] = '\0';
    if (host_number(host, &sectors, "/sys/class/block/%s/size", name) &&
        sectors <= UINT64_MAX / SECTOR_BYTES)
        disk->bytes = sectors * SECTOR_BYTES;
}

static void add_disk(const struct host *host, const char *name, struct place *place)
{
    struct disk *const disk = &place->disks[place->disk_count];

    for (size_t i = 0; i < place->disk_count; i++)
        if (strcmp(place->disks[i].name.text, name) == 0)
            return;
    if (place->disk_count == PLACE_DISKS_MAX || strlen(name) >= sizeof(disk->name.text))
        return;
    *disk = (struct disk){ 0 };
    memcpy(disk->name.text, name, strlen(name) + 1);
    read_queue(host, disk);
    place->disk_count++;
}

/* A partition lies in the folder of its disk: .../block/sda/sda1. The name of the disk is found by
 * its number in the file `dev` above. */
static bool disk_of_partition(const struct host *host, const char *name, struct host_line *ret_disk)
{
    struct host_line number;

    return host_exists(host, "/sys/class/block/%s/partition", name) &&
           host_line(host, &number, "/sys/class/block/%s/../dev", name) &&
           host_link_name(host, ret_disk, "/sys/dev/block/%s", number.text);
}

static void add_device(const struct host *host, const char *name, int depth, struct place *place);

static void add_slaves(const struct host *host, const struct host_names *slaves, int depth,
                       struct place *place)
{
    for (size_t i = 0; i < slaves->count; i++)
        add_device(host, slaves->names[i], depth + 1, place);
}

/* Follows partitions, LVM, dm-crypt and RAID down to the disks. */
static void add_device(const struct host *host, const char *name, int depth, struct place *place)
{
    struct host_names slaves;
    struct host_line disk;

    if (depth > STACK_MAX)
        return;
    if (disk_of_partition(host, name, &disk)) {
        add_device(host, disk.text, depth + 1, place);
        return;
    }
    host_names_read(host, "", &slaves, "/sys/class/block/%s/slaves", name);
    if (slaves.count > 0)
        add_slaves(host, &slaves, depth, place);
    else
        add_disk(host, name, place);
    host_names_clear(&slaves);
}

/* File systems such as btrfs have a number of their own, and name their device. */
static bool name_of_source(const struct host *host, const char *source, struct host_line *ret_name)
{
    struct statx info;

    return source[0] == '/' && host->look(source, &info) == 0 && S_ISBLK(info.stx_mode) &&
           host_link_name(host, ret_name, "/sys/dev/block/%u:%u", info.stx_rdev_major,
                          info.stx_rdev_minor);
}

void place_read(const struct host *host, const struct statx *info, struct place *ret_place)
{
    struct wanted_mount wanted = { .id = info->stx_mnt_id, .place = ret_place };
    struct host_line name;

    *ret_place =
        (struct place){ .mount = { .major = info->stx_dev_major, .minor = info->stx_dev_minor } };
    if (info->stx_mask & STATX_MNT_ID)
        mounts_each(host, take_mount, &wanted);
    if (host_link_name(host, &name, "/sys/dev/block/%u:%u", ret_place->mount.major,
                       ret_place->mount.minor) ||
        name_of_source(host, ret_place->mount.source.text, &name))
        add_device(host, name.text, 0, ret_place);
}

bool place_is_shared(const struct place *a, const struct place *b)
{
    for (size_t i = 0; i < a->disk_count; i++)
        for (size_t j = 0; j < b->disk_count; j++)
            if (strcmp(a->disks[i].name.text, b->disks[j].name.text) == 0)
                return true;
    return a->disk_count == 0 && b->disk_count == 0 && a->mount.major == b->mount.major &&
           a->mount.minor == b->mount.minor;
}
