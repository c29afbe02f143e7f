/* SPDX-License-Identifier: Apache-2.0 */
/* svg_frame.h: the file, the axes and the legend of a picture in SVG. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_PLACEMENT_SVG_FRAME_H
#define EMBTIER_TOOLS_CLI_PLACEMENT_SVG_FRAME_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct new_file;

struct svg_axis {
    const char *title;
    bool is_log;      /* false: from 0 to 1 */
    int from, to;     /* powers of ten of a logarithmic axis, @from below @to */
    const char *unit; /* of its numbers: "B" makes "10 kB"; NULL: "1e4" */
};

struct svg_frame {
    FILE *file;
    struct new_file *whole; /* of @file; NULL: a device, a pipe or the standard output */
    const char *path;       /* borrowed */
    struct svg_axis x, y;
};

/* Begins the picture with title and axes. svg_frame_close() gives it its name, over a picture that
 * is there. EXISTS: another file is. */
MUST_CHECK enum embtier_err svg_frame_open(const char *path, const char *title, struct svg_axis x,
                                           struct svg_axis y, struct svg_frame *ret_frame,
                                           struct err_msg *msg);
/* Ends the picture. Without it the picture that was there stays, and so it does on failure, unless
 * only its folder could not be synced. */
MUST_CHECK enum embtier_err svg_frame_close(struct svg_frame *frame, struct err_msg *msg);

/* Return the place of a number; one outside the axis is at its end. */
double svg_frame_x(const struct svg_frame *frame, double x);
double svg_frame_y(const struct svg_frame *frame, double y);

#define SVG_LEGEND_LINES 20
/* Writes line @line of the legend, with a mark of colour @color. */
void svg_frame_legend(const struct svg_frame *frame, uint32_t line, const char *color,
                      const char *name);
/* Writes text, and escapes the characters that have a meaning in XML. */
void svg_frame_text(const struct svg_frame *frame, const char *text);

/* Returns one of ten colours that are told apart well. */
const char *svg_color(uint32_t number);

#endif
