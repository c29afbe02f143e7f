/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h: one frame of `embtier top`: some lines about the whole server, and a grid for each
 * panel. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_TOP_FRAME_H
#define EMBTIER_TOOLS_CLI_TOP_FRAME_H

#include <stdio.h>

#include "base/macros.h"
#include "tools/cli/status/overview.h"
#include "tools/cli/top/panels.h"
#include "tools/cli/top/sample.h"

struct json_t;

struct frame {
    struct overview overview;
    struct rates rates;
    struct grid grids[PANEL_COUNT];
};

/* Borrows both samples. @before: NULL if there is none. Grids are in the order of their panels.
 * NO_MEMORY. */
MUST_CHECK enum embtier_err frame_make(const struct sample *before, const struct sample *now,
                                       struct frame *ret_frame);
void frame_clear(struct frame *frame);

/* Prints the lines about the whole server. */
void frame_print_head(const struct frame *frame, FILE *out);
/* @panel: the one that is wanted; PANEL_COUNT: all. NULL: out of memory. */
struct json_t *frame_to_json(const struct frame *frame, size_t panel);

#endif
