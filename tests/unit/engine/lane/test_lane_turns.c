/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that sessions share a lane by cost. A small request must be answered soon whatever others
 * ask for, and a request must cost nothing while it waits for memory. The lane's thread has ended
 * and the test runs the rounds in its place: nothing here depends on time. */
#include "tests/unit/engine/lane/lane_fixture.h"

#include "daemon/engine/lane/lane_impl.h"
#include "daemon/engine/ops/push/push_trial.h"
#include "daemon/engine/ops/tickets/caster.h"
#include "daemon/engine/turns/cost.h"

#define DIM         16
#define WIDE_DIM    2048
#define ROWS        1000
#define SMALL_IDS   16
#define LARGE_IDS   50000
#define MANY        1000 /* segments */
#define SLOT_BYTES  (64 * KIB)
#define LARGE_BYTES (64 + LARGE_IDS * (8 + 4 * DIM))
#define WIDE_IDS    500
#define WIDE_BYTES  (64 + WIDE_IDS * (8 + 4 * WIDE_DIM))
#define MANY_BYTES  (MANY * 32 + SMALL_IDS * (8 + 4 * DIM))
#define ONE_BYTES   (MANY * 32 + 8 + 4 * WIDE_DIM)
#define PUSH_BYTES  (64 + ROWS * (8 + 4 * DIM))

static const struct lanes_shape one_lane = {
    .lane_count = 1, .slabs_per_lane = 8, .readers = 1, .write_queue_bytes = MIB
};

/* The linker puts these in place of the server's functions. */
enum embtier_err __real_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg);
enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg);
bool __real_push_trial_plan(struct push *push, uint64_t *cost);
bool __wrap_push_trial_plan(struct push *push, uint64_t *cost);

static _Atomic bool reads_wait;
static uint64_t plan_cost;       /* cost of the last push */
static uint64_t plan_cost_added; /* extra cost that the test adds */

enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg)
{
    while (atomic_load(&reads_wait))
        usleep(100);
    return __real_store_read(store, shard, rows, count, msg);
}

bool __wrap_push_trial_plan(struct push *push, uint64_t *cost)
{
    const uint64_t before = *cost;
    const bool tries = __real_push_trial_plan(push, cost);

    plan_cost = *cost - before;
    *cost += plan_cost_added;
    return tries;
}

static uint64_t held_time(void *context)
{
    (void)context;
    return 1000 * 1000;
}

/* Time stands still, so clients never need to ring. */
static const struct clock held_clock = { .now_ns = held_time };

/* A client that submits a request as soon as one of @slots slots is free. */
struct asker {
    struct client client;
    uint64_t table;
    uint32_t count; /* ids in each segment */
    uint32_t segments;
    uint32_t slots;
    uint32_t answered;
    uint64_t charged_before;
};

struct rounds {
    struct lanes_fixture x;
    struct lane *lane;
    uint64_t table, wide;
    uint64_t cold; /* none of its rows has been asked for */
};

static void touch(struct client *client, uint64_t table)
{
    float value;

    for (uint64_t id = 0; id < ROWS; id++)
        assert_int_equal(client_get_one(client, table, id, &value), EMBTIER_OK);
}

