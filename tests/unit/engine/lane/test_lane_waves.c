/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that pooled lookups and pushes are done a piece per turn while a client asks for
 * little, and whole if there is no such client. The results must be the same. The lanes' threads
 * have ended and the test runs the rounds in their place: nothing here depends on time. */
#include "tests/unit/engine/lane/lane_fixture.h"

#include "daemon/engine/lane/lane_impl.h"
#include "daemon/engine/ops/tickets/caster.h"
#include "daemon/engine/turns/cost.h"

#define DIM        16
#define ROWS       5000
#define SMALL_IDS  16
#define SMALL_SLOT (16 * KIB)
#define LARGE_SLOT (4 * MIB)
#define BAGS_MOST  200
#define POOLED_IDS 30000
#define PUSHED_IDS ROWS
#define SEGMENTS   3
#define FEW_TABLES 100
#define SECOND_NS  (UINT64_C(1000) * 1000 * 1000)

/* Upper bound of the cost of a round: its last turn begins before half the cost of a turn is
 * charged. */
#define ROUND_COST (4 * (uint64_t)LANE_TURN_COST)

static const struct lanes_shape shapes[] = {
    { .lane_count = 1, .slabs_per_lane = 8, .readers = 1, .write_queue_bytes = MIB },
    { .lane_count = 1,
      .slabs_per_lane = 8,
      .map_slabs = 1,
      .readers = 1,
      .write_queue_bytes = MIB },
    { .lane_count = 2, .slabs_per_lane = 8, .readers = 1, .write_queue_bytes = MIB },
};

static uint64_t held_ns;

static uint64_t held_time(void *context)
{
    (void)context;
    return held_ns;
}

/* Time stands still, so clients never need to ring. */
static const struct clock held_clock = { .now_ns = held_time };

struct rounds {
    struct lanes_fixture x;
    uint64_t table, cold;
    struct client large, small;
    uint32_t answered; /* requests of the small client */
    uint64_t until_ns;
};

/* Small whole numbers, so that all sums of them are exact. The first number of each row is 1. */
static float number_of(uint64_t id, uint32_t column)
{
    return column == 0 ? 1 : (float)((id * 7 + column * 3) % 11);
}

static void set_rows(struct client *client, uint64_t table)
{
    for (uint64_t first = 0; first < ROWS; first += 1000) {
        const uint32_t number = client->submitted;
        float *const rows = (float *)client_rows(client, number, 1000);

        for (uint32_t i = 0; i < 1000; i++) {
            client_ids(client, number)[i] = first + i;
            for (uint32_t c = 0; c < DIM; c++)
                rows[i * DIM + c] = number_of(first + i, c);
        }
        assert_int_equal(client_wait(client, client_submit(client, OP_SET, table, 1000))->err,
                         EMBTIER_OK);
    }
}

static void go_round(struct rounds *r)
{
    assert_true(now_ns() < r->until_ns);
    for (uint32_t i = 0; i < r->x.lane_count; i++)
        (void)lane_round(r->x.lanes[i]);
}

static void ask_small(struct rounds *r)
{
    struct client *const small = &r->small;

    if (r->answered < small->submitted && !client_is_done(small, r->answered))
        return;
    if (r->answered < small->submitted) {
        assert_int_equal(client_wait(small, r->answered)->err, EMBTIER_OK);
        r->answered++;
    }
    for (uint32_t i = 0; i < SMALL_IDS; i++)
        client_ids(small, small->submitted)[i] = i;
    (void)client_submit(small, OP_GET, r->table, SMALL_IDS);
}

/* Runs a round with the small client. The round may cost @times as much as usual. */
static void go_shared_round(struct rounds *r, uint32_t times)
{
    ask_small(r);
    go_round(r);
    for (uint32_t i = 0; i < r->x.lane_count; i++)
        assert_true(r->x.lanes[i]->schedule.charged < ROUND_COST * times);
}

/* All rows of one table are then cached, and none of the other. @time_ns: the lanes' clock from
 * then on. */
