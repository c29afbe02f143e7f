/* SPDX-License-Identifier: Apache-2.0 */
/* `embtier` behaves as its help says, with the exit codes it promises. */
#include <regex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

static char output[1 << 16];

static int setup(void **state)
{
    struct harness *harness = calloc(1, sizeof(*harness));

    if (!harness)
        return -1;
    harness_new(harness);
    harness_start(harness);
    *state = harness;
    return 0;
}

static int teardown(void **state)
{
    harness_done(*state);
    free(*state);
    return 0;
}

static int embtier(void **state, const char *arguments)
{
    const int exit_code = harness_cli(*state, arguments, output, sizeof(output));

    if (getenv("EMBTIER_TEST_VERBOSE"))
        print_message("embtier %s: %d\n%s", arguments, exit_code, output);
    return exit_code;
}

static void assert_says(const char *text)
{
    if (!strstr(output, text))
        fail_msg("no '%s' in:\n%s", text, output);
}

static void test_a_table_lives_from_create_to_drop(void **state)
{
    assert_int_equal(embtier(state, "table create t1 --rows 1000 --dim 2 --init uniform:-0.1,0.1"),
                     0);
    assert_says("created table 't1'");
    assert_int_equal(embtier(state, "table create t1 --rows 1000 --dim 2"), 1);
    assert_says("already");
    assert_int_equal(embtier(state, "table list"), 0);
    assert_says("t1");
    assert_says("uniform:-0.1,0.1");
    assert_int_equal(embtier(state, "table show t1 -o json"), 0);
    assert_says("\"init_high\": 0.1");
    assert_int_equal(embtier(state, "table drop t1 --yes"), 0);
    assert_int_equal(embtier(state, "table drop t1 --yes"), 1);
    assert_says("'t1'");
}

static void test_hyperparameters_are_given_shown_and_compared(void **state)
{
    assert_int_equal(embtier(state, "table create h1 --rows 10 --dim 2 --dtype bf16"
                                    " --optimizer adam --eps 1e-6 --beta2 0.99 --weight-decay 0.01"
                                    " --rounding nearest --allow-nonfinite"),
                     0);
    assert_int_equal(embtier(state, "table show h1"), 0);
    assert_says("adam, eps 1e-06, beta1 0.9, beta2 0.99, weight_decay 0.01, clip_norm 0\n");
    assert_says("rounding   nearest\n");
    assert_says("nonfinite  allowed\n");
    assert_int_equal(embtier(state, "table create h2 --rows 10 --dim 2 --optimizer sgd"
                                    " --clip-norm 2"),
                     0);
    assert_int_equal(embtier(state, "table show h2"), 0);
    assert_says("sgd, weight_decay 0, clip_norm 2\n");
    assert_says("rounding   stochastic\n");
    assert_says("nonfinite  refused\n");
    assert_says("durability replay\n");
    assert_int_equal(embtier(state, "table create h3 --rows 10 --dim 2 --durability sync -o json"),
                     0);
    assert_says("\"durability\": \"sync\"");
    assert_int_equal(embtier(state, "table create h4 --rows 10 --dim 2 --durability most"), 2);
    assert_says("--durability most: allowed: replay, async, sync");
    assert_int_equal(embtier(state, "table show h1 -o json"), 0);
    assert_says("\"beta1\": 0.9");
    assert_says("\"rounding\": \"nearest\"");
    assert_says("\"allow_nonfinite\": true");
    assert_null(strstr(output, "alpha"));
    assert_int_equal(embtier(state, "table create h2 --rows 10 --dim 2 --optimizer sgd"
                                    " --clip-norm 2 --if-not-exists"),
                     0);
    assert_int_equal(embtier(state, "table create h2 --rows 10 --dim 2 --optimizer sgd"
                                    " --clip-norm 3 --if-not-exists"),
                     1);
    assert_says("exists and differs from the request (clip_norm)");
    assert_says("optimizer sgd (weight_decay 0, clip_norm 2), rounding stochastic");
    assert_int_equal(embtier(state, "table create h2 --rows 10 --dim 2 --optimizer sgd"
                                    " --clip-norm 2 --if-not-exists --rounding nearest"),
                     1);
    assert_int_equal(embtier(state, "table create h2 --rows 10 --dim 2 --optimizer sgd"
                                    " --clip-norm 2 --if-not-exists --allow-nonfinite"),
                     1);
    assert_int_equal(embtier(state, "table create h3 --rows 10 --dim 2 --optimizer sgd"
                                    " --beta1 0.5"),
                     1);
    assert_says("optimizer sgd has no beta1; it has weight_decay, clip_norm");
    assert_int_equal(embtier(state, "table create h3 --rows 10 --dim 2 --weight-decay 0.5"), 1);
    assert_says("optimizer none has no weight_decay; it has no hyperparameters");
    assert_int_equal(embtier(state, "table create --help"), 0);
    assert_says("--weight-decay N  0 to 1e30");
    assert_says("adam             eps 1e-08, beta1 0.9, beta2 0.999, weight_decay 0, clip_norm 0");
}

