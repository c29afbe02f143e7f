/* SPDX-License-Identifier: Apache-2.0 */
/* embtier endurance forecast: how many bytes go to SSD with another cache, layout or drive, from a
 * profile and what the server counts (docs/internals/placement/forecast.md). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text/text_escape.h"
#include "placement/profile/profile_file.h"
#include "placement/profile/steady.h"
#include "placement/writes/writes.h"
#include "tools/cli/cli.h"
#include "tools/cli/endurance/forecast/show.h"
#include "tools/cli/number.h"

#define TABLE_DAYS_MOST 36500.0
#define HIT_POINTS_MOST 0.05 /* between the profile and the traffic of now */

struct arguments {
    const char *profile;
    double interval_s; /* 0: since the server's start */
    double table_days;
    struct changes changes;
    struct layouts layouts;
};

/* ---- Help ---- */

void help_endurance_forecast(FILE *out)
{
    fputs(
        "\n"
        "      --tier NAME=SIZE   a tier of the cache with this size (without array_bytes), such\n"
        "                         as dram=64GiB; a new name is a tier below, not on the drives\n"
        "      --layout LAYOUT    rocksdb.layout: leveled, universal or blob\n"
        "      --drive DRIVE      other drives, all together: name=NAME,bytes=SIZE,dwpd=NUMBER or\n"
        "                         rated=SIZE (TBW),years=YEARS (default 5), by a data sheet\n"
        "      --eager            no deferred initialization: new tables write all their rows\n"
        "      --amplification LAYOUT=NUMBER\n"
        "                         bytes written for each byte of rows, measured with that layout;\n"
        "                         without it, figures of the documentation scale those of now\n"
        "      --table-days DAYS  after so many days tables are made anew (default 30)\n"
        "  -i, --interval SECONDS\n"
        "                         measure from now on, for this time; without it, since\n"
        "                         the server's start\n"
        "\n"
        "The measured bytes of each table are multiplied by the rows that would be written back,\n"
        "as the profile and the cache's size tell, over those of now. Tables of durability async\n"
        "or sync, arrays, and tables without lookups in the profile write what they write now.\n"
        "\n"
        "write-back: bytes of rows written back for each byte updated. first, again: bytes that\n"
        "flushes and compactions write for each of these. amplification: all bytes for each byte\n"
        "updated. The last lines say what deferred initialization saves, and saved_share which\n"
        "part of the bytes that would be written without it: about 15 % in the MTrainS paper.\n"
        "The life is that of a new drive; `embtier endurance` shows what is left.\n"
        "\n"
        "With -o json: {profile, seconds, updated_bytes, tables, missing_tables,\n"
        "predicted_hit_rate, measured_hit_rate, initialization: {written_bytes, table_days,\n"
        "written_bytes_per_day, saved_share}, forecasts: [{change, name, tier_bytes: {TIER: "
        "bytes}, layout,\n"
        "drive: {capacity_bytes, rated_written_bytes, rated_years}, hit_rate,\n"
        "written_bytes_by_cause, written_bytes, of_now, daily_bytes_by_cause,\n"
        "written_bytes_per_day, write_back_amplification, first_write_amplification,\n"
        "rewrite_amplification, write_amplification, drive_writes_per_day,\n"
        "rated_drive_writes_per_day, rated_life_years}]}; change is now, tier, layout, eager or\n"
        "drive; written_bytes are those of the time that was counted; an unknown value is null.\n",
        out);
}

/* ---- Options ---- */

enum { TIER = 256, LAYOUT, DRIVE, EAGER, AMPLIFICATION, TABLE_DAYS };

static enum embtier_err parse_change(int option, struct arguments *arguments, struct err_msg *msg)
{
    switch (option) {
    case TIER:
        return changes_add_tier(&arguments->changes, optarg, msg);
    case LAYOUT:
        return changes_add_layout(&arguments->changes, optarg, msg);
    case DRIVE:
        return changes_add_drive(&arguments->changes, optarg, msg);
    case AMPLIFICATION:
        return layouts_give(&arguments->layouts, optarg, msg);
    default:
        return changes_add_eager(&arguments->changes, msg);
    }
}

static int parse_option(const struct cli *cli, int option, struct arguments *arguments)
{
    struct err_msg msg;

    switch (option) {
    case 'i':
        return cli_parse_seconds(cli, "interval", &arguments->interval_s);
    case TABLE_DAYS:
        if (!number_is_double(optarg, &arguments->table_days) || !(arguments->table_days > 0) ||
            arguments->table_days > TABLE_DAYS_MOST)
            return cli_usage(cli, "--table-days %s: allowed: days above 0, up to 36500",
                             TEXT_SHOWN(optarg));
        return -1;
    default:
        if (parse_change(option, arguments, &msg) != EMBTIER_OK)
            return cli_usage(cli, "%s", msg.text);
        return -1;
    }
}

