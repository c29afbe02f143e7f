/* SPDX-License-Identifier: Apache-2.0 */
/* live.h: `embtier top` on a terminal, by ncurses. live_none.c stands in for a build without
 * ncurses.
 *
 * A lost connection does not end it: it says so and tries again, until the user quits. The terminal
 * is restored before the program ends, by a key or by a signal. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_TOP_LIVE_H
#define EMBTIER_TOOLS_CLI_TOP_LIVE_H

#include <stddef.h>

struct cli;

/* Runs until the user quits. @panel: the first one shown. Returns an exit code. */
int live_run(struct cli *cli, double delay_s, size_t panel);

#endif
