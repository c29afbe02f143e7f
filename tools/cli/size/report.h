/* SPDX-License-Identifier: Apache-2.0 */
/* report.h: prints sizes, for people and for programs. */
#ifndef EMBTIER_TOOLS_CLI_SIZE_REPORT_H
#define EMBTIER_TOOLS_CLI_SIZE_REPORT_H

#include "daemon/budget/sizes.h"

struct cli;

/* @free_bytes: as sizes_check() takes it. Returns an exit code: EXIT_FAILED if something is too
 * small. */
int report_print(const struct cli *cli, const struct sizes *sizes, uint64_t free_bytes);

#endif