static void rounds_start(struct rounds *r, struct store_fixture *f, const struct lanes_shape *shape,
                         uint64_t time_ns)
{
    struct client client;

    memset(r, 0, sizeof(*r));
    lanes_start(&r->x, f, shape);
    r->table = fixture_table(&r->x, "t", ROWS, DIM, EMBTIER_OPTIMIZER_SGD);
    r->cold = fixture_table(&r->x, "cold", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
    client = client_attach(&r->x, LARGE_SLOT);
    set_rows(&client, r->table);
    client_detach(&client);
    for (uint32_t i = 0; i < r->x.lane_count; i++) {
        struct lane *const lane = r->x.lanes[i];
        struct caster *const caster = TAKE(lane->caster); /* must go on */

        lane_stop(lane);
        lane->caster = caster;
        lane->opts.clock = &held_clock;
        lane->rounds_to_clock = 0;
    }
    held_ns = time_ns;
    r->until_ns = now_ns() + FIXTURE_WAIT_NS;
    r->large = client_attach(&r->x, LARGE_SLOT);
}

static void attach_small(struct rounds *r)
{
    r->small = client_attach(&r->x, SMALL_SLOT);
    for (uint32_t i = 0; i < 10; i++) /* a lane notices a small session only after its request */
        go_shared_round(r, 1);
}

static void detach(struct rounds *r, struct client *client)
{
    struct session *const session = client->session;
    bool gone = false;

    atomic_store(&session->gone, true);
    lane_detach(r->x.lanes[session->home], session);
    while (!gone) {
        go_round(r);
        for (struct message *m = inbox_take_all(&r->x.mail); m; m = m->next)
            gone |= m == &session->gone_message;
    }
    client_free(client);
}

static void rounds_stop(struct rounds *r)
{
    if (r->small.session)
        detach(r, &r->small);
    detach(r, &r->large);
    lanes_stop(&r->x);
}

/* ---- Pooled lookups ---- */

struct lookup {
    struct op_pool_segment *segments;
    uint64_t *ids;
    uint32_t *offsets;
    float *weights;
    uint32_t bag_count;
};

static const float *bags_of(const struct rounds *r, const struct lookup *lookup, uint32_t s)
{
    return (const float *)(client_region(&r->large) + lookup->segments[s].bags_offset);
}

/* Looks up the same ids in bags of all sizes: their sums, weighted means and maxima. */
static struct lookup lookup_lay_out(struct rounds *r)
{
    static const uint32_t sizes[] = { 40, 0, 1, 5000, 100, 3, 700, 0, 2, 9000 };
    struct client *const client = &r->large;
    const uint32_t number = client->submitted;
    struct op_pool_segment *const segments =
        (struct op_pool_segment *)client_segment(client, number);
    struct lookup lookup = { .segments = segments, .ids = (uint64_t *)(segments + SEGMENTS) };
    float *bags;

    lookup.offsets = (uint32_t *)(lookup.ids + POOLED_IDS);
    lookup.weights = (float *)(lookup.offsets + BAGS_MOST + 1);
    bags = lookup.weights + POOLED_IDS;
    lookup.offsets[0] = 0;
    for (uint32_t end = 0; end < POOLED_IDS;) {
        end = MIN(end + sizes[lookup.bag_count % ARRAY_LEN(sizes)], (uint32_t)POOLED_IDS);
        lookup.offsets[++lookup.bag_count] = end;
    }
    assert_true(lookup.bag_count <= BAGS_MOST);
    for (uint32_t i = 0; i < POOLED_IDS; i++) {
        lookup.ids[i] = (uint64_t)i * 2654435761 % ROWS;
        lookup.weights[i] = (float)(i % 3);
    }
    memset(bags, 0, sizeof(float) * SEGMENTS * BAGS_MOST * DIM);
    for (uint32_t s = 0; s < SEGMENTS; s++)
        segments[s] = (struct op_pool_segment){
            .table = r->table,
            .ids_offset = client_offset(client, lookup.ids),
            .bags_offset = client_offset(client, bags + (size_t)s * BAGS_MOST * DIM),
            .offsets_offset = client_offset(client, lookup.offsets),
            .weights_offset = s == 1 ? client_offset(client, lookup.weights) : 0,
            .id_count = POOLED_IDS,
            .bag_count = lookup.bag_count,
            .mode = s == 0   ? EMBTIER_POOL_SUM
                    : s == 1 ? EMBTIER_POOL_MEAN
                             : EMBTIER_POOL_MAX,
        };
    *client_submission(client, number) = (struct op_submission){
        .op = OP_POOL, .segment_count = SEGMENTS, .segments_offset = client_offset(client, segments)
    };
    client_publish(client);
    return lookup;
}

/* Returns how many rows of the first segment have been added up: each counts 1 in its bag. */
static uint64_t added_up(const struct rounds *r, const struct lookup *lookup)
{
    const volatile float *const bags = bags_of(r, lookup, 0);
    uint64_t rows = 0;

    for (uint32_t b = 0; b < lookup->bag_count; b++)
        rows += (uint64_t)bags[b * DIM];
    return rows;
}

static float expected(const struct lookup *lookup, uint32_t s, uint32_t bag, uint32_t column)
{
    const uint32_t first = lookup->offsets[bag];
    const uint32_t end = lookup->offsets[bag + 1];
    float value = 0;

    for (uint32_t i = first; i < end; i++) {
        const float number = number_of(lookup->ids[i], column);

        if (s == 2)
            value = MAX(value, number);
        else
            value += s == 1 ? lookup->weights[i] * number : number;
    }
    return s == 1 && end > first ? value / (float)(end - first) : value;
}

static void assert_looked_up(const struct rounds *r, const struct lookup *lookup)
{
    assert_int_equal(client_wait(&r->large, r->large.submitted - 1)->err, EMBTIER_OK);
    for (uint32_t s = 0; s < SEGMENTS; s++)
        for (uint32_t b = 0; b < lookup->bag_count; b++)
            for (uint32_t c = 0; c < DIM; c++)
                assert_true(bags_of(r, lookup, s)[b * DIM + c] == expected(lookup, s, b, c));
}

static void test_a_lookup_is_made_in_pieces_while_another_asks_for_little(void **state)
{
    for (uint32_t i = 0; i < ARRAY_LEN(shapes); i++) {
        uint64_t before = 0;
        struct lookup lookup;
        struct rounds r;
        uint32_t rounds = 0;

        rounds_start(&r, *state, &shapes[i], 1000 * 1000);
        attach_small(&r);
        lookup = lookup_lay_out(&r);
        for (; !client_is_done(&r.large, r.large.submitted - 1); rounds++) {
            uint64_t rows;

            go_shared_round(&r, 1);
            rows = added_up(&r, &lookup);
            assert_in_range(rows, before, before + LANE_TURN_COST);
            before = rows;
        }
        assert_true(r.answered > rounds / 4);
        assert_looked_up(&r, &lookup);
        rounds_stop(&r);
    }
}

/* The lane learns, and charges, how many of a turn's rows must be read only when it has looked for
 * them. */
static void test_a_lookup_with_rows_to_be_read_goes_on_with_those_that_are_cached(void **state)
{
    struct rounds r;
    struct lookup lookup;

    rounds_start(&r, *state, &shapes[0], 1000 * 1000);
    attach_small(&r);
    lookup = lookup_lay_out(&r);
    lookup.segments[0].table = r.cold;
    while (!client_is_done(&r.large, r.large.submitted - 1))
        go_shared_round(&r, 1 + LANE_COST_MISS / LANE_COST_ROW);
    for (uint32_t b = 0; b < lookup.bag_count; b++) /* each of its rows is 0.5 */
        assert_true(bags_of(&r, &lookup, 0)[b * DIM] ==
                    (float)(lookup.offsets[b + 1] - lookup.offsets[b]) / 2);
    for (uint32_t b = 0; b < lookup.bag_count; b++)
        assert_true(bags_of(&r, &lookup, 1)[b * DIM] == expected(&lookup, 1, b, 0));
    rounds_stop(&r);
}

static void test_a_lookup_alone_is_made_in_long_turns(void **state)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct lookup lookup;
        struct rounds r;
        uint32_t rounds = 0;

        rounds_start(&r, *state, &shapes[i], HOUR_NS);
        lookup = lookup_lay_out(&r);
        for (; !client_is_done(&r.large, r.large.submitted - 1); rounds++) {
            go_round(&r);
            held_ns += SECOND_NS; /* the client has been alone this long */
        }
        assert_in_range(rounds, 1, 2 + SEGMENTS * POOLED_IDS * 8 / LANE_TURN_COST_ALONE);
        assert_looked_up(&r, &lookup);
        rounds_stop(&r);
    }
}

