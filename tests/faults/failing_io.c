/* SPDX-License-Identifier: Apache-2.0 */
/* failing_io: preloaded into embtierd or a client. It counts I/O below the folder
 * EMBTIER_FAULT_FOLDER by kind of call and kind of file. It can make one kind of call on one kind
 * of file fail: once, or from then on. The file EMBTIER_FAULT_CONTROL, which the test and the
 * daemon map, says which calls must fail and holds the counts (tests/crash/failing_io.py).
 *
 * A short read or write does half of the bytes, in whole sectors if there is more than one. Reads
 * and syncs by io_uring fail after they are done, in the ring's memory. Reads by stdio are a kind
 * of call of their own. RocksDB reads MANIFEST and logs with stdio at the start, whatever reads
 * these files earlier.
 *
 * A correct caller repeats an interrupted call until it is not interrupted, so endless
 * interruptions would hang it. With EINTR, "from then on" therefore means many calls in a row. */
#undef _FILE_OFFSET_BITS /* with it, pread and pread64 are one symbol */

#include <assert.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* The library defines both names of each: libraries built with 64-bit offsets call the second. */
static_assert(sizeof(off_t) == sizeof(off64_t), "a 64-bit machine");
static_assert(sizeof(struct stat) == sizeof(struct stat64), "a 64-bit machine");
static_assert(sizeof(struct statvfs) == sizeof(struct statvfs64), "a 64-bit machine");
static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "a 64-bit machine");

#define EXPORT __attribute__((visibility("default")))
#define SECTOR 512

/* Calls and kinds of files are in the order of failing_io.py. */
enum call {
    OPEN,
    READ,
    STREAM,
    WRITE,
    SYNC,
    RESIZE,
    ALLOCATE,
    RENAME,
    LINK,
    UNLINK,
    MKDIR,
    RMDIR,
    LIST,
    STAT,
    CALLS
};
enum kind {
    LOG,
    TABLE,
    MANIFEST,
    CURRENT,
    JSON,
    SEAL,
    CHECKPOINT,
    INFO,
    FOLDER,
    SHELF, /* the folder of all checkpoints */
    OTHER,
    KINDS
};

#define SHORT         (-1) /* stands for a short read or write, in place of an errno */
#define INTERRUPTIONS 1000

struct control {
    _Atomic uint32_t armed;
    uint32_t call;
    uint32_t kind;
    int32_t error;
    uint32_t at; /* the call that fails, counted from 1 */
    uint32_t on; /* also fail later calls; with EINTR, INTERRUPTIONS in all */
    _Atomic uint32_t seen;
    _Atomic uint32_t failed;
    _Atomic uint64_t counts[CALLS][KINDS];
};
static_assert(sizeof(struct control) == 32 + 8 * 14 * 11, "read by failing_io.py");

static struct control *control;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Returns the function that the next library defines. */
static void *next(const char *name)
{
    void *const function = dlsym(RTLD_NEXT, name);

    if (!function)
        abort();
    return function;
}

#define NEXT(type, name) ((type)next(name))

typedef int (*openat_fn)(int, const char *, int, mode_t);
typedef ssize_t (*read_fn)(int, void *, size_t);
typedef size_t (*fread_fn)(void *, size_t, size_t, FILE *);
typedef ssize_t (*pread_fn)(int, void *, size_t, off_t);
typedef ssize_t (*write_fn)(int, const void *, size_t);
typedef ssize_t (*pwrite_fn)(int, const void *, size_t, off_t);
typedef int (*ftruncate_fn)(int, off_t);
typedef int (*fallocate_fn)(int, int, off_t, off_t);
typedef int (*path_fn)(const char *);
typedef int (*paths_fn)(const char *, const char *);
typedef int (*mkdir_fn)(const char *, mode_t);
typedef int (*sync_fn)(int);
typedef int (*stat_fn)(const char *, struct stat *);
typedef int (*fstat_fn)(int, struct stat *);
typedef int (*fstatat_fn)(int, const char *, struct stat *, int);
typedef int (*statvfs_fn)(const char *, struct statvfs *);
typedef int (*access_fn)(const char *, int);
typedef int (*faccessat_fn)(int, const char *, int, int);
typedef int (*mkdirat_fn)(int, const char *, mode_t);
typedef int (*unlinkat_fn)(int, const char *, int);
typedef int (*renameat_fn)(int, const char *, int, const char *);
typedef int (*renameat2_fn)(int, const char *, int, const char *, unsigned);
typedef DIR *(*opendir_fn)(const char *);
typedef DIR *(*fdopendir_fn)(int);
typedef struct dirent *(*readdir_fn)(DIR *);
typedef FILE *(*fopen_fn)(const char *, const char *);
typedef int (*submit_fn)(struct io_uring *, unsigned);

