/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that both engines read, write, accept and close alike. */
#include <errno.h>
#include <liburing.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/transport/rpc/io/io.h"

#define LIMIT_NS (UINT64_C(60) * 1000000000)

struct fixture {
    struct io *io;
    int wake_fd;
    struct io_file file;
    int other; /* the other end of the file's socket */
};

static uint32_t ended, closed;
static int last_result;
static bool has_overflowed; /* the kernel has kept completions for which its queue had no place */

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);

int __wrap_io_uring_submit(struct io_uring *ring)
{
    const int rc = __real_io_uring_submit(ring);

    has_overflowed = has_overflowed || io_uring_cq_has_overflow(ring);
    return rc;
}

static void on_end(struct io_file *file, int result)
{
    (void)file;
    ended++;
    last_result = result;
}

static void on_closed(struct io_file *file)
{
    assert_int_equal(file->fd, -1);
    closed++;
}

static int setup_on(const struct io_engine *engine, void **state)
{
    static struct fixture fixture;
    struct err_msg msg = { { 0 } }, refusal;
    int pair[2];

    ended = closed = 0;
    fixture.wake_fd = eventfd(0, EFD_NONBLOCK);
    assert_true(fixture.wake_fd >= 0);
    if (io_new(engine, fixture.wake_fd, &fixture.io, &refusal, &msg) != EMBTIER_OK)
        fail_msg("%s: %s", engine->name, msg.text);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    io_open(fixture.io, &fixture.file, pair[0]);
    fixture.other = pair[1];
    *state = &fixture;
    return 0;
}

static int setup_uring(void **state)
{
    return setup_on(&io_uring_engine, state);
}

static int setup_epoll(void **state)
{
    return setup_on(&io_epoll_engine, state);
}

/* Runs until so many tasks have ended. */
static void await_ended(struct fixture *f, uint32_t count)
{
    const uint64_t until_ns = clock_now_ns(&clock_monotonic) + LIMIT_NS;

    while (ended < count) {
        assert_true(clock_now_ns(&clock_monotonic) < until_ns);
        io_run(f->io, LIMIT_NS);
    }
}

static void await_closed(struct fixture *f, uint32_t count)
{
    const uint64_t until_ns = clock_now_ns(&clock_monotonic) + LIMIT_NS;

    while (closed < count) {
        assert_true(clock_now_ns(&clock_monotonic) < until_ns);
        io_run(f->io, LIMIT_NS);
    }
}

static int teardown(void **state)
{
    struct fixture *const f = *state;

    if (f->file.fd >= 0) {
        const uint32_t before = closed;

        io_close(f->io, &f->file, on_closed);
        await_closed(f, before + 1);
    }
    io_free(f->io);
    close(f->wake_fd);
    if (f->other >= 0)
        close(f->other);
    return 0;
}

static void test_a_read_waits_for_bytes_and_fills_buffers_in_order(void **state)
{
    struct fixture *const f = *state;
    char first[3] = { 0 }, second[8] = { 0 };
    struct iovec buffers[] = { { first, 3 }, { second, 8 } };

    io_read(f->io, &f->file, buffers, 2, on_end);
    io_run(f->io, 0);
    assert_int_equal(ended, 0);
    assert_int_equal(write(f->other, "abcdef", 6), 6);
    await_ended(f, 1);
    assert_int_equal(last_result, 6);
    assert_memory_equal(first, "abc", 3);
    assert_memory_equal(second, "def", 3);
}

static void test_waiting_for_bytes_takes_none(void **state)
{
    struct fixture *const f = *state;
    char bytes[8] = { 0 };

    io_await(f->io, &f->file, on_end);
    io_run(f->io, 0);
    assert_int_equal(ended, 0);
    assert_int_equal(write(f->other, "abc", 3), 3);
    await_ended(f, 1);
    assert_true(last_result > 0);
    io_await(f->io, &f->file, on_end); /* they are still there */
    await_ended(f, 2);
    assert_true(last_result > 0);
    assert_int_equal(read(f->file.fd, bytes, sizeof(bytes)), 3);
    io_await(f->io, &f->file, on_end);
    io_run(f->io, 0);
    assert_int_equal(ended, 2);
    close(f->other);
    f->other = -1;
    await_ended(f, 3);
}

