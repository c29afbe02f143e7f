/* SPDX-License-Identifier: Apache-2.0 */
/* embtier top: what a server does now, on a terminal or as a stream of frames. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"
#include "tools/cli/top/batch.h"
#include "tools/cli/top/live.h"
#include "tools/cli/top/panels.h"

/* Keys wait while the server is silent for this long. */
#define LIVE_TIMEOUT_MS 2000

enum { OPTION_PANEL = UCHAR_MAX + 1 }; /* above the values of letters */

void help_top(FILE *out)
{
    fputs(
        "\n"
        "Keys: 1 to 6 and Tab choose the panel, < and > the column that sorts it, r reverses the\n"
        "order, arrows, PgUp and PgDn scroll, p pauses, h shows help, q quits.\n"
        "\n"
        "Rates are of the time between two answers of the server. BYTES/S of get: weights\n"
        "returned; of set and push: updated bytes, which the server counts together, shared out\n"
        "by rows. MEDIAN, 99%: how long requests took in that time, on all transports; pool\n"
        "has those of pooled lookups alone. HIT RATE:\n"
        "of the rows looked up in that time, those that this source served; since the server's\n"
        "start if there were none. When the server is restarted, top waits for it and goes on.\n"
        "While a server does not answer, keys wait for up to 2 seconds (see --timeout).\n"
        "\n"
        "With -o json and --batch, one line per frame, with all panels or the one of --panel:\n"
        "{health, warnings: [NAME], uptime_ms, interval_s, requests_per_s,\n"
        "compaction: {done_bytes, total_bytes, remaining_s} or null,\n"
        "requests: [{operation, rows_per_s, bytes_per_s, rows,\n"
        "median_s, p99_s}],\n"
        "tiers: [{source, rows_per_s, hit_rate: 0 to 1, capacity_bytes, used_bytes, used_share,\n"
        "rows, dirty_rows}], ssd: [{cause, bytes_per_s, bytes, rows_per_s}], shards: [{path,\n"
        "pending_bytes, level0_files, running, state, urgent: yes or no, read_share, "
        "remaining_s}], clients: [{number,\n"
        "user, from, transport, requests_per_s, rows_per_s, in_flight, arena_bytes, age_s, "
        "client}],\n"
        "tables: [{name, lookup_rows_per_s, hit_rate, updated_rows_per_s, read_rows_per_s,\n"
        "written_bytes_per_s, rows, bytes}]}; an unknown value is null. Without a connection:\n"
        "{health: null, error}.\n",
        out);
}

struct arguments {
    double delay_s;
    bool is_batch;
    uint64_t frame_count; /* 0: no end */
    size_t panel;         /* PANEL_COUNT: not chosen */
};

/* Returns -1, or an exit code. */
static int take_panel(const struct cli *cli, struct arguments *arguments)
{
    for (size_t i = 0; i < PANEL_COUNT; i++) {
        if (strcmp(panels[i].name, optarg) == 0) {
            arguments->panel = i;
            return -1;
        }
    }
    return cli_usage(cli, "--panel %s: allowed: requests, tiers, ssd, shards, clients, tables",
                     TEXT_SHOWN(optarg));
}

static int take_option(const struct cli *cli, int option, struct arguments *arguments)
{
    switch (option) {
    case 'd':
        return cli_parse_seconds(cli, "delay", &arguments->delay_s);
    case 'b':
        arguments->is_batch = true;
        return -1;
    case 'n':
        if (number_parse_u64(optarg, &arguments->frame_count) && arguments->frame_count > 0)
            return -1;
        return cli_usage(cli, "--frames %s: allowed: a number from 1 on", TEXT_SHOWN(optarg));
    default:
        return take_panel(cli, arguments);
    }
}

static int parse(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = { { "delay", required_argument, NULL, 'd' },
                                             { "batch", no_argument, NULL, 'b' },
                                             { "frames", required_argument, NULL, 'n' },
                                             { "panel", required_argument, NULL, OPTION_PANEL },
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
    if (!arguments->is_batch && (cli->json || arguments->frame_count > 0))
        return cli_usage(cli, "%s needs --batch: the live view is for people, and has no end",
                         cli->json ? "-o json" : "--frames");
    return -1;
}

int command_top(struct cli *cli, int argc, char **argv)
{
    struct arguments arguments = { .delay_s = 1, .panel = PANEL_COUNT };
    int exit_code = parse(cli, argc, argv, &arguments);

    if (exit_code >= 0)
        return exit_code;
    if (!arguments.is_batch && !(terminal_can_draw(STDOUT_FILENO) && isatty(STDIN_FILENO)))
        return cli_fail(EMBTIER_UNSUPPORTED,
                        "top: there is no terminal that can be drawn on; use `embtier status` for "
                        "one look, or `embtier top --batch -n N` for N frames as text");
    if (!arguments.is_batch && !cli->has_timeout)
        cli->timeout_ms = LIVE_TIMEOUT_MS;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    if (arguments.is_batch)
        return batch_run(cli, arguments.delay_s, arguments.frame_count, arguments.panel);
    return live_run(cli, arguments.delay_s, arguments.panel % PANEL_COUNT);
}
