/* SPDX-License-Identifier: Apache-2.0 */
/* kill_at: preloaded into embtierd or embtier. It counts the calls that change the file system, and
 * kills the process before one of them.
 *
 * The test makes the file EMBTIER_FAULT_KILL, which holds the shared struct kill_at. Calls by
 * io_uring (it syncs logs) do not count, nor do writes to a socket or the log. */
#undef _FILE_OFFSET_BITS /* with it, open and open64 are one symbol */

#include <assert.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* Only one side writes each field. */
struct kill_at {
    _Atomic uint64_t armed;  /* if 0, nothing is counted */
    _Atomic uint64_t before; /* the call to kill at, counted from 1; 0: none */
    _Atomic uint64_t count;
};
static_assert(sizeof(struct kill_at) == 24, "the test knows it");
static_assert(sizeof(off_t) == sizeof(off64_t), "a 64-bit machine");

static struct kill_at *shared;

/* Returns the function that the next library defines. */
static void *next(const char *name)
{
    void *const function = dlsym(RTLD_NEXT, name);

    if (!function)
        abort();
    return function;
}

typedef int (*openat_fn)(int, const char *, int, mode_t);

__attribute__((constructor)) static void share(void)
{
    const char *const path = getenv("EMBTIER_FAULT_KILL");
    int fd;

    if (!path)
        abort();
    fd = ((openat_fn)next("openat"))(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        abort();
    close(fd);
}

static void count(void)
{
    if (!shared || atomic_load(&shared->armed) == 0)
        return;
    if (atomic_fetch_add(&shared->count, 1) + 1 == atomic_load(&shared->before)) {
        (void)kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
}

static void count_file(int fd)
{
    struct stat info;

    if (shared && atomic_load(&shared->armed) && fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        count();
}

#define COUNTED(type, name, parameters, arguments, what)                                           \
    __attribute__((visibility("default"))) type name parameters                                    \
    {                                                                                              \
        what;                                                                                      \
        return ((type(*) parameters)next(#name))arguments;                                         \
    }

COUNTED(int, rename, (const char *from, const char *to), (from, to), count())
COUNTED(int, renameat2,
        (int from_folder, const char *from, int to_folder, const char *to, unsigned int flags),
        (from_folder, from, to_folder, to, flags), count())
COUNTED(int, link, (const char *from, const char *to), (from, to), count())
COUNTED(int, unlink, (const char *path), (path), count())
COUNTED(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags), count())
COUNTED(int, mkdir, (const char *path, mode_t mode), (path, mode), count())
COUNTED(int, rmdir, (const char *path), (path), count())
COUNTED(int, fsync, (int fd), (fd), count_file(fd))
COUNTED(int, fdatasync, (int fd), (fd), count_file(fd))
COUNTED(int, ftruncate, (int fd, off_t bytes), (fd, bytes), count_file(fd))
COUNTED(int, ftruncate64, (int fd, off64_t bytes), (fd, bytes), count_file(fd))
COUNTED(int, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes),
        count_file(fd))
COUNTED(int, fallocate64, (int fd, int mode, off64_t at, off64_t bytes), (fd, mode, at, bytes),
        count_file(fd))
COUNTED(ssize_t, write, (int fd, const void *bytes, size_t n), (fd, bytes, n), count_file(fd))
COUNTED(ssize_t, pwrite, (int fd, const void *bytes, size_t n, off_t at), (fd, bytes, n, at),
        count_file(fd))
COUNTED(ssize_t, pwrite64, (int fd, const void *bytes, size_t n, off64_t at), (fd, bytes, n, at),
        count_file(fd))

#define OPEN(name, ...)                                                                            \
    __attribute__((visibility("default"))) int name(__VA_ARGS__ const char *path, int flags, ...)

/* The mode argument exists only if the flags say so. */
#define OPEN_BODY(folder)                                                                          \
    {                                                                                              \
        mode_t mode = 0;                                                                           \
                                                                                                   \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                     \
            va_list args;                                                                          \
                                                                                                   \
            va_start(args, flags);                                                                 \
            mode = va_arg(args, mode_t);                                                           \
            va_end(args);                                                                          \
            count();                                                                               \
        }                                                                                          \
        return ((openat_fn)next("openat64"))(folder, path, flags, mode);                           \
    }

OPEN(open)
OPEN_BODY(AT_FDCWD)

OPEN(open64)
OPEN_BODY(AT_FDCWD)

OPEN(openat, int folder, )
OPEN_BODY(folder)

OPEN(openat64, int folder, )
OPEN_BODY(folder)
