/* SPDX-License-Identifier: Apache-2.0 */
/* embtier plan make: from a profile and a machine to a plan. */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/system/beside.h"
#include "base/text/text_escape.h"
#include "placement/machine/machine_file.h"
#include "placement/plan/plan_file.h"
#include "placement/planner/planner.h"
#include "placement/profile/profile_file.h"
#include "placement/profile/steady.h"
#include "tools/cli/cli.h"
#include "tools/cli/placement/plan_inputs.h"
#include "tools/cli/placement/plan_report.h"
#include "tools/cli/progress_bar.h"
#include "tools/solve/child_solver.h"

enum {
    PROFILE = 256,
    MACHINE,
    RULES,
    PREVIOUS,
    OPTIMIZER,
    SAMPLES,
    SOLVER_OPTION,
    ROW_WISE,
    FROM_EMPTY
};

struct arguments {
    const char *path; /* of the plan */
    const char *profile, *machine;
    const char *rules, *previous; /* NULL: none */
    const char *optimizers;       /* NULL: the profile's, or none */
    const char *samples;          /* as written; NULL: from the profile */
    double samples_per_batch;
    bool no_solver;
    bool row_wise;   /* tables may be split */
    bool from_empty; /* the cache starts empty, and sees the profile's lookups only */
};

/* The files that were read. */
struct inputs {
    struct measured_profile *profile;
    struct machine machine;
    struct rules *rules;
    struct plan *previous;
    enum embtier_optimizer *optimizers;
    struct plan_input hashes[PLAN_INPUTS_MAX];
    const char *paths[PLAN_INPUTS_MAX]; /* of the files; NULL: no file */
    uint32_t hash_count;
};

static void free_inputs(struct inputs *inputs)
{
    measured_profile_free(inputs->profile);
    rules_free(inputs->rules);
    plan_free(inputs->previous);
    free(inputs->optimizers);
}

/* ---- Options ---- */

static int parse_solver(const struct cli *cli, struct arguments *arguments)
{
    arguments->no_solver = strcmp(optarg, "none") == 0;
    if (!arguments->no_solver && strcmp(optarg, "auto") != 0)
        return cli_usage(cli, "--solver %s: allowed: auto, none", TEXT_SHOWN(optarg));
    return -1;
}

/* Returns -1, or the exit code of a mistake. */
static int parse_option(const struct cli *cli, int option, struct arguments *arguments)
{
    const char **const paths[] = { &arguments->profile, &arguments->machine, &arguments->rules,
                                   &arguments->previous, &arguments->optimizers };

    if (option == SAMPLES) {
        arguments->samples = optarg;
        return plan_inputs_number(cli, "samples-per-batch", optarg, &arguments->samples_per_batch);
    }
    if (option == ROW_WISE) {
        arguments->row_wise = true;
        return -1;
    }
    if (option == FROM_EMPTY) {
        arguments->from_empty = true;
        return -1;
    }
    if (option == SOLVER_OPTION)
        return parse_solver(cli, arguments);
    *paths[option - PROFILE] = optarg;
    return -1;
}

