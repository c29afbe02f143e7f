/* SPDX-License-Identifier: Apache-2.0 */
/* scripts.h: scripts that teach a shell the table of commands. */
#ifndef EMBTIER_TOOLS_CLI_COMPLETION_SCRIPTS_H
#define EMBTIER_TOOLS_CLI_COMPLETION_SCRIPTS_H

#include <stdbool.h>
#include <stdio.h>

#include "base/macros.h"

/* Print the script. False: out of memory. */
MUST_CHECK bool script_print_bash(FILE *out);
MUST_CHECK bool script_print_zsh(FILE *out);

#endif
