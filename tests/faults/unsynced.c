/* SPDX-License-Identifier: Apache-2.0 */
/* unsynced: preloaded into embtierd. It records what a power loss could undo below the folder
 * EMBTIER_FAULT_FOLDER: syncs, and changes of files and folders with the former content. The
 * journal lies in the folder EMBTIER_FAULT_JOURNAL and is read after SIGKILL
 * (tests/crash/power_loss.py), so the dying process need do nothing.
 *
 * One lock is held over a change and its record. The journal therefore has the true order, and no
 * sync covers a change that was made after the sync began. A record is one write() of its own,
 * before the change. If the change fails, another record takes it back. The record of a new file or
 * folder follows the change, since only then it has an inode. After SIGKILL, therefore, only the
 * last record may stand for a change that was not made. Only one entry may lack its record. The
 * content of an unlinked file is copied. A second link would keep its link count from falling to 0,
 * which the server looks at.
 *
 * The journal does not record syncs of files whose paths match EMBTIER_FAULT_IGNORE_SYNC.
 *
 * The library does not follow mmap and stdio, since the server writes nothing there with them. If a
 * test finds a change that is not in the journal, it fails. */
#undef _FILE_OFFSET_BITS /* with it, pwrite and pwrite64 are one symbol */

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <liburing.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* The library defines both names of each: libraries built with 64-bit offsets call the second. */
static_assert(sizeof(off_t) == sizeof(off64_t), "a 64-bit machine");

#define EXPORT __attribute__((visibility("default")))

enum kind {
    WRITE = 1, /* inode, offset, bytes; size before; what was overwritten */
    RESIZE,    /* inode, new size; size before; what was cut off */
    CREATE,    /* inode; path */
    MKDIR,     /* inode 0; path */
    UNLINK,    /* inode; path */
    RMDIR,     /* inode; path */
    RENAME,    /* inode of the replaced file or 0; both paths */
    LINK,      /* both paths */
    SYNC,      /* inode, number of records that it covers */
    FAILED,    /* the record before this one had no effect */
    START,     /* a process began: records are counted from here on */
};

struct record {
    uint32_t kind;
    uint32_t path_bytes;
    uint32_t other_bytes; /* length of the second path */
    uint32_t data_bytes;
    uint64_t inode;
    uint64_t at;
    uint64_t count;
    uint64_t size; /* size before */
};
static_assert(sizeof(struct record) == 48, "read by power_loss.py");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;
static uint64_t records; /* of this process */

/* Returns the function that the next library defines. */
static void *next(const char *name)
{
    void *const function = dlsym(RTLD_NEXT, name);

    if (!function)
        abort();
    return function;
}

/* Looks up the function at each use: many threads ask, and the lookups use these functions too. */
#define NEXT(type, name) ((type)next(name))

typedef int (*openat_fn)(int, const char *, int, mode_t);
typedef ssize_t (*write_fn)(int, const void *, size_t);
typedef ssize_t (*pwrite_fn)(int, const void *, size_t, off_t);
typedef ssize_t (*writev_fn)(int, const struct iovec *, int);
typedef ssize_t (*pwritev_fn)(int, const struct iovec *, int, off_t);
typedef int (*ftruncate_fn)(int, off_t);
typedef int (*fallocate_fn)(int, int, off_t, off_t);
typedef int (*path_fn)(const char *);
typedef int (*paths_fn)(const char *, const char *);
typedef int (*mkdir_fn)(const char *, mode_t);
typedef int (*sync_fn)(int);
typedef int (*submit_fn)(struct io_uring *, unsigned);

static int real_open(const char *path, int flags, mode_t mode)
{
    return NEXT(openat_fn, "openat64")(AT_FDCWD, path, flags, mode);
}

static bool is_below(const char *path)
{
    const char *const folder = getenv("EMBTIER_FAULT_FOLDER");
    const size_t length = folder ? strlen(folder) : 0;

    return length > 0 && strncmp(path, folder, length) == 0 &&
           (path[length] == '/' || path[length] == '\0');
}

/* Finds the path of an open file or folder. False for sockets and the like. */
static bool path_of(int fd, struct stat *ret_info, char path[static 4096])
{
    char link[64];
    ssize_t bytes;

    if (fd < 0 || fstat(fd, ret_info) != 0 ||
        (!S_ISREG(ret_info->st_mode) && !S_ISDIR(ret_info->st_mode)))
        return false;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    bytes = readlink(link, path, 4095);
    path[bytes > 0 ? bytes : 0] = '\0';
    return bytes > 0;
}