/* All rows of the first two tables are then cached. */
static void rounds_start(struct rounds *r, struct store_fixture *f)
{
    struct client client;

    lanes_start(&r->x, f, &one_lane);
    r->lane = r->x.lanes[0];
    r->table = fixture_table(&r->x, "t", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
    r->wide = fixture_table(&r->x, "wide", ROWS, WIDE_DIM, EMBTIER_OPTIMIZER_NONE);
    r->cold = fixture_table(&r->x, "cold", ROWS, WIDE_DIM, EMBTIER_OPTIMIZER_NONE);
    client = client_attach(&r->x, SLOT_BYTES);
    touch(&client, r->table);
    touch(&client, r->wide);
    client_detach(&client);
    lane_stop(r->lane);
    r->lane->opts.clock = &held_clock;
    r->lane->rounds_to_clock = 0;
}

static struct client attach(struct rounds *r, uint64_t slot_bytes)
{
    const struct client client = client_attach(&r->x, slot_bytes);

    (void)lane_round(r->lane);
    return client;
}

static void detach(struct rounds *r, struct client *client)
{
    struct session *const session = client->session;
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    bool gone = false;

    atomic_store(&session->gone, true);
    lane_detach(r->lane, session);
    while (!gone) {
        (void)lane_round(r->lane);
        for (struct message *m = inbox_take_all(&r->x.mail); m; m = m->next)
            gone |= m == &session->gone_message;
        assert_true(now_ns() < until);
    }
    client_free(client);
}

static struct asker asker_of(struct rounds *r, uint32_t count, uint32_t slots)
{
    return (struct asker){ .client = attach(r, count == LARGE_IDS ? LARGE_BYTES : SLOT_BYTES),
                           .table = r->table,
                           .count = count,
                           .slots = slots };
}

/* Fills in segments with the same ids and rows. */
static void fill_segments(struct asker *asker, uint32_t number)
{
    struct client *const client = &asker->client;
    struct op_segment *const segments = client_segment(client, number);
    uint64_t *const ids = (uint64_t *)(segments + asker->segments);

    for (uint32_t i = 0; i < asker->count; i++)
        ids[i] = i;
    for (uint32_t s = 0; s < asker->segments; s++)
        segments[s] = (struct op_segment){ .table = asker->table,
                                           .ids_offset = client_offset(client, ids),
                                           .rows_offset = client_offset(client, ids + asker->count),
                                           .id_count = asker->count };
    *client_submission(client, number) =
        (struct op_submission){ .op = OP_GET,
                                .segment_count = asker->segments,
                                .segments_offset = client_offset(client, segments) };
}

static void ask(struct asker *asker)
{
    struct client *const client = &asker->client;
    const uint32_t number = client->submitted;

    if (asker->segments > 0) {
        fill_segments(asker, number);
    } else {
        for (uint32_t i = 0; i < asker->count; i++)
            client_ids(client, number)[i] = i % ROWS;
        client_fill(client, number, OP_GET, 0, asker->table, asker->count);
    }
    client_publish(client);
}

static void go_on(struct asker *asker)
{
    while (asker->answered < asker->client.submitted &&
           client_is_done(&asker->client, asker->answered)) {
        assert_int_equal(client_wait(&asker->client, asker->answered)->err, EMBTIER_OK);
        asker->answered++;
    }
    while (asker->client.submitted - asker->answered < asker->slots)
        ask(asker);
}

static void go_round(struct rounds *r, struct asker *askers, uint32_t count, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        for (uint32_t a = 0; a < count; a++)
            go_on(&askers[a]);
        (void)lane_round(r->lane);
    }
}

static uint64_t due(const struct asker *asker)
{
    return asker->client.session->lanes[0].flow.due;
}

/* Starts counting here. Costs are charged from one round to the next. */
static void note(struct asker *askers, uint32_t count)
{
    for (uint32_t a = 0; a < count; a++)
        askers[a].charged_before = due(&askers[a]);
}

static void assert_same_cost(const struct asker *askers, uint32_t count)
{
    const uint64_t first = due(&askers[0]) - askers[0].charged_before;

    assert_true(first > 100 * LANE_TURN_COST);
    for (uint32_t a = 1; a < count; a++)
        assert_in_range(due(&askers[a]) - askers[a].charged_before, first / 10 * 9, first / 9 * 10);
}

static void test_two_in_closed_loops_share_the_lane_by_cost(void **state)
{
    struct rounds r;
    struct asker askers[2];
    uint64_t rows[2];

    rounds_start(&r, *state);
    askers[0] = asker_of(&r, LARGE_IDS, 2);
    askers[1] = asker_of(&r, SMALL_IDS, FIXTURE_SLOTS);
    go_round(&r, askers, 2, 100);
    note(askers, 2);
    for (uint32_t a = 0; a < 2; a++)
        rows[a] = (uint64_t)askers[a].answered * askers[a].count;
    for (const uint32_t before = askers[0].answered; askers[0].answered < before + 40;)
        go_round(&r, askers, 2, 1);
    assert_same_cost(askers, 2);
    for (uint32_t a = 0; a < 2; a++)
        rows[a] = (uint64_t)askers[a].answered * askers[a].count - rows[a];
    /* A small request costs some 180, or 11 a row. A large request's row costs 16, as it is not
     * cached. */
    assert_in_range(rows[1], rows[0] / 4 * 5, rows[0] / 4 * 7);
    for (uint32_t a = 0; a < 2; a++)
        detach(&r, &askers[a].client);
    lanes_stop(&r.x);
}