static void test_what_get_prints_set_reads(void **state)
{
    assert_int_equal(embtier(state, "table create a --rows unbounded --dim 3 --dtype f16"), 0);
    assert_int_equal(embtier(state, "set a 7=0.1,-2,nan 18446744073709551615=inf,-inf,0"), 0);
    assert_says("set 2 rows");
    assert_int_equal(embtier(state, "get a 7 18446744073709551615"), 0);
    assert_string_equal(output, "7=0.099976,-2,nan\n18446744073709551615=inf,-inf,0\n");
    assert_int_equal(embtier(state, "get a 7 | sed s/^7/8/ | \"$EMBTIER_CLI\" set a -"), 0);
    assert_int_equal(embtier(state, "get a 8 -o json"), 0);
    assert_says("0.099976");
    assert_says("\"nan\"");
}

static void test_a_number_that_does_not_fit_is_named_and_nothing_is_set(void **state)
{
    static const struct {
        const char *dtype;
        const char *rows;
        const char *said;
    } bad[] = {
        { "f32", "1=1,2 2=0,1e39",
          "row 2: '1e39' does not fit in f32, which holds at most "
          "3.40282347e+38 (place 2 of 2 numbers); nothing was set" },
        { "f32", "1=1,2 2=-1e400,0", "row 2: '-1e400' does not fit in f32" },
        { "f16", "1=1,2 2=1e6,0", "row 2: '1e6' does not fit in f16, which holds at most 65504" },
        { "f16", "1=1,2 2=-65520,0", "row 2: '-65520' does not fit in f16" },
        { "bf16", "1=1,2 2=3.4e38,0", "row 2: '3.4e38' does not fit in bf16" },
        { "f16", "--state 1=1,2:0,0 2=0,0:1,-1e39",
          "row 2: '-1e39' does not fit in f32, which holds at most 3.40282347e+38 (place 2 of 2 "
          "numbers of state)" },
        { "f32", "1=1,2 2=0,1e-60",
          "row 2: '1e-60' does not fit in f32, which holds at least 1.40129846e-45 (place 2 of 2 "
          "numbers); nothing was set" },
        { "f32", "2=-1e-400,0", "row 2: '-1e-400' does not fit in f32, which holds at least" },
        { "f16", "2=2e-8,0", "row 2: '2e-8' does not fit in f16, which holds at least 5.9605e-08" },
        { "bf16", "2=1e-42,0", "row 2: '1e-42' does not fit in bf16" },
        { "f32", "2=0x10,0", "row 2: '0x10,0' is not a number" },
        { "f32", "2=1,0x1p-3", "row 2: '0x1p-3' is not a number" },
        { "f32", "'2= 1,0'", "row 2: ' 1,0' is not a number" },
        { "f32", "'2=1, 0'", "row 2: ' 0' is not a number" },
        { "f32", "'2=nan(12345),0'", "row 2: 'nan(12345),0' is not a number" },
        { "f32", "2=nanx,0", "row 2: 'nanx,0' is not a number" },
        { "f32", "2=e5,0", "row 2: 'e5,0' is not a number" },
        { "f32", "2=infinity,0", "row 2: 'infinity,0' is not a number" },
    };
    char command[256];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(command, sizeof(command),
                 "table create fit%zu --rows 9 --dim 2 --optimizer adagrad --dtype %s", i,
                 bad[i].dtype);
        assert_int_equal(embtier(state, command), 0);
        snprintf(command, sizeof(command), "set fit%zu %s", i, bad[i].rows);
        assert_int_equal(embtier(state, command), 2);
        assert_says(bad[i].said);
        snprintf(command, sizeof(command), "get fit%zu 1 2", i);
        assert_int_equal(embtier(state, command), 0);
        assert_string_equal(output, "1=0,0\n2=0,0\n");
    }
    assert_int_equal(embtier(state, "set fit1 1=3.40282347e+38,-inf"), 0);
    assert_int_equal(embtier(state, "get fit1 1"), 0);
    assert_string_equal(output, "1=3.40282347e+38,-inf\n");
    assert_int_equal(embtier(state, "set fit1 1=1.40129846e-45,-1e-40 2=0e-999,+NaN"), 0);
    assert_int_equal(embtier(state, "get fit1 1 2"), 0);
    assert_string_equal(output, "1=1.40129846e-45,-9.9999461e-41\n2=0,nan\n");
}

