/* SPDX-License-Identifier: Apache-2.0 */
/* embtier knob …: knobs of a running server. */
#include <jansson.h>
#include <stdio.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/config/knob_text.h"
#include "tools/cli/text_table.h"

static json_t *knob_to_json(const struct embtier_knob *knob)
{
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:s}", "name", knob->name, "value",
                     knob_value_json(knob->value), "source", knob_source_word(knob), "changes",
                     knob_changes_word(knob), "allowed", knob->allowed, "default",
                     knob->default_text, "text", knob->text);
}

/* ---- List and get ---- */

static json_t *list_to_json(const struct embtier_knob_list *list)
{
    json_t *const array = json_array();

    for (size_t i = 0; array && i < embtier_knob_list_count(list); i++)
        (void)json_array_append_new(array, knob_to_json(embtier_knob_list_at(list, i)));
    return json_pack("{s:o}", "knobs", array);
}

static int print_list(const struct embtier_knob_list *list)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("llll");
    bool ok = text && text_table_add(text, "KNOB") && text_table_add(text, "VALUE") &&
              text_table_add(text, "CHANGES") && text_table_add(text, "WHAT");

    for (size_t i = 0; ok && i < embtier_knob_list_count(list); i++) {
        const struct embtier_knob *const knob = embtier_knob_list_at(list, i);

        ok = text_table_add(text, "%s", knob->name) &&
             text_table_add(text, "%s", knob_value_shown(knob->value)) &&
             text_table_add(text, "%s", knob_changes_word(knob)) &&
             text_table_add(text, "%s", knob->text);
    }
    if (!ok)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    text_table_print(text, 0, stdout);
    return EXIT_DONE;
}

int command_knob_list(struct cli *cli, int argc, char **argv)
{
    struct embtier_knob_list *list = NULL;
    int exit_code = cli_arguments(cli, argc, argv, 0, 0);

    if (exit_code >= 0)
        return exit_code;
    exit_code = knob_list(cli, NULL, &list);
    if (exit_code)
        return exit_code;
    exit_code =
        cli->json ? cli_print_json(list_to_json(list), JSON_DOUBLE_DIGITS) : print_list(list);
    embtier_knob_list_free(list);
    return exit_code;
}

static void print_knob(const struct embtier_knob *knob)
{
    text_print(stdout, "%s: %s\n", knob->name, knob_value_shown(knob->value));
    text_print(stdout, "  what     %s\n", knob->text);
    text_print(stdout, "  from     %s\n", knob_source_word(knob));
    text_print(stdout, "  changes  %s\n", knob_changes_word(knob));
    text_print(stdout, "  allowed  %s\n", knob->allowed);
    text_print(stdout, "  default  %s\n", knob->default_text);
}

int command_knob_get(struct cli *cli, int argc, char **argv)
{
    struct embtier_knob_options options = EMBTIER_KNOB_OPTIONS_INIT;
    struct embtier_knob_list *list = NULL;
    const struct embtier_knob *knob;
    int exit_code = cli_arguments(cli, argc, argv, 1, 1);

    if (exit_code >= 0)
        return exit_code;
    options.name = argv[optind];
    exit_code = knob_list(cli, &options, &list);
    if (exit_code)
        return exit_code;
    knob = embtier_knob_list_at(list, 0);
    if (!knob)
        exit_code = cli_fail(EMBTIER_PROTOCOL, "the server did not answer with a knob");
    else if (cli->json)
        exit_code = cli_print_json(knob_to_json(knob), JSON_DOUBLE_DIGITS);
    else
        print_knob(knob);
    embtier_knob_list_free(list);
    return exit_code;
}

/* ---- Set ---- */

/* True if both are numbers, and not the same: what is in force may be another one than was asked
 * for. Other values are in force as they were given, or are refused. */
static bool differs(const char *asked, const char *value)
{
    uint64_t asked_number = 0, number = 0;

    return parse_bytes(asked, &asked_number) == EMBTIER_OK &&
           parse_bytes(value, &number) == EMBTIER_OK && asked_number != number;
}

static int print_change(const struct cli *cli, const struct embtier_knob_change *change,
                        const char *value)
{
    const struct embtier_knob *const knob = embtier_knob_change_knob(change);
    const char *const old = embtier_knob_change_old(change);
    const char *const file = embtier_knob_change_file(change);
    const bool applied = embtier_knob_change_is_applied(change) != 0;

    if (cli->json)
        return cli_print_json(json_pack("{s:s, s:o, s:o, s:o, s:b, s:o}", "name", knob->name, "old",
                                        knob_value_json(old), "asked", knob_value_json(value),
                                        "value", knob_value_json(knob->value), "applied", applied,
                                        "file", knob_value_json(file)),
                              JSON_DOUBLE_DIGITS);
    if (applied && differs(value, knob->value))
        text_print(stdout, "%s: %s -> %s (asked %s, in force %s)\n", knob->name,
                   knob_value_shown(old), knob->value, value, knob->value);
    else if (applied)
        text_print(stdout, "%s: %s -> %s\n", knob->name, knob_value_shown(old),
                   knob_value_shown(knob->value));
    else
        text_print(stdout, "%s: %s now; %s from the next start on\n", knob->name,
                   knob_value_shown(old), value);
    if (file[0] != '\0')
        text_print(stdout, "written into %s\n", file);
    return EXIT_DONE;
}

int command_knob_set(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = { { "persist", no_argument, NULL, 'p' },
                                             CLI_LONG_OPTIONS };
    struct embtier_knob_change *change = NULL;
    int exit_code = EXIT_USAGE;
    bool persist = false;
    enum embtier_err err;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) == 'p')
        persist = true;
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind != 2)
        return cli_usage(cli, argc - optind < 2 ? "NAME or VALUE is missing"
                                                : "more than a NAME and a VALUE");
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_knob_set(cli->server, argv[optind], argv[optind + 1], persist, &change);
    if (err)
        return cli_fail_server(cli, err);
    exit_code = print_change(cli, change, argv[optind + 1]);
    embtier_knob_change_free(change);
    return exit_code;
}
