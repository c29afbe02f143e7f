/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/device_set.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/host/place.h"

#define SECTOR_BYTES         512 /* of /sys, whatever the device's own */
#define STAT_SECTORS_WRITTEN 6   /* fields before it */

/* ---- Identity ---- */

/* Without blanks at its ends, as SCSI fills texts up. */
static bool read_text(const struct host *host, const char *name, const char *file,
                      struct host_line *ret_text)
{
    struct host_line line;
    const char *begin;
    size_t length;

    if (!host_line(host, &line, "/sys/class/block/%s/%s", name, file))
        return false;
    begin = line.text + strspn(line.text, " \t");
    length = strlen(begin);
    while (length > 0 && strchr(" \t", begin[length - 1]))
        length--;
    memset(ret_text, 0, sizeof(*ret_text));
    memcpy(ret_text->text, begin, length);
    return length > 0;
}

/* Returns the first of @files that has a text. */
static bool read_first(const struct host *host, const char *name, const char *const *files,
                       struct host_line *ret_text)
{
    for (; *files; files++)
        if (read_text(host, name, *files, ret_text))
            return true;
    return false;
}

static bool read_serial(const struct host *host, const char *name, struct host_line *ret_serial)
{
    static const char *const files[] = { "device/serial", "serial", NULL }; /* NVMe; virtio */

    return read_first(host, name, files, ret_serial);
}

/* Appends " @word". An id that would be too long stays as it was. */
static void append(struct host_line *id, const char *word)
{
    const size_t used = strlen(id->text);

    if (used + 1 + strlen(word) < sizeof(id->text))
        snprintf(id->text + used, sizeof(id->text) - used, " %s", word);
}

static struct host_line identify(const struct host *host, const struct host_line *name)
{
    static const char *const wide[] = { "wwid", "device/wwid", NULL }; /* NVMe; SCSI, so SATA too */
    static const char *const models[] = { "device/model", NULL };
    struct host_line id, model, serial;

    if (read_first(host, name->text, wide, &id))
        return id;
    if (!read_serial(host, name->text, &serial))
        return *name;
    id = (struct host_line){ "serial" };
    if (read_first(host, name->text, models, &model))
        append(&id, model.text);
    append(&id, serial.text);
    return id;
}

static bool has_double(const struct device_set *set, uint32_t i)
{
    for (uint32_t j = 0; j < set->count; j++)
        if (j != i && strcmp(set->devices[i].id.text, set->devices[j].id.text) == 0)
            return true;
    return false;
}

/* All that have a double get the word, so that none keeps the id that another may have next time.
 */
static void append_to_doubles(struct device_set *set, const struct host *host, bool by_serial)
{
    bool are_doubles[DEVICE_SET_MAX] = { false };

    for (uint32_t i = 0; i < set->count; i++)
        are_doubles[i] = has_double(set, i);
    for (uint32_t i = 0; i < set->count; i++) {
        struct host_line word = set->devices[i].name;

        if (are_doubles[i] && (!by_serial || read_serial(host, word.text, &word)))
            append(&set->devices[i].id, word.text);
    }
}

void device_set_tell_apart(struct device_set *set, const struct host *host)
{
    append_to_doubles(set, host, true);
    append_to_doubles(set, host, false);
}

/* ---- Devices ---- */

static struct device *add(struct device_set *set, const struct host *host, const struct disk *disk)
{
    struct device *device;

    for (uint32_t i = 0; i < set->count; i++)
        if (strcmp(set->devices[i].name.text, disk->name.text) == 0)
            return &set->devices[i];
    if (set->count == DEVICE_SET_MAX)
        return NULL;
    device = &set->devices[set->count++];
    *device = (struct device){ .name = disk->name,
                               .id = identify(host, &disk->name),
                               .capacity_bytes = disk->bytes };
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
        if (!device)
            continue;
        beneath.devices |= UINT64_C(1) << (device - set->devices);
        if (place.disk_count > 1)
            device->has_shared = true;
    }
    if (device && place.disk_count == 1)
        beneath.device = (uint32_t)(device - set->devices);
    return beneath;
}

bool device_is_counted(const struct device *device, const struct host *host)
{
    uint64_t is_on;

    return !host_number(host, &is_on, "/sys/class/block/%s/queue/iostats", device->name.text) ||
           is_on != 0;
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
