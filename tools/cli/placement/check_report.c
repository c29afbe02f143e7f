/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/placement/check_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/text_table.h"

static const char *const kind_words[CHECK_KINDS] = { "hit_rate", "time_s", "reads_per_s",
                                                     "written_bytes_per_hour" };
static const char *const state_words[] = { [CHECK_IDLE] = "idle",
                                           [CHECK_UNKNOWN] = "unknown",
                                           [CHECK_TOO_FEW] = "too_few",
                                           [CHECK_COMPARED] = "compared" };
static const char *const place_words[] = {
    [CHECK_AS_PLANNED] = "as_planned", [CHECK_ELSEWHERE] = "elsewhere",
    [CHECK_ALTERED] = "altered",       [CHECK_CHANGED] = "changed",
    [CHECK_MISSING] = "missing",       [CHECK_UNPLANNED] = "unplanned"
};

/* ---- Text ---- */

static const char *value_text(enum check_kind kind, double value, struct number_text *buffer)
{
    switch (kind) {
    case CHECK_HIT_RATE:
        snprintf(buffer->text, sizeof(buffer->text), "%.1f%%", 100 * value);
        return buffer->text;
    case CHECK_TIME:
        return number_time(buffer, value);
    case CHECK_IOPS:
        return number_count(buffer, round(value));
    default:
        return number_bytes(buffer, value);
    }
}

/* The difference, with a ! if it is beyond the bar. */
static bool add_difference(struct text_table *text, enum check_kind kind,
                           const struct check_figure *figure)
{
    const char *const mark = figure->is_beyond ? "!" : "";

    if (isinf(figure->difference))
        return text_table_add(text, "none predicted%s", mark);
    return text_table_add(text, "%+.1f%s%s", figure->difference,
                          kind == CHECK_HIT_RATE ? "pt" : "%", mark);
}

static bool add_blanks(struct text_table *text, uint32_t count)
{
    bool ok = true;

    for (uint32_t i = 0; i < count; i++)
        ok = text_table_add(text, "-") && ok;
    return ok;
}

static bool add_figure(struct text_table *text, enum check_kind kind,
                       const struct check_figure *figure)
{
    struct number_text predicted, measured;
    bool ok;

    if (figure->state == CHECK_IDLE)
        return add_blanks(text, 3);
    ok = text_table_add(text, "%s", value_text(kind, figure->predicted, &predicted));
    if (figure->state == CHECK_UNKNOWN)
        return ok && add_blanks(text, 2);
    ok = ok && text_table_add(text, "%s", value_text(kind, figure->measured, &measured));
    return ok && (figure->state == CHECK_TOO_FEW ? text_table_add(text, "too few")
                                                 : add_difference(text, kind, figure));
}

static bool add_line(struct text_table *text, const struct check_line *line)
{
    bool ok = text_table_add(text, "%s", line->name) &&
              text_table_add(text, "%s", line->planned.word ? line->planned.word : "");

    for (uint32_t k = 0; ok && k < CHECK_KINDS; k++)
        ok = add_figure(text, (enum check_kind)k, &line->figures[k]);
    return ok;
}

