/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/init/init_params.h"

#include <float.h>

#include "kernels/cpu/cast/dtype.h"

static float dtype_max(enum embtier_dtype dtype)
{
    switch (dtype) {
    case EMBTIER_DTYPE_F16:
        return 65504.0f;
    case EMBTIER_DTYPE_BF16:
        return 0x1.fep+127f;
    case EMBTIER_DTYPE_F32:
        break;
    }
    return FLT_MAX;
}

static double cut(double value, double lowest, double highest)
{
    return value < lowest ? lowest : value > highest ? highest : value;
}

/* Returns the number that @value rounds to in @dtype. */
static float round_to(enum embtier_dtype dtype, float value)
{
    switch (dtype) {
    case EMBTIER_DTYPE_F16:
        return f16_to_f32(f32_to_f16(value));
    case EMBTIER_DTYPE_BF16:
        return bf16_to_f32(f32_to_bf16(value));
    case EMBTIER_DTYPE_F32:
        break;
    }
    return value;
}

/* Returns the next number of @dtype below @value, which is a finite number of @dtype. */
static float step_down(enum embtier_dtype dtype, float value)
{
    const uint32_t unit = dtype == EMBTIER_DTYPE_BF16 ? 1u << 16 : 1;
    const uint32_t bits = f32_bits(value);

    if (dtype == EMBTIER_DTYPE_F16) {
        const uint16_t half = f32_to_f16(value);

        if ((half & 0x7fff) == 0)
            return -0x1p-24f;
        return f16_to_f32((uint16_t)(half & 0x8000 ? half + 1 : half - 1));
    }
    if ((bits & 0x7fffffff) == 0)
        return f32_from_bits(0x80000000 | unit);
    return f32_from_bits(bits & 0x80000000 ? bits + unit : bits - unit);
}

/* Returns the greatest number of @dtype below @high, which a uniform value may reach, even after
 * rounding. If the interval holds no such number, returns the number that @low rounds to. */
static float uniform_top(enum embtier_dtype dtype, float low, float high)
{
    float top = round_to(dtype, high);

    if (top >= high)
        top = step_down(dtype, top);
    return top > low ? top : low;
}

struct init_params init_params_of(const struct table_spec *spec)
{
    const float limit = dtype_max(spec->dtype);
    struct init_params params = {
        .key = { (uint32_t)spec->seed, (uint32_t)(spec->seed >> 32) },
        .a = (float)cut(spec->init_params[0], -limit, limit),
        .b = (float)cut(spec->init_params[1], -limit, limit),
        .lowest = -limit,
        .highest = limit,
    };

    if (spec->init == EMBTIER_INIT_UNIFORM) {
        const float high = params.b;

        params.highest = uniform_top(spec->dtype, params.a, high);
        params.b = high - params.a;
        if (params.b > FLT_MAX)
            params.b = FLT_MAX;
    }
    return params;
}
