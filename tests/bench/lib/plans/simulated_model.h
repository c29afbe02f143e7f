/* SPDX-License-Identifier: Apache-2.0 */
/* simulated_model.h: models like those of Meta, and the machine that trains them, for placements
 * whose speed is computed and not measured.
 *
 * Tables are drawn as the papers describe them (synthetic_shapes()): rows lognormal, pooling
 * factors exponential; dims of 64, 128, 192 or 256, float32, row-wise Adagrad. Their rows are used
 * as often within a batch as in the traces that Meta described (placement/synthetic/locality.h). No
 * trace is drawn: lookups of a row come at random with its rate, so all figures of the profile are
 * computed from the rates. It is that of a run that began long ago, in which no row is new.
 *
 * The published histograms say nothing of rows that a batch does not use. Here all rows of a table
 * are looked up: the lookups of rows that a published batch uses less than once on average are
 * spread evenly over all rows of the table that it does not use more often. Meta's tables have
 * these rows because something looked them up, but how often is an assumption.
 *
 * docs/performance/placement.md has the numbers of the machine and their sources. */
#ifndef EMBTIER_TESTS_BENCH_LIB_PLANS_SIMULATED_MODEL_H
#define EMBTIER_TESTS_BENCH_LIB_PLANS_SIMULATED_MODEL_H

#include "placement/machine/machine.h"
#include "placement/profile/measured_profile.h"
#include "placement/synthetic/locality.h"

struct simulated_model {
    struct measured_profile *profile;
    enum embtier_optimizer *optimizers; /* one for each table */
    double samples_per_batch;           /* of the published batch */
    struct machine machine;
};

/* Draws a model of @table_count tables. The machine has 8 GPUs, DRAM and a drive. With fewer tables
 * than were published it has as much less of each memory; bandwidths stay. The same numbers give
 * the same model. Ends the program without memory. */
struct simulated_model *simulated_model_new(const struct locality_published *published,
                                            uint64_t seed, uint32_t table_count);
void simulated_model_free(struct simulated_model *model);
DEFINE_CLEANUP(struct simulated_model, simulated_model_free)

#endif
