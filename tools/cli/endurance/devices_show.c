/* SPDX-License-Identifier: Apache-2.0 */
/* Devices as text and as JSON. */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/endurance/devices.h"
#include "tools/cli/json_values.h"
#include "tools/cli/number.h"
#include "tools/cli/text_table.h"

/* Bytes of other programs. The server counts a byte before the device has it. */
static double others_bytes(const struct device_report *report)
{
    return isnan(report->server_bytes) ? (double)NAN
                                       : fmax(report->written_bytes - report->server_bytes, 0);
}

/* ---- Text ---- */

static bool add_bytes(struct text_table *text, double bytes)
{
    struct number_text buffer;

    return text_table_add(text, "%s", isnan(bytes) ? "-" : number_bytes(&buffer, bytes));
}

static bool add_device(struct text_table *text, const struct device_report *report)
{
    const double dwpd = device_report_dwpd(report);
    bool ok = text_table_add(text, "%s", TEXT_SHOWN(report->name)) &&
              add_bytes(text, report->capacity_bytes) && add_bytes(text, report->written_bytes) &&
              add_bytes(text, report->server_bytes) && add_bytes(text, others_bytes(report)) &&
              add_bytes(text, report->now_bytes);

    for (size_t w = 0; ok && w < LIFE_WINDOWS; w++)
        ok = add_bytes(text, report->daily_bytes[w]);
    return ok && (isnan(dwpd) ? text_table_add(text, "-") : text_table_add(text, "%.3g", dwpd));
}

