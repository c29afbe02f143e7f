/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/placement/svg_frame.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/new_file.h"

#define WIDTH       820
#define HEIGHT      460
#define LEFT        84
#define TOP         40
#define PLOT_WIDTH  536
#define PLOT_HEIGHT 360
#define LABELS_MAX  10 /* more would touch */
#define NAME_SHOWN  24

const char *svg_color(uint32_t number)
{
    static const char *const colors[] = { "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd",
                                          "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf" };

    return colors[number % ARRAY_LEN(colors)];
}

void svg_frame_text(const struct svg_frame *frame, const char *text)
{
    for (; *text != '\0'; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", frame->file);
            break;
        case '>':
            fputs("&gt;", frame->file);
            break;
        case '&':
            fputs("&amp;", frame->file);
            break;
        default:
            fputc(*text, frame->file);
        }
}

/* ---- Places ---- */

static double share_of(const struct svg_axis *axis, double number)
{
    const double share =
        axis->is_log ? (log10(MAX(number, 1e-300)) - axis->from) / (axis->to - axis->from) : number;

    return MAX(0.0, MIN(1.0, share));
}

double svg_frame_x(const struct svg_frame *frame, double x)
{
    return LEFT + PLOT_WIDTH * share_of(&frame->x, x);
}

double svg_frame_y(const struct svg_frame *frame, double y)
{
    return TOP + PLOT_HEIGHT * (1 - share_of(&frame->y, y));
}

/* ---- Axes ---- */

/* Writes "10 kB" for 4 and "B". */
static void put_power(const struct svg_frame *frame, const struct svg_axis *axis, int power)
{
    static const char *const prefixes[] = { "", "k", "M", "G", "T", "P", "E" };
    static const char *const digits[] = { "1", "10", "100" };

    if (!axis->unit || power < 0 || power >= 3 * (int)ARRAY_LEN(prefixes))
        fprintf(frame->file, "1e%d", power);
    else
        fprintf(frame->file, "%s %s%s", digits[power % 3], prefixes[power / 3], axis->unit);
}

/* Draws line @number of an axis, and writes its value. Returns false after the last. */
static bool draw_line(const struct svg_frame *frame, bool is_x, int number)
{
    const struct svg_axis *const axis = is_x ? &frame->x : &frame->y;
    const int step = axis->is_log ? (axis->to - axis->from + LABELS_MAX - 1) / LABELS_MAX : 0;
    const int power = axis->from + number * step;
    const double value = axis->is_log ? pow(10, power) : number / 5.0;

    if (axis->is_log ? power > axis->to : number > 5)
        return false;
    if (is_x)
        fprintf(frame->file,
                "<path d=\"M%.1f %dv%d\" stroke=\"#ddd\"/>\n"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
                svg_frame_x(frame, value), TOP, PLOT_HEIGHT, svg_frame_x(frame, value),
                TOP + PLOT_HEIGHT + 18);
    else
        fprintf(frame->file,
                "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/>\n"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                LEFT, svg_frame_y(frame, value), PLOT_WIDTH, LEFT - 6,
                svg_frame_y(frame, value) + 4);
    if (axis->is_log)
        put_power(frame, axis, power);
    else
        fprintf(frame->file, "%.1f", value);
    fputs("</text>\n", frame->file);
    return true;
}

static void draw_axis(const struct svg_frame *frame, bool is_x)
{
    for (int i = 0; draw_line(frame, is_x, i);)
        i++;
    if (is_x)
        fprintf(frame->file, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">",
                LEFT + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT + 38);
    else
        fprintf(frame->file,
                "<text x=\"14\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 14 %d)\">",
                TOP + PLOT_HEIGHT / 2, TOP + PLOT_HEIGHT / 2);
    svg_frame_text(frame, is_x ? frame->x.title : frame->y.title);
    fputs("</text>\n", frame->file);
}

