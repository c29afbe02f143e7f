/* SPDX-License-Identifier: Apache-2.0 */
/* push_fixture.h: tables with optimizers, a model of their rows, and a client that makes lookups
 * with tickets and pushes. Each test program includes it once. */
#ifndef EMBTIER_TESTS_UNIT_ENGINE_OPS_PUSH_FIXTURE_H
#define EMBTIER_TESTS_UNIT_ENGINE_OPS_PUSH_FIXTURE_H

#include "tests/unit/engine/ops/pooled_fixture.h"

#include <math.h>

#include "daemon/engine/ops/push/push.h"
#include "kernels/cpu/cast/dtype.h"
#include "kernels/cpu/optimizer/optimizer.h"
#include "kernels/cpu/reduce/reduce.h"

#define TABLES     2
#define TABLE_ROWS 12000 /* with their state, more than the cache holds */
#define STATE_MAX  (3 * DIM)
#define SEGMENTS   2

/* The expected rows of a table: weights, then state. */
struct shadow {
    struct table_spec spec;
    uint64_t handle;
    uint32_t numbers; /* per row */
    float *rows;
};

struct pushing {
    struct pooling p;
    struct shadow tables[TABLES];
    uint64_t step;
    bool has_infinite_weight; /* good_push() then uses an infinite weight */
    float *gradients[SEGMENTS];
    uint32_t *winners[SEGMENTS];
};

static uint32_t below(struct pushing *t, uint32_t end)
{
    t->p.seed = t->p.seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(t->p.seed >> 33) % end;
}

static inline float some_float(struct pushing *t)
{
    return (float)((int32_t)below(t, 20001) - 10000) * 1.3e-4f;
}

static inline float *row_of(const struct shadow *shadow, uint64_t id)
{
    return shadow->rows + id * shadow->numbers;
}

static inline void shadow_new(struct pushing *t, struct shadow *shadow, const char *name,
                              enum embtier_optimizer optimizer)
{
    struct table_info info;
    struct err_msg msg = { { 0 } };

    shadow->spec = (struct table_spec){ .rows = TABLE_ROWS,
                                        .dim = DIM,
                                        .dtype = EMBTIER_DTYPE_F32,
                                        .optimizer = optimizer,
                                        .init = EMBTIER_INIT_CONSTANT,
                                        .init_params = { 0.5, 0 },
                                        .eps = EMBTIER_DEFAULT,
                                        .alpha = EMBTIER_DEFAULT,
                                        .beta1 = EMBTIER_DEFAULT,
                                        .beta2 = EMBTIER_DEFAULT };
    /* The name is unique per shape, as SSD still has the rows from earlier starts of the lanes. */
    snprintf(shadow->spec.name, sizeof(shadow->spec.name), "%s-%u-%u", name, t->p.x.lane_count,
             t->p.x.map_slabs);
    table_spec_fill_defaults(&shadow->spec);
    must(tables_create(t->p.x.tables, &shadow->spec, FIXTURE_UID, true, NULL, &info, &msg), &msg);
    shadow->spec = info.spec;
    shadow->handle = info.handle;
    shadow->numbers = DIM + table_spec_state_bytes(&info.spec) / (uint32_t)sizeof(float);
    shadow->rows = calloc((size_t)TABLE_ROWS * shadow->numbers, sizeof(float));
    assert_non_null(shadow->rows);
    for (uint32_t id = 0; id < TABLE_ROWS; id++)
        for (uint32_t c = 0; c < DIM; c++)
            row_of(shadow, id)[c] = 0.5f;
}

static inline void pushing_start(struct pushing *t, struct store_fixture *f,
                                 const struct lanes_shape *shape)
{
    memset(t, 0, sizeof(*t));
    pooling_start(&t->p, f, shape);
    shadow_new(t, &t->tables[0], "adam", EMBTIER_OPTIMIZER_ADAM);
    shadow_new(t, &t->tables[1], "adagrad", EMBTIER_OPTIMIZER_ADAGRAD);
    for (uint32_t s = 0; s < SEGMENTS; s++) {
        t->gradients[s] = calloc((size_t)IDS_MOST * DIM, sizeof(float));
        t->winners[s] = calloc((size_t)BAGS_MOST * DIM, sizeof(uint32_t));
        assert_true(t->gradients[s] && t->winners[s]);
    }
}

static inline void pushing_stop(struct pushing *t)
{
    for (uint32_t i = 0; i < TABLES; i++)
        free(t->tables[i].rows);
    for (uint32_t s = 0; s < SEGMENTS; s++) {
        free(t->gradients[s]);
        free(t->winners[s]);
    }
    pooling_stop(&t->p);
}

static inline struct shadow *shadow_of(struct pushing *t, const struct bags *b)
{
    return &t->tables[b->table == t->tables[1].handle];
}