static void test_state_is_got_and_set_with_its_rows(void **state)
{
    assert_int_equal(embtier(state, "table create s --rows unbounded --dim 3 --dtype f16"
                                    " --optimizer adagrad"),
                     0);
    assert_int_equal(embtier(state, "get --state s 7"), 0);
    assert_string_equal(output, "7=0,0,0:0,0,0\n");
    assert_int_equal(embtier(state, "set s --state 7=1,-2,nan:0.1,1e-30,inf"), 0);
    assert_int_equal(embtier(state, "set s 7=4,5,6"), 0);
    assert_int_equal(embtier(state, "get s 7"), 0);
    assert_string_equal(output, "7=4,5,6\n");
    assert_int_equal(embtier(state, "get s 7 --state"), 0);
    assert_string_equal(output, "7=4,5,6:0.100000001,1e-30,inf\n");
    assert_int_equal(embtier(state, "get --state s $(seq 7 2900) | sed s/^7=/9999=/ |"
                                    " \"$EMBTIER_CLI\" set --state s -"),
                     0);
    assert_int_equal(embtier(state, "get --state s 9999 -o json"), 0);
    assert_says("\"state\": [");
    assert_says("0.100000001");
    assert_int_equal(embtier(state, "get s 9999 -o json"), 0);
    assert_null(strstr(output, "state"));
    assert_int_equal(embtier(state, "table create n --rows unbounded --dim 2 --optimizer sgd"), 0);
    assert_int_equal(embtier(state, "set n --state 1=2,3"), 0);
    assert_int_equal(embtier(state, "get n --state 1"), 0);
    assert_string_equal(output, "1=2,3\n");
}

static void test_long_input_goes_in_several_batches(void **state)
{
    assert_int_equal(embtier(state, "table create big --rows 5000 --dim 4 --eager"
                                    " --init constant:2"),
                     0);
    assert_int_equal(embtier(state, "get big $(seq 0 2999) | sort -u -t= -k2 | cut -d= -f2"), 0);
    assert_string_equal(output, "2,2,2,2\n");
    assert_int_equal(embtier(state, "get big $(seq 0 2999) | sed s/=2/=3/ |"
                                    " \"$EMBTIER_CLI\" set big -"),
                     0);
    assert_says("set 3000 rows");
    assert_int_equal(embtier(state, "get big 2999 3000"), 0);
    assert_string_equal(output, "2999=3,2,2,2\n3000=2,2,2,2\n");
}

/* Returns the id of the checkpoint that was just made. */
static unsigned long long created_id(void)
{
    unsigned long long id = 0;

    assert_int_equal(sscanf(output, "created checkpoint %llu ", &id), 1);
    return id;
}

static int embtier_checkpoint(void **state, const char *what, unsigned long long id)
{
    char arguments[100];

    snprintf(arguments, sizeof(arguments), "checkpoint %s %llu", what, id);
    return embtier(state, arguments);
}

/* @expression is an extended regular expression that must match within one line. */
static void assert_has_line(const char *expression)
{
    regex_t compiled;
    bool found;

    assert_int_equal(regcomp(&compiled, expression, REG_EXTENDED | REG_NEWLINE | REG_NOSUB), 0);
    found = regexec(&compiled, output, 0, NULL, 0) == 0;
    regfree(&compiled);
    if (!found)
        fail_msg("no line like '%s' in:\n%s", expression, output);
}

