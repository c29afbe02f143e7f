/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/endurance/tables.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/endurance/devices.h"
#include "tools/cli/json_values.h"
#include "tools/cli/number.h"
#include "tools/cli/text_table.h"

#define DAY_S 86400.0

/* ---- Counting ---- */

static double known(double value)
{
    return value >= 0 ? value : (double)NAN; /* EMBTIER_RATE_UNKNOWN */
}

static struct writes writes_of(const struct embtier_table_info *info)
{
    struct writes writes = {
        .updated_rows = (double)info->updated_rows,
        .flush_bytes = (double)info->flush_bytes,
        .initial_bytes = (double)info->initial_bytes,
        .compaction_bytes = (double)info->compaction_bytes,
        .log_bytes = (double)info->log_bytes,
        .import_bytes = (double)info->import_bytes,
        .daily_bytes = { known(info->daily_bytes_now), known(info->daily_bytes_hour),
                         known(info->daily_bytes_day), known(info->daily_bytes_week) },
        .history_seconds = (double)info->history_ms / 1000,
        .history_bytes = (double)info->history_bytes
    };

    snprintf(writes.name, sizeof(writes.name), "%s", info->name);
    writes.updated_bytes =
        writes.updated_rows * ((double)info->weight_bytes + (double)info->state_bytes);
    return writes;
}

/* Adds what was counted; rates are not. */
static void add(struct writes *sum, const struct writes *writes, double sign)
{
    sum->updated_rows += sign * writes->updated_rows;
    sum->updated_bytes += sign * writes->updated_bytes;
    sum->flush_bytes += sign * writes->flush_bytes;
    sum->initial_bytes += sign * writes->initial_bytes;
    sum->compaction_bytes += sign * writes->compaction_bytes;
    sum->log_bytes += sign * writes->log_bytes;
    sum->import_bytes += sign * writes->import_bytes;
    sum->other_bytes += sign * writes->other_bytes;
}

static void take_rates(const struct embtier_status *now, const char *metric, const char *bytes,
                       struct writes *writes)
{
    static const char *const words[TABLE_WINDOWS] = { "now", "hour", "day", "week" };

    for (size_t w = 0; w < TABLE_WINDOWS; w++)
        writes->daily_bytes[w] = status_figure(now, metric, words[w]);
    writes->history_seconds = status_figure(now, "server_history_seconds", "");
    writes->history_bytes = status_figure(now, bytes, "");
}

static void no_rates(struct writes *writes)
{
    for (size_t w = 0; w < TABLE_WINDOWS; w++)
        writes->daily_bytes[w] = (double)NAN;
    writes->history_seconds = writes->history_bytes = (double)NAN;
}

/* The rest of a cause belongs to tables that are gone, or to none. */
static void take_cause(const char *cause, double bytes, struct table_rows *rows)
{
    if (strcmp(cause, "flush") == 0)
        rows->dropped.flush_bytes = bytes - rows->all.flush_bytes;
    else if (strcmp(cause, "compaction") == 0)
        rows->dropped.compaction_bytes = bytes - rows->all.compaction_bytes;
    else if (strcmp(cause, "import") == 0)
        rows->dropped.import_bytes = bytes - rows->all.import_bytes;
    else if (strcmp(cause, "log") == 0)
        rows->shared.log_bytes = bytes - rows->all.log_bytes;
    else
        rows->shared.other_bytes += bytes;
}

static void take_rest(const struct endurance_sample *before, const struct endurance_sample *now,
                      struct table_rows *rows)
{
    for (size_t i = 0; i < embtier_status_count(now->status); i++) {
        const struct embtier_metric *const at = embtier_status_at(now->status, i);

        if (strcmp(at->name, "store_written_bytes") == 0)
            take_cause(at->label_value,
                       at->value - endurance_figure(before->status, at->name, at->label_value),
                       rows);
    }
    rows->dropped.updated_bytes = endurance_figure(now->status, "updated_bytes", "") -
                                  endurance_figure(before->status, "updated_bytes", "") -
                                  rows->all.updated_bytes;
    no_rates(&rows->dropped);
    take_rates(now->status, "shared_daily_bytes", "shared_history_bytes", &rows->shared);
    take_rates(now->status, "server_daily_bytes", "server_history_bytes", &rows->all);
}

