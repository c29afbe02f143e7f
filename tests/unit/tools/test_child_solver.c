/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a solver which crashes, lies, sleeps or takes all memory ends in an error, and never
 * in a wrong placement.
 *
 * The solvers are tests/faults/fake_highs.c and fake_cbc.c. HiGHS and CBC are asked too, if they
 * are installed or EMBTIER_TEST_SOLVER has the path of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "placement/model/assignment.h"
#include "placement/random.h"
#include "placement/solve/solve.h"
#include "tests/forms.h"
#include "tools/solve/child_solver.h"

#define TABLES 40
#define GPUS   3
/* The address sanitizer takes more than any limit. */
#define IS_SANITIZED BY_BUILD(false, true, false)
/* Nor do real solvers stay within their limit of memory with a sanitizer. */
#define HAS_REAL_SOLVERS BY_BUILD(true, false, false)

static uint32_t descriptors_before; /* each test */

struct fixture {
    struct model_table tables[TABLES];
    struct model_memory memories[3];
    struct model model;
    char program[PATH_MAX], library[PATH_MAX];
    struct child_solver child;
    struct milp_solver solver;
};

/* The path of another file of the build, from that of this program. */
static void built_path(const char *from_here, char *ret_path)
{
    char here[PATH_MAX / 2] = { 0 };

    assert_true(readlink("/proc/self/exe", here, sizeof(here) - 1) > 0);
    *strrchr(here, '/') = '\0';
    snprintf(ret_path, PATH_MAX, "%s/%s", here, from_here);
    assert_int_equal(access(ret_path, R_OK), 0);
}

static void draw_model(struct fixture *f)
{
    struct random random = { 12 };

    for (uint32_t i = 0; i < TABLES; i++) {
        struct model_table *const table = &f->tables[i];

        *table = (struct model_table){ .name = "t", .bags_per_batch = 1024, .lookup_bytes = 512 };
        table->weight_bytes = (uint64_t)(1000000 * pow(random_share(&random), -0.9));
        table->pooling_factor = -8.34 * log(random_share(&random));
    }
    f->memories[0] = (struct model_memory){ "HBM", false, 9000000, 1600e9, NULL };
    f->memories[1] = (struct model_memory){ "DRAM", true, 40000000, 200e9, NULL };
    f->memories[2] = (struct model_memory){ "SSD", true, UINT64_C(1) << 40, 6e9, NULL };
    f->model = (struct model){ f->tables, f->memories, NULL, TABLES, 3, GPUS, 0, NULL };
}

