/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/text/bytes.h"

static const struct unit {
    const char *name;
    uint64_t bytes;
} units[] = {
    { "TiB", UINT64_C(1) << 40 },
    { "GiB", UINT64_C(1) << 30 },
    { "MiB", UINT64_C(1) << 20 },
    { "KiB", UINT64_C(1) << 10 },
    { "TB", UINT64_C(1000000000000) },
    { "GB", UINT64_C(1000000000) },
    { "MB", UINT64_C(1000000) },
    { "kB", UINT64_C(1000) },
    { "B", 1 },
    { "", 1 },
};

enum embtier_err parse_bytes(const char *text, uint64_t *ret_bytes)
{
    unsigned __int128 number = 0; /* the digits of both sides of the point, as one number */
    unsigned __int128 scale = 1;
    const char *at = text;
    bool fraction = false;

    if (*at < '0' || *at > '9')
        return EMBTIER_INVALID;
    for (; (*at >= '0' && *at <= '9') || (*at == '.' && !fraction); at++) {
        if (*at == '.') {
            fraction = true;
            if (at[1] < '0' || at[1] > '9')
                return EMBTIER_INVALID;
            continue;
        }
        number = number * 10 + (unsigned)(*at - '0');
        scale *= fraction ? 10 : 1;
        /* Keeps @number and @scale far from overflow; more digits than this are refused. */
        if (number > UINT64_MAX || scale > UINT64_C(1000000000000000000))
            return EMBTIER_INVALID;
    }
    while (*at == ' ')
        at++;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        const unsigned __int128 bytes = number * units[i].bytes;

        if (strcmp(at, units[i].name) != 0)
            continue;
        if (bytes % scale != 0 && units[i].bytes == 1)
            return EMBTIER_INVALID; /* a fraction of a byte */
        if (bytes / scale > UINT64_MAX)
            return EMBTIER_INVALID;
        *ret_bytes = (uint64_t)(bytes / scale);
        return EMBTIER_OK;
    }
    return EMBTIER_INVALID;
}

const char *format_bytes(struct bytes_text *buffer, uint64_t bytes)
{
    uint32_t i = 0;

    while (i < 4 && bytes < units[i].bytes)
        i++;
    if (i == 4)
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 "B", bytes);
    else if (bytes % units[i].bytes == 0)
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 "%s", bytes / units[i].bytes,
                 units[i].name);
    else if (i < 3 && bytes % units[i + 1].bytes == 0 && bytes < 10 * units[i].bytes)
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 "%s", bytes / units[i + 1].bytes,
                 units[i + 1].name);
    else
        snprintf(buffer->text, sizeof(buffer->text), "%.2f%s",
                 (double)bytes / (double)units[i].bytes, units[i].name);
    return buffer->text;
}

const char *format_bytes_rounded(struct bytes_text *buffer, double bytes)
{
    static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    size_t unit = 0;

    while (fabs(bytes) >= 1024 && unit + 1 < ARRAY_LEN(names)) {
        bytes /= 1024;
        unit++;
    }
    snprintf(buffer->text, sizeof(buffer->text), unit == 0 ? "%.0f %s" : "%.1f %s", bytes,
             names[unit]);
    return buffer->text;
}
