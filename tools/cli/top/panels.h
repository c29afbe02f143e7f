/* SPDX-License-Identifier: Apache-2.0 */
/* panels.h: the panels of `embtier top`: one table, from which keys, help and JSON come. */
#ifndef EMBTIER_TOOLS_CLI_TOP_PANELS_H
#define EMBTIER_TOOLS_CLI_TOP_PANELS_H

#include <stddef.h>

#include "tools/cli/status/overview.h"
#include "tools/cli/top/grid.h"
#include "tools/cli/top/rates.h"

enum panel_number {
    PANEL_REQUESTS,
    PANEL_TIERS,
    PANEL_SSD,
    PANEL_SHARDS,
    PANEL_CLIENTS,
    PANEL_TABLES,
    PANEL_COUNT
};

struct panel {
    const char *name; /* one word; also the key in JSON */
    const struct grid_column *columns;
    size_t column_count;
    size_t sorted_by; /* a column, until the user chooses another; NOT_SORTED */
    void (*fill)(struct grid *grid, const struct overview *overview, const struct rates *rates);
};
#define NOT_SORTED SIZE_MAX

extern const struct panel panels[PANEL_COUNT];

#endif