static void test_a_checkpoint_lives_from_create_to_delete(void **state)
{
    unsigned long long first;
    unsigned long long newest;
    char line[64];

    assert_int_equal(embtier(state, "table create kept --rows 1000 --dim 2 --optimizer sgd"), 0);
    assert_int_equal(embtier(state, "set kept 7=1,2 9=3,4"), 0);
    assert_int_equal(embtier(state, "checkpoint create --step 2000"
                                    " --metadata '{\"epoch\": 3, \"note\": \"a b\"}'"),
                     0);
    first = created_id();
    assert_has_line(
        "^created .*: [1-9][0-9]* tables?, [0-9.]+ [KM]?i?B, [0-9.]+ [KM]?i?B of them new; "
        "updates paused for [0-9.]+ m?s$");
    assert_int_equal(embtier(state, "checkpoint create"), 0);
    newest = created_id();
    assert_true(newest > first);

    assert_int_equal(embtier(state, "checkpoint list"), 0);
    assert_says("ID  CREATED ");
    assert_says("  2000  ");
    assert_says("  user\n");
    assert_int_equal(embtier_checkpoint(state, "show", first), 0);
    snprintf(line, sizeof(line), "id         %llu\n", first);
    assert_says(line);
    assert_says("made by    user\n");
    assert_has_line("^user       [0-9]+$");
    assert_says("step       2000\n");
    assert_says("metadata   {\"epoch\":3,\"note\":\"a b\"}\n");
    assert_says("           kept\n");
    assert_has_line("^bytes      [1-9][0-9.]* [KM]?i?B$");
    assert_has_line("^new bytes  [1-9][0-9.]* [KM]?i?B$");
    assert_has_line("^pause      [0-9.]+ m?s$");
    assert_has_line("^held rows  0$");
    assert_has_line("^took       [0-9.]+ s$");
    assert_int_equal(embtier_checkpoint(state, "show -o json", first), 0);
    snprintf(line, sizeof(line), "\"id\": %llu,", first);
    assert_says(line);
    assert_says("\"step\": 2000,");
    assert_says("\"epoch\": 3,");
    assert_says("\"made_by\": \"user\"");
    assert_says("\"kept\"");
    assert_has_line("\"new_bytes\": [1-9][0-9]*,$");
    assert_has_line("\"pause_us\": [0-9]+,$");
    assert_has_line("\"held_rows\": 0,$");
    assert_int_equal(embtier_checkpoint(state, "show", newest), 0);
    assert_says("step       -\n");
    assert_says("metadata   -\n");
    assert_int_equal(embtier(state, "-o json checkpoint list"), 0);
    assert_says("\"step\": null,");
    assert_null(strstr(output, "\"tables\""));

    assert_int_equal(embtier_checkpoint(state, "verify", first), 0);
    assert_says("is whole\n");
    assert_int_equal(embtier_checkpoint(state, "delete --yes", newest), 1);
    assert_int_equal(embtier_checkpoint(state, "delete --yes", first), 0);
    snprintf(line, sizeof(line), "deleted checkpoint %llu\n", first);
    assert_says(line);
    assert_int_equal(embtier_checkpoint(state, "show", first), 1);
    assert_int_equal(embtier_checkpoint(state, "verify", first), 1);
    assert_int_equal(embtier_checkpoint(state, "delete --yes", first), 1);

    assert_int_equal(embtier(state, "checkpoint create --keep 1"), 0);
    assert_int_equal(embtier_checkpoint(state, "show", created_id()), 0);
    assert_int_equal(embtier_checkpoint(state, "show", newest), 1);
}