static void map_control(void)
{
    const char *const path = getenv("EMBTIER_FAULT_CONTROL");
    const int fd = path ? NEXT(openat_fn, "openat64")(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    void *const map = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED)
        abort();
    close(fd);
    control = map;
}

static bool ends_with(const char *path, const char *end)
{
    const size_t length = strlen(path);

    return length >= strlen(end) && strcmp(path + length - strlen(end), end) == 0;
}

static enum kind kind_of(const char *path)
{
    const char *const slash = strrchr(path, '/');
    const char *const name = slash ? slash + 1 : path;
    struct stat info;

    if (strstr(path, ".json"))
        return JSON;
    if (strstr(path, ".seal"))
        return SEAL;
    if (ends_with(path, "/checkpoints"))
        return SHELF;
    if (NEXT(stat_fn, "stat")(path, &info) == 0 && S_ISDIR(info.st_mode))
        return FOLDER;
    if (strstr(path, "/checkpoints/"))
        return CHECKPOINT;
    if (ends_with(path, ".log"))
        return LOG;
    if (ends_with(path, ".sst"))
        return TABLE;
    if (strncmp(name, "MANIFEST", 8) == 0)
        return MANIFEST;
    if (strncmp(name, "CURRENT", 7) == 0 || ends_with(path, ".dbtmp"))
        return CURRENT;
    return strcmp(name, "LOG") == 0 ? INFO : OTHER;
}

/* True if the nth matching call must fail; the first is 1. */
static bool is_to_fail(uint32_t nth)
{
    if (nth <= control->at)
        return nth == control->at;
    return control->on && (control->error != EINTR || nth - control->at < INTERRUPTIONS);
}

static bool is_in_folder(const char *path)
{
    const char *const folder = getenv("EMBTIER_FAULT_FOLDER");
    const size_t length = folder ? strlen(folder) : 0;

    return length > 0 && strncmp(path, folder, length) == 0 &&
           (path[length] == '/' || path[length] == '\0');
}

/* True if a call must fail; *@ret_error says how. */
static bool judge(enum call call, const char *path, int *ret_error)
{
    enum kind kind;

    if (!is_in_folder(path))
        return false;
    pthread_once(&once, map_control);
    kind = kind_of(path);
    atomic_fetch_add(&control->counts[call][kind], 1);
    if (!atomic_load(&control->armed) || control->call != call || control->kind != kind ||
        !is_to_fail(atomic_fetch_add(&control->seen, 1) + 1))
        return false;
    atomic_fetch_add(&control->failed, 1);
    *ret_error = control->error;
    return true;
}

/* These keep errno, since it alone tells a failed readdir() from the end of a folder. */
static bool fails_path(enum call call, const char *path, int *ret_error)
{
    const int before = errno;
    const bool fails = judge(call, path, ret_error);

    errno = before;
    return fails;
}

static ssize_t path_of(int fd, char *path, size_t bytes)
{
    char link[64];
    ssize_t length;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, bytes - 1);
    if (length > 0)
        path[length] = '\0';
    return length;
}

static bool fails(enum call call, int fd, int *ret_error)
{
    const int before = errno;
    char path[4096];
    struct stat info;
    bool fails = false;

    if (fd >= 0 && NEXT(fstat_fn, "fstat")(fd, &info) == 0 &&
        (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) && path_of(fd, path, sizeof(path)) > 0)
        fails = judge(call, path, ret_error);
    errno = before;
    return fails;
}

