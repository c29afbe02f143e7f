/* SPDX-License-Identifier: Apache-2.0 */
/* embtier export, embtier import: write tables to files and read them back. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"
#include "tools/cli/table_options.h"

/* As large as most servers allow; a scan or a load takes half of it. */
#define ARENA_BYTES (16 * MIB)

enum {
    OPTION_CHECKPOINT = 256,
    OPTION_STATE,
    OPTION_ALL,
    OPTION_FORMAT,
    OPTION_FILE_BYTES,
    OPTION_AS,
    OPTION_TENSOR,
    OPTION_IDS,
    OPTION_NO_STATE,
};

/* ---- export ---- */

/* Returns -1, or the exit code of a mistake. */
static int export_option(const struct cli *cli, int option, struct embtier_export_options *options)
{
    switch (option) {
    case OPTION_CHECKPOINT:
        if (strcmp(optarg, "newest") == 0)
            options->checkpoint = EMBTIER_CHECKPOINT_NEWEST;
        else if (!number_parse_u64(optarg, &options->checkpoint) || options->checkpoint == 0)
            return cli_usage(cli,
                             "--checkpoint %s: allowed: newest, or a number from 1 on; see "
                             "'embtier checkpoint list'",
                             TEXT_SHOWN(optarg));
        return -1;
    case OPTION_STATE:
        options->with_state = 1;
        return -1;
    case OPTION_ALL:
        options->all_rows = 1;
        return -1;
    case OPTION_FORMAT:
        options->npy = strcmp(optarg, "npy") == 0;
        if (!options->npy && strcmp(optarg, "safetensors") != 0)
            return cli_usage(cli, "--format %s: allowed: safetensors, npy", TEXT_SHOWN(optarg));
        return -1;
    case OPTION_FILE_BYTES:
        if (parse_bytes(optarg, &options->file_bytes) != EMBTIER_OK || options->file_bytes == 0)
            return cli_usage(cli, "--file-bytes %s: allowed: a number of bytes such as 512MiB",
                             TEXT_SHOWN(optarg));
        return -1;
    default:
        return cli_usage(cli, "option -%c is not known here", option);
    }
}

/* Returns -1, or an exit code. TABLE and PATH are at optind. */
static int parse_export(struct cli *cli, int argc, char **argv,
                        struct embtier_export_options *options)
{
    static const struct option long_options[] = {
        { "checkpoint", required_argument, NULL, OPTION_CHECKPOINT },
        { "state", no_argument, NULL, OPTION_STATE },
        { "all-rows", no_argument, NULL, OPTION_ALL },
        { "format", required_argument, NULL, OPTION_FORMAT },
        { "file-bytes", required_argument, NULL, OPTION_FILE_BYTES },
        CLI_LONG_OPTIONS,
    };
    int exit_code = -1;
    int option;

    while ((option = cli_next_option(cli, argc, argv, long_options, &exit_code)) >= 0) {
        exit_code = export_option(cli, option, options);
        if (exit_code >= 0)
            return exit_code;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind != 2)
        return cli_usage(cli, argc - optind > 2 ? "more than a TABLE and a PATH"
                              : argc == optind  ? "TABLE and PATH are missing"
                                                : "PATH is missing");
    return -1;
}

static int print_exported(const struct cli *cli, const char *table, const char *path,
                          const struct embtier_exported *exported)
{
    struct number_text rows, bytes;

    if (cli->json)
        return cli_print_json(
            json_pack("{s:o, s:o, s:o, s:o, s:o, s:i}", "table", cli_json_text(table), "path",
                      cli_json_text(path), "checkpoint", cli_json_u64(exported->checkpoint), "rows",
                      cli_json_u64(exported->rows), "bytes", cli_json_u64(exported->bytes), "parts",
                      (int)exported->parts),
            JSON_DOUBLE_DIGITS);
    text_print(stdout, "exported table '%s' as of checkpoint %" PRIu64 ": %s row%s, %s in %s\n",
               table, exported->checkpoint, number_count(&rows, (double)exported->rows),
               PLURAL(exported->rows), number_bytes(&bytes, (double)exported->bytes), path);
    return EXIT_DONE;
}