static void test_a_table_of_a_checkpoint_is_restored(void **state)
{
    unsigned long long id;
    char arguments[100];

    assert_int_equal(embtier(state, "table create r1 --rows 1000 --dim 2 --optimizer adagrad"
                                    " --init constant:0.5"),
                     0);
    assert_int_equal(embtier(state, "table create r2 --rows 10 --dim 2 --durability async"), 0);
    assert_int_equal(embtier(state, "set --state r1 7=1,2:3,4"), 0);
    assert_int_equal(embtier(state, "checkpoint create"), 0);
    id = created_id();
    assert_int_equal(embtier(state, "set --state r1 7=5,6:7,8 9=5,6:7,8"), 0);

    snprintf(arguments, sizeof(arguments), "checkpoint restore %llu r1", id);
    assert_int_equal(embtier(state, arguments), 1);
    assert_says("'r1'");
    assert_says("drop it first");
    snprintf(arguments, sizeof(arguments), "checkpoint restore %llu", id);
    assert_int_equal(embtier(state, arguments), 1);
    snprintf(arguments, sizeof(arguments), "checkpoint restore %llu r1 --as r1.before", id);
    assert_int_equal(embtier(state, arguments), 0);
    assert_says("NAME ");
    assert_says("r1.before ");
    assert_null(strstr(output, "r2"));
    assert_int_equal(embtier(state, "get --state r1.before 7 9"), 0);
    assert_string_equal(output, "7=1,2:3,4\n9=0.5,0.5:0,0\n");
    assert_int_equal(embtier(state, "get --state r1 7"), 0);
    assert_string_equal(output, "7=5,6:7,8\n");

    assert_int_equal(embtier(state, "table drop r1 --yes"), 0);
    assert_int_equal(embtier(state, "table drop r2 --yes"), 0);
    snprintf(arguments, sizeof(arguments), "checkpoint restore %llu r2 r1 -o json", id);
    assert_int_equal(embtier(state, arguments), 0);
    assert_says("\"name\": \"r1\"");
    assert_says("\"name\": \"r2\"");
    assert_null(strstr(output, "r1.before"));
    assert_int_equal(embtier(state, "get --state r1 7 9"), 0);
    assert_string_equal(output, "7=1,2:3,4\n9=0.5,0.5:0,0\n");

    snprintf(arguments, sizeof(arguments), "checkpoint restore %llu r3", id);
    assert_int_equal(embtier(state, arguments), 1);
    assert_says("'r3'");
    assert_int_equal(embtier(state, "checkpoint restore 999999 r1"), 1);
    assert_says("999999");
}

static void test_status_shows_and_counts(void **state)
{
    char error[16] = "";

    assert_int_equal(embtier(state, "status"), 0);
    assert_says("embtierd ");
    assert_says("\nserved by ");
    assert_int_equal(embtier(state, "-o json status"), 0);
    assert_says("\"health\": \"");
    assert_int_equal(embtier(state, "stats"), 0);
    assert_says("embtierd ");
    assert_says("\nwith rocksdb ");
    assert_null(strchr(output, '\\'));
    assert_says("cache_hit_rows");
    assert_says("hit rate");
    assert_says("by outcome");
    assert_says("write_error");
    assert_int_equal(sscanf(strstr(output, "write_error"), "write_error %15s", error), 1);
    assert_string_equal(error, "none");
    assert_int_equal(embtier(state, "-o json stats"), 0);
    assert_says("\"libraries\": [\n    \"rocksdb ");
    assert_says("\"cache_hit_rows\": {");
    assert_says("\"hit_rates\": {");
    assert_int_equal(embtier(state, "status --watch 0.1 | head -c 100 >/dev/null"), 0);
    assert_int_equal(embtier(state, "stats --watch 0.1 | head -c 100 >/dev/null"), 0);
}

/* Runs each of @commands, with each of @numbers in the place of %s; each must be refused. */
static void assert_refused(void **state, const char *const *commands, size_t command_count,
                           const char *const *numbers, size_t number_count)
{
    char arguments[200];

    for (size_t c = 0; c < command_count; c++)
        for (size_t n = 0; n < number_count; n++) {
            snprintf(arguments, sizeof(arguments), commands[c], numbers[n]);
            if (embtier(state, arguments) != 2)
                fail_msg("embtier %s is not refused:\n%s", arguments, output);
        }
}

