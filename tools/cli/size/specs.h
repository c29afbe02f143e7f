/* SPDX-License-Identifier: Apache-2.0 */
/* specs.h: the tables of `embtier size`, from options or from a file. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_SIZE_SPECS_H
#define EMBTIER_TOOLS_CLI_SIZE_SPECS_H

#include <stddef.h>

#include "base/err.h"
#include "daemon/budget/sizes.h"

struct embtier_table_options;

struct specs {
    struct size_table *tables; /* with their specs only */
    size_t count;
    double bytes; /* of all rows, with an allowance for what comes on top */
};

void specs_clear(struct specs *specs);
/* Adds @copies tables like @options, named NAME or NAME-1 and up. INVALID: rows, dim or name are no
 * table's, or all tables together are beyond any machine. NO_MEMORY. */
MUST_CHECK enum embtier_err specs_add(struct specs *specs,
                                      const struct embtier_table_options *options, size_t copies,
                                      struct err_msg *msg);
/* Adds the tables of a file as `embtier -o json table list` prints it; of each table name, rows and
 * dim are enough. INVALID: the message says where, and what is wrong. */
MUST_CHECK enum embtier_err specs_read(struct specs *specs, const char *path, struct err_msg *msg);

#endif