bool table_rows_make(const struct endurance_sample *before, const struct endurance_sample *now,
                     struct table_rows *ret_rows)
{
    struct table_rows rows = { .count = embtier_table_list_count(now->tables) };

    rows.tables = calloc(rows.count + 1, sizeof(*rows.tables));
    if (!rows.tables)
        return false;
    for (size_t i = 0; i < rows.count; i++) {
        const struct embtier_table_info *const info = embtier_table_list_at(now->tables, i);
        const struct embtier_table_info *const old = endurance_sample_table(before, info->table_id);

        rows.tables[i] = writes_of(info);
        if (old) {
            const struct writes then = writes_of(old);

            add(&rows.tables[i], &then, -1);
        }
        add(&rows.all, &rows.tables[i], 1);
    }
    take_rest(before, now, &rows);
    add(&rows.all, &rows.dropped, 1);
    add(&rows.all, &rows.shared, 1);
    *ret_rows = rows;
    return true;
}

void table_rows_clear(struct table_rows *rows)
{
    free(rows->tables);
    *rows = (struct table_rows){ .tables = NULL };
}

double writes_bytes(const struct writes *writes)
{
    return writes->flush_bytes + writes->compaction_bytes + writes->log_bytes +
           writes->import_bytes + writes->other_bytes;
}

/* NAN: nothing was updated. */
static double amplification(const struct writes *writes)
{
    return writes->updated_bytes > 0 ? writes_bytes(writes) / writes->updated_bytes : (double)NAN;
}

/* ---- Text ---- */

static double flushed_later(const struct writes *writes)
{
    return writes->flush_bytes - writes->initial_bytes;
}

#define FIELD(name)                                                                                \
    static double name##_of(const struct writes *writes)                                           \
    {                                                                                              \
        return writes->name##_bytes;                                                               \
    }
FIELD(initial)
FIELD(compaction)
FIELD(log)
FIELD(import)
FIELD(other)
#undef FIELD

/* Causes that wrote nothing for any row are left out. */
static const struct column {
    const char *title;
    double (*bytes)(const struct writes *writes);
} columns[] = { { "first values", initial_of }, { "flushed", flushed_later },
                { "compacted", compaction_of }, { "logged", log_of },
                { "imported", import_of },      { "other", other_of } };

static bool add_bytes(struct text_table *text, double bytes)
{
    struct number_text buffer;

    return text_table_add(text, "%s", isfinite(bytes) ? number_bytes(&buffer, bytes) : "-");
}

static bool is_shown(const struct table_rows *rows, const struct column *column)
{
    return column->bytes(&rows->all) != 0;
}

static bool add_row(struct text_table *text, const struct table_rows *rows,
                    const struct writes *writes, const char *name, double days)
{
    const double amplified = amplification(writes);
    struct number_text count;
    bool ok = text_table_add(text, "%s", name) &&
              text_table_add(text, "%s", number_count(&count, writes->updated_rows)) &&
              add_bytes(text, writes->updated_bytes);

    for (size_t i = 0; ok && i < ARRAY_LEN(columns); i++)
        ok = !is_shown(rows, &columns[i]) || add_bytes(text, columns[i].bytes(writes));
    return ok && add_bytes(text, writes_bytes(writes)) &&
           (isfinite(amplified) ? text_table_add(text, "%.2f", amplified)
                                : text_table_add(text, "-")) &&
           add_bytes(text, writes_bytes(writes) / days);
}

static bool add_titles(struct text_table *text, const struct table_rows *rows)
{
    bool ok = text_table_add(text, "table") && text_table_add(text, "updated rows") &&
              text_table_add(text, "updated");

    for (size_t i = 0; ok && i < ARRAY_LEN(columns); i++)
        ok = !is_shown(rows, &columns[i]) || text_table_add(text, "%s", columns[i].title);
    return ok && text_table_add(text, "written") && text_table_add(text, "amplification") &&
           text_table_add(text, "a day");
}