static bool print_table(const struct device_reports *reports)
{
    static const char *const titles[] = { "device",      "capacity",   "written",     "by server",
                                          "by others",   "a day: now", "a day: hour", "a day: day",
                                          "a day: week", "DWPD" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lrrrrrrrrr");
    bool ok = text != NULL;

    for (size_t i = 0; ok && i < ARRAY_LEN(titles); i++)
        ok = text_table_add(text, "%s", titles[i]);
    for (size_t i = 0; ok && i < reports->count; i++)
        ok = add_device(text, &reports->items[i]);
    if (ok)
        text_table_print(text, 0, stdout);
    return ok;
}

struct line {
    char text[512];
};

static void append(struct line *line, const char *format, ...) PRINTF_LIKE(2, 3);
static void append(struct line *line, const char *format, ...)
{
    const size_t used = strlen(line->text);
    va_list args;

    va_start(args, format);
    vsnprintf(line->text + used, sizeof(line->text) - used, format, args);
    va_end(args);
}

/* Appends a figure of the health; %s of @format is the number. */
static void append_figure(struct line *line, const json_t *health, const char *key,
                          const char *before, const char *behind)
{
    const json_t *const value = json_object_get(health, key);

    if (json_is_number(value))
        append(line, "%s%s%.4g%s", line->text[0] ? ", " : "", before, json_number_value(value),
               behind);
}

static void print_warning(const char *meaning, void *context)
{
    const struct device_report *const report = context;

    text_print(stdout, "%s: warning: %s\n", TEXT_SHOWN(report->name), meaning);
}

static void print_health(struct device_report *report)
{
    const json_t *const health = report->health;
    const json_t *const written = json_object_get(health, "written_bytes");
    struct line line = { "" };
    struct number_text bytes;

    if (!health) {
        text_print(stdout, "%s: health is not known: %s\n", TEXT_SHOWN(report->name),
                   report->why_not.text);
        return;
    }
    append_figure(&line, health, "used_percent", "", " % of its life used");
    append_figure(&line, health, "spare_percent", "spare ", " %");
    append_figure(&line, health, "spare_threshold_percent", "at least ", " %");
    append_figure(&line, health, "media_errors", "media errors ", "");
    append_figure(&line, health, "temperature_celsius", "", " degrees Celsius");
    append_figure(&line, health, "power_on_hours", "on for ", " hours");
    if (json_is_number(written))
        append(&line, ", %s written in its life", number_bytes(&bytes, json_number_value(written)));
    append_figure(&line, health, "drive_amplification", "the drive's own amplification ", "");
    if (!json_is_number(json_object_get(health, "drive_amplification")))
        append(&line, ", the drive's own amplification is not known");
    text_print(stdout, "%s: %s\n", TEXT_SHOWN(report->name), line.text);
    health_each_warning(health, print_warning, report);
    if (json_is_true(json_object_get(health, "failing")))
        text_print(stdout, "%s: the drive is failing: replace it\n", TEXT_SHOWN(report->name));
}

bool device_reports_print(const struct device_reports *reports)
{
    if (reports->count == 0) {
        puts("no device is known beneath the server's files: memory, a network, or a device that "
             "/sys does not show");
        return true;
    }
    if (!print_table(reports))
        return false;
    for (size_t i = 0; i < reports->count; i++) {
        print_health(&reports->items[i]);
        if (!reports->items[i].is_counted)
            text_print(stdout,
                       "%s: the kernel does not count what is written to it: write 1 into "
                       "/sys/class/block/%s/queue/iostats\n",
                       TEXT_SHOWN(reports->items[i].name), TEXT_SHOWN(reports->items[i].name));
        if (reports->items[i].is_held)
            text_print(stdout,
                       "%s: a day's writes of endurance.max_dwpd are used up: rows are written "
                       "back at its rate, and updates may wait\n",
                       TEXT_SHOWN(reports->items[i].name));
        if (reports->items[i].is_over)
            text_print(stdout,
                       "%s: more drive writes a day than endurance.max_dwpd: give the row cache "
                       "more memory, or let fewer programs write there\n",
                       TEXT_SHOWN(reports->items[i].name));
    }
    return true;
}

/* ---- JSON ---- */

json_t *life_to_json(const struct life *life)
{
    return json_pack(
        "{s:o, s:b, s:o, s:o, s:o, s:o}", "written_bytes", cli_json_number(life->written_bytes),
        "counted_by_drives", life->is_counted, "left_bytes", cli_json_number(life->left_bytes),
        "years", cli_json_number(life->years), "least_years", cli_json_number(life->least_years),
        "most_years", cli_json_number(life->most_years));
}

json_t *daily_to_json(double now_bytes, const double daily_bytes[LIFE_WINDOWS])
{
    return json_pack("{s:o, s:o, s:o, s:o}", "now", cli_json_number(now_bytes), "hour",
                     cli_json_number(daily_bytes[0]), "day", cli_json_number(daily_bytes[1]),
                     "week", cli_json_number(daily_bytes[2]));
}

static json_t *device_to_json(const struct device_report *report)
{
    return json_pack(
        "{s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:o, s:o, s:o}", "name",
        cli_json_text(report->name), "capacity_bytes", cli_json_number(report->capacity_bytes),
        "counted", report->is_counted, "written_bytes", cli_json_number(report->written_bytes),
        "server_bytes", cli_json_number(report->server_bytes), "others_bytes",
        cli_json_number(others_bytes(report)), "daily_bytes",
        daily_to_json(report->now_bytes, report->daily_bytes), "drive_writes_per_day",
        cli_json_number(device_report_dwpd(report)), "history_seconds",
        cli_json_number(report->history_seconds), "history_bytes",
        cli_json_number(report->history_bytes), "max_dwpd_exceeded", report->is_over,
        "write_back_held", report->is_held, "life", life_to_json(&report->life), "health",
        report->health ? json_incref(report->health) : json_null(), "health_error",
        report->health ? json_null() : cli_json_text(report->why_not.text));
}

json_t *device_reports_to_json(const struct device_reports *reports)
{
    json_t *const devices = json_array();

    for (size_t i = 0; i < reports->count; i++)
        if (json_array_append_new(devices, device_to_json(&reports->items[i])) != 0) {
            json_decref(devices);
            return NULL;
        }
    return devices;
}