void svg_frame_legend(const struct svg_frame *frame, uint32_t line, const char *color,
                      const char *name)
{
    const int y = TOP + 12 + 18 * (int)line;
    char shown[NAME_SHOWN + 1];

    snprintf(shown, sizeof(shown), "%s", name);
    fprintf(frame->file,
            "<path d=\"M%d %dh18\" stroke=\"%s\" stroke-width=\"3\"/><text x=\"%d\" y=\"%d\">",
            LEFT + PLOT_WIDTH + 14, y - 4, color, LEFT + PLOT_WIDTH + 38, y);
    svg_frame_text(frame, shown);
    fputs("</text>\n", frame->file);
}

/* ---- The file ---- */

/* The path may be that of a plan, a profile or a trace. */
static bool has_other_contents(const char *path)
{
    static const char begin[] = "<svg ";
    char found[sizeof(begin)] = "";
    struct stat info;
    FILE *file;

    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0)
        return false;
    file = fopen(path, "re");
    if (!file)
        return true;
    (void)!fread(found, 1, sizeof(found) - 1, file);
    fclose(file);
    return strcmp(found, begin) != 0;
}

/* Returns the standard output or standard error that is the file of @path, or -1. */
static int standard_fd(const char *path)
{
    struct stat info, other;

    if (stat(path, &info) != 0)
        return -1;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (fstat(fd, &other) == 0 && other.st_dev == info.st_dev && other.st_ino == info.st_ino)
            return fd;
    return -1;
}

/* A device or a pipe is written to, and so is the file of @standard, which is -1 or has its name in
 * /dev/stdout: the text that follows would be lost with it. Another file is replaced. */
static enum embtier_err open_file(const char *path, int standard, struct svg_frame *frame,
                                  struct err_msg *msg)
{
    struct stat info;
    int fd;

    if (standard < 0 && (stat(path, &info) != 0 || S_ISREG(info.st_mode))) {
        TRY(new_file_open_over(path, &frame->whole, msg));
        frame->file = new_file_stream(frame->whole);
        return EMBTIER_OK;
    }
    if (standard >= 0) {
        fflush(stdout);
        fd = fcntl(standard, F_DUPFD_CLOEXEC, 3); /* it has the same place in the file */
    } else {
        fd = open(path, O_WRONLY | O_CLOEXEC);
    }
    if (fd >= 0)
        frame->file = fdopen(fd, "w");
    if (frame->file)
        return EMBTIER_OK;
    if (fd >= 0)
        close(fd);
    return err_set_errno(msg, errno, "%s", path);
}

enum embtier_err svg_frame_open(const char *path, const char *title, struct svg_axis x,
                                struct svg_axis y, struct svg_frame *ret_frame, struct err_msg *msg)
{
    struct svg_frame frame = { .path = path, .x = x, .y = y };

    const int standard = standard_fd(path);

    if (standard < 0 && has_other_contents(path))
        return err_set(msg, EMBTIER_EXISTS, "%s: already exists, and is no picture of embtier",
                       path);
    TRY(open_file(path, standard, &frame, msg));
    fprintf(frame.file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
            "<text x=\"%d\" y=\"24\" font-size=\"15\">",
            WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    svg_frame_text(&frame, title);
    fputs("</text>\n", frame.file);
    draw_axis(&frame, false);
    draw_axis(&frame, true);
    *ret_frame = frame;
    return EMBTIER_OK;
}

enum embtier_err svg_frame_close(struct svg_frame *frame, struct err_msg *msg)
{
    _cleanup_(new_file_freep) struct new_file *whole = TAKE(frame->whole);
    int errnum = 0;

    fputs("</svg>\n", frame->file);
    if (whole)
        return new_file_finish(whole, msg);
    if (fflush(frame->file) != 0 || ferror(frame->file))
        errnum = errno ? errno : EIO;
    if (fclose(frame->file) != 0 && errnum == 0)
        errnum = errno;
    return errnum != 0 ? err_set_errno(msg, errnum, "%s", frame->path) : EMBTIER_OK;
}
