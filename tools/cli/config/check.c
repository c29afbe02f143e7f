/* SPDX-License-Identifier: Apache-2.0 */
/* embtier config …: checks embtierd's configuration, and lists its keys.
 *
 * Only embtierd knows all that a start would refuse, such as RocksDB's options and the data
 * directories. So this program asks the embtierd beside it (`embtierd --check`). If there is none,
 * it checks only the text against the machine, and reports that. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text/text_escape.h"
#include "config/config_keys.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"
#include "tools/cli/cli.h"

/* Looks for embtierd beside this program, in the places of an installation and of a build
 * folder. */
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

/* The lines that embtierd wrote: warnings, and the first one that is none. */
struct said {
    json_t *warnings; /* a list of texts */
    struct err_msg line;
};

/* Returns the rest of the text if it begins with @beginning, else NULL. */
static const char *after(const char *text, const char *beginning)
{
    const size_t length = strlen(beginning);

    return strncmp(text, beginning, length) == 0 ? text + length : NULL;
}

static void take_line(const char *line, struct said *said)
{
    const char *const own = after(line, "embtierd: ");
    const char *const warning = own ? after(own, "warning: ") : NULL;

    if (warning)
        (void)json_array_append_new(said->warnings, cli_json_text(warning));
    else if (said->line.text[0] == '\0')
        err_write(&said->line, "%s", own ? own : line);
}

static void read_all(FILE *file, struct said *said)
{
    _cleanup_(freep) char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, file) >= 0) {
        line[strcspn(line, "\n")] = '\0';
        take_line(line, said);
    }
}

/* Returns 0 or an errno. */
static int start(const char *server, const char *path, int error_fd, pid_t *ret_pid)
{
    const char *const arguments[] = { server, "--check", path ? "--config" : NULL, path, NULL };
    posix_spawn_file_actions_t actions;
    int rc = posix_spawn_file_actions_init(&actions);

    if (rc != 0)
        return rc;
    rc = posix_spawn_file_actions_adddup2(&actions, error_fd, STDERR_FILENO);
    if (rc == 0)
        rc = posix_spawn(ret_pid, server, &actions, NULL, (char *const *)(uintptr_t)arguments,
                         environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

/* Runs embtierd to its end. An error means that this was impossible, and says why. */
static enum embtier_err run_server(const char *server, const char *path, struct said *said,
                                   int *ret_status, struct err_msg *msg)
{
    int fds[2];
    pid_t pid = 0;
    int rc = pipe2(fds, O_CLOEXEC) == 0 ? 0 : errno;

    if (rc == 0) {
        FILE *const file = fdopen(fds[0], "r");

        rc = file ? start(server, path, fds[1], &pid) : errno;
        close(fds[1]);
        if (rc == 0)
            read_all(file, said);
        if (file)
            (void)fclose(file); /* closes the pipe even if it fails */
        else
            close(fds[0]);
    }
    if (rc != 0)
        return err_set_errno(msg, rc, "cannot start %s, which checks the configuration", server);
    while (waitpid(pid, ret_status, 0) < 0)
        if (errno != EINTR)
            return err_set_errno(msg, errno, "waiting for %s, which checks the configuration",
                                 server);
    return EMBTIER_OK;
}

/* Returns the mistake that embtierd found. A start would end in the same way, with the mistake or
 * with an error that hides it. Without a mistake, adds to @warnings. */
static enum embtier_err ask_server(const char *server, const char *path, json_t *warnings,
                                   struct err_msg *msg)
{
    struct said said = { .warnings = warnings };
    const char *const line = said.line.text;
    const char *name;
    int status = 0;

    TRY(run_server(server, path, &said, &status, msg));
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

static enum embtier_err check_here(const char *path, struct err_msg *msg)
{
    _cleanup_(config_freep) struct config *config = NULL;

    TRY(config_load(path, budget_unbudgeted, &config, msg));
    return config_check_machine(config, msg);
}

static int tell_mistake(const struct cli *cli, enum embtier_err err, const struct err_msg *msg)
{
    const char *const text = msg->text[0] ? msg->text : err_text(err);
    const int exit_code = cli_fail(EMBTIER_CONFIG, text);

    if (cli->json)
        (void)cli_print_json(json_pack("{s:b, s:s}", "ok", 0, "error", text), 9);
    return exit_code;
}

/* @path: NULL: none. @asked: embtierd has checked it. */
static void tell_good(const char *path, bool asked, const json_t *warnings)
{
    const size_t count = json_array_size(warnings);
    const json_t *warning;
    size_t i;

    json_array_foreach(warnings, i, warning)
        text_print(stderr, "embtier: warning: %s\n", json_string_value(warning));
    text_print(stdout, "%s: no mistakes found", path ? path : "the defaults");
    if (!asked)
        printf(" in the text; there is no embtierd beside this program, so certificates, users, "
               "data directories and rocksdb.options were not checked");
    else if (count > 0)
        printf(", %zu warning%s", count, PLURAL(count));
    printf("\n");
}

int command_config_check(struct cli *cli, int argc, char **argv)
{
    _cleanup_(json_decrefp) json_t *warnings = json_array();
    struct err_msg msg = { { 0 } };
    const int exit_code = cli_arguments(cli, argc, argv, 0, 1);
    const char *path;
    char server[PATH_MAX];
    enum embtier_err err;
    bool asked;

    if (exit_code >= 0)
        return exit_code;
    path = argc > optind ? argv[optind] : NULL;
    asked = find_server(server);
    err = asked ? ask_server(server, path, warnings, &msg) : check_here(path, &msg);
    if (err)
        return tell_mistake(cli, err, &msg);
    if (!cli->json)
        tell_good(path, asked, warnings);
    else
        return cli_print_json(
            json_pack("{s:b, s:b, s:O}", "ok", 1, "complete", asked, "warnings", warnings), 9);
    return EXIT_DONE;
}

int command_config_keys(struct cli *cli, int argc, char **argv)
{
    const int exit_code = cli_arguments(cli, argc, argv, 0, 0);

    if (exit_code >= 0)
        return exit_code;
    config_print_keys(stdout);
    return EXIT_DONE;
}
