/* SPDX-License-Identifier: Apache-2.0 */
#include "store/files/drive_number.h"

#include <sys/stat.h>

#include "base/host/place.h"

static bool look(const struct host *host, const char *path, struct place *ret_place)
{
    struct statx info;

    if (host->look(path, &info) != 0)
        return false;
    place_read(host, &info, ret_place);
    return true;
}

uint32_t drive_number(const struct host *host, const struct drive_place *places, uint32_t count,
                      const char *path)
{
    struct place place, other;
    const bool is_known = look(host, path, &place);
    uint32_t next = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (is_known && look(host, places[i].path, &other) && place_is_shared(&place, &other))
            return places[i].number;
        next = MAX(next, places[i].number + 1);
    }
    return next;
}
