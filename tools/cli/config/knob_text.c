/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/config/knob_text.h"

#include <jansson.h>

#include "tools/cli/cli.h"

const char *knob_source_word(const struct embtier_knob *knob)
{
    static const char *const words[] = { [EMBTIER_KNOB_DEFAULT] = "default",
                                         [EMBTIER_KNOB_FILE] = "file",
                                         [EMBTIER_KNOB_OPTION] = "option",
                                         [EMBTIER_KNOB_SET] = "set" };

    return (size_t)knob->source < ARRAY_LEN(words) ? words[knob->source] : "?";
}

const char *knob_changes_word(const struct embtier_knob *knob)
{
    if (knob->is_live)
        return "live";
    return knob->is_by_hand ? "hand" : "start";
}

const char *knob_value_shown(const char *value)
{
    return value[0] != '\0' ? value : "-";
}

json_t *knob_value_json(const char *value)
{
    return value[0] != '\0' ? cli_json_text(value) : json_null();
}

int knob_list(struct cli *cli, const struct embtier_knob_options *options,
              struct embtier_knob_list **ret_list)
{
    const int exit_code = cli_connect(cli, 0);
    enum embtier_err err;

    if (exit_code)
        return exit_code;
    err = embtier_knob_list(cli->server, options, ret_list);
    return err ? cli_fail_server(cli, err) : 0;
}