/* Looks up each of many tables twice: first all but one of the ids in every table, then the last id
 * in every table. */
static void look_up_tables(struct rounds *r, const uint64_t *tables)
{
    struct client *const client = &r->large;
    const uint32_t number = client->submitted;
    struct op_pool_segment *const segments =
        (struct op_pool_segment *)client_segment(client, number);
    uint64_t *const ids = (uint64_t *)(segments + 2 * FEW_TABLES);
    uint32_t *const offsets = (uint32_t *)(ids + CASTER_FEW_PAIRS);
    float *const bags = (float *)(offsets + 4);

    for (uint32_t i = 0; i < CASTER_FEW_PAIRS; i++)
        ids[i] = i;
    offsets[0] = offsets[2] = 0;
    offsets[1] = CASTER_FEW_PAIRS - 1;
    offsets[3] = 1;
    for (uint32_t s = 0; s < 2 * FEW_TABLES; s++) {
        const uint32_t is_last = s >= FEW_TABLES;

        segments[s] = (struct op_pool_segment){
            .table = tables[s % FEW_TABLES],
            .ids_offset = client_offset(client, ids),
            .bags_offset = client_offset(client, bags + (size_t)s * DIM),
            .offsets_offset = client_offset(client, offsets + 2 * is_last),
            .id_count = offsets[2 * is_last + 1],
            .bag_count = 1,
            .mode = EMBTIER_POOL_SUM,
        };
    }
    *client_submission(client, number) =
        (struct op_submission){ .op = OP_POOL,
                                .flags = OP_FLAG_TICKET,
                                .segment_count = 2 * FEW_TABLES,
                                .segments_offset = client_offset(client, segments) };
    client_publish(client);
}

