/* SPDX-License-Identifier: Apache-2.0 */
/* held_calls: preloaded into embtierd. It makes the system slow: while the file
 * EMBTIER_FAULT_TRIGGER exists, some calls wait. The file EMBTIER_FAULT_TRIGGER.waits then shows
 * that one does. Three kinds of calls wait: reservations of at least EMBTIER_FAULT_BYTES of shared
 * memory, opens of paths that contain EMBTIER_FAULT_PATH (and end with EMBTIER_FAULT_END, if that
 * is set), and the freeing of at least EMBTIER_FAULT_FREED_BYTES by munmap(). */
#undef _FILE_OFFSET_BITS /* with it, open and open64 are one symbol */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef int (*fallocate_fn)(int, int, off64_t, off64_t);
typedef int (*munmap_fn)(void *, size_t);
typedef int (*openat_fn)(int, const char *, int, mode_t);

/* Returns the function that the next library defines. */
static void *next(const char *name)
{
    void *const function = dlsym(RTLD_NEXT, name);

    if (!function)
        abort();
    return function;
}

static int open_next(int directory, const char *path, int flags, mode_t mode)
{
    return ((openat_fn)next("openat64"))(directory, path, flags, mode);
}

static void wait_for_the_trigger(void)
{
    const char *const trigger = getenv("EMBTIER_FAULT_TRIGGER");
    char path[4096];

    if (!trigger || access(trigger, F_OK) != 0)
        return;
    snprintf(path, sizeof(path), "%s.waits", trigger);
    while (access(trigger, F_OK) == 0) {
        const int fd = open_next(AT_FDCWD, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

        if (fd >= 0)
            close(fd);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000L }, NULL);
    }
    unlink(path);
}

static int held_fallocate(int fd, int mode, off64_t offset, off64_t bytes)
{
    const char *const least = getenv("EMBTIER_FAULT_BYTES");
    char link[64], path[64] = "";

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (least && mode == 0 && bytes >= strtoll(least, NULL, 10) &&
        readlink(link, path, sizeof(path) - 1) > 0 && strncmp(path, "/memfd:", 7) == 0)
        wait_for_the_trigger();
    return ((fallocate_fn)next("fallocate64"))(fd, mode, offset, bytes);
}

static bool ends_with(const char *path, const char *end)
{
    const size_t length = strlen(path);

    return length >= strlen(end) && strcmp(path + length - strlen(end), end) == 0;
}

static int held_open(int directory, const char *path, int flags, mode_t mode)
{
    const char *const part = getenv("EMBTIER_FAULT_PATH"), *const end = getenv("EMBTIER_FAULT_END");

    if (part && strstr(path, part) && (!end || ends_with(path, end)))
        wait_for_the_trigger();
    return open_next(directory, path, flags, mode);
}

EXPORT int munmap(void *address, size_t bytes)
{
    const char *const least = getenv("EMBTIER_FAULT_FREED_BYTES");

    if (least && bytes >= strtoull(least, NULL, 10))
        wait_for_the_trigger();
    return ((munmap_fn)next("munmap"))(address, bytes);
}

EXPORT int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    return held_fallocate(fd, mode, offset, bytes);
}

EXPORT int fallocate64(int fd, int mode, off64_t offset, off64_t bytes)
{
    return held_fallocate(fd, mode, offset, bytes);
}

static mode_t mode_of(int flags, va_list arguments)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                                                                 \
    EXPORT int name(const char *path, int flags, ...)                                              \
    {                                                                                              \
        va_list arguments;                                                                         \
        mode_t mode;                                                                               \
                                                                                                   \
        va_start(arguments, flags);                                                                \
        mode = mode_of(flags, arguments);                                                          \
        va_end(arguments);                                                                         \
        return held_open(AT_FDCWD, path, flags, mode);                                             \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                               \
    EXPORT int name(int directory, const char *path, int flags, ...)                               \
    {                                                                                              \
        va_list arguments;                                                                         \
        mode_t mode;                                                                               \
                                                                                                   \
        va_start(arguments, flags);                                                                \
        mode = mode_of(flags, arguments);                                                          \
        va_end(arguments);                                                                         \
        return held_open(directory, path, flags, mode);                                            \
    }
OPENAT(openat)
OPENAT(openat64)
