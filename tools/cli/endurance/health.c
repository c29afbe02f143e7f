/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/endurance/health.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text/text_escape.h"
#include "tools/nvme/drive_name.h"
#include "tools/nvme/health_page.h"

#define LIMIT_MS   10000
#define SAID_BYTES 65536

extern char **environ;

/* ---- The child ---- */

/* Files in memory: nothing blocks, whatever the child prints. */
struct child {
    int out, said;
    int pidfd;
    pid_t pid;
};

static void close_child(struct child *child)
{
    closep(&child->out);
    closep(&child->said);
    closep(&child->pidfd);
}

static enum embtier_err start(const char *program, const char *path, struct child *child,
                              struct err_msg *msg)
{
    char *const arguments[] = { (char *)(uintptr_t)program, (char *)(uintptr_t)path, NULL };
    posix_spawn_file_actions_t actions;
    int rc;

    child->out = memfd_create("health", MFD_CLOEXEC);
    child->said = memfd_create("messages", MFD_CLOEXEC);
    if (child->out < 0 || child->said < 0)
        return err_set_errno(msg, errno, "no file in memory can be made");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, child->out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, child->said, STDERR_FILENO);
    rc = posix_spawn(&child->pid, program, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        return err_set_errno(msg, rc, "%s cannot be started", TEXT_SHOWN(program));
    child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    return EMBTIER_OK;
}

/* Waits for the child's end. A drive that does not answer must not keep the user waiting. */
static enum embtier_err await(const struct child *child, int *ret_status, struct err_msg *msg)
{
    struct pollfd ended = { .fd = child->pidfd, .events = POLLIN };
    const bool is_late = child->pidfd >= 0 && poll(&ended, 1, LIMIT_MS) == 0;
    pid_t waited;

    if (is_late)
        kill(child->pid, SIGKILL);
    do
        waited = waitpid(child->pid, ret_status, 0);
    while (waited < 0 && errno == EINTR);
    if (is_late)
        return err_set(msg, EMBTIER_TIMEOUT, "the drive did not answer within %d s: see dmesg",
                       LIMIT_MS / 1000);
    return waited == child->pid ? EMBTIER_OK : err_set_errno(msg, errno, "waitpid()");
}

static void read_text(int fd, char *ret_text, size_t room)
{
    const ssize_t count = pread(fd, ret_text, room - 1, 0);

    ret_text[count > 0 ? count : 0] = '\0';
}

/* The child's line, without its name. */
static enum embtier_err failure(const struct child *child, int status, struct err_msg *msg)
{
    char said[sizeof(msg->text)];
    const char *line = said;

    read_text(child->said, said, sizeof(said));
    said[strcspn(said, "\n")] = '\0';
    if (strncmp(line, "embtier-nvme-health: ", 21) == 0)
        line += 21;
    if (line[0] == '\0')
        return err_set(msg, EMBTIER_IO, "embtier-nvme-health ended with status %d and no message",
                       status);
    return err_set(msg, EMBTIER_IO, "%s", line);
}

static enum embtier_err take_answer(const struct child *child, json_t **ret_health,
                                    struct err_msg *msg)
{
    static char text[SAID_BYTES];
    json_t *health;

    read_text(child->out, text, sizeof(text));
    health = json_loads(text, 0, NULL);
    if (!json_is_object(health)) {
        json_decref(health);
        return err_set(
            msg, EMBTIER_PROTOCOL,
            "embtier-nvme-health printed something else than JSON: is it of this version?");
    }
    *ret_health = health;
    return EMBTIER_OK;
}

enum embtier_err health_ask(const char *program, const char *device, struct json_t **ret_health,
                            struct err_msg *msg)
{
    _cleanup_(close_child) struct child child = { .out = -1, .said = -1, .pidfd = -1 };
    char path[64];
    int status = 0;

    if (!drive_name_is_good(device, true) ||
        snprintf(path, sizeof(path), "/dev/%s", device) >= (int)sizeof(path))
        return err_set(msg, EMBTIER_UNSUPPORTED, "no NVMe drive, so its health is not read");
    TRY(start(program, path, &child, msg));
    TRY(await(&child, &status, msg));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return failure(&child, WIFEXITED(status) ? WEXITSTATUS(status) : -1, msg);
    return take_answer(&child, ret_health, msg);
}

/* ---- Warnings ---- */

void health_each_warning(const struct json_t *health,
                         void (*take)(const char *meaning, void *context), void *context)
{
    const json_int_t warnings = json_integer_value(json_object_get(health, "warnings"));

#define X(name, bit, word, meaning)                                                                \
    if (warnings & (bit))                                                                          \
        take(meaning, context);
    HEALTH_WARNING_TABLE(X)
#undef X
}
