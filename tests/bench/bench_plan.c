/* SPDX-License-Identifier: Apache-2.0 */
/* bench_plan.c: how close placements of tables come to their proven bound.
 *
 * plan-table: 856 tables on 8 GPUs and 3 memories, for 20 seeds. plan-large: 2,000 tables on 16
 * GPUs, for 3 seeds. lib/plan_model.h draws them. The ratio is the lookup time divided by its
 * bound, which no placement can beat.
 *
 * plan-row: the tables of plan-table, cut by hotness over HBM and DRAM; the rest of their rows is
 * read from SSD. Lookups follow Zipf's law, with an exponent drawn for each table.
 *
 * plan-same: the placements of 20 processes are compared, byte by byte. Every second one shares the
 * processors with two that spin.
 *
 * EMBTIER_SOLVER_LIBRARY names the library of HiGHS or CBC. Without it there is no outside solver.
 * Nodes end the solver. If its limit of processor time does, the figure would depend on the
 * machine, so that is a failure.
 */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "placement/random.h"
#include "placement/solve/solve.h"
#include "placement/split/split_solve.h"
#include "tests/bench/lib/bench.h"
#include "tests/bench/lib/plan_model.h"
#include "tools/solve/child_solver.h"

#define SEEDS        20
#define ROW_SEEDS    20
#define LARGE_TABLES 2000
#define LARGE_GPUS   16
#define LARGE_SEEDS  3
#define SAME_TABLES  300
#define SAME_RUNS    20
#define SPINNERS     2
#define GOOD_GAP     0.005
#define GOOD_ROW_GAP 0.003
#define REMAP_BYTES  16
#define ZIPF_LEAST   0.6
#define ZIPF_MOST    1.4

/* Times and bounds of all seeds, and the processor seconds of each, with those of the child. */
struct plans {
    double *times_s, *bounds_s, *processor_s;
    uint32_t count, solver_won;
    struct child_solver child;
    struct milp_solver solver;
    char program[PATH_MAX];
};

/* ---- runs ---- */

