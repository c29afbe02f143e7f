/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/placement/plan_picture.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/number.h"
#include "tools/cli/placement/svg_frame.h"

#define SPLIT_COLOR "black"
#define MANY_TABLES 1000
#define WHOLE       0.9999 /* an arc cannot lead around a whole circle */

/* The circle of a split table. */
struct sector_of {
    double x, y, r;
};

/* Returns the bytes that a table's reads take in a second; in a batch, if the plan has no rate. */
static double bandwidth(const struct plan *plan, const struct plan_table *table)
{
    return plan->samples_per_s > 0
               ? table->read_bytes * plan->samples_per_s / plan->samples_per_batch
               : table->read_bytes;
}

/* Returns the part that takes the most lookups: its memory gives the table its colour. */
static const struct plan_part *main_part(const struct plan_table *table)
{
    const struct plan_part *best = table->parts;

    for (uint32_t i = 1; i < table->part_count; i++)
        if (table->parts[i].lookup_share > best->lookup_share)
            best = &table->parts[i];
    return best;
}

static uint32_t first_of_name(const struct plan *plan, uint32_t memory)
{
    uint32_t i = 0;

    while (strcmp(plan->memories[i].name, plan->memories[memory].name) != 0)
        i++;
    return i;
}

/* Memories of one name, as those of GPUs, share a colour. */
static uint32_t color_of(const struct plan *plan, uint32_t memory)
{
    const uint32_t first = first_of_name(plan, memory);
    uint32_t color = 0;

    for (uint32_t i = 0; i < first; i++)
        color += first_of_name(plan, i) == i;
    return color;
}

/* Widens the axis so that it holds the number. An axis from 0 to 0 is empty. */
static void hold(struct svg_axis *axis, double number)
{
    const bool is_empty = axis->from == axis->to;
    int power;

    if (!(number > 0 && number < 1e300))
        return;
    power = (int)floor(log10(number));
    axis->from = is_empty ? power : MIN(axis->from, power);
    axis->to = is_empty ? power + 1 : MAX(axis->to, power + 1);
}

/* Draws a sector of a split table's circle, clockwise from the top, for shares @from to @to. */
static void draw_sector(const struct svg_frame *frame, const struct sector_of *at, double from,
                        double to, const char *color)
{
    const double begin = 2 * M_PI * from, end = 2 * M_PI * to;

    if (to - from > WHOLE) {
        fprintf(frame->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", at->x,
                at->y, at->r, color);
        return;
    }
    fprintf(frame->file,
            "<path d=\"M%.1f %.1fL%.2f %.2fA%.1f %.1f 0 %d 1 %.2f %.2fZ\" fill=\"%s\"/>\n", at->x,
            at->y, at->x + at->r * sin(begin), at->y - at->r * cos(begin), at->r, at->r,
            to - from > 0.5, at->x + at->r * sin(end), at->y - at->r * cos(end), color);
}

/* Each range has the part of the circle that it has of the lookups. */
static void draw_sectors(const struct svg_frame *frame, const struct plan *plan,
                         const struct plan_table *table, const struct sector_of *at)
{
    double share = 0;

    for (uint32_t i = 0; i < table->part_count; i++) {
        const struct plan_part *const part = &table->parts[i];

        if (part->lookup_share > 0)
            draw_sector(frame, at, share, share + part->lookup_share,
                        svg_color(color_of(plan, plan_memory_of(plan, part))));
        share += part->lookup_share;
    }
}

/* Writes "; hbm: 200,000 rows, 80% of the lookups" for each range of a split table. */
static void write_ranges(const struct svg_frame *frame, const struct plan *plan,
                         const struct plan_table *table)
{
    for (uint32_t i = 0; table->part_count > 1 && i < table->part_count; i++) {
        const struct plan_part *const part = &table->parts[i];
        struct number_text rows;

        fprintf(frame->file, "; %s: %s rows, %.3g%% of the lookups",
                part->home == PLAN_CACHE ? "cache"
                                         : plan->memories[plan_memory_of(plan, part)].name,
                part->rows > 0 ? number_count(&rows, (double)part->rows) : "all other",
                100 * part->lookup_share);
    }
}

