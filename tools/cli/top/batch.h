/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h: `embtier top --batch`: frames as plain text, or as one JSON object a line. */
#ifndef EMBTIER_TOOLS_CLI_TOP_BATCH_H
#define EMBTIER_TOOLS_CLI_TOP_BATCH_H

#include <stddef.h>
#include <stdint.h>

struct cli;

/* Prints @frame_count frames; 0: until the program is ended. @panel: the only one that text has;
 * PANEL_COUNT: all. Returns an exit code. */
int batch_run(struct cli *cli, double delay_s, uint64_t frame_count, size_t panel);

#endif
