/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/top/frame.h"

#include <jansson.h>
#include <math.h>

#include "base/json/figures_json.h"
#include "base/text/text_escape.h"
#include "tools/cli/compaction/progress.h"
#include "tools/cli/json_values.h"
#include "tools/cli/status/shown.h"

static bool make_grid(struct frame *frame, enum panel_number number)
{
    const struct panel *const panel = &panels[number];
    struct grid *const grid = &frame->grids[number];

    grid_begin(grid, panel->columns, panel->column_count);
    panel->fill(grid, &frame->overview, &frame->rates);
    if (!grid_is_whole(grid))
        return false;
    if (panel->sorted_by != NOT_SORTED)
        grid_sort(grid, panel->sorted_by, false);
    return true;
}

enum embtier_err frame_make(const struct sample *before, const struct sample *now,
                            struct frame *ret_frame)
{
    struct frame frame = { .rates = rates_between(before, now) };
    bool ok;

    TRY(overview_make(&now->reading, OVERVIEW_BY_TRAFFIC, &frame.overview));
    ok = true;
    for (int i = 0; ok && i < PANEL_COUNT; i++)
        ok = make_grid(&frame, (enum panel_number)i);
    if (!ok) {
        frame_clear(&frame);
        return EMBTIER_NO_MEMORY;
    }
    *ret_frame = frame;
    return EMBTIER_OK;
}

void frame_clear(struct frame *frame)
{
    overview_clear(&frame->overview);
    for (size_t i = 0; i < PANEL_COUNT; i++)
        grid_clear(&frame->grids[i]);
}

static const char *count_rate(struct number_text *buffer, const struct frame *frame,
                              const char *name, const char *label_value)
{
    return shown_count(buffer, round(rates_metric(&frame->rates, name, label_value)));
}

static const char *byte_rate(struct number_text *buffer, const struct frame *frame,
                             const char *name, const char *label_value)
{
    return shown_bytes(buffer, rates_metric(&frame->rates, name, label_value));
}

static void print_rates(const struct frame *frame, FILE *out)
{
    struct number_text a, b, c, d;

    fprintf(out, "requests %s/s; rows looked up %s/s, set %s/s, pushed %s/s\n",
            count_rate(&a, frame, "requests", ""), count_rate(&b, frame, "lookup_rows", NULL),
            count_rate(&c, frame, "request_rows", "set"),
            count_rate(&d, frame, "request_rows", "push"));
    fprintf(out, "SSD: read %s/s, write %s/s, free %s, compact %s\n",
            byte_rate(&a, frame, "store_read_bytes", ""),
            byte_rate(&b, frame, "store_written_bytes", NULL),
            shown_bytes(&c, frame->overview.ssd.room_bytes),
            shown_bytes(&d, frame->overview.ssd.pending_bytes));
}

void frame_print_head(const struct frame *frame, FILE *out)
{
    const struct overview *const overview = &frame->overview;
    const size_t more = overview->warning_count > 0 ? overview->warning_count - 1 : 0;
    struct number_text uptime;

    text_print(out, "embtierd %s, up %s: %s, %.0f session%s\n", overview->version,
               number_duration(&uptime, overview->uptime_s), health_word(overview->health),
               overview->clients.sessions, PLURAL(overview->clients.sessions));
    if (overview->warning_count > 0) {
        fprintf(out, "%s: ", overview->warnings[0].rule->name);
        if (more > 0)
            fprintf(out, "(and %zu more: embtier status) ", more);
        text_print(out, "%s\n", overview->warnings[0].why.text);
    }
    print_rates(frame, out);
    if (frame->rates.now->compactions)
        compaction_progress_print(frame->rates.now->compactions, out);
}

static json_t *warnings_to_json(const struct overview *overview)
{
    json_t *const array = json_array();

    for (size_t i = 0; array && i < overview->warning_count; i++) {
        if (json_array_append_new(array, json_string(overview->warnings[i].rule->name)) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* An older server tells of none. */
static json_t *compaction_to_json(const struct frame *frame)
{
    struct work_progress progress;

    if (!frame->rates.now->compactions)
        return json_null();
    progress = compaction_progress_sum(frame->rates.now->compactions);
    return figures_json_progress(&progress);
}

json_t *frame_to_json(const struct frame *frame, size_t panel)
{
    json_t *object =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "health", health_word(frame->overview.health),
                  "warnings", warnings_to_json(&frame->overview), "uptime_ms",
                  cli_json_u64(embtier_status_uptime_ms(frame->rates.now->reading.status)),
                  "interval_s", cli_json_number(frame->rates.metric_seconds), "requests_per_s",
                  cli_json_number(rates_metric(&frame->rates, "requests", "")), "compaction",
                  compaction_to_json(frame));

    for (size_t i = 0; object && i < PANEL_COUNT; i++) {
        if (panel != PANEL_COUNT && i != panel)
            continue;
        if (json_object_set_new(object, panels[i].name, grid_to_json(&frame->grids[i])) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}