int command_export(struct cli *cli, int argc, char **argv)
{
    struct embtier_export_options options = EMBTIER_EXPORT_OPTIONS_INIT;
    struct embtier_exported exported = { 0 };
    int exit_code = parse_export(cli, argc, argv, &options);
    struct progress_bar bar;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect_patiently(cli, ARENA_BYTES);
    if (exit_code)
        return exit_code;
    progress_bar_begin(
        &bar, "exporting",
        "the files written so far stay in PATH.partial until the next export to PATH");
    err = embtier_export(cli->server, argv[optind], argv[optind + 1], &options, progress_bar_update,
                         &bar, &exported);
    progress_bar_end(&bar);
    return err ? cli_fail_server(cli, err)
               : print_exported(cli, argv[optind], argv[optind + 1], &exported);
}

/* ---- import ---- */

struct import_arguments {
    const char *name;
    struct embtier_import_options options;
    struct table_arguments table;
};

/* Returns -1, or an exit code. PATH is at optind. */
static int parse_import(struct cli *cli, int argc, char **argv, struct import_arguments *arguments)
{
    struct table_option_name names[HYPERPARAMETER_COUNT];
    const struct option long_options[] = {
        { "as", required_argument, NULL, OPTION_AS },
        { "tensor", required_argument, NULL, OPTION_TENSOR },
        { "ids", required_argument, NULL, OPTION_IDS },
        { "no-state", no_argument, NULL, OPTION_NO_STATE },
        TABLE_LONG_OPTIONS(names) CLI_LONG_OPTIONS,
    };
    int exit_code = -1;
    int option;

    while ((option = cli_next_option(cli, argc, argv, long_options, &exit_code)) >= 0) {
        if (option == OPTION_AS)
            arguments->name = optarg;
        else if (option == OPTION_TENSOR)
            arguments->options.tensor = optarg;
        else if (option == OPTION_IDS)
            arguments->options.ids_path = optarg;
        else if (option == OPTION_NO_STATE)
            arguments->options.without_state = 1;
        else
            exit_code = table_option(cli, option, &arguments->table);
        if (exit_code >= 0)
            return exit_code;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind != 1)
        return cli_usage(cli, argc == optind ? "PATH is missing" : "more than one PATH");
    if (arguments->table.given > 0)
        arguments->options.table = &arguments->table.options;
    if (arguments->table.has_rows)
        arguments->options.rows = arguments->table.options.rows;
    arguments->options.home = arguments->table.options.home;
    arguments->options.home_tier = arguments->table.options.home_tier;
    if (arguments->table.has_durability)
        arguments->options.durability = (int)arguments->table.options.durability;
    return -1;
}

static int print_imported(const struct cli *cli, const char *path,
                          const struct embtier_imported *imported)
{
    struct number_text rows, bytes;

    if (cli->json)
        return cli_print_json(json_pack("{s:o, s:o, s:o, s:o}", "table",
                                        cli_json_text(imported->name), "path", cli_json_text(path),
                                        "rows", cli_json_u64(imported->rows), "bytes",
                                        cli_json_u64(imported->bytes)),
                              JSON_DOUBLE_DIGITS);
    text_print(stdout, "imported table '%s': %s row%s, %s\n", imported->name,
               number_count(&rows, (double)imported->rows), PLURAL(imported->rows),
               number_bytes(&bytes, (double)imported->bytes));
    return EXIT_DONE;
}

/* Changes the message of an interrupt: a server that has all rows needs no client for the rest. */
static void import_progress(void *context, uint64_t done, uint64_t total, const char *unit)
{
    if (done >= total)
        progress_bar_interrupted("the server has all rows, and the table may still appear: see "
                                 "`embtier table list`");
    progress_bar_update(context, done, total, unit);
}

int command_import(struct cli *cli, int argc, char **argv)
{
    struct import_arguments arguments = { .options = EMBTIER_IMPORT_OPTIONS_INIT,
                                          .table = TABLE_ARGUMENTS_INIT };
    struct embtier_imported imported = { .rows = 0 };
    int exit_code = parse_import(cli, argc, argv, &arguments);
    struct progress_bar bar;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect_patiently(cli, ARENA_BYTES);
    if (exit_code)
        return exit_code;
    progress_bar_begin(&bar, "importing", "the import was abandoned, and the table does not exist");
    err = embtier_import(cli->server, arguments.name, argv[optind], &arguments.options,
                         import_progress, &bar, &imported);
    progress_bar_end(&bar);
    return err ? cli_fail_server(cli, err) : print_imported(cli, argv[optind], &imported);
}
