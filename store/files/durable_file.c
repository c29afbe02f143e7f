/* SPDX-License-Identifier: Apache-2.0 */
#include "store/files/durable_file.h"
#include "store/files/written.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 4096

static _Atomic uint64_t written_bytes;

enum embtier_err directory_sync(const char *directory, struct err_msg *msg)
{
    _cleanup_(closep) int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) != 0)
        return err_set_errno(msg, errno, "%s", directory);
    return EMBTIER_OK;
}

static enum embtier_err write_all(int fd, const char *path, const char *text, struct err_msg *msg)
{
    size_t left = strlen(text);

    atomic_fetch_add(&written_bytes, align_up(left, PAGE_BYTES));
    written_add(written_place(path), align_up(left, PAGE_BYTES));
    while (left > 0) {
        const ssize_t written = write(fd, text, left);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return err_set_errno(msg, errno, "%s", path);
        text += written;
        left -= (size_t)written;
    }
    if (fsync(fd) != 0)
        return err_set_errno(msg, errno, "%s", path);
    return EMBTIER_OK;
}

/* Puts @temporary in the place of @path, or leaves both as they were. A caller that gets an error
 * relies on the old contents, and so must the next start. @old keeps these until the new file is
 * certain to stay. */
static enum embtier_err replace(const char *directory, const char *path, const char *temporary,
                                const char *old, struct err_msg *msg)
{
    enum embtier_err err;
    bool had_one, had_none;

    if (unlink(old) != 0 && errno != ENOENT)
        return err_set_errno(msg, errno, "%s", old);
    had_one = link(path, old) == 0;
    had_none = !had_one && errno == ENOENT;
    if (!had_one && !had_none && errno != EPERM && errno != EOPNOTSUPP &&
        errno != ENOSYS) /* file systems without hard links */
        return err_set_errno(msg, errno, "%s", old);
    if (rename(temporary, path) != 0) {
        err = err_set_errno(msg, errno, "%s", path);
        unlink(old);
        return err;
    }
    err = directory_sync(directory, msg);
    if (err == EMBTIER_OK)
        unlink(old);
    else if (had_one)
        (void)rename(old, path);
    else if (had_none)
        unlink(path);
    return err;
}

uint64_t durable_file_written_bytes(void)
{
    return atomic_load(&written_bytes);
}

enum embtier_err durable_file_write(const char *directory, const char *name, const char *text,
                                    struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(directory, name);
    _cleanup_(freep) char *temporary = NULL;
    _cleanup_(freep) char *old = NULL;
    _cleanup_(closep) int fd = -1;
    enum embtier_err err;

    if (!path || asprintf(&temporary, "%s%s", path, DURABLE_FILE_SUFFIX) < 0 ||
        asprintf(&old, "%s%s", path, DURABLE_FILE_OLD_SUFFIX) < 0)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", name);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set_errno(msg, errno, "%s", temporary);
    err = write_all(fd, temporary, text, msg);
    if (err == EMBTIER_OK)
        err = replace(directory, path, temporary, old, msg);
    if (err != EMBTIER_OK)
        unlink(temporary);
    return err;
}

enum embtier_err durable_file_append(const char *directory, const char *name, uint64_t at,
                                     const char *text, bool *ret_cut, struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(directory, name);
    _cleanup_(closep) int fd = -1;
    enum embtier_err err;

    *ret_cut = true;
    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(msg, errno, "%s", path);
    if (lseek(fd, (off_t)at, SEEK_SET) < 0)
        return err_set_errno(msg, errno, "%s", path);
    err = write_all(fd, path, text, msg);
    if (err != EMBTIER_OK)
        *ret_cut = ftruncate(fd, (off_t)at) == 0 && fsync(fd) == 0;
    return err;
}

enum embtier_err durable_file_read_bytes(const char *directory, const char *name, char **ret_text,
                                         size_t *ret_bytes, struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(directory, name);
    _cleanup_(freep) char *text = NULL;
    _cleanup_(closep) int fd = -1;
    struct stat stat;
    size_t used = 0;

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", name);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: not to wait on a FIFO */
    if (fd < 0 || fstat(fd, &stat) != 0)
        return err_set_errno(msg, errno, "%s", path);
    if (!S_ISREG(stat.st_mode) || (size_t)stat.st_size > DURABLE_FILE_BYTES_MAX)
        return err_set(msg, EMBTIER_CORRUPT, "%s: not a file that embtier has written", path);
    text = malloc((size_t)stat.st_size + 1);
    if (!text)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    while (used < (size_t)stat.st_size) {
        const ssize_t got = read(fd, text + used, (size_t)stat.st_size - used);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(msg, errno, "%s", path);
        if (got == 0)
            break;
        used += (size_t)got;
    }
    text[used] = '\0';
    *ret_text = TAKE(text);
    *ret_bytes = used;
    return EMBTIER_OK;
}

enum embtier_err durable_file_read(const char *directory, const char *name, char **ret_text,
                                   struct err_msg *msg)
{
    _cleanup_(freep) char *text = NULL;
    size_t bytes = 0;

    TRY(durable_file_read_bytes(directory, name, &text, &bytes, msg));
    if (strlen(text) != bytes)
        return err_set(msg, EMBTIER_CORRUPT, "%s/%s: holds a zero byte", directory, name);
    *ret_text = TAKE(text);
    return EMBTIER_OK;
}
