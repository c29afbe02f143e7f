/* SPDX-License-Identifier: Apache-2.0 */
/* profile_report.h: a profile as a table for people, as JSON, and as a picture. */
#ifndef EMBTIER_TOOLS_CLI_PLACEMENT_PROFILE_REPORT_H
#define EMBTIER_TOOLS_CLI_PLACEMENT_PROFILE_REPORT_H

#include "placement/profile/measured_profile.h"

struct json_t;

#define REPORT_WORKING_SETS 3
/* Shares of the lookups, in percent, whose hottest rows are a working set. */
extern const int report_percents[REPORT_WORKING_SETS];

struct report_table {
    const struct measured_table *measured;    /* borrowed */
    double working_sets[REPORT_WORKING_SETS]; /* rows */
    struct table_prediction prediction;
};

struct profile_report {
    const char *path; /* borrowed, as the next one */
    const struct measured_profile *measured;
    struct report_table *tables;       /* as many as were measured */
    struct cache_tiers tiers;          /* a count of 0: no cache */
    double hit_rates[CACHE_TIERS_MAX]; /* of all lookups */
};

/* @row_bytes: of each table; used if there are tiers. */
MUST_CHECK enum embtier_err profile_report_make(const struct measured_profile *measured,
                                                const char *path, const double *row_bytes,
                                                const struct cache_tiers *tiers,
                                                struct profile_report *ret_report,
                                                struct err_msg *msg);
void profile_report_clear(struct profile_report *report);
/* Prints a table. False: out of memory. */
MUST_CHECK bool profile_report_print(const struct profile_report *report);
/* Returns NULL when out of memory. */
struct json_t *profile_report_json(const struct profile_report *report);
/* Draws the CDF of each table into an SVG file. */
MUST_CHECK enum embtier_err profile_report_plot(const struct profile_report *report,
                                                const char *path, struct err_msg *msg);

#endif
