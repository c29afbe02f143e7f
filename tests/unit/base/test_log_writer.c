/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that logging goes on when standard error is not read, fails or is closed, and that the log
 * says how many lines it lost. Lines logged before the program ends must come out, also if a fault
 * ends it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log/log.h"
#include "base/log/log_writer.h"

#define LINES       20000
#define FAULT_LINES 500
#define WAIT_MS     60000

/* During a test standard error is a pipe, and the log's thread runs. */
struct piped {
    int saved;
    int read_end;
    char *text; /* everything received */
    size_t bytes;
};

static int begin(void **state)
{
    struct piped *const piped = calloc(1, sizeof(*piped));
    int ends[2];

    if (!piped || pipe(ends) != 0)
        return -1;
    piped->saved = dup(STDERR_FILENO);
    piped->read_end = ends[0];
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    *state = piped;
    return log_begin();
}

static int finish(void **state)
{
    struct piped *const piped = *state;

    close(piped->read_end); /* the thread must not stay in write(2) */
    log_end(WAIT_MS);
    dup2(piped->saved, STDERR_FILENO);
    close(piped->saved);
    free(piped->text);
    free(piped);
    return 0;
}

static void receive(struct piped *piped)
{
    struct pollfd fd = { .fd = piped->read_end, .events = POLLIN };
    char buffer[65536];
    ssize_t got;

    assert_int_equal(poll(&fd, 1, WAIT_MS), 1);
    got = read(piped->read_end, buffer, sizeof(buffer));
    assert_true(got >= 0);
    piped->text = realloc(piped->text, piped->bytes + (size_t)got + 1);
    assert_non_null(piped->text);
    memcpy(piped->text + piped->bytes, buffer, (size_t)got);
    piped->bytes += (size_t)got;
    piped->text[piped->bytes] = '\0';
}

static const char *await_text(struct piped *piped, const char *text)
{
    while (!piped->text || !strstr(piped->text, text))
        receive(piped);
    return strstr(piped->text, text);
}

static uint64_t count_of(const char *text, const char *word)
{
    uint64_t count = 0;

    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        count++;
    return count;
}

/* Returns the sum of the counts in all lines about lost lines. */
static uint64_t told_of(const char *text)
{
    uint64_t sum = 0;

    for (const char *at = text; (at = strstr(at, "were dropped")); at++)
        sum += strtoull(strstr(at, "count=") + strlen("count="), NULL, 10);
    return sum;
}

/* Fills the pipe, so that the thread cannot write. */
static void fill_pipe(void)
{
    assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK), 0);
    while (write(STDERR_FILENO, "x", 1) == 1)
        ;
    assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, 0), 0);
}

static void test_no_line_is_waited_for_and_each_lost_one_is_counted(void **state)
{
    struct piped *const piped = *state;
    const uint64_t before = log_dropped_lines();
    uint64_t dropped;

    fill_pipe();
    for (int i = 0; i < LINES; i++) /* more than the buffer takes: a logger that waits would hang */
        log_info("line", "number=%d", i);
    dropped = log_dropped_lines() - before;
    assert_in_range(dropped, 1, LINES - 1);
    await_text(piped, "were dropped");
    log_info("the end", "%s", "");
    await_text(piped, "the end\"\n");
    assert_int_equal(told_of(piped->text), dropped);
    assert_int_equal(log_dropped_lines() - before, dropped);
    assert_int_equal(count_of(piped->text, "msg=\"line\" number="), LINES - dropped);
    assert_non_null(strstr(piped->text, "msg=\"line\" number=0\n"));
    /* The first lines are there, and the gap is where it was. */
    assert_null(strstr(strstr(piped->text, "were dropped"), "msg=\"line\""));
}

static void test_the_end_waits_for_a_reader_but_not_for_ever(void **state)
{
    struct piped *const piped = *state;

    for (int i = 0; i < LINES; i++)
        log_info("line", "number=%d", i);
    log_end(10);
    log_info("too late", "%s", "");    /* does not block either */
    await_text(piped, "were dropped"); /* the thread goes on if a reader comes after all */
}

static void test_the_end_brings_all_out(void **state)
{
    struct piped *const piped = *state;

    for (int i = 0; i < 500; i++)
        log_info("line", "number=%d", i);
    log_end(WAIT_MS);
    log_info("after it", "%s", "");
    await_text(piped, "after it\"\n");
    assert_int_equal(count_of(piped->text, "\n"), 501);
}

