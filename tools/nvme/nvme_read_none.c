/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nvme/nvme_drive.h"

enum embtier_err nvme_drive_read(int fd, uint8_t page, uint8_t ret_bytes[NVME_PAGE_BYTES],
                                 struct err_msg *msg)
{
    (void)fd;
    (void)page;
    (void)ret_bytes;
    return err_set(msg, EMBTIER_UNSUPPORTED,
                   "built without libnvme, so no drive's health can be read: install libnvme-dev "
                   "1.3 or newer, and build again");
}
