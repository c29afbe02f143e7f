/* SPDX-License-Identifier: Apache-2.0 */
/* sync_counter.h: counts how often this program puts the data of a write-ahead log on disk, in
 * place of the system's fdatasync(). It does not see syncs by io_uring. Each test program includes
 * it once. */
#ifndef EMBTIER_TESTS_UNIT_STORE_SYNC_COUNTER_H
#define EMBTIER_TESTS_UNIT_STORE_SYNC_COUNTER_H

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic unsigned log_syncs;

__attribute__((visibility("default"))) int fdatasync(int fd)
{
    char link[64], name[512];
    ssize_t length;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, name, sizeof(name));
    if (length > 4 && memcmp(name + length - 4, ".log", 4) == 0)
        atomic_fetch_add(&log_syncs, 1);
    return (int)syscall(SYS_fdatasync, fd);
}

#endif
