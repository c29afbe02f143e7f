/* SPDX-License-Identifier: Apache-2.0 */
/* embtier tune: tries rocksdb.layout on the user's own rows and drive. */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"
#include "tools/cli/number.h"
#include "tools/cli/table_options.h"
#include "tools/cli/tune/load.h"
#include "tools/cli/tune/report.h"
#include "tools/cli/tune/tune_run.h"
#include "tools/trial/trial_wire.h"

#define MINUTES_DEFAULT 10.0
#define MINUTES_LEAST   0.05
#define MINUTES_MOST    1440.0
#define UPDATES_MOST    1e9
#define READS_MOST      99.0
#define ZIPF_MOST       10.0
#define ROW_BYTES_MOST  (EMBTIER_DIM_MAX * 12) /* the longest row of a table, with its state */
#define ROWS_MOST       (UINT64_C(1) << 53)    /* that a double tells apart */

enum {
    OPTION_DIRECTORY = UCHAR_MAX + 1,
    OPTION_ROW_BYTES,
    OPTION_UPDATES,
    OPTION_READS,
    OPTION_ZIPF,
    OPTION_CACHE,
    OPTION_LAYOUTS,
    OPTION_PREFER,
    OPTION_MINUTES,
    OPTION_PROFILE,
};

static const char *const layout_words[] = TRIAL_LAYOUT_WORDS;

void help_tune(FILE *out)
{
    fputs(
        "\n"
        "Runs the server's own store in a temporary folder below DIR, without a server: the\n"
        "databases of one shard, as the configuration would have them, one in each layout. They\n"
        "are filled, overwritten, and then take turns at writes and reads until the time is over.\n"
        "If a shard has more rows than the time is enough for, the trial has fewer, and smaller\n"
        "write buffers, levels and files in proportion. The folder is removed at the end, and\n"
        "after Ctrl-C, SIGTERM, SIGHUP or a failure; exit status 130, 143 or 129 after a signal.\n"
        "\n"
        "Without --rows or --profile, the tables are those of the running server: those that are\n"
        "cached, or if all of them are logged, these. Rows that change in the cache are written\n"
        "when they leave it, and at checkpoints. Other durabilities write each update.\n"
        "\n"
        "WRITES: bytes written to SSD for each byte of rows that the cache hands over, of all\n"
        "turns (range of the turns). READS/s: rows that miss the cache (medians). SPACE: bytes of\n"
        "files for each byte of rows; MOST: while files merge. A DAY: at this rate of updates.\n"
        "Recommended is the layout that writes least of those that read at least 0.9 of the best\n"
        "one; a later one of the list must be better by 5 %. With --prefer writes, reads or "
        "space,\n"
        "that figure alone counts.\n"
        "\n"
        "With -o json: {load: as given, model: {shards, rows, row_bytes, bytes, scale, to_scale,\n"
        "buffer_bytes, direct_io, seconds, rounds, warm_share, turn_share}, steady, layouts:\n"
        "[{layout, turns, write_amplification, reads_per_second, space: {value, least, most},\n"
        "bytes_per_update, bytes_per_day}], prefer, present, recommended, reason}. Not steady:\n"
        "rows were not overwritten once before, and once in the turns.\n",
        out);
}

struct arguments {
    struct table_arguments table; /* @options.dim is 0 without --dim */
    uint64_t row_bytes;           /* 0: not given */
    const char *config_path, *directory, *profile_path;
    double updates_per_s; /* 0: not given */
    double reads_percent, zipf, minutes;
    uint64_t cache_bytes;
    bool has_cache, has_zipf;
    uint32_t layouts;
    enum tune_preference preference;
};

/* ---- Options ---- */

/* Takes a number from @least to @most. Returns -1, or an exit code. */
static int take_number(const struct cli *cli, const char *name, double least, double most,
                       double *ret_value)
{
    if (number_is_double(optarg, ret_value) && *ret_value >= least && *ret_value <= most)
        return -1;
    return cli_usage(cli, "--%s %s: allowed: %g to %g", name, TEXT_SHOWN(optarg), least, most);
}

static int take_layouts(const struct cli *cli, uint32_t *ret_layouts)
{
    uint32_t layouts = 0;
    const char *at = optarg;

    for (;;) {
        const size_t bytes = strcspn(at, ",");
        uint32_t i = 0;

        while (i < LAYOUT_COUNT &&
               !(strlen(layout_words[i]) == bytes && strncmp(layout_words[i], at, bytes) == 0))
            i++;
        if (i == LAYOUT_COUNT)
            return cli_usage(cli, "--layouts %s: allowed: leveled, universal, blob, with commas",
                             TEXT_SHOWN(optarg));
        layouts |= UINT32_C(1) << i;
        if (at[bytes] == '\0')
            break;
        at += bytes + 1;
    }
    *ret_layouts = layouts;
    return -1;
}

