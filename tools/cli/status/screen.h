/* SPDX-License-Identifier: Apache-2.0 */
/* screen.h: an overview as text of at most 24 lines of 80 columns, the prompt's line included. */
#ifndef EMBTIER_TOOLS_CLI_STATUS_SCREEN_H
#define EMBTIER_TOOLS_CLI_STATUS_SCREEN_H

#include <stdbool.h>
#include <stdio.h>

#include "base/macros.h"
#include "tools/cli/status/overview.h"

#define SCREEN_LINES      23 /* without the prompt's */
#define SCREEN_COLUMNS    80
#define SCREEN_TABLES_MAX 10

struct screen_opts {
    bool all;                      /* all warnings and tables, and whole lines */
    const struct overview *before; /* for rates; NULL: none */
    double seconds;                /* since then; 0: no rates */
};

/* False: out of memory. */
MUST_CHECK bool screen_print(const struct overview *overview, const struct screen_opts *opts,
                             FILE *out);

#endif