static bool is_ours(int fd, struct stat *ret_info)
{
    char path[4096];

    return path_of(fd, ret_info, path) && is_below(path);
}

static void put_mark(enum kind kind)
{
    const struct record record = { .kind = kind };

    if (NEXT(write_fn, "write")(journal, &record, sizeof(record)) != sizeof(record))
        abort();
}

static void begin(void)
{
    pthread_mutex_lock(&lock);
    if (journal < 0) {
        const char *const folder = getenv("EMBTIER_FAULT_JOURNAL");
        char path[4096];

        snprintf(path, sizeof(path), "%s/journal", folder ? folder : ".");
        journal = real_open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (journal < 0)
            abort();
        put_mark(START);
    }
}

/* Takes back the last record if its change has failed. Keeps errno. */
static void end(bool failed)
{
    const int error = errno;

    if (failed)
        put_mark(FAILED);
    pthread_mutex_unlock(&lock);
    errno = error;
}

static void put(struct record record, const char *path, const char *other, const void *data)
{
    const struct iovec parts[] = {
        { &record, sizeof(record) },
        { (void *)path, record.path_bytes = path ? (uint32_t)strlen(path) : 0 },
        { (void *)other, record.other_bytes = other ? (uint32_t)strlen(other) : 0 },
        { (void *)data, record.data_bytes },
    };
    size_t bytes = 0;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        bytes += parts[i].iov_len;
    if (NEXT(writev_fn, "writev")(journal, parts, 4) != (ssize_t)bytes)
        abort();
    records++;
}

/* Returns bytes [@at, @end) of a file, as far as it has them. The caller frees them. */
static char *content(const char *path, uint64_t at, uint64_t end, uint32_t *ret_bytes)
{
    const int fd = real_open(path, O_RDONLY | O_CLOEXEC, 0);
    char *const bytes = malloc(end > at ? end - at : 1);
    size_t used = 0;

    if (fd < 0 || !bytes)
        abort();
    while (at + used < end) {
        const ssize_t got = pread(fd, bytes + used, end - at - used, (off_t)(at + used));

        if (got <= 0)
            break;
        used += (size_t)got;
    }
    close(fd);
    *ret_bytes = (uint32_t)used;
    return bytes;
}

static void put_change(int fd, enum kind kind, const struct stat *info, uint64_t at, uint64_t count,
                       uint64_t end)
{
    const uint64_t size = (uint64_t)info->st_size;
    struct record record = {
        .kind = kind, .inode = info->st_ino, .at = at, .count = count, .size = size
    };
    char link[64];
    char *old;

    if (end > size)
        end = size;
    if (end <= at) {
        put(record, NULL, NULL, NULL);
        return;
    }
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    old = content(link, at, end, &record.data_bytes);
    put(record, NULL, NULL, old);
    free(old);
}

/* ---- Files' content ---- */

/* Records a write at @at, or at the file's own position if @at is -1. */
static void put_write(int fd, off_t at, size_t count)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        abort();
    if (at < 0)
        at = fcntl(fd, F_GETFL) & O_APPEND ? info.st_size : lseek(fd, 0, SEEK_CUR);
    put_change(fd, WRITE, &info, (uint64_t)at, count, (uint64_t)at + count);
}

static size_t bytes_of(const struct iovec *parts, int count)
{
    size_t bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    return bytes;
}

#define WRITER(name, at, bytes, call, ...)                                                         \
    EXPORT ssize_t name(__VA_ARGS__)                                                               \
    {                                                                                              \
        struct stat info;                                                                          \
        ssize_t written;                                                                           \
                                                                                                   \
        if (!is_ours(fd, &info))                                                                   \
            return call;                                                                           \
        begin();                                                                                   \
        put_write(fd, at, bytes);                                                                  \
        written = call;                                                                            \
        end(written < 0);                                                                          \
        return written;                                                                            \
    }

WRITER(write, -1, bytes, NEXT(write_fn, "write")(fd, data, bytes), int fd, const void *data,
       size_t bytes)
WRITER(pwrite, at, bytes, NEXT(pwrite_fn, "pwrite")(fd, data, bytes, at), int fd, const void *data,
       size_t bytes, off_t at)
WRITER(pwrite64, at, bytes, NEXT(pwrite_fn, "pwrite")(fd, data, bytes, at), int fd,
       const void *data, size_t bytes, off64_t at)
WRITER(writev, -1, bytes_of(parts, count), NEXT(writev_fn, "writev")(fd, parts, count), int fd,
       const struct iovec *parts, int count)
WRITER(pwritev, at, bytes_of(parts, count), NEXT(pwritev_fn, "pwritev")(fd, parts, count, at),
       int fd, const struct iovec *parts, int count, off_t at)