static int take_preference(const struct cli *cli, enum tune_preference *ret_preference)
{
    static const char *const words[] = {
#define X(name, word) word,
        TUNE_PREFERENCES(X)
#undef X
    };

    for (uint32_t i = 0; i < TUNE_PREFERENCE_COUNT; i++)
        if (strcmp(optarg, words[i]) == 0) {
            *ret_preference = (enum tune_preference)i;
            return -1;
        }
    return cli_usage(cli, "--prefer %s: allowed: balance, writes, reads, space",
                     TEXT_SHOWN(optarg));
}

static int take_cache(const struct cli *cli, struct arguments *arguments)
{
    arguments->has_cache = true;
    if (parse_bytes(optarg, &arguments->cache_bytes) == EMBTIER_OK)
        return -1;
    return cli_usage(cli, "--cache %s: allowed: a size such as 4GiB, or 0", TEXT_SHOWN(optarg));
}

static int take_row_bytes(const struct cli *cli, struct arguments *arguments)
{
    if (parse_bytes(optarg, &arguments->row_bytes) == EMBTIER_OK && arguments->row_bytes >= 1 &&
        arguments->row_bytes <= ROW_BYTES_MOST)
        return -1;
    return cli_usage(cli, "--row-bytes %s: allowed: 1 to 96KiB", TEXT_SHOWN(optarg));
}

static int take_option(const struct cli *cli, int option, struct arguments *arguments)
{
    switch (option) {
    case 'c':
        arguments->config_path = optarg;
        return -1;
    case OPTION_DIRECTORY:
        arguments->directory = optarg;
        return -1;
    case OPTION_ROW_BYTES:
        return take_row_bytes(cli, arguments);
    case OPTION_UPDATES:
        return take_number(cli, "updates", 1, UPDATES_MOST, &arguments->updates_per_s);
    case OPTION_READS:
        return take_number(cli, "reads", 0, READS_MOST, &arguments->reads_percent);
    case OPTION_PROFILE:
        arguments->profile_path = optarg;
        return -1;
    case OPTION_ZIPF:
        arguments->has_zipf = true;
        return take_number(cli, "zipf", 0, ZIPF_MOST, &arguments->zipf);
    case OPTION_MINUTES:
        return take_number(cli, "minutes", MINUTES_LEAST, MINUTES_MOST, &arguments->minutes);
    case OPTION_CACHE:
        return take_cache(cli, arguments);
    case OPTION_LAYOUTS:
        return take_layouts(cli, &arguments->layouts);
    case OPTION_PREFER:
        return take_preference(cli, &arguments->preference);
    default:
        return table_option(cli, option, &arguments->table);
    }
}

static int check_arguments(const struct cli *cli, const struct arguments *arguments)
{
    const bool has_rows = arguments->table.has_rows;
    const bool has_length = arguments->row_bytes > 0 || arguments->table.options.dim > 0;

    if (!arguments->directory)
        return cli_usage(cli, "--directory is missing: a folder on the drive to be tried");
    if (arguments->updates_per_s == 0)
        return cli_usage(cli, "--updates is missing: rows that clients update in a second");
    if (arguments->row_bytes > 0 && arguments->table.options.dim > 0)
        return cli_usage(cli, "--row-bytes and --dim: give one of them");
    if (has_rows && arguments->profile_path)
        return cli_usage(cli, "--rows and --profile: give one of them");
    if (has_rows != has_length)
        return cli_usage(cli, "--%s is missing", has_length ? "rows" : "dim (or --row-bytes)");
    if (has_rows &&
        (arguments->table.options.rows == 0 || arguments->table.options.rows > ROWS_MOST))
        return cli_usage(cli, "--rows: allowed: 1 to %" PRIu64, ROWS_MOST);
    return -1;
}

static int parse(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = {
        { "directory", required_argument, NULL, OPTION_DIRECTORY },
        { "config", required_argument, NULL, 'c' },
        { "rows", required_argument, NULL, 'r' },
        { "dim", required_argument, NULL, 'd' },
        { "dtype", required_argument, NULL, TABLE_OPTION_DTYPE },
        { "optimizer", required_argument, NULL, TABLE_OPTION_OPTIMIZER },
        { "durability", required_argument, NULL, TABLE_OPTION_DURABILITY },
        { "row-bytes", required_argument, NULL, OPTION_ROW_BYTES },
        { "updates", required_argument, NULL, OPTION_UPDATES },
        { "reads", required_argument, NULL, OPTION_READS },
        { "profile", required_argument, NULL, OPTION_PROFILE },
        { "zipf", required_argument, NULL, OPTION_ZIPF },
        { "cache", required_argument, NULL, OPTION_CACHE },
        { "layouts", required_argument, NULL, OPTION_LAYOUTS },
        { "prefer", required_argument, NULL, OPTION_PREFER },
        { "minutes", required_argument, NULL, OPTION_MINUTES },
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
    if (argc > optind)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind]));
    return check_arguments(cli, arguments);
}

/* ---- The load ---- */

static uint64_t cache_bytes_of(const struct config *config)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < config->cache.tier_count; i++)
        bytes += config->cache.tiers[i].bytes - config->cache.tiers[i].array_bytes;
    return bytes;
}

