/* SPDX-License-Identifier: Apache-2.0 */
/* embtier trace generate: writes a synthetic trace. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "placement/synthetic/synthetic_trace.h"
#include "placement/trace/trace_reader.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"

#define TABLES_DEFAULT  4
#define ROWS_DEFAULT    1000000
#define ROWS_MAX        (UINT64_C(1) << 62)
#define POOLING_DEFAULT 10
#define DIM_DEFAULT     64
#define BATCHES_DEFAULT 100
#define BAGS_DEFAULT    512
#define BAGS_MAX        (1 << 24)
#define ZIPF_DEFAULT    1.05

enum { ROWS = 256, POOLING, DTYPE, BATCHES, BAGS, ZIPF, LOCALITY, LIKE, SEED, NO_UPDATE, TABLES };

struct arguments {
    const char *path;
    const struct locality_published *like;     /* NULL: none */
    const struct locality_published *locality; /* NULL: Zipf */
    bool has_zipf;
    double zipf_exponent;
    uint64_t tables; /* this and the next four: 0 without the option */
    uint64_t rows;
    double pooling; /* negative: without the option */
    uint64_t bags;
    uint64_t batches;
    uint64_t dim;
    enum embtier_dtype dtype;
    uint64_t seed;
    bool is_update;
};

static const struct locality_published *find_published(const char *name)
{
    for (size_t i = 0; i < LOCALITY_PUBLISHED_COUNT; i++)
        if (strcmp(locality_published[i].name, name) == 0)
            return &locality_published[i];
    return NULL;
}

/* ---- Options ---- */

static const struct option options[] = { { "tables", required_argument, NULL, TABLES },
                                         { "rows", required_argument, NULL, ROWS },
                                         { "pooling", required_argument, NULL, POOLING },
                                         { "dim", required_argument, NULL, 'd' },
                                         { "dtype", required_argument, NULL, DTYPE },
                                         { "batches", required_argument, NULL, BATCHES },
                                         { "bags", required_argument, NULL, BAGS },
                                         { "zipf", required_argument, NULL, ZIPF },
                                         { "locality", required_argument, NULL, LOCALITY },
                                         { "like", required_argument, NULL, LIKE },
                                         { "seed", required_argument, NULL, SEED },
                                         { "no-update", no_argument, NULL, NO_UPDATE },
                                         CLI_LONG_OPTIONS };

/* An option with a whole number. */
struct count_option {
    int option;
    const char *name;
    uint64_t least, most;
    size_t member; /* offset in struct arguments */
};

static const struct count_option count_options[] = {
    { TABLES, "tables", 1, TRACE_TABLES_MAX, offsetof(struct arguments, tables) },
    { ROWS, "rows", 1, ROWS_MAX, offsetof(struct arguments, rows) },
    { 'd', "dim", 1, EMBTIER_DIM_MAX, offsetof(struct arguments, dim) },
    { BATCHES, "batches", 1, UINT32_MAX, offsetof(struct arguments, batches) },
    { BAGS, "bags", 1, BAGS_MAX, offsetof(struct arguments, bags) },
    { SEED, "seed", 0, UINT64_MAX, offsetof(struct arguments, seed) },
};

/* Returns -1, or the exit code of a mistake. */
static int parse_count(const struct cli *cli, int option, struct arguments *arguments)
{
    for (size_t i = 0; i < ARRAY_LEN(count_options); i++) {
        const struct count_option *const one = &count_options[i];
        uint64_t value;

        if (one->option != option)
            continue;
        if (!number_parse_u64(optarg, &value) || value < one->least || value > one->most)
            return cli_usage(cli, "--%s %s: allowed: %" PRIu64 " to %" PRIu64, one->name,
                             TEXT_SHOWN(optarg), one->least, one->most);
        *(uint64_t *)((char *)arguments + one->member) = value;
    }
    return -1;
}

static int parse_real(const struct cli *cli, const char *name, double most, double *ret_value)
{
    double value;

    if (!number_is_double(optarg, &value) || value < 0 || value > most)
        return cli_usage(cli, "--%s %s: allowed: 0 to %g", name, TEXT_SHOWN(optarg), most);
    *ret_value = value;
    return -1;
}

static int parse_published(const struct cli *cli, const char *name,
                           const struct locality_published **ret_published)
{
    *ret_published = find_published(optarg);
    if (!*ret_published)
        return cli_usage(cli, "--%s %s: allowed: %s, %s", name, TEXT_SHOWN(optarg),
                         locality_published[0].name, locality_published[1].name);
    return -1;
}

static int parse_option(const struct cli *cli, int option, struct arguments *arguments)
{
    int dtype;

    switch (option) {
    case POOLING:
        return parse_real(cli, "pooling", SYNTHETIC_POOLING_FACTOR_MAX, &arguments->pooling);
    case ZIPF:
        arguments->has_zipf = true;
        return parse_real(cli, "zipf", SYNTHETIC_ZIPF_EXPONENT_MAX, &arguments->zipf_exponent);
    case LOCALITY:
        return parse_published(cli, "locality", &arguments->locality);
    case LIKE:
        return parse_published(cli, "like", &arguments->like);
    case NO_UPDATE:
        arguments->is_update = false;
        return -1;
    case DTYPE:
        dtype = dtype_parse(optarg);
        if (dtype < 0)
            return cli_usage(cli, "--dtype %s: allowed: f32, f16, bf16", TEXT_SHOWN(optarg));
        arguments->dtype = (enum embtier_dtype)dtype;
        return -1;
    default:
        return parse_count(cli, option, arguments);
    }
}

