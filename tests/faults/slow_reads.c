/* SPDX-License-Identifier: Apache-2.0 */
/* slow_reads: preloaded into embtierd. It makes SSD slow: while the file EMBTIER_FAULT_TRIGGER
 * exists, every read of an SST file takes EMBTIER_FAULT_READ_MS longer. With EMBTIER_FAULT_THREAD,
 * only reads by threads of that name do.
 *
 * It slows read, pread, preadv and io_uring's submissions, which read only table files. If RocksDB
 * ever read its tables by other calls, the tests would notice: a read that they slow down would be
 * fast. */
#undef _FILE_OFFSET_BITS /* with it, pread and pread64 are one symbol */

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static bool is_sst(int fd)
{
    char link[64];
    char path[4096];
    ssize_t bytes;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    bytes = readlink(link, path, sizeof(path));
    return bytes > 4 && memcmp(path + bytes - 4, ".sst", 4) == 0;
}

static bool is_named_thread(void)
{
    const char *const wanted = getenv("EMBTIER_FAULT_THREAD");
    char name[16];

    return !wanted || (pthread_getname_np(pthread_self(), name, sizeof(name)) == 0 &&
                       strcmp(name, wanted) == 0);
}

static void delay_any(void)
{
    const char *const trigger = getenv("EMBTIER_FAULT_TRIGGER");
    const char *const delay_ms = getenv("EMBTIER_FAULT_READ_MS");
    long ms;

    if (!trigger || !delay_ms || access(trigger, F_OK) != 0 || !is_named_thread())
        return;
    ms = strtol(delay_ms, NULL, 10);
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

static void delay(int fd)
{
    if (is_sst(fd))
        delay_any();
}

/* Returns the function that the next library defines. */
static void *next(const char *name)
{
    void *const function = dlsym(RTLD_NEXT, name);

    if (!function)
        abort();
    return function;
}

typedef ssize_t (*read_fn)(int, void *, size_t);
typedef ssize_t (*pread_fn)(int, void *, size_t, off_t);
typedef ssize_t (*preadv_fn)(int, const struct iovec *, int, off_t);
struct io_uring;
typedef int (*submit_fn)(struct io_uring *, unsigned);

/* Both names of each: libraries built with 64-bit offsets call the second. */
static_assert(sizeof(off_t) == sizeof(off64_t), "a 64-bit machine");

#define SLOW __attribute__((visibility("default"))) ssize_t

SLOW read(int fd, void *buffer, size_t bytes)
{
    delay(fd);
    return ((read_fn)next("read"))(fd, buffer, bytes);
}

SLOW pread(int fd, void *buffer, size_t bytes, off_t at)
{
    delay(fd);
    return ((pread_fn)next("pread"))(fd, buffer, bytes, at);
}

SLOW pread64(int fd, void *buffer, size_t bytes, off64_t at)
{
    delay(fd);
    return ((pread_fn)next("pread64"))(fd, buffer, bytes, at);
}

SLOW preadv(int fd, const struct iovec *parts, int count, off_t at)
{
    delay(fd);
    return ((preadv_fn)next("preadv"))(fd, parts, count, at);
}

SLOW preadv64(int fd, const struct iovec *parts, int count, off64_t at)
{
    delay(fd);
    return ((preadv_fn)next("preadv64"))(fd, parts, count, at);
}

__attribute__((visibility("default"))) int io_uring_submit_and_wait(struct io_uring *ring,
                                                                    unsigned count);

int io_uring_submit_and_wait(struct io_uring *ring, unsigned count)
{
    delay_any();
    return ((submit_fn)next("io_uring_submit_and_wait"))(ring, count);
}
