/* SPDX-License-Identifier: Apache-2.0 */
/* svg_curves.h: draws curves into an SVG file: x logarithmic from 1 on, y from 0 to 1. */
#ifndef EMBTIER_TOOLS_CLI_PLACEMENT_SVG_CURVES_H
#define EMBTIER_TOOLS_CLI_PLACEMENT_SVG_CURVES_H

#include <stdint.h>

#include "base/err.h"

struct svg_curve {
    const char *name;
    uint32_t point_count;
    const double *xs; /* rising, 0 or more */
    const double *ys; /* 0 to 1 */
};

/* Writes the file, over one that is there. */
MUST_CHECK enum embtier_err svg_curves_write(const char *path, const char *title,
                                             const char *x_title, const char *y_title,
                                             const struct svg_curve *curves, uint32_t count,
                                             struct err_msg *msg);

#endif
