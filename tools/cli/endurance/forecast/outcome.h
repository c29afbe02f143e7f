/* SPDX-License-Identifier: Apache-2.0 */
/* outcome.h: what one alternative would have written in the time that was counted, and how long the
 * drives last with it. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_FORECAST_OUTCOME_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_FORECAST_OUTCOME_H

#include "tools/cli/endurance/forecast/basis.h"
#include "tools/cli/endurance/forecast/layouts.h"

#define TABLE_DAYS_DEFAULT 30.0

struct table_writes;

struct outcome_opts {
    const struct basis *basis;
    const struct table_writes *now; /* predicted for the server as it is, by table of the profile */
    double now_hit_rate;            /* predicted; NAN: no lookups */
    struct layouts layouts;
    double table_days; /* after which a table is made anew */
    /* First values that deferred initialization saves, for each new set of tables. */
    double initial_bytes;
};

/* NAN: not known. */
struct outcome {
    const struct change *change;
    struct change_tiers tiers;
    enum config_layout layout;
    struct drive drive;
    double hit_rate; /* predicted */
    struct forecast_cause causes[FORECAST_CAUSES_MAX];
    size_t cause_count;
    double bytes;        /* of all causes, others included */
    double server_bytes; /* of the server's own causes */
    double stored_row_bytes;
    double write_back;    /* bytes of rows handed to RocksDB, for each byte updated */
    double first_writes;  /* bytes written for each of these */
    double rewrites;      /* bytes that compactions write for each of these */
    double amplification; /* bytes of the server's own causes, for each byte updated */
    double daily_bytes;   /* of all causes */
    double drive_writes, rated_drive_writes; /* a day */
    double years;                            /* that a new drive lasts */
};

/* Predicts the server as it is, for outcome_make(). @ret_now: an element for each table of the
 * profile. */
MUST_CHECK enum embtier_err outcome_begin(struct outcome_opts *opts, struct table_writes *ret_now,
                                          struct err_msg *msg);
MUST_CHECK enum embtier_err outcome_make(const struct outcome_opts *opts,
                                         const struct change *change, struct outcome *ret_outcome,
                                         struct err_msg *msg);

#endif