/* ---- The model ---- */

static inline void assert_pooled(struct pushing *t, const struct bags *b, const float *got,
                                 uint32_t *winners)
{
    const struct shadow *const shadow = shadow_of(t, b);

    for (uint32_t i = 0; i < b->bag_count * DIM; i++) {
        const uint32_t bag = i / DIM, first = b->offsets[bag], end = b->offsets[bag + 1];
        float value = 0;

        winners[i] = UINT32_MAX;
        for (uint32_t at = first; at < end; at++) {
            const float weight = row_of(shadow, b->ids[at])[i % DIM];

            if (b->mode != EMBTIER_POOL_MAX) {
                value += b->weighted ? b->weights[at] * weight : weight;
            } else if (at == first || weight > value) {
                value = weight;
                winners[i] = at;
            }
        }
        if (b->mode == EMBTIER_POOL_MEAN && end > first)
            value /= (float)(end - first);
        if (f32_bits(value) != f32_bits(got[i]))
            fail_msg("bag %u column %u is %a, not %a", bag, i % DIM, (double)got[i], (double)value);
    }
}

/* One (row, bag) pair of a table. */
struct pair {
    uint64_t row;
    uint32_t order;
    uint32_t segment;
    uint32_t bag;
    uint32_t position;
};

static inline int compare_pairs(const void *a, const void *b)
{
    const struct pair *const left = a, *const right = b;

    if (left->row != right->row)
        return left->row < right->row ? -1 : 1;
    return left->order < right->order ? -1 : 1;
}

static uint32_t pairs_of(struct pushing *t, const struct bags *bags, const struct shadow *shadow,
                         struct pair *pairs)
{
    uint32_t count = 0;

    for (uint32_t s = 0; s < SEGMENTS; s++) {
        const struct bags *const b = &bags[s];

        if (shadow_of(t, b) != shadow)
            continue;
        for (uint32_t bag = 0; bag < b->bag_count; bag++) {
            for (uint32_t i = b->offsets[bag]; i < b->offsets[bag + 1]; i++) {
                pairs[count] = (struct pair){ b->ids[i], count, s, bag, i };
                count++;
            }
        }
    }
    qsort(pairs, count, sizeof(*pairs), compare_pairs);
    return count;
}

static inline void add_gradient(const struct pushing *t, const struct bags *b,
                                const struct pair *pair, float *sum)
{
    const float *const gradient = t->gradients[pair->segment] + (size_t)pair->bag * DIM;
    const uint32_t *const winners = t->winners[pair->segment] + (size_t)pair->bag * DIM;
    float scale = b->weighted ? b->weights[pair->position] : 1.0f;

    if (b->mode == EMBTIER_POOL_MEAN)
        scale /= (float)(b->offsets[pair->bag + 1] - b->offsets[pair->bag]);
    for (uint32_t c = 0; c < DIM; c++)
        if (b->mode != EMBTIER_POOL_MAX || winners[c] == pair->position)
            sum[c] += scale * gradient[c];
}

static inline void assert_weight_gradient(const struct pushing *t, const struct bags *b,
                                          const struct pair *pair, const float *row,
                                          const struct op_pool_segment *segments)
{
    const struct op_pool_segment *const segment = &segments[pair->segment];
    const float *const got = (const float *)(client_region(&t->p.client) + segment->weights_offset);
    const float *const gradient = t->gradients[pair->segment] + (size_t)pair->bag * DIM;
    const void *const rows[] = { row };
    const float divisor = b->mode == EMBTIER_POOL_MEAN
                              ? (float)(b->offsets[pair->bag + 1] - b->offsets[pair->bag])
                              : 1.0f;
    float wanted;

    reduce_weight_gradients(EMBTIER_DTYPE_F32, DIM, rows, &gradient, &divisor, 1, &wanted);
    if (f32_bits(wanted) != f32_bits(got[pair->position]))
        fail_msg("the gradient of weight %u is %a, not %a", pair->position,
                 (double)got[pair->position], (double)wanted);
}

/* Updates the shadows. With @segments, also checks the weight gradients that the push returned. */
static inline void push_to_shadows(struct pushing *t, const struct bags *bags,
                                   const struct op_pool_segment *segments, double learning_rate)
{
    struct pair *const pairs = calloc(SEGMENTS * IDS_MOST, sizeof(*pairs));

    assert_non_null(pairs);
    for (uint32_t n = 0; n < TABLES; n++) {
        struct shadow *const shadow = &t->tables[n];
        const uint32_t count = pairs_of(t, bags, shadow, pairs);
        struct optimizer_push push;

        optimizer_prepare(&shadow->spec, learning_rate, t->step, &push);
        for (uint32_t i = 0, end; i < count; i = end) {
            float sum[DIM] = { 0 };
            void *rows[] = { row_of(shadow, pairs[i].row) };

            for (end = i; end < count && pairs[end].row == pairs[i].row; end++) {
                const struct bags *const b = &bags[pairs[end].segment];

                add_gradient(t, b, &pairs[end], sum);
                if (segments && b->weighted)
                    assert_weight_gradient(t, b, &pairs[end], rows[0], segments);
            }
            optimizer_update(&push, &pairs[i].row, rows, sum, 1);
        }
    }
    free(pairs);
}

