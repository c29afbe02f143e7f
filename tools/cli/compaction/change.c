/* SPDX-License-Identifier: Apache-2.0 */
/* embtier compaction pause, resume, schedule and run. */
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "base/spec/day_hours.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/progress_bar.h"

enum { OPTION_FULL = 256 };

static int put_off(struct cli *cli, int argc, char **argv, bool is_put_off)
{
    int exit_code = cli_arguments(cli, argc, argv, 0, 0);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_compaction_put_off(cli->server, is_put_off);
    if (err != EMBTIER_OK)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(json_pack("{s:b}", "paused", is_put_off), JSON_DOUBLE_DIGITS);
    puts(is_put_off ? "compaction is paused; shards near the limit at which they take no more "
                      "updates compact all the same"
                    : "compaction goes on");
    return EXIT_DONE;
}

int command_compaction_pause(struct cli *cli, int argc, char **argv)
{
    return put_off(cli, argc, argv, true);
}

int command_compaction_resume(struct cli *cli, int argc, char **argv)
{
    return put_off(cli, argc, argv, false);
}

int command_compaction_schedule(struct cli *cli, int argc, char **argv)
{
    struct err_msg msg = { { 0 } };
    struct day_hours hours;
    int exit_code = cli_arguments(cli, argc, argv, 1, 1);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    if (day_hours_parse(argv[optind], &hours, &msg) != EMBTIER_OK)
        return cli_usage(cli, "HOURS %s", msg.text);
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_compaction_set_hours(cli->server, argv[optind]);
    if (err != EMBTIER_OK)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(json_pack("{s:s}", "hours", argv[optind]), JSON_DOUBLE_DIGITS);
    printf("shards compact at %s until the server's next start; the key "
           "rocksdb.compaction_hours keeps it\n",
           argv[optind][0] != '\0' ? argv[optind] : "any time");
    return EXIT_DONE;
}

/* Parses --full. Returns -1 to continue, or the exit code. */
static int run_arguments(struct cli *cli, int argc, char **argv, bool *ret_full)
{
    static const struct option options[] = { { "full", no_argument, NULL, OPTION_FULL },
                                             CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) == OPTION_FULL)
        *ret_full = true;
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc > optind)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind]));
    return -1;
}

int command_compaction_run(struct cli *cli, int argc, char **argv)
{
    struct progress_bar bar;
    bool full = false;
    int exit_code = run_arguments(cli, argc, argv, &full);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect_patiently(cli, 0);
    if (exit_code)
        return exit_code;
    progress_bar_begin(&bar, "compacting", "the rest compacts as before");
    err = full ? embtier_compaction_rewrite(cli->server, progress_bar_update, &bar)
               : embtier_compaction_run(cli->server, progress_bar_update, &bar);
    progress_bar_end(&bar);
    if (err != EMBTIER_OK)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(json_pack("{s:b}", "done", 1), JSON_DOUBLE_DIGITS);
    puts(full ? "all files have been rewritten" : "all shards have compacted");
    return EXIT_DONE;
}
