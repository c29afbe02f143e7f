/* SPDX-License-Identifier: Apache-2.0 */
/* embtier profile show: measures how the tables of a trace were looked up. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "placement/trace/trace_reader.h"
#include "tools/cli/cli.h"
#include "tools/cli/placement/profile_report.h"
#include "tools/cli/progress_bar.h"

struct arguments {
    const char *path;
    const char *plot_path; /* NULL: no picture */
    struct cache_tiers tiers;
    enum embtier_optimizer optimizer;
};

/* ---- Options ---- */

/* Parses "4GiB" or "4GiB,16GiB". Returns -1, or the exit code of a mistake. */
static int parse_tiers(const struct cli *cli, char *text, struct cache_tiers *ret_tiers)
{
    struct cache_tiers tiers = { 0 };
    char *rest = text;
    uint64_t bytes;

    for (char *word = strsep(&rest, ","); word; word = strsep(&rest, ",")) {
        if (tiers.count == PROFILE_TIERS_MAX)
            return cli_usage(cli, "--cache: allowed: 1 to %d sizes", PROFILE_TIERS_MAX);
        if (parse_bytes(word, &bytes) != EMBTIER_OK || bytes == 0)
            return cli_usage(cli, "--cache %s: allowed: sizes above 0 such as 4GiB or 4GiB,16GiB",
                             TEXT_SHOWN(word));
        tiers.bytes[tiers.count++] = (double)bytes;
    }
    *ret_tiers = tiers;
    return -1;
}

static int parse_option(const struct cli *cli, int option, struct arguments *arguments)
{
    int optimizer;

    switch (option) {
    case 'c':
        return parse_tiers(cli, optarg, &arguments->tiers);
    case 'p':
        arguments->plot_path = optarg;
        return -1;
    default:
        optimizer = optimizer_parse(optarg);
        if (optimizer < 0)
            return cli_usage(cli, "--optimizer %s: see `embtier table create --help`",
                             TEXT_SHOWN(optarg));
        arguments->optimizer = (enum embtier_optimizer)optimizer;
        return -1;
    }
}

static int parse(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = { { "cache", required_argument, NULL, 'c' },
                                             { "optimizer", required_argument, NULL, 256 },
                                             { "plot", required_argument, NULL, 'p' },
                                             CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) >= 0) {
        exit_code = parse_option(cli, option, arguments);
        if (exit_code >= 0)
            return exit_code;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind != 1)
        return cli_usage(cli, argc == optind ? "TRACE is missing" : "more than one TRACE");
    arguments->path = argv[optind];
    return -1;
}

/* ---- The command ---- */

static enum embtier_err read_trace(struct trace_reader *reader, struct profile *profile,
                                   struct progress_bar *bar, struct err_msg *msg)
{
    const uint64_t shown_every = 16 * MIB;
    struct trace_lookups lookups;
    uint64_t shown = 0;
    bool end = false;

    for (;;) {
        TRY(trace_reader_next(reader, &lookups, &end, msg));
        if (end)
            return EMBTIER_OK;
        TRY(profile_add(profile, &lookups));
        if (trace_reader_offset(reader) - shown < shown_every)
            continue;
        shown = trace_reader_offset(reader);
        progress_bar_update(bar, shown, trace_reader_file_bytes(reader), "bytes");
    }
}

/* Returns the bytes of each table's rows, weights and state; NULL when out of memory. */
static double *row_bytes_of(const struct trace_table *tables, uint32_t count,
                            enum embtier_optimizer optimizer)
{
    double *const bytes = calloc(count, sizeof(*bytes));

    for (uint32_t i = 0; bytes && i < count; i++) {
        const struct table_spec spec = { .dim = tables[i].dim,
                                         .dtype = tables[i].dtype,
                                         .optimizer = optimizer };

        bytes[i] = (double)table_spec_weight_bytes(&spec) + table_spec_state_bytes(&spec);
    }
    return bytes;
}

static enum embtier_err make_report(const struct arguments *arguments, struct trace_reader *reader,
                                    struct profile_report *ret_report, struct err_msg *msg)
{
    _cleanup_(profile_freep) struct profile *profile = NULL;
    _cleanup_(freep) double *row_bytes = NULL;
    struct progress_bar bar;
    uint32_t count;
    const struct trace_table *const tables = trace_reader_tables(reader, &count);
    enum embtier_err err;

    TRY(profile_new(count, PROFILE_MEMORY_BYTES_DEFAULT, &profile, msg));
    progress_bar_begin(&bar, "reading", "nothing was changed");
    err = read_trace(reader, profile, &bar, msg);
    progress_bar_end(&bar);
    TRY(err);
    row_bytes = row_bytes_of(tables, count, arguments->optimizer);
    if (!row_bytes)
        return EMBTIER_NO_MEMORY;
    return profile_report_make(profile, arguments->path, tables, row_bytes, &arguments->tiers,
                               ret_report, msg);
}

static int print_report(const struct cli *cli, const struct profile_report *report)
{
    if (cli->json)
        return cli_print_json(profile_report_json(report), JSON_DOUBLE_DIGITS);
    return profile_report_print(report) ? EXIT_DONE : cli_fail(EMBTIER_NO_MEMORY, "");
}

int command_profile_show(struct cli *cli, int argc, char **argv)
{
    _cleanup_(trace_reader_freep) struct trace_reader *reader = NULL;
    struct arguments arguments = { .optimizer = EMBTIER_OPTIMIZER_NONE };
    int exit_code = parse(cli, argc, argv, &arguments);
    struct profile_report report = { 0 };
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    err = trace_reader_open(arguments.path, &reader, &msg);
    if (err == EMBTIER_OK)
        err = make_report(&arguments, reader, &report, &msg);
    if (err == EMBTIER_OK && arguments.plot_path)
        err = profile_report_plot(&report, arguments.plot_path, &msg);
    exit_code = err ? cli_fail(err, msg.text) : print_report(cli, &report);
    profile_report_clear(&report);
    return exit_code;
}
