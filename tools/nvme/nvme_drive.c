/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nvme/nvme_drive.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/text/text_escape.h"
#include "tools/nvme/drive_name.h"

enum embtier_err nvme_drive_find(const struct host *host, const char *path,
                                 struct nvme_drive *ret_drive, struct err_msg *msg)
{
    struct nvme_drive drive = { 0 };
    struct statx info;
    const int errnum = host->look(path, &info);

    if (errnum != 0)
        return err_set_errno(msg, errnum, "%s", TEXT_SHOWN(path));
    drive.is_block = S_ISBLK(info.stx_mode);
    drive.number = makedev(info.stx_rdev_major, info.stx_rdev_minor);
    if ((!drive.is_block && !S_ISCHR(info.stx_mode)) ||
        !host_link_name(host, &drive.name, "/sys/dev/%s/%u:%u", drive.is_block ? "block" : "char",
                        info.stx_rdev_major, info.stx_rdev_minor))
        return err_set(msg, EMBTIER_INVALID,
                       "%s: no device that /sys knows; name an NVMe drive, such as /dev/nvme0n1",
                       TEXT_SHOWN(path));
    if (!drive_name_is_good(drive.name.text, drive.is_block))
        return err_set(msg, EMBTIER_INVALID,
                       "%s: '%s' is no NVMe drive; name one, such as /dev/nvme0n1, and not its "
                       "partition",
                       TEXT_SHOWN(path), TEXT_SHOWN(drive.name.text));
    *ret_drive = drive;
    return EMBTIER_OK;
}

enum embtier_err nvme_drive_open(const struct nvme_drive *drive, const char *path, int *ret_fd,
                                 struct err_msg *msg)
{
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat info;

    if (fd < 0 && (errno == EACCES || errno == EPERM))
        return err_set(msg, EMBTIER_PERMISSION,
                       "%s: no right to open the drive: run the command as root", TEXT_SHOWN(path));
    if (fd < 0 || fstat(fd, &info) != 0)
        return err_set_errno(msg, errno, "%s", TEXT_SHOWN(path));
    if (info.st_rdev != drive->number || (bool)S_ISBLK(info.st_mode) != drive->is_block)
        return err_set(msg, EMBTIER_MISMATCH,
                       "%s: became another device meanwhile; run the command again",
                       TEXT_SHOWN(path));
    *ret_fd = TAKE_FD(fd);
    return EMBTIER_OK;
}