/* Checks all rows of all tables, with their state. */
static inline void assert_rows(struct pushing *t)
{
    enum { BATCH = 2000 };

    for (uint32_t n = 0; n < TABLES; n++) {
        struct shadow *const shadow = &t->tables[n];

        for (uint32_t first = 0; first < TABLE_ROWS; first += BATCH) {
            const uint32_t number = t->p.client.submitted;
            const float *rows;

            for (uint32_t i = 0; i < BATCH; i++)
                client_ids(&t->p.client, number)[i] = first + i;
            client_submit_flags(&t->p.client, OP_GET, OP_FLAG_STATE, shadow->handle, BATCH);
            assert_int_equal(client_wait(&t->p.client, number)->err, EMBTIER_OK);
            rows = (const float *)client_rows(&t->p.client, number, BATCH);
            /* One look at the whole batch: a sanitizer takes long to look at each number. */
            if (memcmp(rows, row_of(shadow, first),
                       (size_t)BATCH * shadow->numbers * sizeof(*rows)) == 0)
                continue;
            for (uint32_t i = 0; i < BATCH * shadow->numbers; i++) {
                const float wanted = row_of(shadow, first)[i];

                if (f32_bits(rows[i]) != f32_bits(wanted))
                    fail_msg("table %u row %u number %u is %a, not %a", n,
                             first + i / shadow->numbers, i % shadow->numbers, (double)rows[i],
                             (double)wanted);
            }
        }
    }
}

/* ---- Requests ---- */

/* Makes bags of all lengths, sometimes one of thousands, with repeated rows. */
static inline void make_bags(struct pushing *t, struct bags *b, uint32_t table, bool is_max,
                             uint32_t rows, uint32_t bag_count)
{
    b->table = t->tables[table].handle;
    b->mode = is_max ? EMBTIER_POOL_MAX : (enum embtier_pool)(EMBTIER_POOL_SUM + below(t, 2));
    b->weighted = !is_max && below(t, 2);
    b->id_count = b->bag_count = 0;
    while (b->bag_count < bag_count) {
        const uint32_t dice = below(t, 200);
        uint32_t length = dice < 40 ? 0 : dice == 199 ? 6000 : below(t, 12);

        for (; length > 0 && b->id_count < IDS_MOST; length--) {
            b->weights[b->id_count] = some_float(t);
            b->ids[b->id_count++] = below(t, 4) ? below(t, rows) : below(t, 7);
        }
        b->offsets[++b->bag_count] = b->id_count;
    }
}

static inline struct op_submission *next_submission(struct pushing *t)
{
    struct client *const client = &t->p.client;

    return client_submission(client, client->submitted);
}

/* Looks up @bags. Sets *@ret_segments to their place. Returns the ticket. */
static uint64_t look_up(struct pushing *t, const struct bags *bags,
                        struct op_pool_segment **ret_segments)
{
    const struct op_completion *done;

    *ret_segments = lay_bags_out(&t->p, bags, SEGMENTS);
    next_submission(t)->flags = OP_FLAG_TICKET;
    done = client_wait(&t->p.client, submit(&t->p));
    assert_int_equal(done->err, EMBTIER_OK);
    assert_int_not_equal(done->ticket, 0);
    for (uint32_t s = 0; s < SEGMENTS; s++)
        assert_pooled(t, &bags[s], bags_at(&t->p, &(*ret_segments)[s]), t->winners[s]);
    return done->ticket;
}

/* Lays out the push for a lookup with segments @looked_up. Gradients replace the bags, and weight
 * gradients will replace the weights. Submits nothing. */
static inline struct op_push_segment *lay_push_out(struct pushing *t, const struct bags *bags,
                                                   const struct op_pool_segment *looked_up,
                                                   uint64_t ticket)
{
    struct client *const client = &t->p.client;
    struct op_push_segment *const segments = (void *)client_segment(client, client->submitted);

    for (uint32_t s = 0; s < SEGMENTS; s++) {
        const uint32_t count = bags[s].bag_count * DIM;
        float *const at = (float *)(client_region(client) + looked_up[s].bags_offset);

        for (uint32_t i = 0; i < count; i++)
            at[i] = t->gradients[s][i] = some_float(t);
        segments[s] = (struct op_push_segment){ .table = bags[s].table,
                                                .gradients_offset = looked_up[s].bags_offset,
                                                .weights_offset = looked_up[s].weights_offset,
                                                .learning_rate = 0.01,
                                                .count = bags[s].bag_count,
                                                .dim = DIM };
    }
    *next_submission(t) =
        (struct op_submission){ .op = OP_PUSH,
                                .segment_count = SEGMENTS,
                                .segments_offset = client_offset(client, segments),
                                .step = ++t->step,
                                .ticket = ticket };
    return segments;
}

