/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the choice between engines. The system of a test has the rings that the test says, on
 * any kernel. Where it refuses them, epoll is taken, and the refusal says why. */
#include <errno.h>
#include <liburing.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/transport/rpc/io/io.h"

#define LIMIT_NS (UINT64_C(60) * 1000000000)
#define DEFERRED (IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN)

static struct {
    int refusal;               /* of each ring: a negative error number, or 0 */
    unsigned unknown_flags;    /* a ring that has one of them is invalid */
    unsigned missing_features; /* flags of io_uring_params */
    int missing_operation;     /* or -1 */
    bool has_no_probe;
    unsigned asked[8]; /* the flags of the rings that were asked for */
    uint32_t asked_count;
} os;

int __real_io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                      struct io_uring_params *params);
int __wrap_io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                      struct io_uring_params *params);
struct io_uring_probe *__real_io_uring_get_probe_ring(struct io_uring *ring);
struct io_uring_probe *__wrap_io_uring_get_probe_ring(struct io_uring *ring);

/* The real ring has no flag that Linux 5.15 lacks. */
int __wrap_io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                      struct io_uring_params *params)
{
    int rc;

    assert_true(os.asked_count < ARRAY_LEN(os.asked));
    os.asked[os.asked_count++] = params->flags & ~IORING_SETUP_CQSIZE;
    if (os.refusal != 0)
        return os.refusal;
    if (params->flags & os.unknown_flags)
        return -EINVAL;
    params->flags &= IORING_SETUP_CQSIZE;
    rc = __real_io_uring_queue_init_params(entries, ring, params);
    params->features &= ~os.missing_features;
    return rc;
}

struct io_uring_probe *__wrap_io_uring_get_probe_ring(struct io_uring *ring)
{
    struct io_uring_probe *const probe =
        os.has_no_probe ? NULL : __real_io_uring_get_probe_ring(ring);

    if (probe && os.missing_operation >= 0)
        probe->ops[os.missing_operation].flags &= (uint16_t)~IO_URING_OP_SUPPORTED;
    return probe;
}

/* ---- The engine that a system leads to ---- */

static int wake_fd;
static int last_result;

static int setup(void **state)
{
    (void)state;
    memset(&os, 0, sizeof(os));
    os.missing_operation = -1;
    wake_fd = eventfd(0, EFD_NONBLOCK);
    return wake_fd < 0;
}

static int teardown(void **state)
{
    (void)state;
    return close(wake_fd);
}

/* A descriptor that was left open would be in its place. */
static int next_descriptor(void)
{
    const int fd = dup(wake_fd);

    assert_true(fd >= 0);
    close(fd);
    return fd;
}

static void on_end(struct io_file *file, int result)
{
    (void)file;
    last_result = result;
}

static void on_closed(struct io_file *file)
{
    (void)file;
    last_result = 0;
}

static void await_result(struct io *io, int result)
{
    const uint64_t until_ns = clock_now_ns(&clock_monotonic) + LIMIT_NS;

    while (last_result != result) {
        assert_true(clock_now_ns(&clock_monotonic) < until_ns);
        io_run(io, LIMIT_NS);
    }
}

static void must_serve(struct io *io)
{
    char bytes[4] = { 0 };
    struct iovec buffer = { bytes, sizeof(bytes) };
    struct io_file file;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    io_open(io, &file, pair[0]);
    io_read(io, &file, &buffer, 1, on_end);
    assert_int_equal(write(pair[1], "abc", 3), 3);
    await_result(io, 3);
    assert_string_equal(bytes, "abc");
    io_close(io, &file, on_closed);
    await_result(io, 0);
    close(pair[1]);
}

