/* SPDX-License-Identifier: Apache-2.0 */
/* drive_name.h: the kernel's names of NVMe drives. Thread: any. */
#ifndef EMBTIER_TOOLS_NVME_DRIVE_NAME_H
#define EMBTIER_TOOLS_NVME_DRIVE_NAME_H

#include <stdbool.h>

/* True for names such as nvme0n1 of a block device, or nvme0 of a controller. The name of a
 * partition has more behind that. */
bool drive_name_is_good(const char *name, bool is_block);

#endif
