/* SPDX-License-Identifier: Apache-2.0 */
/* load.h: the tables of a trial, from options, from a running server or from a saved profile. */
#ifndef EMBTIER_TOOLS_CLI_TUNE_LOAD_H
#define EMBTIER_TOOLS_CLI_TUNE_LOAD_H

#include "tools/cli/cli.h"

struct tune_load {
    struct json_t *tables; /* [{rows, row_bytes}] */
    bool is_logged;
    double zipf; /* from a profile; else as the caller has set it */
};

void tune_load_clear(struct tune_load *load);
/* Takes the one table that @options describes; @row_bytes: instead of its dim, if not 0. Returns
 * -1, or an exit code, as the others do. */
int tune_load_given(const struct embtier_table_options *options, uint64_t row_bytes,
                    struct tune_load *ret_load);
/* Asks the server for its tables: those of durability replay whose home is no array, or else the
 * logged ones. */
int tune_load_served(struct cli *cli, struct tune_load *ret_load);
/* Reads a saved profile: its tables, and the exponent of their popularity. */
int tune_load_profile(const char *path, struct tune_load *ret_load);

#endif
