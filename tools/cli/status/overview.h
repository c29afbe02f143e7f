/* SPDX-License-Identifier: Apache-2.0 */
/* overview.h: the few figures of a server that tell how it is, from all that it tells of itself. */
#ifndef EMBTIER_TOOLS_CLI_STATUS_OVERVIEW_H
#define EMBTIER_TOOLS_CLI_STATUS_OVERVIEW_H

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "base/spec/tier_spec.h"
#include "client/include/embtier.h"
#include "daemon/health/health.h"
#include "tools/cli/status/reading.h"

/* At least as many as there are rules. */
#define OVERVIEW_WARNINGS_MAX 32

#define OVERVIEW_TRANSPORTS_MAX 8

/* Figures of the server are NAN if it does not have them, which an older one may not. Texts are
 * borrowed from the reading. */
struct overview_tier {
    const char *name;
    double capacity_bytes;
    double used_bytes;
    double rows;
    double dirty_rows;
    double lookup_rows; /* that it served */
};

struct overview_warning {
    const struct health_rule *rule;
    struct health_why why;
};

struct overview {
    const char *version;
    double uptime_s;
    enum health health;
    struct overview_warning warnings[OVERVIEW_WARNINGS_MAX]; /* the worst first */
    size_t warning_count;
    struct {
        double sessions;
        double arena_bytes;
        const struct embtier_metric *by_transport[OVERVIEW_TRANSPORTS_MAX];
        size_t transport_count; /* 0: not known */
    } clients;
    double requests; /* these and all of lookups: since the server's start */
    double set_rows;
    double pushed_rows;
    struct {
        double rows; /* of these, tiers served their lookup_rows */
        double array_rows;
        double write_queue_rows;
        double ssd_rows;
        double initial_rows; /* never written */
    } lookups;
    struct overview_tier tiers[TIERS_MAX];
    size_t tier_count;
    struct {
        double capacity_bytes; /* of arrays */
        double used_bytes;
        double rows;
        double dirty_rows;
    } arrays;
    struct {
        double stored_bytes;
        double written_bytes; /* since the server's start */
        double room_bytes;    /* free for rows */
        double pending_bytes; /* that wait for compaction */
        double compacting_shards;
        double moves; /* 1: buckets move to other shards */
        double moved_buckets;
        double buckets; /* that move in all */
    } ssd;
    struct {
        double id; /* of the newest; NAN: there is none */
        double age_s;
        double interval_s;
    } checkpoint;
    const struct embtier_plan_info *plan; /* NULL: not known */
    const struct embtier_table_info **tables;
    size_t table_count;
};

enum overview_order {
    OVERVIEW_BY_TRAFFIC, /* rows looked up and updated */
    OVERVIEW_BY_SIZE,
};

/* Borrows @reading. NO_MEMORY. */
MUST_CHECK enum embtier_err overview_make(const struct reading *reading, enum overview_order order,
                                          struct overview *ret_overview);
void overview_clear(struct overview *overview);

/* Returns the bytes that all rows of the table have; 0 if it is unbounded. */
uint64_t overview_table_bytes(const struct embtier_table_info *table);
/* Returns the share of @rows among all rows that were looked up. NAN: there were none. */
double overview_share(const struct overview *overview, double rows);
/* Returns the share of buckets that have moved to other shards. NAN: none are to move. */
double overview_resharded(const struct overview *overview);

#endif