static void test_many_share_it_whatever_they_ask_for(void **state)
{
    struct rounds r;
    struct asker askers[5];

    rounds_start(&r, *state);
    askers[0] = asker_of(&r, LARGE_IDS, 2);
    askers[1] = asker_of(&r, SMALL_IDS, FIXTURE_SLOTS);
    askers[2] = asker_of(&r, 1, FIXTURE_SLOTS);
    askers[3] = (struct asker){ .client = attach(&r, MANY_BYTES),
                                .table = r.table,
                                .count = SMALL_IDS,
                                .segments = MANY,
                                .slots = 4 };
    askers[4] = (struct asker){
        .client = attach(&r, WIDE_BYTES), .table = r.wide, .count = WIDE_IDS, .slots = 3
    };
    go_round(&r, askers, 5, 100);
    note(askers, 5);
    go_round(&r, askers, 5, 40000);
    assert_same_cost(askers, 5);
    for (uint32_t a = 0; a < 5; a++) {
        assert_true(askers[a].answered > 5);
        detach(&r, &askers[a].client);
    }
    lanes_stop(&r.x);
}

/* The small session has nothing under way when it asks. Another session's turn has begun then, at
 * the latest. */
static void test_a_small_request_is_answered_soon_whatever_others_ask(void **state)
{
    /* A row of the wide table costs more than a turn. */
    const uint64_t most = 3 * LANE_TURN_COST + lane_row_cost(WIDE_DIM * sizeof(float), true);
    struct rounds r;
    struct asker askers[3];

    rounds_start(&r, *state);
    askers[0] = asker_of(&r, SMALL_IDS, 1);
    askers[1] = asker_of(&r, LARGE_IDS, 2);
    askers[2] = (struct asker){
        .client = attach(&r, WIDE_BYTES), .table = r.wide, .count = WIDE_IDS, .slots = 3
    };
    go_round(&r, askers, 1, 10); /* a lane notices a small session only after its request */
    for (uint32_t i = 0; i < 30000; i++) {
        const uint32_t answered = askers[0].answered;
        uint64_t charged = 0;

        while (!client_is_done(&askers[0].client, answered)) {
            go_round(&r, askers, 3, 1);
            charged += r.lane->schedule.charged;
            assert_true(r.lane->schedule.charged < most); /* no round is long either */
            assert_true(charged < 2 * most);
        }
        go_on(&askers[0]);
    }
    assert_true(askers[1].answered > 2 && askers[2].answered > 2);
    for (uint32_t a = 0; a < 3; a++)
        detach(&r, &askers[a].client);
    lanes_stop(&r.x);
}

/* Sends requests that are refused only after the lane has looked at all of their segments. */
static void ask_in_vain(struct asker *asker)
{
    struct client *const client = &asker->client;

    while (asker->answered < client->submitted && client_is_done(client, asker->answered)) {
        assert_int_equal(client_wait(client, asker->answered)->err, EMBTIER_OFFSET_RANGE);
        asker->answered++;
    }
    while (client->submitted - asker->answered < asker->slots) {
        const uint32_t number = client->submitted;

        fill_segments(asker, number);
        client_segment(client, number)[asker->segments - 1].rows_offset = UINT64_C(1) << 62;
        client_publish(client);
    }
}

static void test_a_small_request_waits_for_one_dear_refusal_at_most(void **state)
{
    enum { VAIN = 12 };
    struct rounds r;
    struct asker small, vain[VAIN];

    rounds_start(&r, *state);
    small = asker_of(&r, SMALL_IDS, 1);
    for (uint32_t a = 0; a < VAIN; a++)
        vain[a] = (struct asker){ .client = attach(&r, MANY_BYTES),
                                  .table = r.table,
                                  .count = SMALL_IDS,
                                  .segments = MANY,
                                  .slots = 1 + a % 3 };
    for (uint32_t i = 0; i < 2000; i++) {
        const uint32_t answered = small.answered;
        uint64_t segments;

        for (uint32_t a = 0; a < VAIN; a++)
            ask_in_vain(&vain[a]);
        (void)lane_round(r.lane);
        segments = r.lane->segments;
        go_on(&small);
        while (small.answered == answered) {
            for (uint32_t a = 0; a < VAIN; a++)
                ask_in_vain(&vain[a]);
            (void)lane_round(r.lane);
            go_on(&small);
        }
        if (i >= 100) /* the cost of refusals is known by then */
            assert_true(r.lane->segments - segments <= 2 * MANY + 2);
    }
    for (uint32_t a = 0; a < VAIN; a++) {
        assert_true(vain[a].answered > 10);
        detach(&r, &vain[a].client);
    }
    detach(&r, &small.client);
    lanes_stop(&r.x);
}

