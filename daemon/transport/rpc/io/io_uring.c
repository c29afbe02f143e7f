/* SPDX-License-Identifier: Apache-2.0 */
/* The engine on io_uring, with what Linux 5.15 has. Newer flags are asked for first. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/transport/rpc/io/io_impl.h"

#define ENTRIES    1024
#define CQ_ENTRIES 8192
#define NS_PER_S   UINT64_C(1000000000)
#define SOON_NS    UINT64_C(1000000)

#ifndef IORING_SETUP_SINGLE_ISSUER /* Linux 6.0 */
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN /* Linux 6.1 */
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

struct io_ring {
    struct io base;
    struct io_uring ring;
    int wake_fd;
    bool is_wake_watched;    /* a poll of wake_fd is under way */
    struct io_task *waiting; /* for a place in the queue, oldest first */
    struct io_task **waiting_end;
};

static struct io_ring *ring_of(struct io *io)
{
    return CONTAINER_OF(io, struct io_ring, base);
}

/* Opens the ring with as many of the newer flags as the kernel knows. Returns 0 or a negative error
 * number. */
static int open_ring(struct io_uring *ring, struct io_uring_params *ret_params)
{
    static const unsigned flags[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, /* 6.1: completions wait for us */
        IORING_SETUP_COOP_TASKRUN,                               /* 5.19: no interrupts */
        0,
    };
    int rc = -EINVAL;

    for (uint32_t i = 0; i < ARRAY_LEN(flags) && rc == -EINVAL; i++) {
        *ret_params = (struct io_uring_params){ .flags = flags[i] | IORING_SETUP_CQSIZE,
                                                .cq_entries = CQ_ENTRIES };
        rc = io_uring_queue_init_params(ENTRIES, ring, ret_params);
    }
    return rc;
}

static bool has_operations(struct io_uring *ring)
{
    static const int wanted[] = { IORING_OP_RECVMSG, IORING_OP_SENDMSG, IORING_OP_ACCEPT,
                                  IORING_OP_POLL_ADD, IORING_OP_ASYNC_CANCEL };
    struct io_uring_probe *const probe = io_uring_get_probe_ring(ring);
    bool has_all = probe != NULL;

    for (uint32_t i = 0; i < ARRAY_LEN(wanted) && has_all; i++)
        has_all = io_uring_opcode_supported(probe, wanted[i]);
    if (probe)
        io_uring_free_probe(probe);
    return has_all;
}

static void free_ring(struct io *io)
{
    struct io_ring *const r = ring_of(io);

    io_uring_queue_exit(&r->ring);
    free(r);
}

static enum embtier_err make(int wake_fd, struct io **ret_io, struct err_msg *msg)
{
    struct io_ring *const r = calloc(1, sizeof(*r));
    struct io_uring_params params;
    int rc;

    if (!r)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    rc = open_ring(&r->ring, &params);
    if (rc != 0) {
        free(r);
        return err_set_errno(
            msg, -rc, "io_uring_setup%s",
            rc == -EPERM    ? " (a container's filter or kernel.io_uring_disabled forbids it)"
            : rc == -ENOSYS ? " (the kernel has none, or a container's filter hides it)"
                            : "");
    }
    r->base.engine = &io_uring_engine;
    r->wake_fd = wake_fd;
    r->waiting_end = &r->waiting;
    if (!(params.features & IORING_FEAT_EXT_ARG) || !(params.features & IORING_FEAT_NODROP) ||
        !has_operations(&r->ring)) {
        free_ring(&r->base);
        return err_set(msg, EMBTIER_UNSUPPORTED, "the kernel's io_uring is older than Linux 5.15");
    }
    *ret_io = &r->base;
    return EMBTIER_OK;
}

/* A socket that never blocks would make the ring return EAGAIN instead of waiting. */
static void add(struct io *io, struct io_file *file)
{
    const int flags = fcntl(file->fd, F_GETFL);

    (void)io;
    if (flags >= 0)
        (void)fcntl(file->fd, F_SETFL, flags & ~O_NONBLOCK);
}

/* Returns a place in the queue of submissions. NULL: it is full, and the kernel takes none before
 * completions have been read. */
static struct io_uring_sqe *next_sqe(struct io_ring *r)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

    if (!sqe && io_uring_submit(&r->ring) > 0)
        sqe = io_uring_get_sqe(&r->ring);
    return sqe;
}

