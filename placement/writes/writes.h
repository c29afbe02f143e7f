/* SPDX-License-Identifier: Apache-2.0 */
/* writes.h: rows that a cache writes back, as they leave it or as checkpoints come
 * (docs/internals/placement/forecast.md).
 *
 * A row that was updated is dirty until it is written. Time counts lookups of all tables. Let A be
 * the age at which the cache drops a row, C the time between checkpoints, and every lookup an
 * update. Then a dirty period ends with this lookup if the next one of the row comes after the row
 * has left (its reuse time is above A), or after a checkpoint. With a = min(A, C), this is so for
 *
 *   P(time > a) (1 - a / C) + E[min(time, a)] / C
 *
 * of the lookups: the first part is evictions, the second checkpoints. E[min(time, a)] is the
 * number of rows that are younger than a, for each lookup in a unit of time (Hu et al., USENIX ATC
 * 2016, equation 2). If only a share p of the lookups updates, at random, then n lookups between
 * two writes leave the row clean with the chance (1 - p)^n. This depends on how hot a row is, so
 * the access CDF says how hot rows are, with times that are spread exponentially.
 *
 * Thread: any. */
#ifndef EMBTIER_PLACEMENT_WRITES_WRITES_H
#define EMBTIER_PLACEMENT_WRITES_WRITES_H

#include "placement/profile/measured_profile.h"

struct writes_opts {
    const struct measured_profile *profile; /* steady */
    const double *row_bytes;   /* of each table's rows in the cache; 0: the table lies elsewhere */
    double cache_bytes;        /* room for rows in all tiers */
    double checkpoint_lookups; /* lookups of all tables between checkpoints; INFINITY: there are
                                  none */
};

/* One table's, for each of its lookups. */
struct table_writes {
    double missed;
    double evicted; /* rows written as they leave the cache */
    double saved;   /* rows written by checkpoints */
};

/* Fills in an element for each table of the profile. INVALID: a number is negative or NaN. */
MUST_CHECK enum embtier_err writes_predict(const struct writes_opts *opts,
                                           struct table_writes *ret_tables, struct err_msg *msg);

#endif
