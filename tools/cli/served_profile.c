/* SPDX-License-Identifier: Apache-2.0 */
/* embtier profile start, stop, save, record: the profile of the running server. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"

#define INTERVAL_MS 200

enum { OPTION_SAVE = 1024, OPTION_SECONDS };

struct arguments {
    uint64_t memory_bytes; /* 0: the server chooses */
    const char *save_path; /* NULL: not saved */
    double seconds;        /* 0: not given */
};

/* ---- Options ---- */

static int parse_option(const struct cli *cli, int option, struct arguments *arguments)
{
    switch (option) {
    case 'm':
        if (parse_bytes(optarg, &arguments->memory_bytes) != EMBTIER_OK ||
            arguments->memory_bytes == 0)
            return cli_usage(cli, "--memory %s: allowed: a size above 0 such as 32MiB",
                             TEXT_SHOWN(optarg));
        return -1;
    case OPTION_SECONDS:
        if (!number_is_double(optarg, &arguments->seconds) || arguments->seconds < 0.1 ||
            arguments->seconds > 86400)
            return cli_usage(cli, "--seconds %s: allowed: seconds, 0.1 to 86400",
                             TEXT_SHOWN(optarg));
        return -1;
    default:
        arguments->save_path = optarg;
        return -1;
    }
}

/* @options: those of the command. -1: continue; else the exit code. */
static int parse(struct cli *cli, int argc, char **argv, const struct option *options,
                 struct arguments *arguments)
{
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) >= 0) {
        exit_code = parse_option(cli, option, arguments);
        if (exit_code >= 0)
            return exit_code;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc > optind)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind]));
    return -1;
}

/* The profile is saved last, so these are asked before. */
static int check_save_path(const char *path)
{
    _cleanup_(freep) char *directory = NULL;
    struct stat info;
    struct err_msg msg;
    enum embtier_err err;

    if (!path)
        return -1;
    if (lstat(path, &info) == 0) {
        err_write(&msg, "%s already exists", path);
        return cli_fail(EMBTIER_EXISTS, msg.text);
    }
    err = path_directory(path, &directory, &msg);
    if (err == EMBTIER_OK && access(directory, W_OK | X_OK) != 0)
        err = err_set_errno(&msg, errno, "%s cannot be made", path);
    return err == EMBTIER_OK ? -1 : cli_fail(err, msg.text);
}

/* ---- Printing ---- */

static int print_info(const struct cli *cli, const struct embtier_profile_info *info,
                      const char *saved)
{
    struct number_text lookups, samples, age;

    if (cli->json)
        return cli_print_json(
            json_pack("{s:s, s:o, s:o, s:i, s:o, s:o, s:o, s:b, s:o}", "state",
                      info->runs ? "running" : "stopped", "age_ms", cli_json_u64(info->age_ms),
                      "memory_bytes", cli_json_u64(info->memory_bytes), "tables", (int)info->tables,
                      "lookups", cli_json_u64(info->lookups), "samples",
                      cli_json_u64(info->samples), "lost_samples", cli_json_u64(info->lost_samples),
                      "exact", info->is_exact, "saved", saved ? cli_json_text(saved) : json_null()),
            JSON_DOUBLE_DIGITS);
    if (info->runs) {
        printf("profiling, with %s of memory\n", BYTES_TEXT(info->memory_bytes));
        return EXIT_DONE;
    }
    printf("%s lookup%s of %" PRIu32 " table%s in %s, %s sample%s%s\n",
           number_count(&lookups, (double)info->lookups), PLURAL(info->lookups), info->tables,
           PLURAL(info->tables), number_duration(&age, (double)info->age_ms / 1e3),
           number_count(&samples, (double)info->samples), PLURAL(info->samples),
           info->is_exact ? ": every row was sampled" : "");
    if (info->lost_samples > 0)
        printf("%" PRIu64 " sample%s found no room: estimates may be wrong\n", info->lost_samples,
               PLURAL(info->lost_samples));
    if (saved)
        printf("saved: %s\n", saved);
    return EXIT_DONE;
}

/* ---- Commands ---- */

int command_profile_start(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = { { "memory", required_argument, NULL, 'm' },
                                             CLI_LONG_OPTIONS };
    struct arguments arguments = { 0 };
    int exit_code = parse(cli, argc, argv, options, &arguments);
    struct embtier_profile_info info;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_profile_start(cli->server, arguments.memory_bytes, &info);
    return err ? cli_fail_server(cli, err) : print_info(cli, &info, NULL);
}

/* Saves the profile if @path is not NULL, and prints how it was. */
static int save_stopped(const struct cli *cli, const struct embtier_profile_info *info,
                        const char *path)
{
    const enum embtier_err err = path ? embtier_profile_save(cli->server, path) : EMBTIER_OK;

    return err ? cli_fail_server(cli, err) : print_info(cli, info, path);
}

int command_profile_stop(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = { { "save", required_argument, NULL, OPTION_SAVE },
                                             CLI_LONG_OPTIONS };
    struct arguments arguments = { 0 };
    int exit_code = parse(cli, argc, argv, options, &arguments);
    struct embtier_profile_info info;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = check_save_path(arguments.save_path);
    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_profile_stop(cli->server, &info);
    return err ? cli_fail_server(cli, err) : save_stopped(cli, &info, arguments.save_path);
}

