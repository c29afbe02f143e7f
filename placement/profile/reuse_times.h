/* SPDX-License-Identifier: Apache-2.0 */
/* reuse_times.h: how long rows of a table go without a lookup, and what an LRU cache makes of it.
 *
 * Time counts lookups of all tables together, from 1 on. An LRU cache drops a row that has gone
 * without a lookup for as long as it takes the other lookups to push it out: the eviction age. A
 * lookup hits if its row's last one is at most that old. All tables of a shared cache have the same
 * eviction age. It is the time in which lookups touch as many different bytes as the cache holds:
 * Hu et al., "Kinetic Modeling of Data Eviction in Cache" (AET), USENIX ATC 2016, section 3.
 *
 * AET takes the trace as endless and as always alike. Here it is cut into segments, each with its
 * own reuse times, and the age is found at several moments of each. So a scan shortens the age
 * while it lasts, and a cache that starts empty drops nothing until it is full. Bytes add up over
 * tables, so a table can be left out of the sum, or counted with other bytes per row, without the
 * trace. docs/internals/placement/profile.md says more.
 *
 * Steady times (steady.h) are of lookups that go on and on. Before the trace there were lookups
 * like those of the whole trace, and the cache has long been full.
 *
 * A sum over tables (reuse_times_add()) has the same type; its rows are bytes. */
#ifndef EMBTIER_PLACEMENT_PROFILE_REUSE_TIMES_H
#define EMBTIER_PLACEMENT_PROFILE_REUSE_TIMES_H

#include <stdbool.h>

#include "placement/profile/time_histogram.h"

#define REUSE_SEGMENTS_MAX 16
#define REUSE_MOMENTS      4 /* of each segment, at which the age is found */
#define REUSE_STEADY_AGE   0x1p20

struct reuse_segment {
    double first;            /* lookups that are the first of their row */
    struct time_curve reuse; /* the others, by the time since the last lookup of their row */
};

struct reuse_times {
    bool is_steady;
    double lookups;
    double end_time;       /* lookups of all tables */
    double segment_length; /* in time; the last segment may be shorter */
    uint32_t segment_count;
    struct reuse_segment segments[REUSE_SEGMENTS_MAX];
};

/* Eviction ages over the trace. INFINITY: nothing has been dropped yet. Steady ages are finite, at
 * most REUSE_STEADY_AGE times the trace, which is longer than any time that matters. */
struct reuse_ages {
    double ages[REUSE_SEGMENTS_MAX * REUSE_MOMENTS];
};

/* Adds @more, each row of which has @row_bytes. Both have the same segments. */
void reuse_times_add(struct reuse_times *sum, const struct reuse_times *more, double row_bytes);
/* Returns the number of different rows that the last @age lookups up to time @end touch. */
double reuse_times_touched(const struct reuse_times *times, double end, double age);
/* Finds the ages at which a cache of so many rows drops them. */
void reuse_times_ages(const struct reuse_times *times, double rows, struct reuse_ages *ret_ages);
/* Returns the share of lookups that hit at these ages, 0 to 1. A first lookup never hits. 0 without
 * lookups. */
double reuse_times_hit_rate(const struct reuse_times *times, const struct reuse_ages *ages);
/* Returns the mean number of rows that are younger than these ages, over the whole trace. */
double reuse_times_cached(const struct reuse_times *times, const struct reuse_ages *ages);

#endif
