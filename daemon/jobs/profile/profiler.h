/* SPDX-License-Identifier: Apache-2.0 */
/* profiler.h: makes a profile of what the lanes have sampled (sampler.h).
 *
 * It takes the lanes' records in the order of their time, and keeps within a budget of samples a
 * second: a table with more than its part gets a lower threshold, and fewer random lookups. A first
 * amount is free, so that a short or a slow run is measured exactly. Thread: one at a time. */
#ifndef EMBTIER_DAEMON_JOBS_PROFILE_PROFILER_H
#define EMBTIER_DAEMON_JOBS_PROFILE_PROFILER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct measured_profile;
struct profiler;
struct sampler;

/* Samples of all tables that are taken however fast they come. */
#define PROFILER_SAMPLES_FREE UINT64_C(250000)
/* After that, for each core. A sample takes about 0.3 us, most of it waiting for memory. */
#define PROFILER_CORE_SAMPLES_PER_SECOND 20000

/* Returns the most that is of use for so many tables, and the least that suffices. */
uint64_t profiler_bytes_most(uint32_t table_count, uint32_t lane_count);
uint64_t profiler_bytes_least(uint32_t table_count, uint32_t lane_count);

/* @sampler is borrowed. @memory_bytes includes it. @core_count: cores of the server. TOO_LARGE: the
 * memory is too little for its tables. */
MUST_CHECK enum embtier_err profiler_new(struct sampler *sampler, uint64_t memory_bytes,
                                         uint32_t core_count, struct profiler **ret_profiler,
                                         struct err_msg *msg);
void profiler_free(struct profiler *profiler);
DEFINE_CLEANUP(struct profiler, profiler_free)

/* Takes records, at most @most. Returns how many it took. */
uint64_t profiler_drain(struct profiler *profiler, uint64_t most);
/* Adapts the sampling to the samples of the @elapsed_ns that have passed since the last call. */
void profiler_pace(struct profiler *profiler, uint64_t elapsed_ns);
/* NO_MEMORY: the profile is of no use any more. */
enum embtier_err profiler_err(const struct profiler *profiler);

/* Makes the results so far, of the tables that were looked up. A dropped table whose name another
 * one has is left out. NOT_FOUND: there were no lookups. */
MUST_CHECK enum embtier_err profiler_measure(struct profiler *profiler,
                                             struct measured_profile **ret_measured,
                                             struct err_msg *msg);

struct profiler_stats {
    uint64_t lookups;
    uint64_t samples;
    uint64_t lost_samples;
    uint32_t tables;
    bool is_exact; /* all rows of all tables are sampled, and no sample was lost */
};
/* Any thread. */
void profiler_stats(const struct sampler *sampler, struct profiler_stats *ret_stats);

#endif
