/* SPDX-License-Identifier: Apache-2.0 */
/* health_page.h: the SMART / health log page of an NVMe drive (NVMe base specification, log page
 * 02h), and the part that is known of a vendor's page. Pure functions on bytes.
 *
 * A drive leaves fields empty that it does not know, so a zero there is "not reported". A page that
 * cannot be one is refused as a whole: its other fields are not believed either. Thread: any. */
#ifndef EMBTIER_TOOLS_NVME_HEALTH_PAGE_H
#define EMBTIER_TOOLS_NVME_HEALTH_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define NVME_PAGE_BYTES 512
/* Data units are thousands of 512 bytes, rounded up, whatever the length of a block. */
#define HEALTH_UNIT_BYTES 512000

/* X(name, bit, word, meaning): the critical warnings. */
#define HEALTH_WARNING_TABLE(X)                                                                    \
    X(SPARE, 0x01, "spare_low", "the spare space is below the drive's threshold: replace it")      \
    X(TEMPERATURE, 0x02, "temperature", "a temperature is outside its limits: cool the drive")     \
    X(RELIABILITY, 0x04, "reliability", "the drive counts itself as worn out or unreliable")       \
    X(READ_ONLY, 0x08, "read_only", "the drive takes no more writes: replace it")                  \
    X(BACKUP, 0x10, "memory_backup", "the backup of the drive's volatile memory has failed")       \
    X(REGION, 0x20, "memory_region", "the drive's persistent memory region is read-only")

enum health_warning {
#define X(name, bit, word, meaning) HEALTH_##name = bit,
    HEALTH_WARNING_TABLE(X)
#undef X
};

struct health_figure {
    bool is_reported;
    uint64_t value;
};

struct health {
    uint8_t warnings; /* bits of enum health_warning; others are of later versions */
    /* The drive should be replaced. HEALTH_RELIABILITY alone does not say so while the spare space
     * is above its threshold: it is also set once the rated life is used up. */
    bool is_failing;
    struct health_figure temperature_kelvin;
    struct health_figure spare_percent;
    struct health_figure spare_threshold_percent;
    struct health_figure used_percent; /* of the rated life; 0 to 255, and 255 is "or more" */
    struct health_figure read_units;
    struct health_figure written_units; /* of HEALTH_UNIT_BYTES */
    struct health_figure power_on_hours;
    struct health_figure unsafe_shutdowns;
    struct health_figure media_errors;
};

/* CORRUPT: the page is cut short, empty, or no such page. @bytes may be more than the page. */
MUST_CHECK enum embtier_err health_decode(const uint8_t *page, size_t bytes,
                                          struct health *ret_health, struct err_msg *msg);
/* Returns the bytes that hosts wrote to the drive, or 0 if that is not reported. */
double health_written_bytes(const struct health *health);

/* Bytes written to the medium, from log page C0h of the Open Compute Project's drives. False: the
 * page is another vendor's, or of a version that is not known. */
#define MEDIA_PAGE 0xc0
MUST_CHECK bool media_page_decode(const uint8_t *page, size_t bytes, double *ret_written_bytes);

#endif