/* Each table has few pairs, and all tables' pairs are complete at nearly the same time. */
static void test_many_small_groups_that_are_complete_at_once_are_not_cast_in_one_turn(void **state)
{
    uint64_t tables[FEW_TABLES];
    struct rounds r;

    lanes_start(&r.x, *state, &shapes[0]);
    for (uint32_t i = 0; i < FEW_TABLES; i++) {
        char name[32];

        snprintf(name, sizeof(name), "few-%u", i);
        tables[i] = fixture_table(&r.x, name, ROWS, DIM, EMBTIER_OPTIMIZER_SGD);
    }
    lanes_stop(&r.x);
    rounds_start(&r, *state, &shapes[0], 1000 * 1000);
    for (uint32_t i = 0; i < FEW_TABLES; i++) {
        char name[32];
        struct table_info info;
        struct err_msg msg = { { 0 } };

        snprintf(name, sizeof(name), "few-%u", i);
        must(tables_find(r.x.tables, name, &info, &msg), &msg);
        tables[i] = info.handle;
    }
    attach_small(&r);
    look_up_tables(&r, tables);
    while (!client_is_done(&r.large, r.large.submitted - 1))
        go_shared_round(&r, 1 + LANE_COST_MISS / LANE_COST_ROW);
    assert_int_equal(client_wait(&r.large, r.large.submitted - 1)->err, EMBTIER_OK);
    rounds_stop(&r);
}

/* ---- Pushes ---- */

static void push_rows(struct rounds *r)
{
    struct client *const client = &r->large;
    const uint32_t number = client->submitted;
    struct op_push_segment *const segment =
        (struct op_push_segment *)client_segment(client, number);
    uint64_t *const ids = (uint64_t *)(segment + 1);
    float *const gradients = (float *)(ids + PUSHED_IDS);

    for (uint32_t i = 0; i < PUSHED_IDS; i++)
        ids[i] = i;
    for (uint32_t i = 0; i < PUSHED_IDS * DIM; i++)
        gradients[i] = 2;
    *segment = (struct op_push_segment){ .table = r->table,
                                         .ids_offset = client_offset(client, ids),
                                         .gradients_offset = client_offset(client, gradients),
                                         .learning_rate = 1,
                                         .count = PUSHED_IDS,
                                         .dim = DIM };
    *client_submission(client, number) =
        (struct op_submission){ .op = OP_PUSH,
                                .segment_count = 1,
                                .step = 1,
                                .segments_offset = client_offset(client, segment) };
    client_publish(client);
}

static void test_a_push_is_taken_in_pieces_while_another_asks_for_little(void **state)
{
    for (uint32_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct rounds r;
        const float *rows;

        rounds_start(&r, *state, &shapes[i], 1000 * 1000);
        attach_small(&r);
        push_rows(&r);
        while (!client_is_done(&r.large, r.large.submitted - 1))
            go_shared_round(&r, 1);
        assert_int_equal(client_wait(&r.large, r.large.submitted - 1)->err, EMBTIER_OK);
        for (uint32_t id = 0; id < ROWS; id++)
            client_ids(&r.large, r.large.submitted)[id] = id;
        rows = (const float *)client_rows(&r.large, r.large.submitted, ROWS);
        (void)client_submit(&r.large, OP_GET, r.table, ROWS);
        while (!client_is_done(&r.large, r.large.submitted - 1))
            go_shared_round(&r, 1);
        for (uint32_t id = 0; id < ROWS; id++)
            for (uint32_t c = 0; c < DIM; c++)
                assert_true(rows[id * DIM + c] == number_of(id, c) - 2);
        rounds_stop(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_a_lookup_is_made_in_pieces_while_another_asks_for_little),
        T(test_a_lookup_with_rows_to_be_read_goes_on_with_those_that_are_cached),
        T(test_a_lookup_alone_is_made_in_long_turns),
        T(test_many_small_groups_that_are_complete_at_once_are_not_cast_in_one_turn),
        T(test_a_push_is_taken_in_pieces_while_another_asks_for_little),
#undef T
    };

    return cmocka_run_group_tests_name("waves of a lane", tests, NULL, NULL);
}