static int parse(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = { { "profile", required_argument, NULL, PROFILE },
                                             { "machine", required_argument, NULL, MACHINE },
                                             { "rules", required_argument, NULL, RULES },
                                             { "previous", required_argument, NULL, PREVIOUS },
                                             { "optimizer", required_argument, NULL, OPTIMIZER },
                                             { "samples-per-batch", required_argument, NULL,
                                               SAMPLES },
                                             { "solver", required_argument, NULL, SOLVER_OPTION },
                                             { "row-wise", no_argument, NULL, ROW_WISE },
                                             { "from-empty", no_argument, NULL, FROM_EMPTY },
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
        return cli_usage(cli, argc == optind ? "PLAN is missing" : "more than one PLAN");
    if (!arguments->profile || !arguments->machine)
        return cli_usage(cli, "--%s is missing", arguments->profile ? "machine" : "profile");
    arguments->path = argv[optind];
    return -1;
}

/* ---- Inputs ---- */

static void add_hash(struct inputs *inputs, const char *name, const char *path, uint64_t hash)
{
    struct plan_input *const input = &inputs->hashes[inputs->hash_count];

    snprintf(input->name, sizeof(input->name), "%s", name);
    input->hash = hash;
    inputs->paths[inputs->hash_count++] = path;
}

static enum embtier_err hash_file(struct inputs *inputs, const char *name, const char *path,
                                  struct err_msg *msg)
{
    uint64_t hash = 0;

    if (!path)
        return EMBTIER_OK;
    TRY(plan_inputs_hash(path, &hash, msg));
    add_hash(inputs, name, path, hash);
    return EMBTIER_OK;
}

/* Comes before anything is loaded, so that a path which is no file is refused at once. */
static enum embtier_err hash_files(const struct arguments *arguments, struct inputs *inputs,
                                   struct err_msg *msg)
{
    TRY(hash_file(inputs, "profile", arguments->profile, msg));
    TRY(hash_file(inputs, "machine", arguments->machine, msg));
    TRY(hash_file(inputs, "rules", arguments->rules, msg));
    return hash_file(inputs, "previous", arguments->previous, msg);
}

/* Comes after everything was loaded. The modules that load open the files by themselves, so only
 * equal hashes before and after say that the bytes which were hashed are those that were loaded. */
static enum embtier_err check_unchanged(const struct inputs *inputs, struct err_msg *msg)
{
    for (uint32_t i = 0; i < inputs->hash_count; i++) {
        uint64_t hash = 0;

        TRY(plan_inputs_hash(inputs->paths[i], &hash, msg));
        if (hash != inputs->hashes[i].hash)
            return err_set(msg, EMBTIER_MISMATCH,
                           "%s: changed while it was read; make the plan again from a file that "
                           "stays as it is",
                           inputs->paths[i]);
    }
    return EMBTIER_OK;
}

/* The solver is not among them, as only its answer tells which one there was (add_solver()). */
static enum embtier_err hash_options(const struct arguments *arguments, struct inputs *inputs)
{
    _cleanup_(freep) char *options = NULL;

    if (asprintf(&options, "optimizer=%s samples-per-batch=%s%s%s",
                 arguments->optimizers ? arguments->optimizers : "profile",
                 arguments->samples ? arguments->samples : "profile",
                 arguments->row_wise ? " row-wise" : "",
                 arguments->from_empty ? " from-empty" : "") < 0)
        return EMBTIER_NO_MEMORY;
    add_hash(inputs, "options", NULL, XXH3_64bits(options, strlen(options)));
    return EMBTIER_OK;
}

/* Making a plan may take long, so this is asked before. */
static enum embtier_err check_new(const char *path, struct err_msg *msg)
{
    struct stat info;

    if (lstat(path, &info) == 0)
        return err_set(msg, EMBTIER_EXISTS, "%s already exists", path);
    return EMBTIER_OK;
}

static enum embtier_err load(const struct arguments *arguments, struct inputs *inputs,
                             struct err_msg *msg)
{
    TRY(check_new(arguments->path, msg));
    TRY(hash_files(arguments, inputs, msg));
    TRY(machine_file_load(arguments->machine, &inputs->machine, msg));
    TRY(profile_file_load(arguments->profile, &inputs->profile, msg));
    if (!arguments->from_empty)
        TRY(measured_profile_make_steady(inputs->profile, msg));
    TRY(plan_inputs_optimizers(inputs->profile, arguments->optimizers, &inputs->optimizers, msg));
    TRY(plan_inputs_rules(inputs->profile, &inputs->machine, arguments->rules, &inputs->rules,
                          msg));
    if (arguments->previous)
        TRY(plan_file_load(arguments->previous, &inputs->previous, msg));
    TRY(check_unchanged(inputs, msg));
    return hash_options(arguments, inputs);
}

/* ---- The outside solver ---- */

/* Adds the solver to the inputs of the plan: another solver may make another plan, and so may one
 * whose limit of processor time ended it. */
static void add_solver(const struct child_solver *child, bool taken, struct plan *plan)
{
    struct plan_input *const input = &plan->inputs[plan->input_count++];

    if (child->answers > 0)
        snprintf(input->name, sizeof(input->name), "solver %s, %" PRIu32 " answer%s, %s",
                 child->solver, child->answers, child->answers > 1 ? "s" : "",
                 taken ? "taken" : "not taken");
    else
        snprintf(input->name, sizeof(input->name), "solver none");
    input->hash = XXH3_64bits(input->name, strlen(input->name));
}

/* ---- The command ---- */

static void show_progress(void *bar, uint64_t done, uint64_t total)
{
    progress_bar_update(bar, done, total, "placements");
}

static enum embtier_err make(const struct arguments *arguments, const struct inputs *inputs,
                             struct child_solver *child, struct plan **ret_plan,
                             struct planner_warnings *ret_warnings, struct err_msg *msg)
{
    struct progress_bar bar;
    const struct milp_solver solver = child_solver(child);
    const struct planner_opts opts = {
        .profile = inputs->profile,
        .optimizers = inputs->optimizers,
        .machine = &inputs->machine,
        .rules = inputs->rules,
        .previous = inputs->previous,
        .samples_per_batch = arguments->samples_per_batch,
        .row_wise = arguments->row_wise,
        .search = { .solver = arguments->no_solver ? NULL : &solver,
                    .progress = show_progress,
                    .ctx = &bar },
        .inputs = inputs->hashes,
        .input_count = inputs->hash_count,
    };
    enum embtier_err err;

    progress_bar_begin(&bar, "planning", "no plan was written");
    err = planner_make(&opts, ret_plan, ret_warnings, msg);
    progress_bar_end(&bar);
    if (err == EMBTIER_OK)
        add_solver(child, ret_warnings->solver_says.text[0] == '\0', *ret_plan);
    return err;
}

static void print_warnings(const struct planner_warnings *warnings,
                           const struct child_solver *child)
{
    for (uint32_t i = 0; i < warnings->count; i++)
        fprintf(stderr, "embtier: warning: %s\n", warnings->texts[i].text);
    if (warnings->stay_says.text[0] != '\0')
        fprintf(stderr, "embtier: %s\n", warnings->stay_says.text);
    if (warnings->rows_say.text[0] != '\0')
        fprintf(stderr, "embtier: %s\n", warnings->rows_say.text);
    if (warnings->solver_says.text[0] != '\0')
        fprintf(stderr, "embtier: the outside solver did not help: %s\n",
                warnings->solver_says.text);
    if (child->refused[0] != '\0')
        fprintf(stderr, "embtier: %s was asked instead of other solvers: %s\n", child->solver,
                child->refused);
}

static int print_plan(const struct cli *cli, const struct arguments *arguments,
                      const struct plan *plan)
{
    if (cli->json)
        return cli_print_json(plan_report_json(plan), JSON_DOUBLE_DIGITS);
    return plan_report_print(plan, arguments->path) ? EXIT_DONE : cli_fail(EMBTIER_NO_MEMORY, "");
}

static bool has_splits(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->table_count; i++)
        if (plan->tables[i].part_count > 1)
            return true;
    return false;
}