/* Fills in the defaults of options that were not given. */
static void fill_defaults(struct arguments *arguments)
{
    const struct locality_published *const like = arguments->like;

    if (like && !arguments->has_zipf && !arguments->locality)
        arguments->locality = like;
    if (arguments->tables == 0)
        arguments->tables = like ? like->table_count : TABLES_DEFAULT;
    if (arguments->bags == 0)
        arguments->bags = like ? like->batch_bags : BAGS_DEFAULT;
    if (arguments->batches == 0)
        arguments->batches = like ? 1 : BATCHES_DEFAULT;
    if (!like && arguments->rows == 0)
        arguments->rows = ROWS_DEFAULT;
    if (!like && arguments->pooling < 0)
        arguments->pooling = POOLING_DEFAULT;
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
        return cli_usage(cli, argc == optind ? "FILE is missing" : "more than one FILE");
    if (arguments->has_zipf && arguments->locality)
        return cli_usage(cli, "--zipf and --locality exclude each other");
    arguments->path = argv[optind];
    fill_defaults(arguments);
    return -1;
}

/* ---- The command ---- */

struct shapes {
    struct trace_table *tables;
    uint64_t *rows;
    double *pooling;
};

static void shapes_free(struct shapes *shapes)
{
    free(shapes->tables);
    free(shapes->rows);
    free(shapes->pooling);
}

static bool make_shapes(const struct arguments *arguments, struct shapes *ret_shapes)
{
    const uint32_t count = (uint32_t)arguments->tables;

    ret_shapes->tables = calloc(count, sizeof(*ret_shapes->tables));
    ret_shapes->rows = calloc(count, sizeof(*ret_shapes->rows));
    ret_shapes->pooling = calloc(count, sizeof(*ret_shapes->pooling));
    if (!ret_shapes->tables || !ret_shapes->rows || !ret_shapes->pooling)
        return false;
    if (arguments->like)
        synthetic_shapes(arguments->like, arguments->seed, count, ret_shapes->rows,
                         ret_shapes->pooling);
    for (uint32_t i = 0; i < count; i++) {
        struct trace_table *const table = &ret_shapes->tables[i];

        snprintf(table->name, sizeof(table->name), "t%" PRIu32, i);
        table->rows = arguments->rows > 0 ? arguments->rows : ret_shapes->rows[i];
        table->dim = (uint32_t)arguments->dim;
        table->dtype = arguments->dtype;
        if (arguments->pooling >= 0)
            ret_shapes->pooling[i] = arguments->pooling;
    }
    return true;
}

static enum embtier_err write_trace(const struct arguments *arguments, const struct shapes *shapes,
                                    uint64_t *ret_lookups, struct err_msg *msg)
{
    const struct locality locality =
        arguments->locality ? locality_fit(arguments->locality) : (struct locality){ 0 };
    const struct synthetic_options synthetic = {
        .table_count = (uint32_t)arguments->tables,
        .tables = shapes->tables,
        .pooling_factors = shapes->pooling,
        .batches = arguments->batches,
        .batch_bags = (uint32_t)arguments->bags,
        .is_update = arguments->is_update,
        .locality = arguments->locality ? &locality : NULL,
        .zipf_exponent = arguments->zipf_exponent,
        .seed = arguments->seed,
    };
    struct progress_bar bar;
    enum embtier_err err;

    progress_bar_begin(&bar, "generating",
                       "no trace was written; FILE.*.partial is what is left: delete it");
    err = synthetic_trace_write(arguments->path, &synthetic, progress_bar_update, &bar, ret_lookups,
                                msg);
    progress_bar_end(&bar);
    return err;
}

static int print_result(const struct cli *cli, const struct arguments *arguments, uint64_t lookups)
{
    struct number_text tables, batches, ids;

    if (cli->json)
        return cli_print_json(
            json_pack("{s:o, s:o, s:o, s:o}", "path", cli_json_text(arguments->path), "tables",
                      cli_json_u64(arguments->tables), "batches", cli_json_u64(arguments->batches),
                      "lookups", cli_json_u64(lookups)),
            JSON_DOUBLE_DIGITS);
    text_print(stdout, "generated %s: %s table%s, %s batch%s, %s lookup%s\n", arguments->path,
               number_count(&tables, (double)arguments->tables), arguments->tables == 1 ? "" : "s",
               number_count(&batches, (double)arguments->batches),
               arguments->batches == 1 ? "" : "es", number_count(&ids, (double)lookups),
               lookups == 1 ? "" : "s");
    return EXIT_DONE;
}

int command_trace_generate(struct cli *cli, int argc, char **argv)
{
    struct arguments arguments = { .zipf_exponent = ZIPF_DEFAULT,
                                   .pooling = -1,
                                   .dim = DIM_DEFAULT,
                                   .dtype = EMBTIER_DTYPE_F32,
                                   .is_update = true };
    int exit_code = parse(cli, argc, argv, &arguments);
    struct shapes shapes = { 0 };
    struct err_msg msg = { { 0 } };
    uint64_t lookups = 0;
    enum embtier_err err = EMBTIER_NO_MEMORY;

    if (exit_code >= 0)
        return exit_code;
    if (make_shapes(&arguments, &shapes))
        err = write_trace(&arguments, &shapes, &lookups, &msg);
    shapes_free(&shapes);
    return err ? cli_fail(err, msg.text) : print_result(cli, &arguments, lookups);
}
