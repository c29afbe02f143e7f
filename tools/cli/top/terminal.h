/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.h: whether ncurses knows the kind of this terminal. It is a file of its own since
 * <term.h> makes macros of common words. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_TOP_TERMINAL_H
#define EMBTIER_TOOLS_CLI_TOP_TERMINAL_H

#include <stdbool.h>

/* newterm() of an unknown terminal leaks its first allocation, so ask before. */
bool terminal_is_known(void);

#endif
