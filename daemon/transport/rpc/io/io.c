/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/rpc/io/io.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>

#include "daemon/transport/rpc/io/io_impl.h"

enum embtier_err io_new(const struct io_engine *engine, int wake_fd, struct io **ret_io,
                        struct err_msg *ret_refusal, struct err_msg *msg)
{
    enum embtier_err err;

    ret_refusal->text[0] = '\0';
    if (engine) {
        err = engine->make(wake_fd, ret_io, msg);
    } else {
        err = io_uring_engine.make(wake_fd, ret_io, ret_refusal);
        if (err != EMBTIER_OK)
            err = io_epoll_engine.make(wake_fd, ret_io, msg);
    }
    if (err == EMBTIER_OK)
        (*ret_io)->soon_end = &(*ret_io)->soon;
    return err;
}

void io_free(struct io *io)
{
    if (!io)
        return;
    assert(!io->closing && !io->soon);
    io->engine->free(io);
}

void io_open(struct io *io, struct io_file *file, int fd)
{
    *file = (struct io_file){ .fd = fd, .read = { .file = file }, .write = { .file = file } };
    io->engine->add(io, file);
}

/* ---- Tasks ---- */

/* Shortens the buffers to what one task may move. Returns how many are left. */
static uint32_t cut(struct iovec *buffers, uint32_t count)
{
    size_t left = IO_BYTES_MAX;

    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i].iov_len >= left) {
            buffers[i].iov_len = left;
            return i + 1;
        }
        left -= buffers[i].iov_len;
    }
    return count;
}

static void begin(struct io *io, struct io_task *task, enum io_kind kind, struct iovec *buffers,
                  uint32_t count, io_done_fn *done)
{
    assert(!task->done && !task->file->is_closing && count <= IO_BUFFERS_MAX);
    task->message = (struct msghdr){ .msg_iov = buffers, .msg_iovlen = cut(buffers, count) };
    task->kind = kind;
    task->done = done;
    io->engine->begin(io, task);
}

void io_read(struct io *io, struct io_file *file, struct iovec *buffers, uint32_t count,
             io_done_fn *done)
{
    begin(io, &file->read, IO_MOVE, buffers, count, done);
}

void io_write(struct io *io, struct io_file *file, struct iovec *buffers, uint32_t count,
              io_done_fn *done)
{
    begin(io, &file->write, IO_MOVE, buffers, count, done);
}

void io_accept(struct io *io, struct io_file *file, io_done_fn *done)
{
    begin(io, &file->read, IO_ACCEPT, NULL, 0, done);
}

void io_await(struct io *io, struct io_file *file, io_done_fn *done)
{
    begin(io, &file->read, IO_AWAIT, NULL, 0, done);
}

static void add_soon(struct io *io, struct io_task *task, bool is_new)
{
    task->is_new = is_new;
    task->next = NULL;
    *io->soon_end = task;
    io->soon_end = &task->next;
}

void io_end_soon(struct io *io, struct io_task *task, int result, io_done_fn *done)
{
    assert(!task->done && !task->file->is_closing);
    task->done = done;
    task->result = result;
    task->is_soon = true;
    add_soon(io, task, true);
}

/* The system may have made the file's write already, although its end is not told before the next
 * turn; and the bytes of this read may be the other side's answer to it. */
static bool may_answer_write(const struct io_task *task)
{
    const struct io_task *const write = &task->file->write;

    return task->is_new && io_task_is_read(task) && write->done && !write->is_soon;
}

/* Those that are added meanwhile wait for the next turn. */
static void end_soon(struct io *io)
{
    struct io_task *task = TAKE(io->soon);

    io->soon_end = &io->soon;
    while (task) {
        struct io_task *const next = task->next;

        if (may_answer_write(task)) {
            add_soon(io, task, false);
        } else {
            task->is_soon = false;
            io_task_end(task, task->result);
        }
        task = next;
    }
}

void io_task_end(struct io_task *task, int result)
{
    const bool is_lost = task->file->is_closing && task->kind != IO_ACCEPT;
    io_done_fn *const done = TAKE(task->done);

    done(task->file, is_lost ? -ECANCELED : result);
}

/* ---- The end of a file ---- */

void io_close(struct io *io, struct io_file *file, void (*closed)(struct io_file *file))
{
    if (file->is_closing)
        return;
    file->is_closing = true;
    file->closed = closed;
    file->next_closing = io->closing;
    io->closing = file;
    (void)shutdown(file->fd, SHUT_RDWR);
    if (file->read.done && !file->read.is_soon)
        io->engine->cancel(io, &file->read);
    if (file->write.done && !file->write.is_soon)
        io->engine->cancel(io, &file->write);
}

static void end_closed(struct io *io)
{
    struct io_file *file = TAKE(io->closing);

    while (file) {
        struct io_file *const next = file->next_closing;

        if (file->read.done || file->write.done) {
            file->next_closing = io->closing;
            io->closing = file;
        } else {
            closep(&file->fd);
            file->fd = -1;
            file->closed(file);
        }
        file = next;
    }
}

static bool is_any_ended(const struct io *io)
{
    for (const struct io_file *file = io->closing; file; file = file->next_closing)
        if (!file->read.done && !file->write.done)
            return true;
    return false;
}

void io_run(struct io *io, uint64_t timeout_ns)
{
    io->engine->run(io, io->soon || is_any_ended(io) ? 0 : timeout_ns);
    end_soon(io);
    end_closed(io);
}