static void test_a_session_that_was_idle_is_not_paid_for_it(void **state)
{
    struct rounds r;
    struct asker askers[2];

    rounds_start(&r, *state);
    askers[0] = asker_of(&r, LARGE_IDS, 2);
    askers[1] = asker_of(&r, LARGE_IDS, 2);
    go_round(&r, &askers[1], 1, 1);
    go_round(&r, &askers[0], 1, 4000); /* alone, except for the other's first requests */
    go_round(&r, askers, 2, 1);
    note(askers, 2);
    go_round(&r, askers, 2, 2000);
    assert_same_cost(askers, 2);
    for (uint32_t a = 0; a < 2; a++)
        detach(&r, &askers[a].client);
    lanes_stop(&r.x);
}

/* ---- Long pieces of work ---- */

/* Runs rounds until the condition holds. Other threads take part, so the number of rounds
 * varies. */
#define GO_ROUND_UNTIL(r, condition)                                                               \
    for (const uint64_t until = now_ns() + FIXTURE_WAIT_NS; !(condition);) {                       \
        if (!lane_round((r)->lane))                                                                \
            sched_yield();                                                                         \
        assert_true(now_ns() < until);                                                             \
    }

/* Asks for row 0 of the cold table many times. All answers lie at one place. */
static uint32_t ask_for_one_row(struct rounds *r, struct client *client, enum op_number op,
                                uint32_t segments, float value)
{
    const uint32_t number = client->submitted;
    struct op_segment *const at = client_segment(client, number);
    uint64_t *const id = (uint64_t *)(at + MANY);

    *id = 0;
    for (uint32_t c = 0; c < WIDE_DIM; c++)
        ((float *)(id + 1))[c] = value;
    for (uint32_t s = 0; s < segments; s++)
        at[s] = (struct op_segment){ .table = r->cold,
                                     .ids_offset = client_offset(client, id),
                                     .rows_offset = client_offset(client, id + 1),
                                     .id_count = 1 };
    *client_submission(client, number) = (struct op_submission){
        .op = op, .segment_count = segments, .segments_offset = client_offset(client, at)
    };
    client_publish(client);
    return number;
}

static void assert_row_is(const struct client *client, uint32_t number, float value)
{
    const float *const row =
        (const float *)((const uint64_t *)(client_segment(client, number) + MANY) + 1);

    assert_int_equal(client_wait(client, number)->err, EMBTIER_OK);
    for (uint32_t c = 0; c < WIDE_DIM; c++)
        assert_true(row[c] == value);
}

/* Requests that wait for one row are served a few at a time, in order, including those that come
 * meanwhile. */
static void test_a_row_that_many_wait_for_holds_no_session_up(void **state)
{
    struct rounds r;
    struct client client, other;
    uint64_t charged = 0;
    uint32_t rounds = 0;
    uint32_t late = 0;

    rounds_start(&r, *state);
    client = attach(&r, ONE_BYTES);
    other = attach(&r, ONE_BYTES);
    atomic_store(&reads_wait, true);
    ask_for_one_row(&r, &client, OP_GET, MANY, 0);
    ask_for_one_row(&r, &client, OP_SET, MANY, 7);
    ask_for_one_row(&r, &client, OP_GET, MANY, 0);
    GO_ROUND_UNTIL(&r, r.lane->rows.counts.shared_reads == 2 * MANY - 1); /* all waiting GETs */
    charged = client.session->lanes[0].flow.due;
    atomic_store(&reads_wait, false);
    GO_ROUND_UNTIL(&r, client.session->lanes[0].flow.due != charged);
    for (; !client_is_done(&client, 0); rounds++) {
        charged = client.session->lanes[0].flow.due;
        if (rounds == 20)
            late = ask_for_one_row(&r, &other, OP_GET, MANY, 0);
        (void)lane_round(r.lane);
        assert_true(client.session->lanes[0].flow.due - charged < 2 * LANE_TURN_COST_LONG);
    }
    assert_true(rounds > 30);
    GO_ROUND_UNTIL(&r, client_is_done(&client, 2) && client_is_done(&other, late));
    assert_row_is(&client, 0, 0.5f); /* the initial value of all rows */
    assert_row_is(&client, 1, 7);
    assert_row_is(&client, 2, 7);
    assert_row_is(&other, late, 7);
    late = ask_for_one_row(&r, &other, OP_GET, 1, 0);
    GO_ROUND_UNTIL(&r, client_is_done(&other, late));
    assert_row_is(&other, late, 7);
    detach(&r, &client);
    detach(&r, &other);
    lanes_stop(&r.x);
}

