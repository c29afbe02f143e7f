/* SPDX-License-Identifier: Apache-2.0 */
/* embtier trace hottest: the rows of a table that a trace looks up most often. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/system/new_file.h"
#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "client/files/tensor_file.h"
#include "placement/hot/hottest.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"

#define ROWS_DEFAULT 100000
/* Rows that are printed as text. */
#define SHOWN_ROWS   10
#define SAVED_SUFFIX ".safetensors"

enum { TABLE = 256, ROWS, MEMORY, SAVE };

struct arguments {
    const char *path;
    const char *save_path; /* NULL: not saved */
    struct hottest_opts opts;
};

/* ---- Options ---- */

static const struct option options[] = { { "table", required_argument, NULL, TABLE },
                                         { "rows", required_argument, NULL, ROWS },
                                         { "memory", required_argument, NULL, MEMORY },
                                         { "save", required_argument, NULL, SAVE },
                                         CLI_LONG_OPTIONS };

static bool ends_as_saved(const char *path)
{
    const size_t length = strlen(path), suffix = strlen(SAVED_SUFFIX);

    return length > suffix && path[length - suffix - 1] != '/' &&
           strcmp(path + length - suffix, SAVED_SUFFIX) == 0;
}

/* Returns -1, or the exit code of a mistake. */
static int parse_option(const struct cli *cli, int option, struct arguments *arguments)
{
    struct hottest_opts *const opts = &arguments->opts;

    switch (option) {
    case TABLE:
        opts->table = optarg;
        return -1;
    case ROWS:
        if (!number_parse_u64(optarg, &opts->rows) || opts->rows == 0)
            return cli_usage(cli, "--rows %s: allowed: whole numbers above 0", TEXT_SHOWN(optarg));
        return -1;
    case MEMORY:
        if (parse_bytes(optarg, &opts->memory_bytes) != EMBTIER_OK ||
            opts->memory_bytes < HOTTEST_MEMORY_BYTES_MIN)
            return cli_usage(cli, "--memory %s: allowed: sizes of at least 64KiB, such as 4GiB",
                             TEXT_SHOWN(optarg));
        return -1;
    default:
        if (!ends_as_saved(optarg))
            return cli_usage(cli, "--save %s: allowed: a file whose name ends with " SAVED_SUFFIX,
                             TEXT_SHOWN(optarg));
        arguments->save_path = optarg;
        return -1;
    }
}

/* Returns -1, or the exit code. */
static int parse(struct cli *cli, int argc, char **argv, struct arguments *arguments)
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
    if (argc - optind != 1)
        return cli_usage(cli, argc == optind ? "TRACE is missing" : "more than one TRACE");
    if (!arguments->opts.table)
        return cli_usage(cli, "--table is missing");
    arguments->path = argv[optind];
    return -1;
}

/* ---- The saved rows ---- */

/* Counting may take long, so this is asked before. */
static enum embtier_err check_save_path(const char *path, struct err_msg *msg)
{
    struct stat info;

    if (path && lstat(path, &info) == 0)
        return err_set(msg, EMBTIER_EXISTS, "%s already exists", path);
    return EMBTIER_OK;
}

static enum embtier_err write_rows(int fd, const char *path, const struct hot_rows *hot,
                                   struct err_msg *msg)
{
    const struct tensor tensors[] = { { .name = "ids", .dtype = TENSOR_U64 },
                                      { .name = "lookups", .dtype = TENSOR_U64 } };
    const struct tensor_writer_opts opts = { .fd = fd,
                                             .path = path,
                                             .format = TENSOR_SAFETENSORS,
                                             .tensors = tensors,
                                             .tensor_count = ARRAY_LEN(tensors),
                                             .most_rows = MAX(hot->count, (uint64_t)1) };
    const char *const metadata[] = { "table", hot->table.name, NULL };
    _cleanup_(tensor_writer_freep) struct tensor_writer *writer = NULL;
    struct tensor_written written;

