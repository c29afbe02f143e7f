/* SPDX-License-Identifier: Apache-2.0 */
/* no_direct_io: preloaded into embtierd. It makes every file system look like one without direct
 * I/O: open() with O_DIRECT fails as it does there. */
#undef _FILE_OFFSET_BITS /* with it, open and open64 are one symbol */

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/types.h>

/* The library defines both names of each: libraries built with 64-bit offsets call the second. */
static_assert(sizeof(off_t) == sizeof(off64_t), "a 64-bit machine");

typedef int (*openat_fn)(int, const char *, int, mode_t);

static int open_buffered(int folder, const char *path, int flags, mode_t mode)
{
    void *const function = dlsym(RTLD_NEXT, "openat64");

    if (!function)
        abort();
    if (flags & O_DIRECT) {
        errno = EINVAL;
        return -1;
    }
    return ((openat_fn)function)(folder, path, flags, mode);
}

/* The mode argument exists only if the flags say so. */
static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

#define OPEN(name, ...)                                                                            \
    __attribute__((visibility("default"))) int name(__VA_ARGS__ const char *path, int flags, ...)

#define OPEN_BODY(folder)                                                                          \
    {                                                                                              \
        va_list args;                                                                              \
        mode_t mode;                                                                               \
                                                                                                   \
        va_start(args, flags);                                                                     \
        mode = mode_of(flags, args);                                                               \
        va_end(args);                                                                              \
        return open_buffered(folder, path, flags, mode);                                           \
    }

OPEN(open)
OPEN_BODY(AT_FDCWD)

OPEN(open64)
OPEN_BODY(AT_FDCWD)

OPEN(openat, int folder, )
OPEN_BODY(folder)

OPEN(openat64, int folder, )
OPEN_BODY(folder)