static double timeval_s(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

/* Sums up this process's time and that of the solver. */
static double processor_s(void)
{
    double sum_s = 0;

    for (int who = RUSAGE_CHILDREN; who <= RUSAGE_SELF; who++) {
        struct rusage usage;

        if (getrusage(who, &usage) == 0)
            sum_s += timeval_s(usage.ru_utime) + timeval_s(usage.ru_stime);
    }
    return sum_s;
}

static const struct milp_solver *find_solver(struct plans *plans)
{
    char here[PATH_MAX / 2] = { 0 };

    plans->child = (struct child_solver)CHILD_SOLVER_INIT;
    plans->child.library = getenv("EMBTIER_SOLVER_LIBRARY");
    if (!plans->child.library || readlink("/proc/self/exe", here, sizeof(here) - 1) <= 0)
        return NULL;
    *strrchr(here, '/') = '\0';
    snprintf(plans->program, sizeof(plans->program), "%s/../../tools/embtier-solve", here);
    plans->child.program = plans->program;
    plans->solver = child_solver(&plans->child);
    return &plans->solver;
}

static struct solve_answer *solve(const struct model *model, const struct milp_solver *solver)
{
    const struct solve_opts opts = { .solver = solver, .gap = GOOD_GAP };
    struct solve_answer *answer = NULL;
    struct err_msg msg = { { 0 } };

    if (solve_model(model, &opts, &answer, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    return answer;
}

/* The kernel ends a solver by SIGKILL that has used up its processor time. */
static void check_end(const struct child_solver *child, const struct solve_answer *answer)
{
    if (strstr(answer->solver_says.text, "ended by signal 9"))
        bench_die("the solver took more than %u s of processor time", child->processor_s);
}

static void run_seed(struct plans *plans, uint32_t seed, uint32_t tables, uint32_t gpus,
                     const struct milp_solver *solver)
{
    struct model model = plan_model_draw(seed, tables, gpus);
    const double before_s = processor_s();
    struct solve_answer *const answer = solve(&model, solver);

    plans->processor_s[seed] = processor_s() - before_s;
    plans->times_s[seed] = answer->largest_s;
    plans->bounds_s[seed] = answer->bound_s;
    plans->solver_won += answer->solver_won;
    bench_say("seed %u: gap %.2f %%, %.1f s of processor time; solver: %s%s", seed,
              100 * solve_gap(answer), plans->processor_s[seed], answer->solver_won ? "won" : "",
              answer->solver_says.text);
    check_end(&plans->child, answer);
    solve_answer_free(answer);
    plan_model_clear(&model);
}

/* ---- figures ---- */

static void add_gaps(void *context, json_t *figure)
{
    const struct plans *const plans = context;
    double *const gaps = bench_alloc(plans->count, sizeof(*gaps));
    json_t *const all = json_array();

    for (uint32_t i = 0; i < plans->count; i++) {
        gaps[i] = 1 - plans->bounds_s[i] / plans->times_s[i];
        json_array_append_new(all, json_real(gaps[i]));
    }
    json_object_set_new(figure, "gaps", all);
    json_object_set_new(figure, "gap_median", json_real(bench_median(gaps, plans->count)));
    json_object_set_new(figure, "gap_worst", json_real(bench_quantile(gaps, plans->count, 1)));
    json_object_set_new(figure, "processor_seconds_worst",
                        json_real(bench_quantile(plans->processor_s, plans->count, 1)));
    json_object_set_new(figure, "solver_won", json_integer(plans->solver_won));
    free(gaps);
}

static void run_plans(const char *name, uint32_t seeds, uint32_t tables, uint32_t gpus, double bar)
{
    struct plans plans = { .count = seeds };
    const struct milp_solver *const solver = find_solver(&plans);

    plans.times_s = bench_alloc(seeds, sizeof(double));
    plans.bounds_s = bench_alloc(seeds, sizeof(double));
    plans.processor_s = bench_alloc(seeds, sizeof(double));
    for (uint32_t i = 0; i < seeds; i++)
        run_seed(&plans, i, tables, gpus, solver);
    bench_report(
        &(struct bench_figure){ .name = name,
                                .unit = "s",
                                .lower_is_better = true,
                                .bar = bar,
                                .limit = "whole tables, few of them large",
                                .reference_name = "proven bound",
                                .reference_options = solver ? "own placement, then the solver"
                                                            : "own placement, no outside solver" },
        plans.times_s, plans.bounds_s, seeds, add_gaps, &plans);
    free(plans.times_s);
    free(plans.bounds_s);
    free(plans.processor_s);
}

static void plan_table(void)
{
    run_plans("plan-table", (uint32_t)bench_scaled(SEEDS, 1),
              (uint32_t)bench_scaled(PLAN_MODEL_TABLES, 30), PLAN_MODEL_GPUS, 1 / (1 - 0.02));
}

static void plan_large(void)
{
    run_plans("plan-large", (uint32_t)bench_scaled(LARGE_SEEDS, 1),
              (uint32_t)bench_scaled(LARGE_TABLES, 60), LARGE_GPUS, 0);
}

/* ---- tables cut by hotness ---- */

/* A table's curve of lookups, and its time of a lookup in the rest. */
struct curve {
    struct access_cdf cdf;
    double rest_lookup_s[ACCESS_CDF_POINTS_MAX + 1];
};

/* The lookups of the @rows hottest rows: the integral of x^-exponent, from 0.5 on. */
static double zipf_lookups(double rows, double exponent)
{
    const double power = 1 - exponent;

    return fabs(power) < 1e-9 ? log(2 * rows + 1)
                              : (pow(rows + 0.5, power) - pow(0.5, power)) / power;
}

static void draw_curve(struct random *random, double rows, struct curve *ret_curve)
{
    const double exponent = ZIPF_LEAST + (ZIPF_MOST - ZIPF_LEAST) * random_unit(random);
    const double all = zipf_lookups(rows, exponent);
    struct access_cdf *const cdf = &ret_curve->cdf;
    double last = 0;

    for (uint32_t i = 0; i < ACCESS_CDF_POINTS_MAX && last < rows; i++) {
        const double next =
            fmin(fmax(floor(pow(rows, (i + 1.0) / ACCESS_CDF_POINTS_MAX)), last + 1), rows);

        last = i + 1 == ACCESS_CDF_POINTS_MAX ? rows : next;
        cdf->rows[cdf->point_count] = last;
        cdf->shares[cdf->point_count++] = last == rows ? 1 : zipf_lookups(last, exponent) / all;
    }
}

/* The caller frees tables and curves. */
static struct split_model draw_split_model(uint32_t seed, uint32_t tables,
                                           struct curve **ret_curves)
{
    struct model model = plan_model_draw(seed, tables, PLAN_MODEL_GPUS);
    struct random random = { UINT64_C(0x2545f4914f6cdd1d) * (seed + 1) };
    struct split_table *const drawn = bench_alloc(tables, sizeof(*drawn));
    struct curve *const curves = bench_alloc(tables, sizeof(*curves));
    const double ssd =
        model.memories[model.memory_count - 1].bandwidth_bytes_per_s / PLAN_MODEL_GPUS;

    for (uint32_t i = 0; i < tables; i++) {
        const struct model_table *const t = &model.tables[i];
        const uint64_t rows = t->weight_bytes / t->lookup_bytes;

        draw_curve(&random, (double)rows, &curves[i]);
        for (uint32_t k = 0; k <= curves[i].cdf.point_count; k++)
            curves[i].rest_lookup_s[k] = t->lookup_bytes / ssd;
        drawn[i] = (struct split_table){
            .name = t->name,
            .rows = rows,
            .row_bytes = t->lookup_bytes,
            .remap_bytes = REMAP_BYTES,
            .lookup_bytes = t->lookup_bytes,
            .bags_per_batch = t->bags_per_batch,
            .pooling_factor = t->pooling_factor,
            .cdf = &curves[i].cdf,
            .rest_lookup_s = curves[i].rest_lookup_s,
        };
    }
    *ret_curves = curves;
    plan_model_clear(&model);
    return (struct split_model){
        drawn, model.memories, NULL, tables, model.memory_count - 1, PLAN_MODEL_GPUS, 0,
    };
}

static void run_row_seed(struct plans *plans, uint32_t seed, uint32_t tables)
{
    struct curve *curves = NULL;
    const struct split_model model = draw_split_model(seed, tables, &curves);
    const struct split_opts opts = { .seed = seed, .gap = GOOD_ROW_GAP };
    const double before_s = processor_s();
    struct split_answer *answer = NULL;
    struct err_msg msg = { { 0 } };

    if (split_solve(&model, &opts, &answer, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    plans->processor_s[seed] = processor_s() - before_s;
    plans->times_s[seed] = answer->largest_s;
    plans->bounds_s[seed] = answer->bound_s;
    bench_say("seed %u: gap %.3f %%, %.1f s of processor time", seed, 100 * split_gap(answer),
              plans->processor_s[seed]);
    split_answer_free(answer);
    free(curves);
    free((void *)model.tables);
}

static void plan_row(void)
{
    const uint32_t seeds = (uint32_t)bench_scaled(ROW_SEEDS, 1);
    struct plans plans = { .count = seeds };

    plans.times_s = bench_alloc(seeds, sizeof(double));
    plans.bounds_s = bench_alloc(seeds, sizeof(double));
    plans.processor_s = bench_alloc(seeds, sizeof(double));
    for (uint32_t i = 0; i < seeds; i++)
        run_row_seed(&plans, i, (uint32_t)bench_scaled(PLAN_MODEL_TABLES, 30));
    bench_report(&(struct bench_figure){ .name = "plan-row",
                                         .unit = "s",
                                         .lower_is_better = true,
                                         .bar = 1 / (1 - 0.005),
                                         .limit = "each table on one GPU",
                                         .reference_name = "proven bound" },
                 plans.times_s, plans.bounds_s, seeds, add_gaps, &plans);
    free(plans.times_s);
    free(plans.bounds_s);
    free(plans.processor_s);
}

/* ---- equal placements ---- */

/* Two processes that keep the processors busy until they are ended. */
static void start_spinning(pid_t *ret_pids)
{
    for (uint32_t i = 0; i < SPINNERS; i++) {
        ret_pids[i] = fork();
        if (ret_pids[i] < 0)
            bench_die("no process can be started");
        if (ret_pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile uint32_t j = 0;; j++)
                ;
        }
    }
}

static void end_spinning(const pid_t *pids)
{
    for (uint32_t i = 0; i < SPINNERS; i++) {
        kill(pids[i], SIGKILL);
        (void)waitpid(pids[i], NULL, 0);
    }
}

/* Solves the model in a process of its own. @ret_places is shared with it. */
static void solve_apart(const struct model *model, uint32_t *ret_places)
{
    int status = 0;
    const pid_t pid = fork();

    if (pid < 0)
        bench_die("no process can be started");
    if (pid == 0) {
        struct solve_answer *const answer = solve(model, NULL);

        memcpy(ret_places, answer->places, model->table_count * sizeof(*ret_places));
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        bench_die("a process that places tables failed");
}

/* Counts the runs that place all tables as the first does. Every second one has to share the
 * processors. */
static uint32_t count_equal_runs(const struct model *model, uint32_t runs, uint32_t *places)
{
    uint32_t *const first = places, *const again = places + model->table_count;
    const size_t bytes = model->table_count * sizeof(*places);
    uint32_t equal = 1;

    solve_apart(model, first);
    for (uint32_t i = 1; i < runs; i++) {
        pid_t spinning[SPINNERS] = { 0 };

        memset(again, 0xff, bytes);
        if (i % 2)
            start_spinning(spinning);
        solve_apart(model, again);
        if (i % 2)
            end_spinning(spinning);
        equal += memcmp(first, again, bytes) == 0;
    }
    return equal;
}

static void plan_same(void)
{
    struct model model =
        plan_model_draw(0, (uint32_t)bench_scaled(SAME_TABLES, 30), PLAN_MODEL_GPUS);
    const size_t bytes = 2 * model.table_count * sizeof(uint32_t);
    const uint32_t run_count = (uint32_t)bench_scaled(SAME_RUNS, 4);
    uint32_t *const places =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double equal_runs;
    const double runs = run_count;

    if (places == MAP_FAILED)
        bench_die("no memory for placements");
    equal_runs = count_equal_runs(&model, run_count, places);
    bench_report(&(struct bench_figure){ .name = "plan-same",
                                         .unit = "runs",
                                         .bar = 1,
                                         .limit = "counts of steps end the work, never a clock",
                                         .reference_name = "all runs" },
                 &equal_runs, &runs, 1, NULL, NULL);
    munmap(places, bytes);
    plan_model_clear(&model);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "plan-table", plan_table },
        { "plan-large", plan_large },
        { "plan-row", plan_row },
        { "plan-same", plan_same },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
