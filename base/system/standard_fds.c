/* SPDX-License-Identifier: Apache-2.0 */
#include "base/system/standard_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int standard_fds_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        /* open() returns the lowest free descriptor, which is this one. Printing to a closed
         * standard output stays an error. Child processes may inherit all three, as they would real
         * ones. */
        if (open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR) != fd)
            return -1;
    }
    return 0;
}

int standard_fds_flush(void)
{
    return fflush(stdout) != 0 || ferror(stdout) ? -1 : 0;
}
