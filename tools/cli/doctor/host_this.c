/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that this program runs on. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include "tools/cli/doctor/checks.h"

#define RING_ENTRIES 8
#define BLOCK_BYTES  4096

static int room(const char *path, struct statvfs *ret_room)
{
    return statvfs(path, ret_room) == 0 ? 0 : errno;
}

static int may_write(const char *directory)
{
    return faccessat(AT_FDCWD, directory, W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

static int write_block(int fd)
{
    void *block = NULL;
    ssize_t written;
    int errnum;

    if (posix_memalign(&block, BLOCK_BYTES, BLOCK_BYTES) != 0)
        return ENOMEM;
    memset(block, 0, BLOCK_BYTES);
    written = pwrite(fd, block, BLOCK_BYTES, 0);
    errnum = written < 0 ? errno : EIO;
    free(block);
    return written == BLOCK_BYTES ? 0 : errnum;
}

/* A file with a name would stay if this program were killed. A file system that knows no file
 * without one, such as NFS, is EOPNOTSUPP. */
static int try_direct_io(const char *directory)
{
    _cleanup_(closep) int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0)
        return errno;
    if (fcntl(fd, F_SETFL, O_DIRECT) != 0)
        return errno;
    return write_block(fd);
}

/* True if the ring has all that the daemon's transport and store want. */
static bool is_recent(struct io_uring *ring)
{
    static const int wanted[] = { IORING_OP_READ,        IORING_OP_FSYNC,  IORING_OP_RECVMSG,
                                  IORING_OP_SENDMSG,     IORING_OP_ACCEPT, IORING_OP_POLL_ADD,
                                  IORING_OP_ASYNC_CANCEL };
    struct io_uring_probe *const probe = io_uring_get_probe_ring(ring);
    bool has_all =
        probe && (ring->features & IORING_FEAT_EXT_ARG) && (ring->features & IORING_FEAT_NODROP);

    for (size_t i = 0; i < ARRAY_LEN(wanted) && has_all; i++)
        has_all = io_uring_opcode_supported(probe, wanted[i]);
    if (probe)
        io_uring_free_probe(probe);
    return has_all;
}

static int try_ring(void)
{
    struct io_uring ring;
    const int rc = io_uring_queue_init(RING_ENTRIES, &ring, 0);
    bool recent;

    if (rc != 0)
        return -rc;
    recent = is_recent(&ring);
    io_uring_queue_exit(&ring);
    return recent ? 0 : EOPNOTSUPP;
}

static int clock_is_synchronised(bool *ret_is)
{
    struct timex state = { .modes = 0 };

    if (adjtimex(&state) < 0)
        return errno;
    *ret_is = !(state.status & STA_UNSYNC);
    return 0;
}

const struct host host_this = {
    .root = "",
    .look = host_look,
    .room = room,
    .may_write = may_write,
    .try_direct_io = try_direct_io,
    .try_ring = try_ring,
    .clock_is_synchronised = clock_is_synchronised,
};