static void test_a_number_is_taken_whole_or_not_at_all(void **state)
{
    static const char *const integers[] = { "18446744073709551616",
                                            "18446744073709551621",
                                            "99999999999999999999999",
                                            "-1",
                                            "+5",
                                            "' 5'",
                                            "'5 '",
                                            "5x",
                                            "1e3",
                                            "5.5",
                                            "0x10",
                                            "''" };
    static const char *const of_integers[] = { "table create x --dim 1 --rows=%s",
                                               "table create x --rows 1 --dim=%s",
                                               "checkpoint create --step=%s",
                                               "table create x --rows 1 --dim 1 --seed=%s",
                                               "checkpoint create --keep=%s",
                                               "checkpoint show %s",
                                               "checkpoint verify %s",
                                               "checkpoint delete --yes %s",
                                               "checkpoint restore %s",
                                               "export numbers /x --checkpoint=%s",
                                               "import /x --as x --rows=%s",
                                               "jobs cancel %s",
                                               "export numbers /x --file-bytes=%sx",
                                               "get numbers %s",
                                               "set numbers %s=1" };
    static const char *const doubles[] = { "''",  "' 0.5'", "'0.5 '", "0.5x",   "nan",
                                           "inf", "0x1",    "1e999",  "1e-999", "0,5" };
    static const char *const of_doubles[] = {
        "status --watch=%s",
        "endurance --interval=%s",
        "--timeout=%s status",
        "table create x --rows 1 --dim 1 --optimizer adam --eps=%s",
        "table create x --rows 1 --dim 1 --init=constant:%s",
        "table create x --rows 1 --dim 1 --init=uniform:%s,1",
        "table create x --rows 1 --dim 1 --init=normal:0,%s"
    };

    assert_int_equal(embtier(state, "table create numbers --rows unbounded --dim 1"), 0);
    assert_refused(state, of_integers, ARRAY_LEN(of_integers), integers, ARRAY_LEN(integers));
    assert_refused(state, of_doubles, ARRAY_LEN(of_doubles), doubles, ARRAY_LEN(doubles));
    assert_int_equal(embtier(state, "table show x"), 1);
    assert_int_equal(embtier(state, "--timeout 4000001 status"), 2);
    assert_says("--timeout 4000001: allowed: seconds, 0 to 4000000");
    assert_int_equal(embtier(state, "--timeout 4e6 status"), 0);
}

