/* SPDX-License-Identifier: Apache-2.0 */
/* drive_number.h: numbers the drives beneath data directories. Directories on partitions or volumes
 * of one disk share their drive's time, so they have one number. Thread: any. */
#ifndef EMBTIER_STORE_FILES_DRIVE_NUMBER_H
#define EMBTIER_STORE_FILES_DRIVE_NUMBER_H

#include <stdint.h>

#include "base/host/host.h"

/* A directory of before, and its number. */
struct drive_place {
    const char *path;
    uint32_t number;
};

/* Returns the number of the first of @places that shares a disk with the directory @path, or a file
 * system if the disk is not known, as in memory. Else the number after all others. A directory that
 * cannot be looked at shares none. */
uint32_t drive_number(const struct host *host, const struct drive_place *places, uint32_t count,
                      const char *path);

#endif
