/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of init_rows, compiled once per instruction set (isa.h). They are plain C that
 * the compiler vectorises. init_values.h defines the numbers, which are the same in any case. */
#include "kernels/cpu/init/init_rows_loops.h"

#include "kernels/cpu/cast/dtype.h"
#include "kernels/cpu/init/init_values.h"
#include "kernels/cpu/init/philox.h"

static inline __attribute__((always_inline)) struct philox_block
block_of(const struct init_counters *counters, uint32_t i, const struct init_params *params)
{
    return philox4x32_10((struct philox_block){ { counters->row_low[i], counters->row_high[i],
                                                  counters->block[i], INIT_VERSION_1 } },
                         params->key[0], params->key[1]);
}

static inline __attribute__((always_inline)) float normal_value(uint32_t word,
                                                                const struct init_params *params)
{
    return init_normal_in_v1(word, params->a, params->b, params->lowest, params->highest);
}

static void fill_uniform(const struct init_counters *restrict counters, uint32_t group_count,
                         const struct init_params *restrict params, float *restrict ret_values)
{
    const struct init_params p = *params;

    for (uint32_t i = 0; i < group_count * INIT_GROUP; i++) {
        const struct philox_block random = block_of(counters, i, &p);

        ret_values[4 * i + 0] = init_uniform_v1(random.word[0], p.a, p.b, p.highest);
        ret_values[4 * i + 1] = init_uniform_v1(random.word[1], p.a, p.b, p.highest);
        ret_values[4 * i + 2] = init_uniform_v1(random.word[2], p.a, p.b, p.highest);
        ret_values[4 * i + 3] = init_uniform_v1(random.word[3], p.a, p.b, p.highest);
    }
}

static void fill_normal(const struct init_counters *restrict counters, uint32_t group_count,
                        const struct init_params *restrict params, float *restrict ret_values)
{
    const struct init_params p = *params;

    for (uint32_t i = 0; i < group_count * INIT_GROUP; i++) {
        const struct philox_block random = block_of(counters, i, &p);

        ret_values[4 * i + 0] = normal_value(random.word[0], &p);
        ret_values[4 * i + 1] = normal_value(random.word[1], &p);
        ret_values[4 * i + 2] = normal_value(random.word[2], &p);
        ret_values[4 * i + 3] = normal_value(random.word[3], &p);
    }
}

static void fill_to_f16(const float *restrict values, uint32_t count, uint16_t *restrict ret_halves)
{
    for (uint32_t i = 0; i < count; i++)
        ret_halves[i] = f32_to_f16(values[i]);
}

static void fill_to_bf16(const float *restrict values, uint32_t count,
                         uint16_t *restrict ret_halves)
{
    for (uint32_t i = 0; i < count; i++)
        ret_halves[i] = f32_to_bf16(values[i]);
}

const struct init_rows_loops KERNELS_ISA_SYMBOL(init_rows_loops) = {
    .uniform = fill_uniform,
    .normal = fill_normal,
    .to_f16 = fill_to_f16,
    .to_bf16 = fill_to_bf16,
};
