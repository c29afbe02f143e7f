/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nvme/health_page.h"

#include <inttypes.h>
#include <string.h>

/* Offsets in the health page. */
enum {
    AT_WARNINGS = 0,
    AT_TEMPERATURE = 1,
    AT_SPARE = 3,
    AT_THRESHOLD = 4,
    AT_USED = 5,
    AT_UNITS_READ = 32,
    AT_UNITS_WRITTEN = 48,
    AT_POWER_ON_HOURS = 128,
    AT_UNSAFE_SHUTDOWNS = 144,
    AT_MEDIA_ERRORS = 160,
};

/* Offsets in page C0h, and the versions that have them so. */
enum {
    AT_MEDIA_WRITTEN = 0,
    AT_MEDIA_VERSION = 494,
    AT_MEDIA_GUID = 496,
    MEDIA_VERSION_LEAST = 2,
    MEDIA_VERSION_MOST = 4,
};

static const uint8_t media_guid[] = { 0xc5, 0xaf, 0x10, 0x28, 0xea, 0xbf, 0xf2, 0xa4,
                                      0x9c, 0x4f, 0x6f, 0x7c, 0xc9, 0x14, 0xd5, 0xaf };

#define HOTTEST_KELVIN 500

/* ---- Numbers, little-endian ---- */

static uint64_t number_at(const uint8_t *page, size_t at, size_t bytes)
{
    uint64_t number = 0;

    for (size_t i = bytes; i > 0; i--)
        number = number << 8 | page[at + i - 1];
    return number;
}

/* A counter has 16 bytes. One of more than 64 bits is above all that a drive can have done. */
static struct health_figure counter_at(const uint8_t *page, size_t at)
{
    return (struct health_figure){ .is_reported = number_at(page, at + 8, 8) == 0,
                                   .value = number_at(page, at, 8) };
}

/* The same where a drive that works has more than 0. */
static struct health_figure nonzero_at(const uint8_t *page, size_t at)
{
    struct health_figure figure = counter_at(page, at);

    figure.is_reported &= figure.value > 0;
    return figure;
}

static bool is_uniform(const uint8_t *page)
{
    return memcmp(page, page + 1, NVME_PAGE_BYTES - 1) == 0;
}

/* ---- The health page ---- */

static enum embtier_err check(const uint8_t *page, size_t bytes, struct err_msg *msg)
{
    if (bytes < NVME_PAGE_BYTES)
        return err_set(msg, EMBTIER_CORRUPT,
                       "the health page is cut short: %zu of %d bytes; ask the drive again", bytes,
                       NVME_PAGE_BYTES);
    if (is_uniform(page))
        return err_set(
            msg, EMBTIER_CORRUPT,
            "the health page holds nothing but bytes of %02x: the drive reports no health",
            page[0]);
    if (page[AT_SPARE] > 100 || page[AT_THRESHOLD] > 100)
        return err_set(
            msg, EMBTIER_CORRUPT,
            "the health page has a spare of %u %% and a threshold of %u %%: it is damaged, "
            "or of a version that is not known",
            page[AT_SPARE], page[AT_THRESHOLD]);
    if (number_at(page, AT_TEMPERATURE, 2) > HOTTEST_KELVIN)
        return err_set(msg, EMBTIER_CORRUPT,
                       "the health page has a temperature of %" PRIu64
                       " K: it is damaged, or of a version that is not known",
                       number_at(page, AT_TEMPERATURE, 2));
    return EMBTIER_OK;
}

static void decode_spare(const uint8_t *page, struct health *health)
{
    const bool is_reported = page[AT_SPARE] > 0 || page[AT_THRESHOLD] > 0;

    health->spare_percent =
        (struct health_figure){ .is_reported = is_reported, .value = page[AT_SPARE] };
    health->spare_threshold_percent = (struct health_figure){ .is_reported = page[AT_THRESHOLD] > 0,
                                                              .value = page[AT_THRESHOLD] };
}

static bool is_failing(const struct health *health)
{
    const struct health_figure *const spare = &health->spare_percent;
    const struct health_figure *const threshold = &health->spare_threshold_percent;
    const bool is_known = spare->is_reported && threshold->is_reported;

    if (health->warnings & (HEALTH_SPARE | HEALTH_READ_ONLY))
        return true;
    if (is_known && spare->value < threshold->value)
        return true;
    return (health->warnings & HEALTH_RELIABILITY) &&
           !(is_known && spare->value > threshold->value);
}

enum embtier_err health_decode(const uint8_t *page, size_t bytes, struct health *ret_health,
                               struct err_msg *msg)
{
    struct health health = { 0 };
    bool has_worked;

    TRY(check(page, bytes, msg));
    health.warnings = page[AT_WARNINGS];
    health.temperature_kelvin.value = number_at(page, AT_TEMPERATURE, 2);
    health.temperature_kelvin.is_reported = health.temperature_kelvin.value > 0;
    decode_spare(page, &health);
    health.read_units = nonzero_at(page, AT_UNITS_READ);
    health.written_units = nonzero_at(page, AT_UNITS_WRITTEN);
    health.power_on_hours = nonzero_at(page, AT_POWER_ON_HOURS);
    /* A good drive has zeros here too. They count if the drive fills in the fields beside them. */
    has_worked = health.written_units.is_reported || health.power_on_hours.is_reported;
    health.used_percent = (struct health_figure){ .is_reported = has_worked || page[AT_USED] > 0,
                                                  .value = page[AT_USED] };
    health.unsafe_shutdowns = counter_at(page, AT_UNSAFE_SHUTDOWNS);
    health.unsafe_shutdowns.is_reported &= has_worked || health.unsafe_shutdowns.value > 0;
    health.media_errors = counter_at(page, AT_MEDIA_ERRORS);
    health.media_errors.is_reported &= has_worked || health.media_errors.value > 0;
    health.is_failing = is_failing(&health);
    *ret_health = health;
    return EMBTIER_OK;
}

double health_written_bytes(const struct health *health)
{
    return health->written_units.is_reported
               ? (double)health->written_units.value * HEALTH_UNIT_BYTES
               : 0;
}

/* ---- A vendor's page ---- */

bool media_page_decode(const uint8_t *page, size_t bytes, double *ret_written_bytes)
{
    struct health_figure written;
    uint64_t version;

    if (bytes < NVME_PAGE_BYTES ||
        memcmp(page + AT_MEDIA_GUID, media_guid, sizeof(media_guid)) != 0)
        return false;
    version = number_at(page, AT_MEDIA_VERSION, 2);
    written = nonzero_at(page, AT_MEDIA_WRITTEN);
    if (version < MEDIA_VERSION_LEAST || version > MEDIA_VERSION_MOST || !written.is_reported)
        return false;
    *ret_written_bytes = (double)written.value;
    return true;
}
