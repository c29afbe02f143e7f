/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a row of the table of commands is all that completion needs: these commands are the
 * test's own. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/cli/cli.h"
#include "tools/cli/completion/scripts.h"

/* Does what the program's own does for completion. */
int cli_next_option(struct cli *cli, int argc, char **argv, const struct option *options,
                    int *ret_exit)
{
    (void)argc;
    (void)argv;
    assert_non_null(cli->take_options);
    cli->take_options(options, cli->taker);
    *ret_exit = EXIT_DONE;
    return CLI_OPTIONS_EXIT;
}

static int run(struct cli *cli, int argc, char **argv)
{
    char depth[] = "depth"; /* gone when this returns, as names of hyperparameters are */
    const struct option options[] = { { depth, required_argument, NULL, 'd' },
                                      { "shape", required_argument, NULL, UCHAR_MAX + 1 },
                                      { "dry-run", no_argument, NULL, UCHAR_MAX + 2 },
                                      { "at", required_argument, NULL, UCHAR_MAX + 3 },
                                      CLI_LONG_OPTIONS };
    int exit_code = -1;

    assert_int_equal(cli_next_option(cli, argc, argv, options, &exit_code), CLI_OPTIONS_EXIT);
    memset(depth, 'x', sizeof(depth) - 1);
    return exit_code;
}

const char cli_common_help[] = "  -o, --output text|json  for people or for programs\n";

static const struct command commands[] = {
    { "sound", "DIR [--at PLACE]... [--shape round|square] [TABLE...]", "measure [the sea]: all",
      "  -d, --depth D          how deep: in fathoms\n"
      "      --shape SHAPE, --dry-run\n"
      "                         of its ship's lead; that of old ships\n",
      "", run, NULL },
    { "sound again", "", "measure it again", "", "", run, NULL },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};

const struct command *command_first(void)
{
    return commands;
}

const struct command *command_next(const struct command *command)
{
    return command[1].words ? command + 1 : NULL;
}

/* Returns the script. The caller frees it. */
static char *script_of(bool (*print)(FILE *out))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *const out = open_memstream(&text, &bytes);

    assert_non_null(out);
    assert_true(print(out));
    assert_int_equal(fclose(out), 0);
    return text;
}

/* Checks what bash offers at the end of @line, whose words have single blanks between them. */
static void assert_completes(const char *line, const char *expected)
{
    static const char how[] = "COMP_WORDBREAKS= COMP_WORDS=(embtier $LINE \"$LAST\") "
                              "COMP_CWORD=$((${#COMP_WORDS[@]}-1))\n"
                              "_embtier embtier\n"
                              "echo \"${COMPREPLY[*]}\"\n";
    char path[] = "/tmp/test_completion.XXXXXX", command[64], said[1024];
    const char *const last = strrchr(line, ' ');
    const int file = mkstemp(path);
    FILE *const out = fdopen(file, "w");
    char *text = script_of(script_print_bash);
    char *words = strndup(line, last ? (size_t)(last - line) : 0);
    FILE *shell;

    assert_non_null(out);
    assert_non_null(words);
    assert_true(fprintf(out, "%s%s", text, how) > 0);
    assert_int_equal(fclose(out), 0);
    setenv("LINE", words, 1);
    setenv("LAST", last ? last + 1 : line, 1);
    snprintf(command, sizeof(command), "bash -u %s", path);
    shell = popen(command, "r");
    assert_non_null(shell);
    assert_non_null(fgets(said, sizeof(said), shell));
    assert_int_equal(pclose(shell), 0);
    unlink(path);
    said[strcspn(said, "\n")] = '\0';
    assert_string_equal(said, expected);
    free(text);
    free(words);
}

static void test_a_command_is_completed_because_it_is_in_the_table(void **state)
{
    (void)state;
    assert_completes("", "sound");
    assert_completes("so", "sound");
    assert_completes("sound a", "again");
    assert_completes("sound -",
                     "--depth -d --shape --dry-run --at --address -a --socket -s --output -o "
                     "--timeout -t --help -h --version -V");
    assert_completes("sound again --d", "--depth --dry-run");
}

static void test_its_values_come_from_its_usage_and_help(void **state)
{
    (void)state;
    assert_completes("sound --shape ", "round square");
    assert_completes("sound --shape r", "round");
    assert_completes("sound --dry-run --output=j", "--output=json");
    assert_completes("sound --depth ", "");
    assert_completes("sound /et", "/etc");
    assert_completes("sound /etc/passw", ""); /* a folder is wanted */
}

static void assert_has(const char *text, const char *line)
{
    if (!strstr(text, line))
        fail_msg("no `%s` in\n%s", line, text);
}

static void test_zsh_gets_its_texts(void **state)
{
    char *text = script_of(script_print_zsh);

    (void)state;
    assert_has(text, "\n        'sound:measure \\[the sea\\]\\: all; again'\n");
    assert_has(text, "\n    'sound') embtier_next=(\n        'again:measure it again'\n    ) ;;\n");
    assert_has(text, "\n        '(-d --depth)-d+[how deep]:D: '\n"
                     "        '(-d --depth)--depth=[how deep]:D: '\n"
                     "        '--shape=[of its ship'\\''s lead]:SHAPE:(round square)'\n"
                     "        '--dry-run[of its ship'\\''s lead]'\n"
                     "        '*--at=[]:VALUE: '\n"
                     "        '1:DIR:_files -/'\n"
                     "        '*:TABLE:_embtier_tables'\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_command_is_completed_because_it_is_in_the_table),
        cmocka_unit_test(test_its_values_come_from_its_usage_and_help),
        cmocka_unit_test(test_zsh_gets_its_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
