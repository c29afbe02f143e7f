/* SPDX-License-Identifier: Apache-2.0 */
/* embtier size: the memory and SSD that tables take, without a server. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/text/text_escape.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/size/report.h"
#include "tools/cli/size/specs.h"
#include "tools/cli/table_options.h"

#define COPIES_MAX 100000

/* Values beside those of table_options.h. */
enum { OPTION_TABLES = UCHAR_MAX + 1, OPTION_COPIES };

void help_size(FILE *out)
{
    fputs(
        "\n"
        "Needs no server. IN CACHE: memory to hold all rows in the cache; ARRAY: memory of home\n"
        "array. SSD: rows with keys, indexes and filters, once all are written and compacted.\n"
        "More while rows change: old versions, as rocksdb.layout lets them gather, new files, and\n"
        "a compaction's output. A checkpoint takes as much again as rows change until it is\n"
        "deleted. Rows that were never updated are not on SSD. Rows are stored uncompressed; "
        "rocksdb.options, which can change\n"
        "that, are not looked at.\n"
        "\n"
        "Memory with all rows written: without arenas of clients. Tiers in files are not counted.\n"
        "Exit status: 0, or 1 if the configuration or this machine is too small.\n"
        "\n"
        "With -o json: {tables: [{name, rows, dim, dtype, optimizer, home, tier, row_bytes,\n"
        "array_bytes, cached_bytes, ssd_bytes, ssd_data_bytes, ssd_index_bytes,\n"
        "ssd_filter_bytes, ssd_blob_bytes}], tiers: [{name, bytes, array_bytes,\n"
        "array_needed_bytes, in_memory}],\n"
        "cache: {capacity_bytes, needed_bytes}, memory: {tier_bytes, request_bytes, lane_bytes,\n"
        "program_bytes, start_bytes, memtable_bytes, metadata_bytes, lane_heap_bytes,\n"
        "loaded_bytes, session_bytes, most_bytes}, machine_memory_bytes, ssd: {row_bytes,\n"
        "database_bytes, reserve_bytes, bytes, working_bytes}, free_bytes, fits, lacks: [TEXT]};\n"
        "start_bytes, loaded_bytes and bytes are sums of those before them.\n",
        out);
}

struct arguments {
    struct table_arguments table; /* @options.dim is 0 if there are no options of one */
    const char *config_path;
    const char *tables_path;
    uint64_t copies;
};

/* Returns -1, or an exit code. */
static int take_option(const struct cli *cli, int option, struct arguments *arguments)
{
    switch (option) {
    case 'c':
        arguments->config_path = optarg;
        return -1;
    case OPTION_TABLES:
        arguments->tables_path = optarg;
        return -1;
    case OPTION_COPIES:
        if (number_parse_u64(optarg, &arguments->copies) && arguments->copies >= 1 &&
            arguments->copies <= COPIES_MAX)
            return -1;
        return cli_usage(cli, "--copies %s: allowed: 1 to %d", TEXT_SHOWN(optarg), COPIES_MAX);
    default:
        return table_option(cli, option, &arguments->table);
    }
}

static int check_arguments(const struct cli *cli, const struct arguments *arguments)
{
    const bool has_one = arguments->table.has_rows || arguments->table.options.dim > 0;

    if (!has_one && !arguments->tables_path)
        return cli_usage(cli, "there are no tables: give --rows and --dim, or --tables FILE");
    if (has_one && (!arguments->table.has_rows || arguments->table.options.dim == 0))
        return cli_usage(cli, "--%s is missing", arguments->table.has_rows ? "dim" : "rows");
    return -1;
}

static int parse(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = {
        { "config", required_argument, NULL, 'c' },
        { "tables", required_argument, NULL, OPTION_TABLES },
        { "copies", required_argument, NULL, OPTION_COPIES },
        { "rows", required_argument, NULL, 'r' },
        { "dim", required_argument, NULL, 'd' },
        { "dtype", required_argument, NULL, TABLE_OPTION_DTYPE },
        { "optimizer", required_argument, NULL, TABLE_OPTION_OPTIMIZER },
        { "durability", required_argument, NULL, TABLE_OPTION_DURABILITY },
        { "home", required_argument, NULL, TABLE_OPTION_HOME },
        { "tier", required_argument, NULL, TABLE_OPTION_TIER },
        CLI_LONG_OPTIONS
    };
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) >= 0) {
        exit_code = take_option(cli, option, arguments);
        if (exit_code >= 0)
            return exit_code;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind > 1)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind + 1]));
    arguments->table.options.name = argc > optind ? argv[optind] : "table";
    return check_arguments(cli, arguments);
}

static enum embtier_err collect(const struct arguments *arguments, struct specs *specs,
                                struct err_msg *msg)
{
    if (arguments->tables_path)
        TRY(specs_read(specs, arguments->tables_path, msg));
    if (arguments->table.has_rows)
        TRY(specs_add(specs, &arguments->table.options, (size_t)arguments->copies, msg));
    return EMBTIER_OK;
}

/* Returns the bytes that are free in the data directories, each file system once. UINT64_MAX: one
 * of them is not there. */
static uint64_t free_bytes(const struct config *config)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < config->data.directory_count; i++) {
        struct statvfs space;
        struct stat own, other;
        bool is_counted = false;

        if (stat(config->data.directories[i], &own) != 0 ||
            statvfs(config->data.directories[i], &space) != 0)
            return UINT64_MAX;
        for (uint32_t j = 0; j < i; j++)
            is_counted = is_counted || (stat(config->data.directories[j], &other) == 0 &&
                                        own.st_dev == other.st_dev);
        if (!is_counted)
            sum += (uint64_t)space.f_bavail * space.f_frsize;
    }
    return sum;
}

int command_size(struct cli *cli, int argc, char **argv)
{
    struct arguments arguments = { .table = TABLE_ARGUMENTS_INIT, .copies = 1 };
    _cleanup_(config_freep) struct config *config = NULL;
    _cleanup_(specs_clear) struct specs specs = { NULL, 0, 0 };
    struct err_msg msg = { { 0 } };
    struct sizes sizes;
    enum embtier_err err;
    int exit_code;

    arguments.table.options.dim = 0;
    exit_code = parse(cli, argc, argv, &arguments);
    if (exit_code >= 0)
        return exit_code;
    err = collect(&arguments, &specs, &msg);
    if (err == EMBTIER_OK)
        err = config_load(arguments.config_path, budget_unbudgeted, &config, &msg);
    if (err != EMBTIER_OK)
        return cli_fail(err, msg.text);
    sizes_make(config, specs.tables, specs.count, &sizes);
    return report_print(cli, &sizes, free_bytes(config));
}