static void test_waiting_for_bytes_ends_with_the_file(void **state)
{
    struct fixture *const f = *state;

    io_await(f->io, &f->file, on_end);
    io_run(f->io, 0);
    io_close(f->io, &f->file, on_closed);
    await_closed(f, 1);
    assert_int_equal(ended, 1);
    assert_int_equal(last_result, -ECANCELED);
}

static void test_a_task_that_is_done_ends_with_the_next_run(void **state)
{
    struct fixture *const f = *state;

    io_end_soon(f->io, &f->file.read, 7, on_end);
    io_end_soon(f->io, &f->file.write, 9, on_end);
    assert_int_equal(ended, 0);
    io_run(f->io, LIMIT_NS); /* it does not wait for anything else */
    assert_int_equal(ended, 2);
    assert_int_equal(last_result, 9);
    io_end_soon(f->io, &f->file.read, 7, on_end);
    io_close(f->io, &f->file, on_closed);
    await_closed(f, 1);
    assert_int_equal(ended, 3);
    assert_int_equal(last_result, -ECANCELED);
}

static struct io *answering;
static bool is_written, was_written_before;

static void on_written(struct io_file *file, int result)
{
    (void)file;
    assert_int_equal(result, 1);
    is_written = true;
}

static void on_answer(struct io_file *file, int result)
{
    was_written_before = is_written;
    on_end(file, result);
}

/* Writes, and finds the answer at once, as TLS does, which reads by itself. */
static void write_and_read(struct io_file *file, int result)
{
    static char byte = 'x';
    static struct iovec buffer;

    assert_int_equal(result, 1);
    buffer = (struct iovec){ &byte, 1 };
    io_write(answering, file, &buffer, 1, on_written);
    io_end_soon(answering, &file->read, 7, on_answer);
}

static void test_an_answer_comes_after_the_end_of_what_it_answers(void **state)
{
    struct fixture *const f = *state;

    answering = f->io;
    is_written = was_written_before = false;
    assert_int_equal(write(f->other, "x", 1), 1);
    io_await(f->io, &f->file, write_and_read);
    await_ended(f, 1);
    assert_int_equal(last_result, 7);
    assert_true(was_written_before);
}

static void test_the_other_ends_close_is_a_read_of_nothing(void **state)
{
    struct fixture *const f = *state;
    char byte;
    struct iovec buffer = { &byte, 1 };

    io_read(f->io, &f->file, &buffer, 1, on_end);
    close(f->other);
    f->other = -1;
    await_ended(f, 1);
    assert_int_equal(last_result, 0);
}

static void test_a_write_to_nobody_fails_without_a_signal(void **state)
{
    struct fixture *const f = *state;
    char byte = 'x';
    struct iovec buffer = { &byte, 1 };

    close(f->other);
    f->other = -1;
    io_write(f->io, &f->file, &buffer, 1, on_end);
    await_ended(f, 1);
    assert_int_equal(last_result, -EPIPE);
}

/* More than the system takes at once. */
static void test_a_long_write_goes_on_as_the_other_end_reads(void **state)
{
    static char out[4 << 20], in[1 << 16];
    struct fixture *const f = *state;
    size_t sent = 0, got = 0;

    for (size_t i = 0; i < sizeof(out); i++)
        out[i] = (char)(i * 7 + (i >> 12));
    while (got < sizeof(out)) {
        struct iovec buffer = { out + sent, sizeof(out) - sent };
        ssize_t count;

        if (sent < sizeof(out) && !f->file.write.done) {
            ended = 0;
            io_write(f->io, &f->file, &buffer, 1, on_end);
        }
        count = recv(f->other, in, sizeof(in), MSG_DONTWAIT);
        if (count > 0) {
            assert_memory_equal(in, out + got, (size_t)count);
            got += (size_t)count;
        }
        io_run(f->io, 0);
        if (ended == 1) {
            assert_true(last_result > 0);
            sent += (size_t)last_result;
            ended = 0;
        }
    }
    assert_int_equal(sent, sizeof(out));
}

/* A file with more to move waits for its next turn. */
static void test_no_file_moves_more_than_its_turn(void **state)
{
    static char most[IO_BYTES_MAX], more[16];
    struct fixture *const f = *state;
    struct iovec buffers[] = { { most, 16 }, { most + 16, sizeof(most) }, { more, sizeof(more) } };

    io_read(f->io, &f->file, buffers, 3, on_end);
    assert_int_equal(f->file.read.message.msg_iovlen, 2);
    assert_int_equal(buffers[0].iov_len + buffers[1].iov_len, IO_BYTES_MAX);
    assert_int_equal(write(f->other, "abc", 3), 3);
    await_ended(f, 1);
    assert_int_equal(last_result, 3);
    buffers[0] = (struct iovec){ most, sizeof(most) };
    buffers[1] = (struct iovec){ more, sizeof(more) };
    io_write(f->io, &f->file, buffers, 2, on_end);
    assert_int_equal(f->file.write.message.msg_iovlen, 1);
    await_ended(f, 2);
    assert_in_range(last_result, 1, IO_BYTES_MAX);
}

