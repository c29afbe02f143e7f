/* SPDX-License-Identifier: Apache-2.0 */
/* embtier plan check: what a plan predicts beside what the server does. The server counts since its
 * start, so this program asks twice and takes the difference. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text/text_escape.h"
#include "placement/check/check.h"
#include "placement/plan/plan_file.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/placement/check_report.h"
#include "tools/cli/progress_bar.h"

#define SECONDS_DEFAULT 60.0
#define SECONDS_MOST    86400.0
#define INTERVAL_MS     200 /* between two steps of the progress bar */

/* As of diff(1): the answer "differs" and a failure are told apart. */
enum { EXIT_WITHIN = 0, EXIT_BEYOND = 1, EXIT_TROUBLE = 2 };

struct arguments {
    const char *path;
    double seconds;
    struct check_bars bars;
};

/* The server's counts at one time. */
struct sample {
    struct embtier_status *status;
    struct embtier_table_list *tables;
};

/* ---- Options ---- */

/* Parses "60s", "10m", "1h" or a number of seconds. */
static bool parse_seconds(const char *text, double *ret_seconds)
{
    const char *end;
    double unit = 1, value;

    if (!number_parse_double(text, &value, &end))
        return false;
    if (*end == 'm')
        unit = 60;
    else if (*end == 'h')
        unit = 3600;
    if (*end != '\0' && (!strchr("smh", *end) || end[1] != '\0'))
        return false;
    *ret_seconds = value * unit;
    return *ret_seconds >= 0.1 && *ret_seconds <= SECONDS_MOST;
}

enum { FOR = 256, JSON, BAR }; /* BAR and what follows: the bars, in the order of enum check_kind */

static int parse_option(struct cli *cli, int option, struct arguments *arguments)
{
    switch (option) {
    case FOR:
        if (!parse_seconds(optarg, &arguments->seconds))
            return cli_usage(cli, "--for %s: allowed: a time such as 60s, 10m or 1h, 0.1s to 24h",
                             TEXT_SHOWN(optarg));
        return -1;
    case JSON:
        cli->json = true;
        return -1;
    default:
        if (!number_is_double(optarg, &arguments->bars.most[option - BAR]) ||
            arguments->bars.most[option - BAR] < 0)
            return cli_usage(cli, "%s: allowed: a number from 0 on", TEXT_SHOWN(optarg));
        return -1;
    }
}

/* Returns -1, or the exit code. */
static int parse(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = {
        { "for", required_argument, NULL, FOR },
        { "json", no_argument, NULL, JSON },
        { "hit-points", required_argument, NULL, BAR + CHECK_HIT_RATE },
        { "time-percent", required_argument, NULL, BAR + CHECK_TIME },
        { "iops-percent", required_argument, NULL, BAR + CHECK_IOPS },
        { "written-percent", required_argument, NULL, BAR + CHECK_WRITTEN },
        CLI_LONG_OPTIONS
    };
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
        return cli_usage(cli, argc == optind ? "PLAN is missing" : "more than one PLAN");
    arguments->path = argv[optind];
    return -1;
}

/* ---- Asking the server ---- */

static void sample_free(struct sample *sample)
{
    embtier_status_free(sample->status);
    embtier_table_list_free(sample->tables);
    *sample = (struct sample){ 0 };
}

static enum embtier_err sample_take(const struct cli *cli, struct sample *ret_sample)
{
    TRY(embtier_table_list(cli->server, &ret_sample->tables));
    return embtier_status(cli->server, &ret_sample->status);
}

/* Returns the sum over all labels if @label is NULL. */
static double metric(const struct sample *sample, const char *name, const char *label)
{
    double sum = 0;

    for (size_t i = 0; i < embtier_status_count(sample->status); i++) {
        const struct embtier_metric *const at = embtier_status_at(sample->status, i);

        if (strcmp(at->name, name) == 0 && (!label || strcmp(at->label_value, label) == 0))
            sum += at->value;
    }
    return sum;
}

