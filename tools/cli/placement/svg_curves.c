/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/placement/svg_curves.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#define WIDTH        820
#define HEIGHT       460
#define LEFT         60
#define TOP          40
#define PLOT_WIDTH   560
#define PLOT_HEIGHT  360
#define LEGEND_LINES 20 /* more curves have no names beside them */

static const char *const colors[] = { "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd",
                                      "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf" };

/* Returns the power of ten at the right edge. */
static int decades_of(const struct svg_curve *curves, uint32_t count)
{
    double most = 10;

    for (uint32_t i = 0; i < count; i++)
        if (curves[i].point_count > 0)
            most = MAX(most, curves[i].xs[curves[i].point_count - 1]);
    return (int)ceil(log10(most) - 1e-9);
}

static double x_of(double x, int decades)
{
    return LEFT + PLOT_WIDTH * log10(MAX(x, 1.0)) / decades;
}

static double y_of(double y)
{
    return TOP + PLOT_HEIGHT * (1 - MAX(0.0, MIN(1.0, y)));
}

static void draw_frame(FILE *file, const char *title, const char *x_title, const char *y_title,
                       int decades)
{
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
            "<text x=\"%d\" y=\"24\" font-size=\"15\">%s</text>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, title);
    for (int i = 0; i <= 10; i += 2)
        fprintf(file,
                "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/>\n"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.1f</text>\n",
                LEFT, y_of(i / 10.0), PLOT_WIDTH, LEFT - 6, y_of(i / 10.0) + 4, i / 10.0);
    for (int i = 0; i <= decades; i++)
        fprintf(file,
                "<path d=\"M%.1f %dv%d\" stroke=\"#ddd\"/>\n"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">1e%d</text>\n",
                x_of(pow(10, i), decades), TOP, PLOT_HEIGHT, x_of(pow(10, i), decades),
                TOP + PLOT_HEIGHT + 18, i);
    fprintf(file,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n"
            "<text x=\"16\" y=\"%d\" text-anchor=\"middle\" "
            "transform=\"rotate(-90 16 %d)\">%s</text>\n",
            LEFT + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT + 38, x_title, TOP + PLOT_HEIGHT / 2,
            TOP + PLOT_HEIGHT / 2, y_title);
}

static void draw_curve(FILE *file, const struct svg_curve *curve, uint32_t number, uint32_t count,
                       int decades)
{
    const char *const color = colors[number % ARRAY_LEN(colors)];
    const int y = TOP + 12 + 18 * (int)number;

    if (curve->point_count > 0) {
        fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" points=\"", color,
                count > LEGEND_LINES ? "0.8" : "1.6");
        for (uint32_t i = 0; i < curve->point_count; i++)
            fprintf(file, "%s%.1f,%.1f", i > 0 ? " " : "", x_of(curve->xs[i], decades),
                    y_of(curve->ys[i]));
        fprintf(file, "\"><title>%s</title></polyline>\n", curve->name);
    }
    if (number < LEGEND_LINES)
        fprintf(file,
                "<path d=\"M%d %dh18\" stroke=\"%s\" stroke-width=\"3\"/>"
                "<text x=\"%d\" y=\"%d\">%.24s</text>\n",
                LEFT + PLOT_WIDTH + 14, y - 4, color, LEFT + PLOT_WIDTH + 38, y, curve->name);
}

enum embtier_err svg_curves_write(const char *path, const char *title, const char *x_title,
                                  const char *y_title, const struct svg_curve *curves,
                                  uint32_t count, struct err_msg *msg)
{
    FILE *const file = fopen(path, "we");
    const int decades = decades_of(curves, count);
    int errnum = 0;

    if (!file)
        return err_set_errno(msg, errno, "%s", path);
    draw_frame(file, title, x_title, y_title, decades);
    for (uint32_t i = 0; i < count; i++)
        draw_curve(file, &curves[i], i, count, decades);
    fputs("</svg>\n", file);
    if (fflush(file) != 0 || ferror(file))
        errnum = errno ? errno : EIO;
    if (fclose(file) != 0 && errnum == 0)
        errnum = errno;
    return errnum != 0 ? err_set_errno(msg, errnum, "%s", path) : EMBTIER_OK;
}
