/* SPDX-License-Identifier: Apache-2.0 */
/* embtier profile show: measures how the tables of a trace were looked up. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "placement/profile/profile_file.h"
#include "placement/trace/trace_reader.h"
#include "tools/cli/cli.h"
#include "tools/cli/placement/profile_report.h"
#include "tools/cli/progress_bar.h"

enum { OPTIMIZER = 256, SAVE };

struct arguments {
    const char *path;
    const char *plot_path; /* NULL: no picture */
    const char *save_path; /* NULL: not saved */
    struct cache_tiers tiers;
    bool has_optimizer;
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
        if (tiers.count == CACHE_TIERS_MAX)
            return cli_usage(cli, "--cache: allowed: 1 to %d sizes", CACHE_TIERS_MAX);
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
    case SAVE:
        arguments->save_path = optarg;
        return -1;
    default:
        optimizer = optimizer_parse(optarg);
        if (optimizer < 0)
            return cli_usage(cli, "--optimizer %s: see `embtier table create --help`",
                             TEXT_SHOWN(optarg));
        arguments->has_optimizer = true;
        arguments->optimizer = (enum embtier_optimizer)optimizer;
        return -1;
    }
}

static int parse(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = { { "cache", required_argument, NULL, 'c' },
                                             { "optimizer", required_argument, NULL, OPTIMIZER },
                                             { "plot", required_argument, NULL, 'p' },
                                             { "save", required_argument, NULL, SAVE },
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

static enum embtier_err measure(const char *path, struct measured_profile **ret_measured,
                                struct err_msg *msg)
{
    _cleanup_(trace_reader_freep) struct trace_reader *reader = NULL;
    _cleanup_(profile_freep) struct profile *profile = NULL;
    const struct trace_table *tables;
    struct progress_bar bar;
    enum embtier_err err;
    uint32_t count;

    TRY(trace_reader_open(path, &reader, msg));
    tables = trace_reader_tables(reader, &count);
    TRY(profile_new(tables, count, PROFILE_MEMORY_BYTES_DEFAULT, &profile, msg));
    progress_bar_begin(&bar, "reading", "nothing was changed");
    err = read_trace(reader, profile, &bar, msg);
    progress_bar_end(&bar);
    TRY(err);
    return measured_profile_make(profile, tables, ret_measured);
}

/* True for a file that begins as a saved profile does. A pipe is a trace. */
static bool is_saved(const char *path)
{
    struct stat info;
    FILE *file;
    int letter;

    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return false;
    file = fopen(path, "re");
    if (!file)
        return false;
    letter = fgetc(file);
    (void)fclose(file);
    return letter == '{';
}

/* Returns the bytes of each table's rows, weights and state; NULL when out of memory. */
static double *row_bytes_of(const struct measured_profile *measured,
                            const struct arguments *arguments)
{
    double *const bytes = calloc(measured->table_count, sizeof(*bytes));

    for (uint32_t i = 0; bytes && i < measured->table_count; i++) {
        const struct measured_table *const table = &measured->tables[i];
        const struct table_spec spec = { .dim = table->table.dim,
                                         .dtype = table->table.dtype,
                                         .optimizer = arguments->has_optimizer
                                                          ? arguments->optimizer
                                                          : table->optimizer };

        bytes[i] = (double)table_spec_weight_bytes(&spec) + table_spec_state_bytes(&spec);
    }
    return bytes;
}

/* Reading a trace may take long, so this is asked before. */
static enum embtier_err check_save_path(const char *path, struct err_msg *msg)
{
    struct stat info;

    if (path && lstat(path, &info) == 0)
        return err_set(msg, EMBTIER_EXISTS, "%s already exists", path);
    return EMBTIER_OK;
}

/* Writes the files that were asked for. The profile comes last: a run that failed can be repeated
 * with the same options, as it left no profile, and a picture may be replaced. */
static enum embtier_err write_files(const struct arguments *arguments,
                                    const struct profile_report *report, struct err_msg *msg)
{
    if (arguments->plot_path)
        TRY(profile_report_plot(report, arguments->plot_path, msg));
    if (arguments->save_path)
        TRY(profile_file_save(report->measured, arguments->save_path, msg));
    return EMBTIER_OK;
}

static enum embtier_err make_report(const struct arguments *arguments,
                                    const struct measured_profile *measured,
                                    struct profile_report *ret_report, struct err_msg *msg)
{
    _cleanup_(freep) double *row_bytes = row_bytes_of(measured, arguments);

    if (!row_bytes)
        return EMBTIER_NO_MEMORY;
    return profile_report_make(measured, arguments->path, row_bytes, &arguments->tiers, ret_report,
                               msg);
}

static int print_report(const struct cli *cli, const struct profile_report *report)
{
    if (cli->json)
        return cli_print_json(profile_report_json(report), JSON_DOUBLE_DIGITS);
    return profile_report_print(report) ? EXIT_DONE : cli_fail(EMBTIER_NO_MEMORY, "");
}

int command_profile_show(struct cli *cli, int argc, char **argv)
{
    _cleanup_(measured_profile_freep) struct measured_profile *measured = NULL;
    struct arguments arguments = { .path = "", .optimizer = EMBTIER_OPTIMIZER_NONE };
    int exit_code = parse(cli, argc, argv, &arguments);
    struct profile_report report = { 0 };
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    err = check_save_path(arguments.save_path, &msg);
    if (err == EMBTIER_OK)
        err = is_saved(arguments.path) ? profile_file_load(arguments.path, &measured, &msg)
                                       : measure(arguments.path, &measured, &msg);
    if (err == EMBTIER_OK)
        err = make_report(&arguments, measured, &report, &msg);
    if (err == EMBTIER_OK)
        err = write_files(&arguments, &report, &msg);
    exit_code = err ? cli_fail(err, msg.text) : print_report(cli, &report);
    profile_report_clear(&report);
    return exit_code;
}
