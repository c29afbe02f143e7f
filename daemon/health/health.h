/* SPDX-License-Identifier: Apache-2.0 */
/* health.h: the rules that tell from a server's metrics whether it is well, and what to do if not.
 *
 * The rules are one table (health_rules.c). Each reads metrics (daemon/control/metrics.h) by their
 * names. The server has them at hand, and a client has them from its status. Thread: any. */
#ifndef EMBTIER_DAEMON_HEALTH_HEALTH_H
#define EMBTIER_DAEMON_HEALTH_HEALTH_H

#include <stdbool.h>
#include <stddef.h>

/* X(name, word, description): a later one is worse. */
#define HEALTH_TABLE(X)                                                                            \
    X(OK, "ok", "no rule is broken")                                                               \
    X(WARNING, "warning", "the server serves, but look soon")                                      \
    X(BAD, "bad", "updates are refused, or rows cannot be read: act now")

enum health {
#define X(name, word, text) HEALTH_##name,
    HEALTH_TABLE(X)
#undef X
        HEALTH_COUNT
};

const char *health_word(enum health health);

/* A server's metrics. */
struct health_figures {
    /* Returns the value of a metric. @label_value: "" if it has no label; NULL: the sum of all of
     * its values. NAN: the server does not have it. */
    double (*read)(const void *context, const char *name, const char *label_value);
    const void *context;
    double uptime_s;
};

/* Why a rule is broken, with the figures: one line. */
struct health_why {
    char text[160];
};

struct health_rule {
    const char *name;      /* "disk_full" */
    enum health health;    /* of a server that breaks the rule */
    const char *condition; /* under which it is broken, in terms of metrics */
    const char *advice;    /* one line */
    bool blocks_updates;   /* such a server is not ready */
    bool (*is_broken)(const struct health_figures *figures, struct health_why *ret_why);
};

/* The worst ones first. */
extern const struct health_rule health_rules[];
extern const size_t health_rule_count;

/* Calls @found for each broken rule; @why is borrowed. Returns the worst health of them. */
typedef void health_found_fn(void *context, const struct health_rule *rule, const char *why);
enum health health_check(const struct health_figures *figures, health_found_fn *found,
                         void *context);

#endif
