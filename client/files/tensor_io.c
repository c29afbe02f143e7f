/* SPDX-License-Identifier: Apache-2.0 */
#include "client/files/tensor_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"

enum embtier_err tensor_io_read(int fd, const char *name, uint64_t at, void *bytes, size_t count,
                                struct err_msg *msg)
{
    char *to = bytes;

    while (count > 0) {
        const ssize_t got = pread(fd, to, count, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(msg, errno, "%s", name);
        if (got == 0)
            return err_set(msg, EMBTIER_CORRUPT,
                           "%s: was shortened while it was read and now ends at byte %" PRIu64,
                           name, at);
        to += got;
        at += (uint64_t)got;
        count -= (size_t)got;
    }
    return EMBTIER_OK;
}

enum embtier_err tensor_io_read_text(const char *path, uint64_t bytes_max, char **ret_text,
                                     struct err_msg *msg)
{
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    _cleanup_(freep) char *text = NULL;
    struct stat info;

    if (fd < 0 && errno == ENOENT)
        return err_set(msg, EMBTIER_NOT_FOUND, "%s: missing", path);
    if (fd < 0 || fstat(fd, &info) != 0)
        return err_set_errno(msg, errno, "%s", path);
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size > bytes_max)
        return err_set(msg, EMBTIER_CORRUPT, "%s: not a file of at most %llu bytes", path,
                       (unsigned long long)bytes_max);
    text = calloc(1, (size_t)info.st_size + 1);
    if (!text)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(tensor_io_read(fd, path, 0, text, (size_t)info.st_size, msg));
    *ret_text = TAKE(text);
    return EMBTIER_OK;
}

enum embtier_err tensor_io_write(int fd, const char *name, uint64_t at, const void *bytes,
                                 size_t count, struct err_msg *msg)
{
    const char *from = bytes;

    while (count > 0) {
        const ssize_t written = pwrite(fd, from, count, (off_t)at);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return err_set_errno(msg, errno, "%s", name);
        from += written;
        at += (uint64_t)written;
        count -= (size_t)written;
    }
    return EMBTIER_OK;
}

void tensor_io_begin_sync(int fd, uint64_t at, size_t count)
{
    (void)sync_file_range(fd, (off_t)at, (off_t)count, SYNC_FILE_RANGE_WRITE);
}

enum embtier_err tensor_io_sync(int fd, const char *name, struct err_msg *msg)
{
    int result;

    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result == 0 ? EMBTIER_OK : err_set_errno(msg, errno, "%s", name);
}
