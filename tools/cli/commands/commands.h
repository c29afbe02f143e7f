/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h: groups of commands. cli.h goes through all of them. Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_COMMANDS_COMMANDS_H
#define EMBTIER_TOOLS_CLI_COMMANDS_COMMANDS_H

#include "tools/cli/cli.h"

/* The last one has NULL as its words. */
extern const struct command placement_commands[];

#endif
