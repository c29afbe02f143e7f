/* SPDX-License-Identifier: Apache-2.0 */
/* failing_io: preloaded into embtierd, counts its input and output below the folder
 * EMBTIER_FAULT_FOLDER by kind of call and kind of file, and makes one of these sites fail: once,
 * or from then on. What is to fail, and what has been counted, is in the file
 * EMBTIER_FAULT_CONTROL, which the test and the daemon both have mapped
 * (tests/integration/server/failing_io.py).
 *
 * A short read or write does half of what was asked, in sectors where there is more than one. Reads
 * and syncs by io_uring are made to fail when they have been done, in the ring's own memory. Reads
 * by stdio, by which RocksDB takes MANIFEST and logs at the start, are calls of a kind of their
 * own: that is what it does with them, whatever reads them before. */
#undef _FILE_OFFSET_BITS /* with it pread and pread64 are one symbol */

#include <assert.h>
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
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* Both names of each are taken: libraries built with 64-bit offsets call the second. */
static_assert(sizeof(off_t) == sizeof(off64_t), "a 64-bit machine");

#define EXPORT __attribute__((visibility("default")))
#define SECTOR 512

/* In the order of failing_io.py, as the kinds of files. */
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
    CALLS
};
enum kind { LOG, TABLE, MANIFEST, CURRENT, JSON, SEAL, CHECKPOINT, INFO, FOLDER, OTHER, KINDS };

#define SHORT (-1) /* instead of an errno */

struct control {
    _Atomic uint32_t armed;
    uint32_t call;
    uint32_t kind;
    int32_t error;
    uint32_t at; /* which call fails, the first is 1 */
    uint32_t on; /* and all after it */
    _Atomic uint32_t seen;
    _Atomic uint32_t failed;
    _Atomic uint64_t counts[CALLS][KINDS];
};
static_assert(sizeof(struct control) == 32 + 8 * 12 * 10, "read by failing_io.py");

static struct control *control;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* What comes after us in the order of libraries. */
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
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
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

/* Whether a call is to fail, and how. */
static bool fails_path(enum call call, const char *path, int *ret_error)
{
    const char *const folder = getenv("EMBTIER_FAULT_FOLDER");
    enum kind kind;
    uint32_t seen;

    if (!folder || strncmp(path, folder, strlen(folder)) != 0)
        return false;
    pthread_once(&once, map_control);
    kind = kind_of(path);
    atomic_fetch_add(&control->counts[call][kind], 1);
    if (!atomic_load(&control->armed) || control->call != call || control->kind != kind)
        return false;
    seen = atomic_fetch_add(&control->seen, 1) + 1;
    if (seen < control->at || (seen > control->at && !control->on))
        return false;
    atomic_fetch_add(&control->failed, 1);
    *ret_error = control->error;
    return true;
}

static bool fails(enum call call, int fd, int *ret_error)
{
    char link[64];
    char path[4096];
    struct stat info;
    ssize_t bytes;

    if (fd < 0 || fstat(fd, &info) != 0 || (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)))
        return false;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    bytes = readlink(link, path, sizeof(path) - 1);
    if (bytes <= 0)
        return false;
    path[bytes] = '\0';
    return fails_path(call, path, ret_error);
}

/* Also for direct I/O: whole sectors, if it can. */
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

#undef fread_unlocked /* with optimization a macro */

/* Never short: stdio reads on until it has all, or the end. */
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

/* The mode is there when the flags say so. */
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
        if (fails_path(OPEN, path, &error))                                                        \
            return fail(error);                                                                    \
        return NEXT(openat_fn, "openat64")(folder, path, flags, mode);                             \
    }

OPENER(open, AT_FDCWD)
OPENER(open64, AT_FDCWD)
OPENER(openat, folder, int folder, )
OPENER(openat64, folder, int folder, )

/* All that is submitted is waited for: what completes later would be taken from the ring before it
 * is seen here. */
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
