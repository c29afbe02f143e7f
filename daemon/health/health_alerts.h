/* SPDX-License-Identifier: Apache-2.0 */
/* health_alerts.h: the rules of health as Prometheus checks them, and alerts of their own.
 * docs/monitoring makes the file of rules that is installed. Thread: any. */
#ifndef EMBTIER_DAEMON_HEALTH_HEALTH_ALERTS_H
#define EMBTIER_DAEMON_HEALTH_HEALTH_ALERTS_H

#include <stddef.h>

struct health_alert {
    const char *rule;  /* its name in health_rules; NULL: none, and it has texts of its own */
    const char *query; /* in PromQL: it has a value while the rule is broken */
    const char *lasts; /* how long before it is an alert, "5m" */
    const char *name;  /* the rest only without a rule */
    const char *condition;
    const char *advice;
};

extern const struct health_alert health_alerts[];
extern const size_t health_alert_count;

#endif