static void draw_table(const struct svg_frame *frame, const struct plan *plan,
                       const struct plan_table *table)
{
    const uint32_t memory = plan_memory_of(plan, main_part(table));
    const struct sector_of at = { svg_frame_x(frame, plan_table_bytes(table)),
                                  svg_frame_y(frame, bandwidth(plan, table)),
                                  plan->table_count > MANY_TABLES ? 2 : 4 };
    const bool is_split = table->part_count > 1;
    struct number_text size, reads;

    if (is_split)
        draw_sectors(frame, plan, table, &at);
    fprintf(frame->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\" fill-opacity=\"%s\"",
            at.x, at.y, at.r, svg_color(color_of(plan, memory)), is_split ? "0" : "0.6");
    if (is_split)
        fputs(" stroke=\"" SPLIT_COLOR "\"", frame->file);
    fputs("><title>", frame->file);
    svg_frame_text(frame, table->name);
    fprintf(frame->file, ": %s%s, %s/%s", number_bytes(&size, plan_table_bytes(table)),
            table->rows == EMBTIER_UNBOUNDED ? " in arrays" : "",
            number_bytes(&reads, bandwidth(plan, table)), plan->samples_per_s > 0 ? "s" : "batch");
    write_ranges(frame, plan, table);
    fputs("</title></circle>\n", frame->file);
}

/* Writes a line for each colour that tables have, with their number. */
static void draw_legend(const struct svg_frame *frame, const struct plan *plan)
{
    uint32_t counts[PLAN_MEMORIES_MAX] = { 0 }, split = 0, line = 0;
    char text[64];

    for (uint32_t i = 0; i < plan->table_count; i++) {
        counts[color_of(plan, plan_memory_of(plan, main_part(&plan->tables[i])))]++;
        split += plan->tables[i].part_count > 1;
    }
    for (uint32_t i = 0; i < plan->memory_count && line < SVG_LEGEND_LINES; i++) {
        const uint32_t color = color_of(plan, i);

        if (counts[color] == 0)
            continue;
        snprintf(text, sizeof(text), "%" PRIu32 " in %s%s", counts[color],
                 plan_memory_kind(&plan->memories[i]) == PLAN_MEMORY_SSD ? "cache over " : "",
                 plan->memories[i].name);
        svg_frame_legend(frame, line++, svg_color(color), text);
        counts[color] = 0;
    }
    snprintf(text, sizeof(text), "%" PRIu32 " of them split", split);
    if (split > 0)
        svg_frame_legend(frame, line, SPLIT_COLOR, text);
}

enum embtier_err plan_picture_write(const struct plan *plan, const char *path, struct err_msg *msg)
{
    const bool has_rate = plan->samples_per_s > 0;
    struct svg_axis x = { .title = "bytes of the table", .is_log = true, .unit = "B" };
    struct svg_axis y = { .title = has_rate ? "bytes read per second" : "bytes read per batch",
                          .is_log = true,
                          .unit = has_rate ? "B/s" : "B" };
    struct svg_frame frame;
    char title[96];

    for (uint32_t i = 0; i < plan->table_count; i++) {
        hold(&x, plan_table_bytes(&plan->tables[i]));
        hold(&y, bandwidth(plan, &plan->tables[i]));
    }
    x.to += x.to == x.from;
    y.to += y.to == y.from;
    snprintf(title, sizeof(title), "Plan of generation %" PRIu64 ": %" PRIu32 " table%s",
             plan->generation, plan->table_count, plan->table_count == 1 ? "" : "s");
    TRY(svg_frame_open(path, title, x, y, &frame, msg));
    for (uint32_t i = 0; i < plan->table_count; i++)
        draw_table(&frame, plan, &plan->tables[i]);
    draw_legend(&frame, plan);
    return svg_frame_close(&frame, msg);
}
