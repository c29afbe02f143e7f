/* SPDX-License-Identifier: Apache-2.0 */
/* embtier profile start, stop, save, record: the profile of the running server. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"

#define INTERVAL_MS 200

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
    case 'n':
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

/* The profile is saved last, so this is asked before. */
static int check_save_path(const char *path)
{
    struct stat info;
    struct err_msg msg;

    if (!path || lstat(path, &info) != 0)
        return -1;
    err_write(&msg, "%s already exists", path);
    return cli_fail(EMBTIER_EXISTS, msg.text);
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

/* Stops the profile, saves it if @path is not NULL, and prints how it was. */
static int stop_and_save(const struct cli *cli, const char *path)
{
    struct embtier_profile_info info;
    enum embtier_err err = embtier_profile_stop(cli->server, &info);

    if (err == EMBTIER_OK && path)
        err = embtier_profile_save(cli->server, path);
    return err ? cli_fail_server(cli, err) : print_info(cli, &info, path);
}

int command_profile_stop(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = { { "save", required_argument, NULL, 'f' },
                                             CLI_LONG_OPTIONS };
    struct arguments arguments = { 0 };
    int exit_code = parse(cli, argc, argv, options, &arguments);

    if (exit_code >= 0)
        return exit_code;
    exit_code = check_save_path(arguments.save_path);
    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    return exit_code ? exit_code : stop_and_save(cli, arguments.save_path);
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

static void wait_seconds(double seconds)
{
    const uint64_t steps = (uint64_t)ceil(seconds * 1000 / INTERVAL_MS);
    struct progress_bar bar;

    progress_bar_begin(&bar, "profiling", "the profile goes on: `embtier profile stop` ends it");
    for (uint64_t step = 0; step < steps; step++) {
        const double left = MIN(seconds * 1000 - (double)step * INTERVAL_MS, (double)INTERVAL_MS);

        nanosleep(&(struct timespec){ .tv_nsec = (long)(left * 1e6) }, NULL);
        progress_bar_update(&bar, (uint64_t)((double)(step + 1) * INTERVAL_MS / 1000),
                            (uint64_t)ceil(seconds), "s");
    }
    progress_bar_end(&bar);
}

int command_profile_record(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = { { "memory", required_argument, NULL, 'm' },
                                             { "seconds", required_argument, NULL, 'n' },
                                             { "save", required_argument, NULL, 'f' },
                                             CLI_LONG_OPTIONS };
    struct arguments arguments = { 0 };
    int exit_code = parse(cli, argc, argv, options, &arguments);
    struct embtier_profile_info info;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    if (arguments.seconds <= 0 || !arguments.save_path)
        return cli_usage(cli, "%s is missing", arguments.save_path ? "--seconds" : "--save");
    exit_code = check_save_path(arguments.save_path);
    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_profile_start(cli->server, arguments.memory_bytes, &info);
    if (err)
        return cli_fail_server(cli, err);
    wait_seconds(arguments.seconds);
    return stop_and_save(cli, arguments.save_path);
}