static bool print_lines(const struct check *check)
{
    static const char *const titles[] = { "",     "HOME",      "HITS",     "MEASURED", "DIFF",
                                          "TIME", "MEASURED",  "DIFF",     "READS/S",  "MEASURED",
                                          "DIFF", "WRITTEN/H", "MEASURED", "DIFF" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("llrrrrrrrrrrrr");
    bool ok = text != NULL;

    for (uint32_t i = 0; ok && i < ARRAY_LEN(titles); i++)
        ok = text_table_add(text, "%s", titles[i]);
    for (uint32_t i = 0; ok && i < check->memory_count; i++)
        ok = add_line(text, &check->memories[i]);
    for (uint32_t i = 0; ok && i < check->table_count; i++)
        if (check->tables[i].place == CHECK_AS_PLANNED)
            ok = add_line(text, &check->tables[i]);
    if (ok)
        text_table_print(text, 0, stdout);
    return ok;
}

struct home_text {
    char text[TIER_NAME_MAX + 64];
};

/* "cache", "dram", "split with 4,000 hot rows in dram" */
static const char *home_text(const struct check_home *home, struct home_text *buffer)
{
    struct number_text rows;

    if (!home->tier)
        return home->word;
    snprintf(buffer->text, sizeof(buffer->text), "%s with %s hot rows in %s", home->word,
             number_count(&rows, (double)home->hot_rows), home->tier);
    return buffer->text;
}

static void print_misplaced(const struct check_line *line)
{
    struct home_text actual, planned;

    switch (line->place) {
    case CHECK_AS_PLANNED:
        return;
    case CHECK_ELSEWHERE:
        text_print(stdout, "table %s: its home is %s, and the plan's is %s: %s\n", line->name,
                   home_text(&line->actual, &actual), home_text(&line->planned, &planned),
                   line->planned.tier ? "run `embtier apply --trace`" : "run `embtier apply`");
        return;
    case CHECK_ALTERED:
        text_print(stdout, "table %s: its rows, dim, dtype or optimizer differ from the plan's\n",
                   line->name);
        return;
    case CHECK_CHANGED:
        text_print(stdout, "table %s: it was made, or changed its home, meanwhile\n", line->name);
        return;
    case CHECK_MISSING:
        text_print(stdout, "table %s: the server does not have it\n", line->name);
        return;
    case CHECK_UNPLANNED:
        text_print(stdout, "table %s: the plan does not have it\n", line->name);
        return;
    }
}

bool check_report_print(const struct plan *plan, const struct check_window *window,
                        const struct check *check, const struct check_bars *bars)
{
    struct number_text seconds, lookups, waiting;

    text_print(stdout, "plan of generation %" PRIu64 ", %s: %s lookups, %.4g batches/s\n",
               plan->generation, number_duration(&seconds, window->seconds),
               number_count(&lookups, check->lookups), check->batches_per_s);
    putchar('\n');
    if (!print_lines(check))
        return false;
    putchar('\n');
    for (uint32_t i = 0; i < check->table_count; i++)
        print_misplaced(&check->tables[i]);
    if (window->memtable_bytes > window->written_bytes)
        text_print(stdout,
                   "write buffers hold %s, more than was written: a longer --for compares bytes "
                   "written better\n",
                   number_bytes(&waiting, window->memtable_bytes));
    text_print(stdout,
               "figures compared: %" PRIu32 "; beyond %g points, %g%%, %g%%, %g%%: %" PRIu32
               "; tables not as planned: %" PRIu32 "\n",
               check->compared_count, bars->most[CHECK_HIT_RATE], bars->most[CHECK_TIME],
               bars->most[CHECK_IOPS], bars->most[CHECK_WRITTEN], check->beyond_count,
               check->misplaced_count);
    return true;
}

/* ---- JSON ---- */

static json_t *figure_json(const struct check_figure *figure)
{
    const bool is_compared = figure->state == CHECK_COMPARED;

    return json_pack("{s:s, s:o, s:o, s:o, s:b}", "state", state_words[figure->state], "predicted",
                     cli_json_number(figure->predicted), "measured",
                     figure->state == CHECK_UNKNOWN ? json_null()
                                                    : cli_json_number(figure->measured),
                     "difference", is_compared ? cli_json_number(figure->difference) : json_null(),
                     "beyond", figure->is_beyond);
}

/* A split also has "planned_tier" and "planned_hot_rows". */
static bool set_home(json_t *value, const char *key, const struct check_home *home)
{
    char tier[32], rows[32];

    snprintf(tier, sizeof(tier), "%s_tier", key);
    snprintf(rows, sizeof(rows), "%s_hot_rows", key);
    return json_object_set_new(value, key, home->word ? json_string(home->word) : json_null()) ==
               0 &&
           (!home->tier || (json_object_set_new(value, tier, json_string(home->tier)) == 0 &&
                            json_object_set_new(value, rows, cli_json_u64(home->hot_rows)) == 0));
}

static json_t *line_json(const struct check_line *line, bool is_table)
{
    json_t *const value = json_pack("{s:o}", "name", cli_json_text(line->name));
    bool ok = value != NULL;

    if (ok && is_table)
        ok = json_object_set_new(value, "place", json_string(place_words[line->place])) == 0 &&
             set_home(value, "planned", &line->planned) && set_home(value, "actual", &line->actual);
    for (uint32_t k = 0; ok && k < CHECK_KINDS && line->place == CHECK_AS_PLANNED; k++)
        ok = json_object_set_new(value, kind_words[k], figure_json(&line->figures[k])) == 0;
    if (ok)
        return value;
    json_decref(value);
    return NULL;
}

static json_t *lines_json(const struct check_line *lines, uint32_t count, bool are_tables)
{
    json_t *const list = json_array();

    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list, line_json(&lines[i], are_tables));
    return list;
}

struct json_t *check_report_json(const struct plan *plan, const struct check_window *window,
                                 const struct check *check, const struct check_bars *bars)
{
    json_t *const most = json_object();

    for (uint32_t k = 0; k < CHECK_KINDS; k++)
        json_object_set_new(most, kind_words[k], cli_json_number(bars->most[k]));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o}", "generation",
                     cli_json_u64(plan->generation), "seconds", cli_json_number(window->seconds),
                     "lookups", cli_json_number(check->lookups), "batches_per_s",
                     cli_json_number(check->batches_per_s), "bars", most, "within",
                     check_is_within(check), "compared", cli_json_u64(check->compared_count),
                     "beyond", cli_json_u64(check->beyond_count), "misplaced",
                     cli_json_u64(check->misplaced_count), "memories",
                     lines_json(check->memories, check->memory_count, false), "tables",
                     lines_json(check->tables, check->table_count, true));
}
