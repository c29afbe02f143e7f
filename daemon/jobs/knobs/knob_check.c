/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/knobs/knob_check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"

/* The file's descriptor in the program that checks, and its name there. */
#define CHECKED_FD   3
#define CHECKED_NAME "/proc/self/fd/3"
#define OWN_NAME     "embtierd: "

/* Returns 0 or an errno. The program takes signals, which threads here do not. */
static int set_up(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes, int fd,
                  int error_fd)
{
    sigset_t none;
    int rc;

    sigemptyset(&none);
    rc = posix_spawnattr_setsigmask(attributes, &none);
    if (rc == 0)
        rc = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(actions, error_fd, STDERR_FILENO);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(actions, fd, CHECKED_FD);
    return rc;
}

static int start(const char *checker, int fd, int error_fd, pid_t *ret_pid)
{
    const char *const arguments[] = { "embtierd", "--check", "--config", CHECKED_NAME, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int rc = posix_spawn_file_actions_init(&actions);

    if (rc != 0)
        return rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc == 0) {
        rc = set_up(&actions, &attributes, fd, error_fd);
        if (rc == 0)
            rc = posix_spawn(ret_pid, checker, &actions, &attributes,
                             (char *const *)(uintptr_t)arguments, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

/* Takes the first line that is no warning. Reads to the end, so that the program can write all. */
static void read_mistake(FILE *file, const char *path, struct err_msg *ret_mistake)
{
    _cleanup_(freep) char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, file) >= 0) {
        const bool is_own = strncmp(line, OWN_NAME, strlen(OWN_NAME)) == 0;
        const char *text = is_own ? line + strlen(OWN_NAME) : line;
        bool is_named;

        line[strcspn(line, "\n")] = '\0';
        if (ret_mistake->text[0] != '\0' || strncmp(text, "warning: ", 9) == 0)
            continue;
        is_named = strncmp(text, CHECKED_NAME, strlen(CHECKED_NAME)) == 0;
        text += is_named ? strlen(CHECKED_NAME) : 0;
        err_write(ret_mistake, "%s%s", is_named ? path : "", text);
    }
}

static enum embtier_err run(const char *checker, int fd, const char *path, int *ret_status,
                            struct err_msg *ret_mistake, struct err_msg *msg)
{
    int fds[2];
    pid_t pid = 0;
    int rc = pipe2(fds, O_CLOEXEC) == 0 ? 0 : errno;

    if (rc == 0) {
        FILE *const file = fdopen(fds[0], "r");

        rc = file ? start(checker, fd, fds[1], &pid) : errno;
        close(fds[1]);
        if (rc == 0)
            read_mistake(file, path, ret_mistake);
        if (file)
            (void)fclose(file); /* closes the pipe even if it fails */
        else
            close(fds[0]);
    }
    if (rc != 0)
        return err_set_errno(msg, rc,
                             "the changed configuration was not checked, and nothing was "
                             "changed: cannot start %s",
                             checker);
    while (waitpid(pid, ret_status, 0) < 0)
        if (errno != EINTR)
            return err_set_errno(msg, errno, "waiting for %s, which checks the configuration",
                                 checker);
    return EMBTIER_OK;
}

enum embtier_err knob_check(const char *checker, int fd, const char *path, struct err_msg *msg)
{
    struct err_msg mistake = { { 0 } };
    int status = 0;

    TRY(run(checker, fd, path, &status, &mistake, msg));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_CONFIG, "%s is as it was: with the new value %s", path,
                   mistake.text[0] ? mistake.text
                                   : "the check of the configuration ended without a reason");
}
