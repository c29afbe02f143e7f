/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/workload.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/spec/array_shape.h"
#include "base/text/text_escape.h"
#include "placement/model/model.h"

/* The model of places holds so much of one table. */
#define TABLE_BYTES_MAX (MODEL_BYTES_MAX >> 2)

void workload_free(struct workload *workload)
{
    if (!workload)
        return;
    free(workload->tables);
    free(workload);
}

static enum embtier_err fill_bytes(struct work_table *table, double seen_rows, struct err_msg *msg)
{
    const bool bounded = table->rows != EMBTIER_UNBOUNDED;
    const double rows = bounded ? (double)table->rows : seen_rows;

    if (rows * table->row_bytes > (double)TABLE_BYTES_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': %.4g rows of %" PRIu32 " bytes; allowed: at most %" PRIu64
                       " bytes in all",
                       TEXT_SHOWN(table->name), rows, table->row_bytes, TABLE_BYTES_MAX);
    table->stored_bytes = MAX((uint64_t)rows, UINT64_C(1)) * table->row_bytes;
    table->array_bytes = bounded ? array_shape_of(table->rows, table->row_bytes).bytes : 0;
    return EMBTIER_OK;
}

static enum embtier_err fill_table(const struct measured_profile *profile, uint32_t i,
                                   enum embtier_optimizer optimizer, struct work_table *table,
                                   struct err_msg *msg)
{
    const struct measured_table *const measured = &profile->tables[i];
    const struct table_spec spec = { .dim = measured->table.dim,
                                     .dtype = measured->table.dtype,
                                     .optimizer = optimizer };
    const double batches = (double)MAX(profile->batches, UINT64_C(1));

    *table = (struct work_table){
        .name = measured->table.name,
        .rows = measured->table.rows,
        .dim = measured->table.dim,
        .dtype = measured->table.dtype,
        .optimizer = optimizer,
        .weight_bytes = table_spec_weight_bytes(&spec),
        .row_bytes = table_spec_weight_bytes(&spec) + table_spec_state_bytes(&spec),
        .lookups = (double)measured->summary.lookups / batches,
        .updated_rows =
            measured->summary.updated_batch_rows * (double)measured->summary.batches / batches,
    };
    return fill_bytes(table, measured->summary.rows, msg);
}

/* A sample has at most one bag in each table, and usually one in most. */
static double count_samples(const struct workload *workload)
{
    double bags = 0, lookups = 0;

    for (uint32_t i = 0; i < workload->table_count; i++) {
        const double pooling = workload->profile->tables[i].pooling_factor;

        lookups = MAX(lookups, workload->tables[i].lookups);
        if (pooling > 0)
            bags = MAX(bags, workload->tables[i].lookups / pooling);
    }
    return bags > 0 ? bags : lookups;
}

enum embtier_err workload_new(const struct measured_profile *profile,
                              const enum embtier_optimizer *optimizers, double samples_per_batch,
                              struct workload **ret_workload, struct err_msg *msg)
{
    _cleanup_(workload_freep) struct workload *workload = calloc(1, sizeof(*workload));

    if (workload)
        workload->tables = calloc(profile->table_count, sizeof(*workload->tables));
    if (!workload || !workload->tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    workload->profile = profile;
    workload->table_count = profile->table_count;
    for (uint32_t i = 0; i < profile->table_count; i++)
        TRY(fill_table(profile, i, optimizers[i], &workload->tables[i], msg));
    workload->samples_per_batch =
        samples_per_batch > 0 ? samples_per_batch : count_samples(workload);
    if (workload->samples_per_batch <= 0)
        return err_set(msg, EMBTIER_INVALID, "the profile has no lookups; allowed: some");
    *ret_workload = TAKE(workload);
    return EMBTIER_OK;
}