static void test_wrong_usage_is_2_and_says_what_is_allowed(void **state)
{
    static const struct {
        const char *arguments;
        const char *says;
    } cases[] = {
        { "", "Usage:" },
        { "frobnicate", "not a command" },
        { "table", "embtier table create" },
        { "table create", "NAME is missing" },
        { "table create x --dim 4", "--rows is missing" },
        { "table create x --rows 4", "--dim is missing" },
        { "table create x --rows 0 --dim 4", "allowed: a number from 1 on, unbounded" },
        { "table create x --rows 1 --dim 9999", "allowed: 1 to 8192" },
        { "table create x --rows 1 --dim 1 --dtype f64", "allowed: f32, f16, bf16" },
        { "table create x --rows 1 --dim 1 --init uniform:1", "second number is missing" },
        { "table create x --rows 1 --dim 1 --init zeros:1", "too much" },
        { "table create x --rows 1 --dim 1 --eps 2", "--eps 2: allowed: 0 to 1" },
        { "table create x --rows 1 --dim 1 --eps nan", "--eps nan: allowed: 0 to 1" },
        { "table create x --rows 1 --dim 1 --eps 1e-8x", "--eps 1e-8x: allowed" },
        { "table create x --rows 1 --dim 1 --beta1 1", "--beta1 1: allowed: 0 to 0.9999999" },
        { "table create x --rows 1 --dim 1 --clip-norm inf",
          "--clip-norm inf: allowed: 0 to 1e30" },
        { "table create x --rows 1 --dim 1 --weight-decay=-1e-9", "--weight-decay -1e-9: allowed" },
        { "table create x --rows 1 --dim 1 --rounding up", "allowed: stochastic, nearest" },
        { "checkpoint", "embtier checkpoint create" },
        { "checkpoint create now", "unexpected argument 'now'" },
        { "checkpoint create --step x", "--step x: allowed: 0 to 18446744073709551615" },
        { "checkpoint create --keep 0", "--keep 0: allowed: 1 to 4294967295" },
        { "checkpoint create --metadata '{epoch: 3}'", "--metadata: not JSON" },
        { "checkpoint create --metadata ''", "--metadata: not JSON" },
        { "checkpoint create --metadata \"\\\"$(seq -s, 2000)\\\"\"", "bytes, allowed: 4096" },
        { "checkpoint list all", "unexpected argument" },
        { "checkpoint show", "an argument is missing: ID" },
        { "checkpoint show 0", "ID 0: allowed: a number from 1 on" },
        { "checkpoint verify one", "ID one: allowed: a number from 1 on" },
        { "checkpoint restore", "ID is missing" },
        { "checkpoint restore users", "ID users: allowed: a number from 1 on" },
        { "checkpoint restore 1 --as", "--as" },
        { "checkpoint restore 1 --as x", "--as x needs exactly one named TABLE, not 0" },
        { "checkpoint restore 1 a b --as x", "--as x needs exactly one named TABLE, not 2" },
        { "checkpoint delete", "ID is missing" },
        { "checkpoint delete 1 2", "more than one ID" },
        { "checkpoint delete 0 --yes", "ID 0: allowed: a number from 1 on" },
        { "get", "an argument is missing" },
        { "get x", "an argument is missing" },
        { "get --state x", "an argument is missing" },
        { "set s 1=1,2,3:4,5,6", "row 1 has state, which is set with --state" },
        { "set --state s 1=1,2,3", "row 1 is not ID=NUMBER,...:NUMBER,..." },
        { "set --state s 1=1,2:4,5,6", "row 1 has 2 numbers instead of 3; nothing was set" },
        { "set --state s 1=1,2,3,4:4,5,6", "row 1 has 4 numbers instead of 3; nothing was set" },
        { "set --state s 1=1,2,3:4,5", "row 1 has 2 numbers of state instead of 3" },
        { "set --state s 1=1,2,3:4,5,6,7", "row 1 has 4 numbers of state instead of 3" },
        { "set --state s 1=1,2,3:4,5,6:7", "row 1 is not ID=NUMBER,...:NUMBER,..." },
        { "set --state s 1=1,2,3:4,x,6", "row 1: 'x,6' is not a number" },
        { "set --state n 1=1,2:3", "row 1 has state, but the table's optimizer has none" },
        { "status extra", "unexpected argument" },
        { "status --watch 0", "allowed: seconds" },
        { "-o xml status", "allowed: text, json" },
        { "status --no-such-option", "Try 'embtier status --help'" },
        { "--no-such-option status", "Try 'embtier --help'" },
        { "import x -d 4", "invalid option -- 'd'\nTry 'embtier import --help'" },
        { "import x --dim 4", "Try 'embtier import --help'" },
        { "export x y -r 4", "invalid option -- 'r'" },
        { "table list -y", "invalid option -- 'y'" },
        { "get -S x 1", "invalid option -- 'S'" },
        { "get s -1", "embtier get: '-1': a word that begins with - is an option" },
        { "get s 1 -23", "'-23': a word that begins with - is an option" },
        { "get s -- -1", "'-1' is not a row id; allowed: 0 to 18446744073709551615" },
        { "set s -1=1,2,3", "ids and counts are never negative" },
        { "get --state -zq x 1", "invalid option -- 'z'" },
        { "--output json -zq status", "invalid option -- 'z'\nTry 'embtier --help'" },
        { "table drop x -yt", "option '-t' requires an argument" },
        { "table create x -r 1 -d 1 -w 1", "invalid option -- 'w'" },
        { "endurance --interval 0", "allowed: seconds" },
        { "endurance now", "unexpected argument" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (embtier(state, cases[i].arguments) != 2)
            fail_msg("embtier %s is not wrong usage:\n%s", cases[i].arguments, output);
        assert_says(cases[i].says);
    }
}

static void test_help_is_there_for_every_command(void **state)
{
    static const char *const words[] = { "status",
                                         "stats",
                                         "endurance",
                                         "table create",
                                         "table list",
                                         "table show",
                                         "table drop",
                                         "checkpoint create",
                                         "checkpoint list",
                                         "checkpoint show",
                                         "checkpoint verify",
                                         "checkpoint restore",
                                         "checkpoint delete",
                                         "get",
                                         "set",
                                         "config check",
                                         "config keys" };
    char arguments[64];

    assert_int_equal(embtier(state, "--help"), 0);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        assert_says(words[i]);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        snprintf(arguments, sizeof(arguments), "%s --help", words[i]);
        assert_int_equal(embtier(state, arguments), 0);
        assert_says("Usage: embtier ");
        assert_says("  embtier "); /* begins an example */
        assert_null(strstr(output, " \n"));
    }
    assert_int_equal(embtier(state, "--help"), 0);
    assert_says("  checkpoint restore  restore tables"); /* the manual finds names by the gap */
    assert_int_equal(embtier(state, "--version"), 0);
    assert_says("embtier ");
}

