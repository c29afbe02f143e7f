/* SPDX-License-Identifier: Apache-2.0 */
/* `embtier table move`: moves a table to another home, and shows how far that is. */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "base/spec/table_spec.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/hot_rows.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"

enum { OPTION_HOME = 256, OPTION_TIER, OPTION_RATE, OPTION_HOT_ROWS };

static const struct option options_long[] = {
    { "home", required_argument, NULL, OPTION_HOME },
    { "tier", required_argument, NULL, OPTION_TIER },
    { "rate", required_argument, NULL, OPTION_RATE },
    { "hot-rows", required_argument, NULL, OPTION_HOT_ROWS },
    CLI_LONG_OPTIONS,
};

#define GOES_BACK                                                                                  \
    "the server moves the rows back, unless all have just moved: see `embtier jobs` and "          \
    "`embtier table show`"

struct arguments {
    struct embtier_move_options options;
    bool has_home;
    const char *hot_path; /* NULL: not given */
};

/* Returns the bytes of @text MiB, at least one; 0: that is no such number. */
static uint64_t parse_rate(const char *text)
{
    const double most = (double)(UINT64_C(1) << 62);
    double mib;

    if (!number_is_double(text, &mib) || !(mib > 0) || mib * MIB > most)
        return 0;
    return MAX((uint64_t)(mib * MIB), UINT64_C(1));
}

/* -1: continue. Else the exit code. */
static int read_option(struct cli *cli, int option, struct arguments *arguments)
{
    int home;

    switch (option) {
    case OPTION_HOME:
        home = home_parse(optarg);
        if (home < 0)
            return cli_usage(cli, "--home %s: allowed: cache, array, split", TEXT_SHOWN(optarg));
        arguments->options.home = (enum embtier_home)home;
        arguments->has_home = true;
        return -1;
    case OPTION_TIER:
        arguments->options.home_tier = optarg;
        return -1;
    case OPTION_HOT_ROWS:
        arguments->hot_path = optarg;
        return -1;
    default:
        arguments->options.rate_bytes = parse_rate(optarg);
        if (arguments->options.rate_bytes == 0)
            return cli_usage(cli, "--rate %s: allowed: a number of MiB a second above 0",
                             TEXT_SHOWN(optarg));
        return -1;
    }
}

static int read_arguments(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    int exit_code = 0;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options_long, &exit_code)) >= 0) {
        exit_code = read_option(cli, option, arguments);
        if (exit_code >= 0)
            return exit_code;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (optind + 1 != argc)
        return cli_usage(cli, "one table's name is wanted");
    if (!arguments->has_home)
        return cli_usage(cli, "--home is missing: cache, array or split");
    if ((arguments->options.home == EMBTIER_HOME_SPLIT) != (arguments->hot_path != NULL))
        return cli_usage(cli, arguments->hot_path ? "--hot-rows is for --home split only"
                                                  : "--home split needs --hot-rows FILE");
    return -1;
}

/* Reads the hot rows, if the new home has some. */
static enum embtier_err read_hot_rows(struct arguments *arguments, uint64_t **ret_ids,
                                      struct err_msg *msg)
{
    if (!arguments->hot_path)
        return EMBTIER_OK;
    TRY(hot_rows_read_file(arguments->hot_path, ret_ids, &arguments->options.hot_row_count, msg));
    arguments->options.hot_rows = *ret_ids;
    return EMBTIER_OK;
}

static int print_moved(const struct cli *cli, const char *name,
                       const struct embtier_moved_info *moved)
{
    const struct embtier_table_info *info;
    struct embtier_table *table;
    struct number_text rows;
    enum embtier_err err = embtier_table_open(cli->server, name, &table);

    if (err)
        return cli_fail_server(cli, err);
    info = embtier_table_info(table);
    if (cli->json)
        return cli_print_json(json_pack("{s:o, s:s, s:s, s:o, s:b}", "table", cli_json_text(name),
                                        "home", home_word(info->home), "tier", info->home_tier,
                                        "rows", cli_json_u64(moved->rows), "was_there",
                                        moved->was_there),
                              JSON_DOUBLE_DIGITS);
    if (moved->was_there)
        text_print(stdout, "table '%s' has home %s%s%s already\n", name, home_word(info->home),
                   info->home_tier[0] ? " in tier " : "", info->home_tier);
    else
        text_print(stdout, "moved table '%s' to home %s%s%s: %s rows were in memory\n", name,
                   home_word(info->home), info->home_tier[0] ? " in tier " : "", info->home_tier,
                   number_count(&rows, (double)moved->rows));
    return EXIT_DONE;
}

int command_table_move(struct cli *cli, int argc, char **argv)
{
    struct arguments arguments = { .options = EMBTIER_MOVE_OPTIONS_INIT };
    struct embtier_moved_info moved = { 0 };
    int exit_code = read_arguments(cli, argc, argv, &arguments);
    _cleanup_(freep) uint64_t *hot_ids = NULL;
    struct err_msg msg = { { 0 } };
    enum embtier_err err;
    struct progress_bar bar;
    const char *name;

    if (exit_code >= 0)
        return exit_code;
    name = argv[optind];
    err = read_hot_rows(&arguments, &hot_ids, &msg);
    if (err)
        return cli_fail(err, msg.text);
    exit_code = cli_connect_patiently(cli, hot_rows_arena_bytes(arguments.options.hot_row_count));
    if (exit_code)
        return exit_code;
    progress_bar_begin(&bar, "moving", GOES_BACK);
    arguments.options.progress = progress_bar_update;
    arguments.options.progress_context = &bar;
    err = embtier_table_move(cli->server, name, &arguments.options, &moved);
    progress_bar_end(&bar);
    return err ? cli_fail_server(cli, err) : print_moved(cli, name, &moved);
}
