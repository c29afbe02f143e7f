/* SPDX-License-Identifier: Apache-2.0 */
/* bench_plan.c: how close placements of tables come to their proven bound.
 *
 * plan-table: 856 tables on 8 GPUs and 3 memories, for 20 seeds. plan-large: 2,000 tables on 16
 * GPUs, for 3 seeds. lib/plans/plan_model.h draws them. The ratio is the lookup time divided by its
 * bound, which no placement can beat.
 *
 * plan-row: the tables of plan-table, cut by hotness over HBM and DRAM; the rest of their rows is
 * read from SSD. Lookups follow Zipf's law, with an exponent drawn for each table.
 *
 * plan-same: `embtier plan make` runs 20 times on the same files, of which 10 times with
 * --row-wise. The plans' files are compared, byte by byte. Every second run shares the processors
 * with two processes that spin. EMBTIER_CLI names the program, if it is not that of this build.
 *
 * --turns sets the number of seeds. The bar is for the median. plan-table and plan-row are met only
 * if no seed's plan took more processor time than is asked, and plan-table only if no seed's gap is
 * above 15 % (lib/plans/plan_gaps.h).
 *
 * EMBTIER_SOLVER_LIBRARY names the library of HiGHS or CBC. Without it there is no outside solver.
 * Nodes end the solver. If its limit of processor time does, the figure would depend on the
 * machine, so that is a failure.
 */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "placement/profile/profile_file.h"
#include "placement/random.h"
#include "placement/solve/solve.h"
#include "placement/split/split_solve.h"
#include "tests/bench/lib/bench.h"
#include "tests/bench/lib/plans/bench_solver.h"
#include "tests/bench/lib/plans/plan_gaps.h"
#include "tests/bench/lib/plans/plan_model.h"
#include "tests/bench/lib/plans/simulated_model.h"

#define SEEDS        20
#define ROW_SEEDS    20
#define LARGE_TABLES 2000
#define LARGE_GPUS   16
#define LARGE_SEEDS  3
#define SAME_TABLES  160
#define SAME_SEED    3 /* some of its tables fit in no array */
#define SAME_RUNS    20
#define SPINNERS     2
/* In the shortest form: each kind of plan, alone and beside others. */
#define SAME_TABLES_LEAST 12
#define SAME_RUNS_LEAST   4
/* Processor seconds that each seed may take. */
#define TABLE_ALLOWED_S 60
#define LARGE_ALLOWED_S 120
#define SAME_BYTES_MAX  (1 << 20)
#define WORST_GAP       0.15 /* of any seed of plan-table */
#define GOOD_GAP        0.005
#define GOOD_ROW_GAP    0.003
#define REMAP_BYTES     16
#define ZIPF_LEAST      0.6
#define ZIPF_MOST       1.4

struct plans {
    struct plan_gaps gaps;
    struct bench_solver solver;
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

static struct solve_answer *solve(const struct model *model, const struct milp_solver *solver)
{
    const struct solve_opts opts = { .solver = solver, .gap = GOOD_GAP };
    struct solve_answer *answer = NULL;
    struct err_msg msg = { { 0 } };

