/* SPDX-License-Identifier: Apache-2.0 */
/* table_options.h: options that describe a new table, for `embtier table create` and for imports of
 * files that do not describe it. */
#ifndef EMBTIER_TOOLS_CLI_TABLE_OPTIONS_H
#define EMBTIER_TOOLS_CLI_TABLE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/spec/table_spec.h"
#include "client/include/embtier.h"
#include "tools/cli/cli.h"

enum {
    TABLE_OPTION_DTYPE = 1024,
    TABLE_OPTION_OPTIMIZER,
    TABLE_OPTION_INIT,
    TABLE_OPTION_SEED,
    TABLE_OPTION_EAGER,
    TABLE_OPTION_EXISTS,
    TABLE_OPTION_ROUNDING,
    TABLE_OPTION_NONFINITE,
    TABLE_OPTION_DURABILITY,
    TABLE_OPTION_HOME,
    TABLE_OPTION_TIER,
    TABLE_OPTION_HYPERPARAMETER, /* and up, one for each hyperparameter */
};

struct table_arguments {
    struct embtier_table_options options; /* begins as EMBTIER_TABLE_OPTIONS_INIT */
    bool has_rows;
    bool has_durability;
    uint32_t given; /* number of options, without the durability and the home */
};
#define TABLE_ARGUMENTS_INIT                                                                       \
    {                                                                                              \
        .options = EMBTIER_TABLE_OPTIONS_INIT                                                      \
    }

/* Room for a hyperparameter's option, such as "weight-decay". */
struct table_option_name {
    char text[32];
};
const char *table_option_name(struct table_option_name *buffer, int hyperparameter);

/* The options that do not determine a row's layout. @names: one table_option_name for each
 * hyperparameter. */
#define TABLE_LONG_OPTIONS(names)                                                                  \
    { "rows", required_argument, NULL, 'r' },                                                      \
        { "optimizer", required_argument, NULL, TABLE_OPTION_OPTIMIZER },                          \
        { "init", required_argument, NULL, TABLE_OPTION_INIT },                                    \
        { "seed", required_argument, NULL, TABLE_OPTION_SEED },                                    \
        { "rounding", required_argument, NULL, TABLE_OPTION_ROUNDING },                            \
        { "allow-nonfinite", no_argument, NULL, TABLE_OPTION_NONFINITE },                          \
        { "durability", required_argument, NULL, TABLE_OPTION_DURABILITY },                        \
        { "home", required_argument, NULL, TABLE_OPTION_HOME },                                    \
        { "tier", required_argument, NULL, TABLE_OPTION_TIER },                                    \
        EMBTIER_HYPERPARAMETER_TABLE(TABLE_LONG_HYPERPARAMETER)
#define TABLE_LONG_HYPERPARAMETER(id, field, lowest, highest, standard, text)                      \
    { table_option_name(&names[EMBTIER_##id], EMBTIER_##id), required_argument, NULL,              \
      TABLE_OPTION_HYPERPARAMETER + EMBTIER_##id },

/* Takes one of these options, or one of `embtier table create` only. Returns -1, or the exit code
 * of a mistake. */
int table_option(const struct cli *cli, int option, struct table_arguments *arguments);

#endif
