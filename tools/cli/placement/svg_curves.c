/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/placement/svg_curves.h"

#include <math.h>
#include <stdio.h>

#include "tools/cli/placement/svg_frame.h"

/* Returns the power of ten at the right edge. */
static int decades_of(const struct svg_curve *curves, uint32_t count)
{
    double most = 10;

    for (uint32_t i = 0; i < count; i++)
        if (curves[i].point_count > 0)
            most = MAX(most, curves[i].xs[curves[i].point_count - 1]);
    return (int)ceil(log10(most) - 1e-9);
}

/* More curves than the legend has lines have no names beside them. */
static void draw_curve(const struct svg_frame *frame, const struct svg_curve *curve,
                       uint32_t number, uint32_t count)
{
    if (curve->point_count > 0) {
        fprintf(frame->file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" points=\"",
                svg_color(number), count > SVG_LEGEND_LINES ? "0.8" : "1.6");
        for (uint32_t i = 0; i < curve->point_count; i++)
            fprintf(frame->file, "%s%.1f,%.1f", i > 0 ? " " : "", svg_frame_x(frame, curve->xs[i]),
                    svg_frame_y(frame, curve->ys[i]));
        fputs("\"><title>", frame->file);
        svg_frame_text(frame, curve->name);
        fputs("</title></polyline>\n", frame->file);
    }
    if (number < SVG_LEGEND_LINES)
        svg_frame_legend(frame, number, svg_color(number), curve->name);
}

enum embtier_err svg_curves_write(const char *path, const char *title, const char *x_title,
                                  const char *y_title, const struct svg_curve *curves,
                                  uint32_t count, struct err_msg *msg)
{
    const struct svg_axis x = { .title = x_title, .is_log = true, .to = decades_of(curves, count) };
    const struct svg_axis y = { .title = y_title };
    struct svg_frame frame;

    TRY(svg_frame_open(path, title, x, y, &frame, msg));
    for (uint32_t i = 0; i < count; i++)
        draw_curve(&frame, &curves[i], i, count);
    return svg_frame_close(&frame, msg);
}
