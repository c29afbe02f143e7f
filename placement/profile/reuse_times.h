/* SPDX-License-Identifier: Apache-2.0 */
/* reuse_times.h: how long rows of a table go without a lookup, and what an LRU cache makes of it.
 *
 * Time counts lookups of all tables together, from 1 on. An LRU cache drops a row that has gone
 * without a lookup for as long as it takes the other lookups to push it out: the eviction age. A
 * lookup hits if its row's last one is at most that old. All tables of a shared cache have the same
 * eviction age. It is the time in which lookups touch as many different bytes as the cache holds:
 * Hu et al., "Kinetic Modeling of Data Eviction in Cache" (AET), USENIX ATC 2016, section 3.
 *
 * AET takes the trace as endless. The mean bytes that a window of the trace touches is exact for
 * one that begins and ends: Xiang et al., "HOTL: A Higher Order Theory of Locality", ASPLOS 2013,
 * section 2.1. It also adds up over tables, so a table can be taken out of the sum, or counted with
 * other bytes per row, without the trace. docs/internals/placement/profile.md says more.
 *
 * Pure values. A sum over tables (reuse_times_add()) has the same type; its rows are bytes. */
#ifndef EMBTIER_PLACEMENT_PROFILE_REUSE_TIMES_H
#define EMBTIER_PLACEMENT_PROFILE_REUSE_TIMES_H

#include "placement/profile/time_histogram.h"

struct reuse_times {
    struct time_histogram reuse; /* between two lookups of a row, a weight of 1 each */
    struct time_histogram first; /* of each row's first lookup */
    struct time_histogram last;  /* from each row's last lookup to the end, with both */
    double rows;                 /* different ones that were looked up */
    double lookups;
    double end_time; /* of the trace: lookups of all tables */
};

/* Adds @more, each row of which has @row_bytes. Both end at the same time. */
void reuse_times_add(struct reuse_times *sum, const struct reuse_times *more, double row_bytes);
/* Returns the mean number of rows that a window of @age lookups touches. */
double reuse_times_touched(const struct reuse_times *times, double age);
/* Returns the greatest age at which @rows hold all that a window touches; INFINITY if they hold all
 * rows. */
double reuse_times_age(const struct reuse_times *times, double rows);
/* Returns the share of lookups that hit at this eviction age, 0 to 1. A first lookup never hits. 0
 * without lookups. */
double reuse_times_hit_rate(const struct reuse_times *times, double age);

#endif