/* @name is a path, or lies in the open folder @folder. */
static bool fails_at(enum call call, int folder, const char *name, int *ret_error)
{
    const int before = errno;
    char path[4096];
    ssize_t length;
    bool fails = false;

    if (name[0] == '/' || folder < 0)
        return fails_path(call, name, ret_error);
    length = path_of(folder, path, sizeof(path));
    if (length > 0 && (size_t)length + strlen(name) + 2 <= sizeof(path)) {
        if (name[0] != '\0')
            sprintf(path + length, "/%s", name);
        fails = judge(call, path, ret_error);
    }
    errno = before;
    return fails;
}

/* Returns whole sectors if possible, since the file may use direct I/O. */
static size_t half_of(size_t bytes)
{
    if (bytes >= 2 * SECTOR)
        return bytes / 2 / SECTOR * SECTOR;
    return bytes > 1 && bytes % SECTOR != 0 ? bytes / 2 : bytes;
}

static int fail(int error)
{
    errno = error > 0 ? error : EIO;
    return -1;
}

#define TRANSFER(name, call, next_call, ...)                                                       \
    EXPORT ssize_t name(__VA_ARGS__)                                                               \
    {                                                                                              \
        int error;                                                                                 \
                                                                                                   \
        if (fails(call, fd, &error)) {                                                             \
            if (error != SHORT)                                                                    \
                return fail(error);                                                                \
            bytes = half_of(bytes);                                                                \
        }                                                                                          \
        return next_call;                                                                          \
    }

TRANSFER(read, READ, NEXT(read_fn, "read")(fd, data, bytes), int fd, void *data, size_t bytes)
TRANSFER(pread, READ, NEXT(pread_fn, "pread")(fd, data, bytes, at), int fd, void *data,
         size_t bytes, off_t at)
TRANSFER(pread64, READ, NEXT(pread_fn, "pread")(fd, data, bytes, at), int fd, void *data,
         size_t bytes, off64_t at)
TRANSFER(write, WRITE, NEXT(write_fn, "write")(fd, data, bytes), int fd, const void *data,
         size_t bytes)
TRANSFER(pwrite, WRITE, NEXT(pwrite_fn, "pwrite")(fd, data, bytes, at), int fd, const void *data,
         size_t bytes, off_t at)
TRANSFER(pwrite64, WRITE, NEXT(pwrite_fn, "pwrite")(fd, data, bytes, at), int fd, const void *data,
         size_t bytes, off64_t at)

#undef fread_unlocked /* a macro in optimized builds */

