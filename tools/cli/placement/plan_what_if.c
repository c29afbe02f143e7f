/* SPDX-License-Identifier: Apache-2.0 */
/* embtier plan what-if: which of several machines is the cheapest that reaches a target. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "placement/machine/machine_file.h"
#include "placement/planner/what_if.h"
#include "placement/profile/profile_file.h"
#include "placement/profile/steady.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/placement/plan_inputs.h"
#include "tools/cli/progress_bar.h"
#include "tools/cli/text_table.h"

#define MACHINES_MAX 64
#define ROWS_MAX     (MACHINES_MAX * WHAT_IF_CHANGES_MAX)

enum { PROFILE = 256, RULES, OPTIMIZER, SAMPLES, TARGET, AS_THEY_ARE, ROW_WISE };

struct arguments {
    char **machines; /* paths */
    uint32_t machine_count;
    const char *profile, *rules, *optimizers;
    double samples_per_batch, target; /* 0: not given */
    bool as_they_are, row_wise;
};

/* Plans of all machines and changes, one after the other. */
struct comparison {
    struct measured_profile *profile;
    enum embtier_optimizer *optimizers;
    struct progress_bar bar;
    uint32_t count, done; /* rows in all, and before the present one */
    bool has_target;
    const char *paths[ROWS_MAX]; /* of the machines */
    struct what_if rows[ROWS_MAX];
};

static void comparison_free(struct comparison *c)
{
    measured_profile_free(c->profile);
    free(c->optimizers);
    free(c);
}
DEFINE_CLEANUP(struct comparison, comparison_free)

/* ---- Options ---- */

/* Returns -1, or the exit code of a mistake. */
static int parse_option(const struct cli *cli, int option, struct arguments *arguments)
{
    switch (option) {
    case PROFILE:
        arguments->profile = optarg;
        return -1;
    case RULES:
        arguments->rules = optarg;
        return -1;
    case OPTIMIZER:
        arguments->optimizers = optarg;
        return -1;
    case SAMPLES:
        return plan_inputs_number(cli, "samples-per-batch", optarg, &arguments->samples_per_batch);
    case TARGET:
        return plan_inputs_number(cli, "target", optarg, &arguments->target);
    case ROW_WISE:
        arguments->row_wise = true;
        return -1;
    default:
        arguments->as_they_are = true;
        return -1;
    }
}

