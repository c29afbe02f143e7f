/* SPDX-License-Identifier: Apache-2.0 */
/* bench_plan_solvers.c: placements of whole tables beside those of programs that solve
 * mixed-integer programs: HiGHS, CBC and GLPK, as `highs`, `cbc` and `glpsol` on the PATH.
 *
 * Each gets the whole model of plan-table, with the rows that make its relaxation tight, one thread
 * and ten minutes (2,400 times --seconds). --turns sets the number of seeds. Our side makes all of
 * its steps; then the outside solver gets what is left, if EMBTIER_SOLVER_LIBRARY names one. Both
 * placements are checked in whole bytes, and their times are computed, by the same code. The ratio
 * is our time divided by theirs, for the seed where it is worst. A program that is not installed is
 * left out.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "placement/model/assignment.h"
#include "placement/solve/solve.h"
#include "tests/bench/lib/bench.h"
#include "tests/bench/lib/plans/bench_solver.h"
#include "tests/bench/lib/plans/mps.h"
#include "tests/bench/lib/plans/plan_model.h"

#define SEEDS      3
#define SEEDS_MAX  20
#define TIMES      2400
#define ROUNDING   1e-9 /* times of equal placements may differ so much */
#define PATH_BYTES 128

/* A program: @command has the model, the seconds and the solution. */
struct program {
    const char *name; /* of the program */
    const char *figure;
    const char *reference;
    const char *command;
};

static const struct program programs[] = {
    { "highs", "plan-table-highs", "HiGHS",
      "highs --threads 1 --parallel off --model_file %s --time_limit %.0f --solution_file %s" },
    { "cbc", "plan-table-cbc", "CBC", "cbc %s -threads 0 -sec %.0f -solve -solution %s" },
    { "glpsol", "plan-table-glpsol", "GLPK", "glpsol --freemps %s --cuts --tmlim %.0f -o %s" },
};

struct results {
    double ours_s[SEEDS_MAX], theirs_s[SEEDS_MAX], bounds_s[SEEDS_MAX];
    uint32_t found;      /* by the program */
    uint32_t not_found;  /* models for which it has no placement that fits */
    uint32_t solver_won; /* seeds where our placement is that of our outside solver */
    struct bench_solver solver;
};

static bool is_installed(const char *name)
{
    char command[PATH_BYTES];

    snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", name);
    return system(command) == 0;
}

/* Returns the time of the program's placement; 0: it has none that fits. */
static double run_program(const struct program *program, const struct model *model, double unit_s)
{
    char folder[] = "/tmp/embtier-solvers-XXXXXX", mps[PATH_BYTES], solution[PATH_BYTES];
    uint32_t *const places = bench_alloc(model->table_count, sizeof(*places));
    char command[4 * PATH_BYTES], line[6 * PATH_BYTES];
    struct instance *instance = NULL;
    struct err_msg msg = { { 0 } };
    double time_s = 0;

    if (!mkdtemp(folder) || instance_new(model, &instance, &msg) != EMBTIER_OK)
        bench_die("no folder, or no model: %s", msg.text);
    snprintf(mps, sizeof(mps), "%s/model.mps", folder);
    snprintf(solution, sizeof(solution), "%s/solution", folder);
    mps_write(mps, instance, unit_s);
    snprintf(command, sizeof(command), program->command, mps, TIMES * bench_settings.seconds,
             solution);
    /* HiGHS leaves a log where it runs. */
    snprintf(line, sizeof(line), "cd %s && timeout %.0f %s >/dev/null 2>&1; rm -f Highs.log",
             folder, 2 * TIMES * bench_settings.seconds + 60, command);
    if (system(line) == -1)
        bench_die("%s cannot be started", program->name);
    if (mps_read_places(solution, instance, places) &&
        assignment_check(model, places, &time_s, NULL, &msg) != EMBTIER_OK)
        bench_say("%s: %s", program->name, msg.text);
    unlink(mps);
    unlink(solution);
    rmdir(folder);
    instance_free(instance);
    free(places);
    return time_s;
}

static void run_seed(const struct program *program, uint32_t seed, struct results *results)
{
    const struct solve_opts opts = { .solver = bench_solver_find(&results->solver), .gap = 0 };
    struct model model =
        plan_model_draw(seed, (uint32_t)bench_scaled(PLAN_MODEL_TABLES, 30), PLAN_MODEL_GPUS);
    struct solve_answer *answer = NULL;
    struct err_msg msg = { { 0 } };
    double theirs_s;

    if (solve_model(&model, &opts, &answer, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    bench_solver_check(&results->solver, answer);
    results->solver_won += answer->solver_won;
    theirs_s = run_program(program, &model, answer->bound_s);
    bench_say("seed %u: our gap %.2f %%, that of %s %.2f %%", seed, 100 * solve_gap(answer),
              program->reference, theirs_s > 0 ? 100 * (1 - answer->bound_s / theirs_s) : NAN);
    if (theirs_s > 0) {
        results->ours_s[results->found] = answer->largest_s;
        results->theirs_s[results->found] = theirs_s;
        results->bounds_s[results->found] = answer->bound_s;
        results->found++;
    } else {
        results->not_found++;
    }
    solve_answer_free(answer);
    plan_model_clear(&model);
}

static void add_gaps(void *context, json_t *figure)
{
    const struct results *const results = context;
    json_t *const ours = json_array(), *const theirs = json_array();

    for (uint32_t i = 0; i < results->found; i++) {
        json_array_append_new(ours, json_real(1 - results->bounds_s[i] / results->ours_s[i]));
        json_array_append_new(theirs, json_real(1 - results->bounds_s[i] / results->theirs_s[i]));
    }
    json_object_set_new(figure, "gaps", ours);
    json_object_set_new(figure, "reference_gaps", theirs);
    json_object_set_new(figure, "models_without_reference", json_integer(results->not_found));
    json_object_set_new(figure, "solver_won", json_integer(results->solver_won));
}

static void compare_with(const struct program *program)
{
    const uint32_t seeds = bench_seeds(SEEDS, SEEDS_MAX);
    struct results results = { .found = 0 };
    char options[PATH_BYTES];

    if (!is_installed(program->name)) {
        bench_say("no %s here", program->name);
        return;
    }
    for (uint32_t seed = 0; seed < seeds; seed++)
        run_seed(program, seed, &results);
    if (results.found == 0) {
        bench_say("%s has no placement", program->name);
        return;
    }
    snprintf(options, sizeof(options), "one thread, %.0f s, all places and rows; ours %s a solver",
             TIMES * bench_settings.seconds,
             bench_solver_find(&results.solver) ? "with" : "without");
    bench_report(&(struct bench_figure){ .name = program->figure,
                                         .unit = "s",
                                         .lower_is_better = true,
                                         .has_worst_ratio = true,
                                         .bar = 1 + ROUNDING,
                                         .limit = "whole tables, few of them large",
                                         .reference_name = program->reference,
                                         .reference_options = options },
                 results.ours_s, results.theirs_s, results.found, add_gaps, &results);
}

static void plan_table_highs(void)
{
    compare_with(&programs[0]);
}

static void plan_table_cbc(void)
{
    compare_with(&programs[1]);
}

static void plan_table_glpsol(void)
{
    compare_with(&programs[2]);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { programs[0].figure, plan_table_highs },
        { programs[1].figure, plan_table_cbc },
        { programs[2].figure, plan_table_glpsol },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
