/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_fixture.h: small tables of rows for the tests of optimizers. */
#ifndef EMBTIER_TESTS_UNIT_KERNELS_OPTIMIZER_FIXTURE_H
#define EMBTIER_TESTS_UNIT_KERNELS_OPTIMIZER_FIXTURE_H

#include "tests/unit/kernels/kernels_fixture.h"

#include <float.h>

#include "kernels/cpu/optimizer/optimizer.h"
#include "kernels/cpu/optimizer/optimizer_values.h"

#define GUARD_BYTES 64
#define GUARD       0xa5

/* Makes a table's spec with the optimizer's usual constants. */
static inline struct table_spec spec_of(enum embtier_optimizer optimizer, enum embtier_dtype dtype,
                                        uint32_t dim, double clip_norm, double weight_decay)
{
    struct table_spec spec = { .name = "t",
                               .dim = dim,
                               .dtype = dtype,
                               .optimizer = optimizer,
                               .alpha = 0.99,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .momentum = 0.9,
                               .clip_norm = clip_norm,
                               .weight_decay = weight_decay,
                               .seed = UINT64_C(0x0123456789abcdef) };

    switch (optimizer) {
#define X(name, number, word, per_weight, per_row, hyperparameters, standard_eps, decay, text)     \
    case EMBTIER_OPTIMIZER_##name:                                                                 \
        spec.eps = standard_eps;                                                                   \
        break;
        EMBTIER_OPTIMIZER_TABLE(X)
#undef X
    }
    return spec;
}

static inline uint32_t states_per_weight(enum embtier_optimizer optimizer)
{
    switch (optimizer) {
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    case EMBTIER_OPTIMIZER_##name:                                                                 \
        return per_weight;
        EMBTIER_OPTIMIZER_TABLE(X)
#undef X
    }
    return 0;
}

/* Rows between guards, all at odd multiples of their required alignment. */
struct table {
    struct table_spec spec;
    uint32_t count;
    uint32_t row_bytes;
    unsigned char *memory;
    void **rows;
    uint64_t *ids;
};

static inline size_t table_stride(const struct table *table)
{
    return align_up(table->row_bytes, 4) + GUARD_BYTES;
}

static inline struct table empty_table(const struct table_spec *spec, uint32_t count)
{
    struct table table = { .spec = *spec,
                           .count = count,
                           .row_bytes =
                               table_spec_weight_bytes(spec) + table_spec_state_bytes(spec),
                           .rows = fixture_alloc(count, sizeof(void *)),
                           .ids = fixture_alloc(count, sizeof(uint64_t)) };
    const size_t bytes = count * table_stride(&table) + GUARD_BYTES;
    const uint32_t align = spec->dtype == EMBTIER_DTYPE_F32 ? 4 : 2;

    table.memory = fixture_alloc(bytes, 1);
    memset(table.memory, GUARD, bytes);
    for (uint32_t i = 0; i < count; i++)
        table.rows[i] = table.memory + GUARD_BYTES / 2 + align + i * table_stride(&table);
    return table;
}

/* Makes a table with random ids and weights, and no state yet. */
static inline struct table make_table(const struct table_spec *spec, uint32_t count,
                                      uint64_t *random)
{
    struct table table = empty_table(spec, count);

    for (uint32_t i = 0; i < count; i++) {
        table.ids[i] = fixture_random(random);
        memset(table.rows[i], 0, table.row_bytes);
        for (uint32_t c = 0; c < spec->dim; c++)
            fixture_set(spec->dtype, table.rows[i], c, fixture_float(random) * 0.125f);
    }
    return table;
}

static inline struct table copy_table(const struct table *table)
{
    struct table copy = empty_table(&table->spec, table->count);

    memcpy(copy.ids, table->ids, table->count * sizeof(*copy.ids));
    memcpy(copy.memory, table->memory, table->count * table_stride(table) + GUARD_BYTES);
    return copy;
}

static inline void free_table(struct table *table)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const unsigned char *const row = table->rows[i];

        for (uint32_t g = 0; g < 16; g++)
            if (row[table->row_bytes + g] != GUARD || row[-1 - (int)g] != GUARD)
                fail_msg("row %u of %u bytes: wrote outside it", i, table->row_bytes);
    }
    free(table->memory);
    free(table->rows);
    free(table->ids);
}

static inline float weight_of(const struct table *table, uint32_t row, uint32_t column)
{
    return fixture_get(table->spec.dtype, table->rows[row], column);
}

static inline uint16_t half_of(const struct table *table, uint32_t row, uint32_t column)
{
    uint16_t half;

    memcpy(&half, (char *)table->rows[row] + column * sizeof(half), sizeof(half));
    return half;
}

/* Returns number @index of a row's state. */
static inline float state_of(const struct table *table, uint32_t row, uint32_t index)
{
    const char *const state = (char *)table->rows[row] + table_spec_weight_bytes(&table->spec);

    return fixture_get(EMBTIER_DTYPE_F32, state, index);
}

/* Updates the rows @chosen. Overwrites the gradients. */
static inline void update_chosen(enum kernels_isa isa, const struct table *table,
                                 double learning_rate, uint64_t step, const uint32_t *chosen,
                                 uint32_t count, float *gradients)
{
    void *rows[64];
    uint64_t ids[64];
    struct optimizer_push push;

    assert_true(count <= ARRAY_LEN(rows));
    for (uint32_t n = 0; n < count; n++) {
        rows[n] = table->rows[chosen[n]];
        ids[n] = table->ids[chosen[n]];
    }
    optimizer_prepare(&table->spec, learning_rate, step, &push);
    optimizer_update_with(isa, &push, ids, rows, gradients, count);
}

#endif