static void must_take_io_uring(void)
{
    struct err_msg refusal = { "unset" }, msg = { { 0 } };
    struct io *io = NULL;

    os.asked_count = 0;
    if (io_new(NULL, wake_fd, &io, &refusal, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    assert_string_equal(refusal.text, "");
    assert_ptr_equal(io->engine, &io_uring_engine);
    must_serve(io);
    io_free(io);
}

/* epoll serves instead. A user that wants io_uring alone has an error. Both say why, and nothing of
 * a ring is left. */
static void must_take_epoll(const char *why)
{
    const int before = next_descriptor();
    struct err_msg refusal = { { 0 } }, msg = { { 0 } };
    struct io *io = NULL;

    os.asked_count = 0;
    assert_int_not_equal(io_new(&io_uring_engine, wake_fd, &io, &refusal, &msg), EMBTIER_OK);
    assert_null(io);
    assert_string_equal(refusal.text, "");
    if (!strstr(msg.text, why))
        fail_msg("'%s' lacks '%s'", msg.text, why);
    assert_int_equal(next_descriptor(), before);

    os.asked_count = 0;
    assert_int_equal(io_new(NULL, wake_fd, &io, &refusal, &msg), EMBTIER_OK);
    assert_string_equal(refusal.text, msg.text);
    assert_ptr_equal(io->engine, &io_epoll_engine);
    must_serve(io);
    io_free(io);
    assert_int_equal(next_descriptor(), before);
}

static void must_have_asked(uint32_t count, const unsigned *flags)
{
    assert_int_equal(os.asked_count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(os.asked[i], flags[i]);
}

/* ---- Tests ---- */

/* Other flags would not help. */
static void test_a_refusal_says_what_may_have_forbidden_io_uring(void **state)
{
    static const struct {
        int refusal;
        const char *why;
    } rows[] = {
        { -EPERM, "io_uring_setup (a container's filter or kernel.io_uring_disabled forbids it)" },
        { -ENOSYS, "io_uring_setup (the kernel has none, or a container's filter hides it)" },
        { -ENOMEM, "io_uring_setup: " },
    };

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(rows); i++) {
        os.refusal = rows[i].refusal;
        must_take_epoll(rows[i].why);
        must_take_epoll(strerror(-rows[i].refusal));
        assert_int_equal(os.asked_count, 1);
    }
}

static void test_flags_that_the_kernel_lacks_are_left_out(void **state)
{
    static const unsigned asked[] = { DEFERRED, IORING_SETUP_COOP_TASKRUN, 0 };

    (void)state;
    must_take_io_uring();
    must_have_asked(1, asked);
    os.unknown_flags |= IORING_SETUP_DEFER_TASKRUN;
    must_take_io_uring();
    must_have_asked(2, asked);
    os.unknown_flags |= IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN;
    must_take_io_uring();
    must_have_asked(3, asked);
    os.unknown_flags |= IORING_SETUP_CQSIZE;
    must_take_epoll(strerror(EINVAL));
    must_have_asked(3, asked);
}

static void test_a_kernel_that_lacks_a_feature_is_too_old(void **state)
{
    static const unsigned features[] = { IORING_FEAT_EXT_ARG, IORING_FEAT_NODROP };

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(features); i++) {
        os.missing_features = features[i];
        must_take_epoll("older than Linux 5.15");
    }
}

static void test_a_kernel_that_lacks_an_operation_is_too_old(void **state)
{
    static const int operations[] = { IORING_OP_RECVMSG, IORING_OP_SENDMSG, IORING_OP_ACCEPT,
                                      IORING_OP_POLL_ADD, IORING_OP_ASYNC_CANCEL };

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(operations); i++) {
        os.missing_operation = operations[i];
        must_take_epoll("older than Linux 5.15");
    }
    os.missing_operation = IORING_OP_SEND; /* it is not used */
    must_take_io_uring();
}

static void test_a_kernel_that_names_no_operations_is_too_old(void **state)
{
    (void)state;
    os.has_no_probe = true;
    must_take_epoll("older than Linux 5.15");
}

#define ON_SYSTEM(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_SYSTEM(test_a_refusal_says_what_may_have_forbidden_io_uring),
        ON_SYSTEM(test_flags_that_the_kernel_lacks_are_left_out),
        ON_SYSTEM(test_a_kernel_that_lacks_a_feature_is_too_old),
        ON_SYSTEM(test_a_kernel_that_lacks_an_operation_is_too_old),
        ON_SYSTEM(test_a_kernel_that_names_no_operations_is_too_old),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
