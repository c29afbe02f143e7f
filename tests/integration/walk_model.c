/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/integration/walk_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "kernels/cpu/cast/dtype.h"
#include "kernels/cpu/init/init_rows.h"

#define STATE_BYTES_MAX (2 * sizeof(float) * EMBTIER_DIM_MAX)

uint64_t model_random(uint64_t *random)
{
    *random ^= *random >> 12;
    *random ^= *random << 25;
    *random ^= *random >> 27;
    return *random * UINT64_C(0x2545f4914f6cdd1d);
}

uint32_t model_pick(uint64_t *random, uint64_t below)
{
    return (uint32_t)((model_random(random) >> 32) * below >> 32);
}

/* From 1 to the longest row, with each number of binary digits equally often. The two ends come
 * often enough. */
static uint32_t random_dim(uint64_t *random)
{
    const uint32_t digits = model_pick(random, 16);

    if (digits == 14)
        return 1;
    if (digits == 15)
        return EMBTIER_DIM_MAX;
    return 1 + model_pick(random, UINT64_C(1) << MIN(digits, 13u));
}

static void random_init(uint64_t *random, struct table_spec *spec)
{
    static const double params[][2] = { [EMBTIER_INIT_ZEROS] = { 0, 0 },
                                        [EMBTIER_INIT_CONSTANT] = { 2.5, 0 },
                                        [EMBTIER_INIT_UNIFORM] = { -1, 1 },
                                        [EMBTIER_INIT_NORMAL] = { 0.5, 2 } };

    spec->init = (enum embtier_init)model_pick(random, ARRAY_LEN(params));
    memcpy(spec->init_params, params[spec->init], sizeof(spec->init_params));
    spec->seed = model_random(random);
}

/* Half of the optimizer's hyperparameters have their defaults, the others one of four values
 * from the lowest, often 0, to the highest allowed. */
