/* SPDX-License-Identifier: Apache-2.0 */
/* embtier plan show, diff: look at plans. */
#include <jansson.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "placement/plan/plan_file.h"
#include "tools/cli/cli.h"
#include "tools/cli/placement/plan_picture.h"
#include "tools/cli/placement/plan_report.h"

/* @printed: false when out of memory. */
static int exit_code_of(bool printed)
{
    return printed ? EXIT_DONE : cli_fail(EMBTIER_NO_MEMORY, "");
}

/* ---- plan show ---- */

struct show_arguments {
    const char *path;
    const char *table;    /* NULL: all */
    const char *svg_path; /* NULL: no picture */
};

/* Returns -1, or the exit code. */
static int parse_show(struct cli *cli, int argc, char **argv, struct show_arguments *ret_arguments)
{
    enum { TABLE = 256, SVG };
    static const struct option options[] = { { "table", required_argument, NULL, TABLE },
                                             { "svg", required_argument, NULL, SVG },
                                             CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) >= 0)
        *(option == TABLE ? &ret_arguments->table : &ret_arguments->svg_path) = optarg;
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind != 1)
        return cli_usage(cli, argc == optind ? "FILE is missing" : "more than one FILE");
    ret_arguments->path = argv[optind];
    return -1;
}

static const struct plan_table *find_table(const struct plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->table_count; i++)
        if (strcmp(plan->tables[i].name, name) == 0)
            return &plan->tables[i];
    return NULL;
}

static enum embtier_err find_shown(const struct plan *plan, const struct show_arguments *arguments,
                                   const struct plan_table **ret_table, struct err_msg *msg)
{
    if (!arguments->table)
        return EMBTIER_OK;
    *ret_table = find_table(plan, arguments->table);
    if (!*ret_table)
        return err_set(msg, EMBTIER_NO_TABLE, "%s: no table has the name '%s'", arguments->path,
                       TEXT_SHOWN(arguments->table));
    return EMBTIER_OK;
}

static int show(const struct cli *cli, const struct plan *plan, const struct plan_table *table,
                const char *path)
{
    if (cli->json)
        return cli_print_json(table ? plan_report_table_json(plan, table) : plan_report_json(plan),
                              JSON_DOUBLE_DIGITS);
    return exit_code_of(table ? plan_report_print_table(plan, table)
                              : plan_report_print(plan, path));
}

int command_plan_show(struct cli *cli, int argc, char **argv)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;
    struct show_arguments arguments = { 0 };
    const int exit_code = parse_show(cli, argc, argv, &arguments);
    const struct plan_table *table = NULL;
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    err = plan_file_load(arguments.path, &plan, &msg);
    if (err == EMBTIER_OK)
        err = find_shown(plan, &arguments, &table, &msg);
    if (err == EMBTIER_OK && arguments.svg_path)
        err = plan_picture_write(plan, arguments.svg_path, &msg);
    return err ? cli_fail(err, msg.text) : show(cli, plan, table, arguments.path);
}

/* ---- plan diff ---- */

int command_plan_diff(struct cli *cli, int argc, char **argv)
{
    _cleanup_(plan_freep) struct plan *before = NULL;
    _cleanup_(plan_freep) struct plan *after = NULL;
    _cleanup_(plan_diff_freep) struct plan_diff *diff = NULL;
    const int exit_code = cli_arguments(cli, argc, argv, 2, 2);
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    err = plan_file_load(argv[optind], &before, &msg);
    if (err == EMBTIER_OK)
        err = plan_file_load(argv[optind + 1], &after, &msg);
    if (err == EMBTIER_OK)
        err = plan_diff_new(before, after, &diff);
    if (err != EMBTIER_OK)
        return cli_fail(err, msg.text);
    if (cli->json)
        return cli_print_json(plan_report_diff_json(before, after, diff), JSON_DOUBLE_DIGITS);
    return exit_code_of(plan_report_print_diff(before, after, diff));
}
