/* SPDX-License-Identifier: Apache-2.0 */
/* Log pages by libnvme. */
#include <errno.h>
#include <libnvme.h>

#include "tools/nvme/nvme_drive.h"

enum embtier_err nvme_drive_read(int fd, uint8_t page, uint8_t ret_bytes[NVME_PAGE_BYTES],
                                 struct err_msg *msg)
{
    const int status =
        nvme_get_log_simple(fd, (enum nvme_cmd_get_log_lid)page, NVME_PAGE_BYTES, ret_bytes);

    if (status == 0)
        return EMBTIER_OK;
    if (status > 0)
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "the drive does not give log page %02xh: it answers with status %xh", page,
                       (unsigned)status);
    if (errno == EACCES || errno == EPERM)
        return err_set(msg, EMBTIER_PERMISSION,
                       "reading a drive's health needs CAP_SYS_ADMIN: run the command as root");
    return err_set_errno(msg, errno, "log page %02xh", page);
}