static void test_lines_that_standard_error_refuses_are_told_when_it_takes_them_again(void **state)
{
    struct piped *const piped = *state;
    const uint64_t before = log_dropped_lines();
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    const int pipe_end = dup(STDERR_FILENO);

    assert_true(full >= 0 && pipe_end >= 0);
    dup2(full, STDERR_FILENO);
    for (int i = 0; i < 3; i++)
        log_info("lost", "number=%d", i);
    while (log_dropped_lines() - before < 3)
        usleep(1000);
    dup2(pipe_end, STDERR_FILENO);
    log_info("kept", "%s", "");
    await_text(piped, "count=3\n");
    assert_non_null(strstr(piped->text, "\"kept\"\n"));
    assert_null(strstr(piped->text, "lost"));
    close(full);
    close(pipe_end);
}

static void test_a_reader_that_has_gone_ends_nothing(void **state)
{
    struct piped *const piped = *state;
    const uint64_t before = log_dropped_lines();
    const int unwritable = open("/dev/null", O_RDONLY | O_CLOEXEC);

    assert_true(unwritable >= 0);
    signal(SIGPIPE, SIG_IGN); /* as in the daemon */
    close(piped->read_end);
    piped->read_end = -1;
    log_info("no process hears", "%s", "");
    while (log_dropped_lines() == before)
        usleep(1000);
    dup2(unwritable, STDERR_FILENO); /* EBADF; closing it would race with the thread */
    log_info("nor this", "%s", "");
    while (log_dropped_lines() < before + 2)
        usleep(1000);
    close(unwritable);
}

/* Another process that shares standard error may have made it so. */
static void test_a_non_blocking_standard_error_loses_nothing(void **state)
{
    struct piped *const piped = *state;

    assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK), 0);
    assert_true(fcntl(piped->read_end, F_SETPIPE_SZ, 4096) >= 4096);
    for (int i = 0; i < 1000; i++)
        log_info("line", "number=%d", i);
    await_text(piped, "number=999\n");
    assert_int_equal(count_of(piped->text, "\n"), 1000);
}

/* Runs in its own process. */
static void end_by(int number, bool is_sent)
{
    const struct rlimit none = { 0 };
    volatile char *const page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    setrlimit(RLIMIT_CORE, &none);
    signal(number, SIG_DFL); /* a sanitizer has its own handler */
    if (log_begin() != 0)
        _exit(2);
    for (int i = 0; i < FAULT_LINES; i++)
        log_info("before the fault", "number=%d", i);
    if (is_sent)
        kill(getpid(), number);
    else if (number == SIGABRT)
        abort();
    else
        *page = 1;
    for (;;)
        pause();
}

struct fault {
    int number;
    bool is_sent;
};

/* Returns how many lines come out of such a process. */
static uint64_t lines_before(const struct fault *fault)
{
    struct piped piped = { 0 };
    size_t before;
    uint64_t lines;
    int ends[2];
    int status;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    piped.read_end = ends[0];
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        end_by(fault->number, fault->is_sent);
    }
    close(ends[1]);
    do {
        before = piped.bytes;
        receive(&piped);
    } while (piped.bytes > before); /* until the process ends */
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == fault->number);
    lines = count_of(piped.text, "before the fault");
    close(ends[0]);
    free(piped.text);
    return lines;
}

/* Some lines may be missing if the system keeps the thread from running for as long as a fault
 * waits. So the test tries again. */
static void test_what_was_said_before_a_fault_comes_out(void **state)
{
    static const struct fault faults[] = {
        { SIGABRT, false }, { SIGABRT, true }, { SIGSEGV, false }, { SIGBUS, true }
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        uint64_t most = 0;

        for (int try = 0; try < 20 && most < FAULT_LINES; try++)
            most = MAX(most, lines_before(&faults[i]));
        assert_int_equal(most, FAULT_LINES);
    }
}

int main(void)
{
#define PIPED(test) cmocka_unit_test_setup_teardown(test, begin, finish)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_said_before_a_fault_comes_out), /* forks: no thread yet */
        PIPED(test_no_line_is_waited_for_and_each_lost_one_is_counted),
        PIPED(test_the_end_brings_all_out),
        PIPED(test_lines_that_standard_error_refuses_are_told_when_it_takes_them_again),
        PIPED(test_a_non_blocking_standard_error_loses_nothing),
        PIPED(test_a_reader_that_has_gone_ends_nothing),
        PIPED(test_the_end_waits_for_a_reader_but_not_for_ever), /* the log's thread may stay */
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