static void test_a_configuration_is_checked(void **state)
{
    const struct harness *harness = *state;
    char arguments[400];

    snprintf(arguments, sizeof(arguments), "config check %s/embtierd.yaml", harness->directory);
    assert_int_equal(embtier(state, arguments), 0);
    assert_says("no mistakes found");
    snprintf(arguments, sizeof(arguments),
             "--version >/dev/null; printf 'lanes:\\n  count: x\\n' >%s/bad.yaml;"
             " \"$EMBTIER_CLI\" config check %s/bad.yaml",
             harness->directory, harness->directory);
    assert_int_equal(embtier(state, arguments), 1);
    assert_says("bad.yaml");
    assert_int_equal(embtier(state, "config keys"), 0);
    assert_says("lanes.count");
}

static void test_no_server_is_3(void **state)
{
    static const char *const options[] = { "--address ", "-a ", "--socket=", "-s" };
    char words[128];

    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        snprintf(words, sizeof(words), "%s/tmp/embtier-nobody%zu.sock status", options[i], i);
        assert_int_equal(embtier(state, words), 3);
        snprintf(words, sizeof(words), "no embtierd listens on /tmp/embtier-nobody%zu.sock", i);
        assert_says(words);
        snprintf(words, sizeof(words), "get %s/tmp/embtier-nobody.sock t 1", options[i]);
        assert_int_equal(embtier(state, words), 3);
    }
}

static void freeze(const struct harness *harness)
{
    int status;

    assert_int_equal(kill(harness->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(harness->pid, &status, WUNTRACED), harness->pid);
    assert_true(WIFSTOPPED(status));
}

/* The server does not answer. Long work waits for ever, or as long as the user's timeout says. */
static void test_a_timeout_that_was_given_is_kept_by_long_work(void **state)
{
    static const char *const commands[] = { "export idle /tmp/embtier-idle-export",
                                            "import /tmp --as other",
                                            "checkpoint create",
                                            "checkpoint verify 1",
                                            "checkpoint restore 1",
                                            "table create new --rows 10 --dim 2 --eager",
                                            "table drop idle --yes",
                                            "table list" };
    const struct harness *harness = *state;
    char arguments[400];

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        freeze(harness);
        for (int before = 0; before < 2; before++) {
            snprintf(arguments, sizeof(arguments),
                     "--version; timeout 60 \"$EMBTIER_CLI\" %s %s %s", before ? "-t 0.2" : "",
                     commands[i], before ? "" : "--timeout 0.2");
            if (embtier(state, arguments) != 1)
                fail_msg("%s did not give up:\n%s", arguments, output);
            assert_says("no answer from the server within 200 ms");
        }
        assert_int_equal(kill(harness->pid, SIGCONT), 0);
    }
    freeze(harness);
    assert_int_equal(embtier(state, "--version; timeout 1 \"$EMBTIER_CLI\" checkpoint create"),
                     124);
    assert_int_equal(kill(harness->pid, SIGCONT), 0);
    assert_int_equal(embtier(state, "status"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_table_lives_from_create_to_drop),
        cmocka_unit_test(test_hyperparameters_are_given_shown_and_compared),
        cmocka_unit_test(test_what_get_prints_set_reads),
        cmocka_unit_test(test_a_number_that_does_not_fit_is_named_and_nothing_is_set),
        cmocka_unit_test(test_state_is_got_and_set_with_its_rows),
        cmocka_unit_test(test_long_input_goes_in_several_batches),
        cmocka_unit_test(test_a_checkpoint_lives_from_create_to_delete),
        cmocka_unit_test(test_a_table_of_a_checkpoint_is_restored),
        cmocka_unit_test(test_status_shows_and_counts),
        cmocka_unit_test(test_a_number_is_taken_whole_or_not_at_all),
        cmocka_unit_test(test_wrong_usage_is_2_and_says_what_is_allowed),
        cmocka_unit_test(test_help_is_there_for_every_command),
        cmocka_unit_test(test_a_configuration_is_checked),
        cmocka_unit_test(test_no_server_is_3),
        cmocka_unit_test(test_a_timeout_that_was_given_is_kept_by_long_work),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
