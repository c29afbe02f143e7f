/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h: the devices beneath the server's files, as its figures and the drives themselves tell.
 * Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_DEVICES_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "client/include/embtier.h"
#include "tools/cli/endurance/health.h"
#include "tools/cli/endurance/life.h"

struct json_t;

/* NAN: not known. */
struct device_report {
    const char *name; /* borrowed from the status */
    double capacity_bytes;
    bool is_counted;      /* by the kernel; else figures of its writes are not known */
    double written_bytes; /* by all, in the time of the report */
    double server_bytes;
    double history_seconds, history_bytes;
    double now_bytes; /* a day, at the rate of the last ten minutes */
    double daily_bytes[LIFE_WINDOWS];
    bool is_over;           /* endurance.max_dwpd */
    bool is_held;           /* write-back to it */
    struct child child;     /* is asked for the health */
    struct json_t *health;  /* NULL: not read */
    struct err_msg why_not; /* it was not read */
    struct life life;
};

struct device_reports {
    struct device_report *items;
    size_t count;
    /* Those of all devices; of the server if there are none. */
    double now_bytes;
    double daily_bytes[LIFE_WINDOWS];
    double history_seconds, history_bytes;
    bool has_uncounted;      /* a device that the kernel does not count */
    struct life life;        /* of the device that wears out first */
    const char *life_device; /* its name; "" if there is none */
    bool has_unknown_life;   /* another may wear out before it */
};

/* Returns a figure of the server; NAN: it has none. @status may be NULL. */
double status_figure(const struct embtier_status *status, const char *name, const char *label);

/* @before: NULL: since the server's start. False: out of memory. */
MUST_CHECK bool device_reports_make(const struct embtier_status *before,
                                    const struct embtier_status *now,
                                    struct device_reports *ret_reports);
void device_reports_clear(struct device_reports *reports);

/* Asks all drives for their health, in ten seconds together. @is_here: the server is on this
 * machine. */
void device_reports_ask_health(struct device_reports *reports, bool is_here);

/* Fills the lives in. @rated_bytes: of all drives together; NAN: not known. False: out of
 * memory. */
MUST_CHECK bool device_reports_add_lives(struct device_reports *reports, double rated_bytes);

/* Drive writes a day, at the rate of the longest window. */
double device_report_dwpd(const struct device_report *report);

/* False: out of memory. */
MUST_CHECK bool device_reports_print(const struct device_reports *reports);
/* NULL: out of memory. */
struct json_t *device_reports_to_json(const struct device_reports *reports);
struct json_t *life_to_json(const struct life *life);
/* {now, hour, day, week} */
struct json_t *daily_to_json(double now_bytes, const double daily_bytes[LIFE_WINDOWS]);

#endif
