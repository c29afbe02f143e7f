/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the named option is the wrong one, wherever it stands, and that the text is plain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/text/option_mistake.h"

#define WORDS 6

static const struct option options[] = {
    { "socket", required_argument, NULL, 's' },
    { "state", no_argument, NULL, 'a' }, /* 'a' is not a letter option */
    { "json", no_argument, NULL, 'j' },
    { "json-lines", no_argument, NULL, 'l' },
    { "help", no_argument, NULL, 'h' },
    { "quiet", no_argument, NULL, 0 },
    { NULL, 0, NULL, 0 },
};
#define LETTERS "s:jh"

/* The mistake in @words; NULL: none. "A…" stands for 1000 times "-". */
static const struct {
    const char *words[WORDS];
    const char *mistake;
} cases[] = {
    /* Words. */
    { { "--sockets" }, "unrecognized option '--sockets'" },
    { { "--sockets=x" }, "unrecognized option '--sockets=x'" },
    { { "--json", "--nothing", "-j" }, "unrecognized option '--nothing'" },
    { { "--socket" }, "option '--socket' requires an argument" },
    { { "--sock" }, "option '--sock' requires an argument" },
    { { "--json", "--socket" }, "option '--socket' requires an argument" },
    { { "--help=\x1b[2J" }, "option '--help=\\u001b[2J' doesn't allow an argument" },
    { { "--json=x" }, "option '--json=x' doesn't allow an argument" },
    { { "--quiet=x" }, "option '--quiet=x' doesn't allow an argument" },
    { { "--qui=x" }, "option '--qui=x' doesn't allow an argument" },
    { { "--s" }, "option '--s' is ambiguous" },
    { { "--s=x" }, "option '--s=x' is ambiguous" },
    { { "--j" }, "option '--j' is ambiguous" },
    { { "--=x" }, "option '--=x' is ambiguous" },
    { { "A…" },
      "unrecognized option '----------------------------------------------------------------... "
      "(1000 bytes)'" },
    /* Letters, alone, first, in the middle and last. */
    { { "-x" }, "invalid option -- 'x'" },
    { { "-zq" }, "invalid option -- 'z'" },
    { { "-jzq" }, "invalid option -- 'z'" },
    { { "-jz" }, "invalid option -- 'z'" },
    { { "-z=x" }, "invalid option -- 'z'" },
    { { "-j-" }, "invalid option -- '-'" },
    { { "-:" }, "invalid option -- ':'" },
    { { "-\x9b" }, "invalid option -- '\\x9b'" },
    { { "-s" }, "option '-s' requires an argument" },
    { { "-js" }, "option '-s' requires an argument" },
    { { "--json", "-js" }, "option '-s' requires an argument" },
    /* Behind correct words. */
    { { "--json", "-zq" }, "invalid option -- 'z'" },
    { { "--json", "-z" }, "invalid option -- 'z'" },
    { { "--json", "-hzq" }, "invalid option -- 'z'" },
    { { "--socket=x", "-zq" }, "invalid option -- 'z'" },
    { { "--socket", "--json=x", "-zq" }, "invalid option -- 'z'" },
    { { "-s", "--state=x", "-aq" }, "invalid option -- 'a'" },
    { { "-s", "--none", "-jzq" }, "invalid option -- 'z'" },
    /* Behind arguments, which are moved. */
    { { "file", "--json", "-zq" }, "invalid option -- 'z'" },
    { { "--json", "file", "-zq" }, "invalid option -- 'z'" },
    { { "--json", "file", "--none", "-j" }, "unrecognized option '--none'" },
    { { "-", "--json", "more", "-jz" }, "invalid option -- 'z'" },
    /* Arguments that look like options. */
    { { "--json", "--", "-zq", "--none" }, NULL },
    { { "--socket", "-zq", "-s", "--none", "-s--none" }, NULL },
    { { "--socket=", "-jjh", "--st", "-" }, NULL },
};

static const char *mistake_in(const char *const *words, const char *letters, struct err_msg *msg)
{
    static char dashes[1001];
    char *argv[WORDS + 2] = { (char *)"embtier" };
    int argc = 1;
    int option;

    memset(dashes, '-', sizeof(dashes) - 1);
    for (; argc <= WORDS && words[argc - 1]; argc++)
        argv[argc] =
            strcmp(words[argc - 1], "A…") == 0 ? dashes : (char *)(uintptr_t)words[argc - 1];
    optind = 0;
    do
        option = option_next(argc, argv, letters, options, msg);
    while (option != -1 && option != '?' && option != ':');
    return option == -1 ? NULL : msg->text;
}

static void test_the_option_that_is_wrong_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err_msg msg = { { 0 } };
        const char *const said = mistake_in(cases[i].words, ":" LETTERS, &msg);

        if (!said != !cases[i].mistake || (said && strcmp(said, cases[i].mistake) != 0))
            fail_msg("case %zu, '%s': '%s', not '%s'", i, cases[i].words[0],
                     said ? said : "nothing", cases[i].mistake ? cases[i].mistake : "nothing");
    }
}

/* The command line's own options end before the command. */
static void test_what_stands_behind_an_argument_may_be_of_others(void **state)
{
    struct err_msg msg;

    (void)state;
    assert_null(mistake_in((const char *[WORDS]){ "--json", "table", "-zq" }, "+:" LETTERS, &msg));
    assert_string_equal(
        mistake_in((const char *[WORDS]){ "--json", "-zq", "table" }, "+:" LETTERS, &msg),
        "invalid option -- 'z'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_option_that_is_wrong_is_named),
        cmocka_unit_test(test_what_stands_behind_an_argument_may_be_of_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
