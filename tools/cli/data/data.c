/* SPDX-License-Identifier: Apache-2.0 */
/* embtier data …: lists the data directories of a running server, adds one, removes one. */
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/row_hash.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"
#include "tools/cli/text_table.h"

#define RATE_MIB 64 /* unless another is given */

enum { OPTION_RATE = 256, OPTION_DELETE };

struct arguments {
    const char *path;
    uint64_t rate_bytes;
    int deletes_checkpoints;
};

/* -1: continue. Else the exit code. */
static int read_arguments(struct cli *cli, int argc, char **argv, bool removes,
                          struct arguments *arguments)
{
    static const struct option options[] = { { "delete-checkpoints", no_argument, NULL,
                                               OPTION_DELETE }, /* of removals only */
                                             { "rate", required_argument, NULL, OPTION_RATE },
                                             CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options + !removes, &exit_code)) >= 0) {
        if (option == OPTION_RATE && !number_parse_rate(optarg, &arguments->rate_bytes))
            return cli_usage(cli, "--rate %s: allowed: a number of MiB a second, or 0",
                             TEXT_SHOWN(optarg));
        arguments->deletes_checkpoints |= option == OPTION_DELETE;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc <= optind)
        return cli_usage(cli, "DIR is missing: an absolute path on the server's machine");
    if (argc > optind + 1)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind + 1]));
    arguments->path = argv[optind];
    if (arguments->path[0] != '/')
        return cli_usage(cli, "%s is relative; allowed: an absolute path on the server's machine",
                         TEXT_SHOWN(arguments->path));
    return -1;
}

/* ---- Output ---- */

static bool shares(const struct embtier_data_list *list, size_t index)
{
    const uint32_t device = embtier_data_list_at(list, index)->device;

    for (size_t i = 0; i < embtier_data_list_count(list); i++)
        if (i != index && embtier_data_list_at(list, i)->device == device)
            return true;
    return false;
}

static json_t *directory_json(const struct embtier_data_directory *directory)
{
    return json_pack(
        "{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "number", (json_int_t)directory->number, "path",
        directory->path, "shards", (json_int_t)directory->shards, "buckets",
        (json_int_t)directory->buckets, "stored_bytes", (json_int_t)directory->stored_bytes,
        "free_bytes", (json_int_t)directory->free_bytes, "capacity_bytes",
        (json_int_t)directory->capacity_bytes, "device", (json_int_t)directory->device);
}

static json_t *order_json(const struct embtier_data_order *order)
{
    const bool adds = order->adds[0] != '\0';

    if (!adds && order->removes[0] == '\0')
        return json_null();
    return json_pack("{s:s, s:s, s:b, s:I, s:I}", "what", adds ? "add" : "remove", "path",
                     adds ? order->adds : order->removes, "runs", order->runs, "moved",
                     (json_int_t)order->moved, "total", (json_int_t)order->total);
}

static int print_json(const struct embtier_data_list *list)
{
    json_t *const array = json_array();

    for (size_t i = 0; i < embtier_data_list_count(list); i++)
        (void)json_array_append_new(array, directory_json(embtier_data_list_at(list, i)));
    return cli_print_json(json_pack("{s:o, s:o}", "directories", array, "order",
                                    order_json(embtier_data_list_order(list))),
                          JSON_DOUBLE_DIGITS);
}

static void print_order(const struct embtier_data_order *order)
{
    const bool adds = order->adds[0] != '\0';
    const char *const path = adds ? order->adds : order->removes;

    if (path[0] == '\0')
        return;
    if (order->runs)
        printf("%s is being %s: %" PRIu32 " of %" PRIu32
               " buckets have moved (`embtier jobs` lists the job)\n",
               TEXT_SHOWN(path), adds ? "added" : "removed", order->moved, order->total);
    else
        printf("%s is not yet %s: give the command again, or the next start goes on with it\n",
               TEXT_SHOWN(path), adds ? "added" : "removed");
}

static int print(const struct cli *cli, const struct embtier_data_list *list)
{
    _cleanup_(text_table_freep) struct text_table *table = text_table_new("rlrrrrl");
    struct number_text a, b;
    static const char *const titles[] = { "NUMBER", "DIRECTORY", "SHARDS",     "ROWS",
                                          "STORED", "FREE",      "FILE SYSTEM" };
    bool is_whole = table != NULL;

    if (cli->json)
        return print_json(list);
    for (size_t i = 0; is_whole && i < ARRAY_LEN(titles); i++)
        is_whole = text_table_add(table, "%s", titles[i]);
    for (size_t i = 0; is_whole && i < embtier_data_list_count(list); i++) {
        const struct embtier_data_directory *const d = embtier_data_list_at(list, i);

        is_whole = text_table_add(table, "%" PRIu32, d->number) &&
                   text_table_add(table, "%s", d->path) &&
                   text_table_add(table, "%" PRIu32, d->shards) &&
                   text_table_add(table, "%.1f %%", 100.0 * d->buckets / ROW_BUCKETS) &&
                   text_table_add(table, "%s", number_bytes(&a, d->stored_bytes)) &&
                   text_table_add(table, "%s", number_bytes(&b, d->free_bytes)) &&
                   text_table_add(table, "%s", shares(list, i) ? "shared" : "its own");
    }
    if (!is_whole)
        return cli_fail(EMBTIER_NO_MEMORY, "out of memory");
    text_table_print(table, 0, stdout);
    print_order(embtier_data_list_order(list));
    return EXIT_DONE;
}

/* ---- Commands ---- */

int command_data_list(struct cli *cli, int argc, char **argv)
{
    struct embtier_data_list *list = NULL;
    int exit_code = cli_arguments(cli, argc, argv, 0, 0);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_data_list(cli->server, &list);
    if (err != EMBTIER_OK)
        return cli_fail_server(cli, err);
    exit_code = print(cli, list);
    embtier_data_list_free(list);
    return exit_code;
}

static int run(struct cli *cli, int argc, char **argv, bool removes)
{
    struct arguments arguments = { .rate_bytes = RATE_MIB * MIB };
    struct embtier_data_list *list = NULL;
    struct progress_bar bar;
    int exit_code = read_arguments(cli, argc, argv, removes, &arguments);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect_patiently(cli, 0);
    if (exit_code)
        return exit_code;
    progress_bar_begin(&bar, "moving", "the server goes on: see `embtier data list`");
    err = removes ? embtier_data_remove(cli->server, arguments.path, arguments.deletes_checkpoints,
                                        arguments.rate_bytes, progress_bar_update, &bar, &list)
                  : embtier_data_add(cli->server, arguments.path, arguments.rate_bytes,
                                     progress_bar_update, &bar, &list);
    progress_bar_end(&bar);
    if (err != EMBTIER_OK)
        return cli_fail_server(cli, err);
    exit_code = print(cli, list);
    embtier_data_list_free(list);
    if (!cli->json && removes)
        printf("%s is no part of the store any more. Take it out of data.directories, and restart "
               "the\nserver: until then it has files open there. Then the drive can be taken "
               "away, or the\ndirectory be deleted. Old rows are in its files until then.\n",
               TEXT_SHOWN(arguments.path));
    else if (!cli->json)
        printf("Add %s to data.directories: until then each start warns.\n",
               TEXT_SHOWN(arguments.path));
    return exit_code;
}

int command_data_add(struct cli *cli, int argc, char **argv)
{
    return run(cli, argc, argv, false);
}

int command_data_remove(struct cli *cli, int argc, char **argv)
{
    return run(cli, argc, argv, true);
}
