/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/solve/child_solver.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text/text_escape.h"
#include "tools/solve/solve_wire.h"

/* In Debian 13, libhighs-dev brings the first, libhighs1 the second, and coinor-libcbc3.1 the
 * third, as in Ubuntu 24.04. The last is that of coinor-libcbc3 in Debian 12, and of CBC's own
 * build. */
#define HIGHS        "libhighs.so"
#define HIGHS_1      "libhighs.so.1"
#define CBC_3_1      "libCbcSolver.so.3.1"
#define CBC_3        "libCbcSolver.so.3"
#define NS_PER_S     UINT64_C(1000000000)
#define NS_PER_MS    1000000
#define STILL_SHARE  100       /* a child that uses less than 1 / 100 of a processor is still */
#define SAID_BYTES   512       /* of standard error that are kept */
#define PRINTED_MOST (1 * MIB) /* that the child may print, beside its answer */
/* Exit statuses of a child that did not become the solver. */
#define NOT_PREPARED 126
#define NOT_RUN      127

/* Files in memory: nothing blocks, whatever the child reads or writes. */
struct child {
    int in, out, said; /* standard input, output and error */
    int pidfd;         /* the process: its number may soon be another's */
    pid_t pid;
};

/* Waits for the child's end, and takes its status. False, and errno is set: there is none. */
static bool await_end(const struct child *child, siginfo_t *ret_end)
{
    int waited;

    do
        waited = waitid(P_PIDFD, (id_t)child->pidfd, ret_end, WEXITED);
    while (waited < 0 && errno == EINTR);
    return waited == 0;
}

/* Ends the child if it still runs. */
static void end_child(struct child *child)
{
    siginfo_t end = { 0 };

    if (child->pidfd >= 0) {
        syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
        (void)await_end(child, &end);
    }
    closep(&child->in);
    closep(&child->out);
    closep(&child->said);
    closep(&child->pidfd);
}

/* ---- request ---- */

static enum embtier_err put(int fd, const void *bytes, uint64_t count, struct err_msg *msg)
{
    const char *at = bytes;

    while (count > 0) {
        const ssize_t written = write(fd, at, count);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return err_set_errno(msg, errno, "a file in memory");
        at += written;
        count -= (uint64_t)written;
    }
    return EMBTIER_OK;
}

static enum embtier_err put_model(const struct child_solver *solver, const struct milp *milp,
                                  int fd, struct err_msg *msg)
{
    const struct solve_request request = { .magic = SOLVE_REQUEST_MAGIC,
                                           .column_count = milp->column_count,
                                           .row_count = milp->row_count,
                                           .entry_count = milp->entry_count,
                                           .nodes = solver->nodes,
                                           .gap = solver->gap,
                                           .lower = milp->lower };
    const uint64_t rows = milp->row_count, entries = milp->entry_count;

    TRY(put(fd, &request, sizeof(request), msg));
    TRY(put(fd, milp->row_lower, rows * sizeof(double), msg));
    TRY(put(fd, milp->row_upper, rows * sizeof(double), msg));
    TRY(put(fd, milp->start, (uint64_t)milp->column_count * sizeof(double), msg));
    TRY(put(fd, milp->row_starts, (rows + 1) * sizeof(uint32_t), msg));
    TRY(put(fd, milp->columns, entries * sizeof(uint32_t), msg));
    TRY(put(fd, milp->values, entries * sizeof(double), msg));
    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_set_errno(msg, errno, "a file in memory");
    return EMBTIER_OK;
}

/* ---- child ---- */

/* A hard limit that is lower than the wish stays: only the superuser may raise it. */
static bool limit(int what, uint64_t wish)
{
    struct rlimit limit;

    if (getrlimit(what, &limit) != 0)
        return false;
    limit.rlim_max = MIN(limit.rlim_max, (rlim_t)wish);
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(what, &limit) == 0;
}

/* Runs between fork() and exec(), so it calls only functions that are safe there. The copies of
 * descriptors are made above those that they replace. */