WRITER(pwritev64, at, bytes_of(parts, count), NEXT(pwritev_fn, "pwritev")(fd, parts, count, at),
       int fd, const struct iovec *parts, int count, off64_t at)

static int resize(int fd, off_t size)
{
    struct stat info;
    int result;

    if (!is_ours(fd, &info))
        return NEXT(ftruncate_fn, "ftruncate")(fd, size);
    begin();
    if (fstat(fd, &info) != 0)
        abort();
    put_change(fd, RESIZE, &info, (uint64_t)size, 0, (uint64_t)info.st_size);
    result = NEXT(ftruncate_fn, "ftruncate")(fd, size);
    end(result != 0);
    return result;
}

EXPORT int ftruncate(int fd, off_t size)
{
    return resize(fd, size);
}

EXPORT int ftruncate64(int fd, off64_t size)
{
    return resize(fd, size);
}

/* Allocation that makes a file longer counts as a change of its size. Allocation within the size,
 * or freeing, changes nothing. */
static int allocate(int fd, int mode, off_t at, off_t bytes)
{
    struct stat info;
    int result;

    if ((mode & FALLOC_FL_KEEP_SIZE) || !is_ours(fd, &info) || at + bytes <= info.st_size)
        return NEXT(fallocate_fn, "fallocate")(fd, mode, at, bytes);
    if (mode != 0)
        abort(); /* no caller uses these modes yet */
    begin();
    if (fstat(fd, &info) != 0)
        abort();
    put_change(fd, RESIZE, &info, (uint64_t)(at + bytes), 0, (uint64_t)info.st_size);
    result = NEXT(fallocate_fn, "fallocate")(fd, mode, at, bytes);
    end(result != 0);
    return result;
}

EXPORT int fallocate(int fd, int mode, off_t at, off_t bytes)
{
    return allocate(fd, mode, at, bytes);
}

EXPORT int fallocate64(int fd, int mode, off64_t at, off64_t bytes)
{
    return allocate(fd, mode, at, bytes);
}

/* ---- Entries of folders ---- */

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    const openat_fn open_next = NEXT(openat_fn, "openat64");
    struct stat info;
    int fd;

    if (!(flags & (O_CREAT | O_TRUNC)) || !is_below(path))
        return open_next(folder, path, flags, mode);
    begin();
    if (stat(path, &info) != 0) {
        fd = open_next(folder, path, flags, mode);
        if (fd >= 0 && fstat(fd, &info) == 0) /* the file has no inode before */
            put((struct record){ .kind = CREATE, .inode = info.st_ino }, path, NULL, NULL);
        end(false);
        return fd;
    }
    if (flags & O_TRUNC && info.st_size > 0 && !(flags & O_EXCL)) {
        struct record record = { .kind = RESIZE,
                                 .inode = info.st_ino,
                                 .size = (uint64_t)info.st_size };
        char *const old = content(path, 0, record.size, &record.data_bytes);

        put(record, NULL, NULL, old);
        free(old);
        fd = open_next(folder, path, flags, mode);
        end(fd < 0);
        return fd;
    }
    fd = open_next(folder, path, flags, mode);
    end(false);
    return fd;
}

/* The mode argument exists only if the flags say so. */
static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

#define OPEN(name, folder, ...)                                                                    \
    EXPORT int name(__VA_ARGS__ const char *path, int flags, ...)                                  \
    {                                                                                              \
        va_list args;                                                                              \
        mode_t mode;                                                                               \
                                                                                                   \
        va_start(args, flags);                                                                     \
        mode = mode_of(flags, args);                                                               \
        va_end(args);                                                                              \
        return open_at(folder, path, flags, mode);                                                 \
    }

OPEN(open, AT_FDCWD)
OPEN(open64, AT_FDCWD)
OPEN(openat, folder, int folder, )
OPEN(openat64, folder, int folder, )

/* Records a change that removes a name, with the content of the file that loses it. */
static void put_loss(struct record record, const char *lost, const char *path, const char *other)
{
    struct stat info;
    char *old = NULL;

    if (lstat(lost, &info) == 0) {
        record.inode = info.st_ino;
        if (S_ISREG(info.st_mode)) {
            record.size = (uint64_t)info.st_size;
            old = content(lost, 0, record.size, &record.data_bytes);
        }
    }
    put(record, path, other, old);
    free(old);
}

