/* SPDX-License-Identifier: Apache-2.0 */
/* embtier status: tells on one screen whether the server is well, and what it does. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/status/overview.h"
#include "tools/cli/status/overview_json.h"
#include "tools/cli/status/pieces.h"
#include "tools/cli/status/reading.h"
#include "tools/cli/status/screen.h"

void help_status(FILE *out)
{
    fputs(
        "\n"
        "Health: ok, no warning is given; warning, the server serves, but look soon; bad, updates\n"
        "are refused or rows cannot be read, so act now. HIT RATE: of all rows that were looked\n"
        "up, those that this tier served. `embtier stats` has all figures.\n"
        "\n"
        "With -o json: {health, warnings: [{name, health, why, advice}], version, libraries,\n"
        "uptime_ms, clients: {sessions, by_transport: {TRANSPORT: sessions}, arena_bytes},\n"
        "requests, set_rows, pushed_rows, lookups: {rows, served_by:\n"
        "{TIER or array or write_queue or ssd or initial: rows}}, tiers: [{name,\n"
        "capacity_bytes, used_bytes, rows, dirty_rows, hit_rate: 0 to 1}], arrays:\n"
        "{capacity_bytes, used_bytes, rows, dirty_rows}, ssd: {stored_bytes, written_bytes,\n"
        "room_bytes, pending_compaction_bytes, compacting_shards, resharded: 0 to 1 while buckets\n"
        "move or null}, checkpoint: {id, age_s, interval_s}, plan: as `embtier stats`,\n"
        "tables: [{name, rows, dim, bytes, lookup_rows, missed_lookup_rows, updated_rows,\n"
        "written_bytes}]}; an unknown value is null; with --watch, one line per interval.\n"
        "\nWarnings, and when they are given:\n",
        out);
    for (size_t i = 0; i < health_rule_count; i++)
        fprintf(out, "  %-17s  %-7s  %s\n  %-17s  %-7s  > %s\n", health_rules[i].name,
                health_word(health_rules[i].health), health_rules[i].condition, "", "",
                health_rules[i].advice);
}

/* Values above those of letters. */
enum { OPTION_ALL = UCHAR_MAX + 1, OPTION_SORT };

struct arguments {
    bool all;
    enum overview_order order;
    double seconds;
};

/* Returns -1, or an exit code. */
static int take_option(const struct cli *cli, int option, struct arguments *arguments)
{
    switch (option) {
    case OPTION_ALL:
        arguments->all = true;
        return -1;
    case OPTION_SORT:
        if (strcmp(optarg, "traffic") != 0 && strcmp(optarg, "size") != 0)
            return cli_usage(cli, "--sort %s: allowed: traffic, size", TEXT_SHOWN(optarg));
        arguments->order = strcmp(optarg, "size") == 0 ? OVERVIEW_BY_SIZE : OVERVIEW_BY_TRAFFIC;
        return -1;
    default:
        return cli_parse_seconds(cli, "watch", &arguments->seconds);
    }
}

static int parse(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = { { "all", no_argument, NULL, OPTION_ALL },
                                             { "sort", required_argument, NULL, OPTION_SORT },
                                             { "watch", required_argument, NULL, 'w' },
                                             CLI_LONG_OPTIONS };
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
    return -1;
}

static int print_screen(const struct arguments *arguments, const struct overview *overview,
                        const struct reading *before, double seconds)
{
    struct screen_opts opts = { .all = arguments->all, .seconds = seconds };
    struct overview earlier = { 0 };
    bool ok = true;

    if (before) {
        ok = overview_make(before, arguments->order, &earlier) == EMBTIER_OK;
        opts.before = &earlier;
    }
    ok = ok && screen_print(overview, &opts, stdout);
    overview_clear(&earlier);
    return ok ? EXIT_DONE : cli_fail(EMBTIER_NO_MEMORY, "");
}

static int show(const struct cli *cli, const void *context, const struct reading *now,
                const struct reading *before, double seconds)
{
    const struct arguments *const arguments = context;
    struct overview overview;
    int exit_code;

    if (overview_make(now, arguments->order, &overview) != EMBTIER_OK)
        exit_code = cli_fail(EMBTIER_NO_MEMORY, "");
    else if (cli->json)
        exit_code =
            pieces_print_json(overview_to_json(&overview, now->status), arguments->seconds > 0);
    else
        exit_code = print_screen(arguments, &overview, before, seconds);
    overview_clear(&overview);
    return exit_code;
}

int command_status(struct cli *cli, int argc, char **argv)
{
    struct arguments arguments = { .order = OVERVIEW_BY_TRAFFIC };
    const int exit_code = parse(cli, argc, argv, &arguments);

    if (exit_code >= 0)
        return exit_code;
    return readings_show(cli, READING_TABLES | READING_PLAN, arguments.seconds, show, &arguments);
}