    TRY(tensor_writer_new(&opts, &writer, msg));
    for (uint64_t i = 0; i < hot->count; i++) {
        TRY(tensor_writer_add(writer, 0, &hot->rows[i].id, sizeof(uint64_t), 1, msg));
        TRY(tensor_writer_add(writer, 1, &hot->rows[i].lookups, sizeof(uint64_t), 1, msg));
    }
    return tensor_writer_end(writer, metadata, &written, msg);
}

static enum embtier_err save(const char *path, const struct hot_rows *hot, struct err_msg *msg)
{
    _cleanup_(new_file_freep) struct new_file *file = NULL;

    TRY(new_file_open(path, &file, msg));
    TRY(write_rows(fileno(new_file_stream(file)), path, hot, msg));
    return new_file_finish(file, msg);
}

/* ---- The command ---- */

static double share_of(const struct hot_rows *hot, uint64_t count)
{
    uint64_t lookups = 0;

    for (uint64_t i = 0; i < count; i++)
        lookups += hot->rows[i].lookups;
    return hot->lookups > 0 ? (double)lookups / (double)hot->lookups : 0;
}

static int print_text(const struct hot_rows *hot)
{
    struct number_text lookups, distinct, count;

    text_print(stdout,
               "table %s: %s lookups of %s different rows; the %s hottest take %.1f %% of them\n",
               hot->table.name, number_count(&lookups, (double)hot->lookups),
               number_count(&distinct, (double)hot->distinct),
               number_count(&count, (double)hot->count), 100 * share_of(hot, hot->count));
    for (uint64_t i = 0; i < MIN(hot->count, (uint64_t)SHOWN_ROWS); i++)
        printf("  row %" PRIu64 ": %" PRIu64 " lookups\n", hot->rows[i].id, hot->rows[i].lookups);
    return EXIT_DONE;
}

static int print_json(const struct arguments *arguments, const struct hot_rows *hot)
{
    json_t *const rows = json_array();
    const uint64_t shown = arguments->save_path ? 0 : hot->count;

    for (uint64_t i = 0; i < shown; i++)
        json_array_append_new(rows, json_pack("{s:o, s:o}", "id", cli_json_u64(hot->rows[i].id),
                                              "lookups", cli_json_u64(hot->rows[i].lookups)));
    return cli_print_json(json_pack("{s:o, s:s, s:o, s:o, s:o, s:f, s:o}", "trace",
                                    cli_json_text(arguments->path), "table", hot->table.name,
                                    "lookups", cli_json_u64(hot->lookups), "distinct_rows",
                                    cli_json_u64(hot->distinct), "count", cli_json_u64(hot->count),
                                    "share", share_of(hot, hot->count), "rows", rows),
                          JSON_DOUBLE_DIGITS);
}

static enum embtier_err count_rows(const struct arguments *arguments, struct hot_rows **ret_hot,
                                   struct err_msg *msg)
{
    struct hottest_opts opts = arguments->opts;
    struct progress_bar bar;
    enum embtier_err err;

    TRY(check_save_path(arguments->save_path, msg));
    progress_bar_begin(&bar, "counting", "nothing was changed");
    opts.progress = progress_bar_update;
    opts.ctx = &bar;
    err = hottest_rows(arguments->path, &opts, ret_hot, msg);
    progress_bar_end(&bar);
    return err;
}

int command_trace_hottest(struct cli *cli, int argc, char **argv)
{
    _cleanup_(hot_rows_freep) struct hot_rows *hot = NULL;
    struct arguments arguments = { .opts = { .rows = ROWS_DEFAULT } };
    int exit_code = parse(cli, argc, argv, &arguments);
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    err = count_rows(&arguments, &hot, &msg);
    if (err == EMBTIER_OK && arguments.save_path)
        err = save(arguments.save_path, hot, &msg);
    if (err != EMBTIER_OK)
        return cli_fail(err, msg.text);
    return cli->json ? print_json(&arguments, hot) : print_text(hot);
}
