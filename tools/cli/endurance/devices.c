/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/endurance/devices.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/system/beside.h"

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
        .is_counted = status_figure(now, "device_counted", name) != 0,
        .written_bytes = since(before, now, "device_written_bytes", name),
        .server_bytes = since(before, now, "device_server_bytes", name),
        .history_seconds = status_figure(now, "device_history_seconds", name),
        .history_bytes = status_figure(now, "device_history_bytes", name),
        .now_bytes = status_figure(now, "device_daily_bytes_now", name),
        .daily_bytes = { status_figure(now, "device_daily_bytes_hour", name),
                         status_figure(now, "device_daily_bytes_day", name),
                         status_figure(now, "device_daily_bytes_week", name) },
        .is_over = status_figure(now, "device_max_dwpd_exceeded", name) > 0,
        .is_held = status_figure(now, "device_write_back_held", name) > 0,
        .child = NO_CHILD,
    };
}

static void add_up(const struct embtier_status *now, struct device_reports *reports)
{
    static const char *const words[LIFE_WINDOWS] = { "hour", "day", "week" };

    reports->history_seconds = status_figure(now, "server_history_seconds", "");
    reports->history_bytes = status_figure(now, "server_history_bytes", "");
    reports->now_bytes = status_figure(now, "server_daily_bytes", "now");
    for (size_t w = 0; w < LIFE_WINDOWS; w++)
        reports->daily_bytes[w] = status_figure(now, "server_daily_bytes", words[w]);
    if (reports->count == 0)
        return;
    reports->history_bytes = reports->now_bytes = 0;
    memset(reports->daily_bytes, 0, sizeof(reports->daily_bytes));
    for (size_t i = 0; i < reports->count; i++) {
        reports->has_uncounted = reports->has_uncounted || !reports->items[i].is_counted;
        reports->history_bytes += reports->items[i].history_bytes;
        reports->now_bytes += reports->items[i].now_bytes;
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
    struct device_reports reports = { .items = calloc(most + 1, sizeof(*reports.items)),
                                      .life_device = "" };

    if (!reports.items)
        return false;
    for (size_t i = 0; i < most; i++) {
        const struct embtier_metric *const at = embtier_status_at(now, i);

        if (strcmp(at->name, "device_capacity_bytes") == 0)
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
    const uint64_t until_ns = clock_now_ns(&clock_monotonic) + HEALTH_LIMIT_NS;
    char program[PATH_MAX];

    beside_find("embtier-nvme-health", EMBTIER_NVME_HEALTH, program);
    for (size_t i = 0; i < reports->count; i++) {
        struct device_report *const report = &reports->items[i];

        if (!is_here)
            (void)err_set(&report->why_not, EMBTIER_UNSUPPORTED,
                          "the drive is on the server's machine: run this command there");
        else
            (void)health_start(program, report->name, &report->child, &report->why_not);
    }
    for (size_t i = 0; i < reports->count; i++) {
        struct device_report *const report = &reports->items[i];

        if (child_is_started(&report->child))
            (void)health_finish(&report->child, until_ns, &report->health, &report->why_not);
    }
}

static double health_number(const struct device_report *report, const char *key)
{
    const json_t *const value = json_object_get(report->health, key);

    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* ---- Life ---- */

/* Without devices, as if all that the server writes went to one drive. */
static void compute_server_life(struct device_reports *reports, double rated_bytes)
{
    struct life_inputs inputs = { .rated_bytes = rated_bytes,
                                  .written_bytes = (double)NAN,
                                  .used_percent = (double)NAN,
                                  .history_bytes = reports->history_bytes };

    memcpy(inputs.daily_bytes, reports->daily_bytes, sizeof(inputs.daily_bytes));
    life_compute(&inputs, &reports->life);
}

static void compute_life(struct device_report *report, double rated_bytes)
{
    struct life_inputs inputs = { .rated_bytes = rated_bytes,
                                  .written_bytes = health_number(report, "written_bytes"),
                                  .used_percent = health_number(report, "used_percent"),
                                  .history_bytes = report->history_bytes };

    memcpy(inputs.daily_bytes, report->daily_bytes, sizeof(inputs.daily_bytes));
    life_compute(&inputs, &report->life);
}

/* An idle drive has no life that ends. */
static bool is_idle(const struct device_report *report)
{
    return report->daily_bytes[LIFE_WINDOWS - 1] == 0;
}

bool device_reports_add_lives(struct device_reports *reports, double rated_bytes)
{
    _cleanup_(freep) double *capacities = calloc(reports->count + 1, sizeof(*capacities));
    _cleanup_(freep) struct life *lives = calloc(reports->count + 1, sizeof(*lives));
    size_t first;

    if (!capacities || !lives)
        return false;
    if (reports->count == 0) {
        compute_server_life(reports, rated_bytes);
        return true;
    }
    for (size_t i = 0; i < reports->count; i++)
        capacities[i] = reports->items[i].capacity_bytes;
    for (size_t i = 0; i < reports->count; i++) {
        struct device_report *const report = &reports->items[i];

        compute_life(report, life_share(rated_bytes, capacities, reports->count, i));
        lives[i] = report->life;
        reports->has_unknown_life =
            reports->has_unknown_life || (isnan(report->life.years) && !is_idle(report));
    }
    first = life_first(lives, reports->count);
    reports->life = lives[first];
    reports->life_device = reports->items[first].name;
    return true;
}

double device_report_dwpd(const struct device_report *report)
{
    return report->daily_bytes[LIFE_WINDOWS - 1] / report->capacity_bytes;
}