static uint32_t count_descriptors(void)
{
    DIR *const folder = opendir("/proc/self/fd");
    uint32_t count = 0;

    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static int set_up(void **state)
{
    struct fixture *const f = calloc(1, sizeof(*f));

    assert_non_null(f);
    descriptors_before = count_descriptors();
    draw_model(f);
    built_path("../../tools/embtier-solve", f->program);
    built_path("../faults/libfake_highs.so", f->library);
    f->child = (struct child_solver)CHILD_SOLVER_INIT;
    f->child.program = f->program;
    f->child.library = f->library;
    f->child.processor_s = 20;
    if (IS_SANITIZED)
        f->child.memory_bytes = 0;
    f->solver = child_solver(&f->child);
    *state = f;
    return 0;
}

/* No descriptor and no process is left behind. */
static int tear_down(void **state)
{
    free(*state);
    assert_int_equal(count_descriptors(), descriptors_before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    return 0;
}

/* Few steps, so that the own answer leaves something to do. */
static struct solve_answer *ask(struct fixture *f, const struct milp_solver *solver,
                                const char *way)
{
    const struct solve_opts opts = { .steps = 4000, .searches = 2, .solver = solver };
    struct solve_answer *answer = NULL;
    struct err_msg msg = { { 0 } };
    double largest_s;

    setenv("EMBTIER_FAKE_SOLVER", way, 1);
    if (solve_model(&f->model, &opts, &answer, &msg) != EMBTIER_OK)
        fail_msg("%s: %s", way, msg.text);
    assert_int_equal(assignment_check(&f->model, answer->places, &largest_s, NULL, NULL),
                     EMBTIER_OK);
    assert_true(answer->largest_s == largest_s);
    assert_true(answer->bound_s <= largest_s);
    return answer;
}

/* The answer is as without a solver, and the reason is told. */
static void assert_own(struct fixture *f, const char *way, const char *reason)
{
    _cleanup_(solve_answer_freep) struct solve_answer *answer = ask(f, &f->solver, way);
    _cleanup_(solve_answer_freep) struct solve_answer *own = ask(f, NULL, way);

    assert_false(answer->solver_won);
    assert_memory_equal(answer->places, own->places, TABLES * sizeof(*own->places));
    assert_true(answer->bound_s == own->bound_s);
    if (!strstr(answer->solver_says.text, reason))
        fail_msg("%s: `%s` does not hold `%s`", way, answer->solver_says.text, reason);
}

static void test_the_start_reaches_the_solver_and_comes_back(void **state)
{
    struct fixture *const f = *state;
    _cleanup_(solve_answer_freep) struct solve_answer *answer = ask(f, &f->solver, "start");

    assert_false(answer->solver_won);
    assert_string_equal(answer->solver_says.text, "its answer is no better");
    assert_true(answer->solver_bound_s == 0);
}

static void test_solvers_that_end_without_an_answer(void **state)
{
    assert_own(*state, "crash", "ended by signal 6");
    assert_own(*state, "exit", "cut short, or none");
    assert_own(*state, "fail", "the solver failed: HiGHS failed");
    assert_own(*state, "none", "HiGHS found no placement");
    assert_own(*state, "version", "HiGHS has version 2; allowed: 1");
    assert_own(*state, "print", "ended by signal 25");
}

static void test_answers_that_are_wrong(void **state)
{
    assert_own(*state, "rubbish", "its answer leaves a table without a place");
    assert_own(*state, "full", "exceeds a memory");
    assert_own(*state, "bound", "contradicts a placement");
}

static void test_solvers_that_never_end(void **state)
{
    struct fixture *const f = *state;

    f->child.stall_s = 1;
    assert_own(f, "sleep", "used less than 1 % of a processor for 1 s");
    assert_own(f, "nap", "used less than 1 % of a processor for 1 s");
    f->child.stall_s = 60; /* its start may wait for the disk */
    f->child.processor_s = 3;
    assert_own(f, "spin", "ended by signal");
}

/* Then no status of a child is kept. */
static void test_a_program_that_ignores_the_end_of_children(void **state)
{
    struct fixture *const f = *state;

    assert_true(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    assert_own(f, "start", "its answer is no better");
    assert_own(f, "fail", "cut short, or none: HiGHS failed");
    f->child.stall_s = 1;
    assert_own(f, "sleep", "used less than 1 % of a processor for 1 s");
    assert_true(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
}

static void test_a_solver_that_takes_all_memory(void **state)
{
    struct fixture *const f = *state;

    if (IS_SANITIZED)
        skip();
    f->child.memory_bytes = 256 * MIB;
    assert_own(f, "memory", "ended by signal 6");
}

static void test_what_is_missing_is_named(void **state)
{
    struct fixture *const f = *state;

    f->child.library = "/nonexistent/libhighs.so";
    assert_own(f, "start", "/nonexistent/libhighs.so");
    f->child.library = "libm.so.6";
    assert_own(f, "start", "neither HiGHS nor CBC");
    f->child.library = "";
    assert_own(f, "start", "a library has no name");
    f->child.program = "/nonexistent/embtier-solve";
    assert_own(f, "start", "program /nonexistent/embtier-solve cannot be run");
}

static void test_each_library_that_is_missing_is_named(void **state)
{
    struct fixture *const f = *state;
    _cleanup_(solve_answer_freep) struct solve_answer *answer = NULL;

    f->child.library = NULL;
    f->child.nodes = 0;
    answer = ask(f, &f->solver, "start");
    if (!strstr(answer->solver_says.text, "cannot open shared object"))
        skip(); /* there is one */
    assert_non_null(strstr(answer->solver_says.text, "libhighs.so: "));
    assert_non_null(strstr(answer->solver_says.text, "libhighs.so.1: "));
    assert_non_null(strstr(answer->solver_says.text, "libCbcSolver.so.3.1: "));
    assert_non_null(strstr(answer->solver_says.text, "libCbcSolver.so.3: "));
}

/* ---- One library after the other ---- */

/* A folder in which the loader finds libraries of these names first. */
struct libraries {
    char folder[32];
    char *before; /* the variable's value, if it was set */
};

static struct libraries make_libraries(void)
{
    struct libraries libraries = { "/tmp/embtier-solvers.XXXXXX", NULL };

    if (getenv("LD_LIBRARY_PATH"))
        libraries.before = strdup(getenv("LD_LIBRARY_PATH"));
    assert_non_null(mkdtemp(libraries.folder));
    setenv("LD_LIBRARY_PATH", libraries.folder, 1);
    return libraries;
}

static void add_library(const struct libraries *libraries, const char *name, const char *built)
{
    char from[PATH_MAX], path[PATH_MAX];

    built_path(built, from);
    snprintf(path, sizeof(path), "%s/%s", libraries->folder, name);
    assert_int_equal(symlink(from, path), 0);
}

static void remove_libraries(const struct libraries *libraries)
{
    static const char *const names[] = { "libhighs.so", "libhighs.so.1", "libCbcSolver.so.3.1",
                                         "libCbcSolver.so.3" };
    char path[PATH_MAX];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", libraries->folder, names[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(libraries->folder), 0);
    unsetenv("LD_LIBRARY_PATH");
    if (libraries->before)
        setenv("LD_LIBRARY_PATH", libraries->before, 1);
    free(libraries->before);
}

static void test_a_library_that_is_refused_is_followed_by_the_next(void **state)
{
    struct fixture *const f = *state;
    const struct libraries libraries = make_libraries();

    add_library(&libraries, "libhighs.so", "../faults/libfake_highs.so");
    add_library(&libraries, "libhighs.so.1", "../faults/libfake_highs_without_run.so");
    add_library(&libraries, "libCbcSolver.so.3.1", "../faults/libfake_highs_without_run.so");
    add_library(&libraries, "libCbcSolver.so.3", "../faults/libfake_cbc.so");
    f->child.library = NULL;
    assert_own(f, "version", "its answer is no better");
    assert_string_equal(f->child.solver, "CBC 2.0.3");
    assert_string_equal(f->child.refused, "libhighs.so: HiGHS has version 2; allowed: 1; "
                                          "libhighs.so.1: HiGHS has no function Highs_run; "
                                          "libCbcSolver.so.3.1: HiGHS has no function Highs_run");
    remove_libraries(&libraries);
}

/* The name in Debian 13 and Ubuntu 24.04. Whatever the user's variables say, OpenBLAS is to start
 * no thread, or fake_cbc.c refuses. */
static void test_cbc_of_newer_systems_is_found(void **state)
{
    struct fixture *const f = *state;
    const struct libraries libraries = make_libraries();

    add_library(&libraries, "libhighs.so", "../faults/libfake_highs.so");
    add_library(&libraries, "libhighs.so.1", "../faults/libfake_highs.so");
    add_library(&libraries, "libCbcSolver.so.3.1", "../faults/libfake_cbc.so");
    setenv("OPENBLAS_NUM_THREADS", "64", 1);
    f->child.library = NULL;
    assert_own(f, "version", "its answer is no better");
    assert_string_equal(f->child.solver, "CBC 2.0.3");
    unsetenv("OPENBLAS_NUM_THREADS");
    remove_libraries(&libraries);
}

static void test_a_library_that_is_not_there_is_no_news_if_another_one_is(void **state)
{
    struct fixture *const f = *state;
    struct libraries libraries;

    if (dlopen("libhighs.so", RTLD_LAZY))
        skip(); /* it is there */
    libraries = make_libraries();
    add_library(&libraries, "libhighs.so.1", "../faults/libfake_highs.so");
    f->child.library = NULL;
    assert_own(f, "start", "its answer is no better");
    assert_string_equal(f->child.solver, "HiGHS 1.0.7");
    assert_string_equal(f->child.refused, "");
    remove_libraries(&libraries);
}

static void test_without_an_answer_no_solver_is_named(void **state)
{
    struct fixture *const f = *state;

    assert_own(f, "fail", "the solver failed: HiGHS failed");
    assert_string_equal(f->child.solver, "");
}

/* ---- Limits of the caller ---- */

/* Calls @test in a process of its own, whose limits do not come back. */
static void test_apart(struct fixture *f, void (*test)(struct fixture *f))
{
    int status = 0;
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        test(f);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Whatever the user, no hard limit can be raised from now on. */
static void give_up_raising(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

    assert_int_equal(syscall(SYS_capget, &header, sets), 0);
    sets[0].effective &= ~(1U << CAP_SYS_RESOURCE);
    sets[0].permitted &= ~(1U << CAP_SYS_RESOURCE);
    assert_int_equal(syscall(SYS_capset, &header, sets), 0);
}

static void lower(int what, uint64_t to)
{
    assert_int_equal(setrlimit(what, &(struct rlimit){ to, to }), 0);
}

static void ask_with_low_limits(struct fixture *f)
{
    give_up_raising();
    lower(RLIMIT_CPU, f->child.processor_s - 1);
    lower(RLIMIT_FSIZE, MIB);
    if (!IS_SANITIZED)
        lower(RLIMIT_AS, f->child.memory_bytes / 2);
    assert_own(f, "start", "its answer is no better");
}

static void test_hard_limits_that_are_lower_than_ours(void **state)
{
    test_apart(*state, ask_with_low_limits);
}

#define CALLERS_DESCRIPTORS 4

/* Leaves the caller as many descriptors as it needs, and the child none for its copies. */
static void ask_with_few_descriptors(struct fixture *f)
{
    int fds[CALLERS_DESCRIPTORS];
    int last = 0;

    for (uint32_t i = 0; i < CALLERS_DESCRIPTORS; i++)
        fds[i] = dup(STDIN_FILENO);
    for (uint32_t i = 0; i < CALLERS_DESCRIPTORS; i++) {
        last = MAX(last, fds[i]);
        assert_int_equal(close(fds[i]), 0);
    }
    lower(RLIMIT_NOFILE, (uint64_t)last + 1);
    assert_own(f, "start", "could not set its limits, or open its standard streams");
}

static void test_a_child_that_cannot_be_prepared(void **state)
{
    test_apart(*state, ask_with_few_descriptors);
}

/* ---- Real solvers ---- */

#define SMALL_TABLES 10
/* More than those of which all placements are tried. */
#define SOME_TABLES 26

/* OpenBLAS, which CBC may use, would start threads in this process, which forks later. */
static bool is_installed(const char *library)
{
    assert_int_equal(setenv("OPENBLAS_NUM_THREADS", "1", 1), 0);
    void *const handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);

    return handle && dlclose(handle) == 0;
}

/* Calls @test with each solver of this machine, or with EMBTIER_TEST_SOLVER alone. */
static void with_real_solvers(struct fixture *f, void (*test)(struct fixture *f))
{
    static const char *const names[] = { "libhighs.so", "libhighs.so.1", "libCbcSolver.so.3.1",
                                         "libCbcSolver.so.3" };
    const char *const given = getenv("EMBTIER_TEST_SOLVER");
    uint32_t count = 0;

    if (!HAS_REAL_SOLVERS)
        skip();
    f->child.processor_s = 100;
    for (size_t i = 0; i < (given ? 1 : ARRAY_LEN(names)); i++) {
        f->child.library = given ? given : names[i];
        if (!given && !is_installed(names[i]))
            continue;
        test(f);
        printf("%s: %s\n", f->child.library, f->child.solver);
        count++;
    }
    if (count > 0)
        return;
    printf("neither HiGHS nor CBC is installed, and EMBTIER_TEST_SOLVER is not set\n");
    skip();
}

/* The limits of `embtier plan make` let the solver come to its end. */
static void improve_a_poor_start(struct fixture *f)
{
    _cleanup_(solve_answer_freep) struct solve_answer *own = NULL, *answer = NULL;

    f->model.table_count = SOME_TABLES;
    f->model.gpu_count = 2;
    own = ask(f, NULL, "");
    answer = ask(f, &f->solver, "");
    printf("gap %.2f %%, with the solver %.2f %%\n", 100 * solve_gap(own), 100 * solve_gap(answer));
    assert_string_equal(answer->solver_says.text, "");
    assert_true(answer->largest_s < own->largest_s);
    assert_true(answer->solver_won && answer->solver_bound_s <= answer->largest_s);
    if (answer->solver_bound_s < answer->largest_s * (1 - 1e-3))
        fail_msg("bound %g s, answer %g s", answer->solver_bound_s, answer->largest_s);
}

static void test_a_real_solver_improves_a_poor_start(void **state)
{
    with_real_solvers(*state, improve_a_poor_start);
}

/* Without @solver, all placements are tried. With it, hardly any, so that the rest is the
 * solver's. */
static struct solve_answer *ask_small(struct fixture *f, const struct milp_solver *solver)
{
    const struct solve_opts all = { .solver = NULL },
                            few = { .steps = 1, .searches = 1, .nodes = 1, .solver = solver };
    struct solve_answer *answer = NULL;
    struct err_msg msg = { { 0 } };

    if (solve_model(&f->model, solver ? &few : &all, &answer, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return answer;
}

static void find_the_best(struct fixture *f)
{
    uint32_t won = 0;

    f->child.nodes = 10000;
    f->child.gap = 0;
    f->model.table_count = SMALL_TABLES;
    for (uint64_t mb = 1; mb <= 6; mb++) {
        _cleanup_(solve_answer_freep) struct solve_answer *best = NULL, *answer = NULL;

        f->memories[0].capacity_bytes = mb * 1000000;
        f->memories[1].capacity_bytes = mb * 3000000;
        best = ask_small(f, NULL);
        answer = ask_small(f, &f->solver);
        assert_true(best->bound_s >= best->largest_s * (1 - 1e-9)); /* it is the best */
        /* No solver is asked where the bound proves that an answer is as near as 1e-4. */
        assert_true(answer->largest_s <= best->largest_s * (1 + 1e-4));
        assert_true(answer->solver_bound_s <= best->largest_s * (1 + 1e-6));
        won += answer->solver_won;
    }
    assert_true(won > 0);
}

static void test_a_real_solver_finds_the_best_of_all_placements(void **state)
{
    with_real_solvers(*state, find_the_best);
}

/* The solver ends by itself, with the start or a better answer, however few its nodes are. A second
 * time it answers the same. */
static void obey_the_limit_of_nodes(struct fixture *f)
{
    f->model.table_count = SOME_TABLES;
    f->model.gpu_count = 2;
    for (f->child.nodes = 0; f->child.nodes <= 2; f->child.nodes += 2) {
        _cleanup_(solve_answer_freep) struct solve_answer *own = ask(f, NULL, "");
        _cleanup_(solve_answer_freep) struct solve_answer *first = ask(f, &f->solver, "");
        _cleanup_(solve_answer_freep) struct solve_answer *second = ask(f, &f->solver, "");

        if (!first->solver_won)
            assert_string_equal(first->solver_says.text, "its answer is no better");
        assert_true(first->largest_s <= own->largest_s);
        assert_true(first->solver_bound_s <= first->largest_s);
        assert_memory_equal(first->places, second->places, SOME_TABLES * sizeof(*first->places));
    }
}

static void test_a_real_solver_obeys_the_limit_of_nodes(void **state)
{
    with_real_solvers(*state, obey_the_limit_of_nodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_start_reaches_the_solver_and_comes_back, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_solvers_that_end_without_an_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_answers_that_are_wrong, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_solvers_that_never_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_program_that_ignores_the_end_of_children, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_solver_that_takes_all_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_missing_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_each_library_that_is_missing_is_named, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_library_that_is_refused_is_followed_by_the_next,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cbc_of_newer_systems_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_library_that_is_not_there_is_no_news_if_another_one_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_an_answer_no_solver_is_named, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_hard_limits_that_are_lower_than_ours, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_child_that_cannot_be_prepared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_real_solver_improves_a_poor_start, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_real_solver_finds_the_best_of_all_placements, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_real_solver_obeys_the_limit_of_nodes, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
