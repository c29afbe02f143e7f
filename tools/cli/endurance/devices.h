/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h: the devices beneath the server's files, as its figures and the drives themselves tell.
 * Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_DEVICES_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "client/include/embtier.h"
#include "tools/cli/endurance/life.h"

struct json_t;

/* NAN: not known. */
struct device_report {
    const char *name; /* borrowed from the status */
    double capacity_bytes;
    double written_bytes; /* by all, in the time of the report */
    double server_bytes;
    double history_seconds, history_bytes;
    double daily_bytes[LIFE_WINDOWS];
    bool is_over;           /* endurance.max_dwpd */
    struct json_t *health;  /* NULL: not read */
    struct err_msg why_not; /* it was not read */
};

struct device_reports {
    struct device_report *items;
    size_t count;
    /* Those of all devices; of the server if there are none. */
    double daily_bytes[LIFE_WINDOWS];
    double history_seconds, history_bytes;
};

/* Returns a figure of the server; NAN: it has none. @status may be NULL. */
double status_figure(const struct embtier_status *status, const char *name, const char *label);

/* @before: NULL: since the server's start. False: out of memory. */
MUST_CHECK bool device_reports_make(const struct embtier_status *before,
                                    const struct embtier_status *now,
                                    struct device_reports *ret_reports);
void device_reports_clear(struct device_reports *reports);

/* Asks each drive for its health. @is_here: the server is on this machine. */
void device_reports_ask_health(struct device_reports *reports, bool is_here);

/* @rated_bytes: NAN: not known. False: out of memory. */
MUST_CHECK bool device_reports_life(const struct device_reports *reports, double rated_bytes,
                                    struct life *ret_life);

/* Drive writes a day, at the rate of the longest window. */
double device_report_dwpd(const struct device_report *report);

/* False: out of memory. */
MUST_CHECK bool device_reports_print(const struct device_reports *reports);
/* NULL: out of memory. */
struct json_t *device_reports_to_json(const struct device_reports *reports);
/* {hour, day, week} */
struct json_t *daily_to_json(const double daily_bytes[LIFE_WINDOWS]);

#endif