static void test_closing_ends_what_is_under_way(void **state)
{
    struct fixture *const f = *state;
    char byte;
    struct iovec buffer = { &byte, 1 };

    io_read(f->io, &f->file, &buffer, 1, on_end);
    io_run(f->io, 0);
    io_close(f->io, &f->file, on_closed);
    io_close(f->io, &f->file, on_closed); /* does nothing */
    assert_int_equal(closed, 0);
    await_closed(f, 1);
    assert_int_equal(ended, 1);
    assert_int_equal(last_result, -ECANCELED);
    io_run(f->io, 0);
    assert_int_equal(closed, 1);
    assert_int_equal(recv(f->other, &byte, 1, 0), 0);
}

static void test_an_idle_file_closes_too(void **state)
{
    struct fixture *const f = *state;

    io_close(f->io, &f->file, on_closed);
    await_closed(f, 1);
    assert_int_equal(ended, 0);
}

static void test_a_write_to_the_wake_descriptor_ends_a_run(void **state)
{
    struct fixture *const f = *state;
    const uint64_t one = 1;

    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(write(f->wake_fd, &one, sizeof(one)), sizeof(one));
        io_run(f->io, UINT64_MAX);
    }
}

static int listen_on(struct sockaddr_un *name)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    *name = (struct sockaddr_un){ .sun_family = AF_UNIX };
    snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "embtier-test-io-%d", (int)getpid());
    assert_int_equal(bind(fd, (const struct sockaddr *)name, sizeof(*name)), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static void test_connections_are_accepted_one_by_one(void **state)
{
    struct fixture *const f = *state;
    struct io_file listener;
    struct sockaddr_un name;
    int clients[3];

    io_open(f->io, &listener, listen_on(&name));
    for (uint32_t i = 0; i < 3; i++) {
        clients[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        io_accept(f->io, &listener, on_end);
        io_run(f->io, 0);
        assert_int_equal(connect(clients[i], (const struct sockaddr *)&name, sizeof(name)), 0);
        await_ended(f, i + 1);
        assert_true(last_result >= 0);
        close(last_result);
        close(clients[i]);
    }
    io_accept(f->io, &listener, on_end);
    io_run(f->io, 0);
    io_close(f->io, &listener, on_closed);
    await_closed(f, 1);
    assert_int_equal(ended, 4);
    assert_true(last_result < 0);
}

/* ---- More than a queue has room for ---- */

/* Each pair has four tasks. Together they are more than io_uring's queue of completions holds
 * (8,192), even without those that still wait in its queue of submissions (1,024). */
#define PAIRS 2400

struct crowd {
    struct io_file files[2 * PAIRS];
    char bytes[2 * PAIRS][2]; /* that each file reads, and writes */
    struct iovec buffers[2 * PAIRS][2];
};

static void allow_descriptors(rlim_t count)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < count)
        skip();
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static struct crowd *crowd_new(struct fixture *f)
{
    struct crowd *const crowd = calloc(1, sizeof(*crowd));

    assert_non_null(crowd);
    for (uint32_t i = 0; i < 2 * PAIRS; i += 2) {
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        io_open(f->io, &crowd->files[i], pair[0]);
        io_open(f->io, &crowd->files[i + 1], pair[1]);
    }
    for (uint32_t i = 0; i < 2 * PAIRS; i++)
        for (uint32_t j = 0; j < 2; j++)
            crowd->buffers[i][j] = (struct iovec){ &crowd->bytes[i][j], 1 };
    return crowd;
}

static void crowd_free(struct fixture *f, struct crowd *crowd)
{
    const uint32_t before = closed;

    for (uint32_t i = 0; i < 2 * PAIRS; i++)
        io_close(f->io, &crowd->files[i], on_closed);
    await_closed(f, before + 2 * PAIRS);
    free(crowd);
}

static void test_more_tasks_than_a_queue_holds_all_end(void **state)
{
    struct fixture *const f = *state;
    struct crowd *crowd;

    allow_descriptors(2 * PAIRS + 100);
    crowd = crowd_new(f);
    for (uint32_t turn = 1; turn <= 2; turn++) {
        ended = 0;
        for (uint32_t i = 0; i < 2 * PAIRS; i++) {
            crowd->bytes[i][1] = (char)(i + turn);
            io_read(f->io, &crowd->files[i], &crowd->buffers[i][0], 1, on_end);
            io_write(f->io, &crowd->files[i], &crowd->buffers[i][1], 1, on_end);
        }
        await_ended(f, 4 * PAIRS);
        for (uint32_t i = 0; i < 2 * PAIRS; i++)
            assert_int_equal(crowd->bytes[i][0], crowd->bytes[i ^ 1][1]);
    }
    crowd_free(f, crowd);
    assert_int_equal(ended, 4 * PAIRS);
}

/* The bytes have come before the reads begin. So each task ends as it is submitted, and none of the
 * completions is taken before the last task has begun. */
static void test_more_completions_than_a_queue_holds_all_come(void **state)
{
    struct fixture *const f = *state;
    struct crowd *crowd;

    allow_descriptors(2 * PAIRS + 100);
    crowd = crowd_new(f);
    has_overflowed = false;
    for (uint32_t i = 0; i < 2 * PAIRS; i++) {
        crowd->bytes[i][1] = (char)i;
        io_write(f->io, &crowd->files[i], &crowd->buffers[i][1], 1, on_end);
    }
    for (uint32_t i = 0; i < 2 * PAIRS; i++)
        io_read(f->io, &crowd->files[i], &crowd->buffers[i][0], 1, on_end);
    assert_int_equal(ended, 0);
    assert_true(has_overflowed == (f->io->engine == &io_uring_engine));
    await_ended(f, 4 * PAIRS);
    for (uint32_t i = 0; i < 2 * PAIRS; i++)
        assert_int_equal(crowd->bytes[i][0], crowd->bytes[i ^ 1][1]);
    crowd_free(f, crowd);
    assert_int_equal(ended, 4 * PAIRS);
}

/* There may be no place for a cancel. */
static void test_more_files_than_a_queue_holds_all_close(void **state)
{
    struct fixture *const f = *state;
    struct crowd *crowd;

    allow_descriptors(2 * PAIRS + 100);
    crowd = crowd_new(f);
    for (uint32_t i = 0; i < 2 * PAIRS; i++)
        io_read(f->io, &crowd->files[i], &crowd->buffers[i][0], 1, on_end);
    crowd_free(f, crowd);
    assert_int_equal(ended, 2 * PAIRS);
}

/* Nobody reads what has come: that must not keep the thread busy. */
static void test_unread_bytes_wake_nobody(void **state)
{
    struct fixture *const f = *state;
    const uint64_t begin_ns = clock_now_ns(&clock_monotonic);

    assert_int_equal(write(f->other, "x", 1), 1);
    for (uint32_t i = 0; i < 10; i++) /* one of them may end early: the byte has come */
        io_run(f->io, UINT64_C(10000000));
    assert_true(clock_now_ns(&clock_monotonic) - begin_ns >= UINT64_C(50000000));
}

#define ON(test)                                                                                   \
    cmocka_unit_test_setup_teardown(test, setup_uring, teardown),                                  \
        cmocka_unit_test_setup_teardown(test, setup_epoll, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(test_a_read_waits_for_bytes_and_fills_buffers_in_order),
        ON(test_waiting_for_bytes_takes_none),
        ON(test_waiting_for_bytes_ends_with_the_file),
        ON(test_a_task_that_is_done_ends_with_the_next_run),
        ON(test_an_answer_comes_after_the_end_of_what_it_answers),
        ON(test_the_other_ends_close_is_a_read_of_nothing),
        ON(test_a_write_to_nobody_fails_without_a_signal),
        ON(test_a_long_write_goes_on_as_the_other_end_reads),
        ON(test_no_file_moves_more_than_its_turn),
        ON(test_closing_ends_what_is_under_way),
        ON(test_an_idle_file_closes_too),
        ON(test_a_write_to_the_wake_descriptor_ends_a_run),
        ON(test_connections_are_accepted_one_by_one),
        ON(test_more_tasks_than_a_queue_holds_all_end),
        ON(test_more_completions_than_a_queue_holds_all_come),
        ON(test_more_files_than_a_queue_holds_all_close),
        ON(test_unread_bytes_wake_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
