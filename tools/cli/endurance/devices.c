/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/endurance/devices.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/beside.h"
#include "tools/cli/endurance/health.h"

/* ---- Figures ---- */

double status_figure(const struct embtier_status *status, const char *name, const char *label)
{
    for (size_t i = 0; status && i < embtier_status_count(status); i++) {
        const struct embtier_metric *const at = embtier_status_at(status, i);

        if (strcmp(at->name, name) == 0 && strcmp(at->label_value, label) == 0)
            return at->value;
    }
    return (double)NAN;
}

/* A device that was not there before began at 0. */
static double since(const struct embtier_status *before, const struct embtier_status *now,
                    const char *name, const char *label)
{
    const double then = status_figure(before, name, label);

    return status_figure(now, name, label) - (isnan(then) ? 0 : then);
}

static double above_zero(double value)
{
    return value > 0 ? value : (double)NAN;
}

static void take_device(const struct embtier_status *before, const struct embtier_status *now,
                        const char *name, struct device_report *ret_report)
{
    *ret_report = (struct device_report){
        .name = name,
        .capacity_bytes = above_zero(status_figure(now, "device_capacity_bytes", name)),
        .written_bytes = since(before, now, "device_written_bytes", name),
        .server_bytes = since(before, now, "device_server_bytes", name),
        .history_seconds = status_figure(now, "device_history_seconds", name),
        .history_bytes = status_figure(now, "device_history_bytes", name),
        .daily_bytes = { status_figure(now, "device_daily_bytes_hour", name),
                         status_figure(now, "device_daily_bytes_day", name),
                         status_figure(now, "device_daily_bytes_week", name) },
        .is_over = status_figure(now, "device_max_dwpd_exceeded", name) > 0,
    };
}

static void add_up(const struct embtier_status *now, struct device_reports *reports)
{
    static const char *const words[LIFE_WINDOWS] = { "hour", "day", "week" };

    reports->history_seconds = status_figure(now, "server_history_seconds", "");
    reports->history_bytes = status_figure(now, "server_history_bytes", "");
    for (size_t w = 0; w < LIFE_WINDOWS; w++)
        reports->daily_bytes[w] = status_figure(now, "server_daily_bytes", words[w]);
    if (reports->count == 0)
        return;
    reports->history_bytes = 0;
    memset(reports->daily_bytes, 0, sizeof(reports->daily_bytes));
    for (size_t i = 0; i < reports->count; i++) {
        reports->history_bytes += reports->items[i].history_bytes;
        reports->history_seconds =
            fmin(reports->history_seconds, reports->items[i].history_seconds);
        for (size_t w = 0; w < LIFE_WINDOWS; w++)
            reports->daily_bytes[w] += reports->items[i].daily_bytes[w];
    }
}

bool device_reports_make(const struct embtier_status *before, const struct embtier_status *now,
                         struct device_reports *ret_reports)
{
    const size_t most = embtier_status_count(now);
    struct device_reports reports = { .items = calloc(most + 1, sizeof(*reports.items)) };

    if (!reports.items)
        return false;
    for (size_t i = 0; i < most; i++) {
        const struct embtier_metric *const at = embtier_status_at(now, i);

        if (strcmp(at->name, "device_written_bytes") == 0)
            take_device(before, now, at->label_value, &reports.items[reports.count++]);
    }
    add_up(now, &reports);
    *ret_reports = reports;
    return true;
}

void device_reports_clear(struct device_reports *reports)
{
    for (size_t i = 0; i < reports->count; i++)
        json_decref(reports->items[i].health);
    free(reports->items);
    *reports = (struct device_reports){ .items = NULL };
}

/* ---- Health ---- */

void device_reports_ask_health(struct device_reports *reports, bool is_here)
{
    char program[PATH_MAX];

    beside_find("embtier-nvme-health", EMBTIER_NVME_HEALTH, program);
    for (size_t i = 0; i < reports->count; i++) {
        struct device_report *const report = &reports->items[i];

        if (!is_here)
            (void)err_set(&report->why_not, EMBTIER_UNSUPPORTED,
                          "the drive is on the server's machine: run this command there");
        else if (health_ask(program, report->name, &report->health, &report->why_not) != EMBTIER_OK)
            report->health = NULL;
    }
}

static double health_number(const struct device_report *report, const char *key)
{
    const json_t *const value = json_object_get(report->health, key);

    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

bool device_reports_life(const struct device_reports *reports, double rated_bytes,
                         struct life *ret_life)
{
    struct life_inputs inputs = { .rated_bytes = rated_bytes,
                                  .drive_count = reports->count,
                                  .history_bytes = reports->history_bytes };
    struct wear *const drives = calloc(reports->count + 1, sizeof(*drives));

    if (!drives)
        return false;
    for (size_t i = 0; i < reports->count; i++)
        drives[i] = (struct wear){
            .written_bytes = health_number(&reports->items[i], "written_bytes"),
            .used_percent = health_number(&reports->items[i], "used_percent"),
        };
    inputs.drives = drives;
    memcpy(inputs.daily_bytes, reports->daily_bytes, sizeof(inputs.daily_bytes));
    life_compute(&inputs, ret_life);
    free(drives);
    return true;
}

double device_report_dwpd(const struct device_report *report)
{
    return report->daily_bytes[LIFE_WINDOWS - 1] / report->capacity_bytes;
}
