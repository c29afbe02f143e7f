/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/status/shown.h"

#include <math.h>
#include <stdio.h>

#include "base/macros.h"

const char *shown_count(struct number_text *buffer, double value)
{
    static const struct {
        double from;
        const char *unit;
    } units[] = { { 1e18, "E" }, { 1e15, "P" }, { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" } };

    if (!isfinite(value))
        return "-";
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (value < units[i].from)
            continue;
        (void)snprintf(buffer->text, sizeof(buffer->text), "%.4g%s", value / units[i].from,
                       units[i].unit);
        return buffer->text;
    }
    return number_count(buffer, value);
}

const char *shown_bytes(struct number_text *buffer, double bytes)
{
    return isfinite(bytes) ? number_bytes(buffer, bytes) : "-";
}

const char *shown_share(struct number_text *buffer, double share)
{
    if (!isfinite(share))
        return "-";
    (void)snprintf(buffer->text, sizeof(buffer->text), "%.1f%%", 100 * share);
    return buffer->text;
}
