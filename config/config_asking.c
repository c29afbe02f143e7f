/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_asking.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/text/text_after.h"

/* The file's descriptor in the program, and its name there. */
#define CHECKED_FD   3
#define CHECKED_NAME "/proc/self/fd/3"
/* Between two looks at a program that has said everything. */
#define LOOK_NS   (INT64_C(5) * 1000000)
#define NS_PER_MS UINT64_C(1000000)

struct asked {
    const struct config_asking *asking;
    pid_t pid;
    int out; /* reads the program's messages */
    uint64_t end_ns;
    bool is_late;
    struct err_msg mistake; /* the first line that is no warning */
    char line[2 * sizeof(struct err_msg)];
    size_t length;
};

/* ---- Starting ---- */

/* Returns 0 or an errno. The program takes signals, which threads of a server do not. */
static int set_up(const struct config_asking *asking, posix_spawn_file_actions_t *actions,
                  posix_spawnattr_t *attributes, int error_fd)
{
    sigset_t none;
    int rc;

    sigemptyset(&none);
    rc = posix_spawnattr_setsigmask(attributes, &none);
    if (rc == 0)
        rc = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(actions, error_fd, STDERR_FILENO);
    if (rc == 0 && asking->fd >= 0)
        rc = posix_spawn_file_actions_adddup2(actions, asking->fd, CHECKED_FD);
    return rc;
}

static int spawn(const struct config_asking *asking, int error_fd, pid_t *ret_pid)
{
    const char *const path = asking->fd >= 0 ? CHECKED_NAME : asking->path;
    const char *const arguments[] = { "embtierd", "--check", path ? "--config" : NULL, path, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int rc = posix_spawn_file_actions_init(&actions);

    if (rc != 0)
        return rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc == 0) {
        rc = set_up(asking, &actions, &attributes, error_fd);
        if (rc == 0)
            rc = posix_spawn(ret_pid, asking->server, &actions, &attributes,
                             (char *const *)(uintptr_t)arguments, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static enum embtier_err start(struct asked *asked, struct err_msg *msg)
{
    int fds[2];
    int rc = pipe2(fds, O_CLOEXEC) == 0 ? 0 : errno;

    if (rc == 0) {
        rc = spawn(asked->asking, fds[1], &asked->pid);
        close(fds[1]);
        if (rc == 0)
            asked->out = fds[0];
        else
            close(fds[0]);
    }
    return rc == 0 ? EMBTIER_OK
                   : err_set_errno(msg, rc, "cannot start %s, which checks the configuration",
                                   asked->asking->server);
}

/* ---- Reading ---- */

static void take_line(struct asked *asked)
{
    const struct config_asking *const asking = asked->asking;
    const char *const own = text_after(asked->line, "embtierd: ");
    const char *const warning = own ? text_after(own, "warning: ") : NULL;
    const char *const text = own ? own : asked->line;
    const char *const rest = asking->fd >= 0 ? text_after(text, CHECKED_NAME) : NULL;

    if (warning && asking->warn)
        asking->warn(asking->context, warning);
    else if (!warning && asked->mistake.text[0] == '\0')
        err_write(&asked->mistake, "%s%s", rest ? asking->path : "", rest ? rest : text);
}

/* The end of a line that is too long is dropped. */
static void take_byte(struct asked *asked, char byte)
{
    if (byte != '\n') {
        if (asked->length + 1 < sizeof(asked->line))
            asked->line[asked->length++] = byte;
        return;
    }
    asked->line[asked->length] = '\0';
    asked->length = 0;
    take_line(asked);
}

/* Returns the milliseconds that poll() may wait; 0: the program is late. */
static int left_ms(const struct asked *asked)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);

    if (asked->asking->most_ms == 0)
        return -1;
    return now_ns < asked->end_ns
               ? (int)MIN((asked->end_ns - now_ns) / NS_PER_MS + 1, UINT64_C(60000))
               : 0;
}

/* Reads to the end, so that the program can write all. */
static void read_all(struct asked *asked)
{
    char bytes[4096];

    for (;;) {
        struct pollfd poll_fd = { .fd = asked->out, .events = POLLIN };
        const int wait_ms = left_ms(asked);
        ssize_t count;
        int ready;

        asked->is_late = wait_ms == 0;
        if (asked->is_late)
            break;
        ready = poll(&poll_fd, 1, wait_ms);
        if (ready < 0 && errno != EINTR)
            break;
        if (ready <= 0)
            continue;
        count = read(asked->out, bytes, sizeof(bytes));
        if (count < 0 && errno == EINTR)
            continue;
        for (ssize_t i = 0; i < count; i++)
            take_byte(asked, bytes[i]);
        if (count <= 0)
            break;
    }
    if (asked->length > 0)
        take_byte(asked, '\n');
}

/* ---- Ending ---- */

/* A program may have closed its output and go on. */
static enum embtier_err await_end(struct asked *asked, int *ret_status, struct err_msg *msg)
{
    const struct timespec pause = { .tv_nsec = LOOK_NS };

    for (;;) {
        const bool is_limited = asked->asking->most_ms > 0 && !asked->is_late;
        const pid_t pid = waitpid(asked->pid, ret_status, is_limited ? WNOHANG : 0);

        if (pid == asked->pid)
            return EMBTIER_OK;
        if (pid < 0 && errno != EINTR)
            return err_set_errno(msg, errno, "waiting for %s, which checks the configuration",
                                 asked->asking->server);
        if (!is_limited)
            continue;
        asked->is_late = left_ms(asked) == 0;
        if (asked->is_late)
            (void)kill(asked->pid, SIGKILL);
        else
            (void)nanosleep(&pause, NULL);
    }
}

static enum embtier_err judge(const struct asked *asked, int status, struct err_msg *msg)
{
    const char *const server = asked->asking->server;
    const char *const line = asked->mistake.text;
    const char *name;

    if (asked->is_late)
        return err_set(msg, EMBTIER_TIMEOUT,
                       "%s has not checked the configuration within %" PRIu64
                       " ms, and was ended: try again",
                       server, asked->asking->most_ms);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return EMBTIER_OK;
    if (WIFEXITED(status))
        return err_set(
            msg, EMBTIER_CONFIG, "%s",
            line[0] ? line : "embtierd found a mistake in the configuration and did not name it");
    name = sigabbrev_np(WTERMSIG(status));
    return err_set(msg, EMBTIER_CONFIG,
                   "%s was ended by SIG%s while it checked the configuration; a start would end "
                   "the same way%s%s",
                   server, name ? name : "RT", line[0] ? ": " : "", line);
}

enum embtier_err config_ask(const struct config_asking *asking, struct err_msg *msg)
{
    struct asked asked = { .asking = asking,
                           .end_ns = clock_now_ns(&clock_monotonic) + asking->most_ms * NS_PER_MS };
    int status = 0;
    enum embtier_err err;

    TRY(start(&asked, msg));
    read_all(&asked);
    if (asked.is_late)
        (void)kill(asked.pid, SIGKILL);
    err = await_end(&asked, &status, msg);
    close(asked.out); /* not before, so that the program can write */
    return err == EMBTIER_OK ? judge(&asked, status, msg) : err;
}
