/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts rows into counters (four columns each) and lays those of many rows side by side. So the
 * vector units are as full for a table of 8 columns as for one of 8192. The inner loops of the best
 * instruction set turn a chunk of counters into f32 values. These are copied, or rounded, to their
 * rows. */
#include "kernels/cpu/init/init_rows.h"

#include <assert.h>
#include <string.h>

#include "kernels/cpu/init/init_rows_loops.h"

static const struct init_rows_loops *const loops_by_isa[] = {
#define X(isa) [KERNELS_ISA_##isa] = &init_rows_loops_##isa,
    KERNELS_ISA_TABLE(X)
#undef X
};

enum embtier_err init_rows_check_version(const struct table_spec *spec, struct err_msg *msg)
{
    if (spec->init_version >= 1 && spec->init_version <= INIT_ROWS_VERSION)
        return EMBTIER_OK;
    return err_set(
        msg, EMBTIER_VERSION,
        "table '%s' has initial values of version %u, this server knows 1 to %u: start a "
        "newer embtierd",
        spec->name, spec->init_version, INIT_ROWS_VERSION);
}

static void store(const struct init_rows_loops *loops, enum embtier_dtype dtype,
                  const float *values, uint32_t count, void *row, uint32_t first)
{
    switch (dtype) {
    case EMBTIER_DTYPE_F16:
        loops->to_f16(values, count, (uint16_t *)row + first);
        return;
    case EMBTIER_DTYPE_BF16:
        loops->to_bf16(values, count, (uint16_t *)row + first);
        return;
    case EMBTIER_DTYPE_F32:
        /* Rows of f32 after rows of f16 may lie at an odd multiple of 2. */
        memcpy((char *)row + (size_t)first * sizeof(float), values, count * sizeof(float));
        return;
    }
}

static void fill_constant(const struct init_rows_loops *loops, const struct table_spec *spec,
                          uint32_t count, void *const *ret_rows)
{
    const struct init_params params = init_params_of(spec);
    const float value = spec->init == EMBTIER_INIT_CONSTANT ? params.a : 0.0f;
    float values[INIT_COUNTERS];

    for (uint32_t i = 0; i < INIT_COUNTERS; i++)
        values[i] = value;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t c = 0; c < spec->dim; c += INIT_COUNTERS)
            store(loops, spec->dtype, values, MIN(spec->dim - c, (uint32_t)INIT_COUNTERS),
                  ret_rows[i], c);
}

/* Position of the walk over the blocks of all rows. */
struct position {
    uint32_t row;
    uint32_t block;
};

/* Lays out the next counters from @at on, and moves @at past them. Returns their number. */
static uint32_t next_counters(struct position *at, uint32_t block_count, const uint64_t *row_ids,
                              uint32_t row_count, struct init_counters *counters)
{
    uint32_t used = 0;

    while (used < INIT_COUNTERS && at->row < row_count) {
        const uint32_t n = MIN(block_count - at->block, INIT_COUNTERS - used);
        const uint64_t id = row_ids[at->row];

        for (uint32_t i = 0; i < n; i++) {
            counters->row_low[used + i] = (uint32_t)id;
            counters->row_high[used + i] = (uint32_t)(id >> 32);
            counters->block[used + i] = at->block + i;
        }
        used += n;
        at->block += n;
        if (at->block == block_count)
            *at = (struct position){ .row = at->row + 1 };
    }
    return used;
}

static void fill_random(const struct init_rows_loops *loops, const struct table_spec *spec,
                        const uint64_t *row_ids, uint32_t count, void *const *ret_rows)
{
    const struct init_params params = init_params_of(spec);
    const uint32_t block_count = (spec->dim + INIT_BLOCK_DIMS - 1) / INIT_BLOCK_DIMS;
    /* Zeroed once, because a last group may be partly unused but is computed as a whole. */
    struct init_counters counters = { 0 };
    float values[INIT_COUNTERS * INIT_BLOCK_DIMS] __attribute__((aligned(CACHE_LINE)));
    struct position next = { 0 };

    while (next.row < count) {
        struct position at = next;
        const uint32_t used = next_counters(&next, block_count, row_ids, count, &counters);
        const uint32_t groups = (used + INIT_GROUP - 1) / INIT_GROUP;

        if (spec->init == EMBTIER_INIT_NORMAL)
            loops->normal(&counters, groups, &params, values);
        else
            loops->uniform(&counters, groups, &params, values);
        for (uint32_t done = 0; done < used;) {
            const uint32_t n = MIN(block_count - at.block, used - done);
            const uint32_t first = at.block * INIT_BLOCK_DIMS;

            store(loops, spec->dtype, values + (size_t)done * INIT_BLOCK_DIMS,
                  MIN(n * INIT_BLOCK_DIMS, spec->dim - first), ret_rows[at.row], first);
            done += n;
            at = (struct position){ .row = at.row + 1 };
        }
    }
}

void init_rows_with(enum kernels_isa isa, const struct table_spec *spec, const uint64_t *row_ids,
                    uint32_t count, void *const *ret_rows)
{
    const uint32_t weight_bytes = table_spec_weight_bytes(spec);
    const uint32_t state_bytes = table_spec_state_bytes(spec);

    assert(spec->init_version <= INIT_ROWS_VERSION);
    switch (spec->init) {
    case EMBTIER_INIT_UNIFORM:
    case EMBTIER_INIT_NORMAL:
        fill_random(loops_by_isa[isa], spec, row_ids, count, ret_rows);
        break;
    case EMBTIER_INIT_ZEROS:
    case EMBTIER_INIT_CONSTANT:
        fill_constant(loops_by_isa[isa], spec, count, ret_rows);
        break;
    }
    if (state_bytes > 0)
        for (uint32_t i = 0; i < count; i++)
            memset((char *)ret_rows[i] + weight_bytes, 0, state_bytes);
}

void init_rows(const struct table_spec *spec, const uint64_t *row_ids, uint32_t count,
               void *const *ret_rows)
{
    init_rows_with(kernels_isa_best(), spec, row_ids, count, ret_rows);
}
