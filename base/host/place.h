/* SPDX-License-Identifier: Apache-2.0 */
/* place.h: what lies beneath a directory: the mount, its file system, and the disks. Thread:
 * any. */
#ifndef EMBTIER_BASE_HOST_PLACE_H
#define EMBTIER_BASE_HOST_PLACE_H

#include "base/host/host.h"

#define PLACE_DISKS_MAX 16

struct mount {
    uint64_t id;
    unsigned major, minor;
    struct host_line point;       /* as the kernel escapes it */
    struct host_line file_system; /* "ext4" */
    struct host_line source;      /* "/dev/nvme0n1p1" */
    bool has_dax;
};

struct disk {
    struct host_line name; /* "nvme0n1" */
    bool is_rotating;
    bool has_queue;             /* the fields of the queue are known */
    struct host_line scheduler; /* "none"; "" if it has no choice */
    uint64_t bytes;             /* 0: not known */
};

struct place {
    bool has_mount;
    struct mount mount;
    /* The disks beneath; volumes of LVM and RAID lie on several. None for memory, networks, and
     * devices that /sys does not show. */
    struct disk disks[PLACE_DISKS_MAX];
    size_t disk_count;
};

/* @info is what host->look() says of the directory. */
void place_read(const struct host *host, const struct statx *info, struct place *ret_place);
/* True if both lie on one disk, or on one file system whose disk is not known. */
bool place_is_shared(const struct place *a, const struct place *b);

/* Parses a line of /proc/self/mountinfo. */
MUST_CHECK bool mount_parse(char *line, struct mount *ret_mount);
/* Calls @take for each mount that makes sense, until it returns false. */
void mounts_each(const struct host *host, bool (*take)(const struct mount *mount, void *context),
                 void *context);

#endif