/* Pushes each row of @table once. */
static void push_rows(struct client *client, uint64_t table, float gradient)
{
    const uint32_t number = client->submitted;
    struct op_push_segment *const segment = (void *)client_segment(client, number);
    uint64_t *const ids = (uint64_t *)(segment + 1);
    float *const gradients = (float *)(ids + ROWS);

    for (uint32_t i = 0; i < ROWS; i++)
        ids[i] = i;
    for (uint32_t i = 0; i < ROWS * DIM; i++)
        gradients[i] = gradient;
    *segment = (struct op_push_segment){ .table = table,
                                         .ids_offset = client_offset(client, ids),
                                         .gradients_offset = client_offset(client, gradients),
                                         .learning_rate = 1,
                                         .count = ROWS,
                                         .dim = DIM };
    *client_submission(client, number) =
        (struct op_submission){ .op = OP_PUSH,
                                .segment_count = 1,
                                .segments_offset = client_offset(client, segment),
                                .step = 1 };
    client_publish(client);
    assert_int_equal(client_wait(client, number)->err, EMBTIER_OK);
}

struct charged {
    const struct client *client;
    uint64_t due;
};

static void call_charged(struct lane *lane, void *argument)
{
    struct charged *const charged = argument;

    charged->due = charged->client->session->lanes[lane->opts.index].flow.due;
}

/* Keeps the lane's thread: a push needs the caster, which ends with that thread. */
static void test_a_push_pays_for_the_look_whether_rows_stay_finite(void **state)
{
    struct lanes_fixture x;
    struct client client;
    struct charged before = { .client = &client }, after = before;
    uint64_t table;

    lanes_start(&x, *state, &one_lane);
    table = fixture_table(&x, "pushed", ROWS, DIM, EMBTIER_OPTIMIZER_SGD);
    client = client_attach(&x, PUSH_BYTES);
    push_rows(&client, table, 1);
    assert_int_equal(plan_cost, 0);
    /* The rows would not stay finite if all gradients were one row's. The look at each row shows
     * that none has more than one gradient. */
    push_rows(&client, table, 0x1p95f);
    assert_int_equal(plan_cost, div_round_up(ROWS * sizeof(uint32_t), LANE_COST_BYTES));
    lane_call(x.lanes[0], call_charged, &before);
    plan_cost_added = UINT64_C(1) << 40;
    push_rows(&client, table, 1);
    lane_call(x.lanes[0], call_charged, &after);
    assert_true(after.due - before.due > plan_cost_added);
    plan_cost_added = 0;
    client_detach(&client);
    lanes_stop(&x);
}

/* ---- Memory ---- */

static void test_a_request_is_not_looked_at_again_while_it_waits_for_memory(void **state)
{
    struct request_memory_share share = { 0 };
    struct rounds r;
    struct asker asker, small;
    void *all;

    rounds_start(&r, *state);
    asker = (struct asker){ .client = attach(&r, MANY_BYTES),
                            .table = r.table,
                            .count = SMALL_IDS,
                            .segments = MANY,
                            .slots = 1 };
    small = asker_of(&r, SMALL_IDS, 1);
    all = request_memory_take(r.x.memory, &share, request_memory_largest(r.x.memory),
                              REQUEST_MEMORY_ENDS);
    assert_non_null(all);
    go_round(&r, &asker, 1, 3);
    assert_int_equal(r.lane->segments, 2 * ROWS + MANY);
    go_round(&r, &small, 1, 1000); /* others are served meanwhile */
    assert_true(small.answered > 300);
    assert_int_equal(asker.answered, 0);
    assert_int_equal(r.lane->segments, 2 * ROWS + MANY + small.answered + 1);
    request_memory_give(r.x.memory, all);
    for (uint32_t i = 0; i < 20000 && asker.answered == 0; i++)
        go_round(&r, &asker, 1, 1);
    assert_true(asker.answered > 0);
    detach(&r, &asker.client);
    detach(&r, &small.client);
    lanes_stop(&r.x);
}

