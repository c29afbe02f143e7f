/* SPDX-License-Identifier: Apache-2.0 */
/* io_impl.h: the part of io.c that its engines use. */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_IO_IO_IMPL_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_IO_IO_IMPL_H

#include "daemon/transport/rpc/io/io.h"

/* Ends a task with its result. From run() only. */
void io_task_end(struct io_task *task, int result);

static inline bool io_task_is_read(const struct io_task *task)
{
    return task == &task->file->read;
}

#endif
