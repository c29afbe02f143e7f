/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/device_set.h"

#include <string.h>
#include <sys/stat.h>

#include "base/host/place.h"

#define SECTOR_BYTES         512 /* of /sys, whatever the device's own */
#define STAT_SECTORS_WRITTEN 6   /* fields before it */

static struct device *add(struct device_set *set, const struct host *host, const struct disk *disk)
{
    struct device *device;

    for (uint32_t i = 0; i < set->count; i++)
        if (strcmp(set->devices[i].name.text, disk->name.text) == 0)
            return &set->devices[i];
    if (set->count == DEVICE_SET_MAX)
        return NULL;
    device = &set->devices[set->count++];
    *device =
        (struct device){ .name = disk->name, .id = disk->name, .capacity_bytes = disk->bytes };
    if (!host_line(host, &device->id, "/sys/class/block/%s/wwid", disk->name.text))
        device->id = disk->name;
    return device;
}

struct devices_beneath device_set_add(struct device_set *set, const struct host *host,
                                      const char *path)
{
    struct devices_beneath beneath = { .device = NO_DEVICE };
    struct device *device = NULL;
    struct place place;
    struct statx info;

    if (host->look(path, &info) != 0)
        return beneath;
    place_read(host, &info, &place);
    beneath.is_dax = place.mount.has_dax;
    beneath.count = (uint32_t)place.disk_count;
    for (size_t i = 0; i < place.disk_count; i++) {
        device = add(set, host, &place.disks[i]);
        if (device && place.disk_count > 1)
            device->has_shared = true;
    }
    if (device && place.disk_count == 1)
        beneath.device = (uint32_t)(device - set->devices);
    return beneath;
}

bool device_written(const struct device *device, const struct host *host, uint64_t *ret_bytes)
{
    struct host_line line;
    char *rest = line.text;
    uint64_t sectors;

    if (!host_line(host, &line, "/sys/class/block/%s/stat", device->name.text))
        return false;
    for (uint32_t field = 0; rest; field++) {
        const char *word;

        rest += strspn(rest, " \t");
        word = strsep(&rest, " \t");
        if (field < STAT_SECTORS_WRITTEN)
            continue;
        if (!host_parse_number(word, &sectors) || sectors > UINT64_MAX / SECTOR_BYTES)
            return false;
        *ret_bytes = sectors * SECTOR_BYTES;
        return true;
    }
    return false;
}