static void become_solver(const struct child_solver *solver, const struct child *child,
                          uint64_t out_bytes, pid_t parent)
{
    char *const given[] = { (char *)solver->program, (char *)solver->library, NULL };
    char *const known[] = { (char *)solver->program, (char *)HIGHS, (char *)HIGHS_1,
                            (char *)CBC_3_1,         (char *)CBC_3, NULL };
    const int in = fcntl(child->in, F_DUPFD, 3), out = fcntl(child->out, F_DUPFD, 3);
    const int said = fcntl(child->said, F_DUPFD, 3);

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
        dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(said, STDERR_FILENO) < 0 || close_range(3, ~0U, 0) != 0)
        _exit(NOT_PREPARED);
    if ((solver->memory_bytes && !limit(RLIMIT_AS, solver->memory_bytes)) ||
        !limit(RLIMIT_CPU, solver->processor_s) || !limit(RLIMIT_CORE, 0) ||
        !limit(RLIMIT_FSIZE, out_bytes + PRINTED_MOST))
        _exit(NOT_PREPARED);
    execv(solver->program, solver->library ? given : known);
    _exit(NOT_RUN);
}

/* fork() that also opens the child's descriptor. Opened later, it might be another's: where SIGCHLD
 * is ignored, nothing keeps an ended child's number. */
static pid_t fork_watched(int *ret_pidfd)
{
    return (pid_t)syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, ret_pidfd, NULL, NULL);
}

static enum embtier_err start_child(const struct child_solver *solver, const struct milp *milp,
                                    struct child *child, struct err_msg *msg)
{
    const uint64_t out_bytes = milp->column_count * sizeof(double);
    const pid_t parent = getpid();

    child->in = memfd_create("model", MFD_CLOEXEC);
    child->out = memfd_create("answer", MFD_CLOEXEC);
    child->said = memfd_create("messages", MFD_CLOEXEC);
    if (child->in < 0 || child->out < 0 || child->said < 0)
        return err_set_errno(msg, errno, "no file in memory can be made");
    TRY(put_model(solver, milp, child->in, msg));
    child->pid = fork_watched(&child->pidfd);
    if (child->pid < 0)
        return err_set_errno(msg, errno, "%s cannot be started", TEXT_SHOWN(solver->program));
    if (child->pid == 0)
        become_solver(solver, child, out_bytes, parent);
    return EMBTIER_OK;
}

/* ---- watch ---- */

static uint64_t processor_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec used = { 0 };

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return 0;
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

/* The time that the child was ready to run, but had no processor. 0 where the kernel does not
 * say. */
static uint64_t waited_ns(pid_t pid)
{
    char path[64], text[64] = { 0 };
    uint64_t waited = 0;
    _cleanup_(closep) int fd = -1;

    snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
        sscanf(text, "%*u %" SCNu64, &waited);
    return waited;
}

/* The time that the child worked or wanted to. It grows on a busy machine, too. */
static uint64_t active_ns(const struct child *child)
{
    return processor_ns(child->pid) + waited_ns(child->pid);
}

/* Waits for the child's end, at most until @deadline_ns. */
static enum embtier_err wait_until(const struct child *child, uint64_t deadline_ns, bool *ret_ended,
                                   struct err_msg *msg)
{
    struct pollfd poll_fd = { .fd = child->pidfd, .events = POLLIN };
    uint64_t left_ns;
    int ready;

    do {
        left_ns = clock_since(deadline_ns, clock_now_ns(&clock_monotonic));
        ready = poll(&poll_fd, 1, (int)MIN(left_ns / NS_PER_MS + (left_ns > 0), INT_MAX));
    } while ((ready == 0 && left_ns > 0) || (ready < 0 && errno == EINTR));
    if (ready < 0)
        return err_set_errno(msg, errno, "the solver cannot be watched");
    *ret_ended = ready > 0;
    return EMBTIER_OK;
}

/* Waits until the child has ended, or stands still for stall_s. If this process was late itself,
 * such as after a stop of both, the time does not count. */
static enum embtier_err watch(const struct child_solver *solver, const struct child *child,
                              struct err_msg *msg)
{
    const uint64_t window_ns = MAX(solver->stall_s, 1) * NS_PER_S;
    uint64_t since_ns, before_ns;
    bool ended = false;

