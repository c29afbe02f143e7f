/* SPDX-License-Identifier: Apache-2.0 */
/* The engine for systems that refuse io_uring. A task is tried at once, and again with each event
 * of its file. Events are edge-triggered: a file that nobody reads causes none. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/engine/sessions/tsan.h"
#include "daemon/transport/rpc/io/io_impl.h"

#define EVENTS_MAX 256
#define NS_PER_MS  UINT64_C(1000000)

struct io_epoll {
    struct io base;
    int epoll_fd;
    int wake_fd;
    struct io_task *ended; /* a list of those whose function is to be called, oldest first */
    struct io_task **ended_end;
};

static struct io_epoll *epoll_of(struct io *io)
{
    return CONTAINER_OF(io, struct io_epoll, base);
}

static void free_epoll(struct io *io)
{
    struct io_epoll *const e = epoll_of(io);

    closep(&e->epoll_fd);
    free(e);
}

static enum embtier_err make(int wake_fd, struct io **ret_io, struct err_msg *msg)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };
    struct io_epoll *const e = calloc(1, sizeof(*e));
    enum embtier_err err = EMBTIER_OK;

    if (!e)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    e->base.engine = &io_epoll_engine;
    e->ended_end = &e->ended;
    e->wake_fd = wake_fd;
    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (e->epoll_fd < 0 || epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, wake_fd, &event) != 0) {
        err = err_set_errno(msg, errno, "cannot watch descriptors (epoll)");
        free_epoll(&e->base);
        return err;
    }
    *ret_io = &e->base;
    return EMBTIER_OK;
}

static void add(struct io *io, struct io_file *file)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                 .data.ptr = file };
    const int flags = fcntl(file->fd, F_GETFL);

    if (flags < 0 || fcntl(file->fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        epoll_ctl(epoll_of(io)->epoll_fd, EPOLL_CTL_ADD, file->fd, &event) != 0)
        file->refusal = errno;
}

/* Says if there is something to read, or the end of it. */
static ssize_t look(int fd)
{
    char byte;
    const ssize_t got = recv(fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);

    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? -1 : 1;
}

static ssize_t call(struct io_task *task)
{
    const int fd = task->file->fd;
    ssize_t result;

    if (task->kind == IO_ACCEPT)
        return accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    if (task->kind == IO_AWAIT)
        return look(fd);
    TSAN_CLIENT_BEGIN(); /* the buffers may lie in a client's region */
    result = io_task_is_read(task) ? recvmsg(fd, &task->message, MSG_DONTWAIT)
                                   : sendmsg(fd, &task->message, MSG_DONTWAIT | MSG_NOSIGNAL);
    TSAN_CLIENT_END();
    return result;
}

static void list(struct io_epoll *e, struct io_task *task, int result)
{
    task->result = result;
    task->is_listed = true;
    task->next = NULL;
    *e->ended_end = task;
    e->ended_end = &task->next;
}

static void try(struct io_epoll *e, struct io_task *task)
{
    ssize_t result;

    do
        result = call(task);
    while (result < 0 && errno == EINTR);
    if (result >= 0)
        list(e, task, (int)result);
    else if (errno != EAGAIN && errno != EWOULDBLOCK)
        list(e, task, -errno);
}

static void begin(struct io *io, struct io_task *task)
{
    if (task->file->refusal != 0)
        list(epoll_of(io), task, -task->file->refusal);
    else
        try(epoll_of(io), task);
}

static void cancel(struct io *io, struct io_task *task)
{
    if (!task->is_listed)
        list(epoll_of(io), task, -ECANCELED);
}

static bool is_waiting(const struct io_task *task)
{
    return task->done && !task->is_listed && !task->is_soon;
}

static void on_event(struct io_epoll *e, struct io_file *file)
{
    if (is_waiting(&file->read))
        try(e, &file->read);
    if (is_waiting(&file->write))
        try(e, &file->write);
}

/* Those that are listed meanwhile wait for the next turn, so that no file keeps the thread. */
static void end_listed(struct io_epoll *e)
{
    struct io_task *task = TAKE(e->ended);

    e->ended_end = &e->ended;
    while (task) {
        struct io_task *const next = task->next;

        task->is_listed = false;
        io_task_end(task, task->result);
        task = next;
    }
}

static int timeout_ms_of(uint64_t timeout_ns)
{
    if (timeout_ns == UINT64_MAX)
        return -1;
    return (int)MIN(div_round_up(timeout_ns, NS_PER_MS), (uint64_t)INT32_MAX);
}

static void run(struct io *io, uint64_t timeout_ns)
{
    struct io_epoll *const e = epoll_of(io);
    struct epoll_event events[EVENTS_MAX];
    const int count =
        epoll_wait(e->epoll_fd, events, EVENTS_MAX, e->ended ? 0 : timeout_ms_of(timeout_ns));

    for (int i = 0; i < count; i++)
        if (events[i].data.ptr)
            on_event(e, events[i].data.ptr);
    end_listed(e);
}

const struct io_engine io_epoll_engine = {
    .name = "epoll",
    .make = make,
    .free = free_epoll,
    .add = add,
    .begin = begin,
    .cancel = cancel,
    .run = run,
};
