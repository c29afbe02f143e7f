/* SPDX-License-Identifier: Apache-2.0 */
/* io.h: reads, writes and accepts of one thread, which waits for all of them together and for none
 * alone. On io_uring, or, where the system refuses that, with epoll; both behave alike.
 *
 * A file has at most one read and one write under way. Each ends with one call of the function that
 * it was begun with, always from io_run(), never from the function that begins it. So that function
 * may begin the next one.
 *
 * Thread: the one that made the struct io. */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_IO_IO_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_IO_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/err.h"

/* Buffers of one read or write. */
#define IO_BUFFERS_MAX 64
/* Bytes of one read or write. A file with more to move has its next turn when the others have had
 * theirs. */
#define IO_BYTES_MAX (UINT32_C(256) << 10)

struct io;
struct io_file;

/* Bytes read or written, or a descriptor; an error is its negative number. 0: a read found the end.
 * ECANCELED: the file was being closed. */
typedef void io_done_fn(struct io_file *file, int result);

enum io_kind {
    IO_MOVE, /* a read or a write, after the task's place in its file */
    IO_ACCEPT,
    IO_AWAIT, /* nothing is read: it ends when something could be */
};

struct io_task {
    struct io_file *file;
    io_done_fn *done; /* NULL: it is not under way */
    struct msghdr message;
    enum io_kind kind;
    bool is_soon; /* it waits for io_run() alone */
    bool is_new;  /* then: since the last one */

    /* The engine's, or of the list of those that are soon. */
    struct io_task *next;
    bool is_listed;
    int result;
};

/* A socket. The user embeds it, and keeps it until its closed(). */
struct io_file {
    int fd; /* -1: closed */
    struct io_task read, write;
    int refusal; /* the engine's: an error number for all that is begun, or 0 */
    bool is_closing;
    struct io_file *next_closing;
    void (*closed)(struct io_file *file);
};

struct io_engine {
    const char *name; /* for the log */
    enum embtier_err (*make)(int wake_fd, struct io **ret_io, struct err_msg *msg);
    void (*free)(struct io *io);
    void (*add)(struct io *io, struct io_file *file);
    void (*begin)(struct io *io, struct io_task *task);
    void (*cancel)(struct io *io, struct io_task *task);
    void (*run)(struct io *io, uint64_t timeout_ns);
};

/* The head of an engine's own struct. */
struct io {
    const struct io_engine *engine;
    struct io_file *closing; /* a list */
    struct io_task *soon;    /* tasks that end with the next io_run(), oldest first */
    struct io_task **soon_end;
};

extern const struct io_engine io_uring_engine, io_epoll_engine;

/* Makes one on @engine; NULL: on io_uring if the system has it, else on epoll, and @ret_refusal
 * says why. Otherwise that is empty. @wake_fd is an event descriptor, which is borrowed. */
MUST_CHECK enum embtier_err io_new(const struct io_engine *engine, int wake_fd, struct io **ret_io,
                                   struct err_msg *ret_refusal, struct err_msg *msg);
/* No file is open. */
void io_free(struct io *io);
DEFINE_CLEANUP(struct io, io_free)

/* Takes over @fd, a socket. If the system has no room for it, the first read or write says so. */
void io_open(struct io *io, struct io_file *file, int fd);
/* Ends what is under way, then closes the descriptor and calls @closed, from io_run(). A second
 * call does nothing. */
void io_close(struct io *io, struct io_file *file, void (*closed)(struct io_file *file));

/* Reads what has come, at most IO_BYTES_MAX. @buffers, and the bytes they name, are used until
 * @done is called; a long one is shortened. */
void io_read(struct io *io, struct io_file *file, struct iovec *buffers, uint32_t count,
             io_done_fn *done);
/* Likewise. May write less than all. */
void io_write(struct io *io, struct io_file *file, struct iovec *buffers, uint32_t count,
              io_done_fn *done);
/* Ends when there is something to read, or the end of it. Takes the place of a read. */
void io_await(struct io *io, struct io_file *file, io_done_fn *done);
/* Ends with @result at the next io_run(): for a user that has done the task, @read or @write of its
 * file, by itself. A read waits a turn for a write that the other side may have answered by it. */
void io_end_soon(struct io *io, struct io_task *task, int result, io_done_fn *done);
/* Accepts one connection; the result is its descriptor, closed at exec(). */
void io_accept(struct io *io, struct io_file *file, io_done_fn *done);

/* Deals with what has ended. Waits for that, for a write to the wake descriptor since the last
 * call, or for @timeout_ns; UINT64_MAX: no limit. 0: does not wait. */
void io_run(struct io *io, uint64_t timeout_ns);

#endif
