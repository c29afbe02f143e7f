/* SPDX-License-Identifier: Apache-2.0 */
/* tune_run.c: signals only set a flag. The loop that waits for the trial's lines sees it, ends the
 * trial, and removes the folder, as it does after a failure. If this program is killed, the trial
 * ends too (PR_SET_PDEATHSIG), but the folder stays. */
#include "tools/cli/tune/tune_run.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/system/beside.h"
#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "tools/cli/progress_bar.h"

#define PROGRAM    "embtier-layout-trial"
#define TRIAL_FILE "trial.json"
#define FOLDER     "embtier-tune-XXXXXX"
#define FOLDER_FDS 16
#define LINE_BYTES (1 << 22) /* more than the last line of 1,000 rounds has */

extern char **environ;

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

static void catch_signals(struct sigaction *before)
{
    const struct sigaction action = { .sa_handler = on_signal };

    interrupted = 0;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        sigaction(signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}

static void release_signals(const struct sigaction *before)
{
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        sigaction(signals[i], &before[i], NULL);
}

/* ---- The folder ---- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

static enum embtier_err remove_folder(const char *path, struct err_msg *msg)
{
    if (nftw(path, remove_entry, FOLDER_FDS, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) == 0 ||
        errno == ENOENT)
        return EMBTIER_OK;
    return err_set_errno(msg, errno, "%s cannot be removed; remove it", TEXT_SHOWN(path));
}

static enum embtier_err make_folder(const struct tune_run *run, char **ret_path,
                                    struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(run->directory, FOLDER);
    struct statvfs space;
    struct stat info;

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (stat(run->directory, &info) != 0 || statvfs(run->directory, &space) != 0)
        return err_set_errno(msg, errno, "--directory %s", TEXT_SHOWN(run->directory));
    if (!S_ISDIR(info.st_mode))
        return err_set_errno(msg, ENOTDIR, "--directory %s", TEXT_SHOWN(run->directory));
    if ((uint64_t)space.f_bavail * space.f_frsize < run->space_bytes)
        return err_set(msg, EMBTIER_NO_SPACE,
                       "--directory %s: %s are needed and %s are free; give fewer --minutes, fewer "
                       "--layouts or another directory",
                       TEXT_SHOWN(run->directory), BYTES_TEXT(run->space_bytes),
                       BYTES_TEXT((uint64_t)space.f_bavail * space.f_frsize));
    if (!mkdtemp(path))
        return err_set_errno(msg, errno, "--directory %s: no folder can be made in it",
                             TEXT_SHOWN(run->directory));
    *ret_path = TAKE(path);
    return EMBTIER_OK;
}

/* ---- The trial ---- */

struct trial_child {
    pid_t pid; /* 0: none */
    int out;
    char *line; /* so far */
    size_t line_bytes;
    json_t *last;
};

static void end_trial(struct trial_child *child)
{
    if (child->pid > 0) {
        kill(child->pid, SIGKILL);
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    closep(&child->out);
    free(child->line);
    json_decref(child->last);
}

/* Writes the trial into a file of the folder: one argument holds 128 KiB, some thousand tables. */
static enum embtier_err write_trial(const char *folder, const json_t *trial, char **ret_path,
                                    struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(folder, TRIAL_FILE);

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    errno = ENOMEM;
    if (json_dump_file(trial, path, JSON_COMPACT) != 0)
        return err_set_errno(msg, errno, "%s cannot be written", TEXT_SHOWN(path));
    *ret_path = TAKE(path);
    return EMBTIER_OK;
}

static enum embtier_err start_trial(struct trial_child *child, const char *folder,
                                    const json_t *trial, struct err_msg *msg)
{
    _cleanup_(freep) char *path = NULL;
    posix_spawn_file_actions_t actions;
    char program[PATH_MAX], parent[16];
    int out[2];
    int rc;

    TRY(write_trial(folder, trial, &path, msg));
    child->line = malloc(LINE_BYTES);
    if (!child->line)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    snprintf(parent, sizeof(parent), "%d", (int)getpid());
    beside_find(PROGRAM, EMBTIER_LAYOUT_TRIAL, program);
    if (pipe2(out, O_CLOEXEC) != 0)
        return err_set_errno(msg, errno, "no pipe can be made");
    child->out = out[0];
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    rc = posix_spawn(&child->pid, program, &actions, NULL,
                     (char *const[]){ program, path, parent, NULL }, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    if (rc == 0)
        return EMBTIER_OK;
    child->pid = 0;
    return err_set_errno(msg, rc, "%s cannot be started", program);
}

static void take_line(const struct tune_run *run, struct trial_child *child,
                      struct progress_bar *bar)
{
    json_t *const line = json_loads(child->line, 0, NULL);
    const double elapsed = json_number_value(json_object_get(line, "elapsed"));

    child->line_bytes = 0;
    if (json_object_get(line, "at")) {
        progress_bar_update(bar, (uint64_t)MIN(elapsed, run->seconds), (uint64_t)run->seconds + 1,
                            "s");
        json_decref(line);
        return;
    }
    json_decref(child->last);
    child->last = line;
}

/* Takes what the trial prints, until it ends or a signal comes. */
static enum embtier_err follow(const struct tune_run *run, struct trial_child *child,
                               struct progress_bar *bar, struct err_msg *msg)
{
    char piece[4096];

    for (;;) {
        struct pollfd ready = { .fd = child->out, .events = POLLIN };
        ssize_t count;

        if (interrupted)
            return err_set(msg, EMBTIER_CANCELLED, "interrupted; nothing is left behind");
        if (poll(&ready, 1, 200) <= 0)
            continue;
        count = read(child->out, piece, sizeof(piece));
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0 && interrupted) /* Ctrl-C reaches the trial too, which may end first */
            continue;
        if (count <= 0)
            return EMBTIER_OK;
        for (ssize_t i = 0; i < count; i++) {
            child->line[child->line_bytes] = piece[i] == '\n' ? '\0' : piece[i];
            if (piece[i] == '\n')
                take_line(run, child, bar);
            else if (++child->line_bytes == LINE_BYTES)
                return err_set(msg, EMBTIER_PROTOCOL, "%s prints too long a line", PROGRAM);
        }
    }
}

static enum embtier_err take_result(struct trial_child *child, json_t **ret_result,
                                    struct err_msg *msg)
{
    const char *const error = json_string_value(json_object_get(child->last, "error"));
    const json_int_t number = json_integer_value(json_object_get(child->last, "number"));
    int status = 0;

    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    child->pid = 0;
    if (error)
        return err_set(msg, (enum embtier_err)number, "%s", error);
    if (!child->last && WIFSIGNALED(status))
        return err_set(msg, EMBTIER_INTERNAL, "the trial was ended by signal %d", WTERMSIG(status));
    if (!child->last)
        return err_set(msg, EMBTIER_INTERNAL, "the trial ended without a result");
    *ret_result = TAKE(child->last);
    return EMBTIER_OK;
}

static enum embtier_err run_trial(const struct tune_run *run, const char *folder,
                                  const json_t *trial, struct progress_bar *bar,
                                  json_t **ret_result, struct err_msg *msg)
{
    _cleanup_(end_trial) struct trial_child child = { .out = -1 };

    TRY(start_trial(&child, folder, trial, msg));
    TRY(follow(run, &child, bar, msg));
    return take_result(&child, ret_result, msg);
}

/* Signals are caught meanwhile. */
static enum embtier_err run_in_folder(const struct tune_run *run, json_t *trial,
                                      struct progress_bar *bar, json_t **ret_result,
                                      struct err_msg *msg)
{
    _cleanup_(freep) char *folder = NULL;
    enum embtier_err err, removed;
    struct err_msg why;

    TRY(make_folder(run, &folder, msg));
    if (json_object_set_new(trial, "directory", json_string(folder)) != 0)
        err = err_set(msg, EMBTIER_INVALID, "--directory %s is not UTF-8",
                      TEXT_SHOWN(run->directory));
    else
        err = run_trial(run, folder, trial, bar, ret_result, msg);
    removed = remove_folder(folder, &why);
    if (removed == EMBTIER_OK)
        return err;
    return err_set(msg, err == EMBTIER_OK ? removed : err, "%s", why.text);
}

enum embtier_err tune_run(const struct tune_run *run, json_t *trial, json_t **ret_result,
                          int *ret_signal, struct err_msg *msg)
{
    struct sigaction before[ARRAY_LEN(signals)];
    json_t *result = NULL;
    struct progress_bar bar;
    enum embtier_err err;

    progress_bar_begin(&bar, "trying layouts", "");
    catch_signals(before);
    err = run_in_folder(run, trial, &bar, &result, msg);
    release_signals(before);
    progress_bar_end(&bar);
    *ret_signal = interrupted;
    if (err == EMBTIER_OK)
        *ret_result = result;
    else
        json_decref(result);
    return err;
}