int command_profile_save(struct cli *cli, int argc, char **argv)
{
    int exit_code = cli_arguments(cli, argc, argv, 1, 1);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_profile_save(cli->server, argv[optind]);
    if (err)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(json_pack("{s:o}", "saved", cli_json_text(argv[optind])),
                              JSON_DOUBLE_DIGITS);
    printf("saved: %s\n", argv[optind]);
    return EXIT_DONE;
}

/* ---- Recording ---- */

#define GIVE_UP_S 10 /* after the first signal, even with --timeout 0 */
/* Signals within this time of the first are ignored: a user presses Ctrl-C twice, or a shell and a
 * terminal both send SIGHUP. */
#define IGNORED_NS INT64_C(1000000000)

static volatile sig_atomic_t caught; /* the first signal that came; for the handler */

static int64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* a signal handler may call it */
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Does only what a signal handler may. Others wait until it returns. The server does not bind a
 * profile to a connection, so the program must live to stop it. If the server is silent, a later
 * signal or the alarm ends the program. */
static void on_signal(int number)
{
    static int64_t first_ns;
    static const char text[] = "\nembtier: interrupted; the server did not answer, and may go on "
                               "profiling: `embtier profile stop` ends that\n";

    if (caught == 0) {
        caught = number;
        first_ns = now_ns();
        alarm(GIVE_UP_S);
        return;
    }
    if (number != SIGALRM && now_ns() - first_ns < IGNORED_NS)
        return;
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
        _exit(128 + caught);
    _exit(128 + caught); /* as shells do */
}

static const int caught_signals[] = { SIGINT, SIGTERM, SIGHUP, SIGALRM };
struct signal_actions {
    struct sigaction of[ARRAY_LEN(caught_signals)];
};

/* Catches the signals that end a recording, but for those that the caller ignores. */
static void catch_signals(struct signal_actions *ret_before)
{
    struct sigaction action = { .sa_handler = on_signal };

    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(caught_signals); i++)
        if (sigaction(caught_signals[i], NULL, &ret_before->of[i]) == 0 &&
            (ret_before->of[i].sa_handler != SIG_IGN || caught_signals[i] == SIGALRM))
            sigaction(caught_signals[i], &action, NULL);
}

/* Returns the first signal that came since catch_signals(), or 0. */
static int release_signals(const struct signal_actions *before)
{
    alarm(0);
    for (size_t i = 0; i < ARRAY_LEN(caught_signals); i++)
        sigaction(caught_signals[i], &before->of[i], NULL);
    return caught;
}

/* Returns early if a signal comes. */
static void wait_seconds(struct progress_bar *bar, double seconds)
{
    const uint64_t steps = (uint64_t)ceil(seconds * 1000 / INTERVAL_MS);

    for (uint64_t step = 0; step < steps && caught == 0; step++) {
        const double left = MIN(seconds * 1000 - (double)step * INTERVAL_MS, (double)INTERVAL_MS);

        nanosleep(&(struct timespec){ .tv_nsec = (long)(left * 1e6) }, NULL);
        progress_bar_update(bar, (uint64_t)((double)(step + 1) * INTERVAL_MS / 1000),
                            (uint64_t)ceil(seconds), "s");
    }
}

/* Prints why the recording failed, and returns the exit code: that of the signal, if one came.
 * @may_profile: the server may have begun a profile. */
static int fail_record(const struct cli *cli, enum embtier_err err, bool may_profile,
                       int signal_number)
{
    const int exit_code = cli_fail_server(cli, err);

    if (signal_number == 0)
        return exit_code;
    if (may_profile)
        fputs("embtier: interrupted; the server may go on profiling: `embtier profile stop` ends "
              "that\n",
              stderr);
    return 128 + signal_number;
}

static int record(const struct cli *cli, const struct arguments *arguments)
{
    struct embtier_profile_info info;
    struct signal_actions before;
    struct progress_bar bar;
    enum embtier_err err;
    bool may_profile;
    int signal_number;

    progress_bar_begin(&bar, "profiling", "the profile was not saved");
    catch_signals(&before); /* in place of the bar's handler */
    err = embtier_profile_start(cli->server, arguments->memory_bytes, &info);
    may_profile = err == EMBTIER_OK || err == EMBTIER_TIMEOUT || err == EMBTIER_DISCONNECTED;
    if (err == EMBTIER_OK) {
        wait_seconds(&bar, arguments->seconds);
        err = embtier_profile_stop(cli->server, &info);
    }
    signal_number = release_signals(&before);
    progress_bar_end(&bar);
    if (err)
        return fail_record(cli, err, may_profile, signal_number);
    if (signal_number == 0)
        return save_stopped(cli, &info, arguments->save_path);
    fputs("embtier: interrupted; the profile has ended, and was not saved: `embtier profile save "
          "FILE` saves what there is\n",
          stderr);
    return 128 + signal_number;
}

int command_profile_record(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = { { "memory", required_argument, NULL, 'm' },
                                             { "seconds", required_argument, NULL, OPTION_SECONDS },
                                             { "save", required_argument, NULL, OPTION_SAVE },
                                             CLI_LONG_OPTIONS };
    struct arguments arguments = { 0 };
    int exit_code = parse(cli, argc, argv, options, &arguments);

    if (exit_code >= 0)
        return exit_code;
    if (arguments.seconds <= 0 || !arguments.save_path)
        return cli_usage(cli, "%s is missing", arguments.save_path ? "--seconds" : "--save");
    exit_code = check_save_path(arguments.save_path);
    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    return exit_code ? exit_code : record(cli, &arguments);
}