EXPORT int unlink(const char *path)
{
    int result;

    if (!is_below(path) || access(path, F_OK) != 0)
        return NEXT(path_fn, "unlink")(path);
    begin();
    put_loss((struct record){ .kind = UNLINK }, path, path, NULL);
    result = NEXT(path_fn, "unlink")(path);
    end(result != 0);
    return result;
}

EXPORT int rmdir(const char *path)
{
    int result;

    if (!is_below(path))
        return NEXT(path_fn, "rmdir")(path);
    begin();
    put((struct record){ .kind = RMDIR }, path, NULL, NULL);
    result = NEXT(path_fn, "rmdir")(path);
    end(result != 0);
    return result;
}

EXPORT int mkdir(const char *path, mode_t mode)
{
    struct stat info;
    int result;

    if (!is_below(path))
        return NEXT(mkdir_fn, "mkdir")(path, mode);
    begin();
    result = NEXT(mkdir_fn, "mkdir")(path, mode);
    if (result == 0 && stat(path, &info) == 0)
        put((struct record){ .kind = MKDIR, .inode = info.st_ino }, path, NULL, NULL);
    end(false);
    return result;
}

EXPORT int rename(const char *from, const char *to)
{
    int result;

    if (!is_below(from) && !is_below(to))
        return NEXT(paths_fn, "rename")(from, to);
    begin();
    put_loss((struct record){ .kind = RENAME }, to, from, to);
    result = NEXT(paths_fn, "rename")(from, to);
    end(result != 0);
    return result;
}

EXPORT int link(const char *from, const char *to)
{
    int result;

    if (!is_below(to))
        return NEXT(paths_fn, "link")(from, to);
    begin();
    put((struct record){ .kind = LINK }, from, to, NULL);
    result = NEXT(paths_fn, "link")(from, to);
    end(result != 0);
    return result;
}

/* ---- Syncs ---- */

static void put_sync(uint64_t inode, uint64_t covered)
{
    const int error = errno;

    begin();
    put((struct record){ .kind = SYNC, .inode = inode, .count = covered }, NULL, NULL, NULL);
    end(false);
    errno = error;
}

static uint64_t covered_now(void)
{
    uint64_t covered;

    begin();
    covered = records;
    end(false);
    return covered;
}

static bool counts(int fd)
{
    const char *const ignored = getenv("EMBTIER_FAULT_IGNORE_SYNC");
    char path[4096];
    struct stat info;

    return !ignored || !path_of(fd, &info, path) || fnmatch(ignored, path, 0) != 0;
}

static int sync_with(sync_fn call, int fd)
{
    struct stat info;
    uint64_t covered;
    int result;

    if (!is_ours(fd, &info))
        return call(fd);
    covered = covered_now();
    result = call(fd);
    if (result == 0 && counts(fd))
        put_sync(info.st_ino, covered);
    return result;
}

EXPORT int fsync(int fd)
{
    return sync_with(NEXT(sync_fn, "fsync"), fd);
}

EXPORT int fdatasync(int fd)
{
    return sync_with(NEXT(sync_fn, "fdatasync"), fd);
}

/* Waits for all that is submitted if there are syncs: a later completion would be taken from the
 * ring before this function sees it. */
EXPORT int io_uring_submit_and_wait(struct io_uring *ring, unsigned count)
{
    const submit_fn submit = NEXT(submit_fn, "io_uring_submit_and_wait");
    const unsigned first = ring->sq.sqe_head;
    const unsigned pending = ring->sq.sqe_tail - first;
    struct sync {
        uint64_t user_data;
        uint64_t inode;
    } syncs[128];
    unsigned sync_count = 0;
    uint64_t covered;
    int result;

    for (unsigned i = 0; i < pending; i++) {
        const struct io_uring_sqe *const sqe = &ring->sq.sqes[(first + i) & *ring->sq.kring_mask];
        struct stat info;

        if (sqe->opcode != IORING_OP_FSYNC || !is_ours(sqe->fd, &info) || !counts(sqe->fd))
            continue;
        if (sync_count == sizeof(syncs) / sizeof(syncs[0]))
            abort();
        syncs[sync_count++] = (struct sync){ sqe->user_data, info.st_ino };
    }
    if (sync_count == 0)
        return submit(ring, count);
    covered = covered_now();
    result = submit(ring, pending);
    for (unsigned at = *ring->cq.khead; at != io_uring_smp_load_acquire(ring->cq.ktail); at++) {
        const struct io_uring_cqe *const cqe = &ring->cq.cqes[at & *ring->cq.kring_mask];

        for (unsigned i = 0; i < sync_count; i++)
            if (cqe->user_data == syncs[i].user_data && cqe->res == 0)
                put_sync(syncs[i].inode, covered);
    }
    return result;
}
