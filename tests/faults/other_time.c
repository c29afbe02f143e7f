/* SPDX-License-Identifier: Apache-2.0 */
/* other_time: preloaded into embtierd. It puts the system's clock forward or back, as NTP, a
 * resumed virtual machine or an empty battery does. The monotonic clock stays.
 *
 * EMBTIER_FAULT_SECONDS is added to the system's clock. If EMBTIER_FAULT_CONTROL names a file, each
 * call reads its first line and adds that instead. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int (*gettime_function)(clockid_t, struct timespec *);

static long added_seconds(void)
{
    const char *const path = getenv("EMBTIER_FAULT_CONTROL");
    const char *text = getenv("EMBTIER_FAULT_SECONDS");
    char line[32] = "";
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        if (read(fd, line, sizeof(line) - 1) > 0)
            text = line;
        close(fd);
    }
    return text ? strtol(text, NULL, 10) : 0;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    const gettime_function next = (gettime_function)dlsym(RTLD_NEXT, "clock_gettime");
    const int rc = next(clock, now);

    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += added_seconds();
    return rc;
}

__attribute__((visibility("default"))) time_t time(time_t *ret_now)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (ret_now)
        *ret_now = now.tv_sec;
    return now.tv_sec;
}
