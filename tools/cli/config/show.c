/* SPDX-License-Identifier: Apache-2.0 */
/* embtier config show, diff: the configuration that a server has in force. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/yaml/yaml_doc.h"
#include "tools/cli/cli.h"
#include "tools/cli/config/knob_text.h"
#include "tools/cli/text_table.h"

/* ---- Show ---- */

static json_t *key_to_json(const struct embtier_knob *knob)
{
    return json_pack("{s:s, s:o, s:s, s:s}", "name", knob->name, "value",
                     knob_value_json(knob->value), "source", knob_source_word(knob), "changes",
                     knob_changes_word(knob));
}

static json_t *keys_to_json(const struct embtier_knob_list *list)
{
    json_t *const array = json_array();

    for (size_t i = 0; array && i < embtier_knob_list_count(list); i++)
        (void)json_array_append_new(array, key_to_json(embtier_knob_list_at(list, i)));
    return json_pack("{s:o}", "keys", array);
}

static int print_keys(const struct embtier_knob_list *list)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lll");
    bool ok = text && text_table_add(text, "KEY") && text_table_add(text, "VALUE") &&
              text_table_add(text, "FROM");

    for (size_t i = 0; ok && i < embtier_knob_list_count(list); i++) {
        const struct embtier_knob *const knob = embtier_knob_list_at(list, i);

        ok = text_table_add(text, "%s", knob->name) &&
             text_table_add(text, "%s", knob_value_shown(knob->value)) &&
             text_table_add(text, "%s", knob_source_word(knob));
    }
    if (!ok)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    text_table_print(text, 0, stdout);
    return EXIT_DONE;
}

int command_config_show(struct cli *cli, int argc, char **argv)
{
    struct embtier_knob_list *list = NULL;
    int exit_code = cli_arguments(cli, argc, argv, 0, 0);

    if (exit_code >= 0)
        return exit_code;
    exit_code = knob_list(cli, NULL, &list);
    if (exit_code)
        return exit_code;
    exit_code =
        cli->json ? cli_print_json(keys_to_json(list), JSON_DOUBLE_DIGITS) : print_keys(list);
    embtier_knob_list_free(list);
    return exit_code;
}

/* ---- Diff ---- */

static const char *running_value(const struct embtier_knob *knob)
{
    return knob->is_running ? knob->value : "";
}

static const char *other_value(const struct embtier_knob *knob)
{
    return knob->in_other ? knob->other_value : "";
}

static bool differs(const struct embtier_knob *knob)
{
    return strcmp(running_value(knob), other_value(knob)) != 0;
}

static bool any_differs(const struct embtier_knob_list *list)
{
    for (size_t i = 0; i < embtier_knob_list_count(list); i++)
        if (differs(embtier_knob_list_at(list, i)))
            return true;
    return false;
}

static json_t *differences_to_json(const struct embtier_knob_list *list)
{
    json_t *const array = json_array();

    for (size_t i = 0; array && i < embtier_knob_list_count(list); i++) {
        const struct embtier_knob *const knob = embtier_knob_list_at(list, i);

        if (differs(knob))
            (void)json_array_append_new(array,
                                        json_pack("{s:s, s:o, s:o}", "name", knob->name, "running",
                                                  knob_value_json(running_value(knob)), "file",
                                                  knob_value_json(other_value(knob))));
    }
    return json_pack("{s:b, s:o}", "same", !any_differs(list), "differences", array);
}

static int print_differences(const struct embtier_knob_list *list)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lll");
    bool ok = text && text_table_add(text, "KEY") && text_table_add(text, "RUNNING") &&
              text_table_add(text, "FILE");

    if (ok && !any_differs(list)) {
        puts("no differences");
        return EXIT_DONE;
    }
    for (size_t i = 0; ok && i < embtier_knob_list_count(list); i++) {
        const struct embtier_knob *const knob = embtier_knob_list_at(list, i);

        if (differs(knob))
            ok = text_table_add(text, "%s", knob->name) &&
                 text_table_add(text, "%s", knob_value_shown(running_value(knob))) &&
                 text_table_add(text, "%s", knob_value_shown(other_value(knob)));
    }
    if (!ok)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    text_table_print(text, 0, stdout);
    return EXIT_DONE;
}

int command_config_diff(struct cli *cli, int argc, char **argv)
{
    struct embtier_knob_options options = EMBTIER_KNOB_OPTIONS_INIT;
    struct embtier_knob_list *list = NULL;
    _cleanup_(freep) char *text = NULL;
    struct err_msg msg = { { 0 } };
    int exit_code = cli_arguments(cli, argc, argv, 0, 1);

    if (exit_code >= 0)
        return exit_code;
    options.with_file = argc == optind;
    if (argc > optind) {
        const enum embtier_err err =
            yaml_doc_read(argv[optind], YAML_DOC_BYTES_MAX, &text, &options.text_bytes, &msg);

        if (err)
            return cli_fail(EMBTIER_CONFIG, msg.text);
        options.text = text;
        options.text_name = argv[optind];
    }
    exit_code = knob_list(cli, &options, &list);
    if (exit_code)
        return exit_code;
    exit_code = cli->json ? cli_print_json(differences_to_json(list), JSON_DOUBLE_DIGITS)
                          : print_differences(list);
    if (exit_code == EXIT_DONE && any_differs(list))
        exit_code = EXIT_FAILED;
    embtier_knob_list_free(list);
    return exit_code;
}
