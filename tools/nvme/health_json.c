/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nvme/health_json.h"

#include <jansson.h>
#include <math.h>

#include "tools/cli/json_values.h"

#define ZERO_CELSIUS_KELVIN 273

static json_t *figure(const struct health_figure *figure)
{
    return figure->is_reported ? cli_json_u64(figure->value) : json_null();
}

static json_t *known(double value)
{
    return cli_json_number(value > 0 ? value : (double)NAN);
}

/* Bits of later versions have no word; they are left to `warnings`. */
static json_t *warning_words(uint8_t warnings)
{
    json_t *const words = json_array();

#define X(name, bit, word, meaning)                                                                \
    if (warnings & (bit))                                                                          \
        (void)json_array_append_new(words, json_string(word));
    HEALTH_WARNING_TABLE(X)
#undef X
    return words;
}

static json_t *temperature(const struct health *health)
{
    return health->temperature_kelvin.is_reported
               ? json_integer((json_int_t)health->temperature_kelvin.value - ZERO_CELSIUS_KELVIN)
               : json_null();
}

json_t *health_json(const char *device, const struct health *health, double media_bytes)
{
    const double written = health_written_bytes(health);

    return json_pack(
        "{s:s, s:b, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "device",
        device, "failing", health->is_failing, "warnings", health->warnings, "critical_warnings",
        warning_words(health->warnings), "used_percent", figure(&health->used_percent),
        "spare_percent", figure(&health->spare_percent), "spare_threshold_percent",
        figure(&health->spare_threshold_percent), "written_units", figure(&health->written_units),
        "written_bytes", known(written), "media_written_bytes", known(media_bytes),
        "drive_amplification", known(written > 0 ? media_bytes / written : 0), "media_errors",
        figure(&health->media_errors), "temperature_celsius", temperature(health), "power_on_hours",
        figure(&health->power_on_hours), "unsafe_shutdowns", figure(&health->unsafe_shutdowns));
}