static inline const struct op_completion *submit_and_wait(struct pushing *t)
{
    return client_wait(&t->p.client, submit(&t->p));
}

static inline void assert_push_ends_with(struct pushing *t, enum embtier_err err, uint32_t segment)
{
    const struct op_completion *const done = submit_and_wait(t);

    assert_int_equal(done->err, err);
    assert_int_equal(done->segment, segment);
}

/* Makes a lookup of a few rows, and lays out the push for it. */
static inline struct op_push_segment *good_push(struct pushing *t)
{
    struct op_pool_segment *segments, looked_up[SEGMENTS];
    uint64_t ticket;

    for (uint32_t s = 0; s < SEGMENTS; s++) {
        struct bags *const b = &t->p.bags[s];

        *b = (struct bags){ .table = t->tables[s].handle,
                            .mode = s ? EMBTIER_POOL_MAX : EMBTIER_POOL_SUM,
                            .id_count = 4,
                            .bag_count = 2,
                            .weighted = !s };
        for (uint32_t i = 0; i < 4; i++) {
            b->ids[i] = i * 7 % 5;
            b->weights[i] = i == 2 && t->has_infinite_weight ? INFINITY : some_float(t);
        }
        b->offsets[1] = 1;
        b->offsets[2] = 4;
    }
    ticket = look_up(t, t->p.bags, &segments);
    memcpy(looked_up, segments, sizeof(looked_up));
    return lay_push_out(t, t->p.bags, looked_up, ticket);
}

static inline float *gradient_at(const struct pushing *t, const struct op_push_segment *segment)
{
    return (float *)(client_region(&t->p.client) + segment->gradients_offset);
}

/* Lays out the same push without a ticket: ids of rows, and as many gradients. */
static inline struct op_push_segment *good_rows(struct pushing *t)
{
    struct op_push_segment *const segments = good_push(t);

    for (uint32_t s = 0; s < SEGMENTS; s++) {
        segments[s].ids_offset = client_offset(&t->p.client, segments + SEGMENTS + s);
        segments[s].count = 2;
        segments[s].weights_offset = 0;
        memset(segments + SEGMENTS + s, 0, 2 * sizeof(uint64_t));
    }
    next_submission(t)->ticket = 0;
    return segments;
}

/* Lays out a prefetch of @count ids of each table from @first on, each twice. */
static inline struct op_push_segment *lay_prefetch_out(struct pushing *t, uint64_t first,
                                                       uint32_t count)
{
    struct client *const client = &t->p.client;
    struct op_push_segment *const segments = (void *)client_segment(client, client->submitted);
    uint64_t *ids = (uint64_t *)(segments + TABLES);

    for (uint32_t n = 0; n < TABLES; n++) {
        segments[n] = (struct op_push_segment){ .table = t->tables[n].handle,
                                                .ids_offset = client_offset(client, ids),
                                                .count = 2 * count };
        for (uint32_t i = 0; i < 2 * count; i++)
            *ids++ = first + i % count;
    }
    *next_submission(t) =
        (struct op_submission){ .op = OP_PREFETCH,
                                .segment_count = TABLES,
                                .segments_offset = client_offset(client, segments) };
    return segments;
}

/* The same, and waits for its answer. */
static inline const struct op_completion *prefetch(struct pushing *t, uint64_t first,
                                                   uint32_t count)
{
    lay_prefetch_out(t, first, count);
    return submit_and_wait(t);
}

static inline void release_pins(struct pushing *t, uint64_t ticket)
{
    *next_submission(t) = (struct op_submission){ .op = OP_RELEASE, .ticket = ticket };
    assert_int_equal(submit_and_wait(t)->err, EMBTIER_OK);
}

static inline uint64_t pinned_rows(struct pushing *t)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < t->p.x.lane_count; i++) {
        struct lane_stats stats;

        lane_stats(t->p.x.lanes[i], &stats);
        rows += stats.cache.pinned_rows;
    }
    return rows;
}

/* Waits for @rows pinned rows. Pins come back some time after the answer to the request that ends
 * them. */
static inline void await_pinned(struct pushing *t, uint64_t rows)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    unsigned looks = 0;

    while (pinned_rows(t) != rows) {
        if (now_ns() > until)
            fail_msg("%llu rows are pinned", (unsigned long long)pinned_rows(t));
        fixture_pause(&looks);
    }
}

#endif
