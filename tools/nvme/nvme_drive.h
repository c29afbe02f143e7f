/* SPDX-License-Identifier: Apache-2.0 */
/* nvme_drive.h: finds an NVMe drive by its path in /dev, and reads its log pages.
 *
 * Reading sends an admin command to the drive, for which the kernel wants CAP_SYS_ADMIN. Thread:
 * any. */
#ifndef EMBTIER_TOOLS_NVME_NVME_DRIVE_H
#define EMBTIER_TOOLS_NVME_NVME_DRIVE_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/host/host.h"
#include "tools/nvme/health_page.h"

struct nvme_drive {
    struct host_line name; /* "nvme0n1" or "nvme0" */
    dev_t number;
    bool is_block;
};

/* INVALID: @path is no NVMe drive of /sys; the message says what to name instead. */
MUST_CHECK enum embtier_err nvme_drive_find(const struct host *host, const char *path,
                                            struct nvme_drive *ret_drive, struct err_msg *msg);
/* Opens the drive that was found, for reading. MISMATCH: @path is another device by now. */
MUST_CHECK enum embtier_err nvme_drive_open(const struct nvme_drive *drive, const char *path,
                                            int *ret_fd, struct err_msg *msg);

#define HEALTH_PAGE 0x02
/* Reads the log page numbered @page. PERMISSION: the process lacks CAP_SYS_ADMIN. UNSUPPORTED: the
 * drive has no such page, or this build has no libnvme. */
MUST_CHECK enum embtier_err
nvme_drive_read(int fd, uint8_t page, uint8_t ret_bytes[NVME_PAGE_BYTES], struct err_msg *msg);

#endif