static int parse(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = { { "profile", required_argument, NULL, PROFILE },
                                             { "rules", required_argument, NULL, RULES },
                                             { "optimizer", required_argument, NULL, OPTIMIZER },
                                             { "samples-per-batch", required_argument, NULL,
                                               SAMPLES },
                                             { "target", required_argument, NULL, TARGET },
                                             { "as-they-are", no_argument, NULL, AS_THEY_ARE },
                                             { "row-wise", no_argument, NULL, ROW_WISE },
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
    if (argc - optind < 1 || argc - optind > MACHINES_MAX)
        return cli_usage(cli, "%d machines; allowed: 1 to %d", argc - optind, MACHINES_MAX);
    if (!arguments->profile)
        return cli_usage(cli, "--profile is missing");
    arguments->machines = argv + optind;
    arguments->machine_count = (uint32_t)(argc - optind);
    return -1;
}

/* ---- Plans ---- */

/* One machine's plan is a part of the whole. */
static void show_progress(void *comparison, uint64_t done, uint64_t total)
{
    struct comparison *const c = comparison;
    const uint64_t percent = total > 0 ? 100 * done / total : 0;

    progress_bar_update(&c->bar, (uint64_t)c->done * 100 + percent, (uint64_t)c->count * 100,
                        "percent of plans");
}

static uint32_t changes_of(const struct arguments *arguments, const struct machine *machine)
{
    return arguments->as_they_are ? 1 : what_if_count(machine);
}

static enum embtier_err plan_machine(const struct arguments *arguments, struct comparison *c,
                                     const struct machine *machine, const char *path,
                                     struct err_msg *msg)
{
    _cleanup_(rules_freep) struct rules *rules = NULL;
    struct planner_opts opts = { .profile = c->profile,
                                 .optimizers = c->optimizers,
                                 .machine = machine,
                                 .samples_per_batch = arguments->samples_per_batch,
                                 .row_wise = arguments->row_wise,
                                 .search = { .progress = show_progress, .ctx = c } };

    TRY(plan_inputs_rules(c->profile, machine, arguments->rules, &rules, msg));
    if (arguments->target > 0) {
        rules->target_samples_per_s = arguments->target;
        rules->target_place.text[0] = '\0'; /* the target is not that of the file */
    }
    c->has_target = rules->target_samples_per_s > 0;
    rules->moved_bytes_max = UINT64_MAX; /* there is no plan in force here */
    opts.rules = rules;
    for (uint32_t i = 0; i < changes_of(arguments, machine); i++, c->done++) {
        TRY(what_if_plan(&opts, i, &c->rows[c->done]));
        c->paths[c->done] = path;
    }
    return EMBTIER_OK;
}

/* All files are read first, so that a mistake in the last one costs no time. */
static enum embtier_err compare(const struct arguments *arguments, struct comparison *c,
                                struct err_msg *msg)
{
    struct machine machines[MACHINES_MAX];
    enum embtier_err err = EMBTIER_OK;

    for (uint32_t i = 0; i < arguments->machine_count; i++) {
        TRY(machine_file_load(arguments->machines[i], &machines[i], msg));
        c->count += changes_of(arguments, &machines[i]);
    }
    TRY(profile_file_load(arguments->profile, &c->profile, msg));
    TRY(measured_profile_make_steady(c->profile, msg));
    TRY(plan_inputs_optimizers(c->profile, arguments->optimizers, &c->optimizers, msg));
    progress_bar_begin(&c->bar, "planning", "nothing was written");
    for (uint32_t i = 0; err == EMBTIER_OK && i < arguments->machine_count; i++)
        err = plan_machine(arguments, c, &machines[i], arguments->machines[i], msg);
    progress_bar_end(&c->bar);
    return err;
}

/* ---- Output ---- */

static bool add_number(struct text_table *text, double number)
{
    struct number_text buffer;

    return text_table_add(text, "%s", number < 0 ? "?" : number_count(&buffer, number));
}

static bool add_row(struct text_table *text, const char *path, const struct what_if *row)
{
    return text_table_add(text, "%s", path) && text_table_add(text, "%s", row->change) &&
           add_number(text, row->cost) && add_number(text, row->power_w) &&
           (row->has_plan ? text_table_add(text, "%.4g", row->samples_per_s)
                          : text_table_add(text, "-")) &&
           text_table_add(text, "%s", row->reaches ? "yes" : "no") &&
           text_table_add(text, "%s", row->why.text);
}

static void print_cheapest(const struct comparison *c)
{
    const char *const wish = c->has_target ? "reaches the target" : "can be planned";
    const uint32_t best = what_if_cheapest(c->rows, c->count);
    bool is_reached = false;

    for (uint32_t i = 0; i < c->count; i++)
        is_reached = is_reached || c->rows[i].reaches;
    putchar('\n');
    if (best < c->count)
        text_print(stdout, "cheapest that %s: %s%s%s\n", wish, c->paths[best],
                   c->rows[best].change[0] ? ", " : "", c->rows[best].change);
    else if (is_reached)
        printf("none that %s has a cost: `cost_per_gb` of its memories\n", wish);
    else
        puts(c->has_target ? "none reaches the target" : "none can be planned");
}

static int print_text(const struct comparison *c, const struct arguments *arguments)
{
    static const char *const titles[] = { "MACHINE",   "CHANGE",  "COST",   "WATT",
                                          "SAMPLES/S", "REACHES", "WHY NOT" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("llrrrll");
    bool ok = text != NULL;

    for (size_t i = 0; ok && i < ARRAY_LEN(titles); i++)
        ok = text_table_add(text, "%s", titles[i]);
    for (uint32_t i = 0; ok && i < c->count; i++)
        ok = add_row(text, c->paths[i], &c->rows[i]);
    if (!ok)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    text_table_print(text, 0, stdout);
    print_cheapest(c);
    plan_inputs_tell_state(c->profile, arguments->optimizers);
    return EXIT_DONE;
}

static json_t *known(double number)
{
    return number < 0 ? json_null() : cli_json_number(number);
}

static json_t *row_to_json(const char *path, const struct what_if *row)
{
    return json_pack(
        "{s:o, s:s, s:o, s:o, s:o, s:o, s:b, s:o}", "machine", cli_json_text(path), "change",
        row->change, "cost", known(row->cost), "power_w", known(row->power_w), "samples_per_s",
        row->has_plan ? cli_json_number(row->samples_per_s) : json_null(), "time_s",
        row->has_plan ? cli_json_number(row->time_s) : json_null(), "reaches", row->reaches, "why",
        row->why.text[0] ? cli_json_text(row->why.text) : json_null());
}

static json_t *rows_to_json(const struct comparison *c)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; rows && i < c->count; i++)
        if (json_array_append_new(rows, row_to_json(c->paths[i], &c->rows[i])) != 0) {
            json_decref(rows);
            return NULL;
        }
    return rows;
}

static int print_json(const struct comparison *c)
{
    const uint32_t best = what_if_cheapest(c->rows, c->count);

    return cli_print_json(json_pack("{s:o, s:o}", "plans", rows_to_json(c), "cheapest",
                                    best < c->count ? json_integer(best) : json_null()),
                          JSON_DOUBLE_DIGITS);
}

int command_plan_what_if(struct cli *cli, int argc, char **argv)
{
    _cleanup_(comparison_freep) struct comparison *c = calloc(1, sizeof(*c));
    struct arguments arguments = { 0 };
    const int exit_code = parse(cli, argc, argv, &arguments);
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    if (!c)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    err = compare(&arguments, c, &msg);
    if (err != EMBTIER_OK)
        return cli_fail(err, msg.text);
    return cli->json ? print_json(c) : print_text(c, &arguments);
}
