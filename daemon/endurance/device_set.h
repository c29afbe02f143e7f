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

struct device {
    struct host_line name; /* "nvme0n1" */
    struct host_line id;   /* stays the same when names change; the name where there is none */
    uint64_t capacity_bytes;
    bool has_shared; /* a directory lies on it and on others, as with RAID */
};

struct device_set {
    uint32_t count;
    struct device devices[DEVICE_SET_MAX];
};

struct devices_beneath {
    uint32_t count;
    uint32_t device; /* the only one; NO_DEVICE: there are several, or none that is known */
    bool is_dax;     /* the file system bypasses the page cache */
};
/* Adds the devices beneath @path. */
struct devices_beneath device_set_add(struct device_set *set, const struct host *host,
                                      const char *path);
/* The bytes written to the device since boot. False: they are not known. */
MUST_CHECK bool device_written(const struct device *device, const struct host *host,
                               uint64_t *ret_bytes);

#endif