/* Never short: stdio reads on until it has everything, or the end. */
#define STREAM_READ(name)                                                                          \
    EXPORT size_t name(void *data, size_t size, size_t count, FILE *stream)                        \
    {                                                                                              \
        int error;                                                                                 \
                                                                                                   \
        if (fails(STREAM, fileno_unlocked(stream), &error) && error != SHORT) {                    \
            stream->_flags |= _IO_ERR_SEEN;                                                        \
            errno = error;                                                                         \
            return 0;                                                                              \
        }                                                                                          \
        return NEXT(fread_fn, #name)(data, size, count, stream);                                   \
    }

STREAM_READ(fread)
STREAM_READ(fread_unlocked)

#define OF_FILE(name, call, next_call, ...)                                                        \
    EXPORT int name(__VA_ARGS__)                                                                   \
    {                                                                                              \
        int error;                                                                                 \
                                                                                                   \
        return fails(call, fd, &error) ? fail(error) : next_call;                                  \
    }

OF_FILE(fsync, SYNC, NEXT(sync_fn, "fsync")(fd), int fd)
OF_FILE(fdatasync, SYNC, NEXT(sync_fn, "fdatasync")(fd), int fd)
OF_FILE(ftruncate, RESIZE, NEXT(ftruncate_fn, "ftruncate")(fd, size), int fd, off_t size)
OF_FILE(ftruncate64, RESIZE, NEXT(ftruncate_fn, "ftruncate")(fd, size), int fd, off64_t size)
OF_FILE(fstat, STAT, NEXT(fstat_fn, "fstat")(fd, info), int fd, struct stat *info)
OF_FILE(fstat64, STAT, NEXT(fstat_fn, "fstat")(fd, (struct stat *)info), int fd,
        struct stat64 *info)
OF_FILE(fallocate, ALLOCATE, NEXT(fallocate_fn, "fallocate")(fd, mode, at, bytes), int fd, int mode,
        off_t at, off_t bytes)
OF_FILE(fallocate64, ALLOCATE, NEXT(fallocate_fn, "fallocate")(fd, mode, at, bytes), int fd,
        int mode, off64_t at, off64_t bytes)

#define OF_PATH(name, call, path, next_call, ...)                                                  \
    EXPORT int name(__VA_ARGS__)                                                                   \
    {                                                                                              \
        int error;                                                                                 \
                                                                                                   \
        return fails_path(call, path, &error) ? fail(error) : next_call;                           \
    }

OF_PATH(unlink, UNLINK, path, NEXT(path_fn, "unlink")(path), const char *path)
OF_PATH(rmdir, RMDIR, path, NEXT(path_fn, "rmdir")(path), const char *path)
OF_PATH(mkdir, MKDIR, path, NEXT(mkdir_fn, "mkdir")(path, mode), const char *path, mode_t mode)
OF_PATH(rename, RENAME, to, NEXT(paths_fn, "rename")(from, to), const char *from, const char *to)
OF_PATH(link, LINK, to, NEXT(paths_fn, "link")(from, to), const char *from, const char *to)
OF_PATH(stat, STAT, path, NEXT(stat_fn, "stat")(path, info), const char *path, struct stat *info)
OF_PATH(stat64, STAT, path, NEXT(stat_fn, "stat")(path, (struct stat *)info), const char *path,
        struct stat64 *info)
OF_PATH(lstat, STAT, path, NEXT(stat_fn, "lstat")(path, info), const char *path, struct stat *info)
OF_PATH(lstat64, STAT, path, NEXT(stat_fn, "lstat")(path, (struct stat *)info), const char *path,
        struct stat64 *info)
OF_PATH(statvfs, STAT, path, NEXT(statvfs_fn, "statvfs")(path, info), const char *path,
        struct statvfs *info)
OF_PATH(statvfs64, STAT, path, NEXT(statvfs_fn, "statvfs")(path, (struct statvfs *)info),
        const char *path, struct statvfs64 *info)
OF_PATH(access, STAT, path, NEXT(access_fn, "access")(path, mode), const char *path, int mode)

#define IN_FOLDER(name, call, next_call, ...)                                                      \
    EXPORT int name(__VA_ARGS__)                                                                   \
    {                                                                                              \
        int error;                                                                                 \
                                                                                                   \
        return fails_at(call, folder, path, &error) ? fail(error) : next_call;                     \
    }

IN_FOLDER(fstatat, STAT, NEXT(fstatat_fn, "fstatat")(folder, path, info, flags), int folder,
          const char *path, struct stat *info, int flags)
IN_FOLDER(fstatat64, STAT, NEXT(fstatat_fn, "fstatat")(folder, path, (struct stat *)info, flags),
          int folder, const char *path, struct stat64 *info, int flags)
IN_FOLDER(faccessat, STAT, NEXT(faccessat_fn, "faccessat")(folder, path, mode, flags), int folder,
          const char *path, int mode, int flags)
IN_FOLDER(mkdirat, MKDIR, NEXT(mkdirat_fn, "mkdirat")(folder, path, mode), int folder,
          const char *path, mode_t mode)
IN_FOLDER(unlinkat, flags &AT_REMOVEDIR ? RMDIR : UNLINK,
          NEXT(unlinkat_fn, "unlinkat")(folder, path, flags), int folder, const char *path,
          int flags)
IN_FOLDER(renameat, RENAME, NEXT(renameat_fn, "renameat")(from_folder, from, folder, path),
          int from_folder, const char *from, int folder, const char *path)
IN_FOLDER(renameat2, RENAME,
          NEXT(renameat2_fn, "renameat2")(from_folder, from, folder, path, flags), int from_folder,
          const char *from, int folder, const char *path, unsigned flags)

/* Calls that return a pointer. */
#define OR_NULL(type, name, is_failing, next_call, ...)                                            \
    EXPORT type *name(__VA_ARGS__)                                                                 \
    {                                                                                              \
        int error;                                                                                 \
                                                                                                   \
        if (!is_failing)                                                                           \
            return next_call;                                                                      \
        fail(error);                                                                               \
        return NULL;                                                                               \
    }

OR_NULL(DIR, opendir, fails_path(LIST, path, &error), NEXT(opendir_fn, "opendir")(path),
        const char *path)
OR_NULL(DIR, fdopendir, fails(LIST, folder, &error), NEXT(fdopendir_fn, "fdopendir")(folder),
        int folder)
OR_NULL(struct dirent, readdir, fails(LIST, dirfd(folder), &error),
        NEXT(readdir_fn, "readdir")(folder), DIR *folder)
OR_NULL(struct dirent64, readdir64, fails(LIST, dirfd(folder), &error),
        (struct dirent64 *)NEXT(readdir_fn, "readdir")(folder), DIR *folder)
OR_NULL(FILE, fopen, fails_path(OPEN, path, &error), NEXT(fopen_fn, "fopen")(path, mode),
        const char *path, const char *mode)
OR_NULL(FILE, fopen64, fails_path(OPEN, path, &error), NEXT(fopen_fn, "fopen")(path, mode),
        const char *path, const char *mode)

/* The mode argument exists only if the flags say so. */
static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

#define OPENER(name, folder, ...)                                                                  \
    EXPORT int name(__VA_ARGS__ const char *path, int flags, ...)                                  \
    {                                                                                              \
        va_list args;                                                                              \
        mode_t mode;                                                                               \
        int error;                                                                                 \
                                                                                                   \
        va_start(args, flags);                                                                     \
        mode = mode_of(flags, args);                                                               \
        va_end(args);                                                                              \
        if (fails_at(OPEN, folder, path, &error))                                                  \
            return fail(error);                                                                    \
        return NEXT(openat_fn, "openat64")(folder, path, flags, mode);                             \
    }

OPENER(open, AT_FDCWD)
OPENER(open64, AT_FDCWD)
OPENER(openat, folder, int folder, )
OPENER(openat64, folder, int folder, )

/* Waits for all that is submitted: a later completion would be taken from the ring before this
 * function sees it. */
EXPORT int io_uring_submit_and_wait(struct io_uring *ring, unsigned count)
{
    const submit_fn submit = NEXT(submit_fn, "io_uring_submit_and_wait");
    const unsigned first = ring->sq.sqe_head;
    const unsigned pending = ring->sq.sqe_tail - first;
    struct failure {
        uint64_t user_data;
        int error;
    } failures[256];
    unsigned failure_count = 0;
    int result;

    for (unsigned i = 0; i < pending && failure_count < 256; i++) {
        const struct io_uring_sqe *const sqe = &ring->sq.sqes[(first + i) & *ring->sq.kring_mask];
        const enum call call = sqe->opcode == IORING_OP_FSYNC ? SYNC : READ;
        int error;

        if (fails(call, sqe->fd, &error))
            failures[failure_count++] = (struct failure){ sqe->user_data, error };
    }
    if (failure_count == 0)
        return submit(ring, count);
    result = submit(ring, pending);
    for (unsigned at = *ring->cq.khead; at != io_uring_smp_load_acquire(ring->cq.ktail); at++) {
        struct io_uring_cqe *const cqe = &ring->cq.cqes[at & *ring->cq.kring_mask];

        for (unsigned i = 0; i < failure_count; i++) {
            if (cqe->user_data != failures[i].user_data)
                continue;
            if (failures[i].error != SHORT)
                cqe->res = -failures[i].error;
            else if (cqe->res > 0)
                cqe->res = (int)half_of((size_t)cqe->res);
        }
    }
    return result;
}