static const struct embtier_table_info *find_table(const struct embtier_table_list *list,
                                                   uint32_t table_id)
{
    for (size_t i = 0; i < embtier_table_list_count(list); i++)
        if (embtier_table_list_at(list, i)->table_id == table_id)
            return embtier_table_list_at(list, i);
    return NULL;
}

/* ---- The window between two samples ---- */

/* @old: NULL if the table was made in the window. */
static struct check_counts counts_of(const struct embtier_table_info *old,
                                     const struct embtier_table_info *now)
{
    static const struct embtier_table_info none;
    const struct embtier_table_info *const then = old ? old : &none;
    struct check_counts counts = {
        .rows = now->rows,
        .dim = now->dim,
        .dtype = now->dtype,
        .optimizer = now->optimizer,
        .home = now->home,
        .has_changed = !old || old->home != now->home ||
                       strcmp(old->home_tier, now->home_tier) != 0 ||
                       old->hot_rows != now->hot_rows,
        .lookups = (double)(now->lookup_rows - then->lookup_rows),
        .missed = (double)(now->missed_lookup_rows - then->missed_lookup_rows),
        .read = (double)(now->read_lookup_rows - then->read_lookup_rows),
        .lane_s = ((double)now->lookup_ns - (double)then->lookup_ns) / 1e9,
        .written_bytes = (double)(now->flush_bytes - then->flush_bytes) +
                         (double)(now->compaction_bytes - then->compaction_bytes),
    };

    counts.hot_rows = now->hot_rows;
    snprintf(counts.name, sizeof(counts.name), "%s", now->name);
    if (now->home != EMBTIER_HOME_CACHE)
        snprintf(counts.tier, sizeof(counts.tier), "%s", now->home_tier);
    return counts;
}

static void add_tiers(const struct sample *before, const struct sample *now,
                      struct check_window *window)
{
    for (size_t i = 0; i < embtier_status_count(now->status); i++) {
        const struct embtier_metric *const at = embtier_status_at(now->status, i);
        const uint32_t tier = window->tier_count;

        if (strcmp(at->name, "cache_capacity_bytes") != 0 || tier == PLAN_TIERS_MAX)
            continue;
        snprintf(window->tiers[tier], sizeof(window->tiers[tier]), "%s", at->label_value);
        window->cache_hits[tier] = metric(now, "lookup_rows", at->label_value) -
                                   metric(before, "lookup_rows", at->label_value);
        window->tier_count++;
    }
}

static enum embtier_err window_make(const struct sample *before, const struct sample *now,
                                    struct check_window *ret_window, struct err_msg *msg)
{
    const size_t count = embtier_table_list_count(now->tables);
    const double then_ms = (double)embtier_status_uptime_ms(before->status);
    struct check_window window = {
        .seconds = ((double)embtier_status_uptime_ms(now->status) - then_ms) / 1e3,
        .lane_count = (uint32_t)metric(now, "lanes", NULL),
        .reading_s = metric(now, "store_reading_seconds", NULL) -
                     metric(before, "store_reading_seconds", NULL),
        .written_bytes =
            metric(now, "store_written_bytes", NULL) - metric(before, "store_written_bytes", NULL),
        .memtable_bytes = metric(now, "store_memtable_bytes", NULL),
    };

    if (window.seconds <= 0 || window.lane_count == 0)
        return err_set(msg, EMBTIER_AGAIN,
                       "the server has been started anew meanwhile: run this again");
    window.tables = calloc(count + 1, sizeof(*window.tables));
    if (!window.tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const struct embtier_table_info *const info = embtier_table_list_at(now->tables, i);

        if (strcmp(info->state, "live") == 0)
            window.tables[window.table_count++] =
                counts_of(find_table(before->tables, info->table_id), info);
    }
    add_tiers(before, now, &window);
    *ret_window = window;
    return EMBTIER_OK;
}

/* ---- The command ---- */