/* The client may change a request while it waits. The lane begins the request as it is at that
 * time. */
static void test_a_request_that_changes_while_it_waits_is_begun_as_it_is_then(void **state)
{
    struct request_memory_share share = { 0 };
    struct rounds r;
    void *all;

    rounds_start(&r, *state);
    for (uint32_t change = 0; change < 4; change++) {
        struct asker asker = {
            .client = attach(&r, MANY_BYTES), .table = r.table, .count = SMALL_IDS, .segments = MANY
        };
        struct op_segment *const segments = client_segment(&asker.client, 0);
        const struct op_completion *done;

        all = request_memory_take(r.x.memory, &share, request_memory_largest(r.x.memory),
                                  REQUEST_MEMORY_ENDS);
        assert_non_null(all);
        ask(&asker);
        go_round(&r, &asker, 1, 3);
        assert_false(client_is_done(&asker.client, 0));
        if (change == 0)
            segments[MANY - 1].table = 0;
        else if (change == 1)
            segments[MANY - 1].ids_offset = UINT64_C(1) << 62;
        else if (change == 2)
            segments[MANY - 1].id_count = 0; /* needs less memory */
        else
            client_submission(&asker.client, 0)->segment_count = 1;
        request_memory_give(r.x.memory, all);
        for (uint32_t i = 0; i < 20000 && !client_is_done(&asker.client, 0); i++)
            go_round(&r, &asker, 1, 1);
        done = client_wait(&asker.client, 0);
        assert_int_equal(done->err, change == 0   ? EMBTIER_NO_TABLE
                                    : change == 1 ? EMBTIER_OFFSET_RANGE
                                                  : EMBTIER_OK);
        detach(&r, &asker.client);
    }
    all = request_memory_take(r.x.memory, &share, request_memory_largest(r.x.memory),
                              REQUEST_MEMORY_ENDS);
    assert_non_null(all); /* no memory is kept */
    request_memory_give(r.x.memory, all);
    lanes_stop(&r.x);
}

/* The session withdraws its request, or goes, after the memory was granted and before it has heard
 * of the grant. */
static void test_memory_of_one_that_takes_its_request_back_or_goes_is_free(void **state)
{
    struct request_memory_share share = { 0 };
    struct rounds r;

    rounds_start(&r, *state);
    for (uint32_t goes = 0; goes < 2; goes++) {
        struct asker asker = {
            .client = attach(&r, MANY_BYTES), .table = r.table, .count = SMALL_IDS, .segments = MANY
        };
        void *all = request_memory_take(r.x.memory, &share, request_memory_largest(r.x.memory),
                                        REQUEST_MEMORY_ENDS);

        assert_non_null(all);
        ask(&asker);
        go_round(&r, &asker, 1, 3);
        request_memory_give(r.x.memory, all);
        assert_null(request_memory_take(r.x.memory, &share, request_memory_largest(r.x.memory),
                                        REQUEST_MEMORY_ENDS));
        if (goes) {
            detach(&r, &asker.client);
        } else {
            client_publish_tail(&asker.client, 0);
            go_round(&r, &asker, 1, 3);
        }
        all = request_memory_take(r.x.memory, &share, request_memory_largest(r.x.memory),
                                  REQUEST_MEMORY_ENDS);
        assert_non_null(all);
        request_memory_give(r.x.memory, all);
        if (!goes)
            detach(&r, &asker.client);
    }
    lanes_stop(&r.x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_two_in_closed_loops_share_the_lane_by_cost),
        T(test_many_share_it_whatever_they_ask_for),
        T(test_a_small_request_is_answered_soon_whatever_others_ask),
        T(test_a_small_request_waits_for_one_dear_refusal_at_most),
        T(test_a_session_that_was_idle_is_not_paid_for_it),
        T(test_a_row_that_many_wait_for_holds_no_session_up),
        T(test_a_push_pays_for_the_look_whether_rows_stay_finite),
        T(test_a_request_is_not_looked_at_again_while_it_waits_for_memory),
        T(test_a_request_that_changes_while_it_waits_is_begun_as_it_is_then),
        T(test_memory_of_one_that_takes_its_request_back_or_goes_is_free),
#undef T
    };

    return cmocka_run_group_tests_name("turns of a lane", tests, NULL, NULL);
}