static int parse(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = { { "interval", required_argument, NULL, 'i' },
                                             { "tier", required_argument, NULL, TIER },
                                             { "layout", required_argument, NULL, LAYOUT },
                                             { "drive", required_argument, NULL, DRIVE },
                                             { "eager", no_argument, NULL, EAGER },
                                             { "amplification", required_argument, NULL,
                                               AMPLIFICATION },
                                             { "table-days", required_argument, NULL, TABLE_DAYS },
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
        return cli_usage(cli, argc == optind ? "PROFILE is missing: `embtier profile record` makes "
                                               "one while clients train"
                                             : "more than one PROFILE");
    arguments->profile = argv[optind];
    return -1;
}

/* ---- The server ---- */

static enum embtier_err ask_layout(struct cli *cli, enum config_layout *ret_layout)
{
    struct embtier_knob_options options = EMBTIER_KNOB_OPTIONS_INIT;
    struct embtier_knob_list *list;

    options.name = "rocksdb.layout";
    TRY(embtier_knob_list(cli->server, &options, &list));
    *ret_layout = embtier_knob_list_count(list) > 0
                      ? layout_of_word(embtier_knob_list_at(list, 0)->value)
                      : LAYOUT_COUNT;
    embtier_knob_list_free(list);
    return EMBTIER_OK;
}

static enum embtier_err take_samples(struct cli *cli, double interval_s,
                                     struct endurance_sample *before, struct endurance_sample *now)
{
    if (interval_s > 0) {
        TRY(endurance_sample_take(cli, before));
        endurance_wait(interval_s);
    }
    return endurance_sample_take(cli, now);
}

/* ---- Forecasts ---- */

static void warn(const struct outcome_opts *opts)
{
    const struct basis *const basis = opts->basis;

    if (basis->missing_count > 0)
        text_print(stderr, "embtier: warning: the server has %zu table%s of the profile no more\n",
                   basis->missing_count, PLURAL(basis->missing_count));
    if (fabs(basis->measured_hit_rate - opts->now_hit_rate) > HIT_POINTS_MOST)
        text_print(stderr,
                   "embtier: warning: %.3g %% of the lookups hit, and %.3g %% would with those of "
                   "the profile: is it of this traffic? --interval leaves the time after a start "
                   "out\n",
                   100 * basis->measured_hit_rate, 100 * opts->now_hit_rate);
}

static enum embtier_err make_outcomes(struct outcome_opts *opts, const struct changes *changes,
                                      struct outcome *outcomes, struct err_msg *msg)
{
    static const struct change none = { .kind = CHANGE_NONE };

    TRY(outcome_make(opts, &none, &outcomes[0], msg));
    for (size_t i = 0; i < changes->count; i++)
        TRY(outcome_make(opts, &changes->items[i], &outcomes[i + 1], msg));
    return EMBTIER_OK;
}

/* Returns the exit code. */
static int report(const struct cli *cli, struct arguments *arguments, const struct basis *basis)
{
    struct outcome_opts opts = { .basis = basis,
                                 .layouts = arguments->layouts,
                                 .table_days = arguments->table_days };
    _cleanup_(freep) struct table_writes *now =
        calloc(basis->profile->table_count + 1, sizeof(*now));
    _cleanup_(freep) struct outcome *outcomes = calloc(CHANGES_MAX + 1, sizeof(*outcomes));
    struct changes *const changes = &arguments->changes;
    struct err_msg msg;
    enum embtier_err err;

    if (!now || !outcomes)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    if (changes->count == 0)
        changes_choose(changes, &basis->tiers, basis->layout);
    err = outcome_begin(&opts, now, &msg);
    if (err == EMBTIER_OK)
        err = make_outcomes(&opts, changes, outcomes, &msg);
    if (err != EMBTIER_OK)
        return cli_fail(err, msg.text);
    warn(&opts);
    if (cli->json)
        return cli_print_json(
            forecast_to_json(&opts, arguments->profile, outcomes, changes->count + 1),
            JSON_DOUBLE_DIGITS);
    return forecast_print(&opts, outcomes, changes->count + 1) ? EXIT_DONE
                                                               : cli_fail(EMBTIER_NO_MEMORY, "");
}

static enum embtier_err load(const char *path, struct measured_profile **ret_profile,
                             struct err_msg *msg)
{
    _cleanup_(measured_profile_freep) struct measured_profile *profile = NULL;

    TRY(profile_file_load(path, &profile, msg));
    TRY(measured_profile_make_steady(profile, msg));
    *ret_profile = TAKE(profile);
    return EMBTIER_OK;
}

int command_endurance_forecast(struct cli *cli, int argc, char **argv)
{
    _cleanup_(measured_profile_freep) struct measured_profile *profile = NULL;
    _cleanup_(endurance_sample_free) struct endurance_sample before = { 0 };
    _cleanup_(endurance_sample_free) struct endurance_sample now = { 0 };
    struct arguments arguments = { .table_days = TABLE_DAYS_DEFAULT };
    enum config_layout layout = LAYOUT_COUNT;
    struct basis basis;
    struct err_msg msg;
    enum embtier_err err;
    int exit_code = parse(cli, argc, argv, &arguments);

    if (exit_code >= 0)
        return exit_code;
    err = load(arguments.profile, &profile, &msg);
    if (err != EMBTIER_OK)
        return cli_fail(err, msg.text);
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = ask_layout(cli, &layout);
    if (err == EMBTIER_OK)
        err = take_samples(cli, arguments.interval_s, &before, &now);
    if (err != EMBTIER_OK)
        return cli_fail_server(cli, err);
    if (layout == LAYOUT_COUNT)
        return cli_fail(EMBTIER_UNSUPPORTED, "the server has a rocksdb.layout that this program "
                                             "does not know: use the server's embtier");
    err = basis_make(profile, &before, &now, layout, &basis, &msg);
    if (err != EMBTIER_OK)
        return cli_fail(err, msg.text);
    exit_code = report(cli, &arguments, &basis);
    basis_clear(&basis);
    return exit_code;
}
