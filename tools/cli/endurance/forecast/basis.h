/* SPDX-License-Identifier: Apache-2.0 */
/* basis.h: what the server counted between two samples, and the profile beside it. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_FORECAST_BASIS_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_FORECAST_BASIS_H

#include <stdbool.h>
#include <stddef.h>

#include "placement/profile/measured_profile.h"
#include "tools/cli/endurance/forecast/changes.h"
#include "tools/cli/endurance/sample.h"

#define FORECAST_CAUSES_MAX 16
/* The cause that is not the server's: bytes of other programs on the same devices. */
#define FORECAST_OTHERS "others"

struct forecast_cause {
    const char *name; /* borrowed from the status, or constant */
    double bytes;
};

/* A live table of the server, between the samples. */
struct basis_table {
    const struct embtier_table_info *info; /* borrowed from the newer sample */
    uint32_t profiled;                     /* its number in the profile; UINT32_MAX: none */
    double lookups, missed;
    double updated_bytes, flush_bytes, compaction_bytes;
};

struct basis {
    const struct measured_profile *profile; /* borrowed; steady */
    double *row_bytes; /* of each table of the profile in the cache; 0: it has no forecast */
    struct basis_table *tables;
    size_t table_count;
    size_t modelled_count; /* tables that have a forecast */
    size_t missing_count;  /* tables of the profile that the server lacks */
    double seconds;
    bool has_rates; /* the time is long enough to say something about a day */
    struct forecast_cause causes[FORECAST_CAUSES_MAX]; /* flush, compaction and blob at least */
    size_t cause_count;
    double updated_bytes, stored_row_bytes;
    struct change_tiers tiers;
    double lanes, map_bytes;
    double cached_row_bytes; /* mean of the rows in the cache */
    double room_factor;      /* measured room of a full cache over the computed one */
    double checkpoint_lookups;
    enum config_layout layout;
    struct drive drive;       /* of all data directories together */
    double measured_hit_rate; /* NAN: too few lookups */
};

/* @layout: rocksdb.layout of the server. NO_TABLE, MISMATCH, INVALID, AGAIN: the message says
 * what to do. @before may be empty. */
MUST_CHECK enum embtier_err basis_make(const struct measured_profile *profile,
                                       const struct endurance_sample *before,
                                       const struct endurance_sample *now,
                                       enum config_layout layout, struct basis *ret_basis,
                                       struct err_msg *msg);
void basis_clear(struct basis *basis);

/* Bytes of rows that a cache with these tiers has room for. */
double basis_room_bytes(const struct basis *basis, const struct change_tiers *tiers);

#endif