/* Whole tables are no cuts, so the plan in force was no candidate. */
static void warn_of_previous(const struct arguments *arguments, const struct plan *previous,
                             const struct plan *plan)
{
    if (arguments->row_wise || !previous || !has_splits(previous))
        return;
    fprintf(stderr,
            "embtier: warning: the plan in force splits tables, and a plan without --row-wise "
            "splits none: that one predicts %.4g samples/s, and this one %.4g\n",
            previous->samples_per_s, plan->samples_per_s);
}

/* Only the profile of a server has optimizers. */
static bool is_served(const struct measured_profile *profile)
{
    for (uint32_t i = 0; i < profile->table_count; i++)
        if (profile->tables[i].has_optimizer)
            return true;
    return false;
}

/* Only a trace says which rows are hot. */
static void warn_of_served_cuts(const struct measured_profile *profile, const struct plan *plan)
{
    uint32_t tables = 0;

    for (uint32_t i = 0; i < plan->table_count; i++)
        tables += plan->tables[i].part_count > 1;
    if (tables > 0 && is_served(profile))
        fprintf(stderr,
                "embtier: warning: split tables: %" PRIu32
                "; the profile is a running server's, which has no trace, and `embtier apply` "
                "splits tables only with the trace of the plan's profile: record a trace, and "
                "make the plan from it\n",
                tables);
}

int command_plan_make(struct cli *cli, int argc, char **argv)
{
    struct arguments arguments = { .path = "" };
    int exit_code = parse(cli, argc, argv, &arguments);
    _cleanup_(plan_freep) struct plan *plan = NULL;
    char program[PATH_MAX];
    struct child_solver child = CHILD_SOLVER_INIT;
    struct planner_warnings warnings = { 0 };
    struct inputs inputs = { 0 };
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    beside_find("embtier-solve", EMBTIER_SOLVE, program);
    child.program = program;
    err = load(&arguments, &inputs, &msg);
    if (err == EMBTIER_OK)
        err = make(&arguments, &inputs, &child, &plan, &warnings, &msg);
    if (err == EMBTIER_OK)
        err = plan_file_save(plan, arguments.path, &msg);
    if (err == EMBTIER_OK) {
        print_warnings(&warnings, &child);
        warn_of_previous(&arguments, inputs.previous, plan);
        warn_of_served_cuts(inputs.profile, plan);
    }
    exit_code = err ? cli_fail(err, msg.text) : print_plan(cli, &arguments, plan);
    if (exit_code == EXIT_DONE && !cli->json)
        plan_inputs_tell_state(inputs.profile, arguments.optimizers);
    free_inputs(&inputs);
    return exit_code;
}
