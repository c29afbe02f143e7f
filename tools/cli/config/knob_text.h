/* SPDX-License-Identifier: Apache-2.0 */
/* knob_text.h: knobs as text and as JSON. */
#ifndef EMBTIER_TOOLS_CLI_CONFIG_KNOB_TEXT_H
#define EMBTIER_TOOLS_CLI_CONFIG_KNOB_TEXT_H

#include "client/include/embtier.h"

struct cli;
struct json_t;

/* Returns "default", "file", "option", "set", or "?" for a source of a later version. */
const char *knob_source_word(const struct embtier_knob *knob);
/* Returns "live", "start" or "hand": when a new value is taken, as `embtier config keys` has it. */
const char *knob_changes_word(const struct embtier_knob *knob);
/* Returns the value for people: "-" if there is none. */
const char *knob_value_shown(const char *value);
/* Makes a string, or null if there is no value. NULL: out of memory. */
struct json_t *knob_value_json(const char *value);

/* Connects, and lists knobs. Returns 0, or the exit code. */
int knob_list(struct cli *cli, const struct embtier_knob_options *options,
              struct embtier_knob_list **ret_list);

#endif
