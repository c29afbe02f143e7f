/* SPDX-License-Identifier: Apache-2.0 */
/* fake_io.h: an engine of daemon/transport/rpc/io/ whose files are no sockets. The user gives bytes
 * to reads, takes those of writes, and chooses the size of each piece. So a whole stream runs in
 * one thread, and the same input does the same each time. Each target includes it once. */
#ifndef EMBTIER_TESTS_FUZZ_LIB_FAKE_IO_H
#define EMBTIER_TESTS_FUZZ_LIB_FAKE_IO_H

#include <errno.h>

#include "daemon/transport/rpc/io/io_impl.h"
#include "tests/fuzz/lib/fuzz.h"

#define FAKE_TASKS_MAX 8

/* Returns the task's result, or FAKE_NOT_YET. */
typedef int fake_io_fn(void *context, struct io_task *task);
#define FAKE_NOT_YET INT32_MIN

struct fake_io {
    struct io base;
    fake_io_fn *progress;
    void *context;
    struct io_task *tasks[FAKE_TASKS_MAX]; /* that are under way */
    bool is_cancelled[FAKE_TASKS_MAX];
    uint32_t task_count;
};

static inline struct fake_io *fake_io_of(struct io *io)
{
    return CONTAINER_OF(io, struct fake_io, base);
}

static inline void fake_io_add(struct io *io, struct io_file *file)
{
    (void)io;
    (void)file;
}

/* A read or write of no bytes would look like the end of the connection. */
static inline void fake_io_begin(struct io *io, struct io_task *task)
{
    struct fake_io *const fake = fake_io_of(io);
    size_t room = 0;

    for (size_t i = 0; i < task->message.msg_iovlen; i++)
        room += task->message.msg_iov[i].iov_len;
    FUZZ_CHECK(room > 0);
    FUZZ_CHECK(fake->task_count < FAKE_TASKS_MAX);
    fake->is_cancelled[fake->task_count] = false;
    fake->tasks[fake->task_count++] = task;
}

static inline void fake_io_cancel(struct io *io, struct io_task *task)
{
    struct fake_io *const fake = fake_io_of(io);

    for (uint32_t i = 0; i < fake->task_count; i++)
        fake->is_cancelled[i] |= fake->tasks[i] == task;
}

static inline void fake_io_end(struct fake_io *fake, uint32_t index, int result)
{
    struct io_task *const task = fake->tasks[index];

    fake->task_count--;
    fake->tasks[index] = fake->tasks[fake->task_count];
    fake->is_cancelled[index] = fake->is_cancelled[fake->task_count];
    io_task_end(task, result);
}

/* Tasks that begin meanwhile wait for the next turn. */
static inline void fake_io_run(struct io *io, uint64_t timeout_ns)
{
    struct fake_io *const fake = fake_io_of(io);

    (void)timeout_ns;
    for (uint32_t i = fake->task_count; i-- > 0;) {
        const int result =
            fake->is_cancelled[i] ? -ECANCELED : fake->progress(fake->context, fake->tasks[i]);

        if (result != FAKE_NOT_YET)
            fake_io_end(fake, i, result);
    }
}

static const struct io_engine fake_io_engine = {
    .name = "fake",
    .add = fake_io_add,
    .begin = fake_io_begin,
    .cancel = fake_io_cancel,
    .run = fake_io_run,
};

/* Bytes that a task may still take. */
static inline size_t fake_io_room(const struct io_task *task)
{
    size_t room = 0;

    for (size_t i = 0; i < task->message.msg_iovlen; i++)
        room += task->message.msg_iov[i].iov_len;
    return room;
}

/* Copies @bytes into a read's buffers, which have room for them. */
static inline void fake_io_fill(const struct io_task *task, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; count > 0; i++) {
        const struct iovec *const buffer = &task->message.msg_iov[i];
        const size_t here = MIN(buffer->iov_len, count);

        if (here > 0)
            memcpy(buffer->iov_base, bytes, here);
        bytes += here;
        count -= here;
    }
}

static inline void fake_io_drain(const struct io_task *task, size_t count,
                                 void (*take)(void *context, const uint8_t *bytes, size_t count),
                                 void *context)
{
    for (size_t i = 0; count > 0; i++) {
        const struct iovec *const buffer = &task->message.msg_iov[i];
        const size_t here = MIN(buffer->iov_len, count);

        take(context, buffer->iov_base, here);
        count -= here;
    }
}

#endif
