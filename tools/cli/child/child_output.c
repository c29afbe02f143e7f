/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/child/child_output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/text/text_escape.h"

#define NS_PER_MS UINT64_C(1000000)

extern char **environ;

static void close_child(struct child *child)
{
    closep(&child->out);
    closep(&child->said);
    closep(&child->pidfd);
}

/* Does not wait: a child in a call to a drive ends only when that does. */
static void end_child(const struct child *child)
{
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, WNOHANG);
}

static enum embtier_err start(const char *const arguments[], struct child *child,
                              struct err_msg *msg)
{
    posix_spawn_file_actions_t actions;
    int rc;

    child->out = memfd_create("output", MFD_CLOEXEC);
    child->said = memfd_create("messages", MFD_CLOEXEC);
    if (child->out < 0 || child->said < 0)
        return err_set_errno(msg, errno, "no file in memory can be made");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, child->out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, child->said, STDERR_FILENO);
    rc = posix_spawnp(&child->pid, arguments[0], &actions, NULL,
                      (char *const *)(uintptr_t)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        return err_set_errno(msg, rc, "%s cannot be started", TEXT_SHOWN(arguments[0]));
    child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    if (child->pidfd < 0) {
        const enum embtier_err err =
            err_set_errno(msg, errno, "%s cannot be waited for", TEXT_SHOWN(arguments[0]));

        end_child(child);
        return err;
    }
    return EMBTIER_OK;
}

/* Returns false if the child has not ended by then. */
static bool has_ended(const struct child *child, uint64_t until_ns)
{
    struct pollfd ended = { .fd = child->pidfd, .events = POLLIN };
    int rc;

    do {
        const struct timespec left =
            clock_moment(clock_since(until_ns, clock_now_ns(&clock_monotonic)));

        rc = ppoll(&ended, 1, &left, NULL);
    } while (rc < 0 && errno == EINTR);
    return rc > 0;
}

static enum embtier_err await(const struct child *child, uint64_t until_ns, int *ret_status,
                              struct err_msg *msg)
{
    if (!has_ended(child, until_ns)) {
        end_child(child);
        return err_set(msg, EMBTIER_TIMEOUT, "it did not end in time");
    }
    return waitpid(child->pid, ret_status, WNOHANG) == child->pid
               ? EMBTIER_OK
               : err_set_errno(msg, errno, "waitpid()");
}

static void take_said(int fd, struct err_msg *ret_said)
{
    char line[sizeof(ret_said->text)];
    const ssize_t count = pread(fd, line, sizeof(line) - 1, 0);

    line[count > 0 ? count : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (line[0] == '\0')
        ret_said->text[0] = '\0';
    else
        err_write(ret_said, "%s", line);
}

static enum embtier_err take_text(int fd, size_t bytes_max, struct child_output *ret_output)
{
    struct stat facts;
    size_t bytes = 0;
    ssize_t count;

    if (fstat(fd, &facts) == 0)
        bytes = MIN((size_t)facts.st_size, bytes_max);
    ret_output->text = malloc(bytes + 1);
    if (!ret_output->text)
        return EMBTIER_NO_MEMORY;
    count = pread(fd, ret_output->text, bytes, 0);
    ret_output->bytes = count > 0 ? (size_t)count : 0;
    ret_output->text[ret_output->bytes] = '\0';
    return EMBTIER_OK;
}

enum embtier_err child_start(const char *const arguments[], struct child *ret_child,
                             struct err_msg *msg)
{
    _cleanup_(close_child) struct child child = NO_CHILD;

    TRY(start(arguments, &child, msg));
    *ret_child = child;
    child = NO_CHILD;
    return EMBTIER_OK;
}

bool child_is_started(const struct child *child)
{
    return child->pidfd >= 0;
}

enum embtier_err child_finish(struct child *child, uint64_t until_ns, size_t bytes_max,
                              struct child_output *ret_output, struct err_msg *msg)
{
    _cleanup_(close_child) struct child own = *child;
    struct child_output output = { 0 };
    int status = 0;

    *child = NO_CHILD;
    TRY(await(&own, until_ns, &status, msg));
    output.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    take_said(own.said, &output.said);
    if (take_text(own.out, bytes_max, &output) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "no memory for its output");
    *ret_output = output;
    return EMBTIER_OK;
}

enum embtier_err child_output_take(const char *const arguments[], int limit_ms, size_t bytes_max,
                                   struct child_output *ret_output, struct err_msg *msg)
{
    const uint64_t until_ns = clock_now_ns(&clock_monotonic) + (uint64_t)limit_ms * NS_PER_MS;
    struct child child = NO_CHILD;
    enum embtier_err err;

    TRY(child_start(arguments, &child, msg));
    err = child_finish(&child, until_ns, bytes_max, ret_output, msg);
    if (err == EMBTIER_TIMEOUT)
        return err_set(msg, err, "%s did not end within %d s", TEXT_SHOWN(arguments[0]),
                       limit_ms / 1000);
    return err;
}

void child_output_clear(struct child_output *output)
{
    free(output->text);
    output->text = NULL;
}
