/* SPDX-License-Identifier: Apache-2.0 */
/* embtier config …: embtierd's configuration.
 *
 * Only embtierd knows what a start would refuse: RocksDB's options, the data directories. So it is
 * asked (`embtierd --check`), the one that is beside this program. Where there is none, what can be
 * told from the text and from the machine is checked here, and that is said. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "base/text_escape.h"
#include "tools/embtier_cli.h"

/* Beside this program, as installed, and in a build folder. */
static bool find_server(char path[PATH_MAX])
{
    static const char *const places[] = { "embtierd", "../sbin/embtierd", "../daemon/embtierd" };
    char self[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (length <= 0)
        return false;
    self[length] = '\0';
    slash = strrchr(self, '/');
    if (!slash)
        return false;
    *slash = '\0';
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        const int written = snprintf(path, PATH_MAX, "%s/%s", self, places[i]);

        if (written > 0 && written < PATH_MAX && access(path, X_OK) == 0)
            return true;
    }
    return false;
}

/* The line that embtierd ends with, without its name. */
static void take_line(char *text, struct err_msg *msg)
{
    static const char name[] = "embtierd: ";
    char *line = text;

    text[strcspn(text, "\n")] = '\0';
    if (strncmp(line, name, sizeof(name) - 1) == 0)
        line += sizeof(name) - 1;
    err_write(msg, "%s", line[0] ? line : "embtierd found a mistake and did not say which");
}

static void read_all(int fd, char *text, size_t bytes)
{
    size_t used = 0;
    ssize_t count;

    while ((count = read(fd, text + used, bytes - 1 - used)) != 0) {
        if (count > 0)
            used += (size_t)count;
        else if (errno != EINTR)
            break;
        if (used == bytes - 1)
            used = bytes / 2; /* what is left is not shown */
    }
    text[used] = '\0';
}

static bool start(const char *server, const char *path, int error_fd, pid_t *ret_pid)
{
    const char *const arguments[] = { server, "--check", path ? "--config" : NULL, path, NULL };
    posix_spawn_file_actions_t actions;
    int rc;

    if (posix_spawn_file_actions_init(&actions) != 0)
        return false;
    rc = posix_spawn_file_actions_adddup2(&actions, error_fd, STDERR_FILENO);
    if (rc == 0)
        rc = posix_spawn(ret_pid, server, &actions, NULL, (char *const *)(uintptr_t)arguments,
                         environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc == 0;
}

/* False: it cannot be asked. */
static bool ask_server(const char *path, enum embtier_err *ret_err, struct err_msg *msg)
{
    char server[PATH_MAX];
    char said[sizeof(msg->text) * 2];
    int fds[2];
    int status = 0;
    pid_t pid = 0;
    bool started;

    if (!find_server(server) || pipe2(fds, O_CLOEXEC) != 0)
        return false;
    started = start(server, path, fds[1], &pid);
    close(fds[1]);
    if (started)
        read_all(fds[0], said, sizeof(said));
    close(fds[0]);
    if (!started)
        return false;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    if (!WIFEXITED(status))
        return false;
    *ret_err = WEXITSTATUS(status) == 0 ? EMBTIER_OK : EMBTIER_CONFIG;
    if (*ret_err != EMBTIER_OK)
        take_line(said, msg);
    return true;
}

static enum embtier_err check_here(const char *path, struct err_msg *msg)
{
    _cleanup_(config_freep) struct config *config = NULL;

    TRY(config_load(path, &config, msg));
    return config_check_machine(config, msg);
}

int command_config_check(struct cli *cli, int argc, char **argv)
{
    struct err_msg msg = { { 0 } };
    int exit_code = cli_arguments(cli, argc, argv, 0, 1);
    const char *path;
    enum embtier_err err = EMBTIER_OK;
    bool asked;

    if (exit_code >= 0)
        return exit_code;
    path = argc > optind ? argv[optind] : NULL;
    asked = ask_server(path, &err, &msg);
    if (!asked)
        err = check_here(path, &msg);
    if (err)
        exit_code = cli_fail(EMBTIER_CONFIG, msg.text[0] ? msg.text : err_text(err));
    else
        exit_code = EXIT_DONE;
    if (cli->json)
        (void)cli_print_json(
            err ? json_pack("{s:b, s:s}", "ok", 0, "error", msg.text[0] ? msg.text : err_text(err))
                : json_pack("{s:b, s:b}", "ok", 1, "complete", asked),
            9);
    else if (!err)
        text_print(stdout, "%s: no mistakes found%s\n", path ? path : "the defaults",
                   asked ? ""
                         : " in the text; there is no embtierd beside this program, so the data "
                           "directories and rocksdb.options were not looked at");
    return exit_code;
}

int command_config_keys(struct cli *cli, int argc, char **argv)
{
    const int exit_code = cli_arguments(cli, argc, argv, 0, 0);

    if (exit_code >= 0)
        return exit_code;
    config_print_keys(stdout);
    return EXIT_DONE;
}
