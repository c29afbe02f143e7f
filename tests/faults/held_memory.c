/* SPDX-License-Identifier: Apache-2.0 */
/* held_memory: preloaded into embtierd, makes the system slow to give shared memory: while the file
 * EMBTIER_FAULT_TRIGGER exists, each reservation of EMBTIER_FAULT_BYTES or more waits, and the file
 * EMBTIER_FAULT_TRIGGER.waits says so. */
#undef _FILE_OFFSET_BITS /* with it fallocate and fallocate64 are one symbol */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef int (*fallocate_fn)(int, int, off64_t, off64_t);

static void wait_for_the_trigger(void)
{
    const char *const trigger = getenv("EMBTIER_FAULT_TRIGGER");
    char path[4096];

    if (!trigger)
        return;
    snprintf(path, sizeof(path), "%s.waits", trigger);
    while (access(trigger, F_OK) == 0) {
        close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        nanosleep(&(struct timespec){ .tv_nsec = 1000000L }, NULL);
    }
    unlink(path);
}

static int held_fallocate(int fd, int mode, off64_t offset, off64_t bytes)
{
    const char *const least = getenv("EMBTIER_FAULT_BYTES");
    const fallocate_fn next = (fallocate_fn)dlsym(RTLD_NEXT, "fallocate64");
    char link[64], path[64] = "";

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (least && mode == 0 && bytes >= strtoll(least, NULL, 10) &&
        readlink(link, path, sizeof(path) - 1) > 0 && path[1] == 'm') /* /memfd: */
        wait_for_the_trigger();
    return next ? next(fd, mode, offset, bytes) : -1;
}

EXPORT int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    return held_fallocate(fd, mode, offset, bytes);
}

EXPORT int fallocate64(int fd, int mode, off64_t offset, off64_t bytes)
{
    return held_fallocate(fd, mode, offset, bytes);
}
