/* SPDX-License-Identifier: Apache-2.0 */
/* plan_model.h: models of whole tables to place, as MTrainS describes them: rows are lognormal and
 * pooling factors exponential. */
#ifndef EMBTIER_TESTS_BENCH_LIB_PLANS_PLAN_MODEL_H
#define EMBTIER_TESTS_BENCH_LIB_PLANS_PLAN_MODEL_H

#include "placement/model/model.h"

#define PLAN_MODEL_TABLES 856
#define PLAN_MODEL_GPUS   8

/* Draws a model with the memories HBM, DRAM and SSD. The same numbers give the same model. */
struct model plan_model_draw(uint32_t seed, uint32_t tables, uint32_t gpus);
/* Frees the tables. */
void plan_model_clear(struct model *model);

#endif