static void wait_seconds(double seconds)
{
    const uint64_t steps = (uint64_t)ceil(seconds * 1000 / INTERVAL_MS);
    struct progress_bar bar;

    progress_bar_begin(&bar, "measuring", "nothing was changed");
    for (uint64_t step = 0; step < steps; step++) {
        const double left = MIN(seconds * 1000 - (double)step * INTERVAL_MS, (double)INTERVAL_MS);

        nanosleep(&(struct timespec){ .tv_nsec = (long)(left * 1e6) }, NULL);
        progress_bar_update(&bar, (uint64_t)((double)(step + 1) * INTERVAL_MS / 1000),
                            (uint64_t)ceil(seconds), "s");
    }
    progress_bar_end(&bar);
}

static enum embtier_err measure(const struct cli *cli, const struct arguments *arguments,
                                struct check_window *ret_window, struct err_msg *msg)
{
    _cleanup_(sample_free) struct sample before = { 0 };
    _cleanup_(sample_free) struct sample now = { 0 };
    enum embtier_err err = sample_take(cli, &before);

    if (err == EMBTIER_OK) {
        wait_seconds(arguments->seconds);
        err = sample_take(cli, &now);
    }
    if (err != EMBTIER_OK)
        return err_set(msg, err, "%s", embtier_message(cli->server));
    return window_make(&before, &now, ret_window, msg);
}

/* Prints the check. Returns the exit code. */
static int report(const struct cli *cli, const struct plan *plan, const struct check_window *window,
                  const struct check *check, const struct check_bars *bars)
{
    struct err_msg msg;

    if (cli->json) {
        if (cli_print_json(check_report_json(plan, window, check, bars), JSON_DOUBLE_DIGITS) !=
            EXIT_DONE)
            return EXIT_TROUBLE;
    } else if (!check_report_print(plan, window, check, bars)) {
        cli_fail(EMBTIER_NO_MEMORY, "");
        return EXIT_TROUBLE;
    }
    /* Later it would be an exit status of 1, which says that a figure is beyond its bar. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_fail(EMBTIER_IO, "cannot write the output");
        return EXIT_TROUBLE;
    }
    if (check->misplaced_count > 0 || check->compared_count > 0)
        return check_is_within(check) ? EXIT_WITHIN : EXIT_BEYOND;
    (void)err_set(&msg, EMBTIER_AGAIN,
                  "too little traffic to compare anything: %.0f lookups in %.1f s, of at least %d "
                  "for a table; let clients work, or give a longer --for",
                  check->lookups, window->seconds, CHECK_LOOKUPS_LEAST);
    cli_fail(EMBTIER_AGAIN, msg.text);
    return EXIT_TROUBLE;
}

static int fail(enum embtier_err err, const struct err_msg *msg)
{
    cli_fail(err, msg->text);
    return EXIT_TROUBLE;
}

int command_plan_check(struct cli *cli, int argc, char **argv)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;
    _cleanup_(check_freep) struct check *check = NULL;
    struct arguments arguments = {
        .seconds = SECONDS_DEFAULT,
        .bars = { { CHECK_HIT_POINTS, CHECK_TIME_PERCENT, CHECK_IOPS_PERCENT,
                    CHECK_WRITTEN_PERCENT } },
    };
    struct check_window window = { 0 };
    struct err_msg msg = { { 0 } };
    int exit_code = parse(cli, argc, argv, &arguments);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    err = plan_file_load(arguments.path, &plan, &msg);
    if (err != EMBTIER_OK)
        return fail(err, &msg);
    if (cli_connect(cli, 0) != 0)
        return EXIT_TROUBLE;
    err = measure(cli, &arguments, &window, &msg);
    if (err == EMBTIER_OK)
        err = check_new(plan, &window, &arguments.bars, &check);
    exit_code = err ? fail(err, &msg) : report(cli, plan, &window, check, &arguments.bars);
    free(window.tables);
    return exit_code;
}
