/* SPDX-License-Identifier: Apache-2.0 */
/* layouts.h: bytes that each layout of RocksDB (rocksdb.layout) writes for each byte of rows handed
 * to it. Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_FORECAST_LAYOUTS_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_FORECAST_LAYOUTS_H

#include <stdbool.h>

#include "base/err.h"
#include "config/config.h"

/* Amplifications by layout. 0: not given. */
struct layouts {
    double given[LAYOUT_COUNT];
};

/* Returns the layout of this word; LAYOUT_COUNT: there is none. */
enum config_layout layout_of_word(const char *word);
const char *layout_word(enum config_layout layout);
/* Parses "leveled=3.5". INVALID. */
MUST_CHECK enum embtier_err layouts_give(struct layouts *layouts, const char *text,
                                         struct err_msg *msg);
/* Returns the amplification with @to of a store whose measured one with @from is @now. */
double layouts_amplification(const struct layouts *layouts, enum config_layout from, double now,
                             enum config_layout to);
/* Measured bytes that a layout writes again, for each byte of rows handed to RocksDB. */
double layout_rewritten(enum config_layout layout);

#endif