    if (solve_model(model, &opts, &answer, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    return answer;
}

static void run_seed(struct plans *plans, uint32_t seed, uint32_t tables, uint32_t gpus,
                     const struct milp_solver *solver)
{
    struct model model = plan_model_draw(seed, tables, gpus);
    const double before_s = processor_s();
    struct solve_answer *const answer = solve(&model, solver);

    plans->gaps.processor_s[seed] = processor_s() - before_s;
    plans->gaps.times_s[seed] = answer->largest_s;
    plans->gaps.bounds_s[seed] = answer->bound_s;
    plans->gaps.solver_won += answer->solver_won;
    bench_say("seed %u: gap %.2f %%, %.1f s of processor time; solver: %s%s", seed,
              100 * solve_gap(answer), plans->gaps.processor_s[seed],
              answer->solver_won ? "won" : "", answer->solver_says.text);
    bench_solver_check(&plans->solver, answer);
    solve_answer_free(answer);
    plan_model_clear(&model);
}

/* ---- figures ---- */

static void add_gaps(void *gaps, json_t *figure)
{
    plan_gaps_add(gaps, figure);
}

static void report(const struct bench_figure *figure, struct plan_gaps *gaps)
{
    bench_report(figure, gaps->times_s, gaps->bounds_s, gaps->count, add_gaps, gaps);
    plan_gaps_free(gaps);
}

static void run_plans(const char *name, uint32_t seeds, uint32_t tables, uint32_t gpus, double bar,
                      const struct plan_gaps *limits)
{
    struct plans plans = { 0 };
    const struct milp_solver *const solver = bench_solver_find(&plans.solver);

    plan_gaps_new(seeds, limits, &plans.gaps);
    for (uint32_t i = 0; i < seeds; i++)
        run_seed(&plans, i, tables, gpus, solver);
    report(&(struct bench_figure){ .name = name,
                                   .unit = "s",
                                   .lower_is_better = true,
                                   .bar = bar,
                                   .limit = "whole tables, few of them large",
                                   .reference_name = "proven bound",
                                   .reference_options = solver
                                                            ? "own placement, then the solver"
                                                            : "own placement, no outside solver" },
           &plans.gaps);
}

static void plan_table(void)
{
    run_plans("plan-table", bench_seeds(SEEDS, BENCH_TURNS_MAX),
              (uint32_t)bench_scaled(PLAN_MODEL_TABLES, 30), PLAN_MODEL_GPUS, 1 / (1 - 0.02),
              &(struct plan_gaps){ .worst_gap_allowed = WORST_GAP, .allowed_s = TABLE_ALLOWED_S });
}

static void plan_large(void)
{
    run_plans("plan-large", bench_seeds(LARGE_SEEDS, BENCH_TURNS_MAX),
              (uint32_t)bench_scaled(LARGE_TABLES, 60), LARGE_GPUS, 0,
              &(struct plan_gaps){ .allowed_s = LARGE_ALLOWED_S });
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

static void run_row_seed(struct plan_gaps *gaps, uint32_t seed, uint32_t tables)
{
    struct curve *curves = NULL;
    const struct split_model model = draw_split_model(seed, tables, &curves);
    const struct split_opts opts = { .seed = seed, .gap = GOOD_ROW_GAP };
    const double before_s = processor_s();
    struct split_answer *answer = NULL;
    struct err_msg msg = { { 0 } };

    if (split_solve(&model, &opts, &answer, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    gaps->processor_s[seed] = processor_s() - before_s;
    gaps->times_s[seed] = answer->largest_s;
    gaps->bounds_s[seed] = answer->bound_s;
    bench_say("seed %u: gap %.3f %%, %.1f s of processor time", seed, 100 * split_gap(answer),
              gaps->processor_s[seed]);
    split_answer_free(answer);
    free(curves);
    free((void *)model.tables);
}

static void plan_row(void)
{
    const uint32_t seeds = bench_seeds(ROW_SEEDS, BENCH_TURNS_MAX);
    struct plan_gaps gaps;

    plan_gaps_new(seeds, &(struct plan_gaps){ .allowed_s = TABLE_ALLOWED_S }, &gaps);
    for (uint32_t i = 0; i < seeds; i++)
        run_row_seed(&gaps, i, (uint32_t)bench_scaled(PLAN_MODEL_TABLES, 30));
    report(&(struct bench_figure){ .name = "plan-row",
                                   .unit = "s",
                                   .lower_is_better = true,
                                   .bar = 1 / (1 - 0.005),
                                   .limit = "each table on one GPU",
                                   .reference_name = "proven bound" },
           &gaps);
}

/* ---- equal plans ---- */

/* The files of all runs. The model's numbers go through files, as those of users do. */
struct same {
    const char *program; /* embtier */
    char folder[PATH_MAX / 2];
    char profile[PATH_MAX], machine[PATH_MAX], plan[PATH_MAX];
    char samples[32];    /* in a batch */
    json_int_t bytes[2]; /* of the first plan of whole tables, and of cut ones */
    char *first[2];
};

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

/* Finds embtier as EMBTIER_CLI says, or in the build of this program. */
static const char *find_program(void)
{
    static char path[PATH_MAX];
    char here[PATH_MAX / 2] = { 0 };

    if (getenv("EMBTIER_CLI"))
        return getenv("EMBTIER_CLI");
    if (readlink("/proc/self/exe", here, sizeof(here) - 1) <= 0)
        bench_die("/proc/self/exe cannot be read");
    *strrchr(here, '/') = '\0';
    snprintf(path, sizeof(path), "%s/../../tools/embtier", here);
    return path;
}

static void write_machine(const struct machine *machine, const char *path)
{
    FILE *const file = fopen(path, "wxe");

    if (!file)
        bench_die("%s cannot be written", path);
    fprintf(file, "gpus: {count: %u, hbm_bytes: %" PRIu64 ", hbm_bandwidth_bytes_per_s: %.0f}\n",
            machine->gpu_count, machine->hbm_bytes, machine->hbm_bandwidth_bytes_per_s);
    fprintf(file, "tiers: [{name: %s, bytes: %" PRIu64 ", bandwidth_bytes_per_s: %.0f}]\n",
            machine->tiers[0].name, machine->tiers[0].bytes,
            machine->tiers[0].bandwidth_bytes_per_s);
    fprintf(file, "ssd: {bytes: %" PRIu64 ", read_bandwidth_bytes_per_s: %.0f}\n",
            machine->ssd.bytes, machine->ssd.read_bandwidth_bytes_per_s);
    if (fclose(file) != 0)
        bench_die("%s cannot be written", path);
}

static void write_inputs(struct same *same)
{
    struct simulated_model *const model = simulated_model_new(
        &locality_published[0], SAME_SEED, (uint32_t)bench_scaled(SAME_TABLES, SAME_TABLES_LEAST));
    const char *const parent = getenv("TMPDIR");
    struct err_msg msg = { { 0 } };

    snprintf(same->folder, sizeof(same->folder), "%s/embtier-plans.XXXXXX",
             parent ? parent : "/tmp");
    if (!mkdtemp(same->folder))
        bench_die("%s cannot be made", same->folder);
    snprintf(same->profile, sizeof(same->profile), "%s/profile", same->folder);
    snprintf(same->machine, sizeof(same->machine), "%s/machine.yaml", same->folder);
    snprintf(same->plan, sizeof(same->plan), "%s/plan", same->folder);
    snprintf(same->samples, sizeof(same->samples), "%.0f", model->samples_per_batch);
    if (profile_file_save(model->profile, same->profile, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    write_machine(&model->machine, same->machine);
    simulated_model_free(model);
}

static void remove_files(struct same *same)
{
    if (unlink(same->profile) != 0 || unlink(same->machine) != 0 || rmdir(same->folder) != 0)
        bench_say("%s was not removed", same->folder);
    free(same->first[0]);
    free(same->first[1]);
}

/* Its standard output has the plan once more. */
static void become_planner(const struct same *same, bool row_wise)
{
    const char *const last = row_wise ? "--row-wise" : NULL;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!freopen("/dev/null", "w", stdout))
        _exit(126);
    execl(same->program, same->program, "plan", "make", same->plan, "--profile", same->profile,
          "--machine", same->machine, "--optimizer", "rowwise_adagrad", "--samples-per-batch",
          same->samples, "--solver", "none", last, (char *)NULL);
    _exit(127);
}

static void make_plan(const struct same *same, bool row_wise)
{
    int status = 0;
    const pid_t pid = fork();

    if (pid < 0)
        bench_die("no process can be started");
    if (pid == 0)
        become_planner(same, row_wise);
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        bench_die("%s plan make failed", same->program);
}

/* Takes the plan's file away. The caller frees the bytes. */
static char *take_plan(const char *path, json_int_t *ret_bytes)
{
    char *const text = bench_alloc(1, SAME_BYTES_MAX);
    FILE *const file = fopen(path, "re");

    if (!file)
        bench_die("%s cannot be read", path);
    *ret_bytes = (json_int_t)fread(text, 1, SAME_BYTES_MAX, file);
    if (*ret_bytes == 0 || *ret_bytes == SAME_BYTES_MAX || fclose(file) != 0 || unlink(path) != 0)
        bench_die("%s has more than %d bytes, or none", path, SAME_BYTES_MAX);
    return text;
}

/* Returns whether the plan has the bytes of the first of its kind. Each second run shares the
 * processors, and each second pair of runs cuts tables. */
static bool is_equal_run(struct same *same, uint32_t run)
{
    const bool row_wise = run / 2 % 2, shares = run % 2;
    pid_t spinning[SPINNERS] = { 0 };
    json_int_t bytes = 0;
    char *text;
    bool equal;

    if (shares)
        start_spinning(spinning);
    make_plan(same, row_wise);
    if (shares)
        end_spinning(spinning);
    text = take_plan(same->plan, &bytes);
    if (!same->first[row_wise]) {
        same->first[row_wise] = text;
        same->bytes[row_wise] = bytes;
        return true;
    }
    equal =
        bytes == same->bytes[row_wise] && memcmp(text, same->first[row_wise], (size_t)bytes) == 0;
    free(text);
    return equal;
}

static void add_bytes(void *context, json_t *figure)
{
    const struct same *const same = context;

    json_object_set_new(figure, "plan_bytes", json_integer(same->bytes[0]));
    json_object_set_new(figure, "row_wise_plan_bytes", json_integer(same->bytes[1]));
}

static void plan_same(void)
{
    struct same same = { .program = find_program() };
    const uint32_t run_count = (uint32_t)bench_scaled(SAME_RUNS, SAME_RUNS_LEAST);
    const double runs = run_count;
    double equal_runs = 0;

    write_inputs(&same);
    for (uint32_t i = 0; i < run_count; i++)
        equal_runs += is_equal_run(&same, i);
    bench_report(&(struct bench_figure){ .name = "plan-same",
                                         .unit = "runs",
                                         .bar = 1,
                                         .limit = "counts of steps end the work, never a clock",
                                         .reference_name = "all runs" },
                 &equal_runs, &runs, 1, add_bytes, &same);
    remove_files(&same);
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
