/* SPDX-License-Identifier: Apache-2.0 */
#include "store/files/file_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "store/files/written.h"
#include "store/rocksdb/rocksdb_ext.h"

#define PIECE_BYTES ((size_t)(1 * MIB))
#define PAGE_BYTES  4096

static _Atomic uint64_t written_bytes;

uint64_t file_tree_written_bytes(void)
{
    return atomic_load(&written_bytes);
}

/* Makes one read of at most @most bytes. *@ret_count 0: the end of the file. */
static enum embtier_err read_some(int fd, const char *path, void *bytes, size_t most,
                                  size_t *ret_count, struct err_msg *msg)
{
    ssize_t got;

    do
        got = read(fd, bytes, most);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_set_errno(msg, errno, "%s", path);
    *ret_count = (size_t)got;
    return EMBTIER_OK;
}

static enum embtier_err write_all(int fd, const char *path, const char *bytes, size_t count,
                                  struct err_msg *msg)
{
    atomic_fetch_add(&written_bytes, align_up(count, PAGE_BYTES));
    written_add(written_place(path), align_up(count, PAGE_BYTES));
    while (count > 0) {
        const ssize_t written = write(fd, bytes, count);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return err_set_errno(msg, errno, "%s", path);
        bytes += written;
        count -= (size_t)written;
    }
    return EMBTIER_OK;
}

static enum embtier_err ends_early(const char *path, uint64_t bytes, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_CORRUPT, "%s: has fewer than %" PRIu64 " bytes", path, bytes);
}

static enum embtier_err copy_all(int from_fd, const char *from, int to_fd, const char *to,
                                 uint64_t bytes, struct rocksdb_ext_sum *sum, struct err_msg *msg)
{
    _cleanup_(freep) char *piece = malloc(PIECE_BYTES);
    uint64_t left = bytes;

    if (!piece)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", to);
    while (left > 0) {
        size_t count = 0;

        TRY(read_some(from_fd, from, piece, (size_t)MIN(left, (uint64_t)PIECE_BYTES), &count, msg));
        if (count == 0)
            return ends_early(from, bytes, msg);
        rocksdb_ext_sum_add(sum, piece, count);
        TRY(write_all(to_fd, to, piece, count, msg));
        left -= count;
    }
    return EMBTIER_OK;
}

static int create_file(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

enum embtier_err file_copy(const char *from, const char *to, uint64_t bytes, uint32_t *ret_sum,
                           struct err_msg *msg)
{
    _cleanup_(closep) int from_fd = open(from, O_RDONLY | O_CLOEXEC);
    _cleanup_(closep) int to_fd = -1;
    struct rocksdb_ext_sum *sum;
    enum embtier_err err;

    if (from_fd < 0)
        return errno == ENOENT ? err_set(msg, EMBTIER_CORRUPT, "%s: missing", from)
                               : err_set_errno(msg, errno, "%s", from);
    to_fd = create_file(to);
    if (to_fd < 0)
        return err_set_errno(msg, errno, "%s", to);
    sum = rocksdb_ext_sum_new();
    err = copy_all(from_fd, from, to_fd, to, bytes, sum, msg);
    *ret_sum = rocksdb_ext_sum_end(sum);
    TRY(err);
    return fsync(to_fd) == 0 ? EMBTIER_OK : err_set_errno(msg, errno, "%s", to);
}

enum embtier_err file_make(const char *to, const char *text, uint64_t bytes, uint32_t *ret_sum,
                           struct err_msg *msg)
{
    _cleanup_(closep) int fd = create_file(to);
    struct rocksdb_ext_sum *const sum = rocksdb_ext_sum_new();

    rocksdb_ext_sum_add(sum, text, bytes);
    *ret_sum = rocksdb_ext_sum_end(sum);
    if (fd < 0)
        return err_set_errno(msg, errno, "%s", to);
    TRY(write_all(fd, to, text, bytes, msg));
    return fsync(fd) == 0 ? EMBTIER_OK : err_set_errno(msg, errno, "%s", to);
}

enum embtier_err file_link(const char *from, const char *to, bool *ret_linked, struct err_msg *msg)
{
    *ret_linked = link(from, to) == 0;
    if (*ret_linked)
        return EMBTIER_OK;
    if (errno == ENOENT)
        return err_set(msg, EMBTIER_CORRUPT, "%s: missing", from);
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK ||
        errno == EXDEV)
        return EMBTIER_OK;
    return err_set_errno(msg, errno, "%s", to);
}

static enum embtier_err sum_all(int fd, const char *path, uint64_t bytes,
                                struct rocksdb_ext_sum *sum,
                                void (*progress)(void *context, uint64_t bytes), void *context,
                                const _Atomic bool *give_up, struct err_msg *msg)
{
    _cleanup_(freep) char *piece = malloc(PIECE_BYTES);
    uint64_t left = bytes;

    if (!piece)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    while (left > 0) {
        size_t count = 0;

        if (give_up && atomic_load(give_up))
            return err_shutdown(msg);
        TRY(read_some(fd, path, piece, (size_t)MIN(left, (uint64_t)PIECE_BYTES), &count, msg));
        if (count == 0)
            return ends_early(path, bytes, msg);
        rocksdb_ext_sum_add(sum, piece, count);
        if (progress)
            progress(context, count);
        left -= count;
    }
    return EMBTIER_OK;
}

