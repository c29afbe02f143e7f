/* SPDX-License-Identifier: Apache-2.0 */
/* embtier doctor: looks at this machine as embtierd would use it. */
#include <jansson.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"
#include "tools/cli/cli.h"
#include "tools/cli/doctor/checks.h"

void help_doctor(FILE *out)
{
    fputs(
        "\n"
        "Looks at the kernel, memory, limits, and at the directories of the configuration. Needs "
        "no\n"
        "server, and changes nothing. Run it as embtierd's user, and in its container. It sees "
        "its\n"
        "own limits: those of a unit of systemd are seen only within that unit.\n"
        "\n"
        "Each finding is good, note, warn (embtierd runs, but slower, with less, or at a risk) or\n"
        "bad (a start is refused, or updates are). All but the good ones say what to do. Exit\n"
        "status: 0, or 1 if a finding is bad.\n"
        "\n"
        "With -o json: {findings: [{name, state, value, text, advice}], worst}. Names stay the "
        "same\n"
        "from version to version. The value is a number, a text, true, false or a list of texts;\n"
        "value and advice may be null. Worst is the worst state.\n"
        "\nChecks, and the names of their findings:\n",
        out);
    for (const struct check *check = checks; check->name; check++)
        fprintf(out, "  %-19s  %s\n", check->name, check->about);
}

/* ---- Text ---- */

static const char *text_of(const json_t *finding, const char *key)
{
    return json_string_value(json_object_get(finding, key));
}

static int name_width(const json_t *list)
{
    size_t width = 0;
    const json_t *finding;
    size_t i;

    json_array_foreach(list, i, finding) width = MAX(width, strlen(text_of(finding, "name")));
    return (int)width;
}

static void print_finding(const json_t *finding, int width)
{
    const char *const advice = text_of(finding, "advice");

    text_print(stdout, "%-4s  %-*s  %s\n", text_of(finding, "state"), width,
               text_of(finding, "name"), text_of(finding, "text"));
    if (advice)
        text_print(stdout, "      %-*s  > %s\n", width, "", advice);
}

static void print_text(const struct findings *findings)
{
    const int width = name_width(findings->list);
    const json_t *finding;
    size_t i;

    json_array_foreach(findings->list, i, finding) print_finding(finding, width);
    printf("\n%zu good, %zu note%s, %zu warning%s, %zu bad\n", findings->counts[FINDING_GOOD],
           findings->counts[FINDING_NOTE], PLURAL(findings->counts[FINDING_NOTE]),
           findings->counts[FINDING_WARN], PLURAL(findings->counts[FINDING_WARN]),
           findings->counts[FINDING_BAD]);
}

/* ---- The command ---- */

/* Returns -1, or the exit code. */
static int parse(struct cli *cli, int argc, char **argv, const char **ret_path)
{
    static const struct option options[] = { { "config", required_argument, NULL, 'c' },
                                             CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) == 'c')
        *ret_path = optarg;
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc > optind)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind]));
    return -1;
}

static int report(const struct cli *cli, const struct findings *findings)
{
    int exit_code = EXIT_DONE;

    if (findings->is_incomplete)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    if (cli->json)
        exit_code = cli_print_json(json_pack("{s:O, s:s}", "findings", findings->list, "worst",
                                             finding_state_word(findings->worst)),
                                   9);
    else
        print_text(findings);
    return exit_code == EXIT_DONE && findings->worst == FINDING_BAD ? EXIT_FAILED : exit_code;
}

int command_doctor(struct cli *cli, int argc, char **argv)
{
    _cleanup_(config_freep) struct config *config = NULL;
    _cleanup_(findings_clear) struct findings findings = { 0 };
    struct err_msg msg = { { 0 } };
    const char *path = NULL;
    const int exit_code = parse(cli, argc, argv, &path);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    err = config_load(path, budget_unbudgeted, &config, &msg);
    findings_init(&findings);
    checks_run(&(struct examination){
        .host = &host_this,
        .config = config,
        .config_path = path,
        .config_mistake = msg.text[0] ? msg.text : err_text(err),
        .findings = &findings,
    });
    return report(cli, &findings);
}