bool table_rows_print(const struct table_rows *rows, bool has_rates, double seconds)
{
    const double days = has_rates ? seconds / DAY_S : (double)NAN;
    char sides[ARRAY_LEN(columns) + 7] = "lrr";
    _cleanup_(text_table_freep) struct text_table *text = NULL;
    bool ok;

    for (size_t i = 0; i < ARRAY_LEN(columns); i++)
        if (is_shown(rows, &columns[i]))
            strcat(sides, "r");
    strcat(sides, "rrr");
    text = text_table_new(sides);
    ok = text && add_titles(text, rows);
    for (size_t i = 0; ok && i < rows->count; i++)
        ok = add_row(text, rows, &rows->tables[i], rows->tables[i].name, days);
    if (ok && writes_bytes(&rows->dropped) > 0)
        ok = add_row(text, rows, &rows->dropped, "(other)", days);
    ok = ok && add_row(text, rows, &rows->shared, "(shared)", days) &&
         add_row(text, rows, &rows->all, "(all)", days);
    if (ok)
        text_table_print(text, 0, stdout);
    return ok;
}

static bool add_rates(struct text_table *text, const struct writes *writes, const char *name)
{
    struct number_text age;
    bool ok = text_table_add(text, "%s", name);

    for (size_t w = 0; ok && w < TABLE_WINDOWS; w++)
        ok = add_bytes(text, writes->daily_bytes[w]);
    return ok && text_table_add(text, "%s",
                                isfinite(writes->history_seconds)
                                    ? number_duration(&age, writes->history_seconds)
                                    : "-");
}

bool table_rows_print_rates(const struct table_rows *rows)
{
    static const char *const titles[] = { "written a day", "now",       "last hour",
                                          "last day",      "last week", "history" };
    _cleanup_(text_table_freep) struct text_table *text = NULL;
    bool ok;

    if (isnan(rows->shared.daily_bytes[TABLE_WEEK]))
        return true; /* the rates of devices say why */
    text = text_table_new("lrrrrr");
    ok = text != NULL;
    for (size_t i = 0; ok && i < ARRAY_LEN(titles); i++)
        ok = text_table_add(text, "%s", titles[i]);
    for (size_t i = 0; ok && i < rows->count; i++)
        ok = add_rates(text, &rows->tables[i], rows->tables[i].name);
    ok = ok && add_rates(text, &rows->shared, "(shared)") && add_rates(text, &rows->all, "(all)");
    if (ok && putchar('\n') != EOF)
        text_table_print(text, 0, stdout);
    return ok;
}

/* ---- JSON ---- */

struct json_t *writes_to_json(const struct writes *writes, const char *name)
{
    const double *const daily = writes->daily_bytes;

    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:{s:o, s:o, s:o, s:o}, s:o, s:o}",
        "name", name, "updated_rows", cli_json_number(writes->updated_rows), "updated_bytes",
        cli_json_number(writes->updated_bytes), "flush_bytes", cli_json_number(writes->flush_bytes),
        "initial_bytes", cli_json_number(writes->initial_bytes), "compaction_bytes",
        cli_json_number(writes->compaction_bytes), "log_bytes", cli_json_number(writes->log_bytes),
        "import_bytes", cli_json_number(writes->import_bytes), "other_bytes",
        cli_json_number(writes->other_bytes), "written_bytes",
        cli_json_number(writes_bytes(writes)), "write_amplification",
        cli_json_number(amplification(writes)), "daily_bytes", "now",
        cli_json_number(daily[TABLE_NOW]), "hour", cli_json_number(daily[TABLE_HOUR]), "day",
        cli_json_number(daily[TABLE_DAY]), "week", cli_json_number(daily[TABLE_WEEK]),
        "history_seconds", cli_json_number(writes->history_seconds), "history_bytes",
        cli_json_number(writes->history_bytes));
}
