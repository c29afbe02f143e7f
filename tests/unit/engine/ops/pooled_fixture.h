/* SPDX-License-Identifier: Apache-2.0 */
/* pooled_fixture.h: lanes with a table, and a client that makes pooled lookups in it. Each test
 * program includes it once. */
#ifndef EMBTIER_TESTS_UNIT_ENGINE_OPS_POOLED_FIXTURE_H
#define EMBTIER_TESTS_UNIT_ENGINE_OPS_POOLED_FIXTURE_H

#include "tests/unit/engine/lane/lane_fixture.h"

#include "daemon/engine/ops/pooled/pooled.h"
#include "tests/forms.h"
#include "tests/seed.h"

#define DIM        64
#define ROWS       40000 /* more than the cache holds */
#define BAGS_MOST  3000
#define IDS_MOST   20000
#define SLOT_BYTES (8 * MIB)

/* The parts of one segment, in the order in which they lie in a client's slot. */
struct bags {
    uint64_t table;
    enum embtier_pool mode;
    bool weighted;
    uint32_t id_count;
    uint32_t bag_count;
    uint64_t ids[IDS_MOST];
    uint32_t offsets[BAGS_MOST + 1];
    float weights[IDS_MOST];
    float sums[BAGS_MOST * DIM];
};

struct pooling {
    struct lanes_fixture x;
    struct client client;
    uint64_t table;
    uint64_t seed;
    struct bags *bags;
};

/* Without and with maps of rows. The last two have more memory, since maps take that much. */
static const struct lanes_shape shapes[] = {
    { .lane_count = 1, .slabs_per_lane = 2, .readers = 2, .write_queue_bytes = 1 * MIB },
    { .lane_count = 3, .slabs_per_lane = 2, .readers = 1, .write_queue_bytes = 1 * MIB },
    { .lane_count = 1,
      .slabs_per_lane = 4,
      .map_slabs = 1,
      .readers = 2,
      .write_queue_bytes = 1 * MIB },
    { .lane_count = 3,
      .slabs_per_lane = 4,
      .map_slabs = 1,
      .readers = 1,
      .write_queue_bytes = 1 * MIB },
};

/* A test of all shapes. The thread sanitizer sees those of several lanes; the address sanitizer
 * sees one lane without maps, and several with them. */
#define SHAPES_FIRST BY_BUILD(0, 0, 1)
#define SHAPES_STEP  BY_BUILD(1, 3, 2)

static inline void pooling_start(struct pooling *p, struct store_fixture *f,
                                 const struct lanes_shape *shape)
{
    memset(p, 0, sizeof(*p));
    lanes_start(&p->x, f, shape);
    p->table = fixture_table(&p->x, "t", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
    p->client = client_attach(&p->x, SLOT_BYTES);
    p->seed = seed_of_test("pooled lookups", seed_random());
    p->bags = calloc(2, sizeof(*p->bags));
    assert_non_null(p->bags);
    print_message("%u lanes%s\n", shape->lane_count, shape->map_slabs > 0 ? ", maps" : "");
}

static inline void pooling_stop(struct pooling *p)
{
    client_detach(&p->client);
    free(p->bags);
    lanes_stop(&p->x);
}

/* Copies @count of @bags into the next request's slot, as the segments of one lookup. */
static inline struct op_pool_segment *lay_bags_out(struct pooling *p, const struct bags *bags,
                                                   uint32_t count)
{
    const uint32_t number = p->client.submitted;
    struct op_pool_segment *const segments =
        (struct op_pool_segment *)client_segment(&p->client, number);
    uint8_t *at = (uint8_t *)(segments + count);

    for (uint32_t s = 0; s < count; s++) {
        const struct bags *const b = &bags[s];

        segments[s] = (struct op_pool_segment){ .table = b->table ? b->table : p->table,
                                                .id_count = b->id_count,
                                                .bag_count = b->bag_count,
                                                .mode = b->mode };
        segments[s].ids_offset = client_offset(&p->client, at);
        memcpy(at, b->ids, b->id_count * sizeof(b->ids[0]));
        at += b->id_count * sizeof(b->ids[0]);
        segments[s].offsets_offset = client_offset(&p->client, at);
        memcpy(at, b->offsets, (b->bag_count + 1) * sizeof(b->offsets[0]));
        at += (b->bag_count + 1) * sizeof(b->offsets[0]);
        if (b->weighted) {
            segments[s].weights_offset = client_offset(&p->client, at);
            memcpy(at, b->weights, b->id_count * sizeof(b->weights[0]));
            at += b->id_count * sizeof(b->weights[0]);
        }
        segments[s].bags_offset = client_offset(&p->client, at);
        memset(at, 0xff, (size_t)b->bag_count * DIM * sizeof(float));
        at += (size_t)b->bag_count * DIM * sizeof(float);
        at = (uint8_t *)align_up((uintptr_t)at, 8);
    }
    assert_true(at <= (uint8_t *)segments + SLOT_BYTES);
    *client_submission(&p->client, number) = (struct op_submission){
        .op = OP_POOL,
        .segment_count = count,
        .segments_offset = client_offset(&p->client, segments),
    };
    return segments;
}

static inline const float *bags_at(const struct pooling *p, const struct op_pool_segment *segment)
{
    return (const float *)(client_region(&p->client) + segment->bags_offset);
}

static inline uint32_t submit(struct pooling *p)
{
    const uint32_t number = p->client.submitted;

    client_publish(&p->client);
    return number;
}

#endif