    do {
        since_ns = clock_now_ns(&clock_monotonic);
        before_ns = active_ns(child);
        TRY(wait_until(child, since_ns + window_ns, &ended, msg));
        if (ended)
            return EMBTIER_OK;
    } while (clock_since(clock_now_ns(&clock_monotonic), since_ns) > 2 * window_ns ||
             clock_since(active_ns(child), before_ns) >= window_ns / STILL_SHARE);
    return err_set(msg, EMBTIER_TIMEOUT, "the solver used less than 1 %% of a processor for %u s",
                   solver->stall_s);
}

/* The last line that the child printed: the reason of its failure. A library may have printed
 * before. A message escapes characters that are not plain. */
static void append_said(const struct child *child, struct err_msg *msg)
{
    char said[SAID_BYTES] = { 0 };
    const off_t end = lseek(child->said, 0, SEEK_END);
    const off_t first = MAX(end, (off_t)sizeof(said) - 1) - ((off_t)sizeof(said) - 1);
    const ssize_t count = pread(child->said, said, sizeof(said) - 1, first);
    const char *line;

    if (count <= 0)
        return;
    if (said[count - 1] == '\n')
        said[count - 1] = '\0';
    line = strrchr(said, '\n');
    err_append(msg, ": %s", line ? line + 1 : said);
}

/* Without a status, as the program ignores SIGCHLD or waits for all children, the answer alone
 * tells whether it is whole. */
static enum embtier_err reap(const struct child_solver *solver, const struct child *child,
                             struct err_msg *msg)
{
    siginfo_t end = { 0 };

    if (!await_end(child, &end))
        return EMBTIER_OK;
    if (end.si_code != CLD_EXITED)
        err_write(msg, "the solver was ended by signal %d", end.si_status);
    else if (end.si_status == NOT_RUN)
        err_write(msg, "the solver's program %s cannot be run", TEXT_SHOWN(solver->program));
    else if (end.si_status == NOT_PREPARED)
        err_write(msg,
                  "the solver's process could not set its limits, or open its standard streams "
                  "(`ulimit -n`)");
    else if (end.si_status != 0)
        err_write(msg, "the solver failed");
    else
        return EMBTIER_OK;
    append_said(child, msg);
    return EMBTIER_INTERNAL;
}

/* ---- answer ---- */

/* Text from the child may be anything. */
static void take_text(const char *from, char *ret_text, size_t bytes)
{
    const size_t used = strnlen(from, bytes - 1);

    snprintf(ret_text, bytes, "%.*s", (int)used, text_is_plain(from, used) ? from : "?");
}

static enum embtier_err take(struct child_solver *solver, const struct child *child,
                             const struct milp *milp, double *ret_values, double *ret_bound,
                             struct err_msg *msg)
{
    const size_t bytes = milp->column_count * sizeof(*ret_values);
    struct solve_reply reply = { 0 };

    if (pread(child->out, &reply, sizeof(reply), 0) != sizeof(reply) ||
        reply.magic != SOLVE_REPLY_MAGIC || reply.column_count != milp->column_count ||
        pread(child->out, ret_values, bytes, sizeof(reply)) != (ssize_t)bytes) {
        err_write(msg, "the solver's answer is cut short, or none");
        append_said(child, msg);
        return EMBTIER_PROTOCOL;
    }
    *ret_bound = reply.bound;
    solver->answers++;
    take_text(reply.solver, solver->solver, sizeof(solver->solver));
    take_text(reply.refused, solver->refused, sizeof(solver->refused));
    return EMBTIER_OK;
}

static enum embtier_err solve(void *ctx, const struct milp *milp, double *ret_values,
                              double *ret_bound, struct err_msg *msg)
{
    struct child_solver *const solver = ctx;
    _cleanup_(end_child) struct child child = { -1, -1, -1, -1, 0 };

    if (milp->entry_count > SOLVE_ENTRIES_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE, "the model has %u entries; allowed: %u",
                       milp->entry_count, SOLVE_ENTRIES_MAX);
    TRY(start_child(solver, milp, &child, msg));
    TRY(watch(solver, &child, msg));
    TRY(reap(solver, &child, msg));
    return take(solver, &child, milp, ret_values, ret_bound, msg);
}

struct milp_solver child_solver(struct child_solver *child)
{
    return (struct milp_solver){ .ctx = child, .solve = solve };
}
