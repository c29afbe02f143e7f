/* SPDX-License-Identifier: Apache-2.0 */
/* device_set.h: the devices beneath some directories, found in /sys, and their counters. Thread:
 * the owner's. */
#ifndef EMBTIER_DAEMON_ENDURANCE_DEVICE_SET_H
#define EMBTIER_DAEMON_ENDURANCE_DEVICE_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/host/host.h"

#define DEVICE_SET_MAX 64
#define NO_DEVICE      UINT32_MAX

/* An id stays the same when names change with a boot. It is the drive's world-wide name, or else
 * its model and serial number, or else the name. Drives with the same id, as some makers give, have
 * their serial numbers or names in it too. */
struct device {
    struct host_line name; /* "nvme0n1" */
    struct host_line id;
    uint64_t capacity_bytes;
    bool has_shared; /* a directory lies on it and on others, as with RAID */
};

_Static_assert(DEVICE_SET_MAX <= 64, "devices_beneath has a bit for each");

struct device_set {
    uint32_t count;
    struct device devices[DEVICE_SET_MAX];
};

struct devices_beneath {
    uint32_t count;
    uint32_t device;  /* the only one; NO_DEVICE: there are several, or none that is known */
    uint64_t devices; /* bit i: device i is one of them */
    bool is_dax;      /* the file system bypasses the page cache */
};
/* Adds the devices beneath @path. */
struct devices_beneath device_set_add(struct device_set *set, const struct host *host,
                                      const char *path);
/* Gives devices with the same id different ones. Comes after the last device_set_add(). */
void device_set_tell_apart(struct device_set *set, const struct host *host);
/* False: the kernel does not count what is written, so that counters stand still. */
MUST_CHECK bool device_is_counted(const struct device *device, const struct host *host);
/* The bytes written to the device since boot. False: they are not known. */
MUST_CHECK bool device_written(const struct device *device, const struct host *host,
                               uint64_t *ret_bytes);

#endif