static void random_hyperparameters(uint64_t *random, struct table_spec *spec)
{
#define X(name, field, lowest, highest, standard, text)                                            \
    spec->field = EMBTIER_DEFAULT;                                                                 \
    if (optimizer_has(spec->optimizer, EMBTIER_##name) && model_pick(random, 2) > 0)               \
        spec->field = (lowest) + ((highest) - (lowest)) * (model_pick(random, 4) / 3.0);
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    if (spec->eps <= 0)
        spec->eps = 0x1p-149; /* an optimizer that divides by it refuses 0 */
    if (!optimizer_has(spec->optimizer, EMBTIER_EPS))
        spec->eps = EMBTIER_DEFAULT;
    table_spec_fill_defaults(spec);
    spec->rounds_to_nearest = model_pick(random, 2) > 0;
    spec->allows_nonfinite = model_pick(random, 2) > 0;
}

/* An array of ARRAY_BYTES takes at most two slabs (ARRAY_MIB of test_random_walk.c). Each row
 * also takes a spot, and is rounded up. */
#define ARRAY_BYTES     (4 * MIB - 16 * KIB)
#define ARRAY_ROW_BYTES 24
/* Hot rows and their remap take as many slabs at most. */
#define HOT_BYTES (2 * MIB - 16 * KIB)

void model_random_home(uint64_t *random, struct table_spec *spec)
{
    const uint64_t row_bytes = table_spec_weight_bytes(spec) + table_spec_state_bytes(spec);

    spec->home = EMBTIER_HOME_CACHE;
    spec->home_tier[0] = '\0';
    spec->hot_rows = 0;
    if (spec->rows == EMBTIER_UNBOUNDED ||
        spec->rows * (row_bytes + ARRAY_ROW_BYTES) > ARRAY_BYTES || model_pick(random, 2) > 0)
        return;
    spec->home = EMBTIER_HOME_ARRAY;
    snprintf(spec->home_tier, sizeof(spec->home_tier), "%s",
             model_pick(random, 2) == 0 ? "dram" : "pmem");
}

uint64_t *model_random_move(uint64_t *random, struct model_table *table)
{
    struct table_spec *const spec = &table->spec;
    const uint64_t row_bytes = table_spec_weight_bytes(spec) + table_spec_state_bytes(spec);
    const uint64_t most = HOT_BYTES / (row_bytes + ARRAY_ROW_BYTES);
    const uint32_t every = 1 + model_pick(random, 8);
    uint64_t *ids;

    if (spec->home == EMBTIER_HOME_SPLIT || most == 0 || model_pick(random, 2) > 0) {
        model_random_home(random, spec);
        return NULL;
    }
    ids = malloc(table->row_count * sizeof(*ids));
    if (!ids)
        abort();
    spec->home = EMBTIER_HOME_SPLIT;
    snprintf(spec->home_tier, sizeof(spec->home_tier), "%s",
             model_pick(random, 2) == 0 ? "dram" : "pmem");
    spec->hot_rows = 0;
    for (uint32_t row = 0; row < table->row_count && spec->hot_rows < most; row += every)
        ids[spec->hot_rows++] = model_id(table, row);
    return ids;
}

void model_random_spec(uint64_t *random, const char *name, uint64_t bytes,
                       struct table_spec *ret_spec, uint32_t *ret_row_count)
{
    struct table_spec spec = { .dim = random_dim(random),
                               .dtype = (enum embtier_dtype)(1 + model_pick(random, 3)),
                               .optimizer = (enum embtier_optimizer)model_pick(random, 6) };
    const bool bounded = model_pick(random, 3) > 0;
    uint64_t row_bytes;
    uint32_t row_count;

    snprintf(spec.name, sizeof(spec.name), "%s", name);
    random_init(random, &spec);
    random_hyperparameters(random, &spec);
    row_bytes = table_spec_weight_bytes(&spec) + table_spec_state_bytes(&spec);
    row_count = (uint32_t)MIN(MAX(bytes / row_bytes, UINT64_C(10)), (uint64_t)MODEL_ROWS_MAX);
    spec.rows = bounded ? row_count : EMBTIER_UNBOUNDED;
    spec.durability = (enum embtier_durability)model_pick(random, 3);
    spec.eager = bounded && model_pick(random, 8) == 0;
    model_random_home(random, &spec);
    *ret_spec = spec;
    *ret_row_count = row_count;
}

struct model_table *model_table_new(const struct table_spec *spec, uint32_t row_count,
                                    uint64_t serial)
{
    struct model_table *table = calloc(1, sizeof(*table) + row_count * sizeof(table->rows[0]));

    if (!table)
        abort();
    table->spec = *spec;
    table->serial = serial;
    table->row_count = row_count;
    return table;
}

uint64_t model_id(const struct model_table *table, uint32_t row)
{
    if (table->spec.rows != EMBTIER_UNBOUNDED)
        return row;
    if (table->serial % 2 == 1) /* half of them fit into 32 bits */
        return (UINT64_C(1) << 32) - table->row_count / 2 + row;
    return ~(row * UINT64_C(0x9e3779b97f4a7c15)); /* odd, so ids differ; row 0 has the last id */
}

uint32_t model_pick_row(struct model_table *table, uint64_t *random, enum model_pattern pattern,
                        uint32_t before, int owner)
{
    const uint32_t count = table->row_count;
    uint32_t row = model_pick(random, count);

    if (pattern == MODEL_HOT)
        row = model_pick(random, 1 + model_pick(random, 1 + row));
    else if (pattern == MODEL_RUN)
        row = (before + 1) % count;
    else if (pattern == MODEL_RECENT)
        row = table->recent[row % MODEL_RECENT_ROWS];
    else if (pattern == MODEL_TOP)
        row %= MODEL_TOP_ROWS;
    if (owner >= 0) {
        row = row - row % MODEL_OWNERS + (uint32_t)owner;
        if (pattern == MODEL_RUN)
            row += MODEL_OWNERS;
        if (row >= count)
            row = (uint32_t)owner;
    }
    table->recent[model_pick(random, MODEL_RECENT_ROWS)] = row;
    return row;
}

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* Masks that turn any bits into numbers from 1/8 up to 2, with any sign and mantissa and four
 * exponents: the bits that stay, and the bits that are set. */
static const struct moderate {
    uint64_t kept;
    uint64_t put;
} moderate[] = {
    [EMBTIER_DTYPE_F32] = { UINT64_C(0x81ffffff81ffffff), UINT64_C(0x3e0000003e000000) },
    [EMBTIER_DTYPE_F16] = { UINT64_C(0x8fff8fff8fff8fff), UINT64_C(0x3000300030003000) },
    [EMBTIER_DTYPE_BF16] = { UINT64_C(0x81ff81ff81ff81ff), UINT64_C(0x3e003e003e003e00) },
};

void model_fill(const struct model_table *table, uint32_t row, uint32_t version, void *ret_weights)
{
    static _Alignas(8) uint8_t scratch[sizeof(float) * EMBTIER_DIM_MAX + STATE_BYTES_MAX];
    const uint32_t bytes = table_spec_weight_bytes(&table->spec);
    const uint64_t id = model_id(table, row);
    void *const rows[] = { scratch };
    struct moderate mask = { UINT64_MAX, 0 };
    uint64_t word;

    if (version == 0) {
        init_rows(&table->spec, &id, 1, rows);
        memcpy(ret_weights, scratch, bytes);
        return;
    }
    if (table->serial % 2)
        mask = moderate[table->spec.dtype];
    word = mix(mix(table->serial << 32 | version) + id);
    for (uint32_t at = 0; at < bytes; at += sizeof(word)) {
        uint64_t kept;

        word = mix(word + UINT64_C(0x9e3779b97f4a7c15));
        kept = (word & mask.kept) | mask.put;
        memcpy((uint8_t *)ret_weights + at, &kept, MIN(sizeof(kept), (size_t)(bytes - at)));
    }
}

uint32_t model_match(const struct model_table *table, uint32_t row, uint32_t low, uint32_t high,
                     const void *weights)
{
    static _Alignas(8) uint8_t wanted[sizeof(float) * EMBTIER_DIM_MAX];
    const uint32_t bytes = table_spec_weight_bytes(&table->spec);

    for (uint32_t version = low; version <= high; version++) {
        model_fill(table, row, version, wanted);
        if (memcmp(wanted, weights, bytes) == 0)
            return version;
    }
    return MODEL_NO_VERSION;
}

static float number_at(enum embtier_dtype dtype, const void *numbers, uint32_t at)
{
    if (dtype == EMBTIER_DTYPE_F32)
        return ((const float *)numbers)[at];
    if (dtype == EMBTIER_DTYPE_F16)
        return f16_to_f32(((const uint16_t *)numbers)[at]);
    return bf16_to_f32(((const uint16_t *)numbers)[at]);
}

void model_pool(const struct model_table *table, uint32_t row, uint32_t version,
                enum embtier_pool mode, float weight, uint32_t number, float *sums)
{
    static _Alignas(8) uint8_t weights[sizeof(float) * EMBTIER_DIM_MAX];

    model_fill(table, row, version, weights);
    for (uint32_t c = 0; c < table->spec.dim; c++) {
        const float x = number_at(table->spec.dtype, weights, c);

        if (mode != EMBTIER_POOL_MAX)
            sums[c] = (number > 0 ? sums[c] : 0) + weight * x;
        else if (number == 0 || x > sums[c])
            sums[c] = x;
    }
}

uint32_t model_set(struct model_table *table, uint32_t row)
{
    table->rows[row].newest++;
    table->rows[row].loose = 0;
    return table->rows[row].newest;
}

void model_settle(struct model_table *table, uint32_t row, uint32_t version)
{
    if (version > table->rows[row].settled)
        table->rows[row].settled = version;
}

void model_loosen(struct model_table *table, uint32_t row)
{
    table->rows[row].loose = 1;
}