enum embtier_err file_sum(const char *path, uint64_t bytes, uint32_t *ret_sum,
                          void (*progress)(void *context, uint64_t bytes), void *context,
                          const _Atomic bool *give_up, struct err_msg *msg)
{
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct rocksdb_ext_sum *sum;
    struct stat info;
    enum embtier_err err;

    if (fd < 0)
        return errno == ENOENT ? err_set(msg, EMBTIER_CORRUPT, "%s: missing", path)
                               : err_set_errno(msg, errno, "%s", path);
    if (fstat(fd, &info) != 0)
        return err_set_errno(msg, errno, "%s", path);
    if (!S_ISREG(info.st_mode))
        return err_set(msg, EMBTIER_CORRUPT, "%s: not a file", path);
    if ((uint64_t)info.st_size != bytes)
        return err_set(msg, EMBTIER_CORRUPT, "%s: has %" PRIu64 " bytes instead of %" PRIu64, path,
                       (uint64_t)info.st_size, bytes);
    sum = rocksdb_ext_sum_new();
    err = sum_all(fd, path, bytes, sum, progress, context, give_up, msg);
    *ret_sum = rocksdb_ext_sum_end(sum);
    /* A file that is read only for a check should not displace others from the page cache. */
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return err;
}

enum embtier_err path_is_plain(const char *path, struct err_msg *msg)
{
    struct stat info;

    if (lstat(path, &info) != 0)
        return errno == ENOENT ? EMBTIER_OK : err_set_errno(msg, errno, "%s", path);
    if (!S_ISREG(info.st_mode))
        return err_set(msg, EMBTIER_MISMATCH,
                       "%s: is not a regular file, so nothing is written to it: move it away",
                       path);
    return EMBTIER_OK;
}

enum embtier_err folder_make(const char *path, struct err_msg *msg)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return EMBTIER_OK;
    return err_set_errno(msg, errno, "%s", path);
}

static enum embtier_err remove_entry(const char *path, struct err_msg *msg)
{
    struct stat info;

    if (lstat(path, &info) != 0)
        return errno == ENOENT ? EMBTIER_OK : err_set_errno(msg, errno, "%s", path);
    if (S_ISDIR(info.st_mode))
        return folder_remove(path, msg);
    return unlink(path) == 0 || errno == ENOENT ? EMBTIER_OK
                                                : err_set_errno(msg, errno, "%s", path);
}

enum embtier_err path_is_there(const char *path, bool *ret_there, struct err_msg *msg)
{
    *ret_there = access(path, F_OK) == 0;
    return *ret_there || errno == ENOENT || errno == ENOTDIR
               ? EMBTIER_OK
               : err_set_errno(msg, errno, "%s", path);
}

static bool is_itself_or_parent(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

const struct dirent *folder_next(DIR *folder, const char *path, enum embtier_err *ret_err,
                                 struct err_msg *msg)
{
    const struct dirent *entry;

    do {
        errno = 0;
        entry = readdir(folder);
    } while (entry && is_itself_or_parent(entry->d_name));
    if (!entry && errno != 0)
        *ret_err = err_set_errno(msg, errno, "%s", path);
    return entry;
}

enum embtier_err folder_empty(const char *path, const char *but, struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;
    const struct dirent *entry;
    DIR *const folder = opendir(path);

    if (!folder)
        return errno == ENOENT ? EMBTIER_OK : err_set_errno(msg, errno, "%s", path);
    while (err == EMBTIER_OK && (entry = folder_next(folder, path, &err, msg))) {
        _cleanup_(freep) char *child = NULL;

        if (but && strcmp(entry->d_name, but) == 0)
            continue;
        child = path_join(path, entry->d_name);
        err = child ? remove_entry(child, msg)
                    : err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    }
    closedir(folder);
    return err;
}

enum embtier_err folder_remove(const char *path, struct err_msg *msg)
{
    struct stat info;

    if (lstat(path, &info) != 0)
        return errno == ENOENT ? EMBTIER_OK : err_set_errno(msg, errno, "%s", path);
    if (S_ISLNK(info.st_mode))
        return remove_entry(path, msg);
    TRY(folder_empty(path, NULL, msg));
    return rmdir(path) == 0 || errno == ENOENT ? EMBTIER_OK : err_set_errno(msg, errno, "%s", path);
}

enum embtier_err folder_is_empty(const char *path, bool *ret_empty, struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;
    DIR *const folder = opendir(path);

    *ret_empty = true;
    if (!folder)
        return errno == ENOENT ? EMBTIER_OK : err_set_errno(msg, errno, "%s", path);
    *ret_empty = !folder_next(folder, path, &err, msg);
    closedir(folder);
    return err;
}