/* Makes the trial as embtier-layout-trial takes it, without the directory. */
static json_t *make_trial(const struct arguments *arguments, const struct config *config,
                          const struct tune_load *load)
{
    const uint64_t cache_bytes =
        arguments->has_cache ? arguments->cache_bytes : cache_bytes_of(config);

    return json_pack(
        "{s:O, s:b, s:f, s:f, s:f, s:f, s:I, s:I}", "tables", load->tables, "logged",
        load->is_logged, "updates_per_second", arguments->updates_per_s, "reads_share",
        arguments->reads_percent / 100, "zipf", arguments->has_zipf ? arguments->zipf : load->zipf,
        "seconds", arguments->minutes * 60, "cache_bytes",
        (json_int_t)(load->is_logged ? 0 : cache_bytes), "layouts", (json_int_t)arguments->layouts);
}

/* Adds the path of the configuration, if one is given. Returns -1, or an exit code. */
static int add_config(const struct arguments *arguments, json_t *trial)
{
    struct err_msg msg;

    if (!arguments->config_path ||
        json_object_set_new(trial, "config", json_string(arguments->config_path)) == 0)
        return -1;
    (void)err_set(&msg, EMBTIER_INVALID, "--config %s is not UTF-8",
                  TEXT_SHOWN(arguments->config_path));
    return cli_fail(EMBTIER_INVALID, msg.text);
}

static uint64_t space_needed(const struct arguments *arguments, const json_t *tables)
{
    double bytes = 0, row_bytes = 0;
    const json_t *table;
    size_t i;

    json_array_foreach(tables, i, table)
    {
        const double each = json_number_value(json_object_get(table, "row_bytes"));

        bytes += each * json_number_value(json_object_get(table, "rows"));
        row_bytes = MAX(row_bytes, each);
    }
    bytes = MIN(
        bytes, MAX(TRIAL_BYTES_PER_SECOND * arguments->minutes * 60, TRIAL_ROWS_LEAST * row_bytes));
    return (uint64_t)(bytes * TRIAL_SPACE_FACTOR * __builtin_popcount(arguments->layouts)) +
           TRIAL_SPACE_BYTES;
}

static int try_layouts(const struct cli *cli, const struct arguments *arguments,
                       const struct config *config, json_t *trial)
{
    const struct tune_run run = { .directory = arguments->directory,
                                  .seconds = arguments->minutes * 60,
                                  .space_bytes =
                                      space_needed(arguments, json_object_get(trial, "tables")) };
    struct tune_report report = { .trial = trial,
                                  .preference = arguments->preference,
                                  .present = config->rocksdb.layout,
                                  .buffers_reads = config->rocksdb.direct_io == SWITCH_OFF };
    struct err_msg msg = { { 0 } };
    json_t *result = NULL;
    int signal_number = 0;
    enum embtier_err err;
    int exit_code;

    err = tune_run(&run, trial, &result, &signal_number, &msg);
    if (err != EMBTIER_OK) {
        exit_code = cli_fail(err, msg.text);
        return signal_number ? 128 + signal_number : exit_code;
    }
    (void)json_object_set_new(trial, "directory", cli_json_text(arguments->directory));
    report.result = result;
    exit_code = tune_report_print(cli, &report);
    json_decref(result);
    return exit_code;
}

/* Returns -1, or an exit code. */
static int take_load(struct cli *cli, const struct arguments *arguments, struct tune_load *ret_load)
{
    if (arguments->table.has_rows)
        return tune_load_given(&arguments->table.options, arguments->row_bytes, ret_load);
    return arguments->profile_path ? tune_load_profile(arguments->profile_path, ret_load)
                                   : tune_load_served(cli, ret_load);
}

int command_tune(struct cli *cli, int argc, char **argv)
{
    struct arguments arguments = { .table = TABLE_ARGUMENTS_INIT,
                                   .minutes = MINUTES_DEFAULT,
                                   .layouts = (UINT32_C(1) << LAYOUT_COUNT) - 1 };
    _cleanup_(config_freep) struct config *config = NULL;
    _cleanup_(tune_load_clear) struct tune_load load = { NULL, false, 0 };
    struct err_msg msg = { { 0 } };
    json_t *trial;
    enum embtier_err err;
    int exit_code;

    arguments.table.options.dim = 0;
    exit_code = parse(cli, argc, argv, &arguments);
    if (exit_code >= 0)
        return exit_code;
    err = config_load(arguments.config_path, budget_unbudgeted, &config, &msg);
    if (err != EMBTIER_OK)
        return cli_fail(err, msg.text);
    exit_code = take_load(cli, &arguments, &load);
    if (exit_code >= 0)
        return exit_code;
    trial = make_trial(&arguments, config, &load);
    exit_code = trial ? add_config(&arguments, trial) : cli_fail(EMBTIER_NO_MEMORY, "");
    if (exit_code < 0)
        exit_code = try_layouts(cli, &arguments, config, trial);
    json_decref(trial);
    return exit_code;
}