static void put_off(struct io_ring *r, struct io_task *task)
{
    task->next = NULL;
    *r->waiting_end = task;
    r->waiting_end = &task->next;
}

static void begin(struct io *io, struct io_task *task)
{
    struct io_ring *const r = ring_of(io);
    struct io_uring_sqe *const sqe = r->waiting ? NULL : next_sqe(r);
    const int fd = task->file->fd;

    if (!sqe) {
        put_off(r, task);
        return;
    }
    if (task->kind == IO_ACCEPT)
        io_uring_prep_accept(sqe, fd, NULL, NULL, SOCK_CLOEXEC);
    else if (task->kind == IO_AWAIT)
        io_uring_prep_poll_add(sqe, fd, POLLIN | POLLRDHUP);
    else if (io_task_is_read(task))
        io_uring_prep_recvmsg(sqe, fd, &task->message, 0);
    else
        io_uring_prep_sendmsg(sqe, fd, &task->message, MSG_NOSIGNAL);
    io_uring_sqe_set_data(sqe, task);
}

/* Begins tasks that found no place before. */
static void begin_waiting(struct io_ring *r)
{
    struct io_task *task = TAKE(r->waiting);

    r->waiting_end = &r->waiting;
    while (task) {
        struct io_task *const next = task->next;

        begin(&r->base, task);
        task = next;
    }
}

/* Without a place for it, the task ends all the same: its socket was shut down. */
static void cancel(struct io *io, struct io_task *task)
{
    struct io_uring_sqe *const sqe = next_sqe(ring_of(io));

    if (!sqe)
        return;
    io_uring_prep_cancel(sqe, task, 0);
    io_uring_sqe_set_data(sqe, NULL);
}

static void watch_wakes(struct io_ring *r)
{
    struct io_uring_sqe *const sqe = r->is_wake_watched ? NULL : next_sqe(r);

    if (!sqe)
        return;
    io_uring_prep_poll_add(sqe, r->wake_fd, POLLIN);
    io_uring_sqe_set_data(sqe, r);
    r->is_wake_watched = true;
}

static void on_wake(struct io_ring *r)
{
    uint64_t count;

    (void)!read(r->wake_fd, &count, sizeof(count)); /* it never blocks */
    r->is_wake_watched = false;
}

static void on_completion(struct io_ring *r, void *data, int result)
{
    struct io_task *const task = data;

    if (!data) /* a cancel */
        return;
    if (data == r)
        on_wake(r);
    else if (result == -EINTR || result == -EAGAIN)
        begin(&r->base, task);
    else
        io_task_end(task, result);
}

/* Tasks that wait for a place, and a wake that is not watched, are looked at again soon. */
static void wait_for_any(struct io_ring *r, uint64_t timeout_ns)
{
    const bool is_short = r->waiting || !r->is_wake_watched;
    const uint64_t most_ns = is_short ? MIN(timeout_ns, SOON_NS) : timeout_ns;
    struct __kernel_timespec timeout = { .tv_sec = (int64_t)(most_ns / NS_PER_S),
                                         .tv_nsec = (int64_t)(most_ns % NS_PER_S) };
    struct io_uring_cqe *cqe;

    if (most_ns == 0) /* a timeout of 0 would set a timer, and have its interrupt */
        (void)io_uring_submit_and_get_events(&r->ring);
    else
        (void)io_uring_submit_and_wait_timeout(&r->ring, &cqe, 1,
                                               most_ns == UINT64_MAX ? NULL : &timeout, NULL);
}

static void run(struct io *io, uint64_t timeout_ns)
{
    struct io_ring *const r = ring_of(io);
    struct io_uring_cqe *cqe;
    unsigned left;

    begin_waiting(r);
    watch_wakes(r);
    wait_for_any(r, timeout_ns);
    /* Those that end meanwhile wait for the next turn. */
    left = io_uring_cq_ready(&r->ring);
    while (left-- > 0 && io_uring_peek_cqe(&r->ring, &cqe) == 0) {
        void *const data = io_uring_cqe_get_data(cqe);
        const int result = cqe->res;

        io_uring_cqe_seen(&r->ring, cqe);
        on_completion(r, data, result);
    }
}

const struct io_engine io_uring_engine = {
    .name = "io_uring",
    .make = make,
    .free = free_ring,
    .add = add,
    .begin = begin,
    .cancel = cancel,
    .run = run,
};
