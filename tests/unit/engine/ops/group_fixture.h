/* SPDX-License-Identifier: Apache-2.0 */
/* group_fixture.h: a group of three trainers on lanes, and the model that holds their rows. Each
 * test program includes it once. */
#ifndef EMBTIER_TESTS_UNIT_ENGINE_OPS_GROUP_FIXTURE_H
#define EMBTIER_TESTS_UNIT_ENGINE_OPS_GROUP_FIXTURE_H

#include "tests/unit/engine/ops/push_fixture.h"

#include "daemon/engine/ops/groups/group.h"

#define MEMBERS 3
#define ROW_IDS 600 /* rows per table in a push of rows */

/* Member 0 is the fixture's client and pushes by ticket. The others push rows. */
struct training {
    struct pushing p;
    struct groups *groups;
    uint64_t waiting_bytes_max; /* 0: 1 MiB */
    struct clock clock;
    _Atomic uint64_t clock_ns;
    struct client others[MEMBERS];
    uint64_t handles[MEMBERS];
    uint64_t ids[MEMBERS][TABLES][ROW_IDS]; /* in the last push of the other members */
    float gradients[MEMBERS][TABLES][ROW_IDS * DIM];
};

static inline uint64_t clock_of(void *context)
{
    return atomic_load((_Atomic uint64_t *)context);
}

static inline struct client *member_client(struct training *t, uint32_t m)
{
    return m == 0 ? &t->p.p.client : &t->others[m];
}

static inline enum embtier_err join_as(struct training *t, const struct client *client,
                                       const char *name, uint32_t size, uint32_t member,
                                       uint64_t step, uint64_t *ret_handle)
{
    struct group_joined joined = { 0 };
    struct err_msg msg = { { 0 } };
    const enum embtier_err err = groups_join(
        t->groups, client->session,
        &(struct group_join){
            .name = name, .user = FIXTURE_UID, .size = size, .member = member, .step = step },
        &joined, &msg);

    if (err == EMBTIER_OK)
        assert_int_equal(joined.step, step);
    else
        assert_true(msg.text[0]);
    *ret_handle = joined.handle;
    return err;
}

static inline void join(struct training *t, uint32_t m, uint64_t step)
{
    assert_int_equal(join_as(t, member_client(t, m), "g", MEMBERS, m, step, &t->handles[m]),
                     EMBTIER_OK);
}

static inline void training_start(struct training *t, struct store_fixture *f,
                                  const struct lanes_shape *shape)
{
    struct err_msg msg = { { 0 } };

    pushing_start(&t->p, f, shape);
    t->clock_ns = 1;
    t->clock = (struct clock){ .now_ns = clock_of, .context = &t->clock_ns };
    must(groups_new(1000, t->waiting_bytes_max ? t->waiting_bytes_max : 1 * MIB, t->p.p.x.accounts,
                    &t->clock, &t->groups, &msg),
         &msg);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        if (m > 0)
            t->others[m] = client_attach(&t->p.p.x, UINT64_C(1) << 20);
        join(t, m, 0);
    }
}

static inline void training_stop(struct training *t)
{
    for (uint32_t m = 1; m < MEMBERS; m++)
        if (t->others[m].session)
            client_detach(&t->others[m]);
    pushing_stop(&t->p);
    groups_free(t->groups);
}

static inline void leave(struct training *t, uint32_t m)
{
    client_detach(&t->others[m]);
    t->others[m].session = NULL;
}

/* ---- Pushes ---- */

static inline struct op_submission *submission_of(const struct client *client, uint32_t number)
{
    return client_submission(client, number);
}

/* Lays out member @m's next push of rows, of ids below @rows, and returns its segments. */
static inline struct op_push_segment *lay_rows_out(struct training *t, uint32_t m, uint32_t rows)
{
    struct client *const client = member_client(t, m);
    struct op_push_segment *const segments = (void *)client_segment(client, client->submitted);
    uint8_t *place = (uint8_t *)(segments + TABLES);

    for (uint32_t n = 0; n < TABLES; n++) {
        segments[n] = (struct op_push_segment){ .table = t->p.tables[n].handle,
                                                .ids_offset = client_offset(client, place),
                                                .learning_rate = 0.01,
                                                .count = ROW_IDS,
                                                .dim = DIM };
        for (uint32_t i = 0; i < ROW_IDS; i++)
            t->ids[m][n][i] = below(&t->p, 3) ? below(&t->p, rows) : below(&t->p, 7);
        memcpy(place, t->ids[m][n], sizeof(t->ids[m][n]));
        place += sizeof(t->ids[m][n]);
        segments[n].gradients_offset = client_offset(client, place);
        for (uint32_t i = 0; i < ROW_IDS * DIM; i++)
            t->gradients[m][n][i] = some_float(&t->p);
        memcpy(place, t->gradients[m][n], sizeof(t->gradients[m][n]));
        place += sizeof(t->gradients[m][n]);
    }
    *submission_of(client, client->submitted) =
        (struct op_submission){ .op = OP_PUSH,
                                .segment_count = TABLES,
                                .segments_offset = client_offset(client, segments),
                                .step = t->p.step,
                                .group = t->handles[m] };
    return segments;
}

static inline uint32_t send_push(struct training *t, uint32_t m)
{
    struct client *const client = member_client(t, m);

    client_publish(client);
    return client->submitted - 1;
}

static inline const struct op_completion *answer(struct training *t, uint32_t m, uint32_t number)
{
    return client_wait(member_client(t, m), number);
}

struct arrival {
    struct session *session;
    enum push_stage stage;
    bool arrived;
};

static inline void call_arrived(struct lane *lane, void *argument)
{
    struct arrival *const a = argument;
    const struct push *const push = push_being_taken(a->session);

    (void)lane;
    a->arrived =
        push && push->stage == a->stage && (a->stage != PUSH_TRYING || push->waves.under_way > 0);
}

/* Waits until member @m's push has reached @stage. */
static inline void await_stage(struct training *t, uint32_t m, enum push_stage stage)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    struct arrival a = { .session = member_client(t, m)->session, .stage = stage };
    unsigned looks = 0;

    for (;;) {
        lane_call(t->p.p.x.lanes[a.session->home], call_arrived, &a);
        if (a.arrived)
            return;
        assert_true(now_ns() < until);
        fixture_pause(&looks);
    }
}

/* Waits until member @m's push has arrived at the group. */
static inline void await_arrival(struct training *t, uint32_t m)
{
    await_stage(t, m, PUSH_ARRIVED);
}

/* Sends the pushes that all members have laid out. Each must be answered with @err. */
static inline void push_all(struct training *t, enum embtier_err err)
{
    uint32_t numbers[MEMBERS] = { 0 };

    for (uint32_t m = 0; m < MEMBERS; m++)
        numbers[m] = send_push(t, m);
    for (uint32_t m = 0; m < MEMBERS; m++)
        assert_int_equal(answer(t, m, numbers[m])->err, err);
}

/* Lays out member 0's push of bags for step @t->p.step + 1, and makes that the current step. */
static inline struct op_push_segment *lay_bags_push_out(struct training *t, uint32_t rows,
                                                        uint32_t bag_count)
{
    struct op_pool_segment *segments, looked_up[SEGMENTS];
    uint64_t ticket;
    struct op_push_segment *push;

    for (uint32_t s = 0; s < SEGMENTS; s++)
        make_bags(&t->p, &t->p.p.bags[s], s, below(&t->p, 3) == 0, rows, bag_count);
    ticket = look_up(&t->p, t->p.p.bags, &segments);
    memcpy(looked_up, segments, sizeof(looked_up));
    push = lay_push_out(&t->p, t->p.p.bags, looked_up, ticket);
    for (uint32_t s = 0; s < SEGMENTS; s++)
        push[s].weights_offset = 0;
    submission_of(&t->p.p.client, t->p.p.client.submitted)->group = t->handles[0];
    return push;
}

/* ---- The model ---- */

static inline void add_rows(const struct training *t, uint32_t m, uint32_t n, float *sums,
                            bool *is_there)
{
    for (uint32_t i = 0; i < ROW_IDS; i++) {
        const uint64_t id = t->ids[m][n][i];

        is_there[id] = true;
        for (uint32_t c = 0; c < DIM; c++)
            sums[id * DIM + c] += t->gradients[m][n][i * DIM + c];
    }
}

static inline void add_bags(struct training *t, uint32_t n, float *sums, bool *is_there)
{
    struct pair *const pairs = calloc(SEGMENTS * IDS_MOST, sizeof(*pairs));
    uint32_t count;

    assert_non_null(pairs);
    count = pairs_of(&t->p, t->p.p.bags, &t->p.tables[n], pairs);
    for (uint32_t i = 0; i < count; i++) {
        is_there[pairs[i].row] = true;
        add_gradient(&t->p, &t->p.p.bags[pairs[i].segment], &pairs[i], sums + pairs[i].row * DIM);
    }
    free(pairs);
}

/* Applies the step to the shadows: sums up each member's gradients alone, then adds the sums. */
static inline void step_to_shadows(struct training *t)
{
    float *const sums = calloc((size_t)TABLE_ROWS * DIM, sizeof(float));
    float *const total = calloc((size_t)TABLE_ROWS * DIM, sizeof(float));
    bool *const is_there = calloc(TABLE_ROWS, sizeof(bool));

    assert_true(sums && total && is_there);
    for (uint32_t n = 0; n < TABLES; n++) {
        struct shadow *const shadow = &t->p.tables[n];
        struct optimizer_push push;

        memset(total, 0, (size_t)TABLE_ROWS * DIM * sizeof(float));
        memset(is_there, 0, TABLE_ROWS * sizeof(bool));
        for (uint32_t m = 0; m < MEMBERS; m++) {
            memset(sums, 0, (size_t)TABLE_ROWS * DIM * sizeof(float));
            if (m == 0)
                add_bags(t, n, sums, is_there);
            else
                add_rows(t, m, n, sums, is_there);
            for (uint32_t i = 0; i < TABLE_ROWS * DIM; i++)
                total[i] += sums[i];
        }
        optimizer_prepare(&shadow->spec, 0.01, t->p.step, &push);
        for (uint64_t id = 0; id < TABLE_ROWS; id++) {
            void *row = row_of(shadow, id);

            if (is_there[id])
                optimizer_update(&push, &id, &row, total + id * DIM, 1);
        }
    }
    free(is_there);
    free(total);
    free(sums);
}

static inline void take_step(struct training *t, uint32_t rows, uint32_t bag_count)
{
    uint32_t numbers[MEMBERS] = { 0 };
    uint32_t order[MEMBERS] = { 0, 1, 2 };

    lay_bags_push_out(t, rows, bag_count);
    for (uint32_t m = 1; m < MEMBERS; m++)
        lay_rows_out(t, m, rows);
    for (uint32_t i = MEMBERS - 1; i > 0; i--) {
        const uint32_t j = below(&t->p, i + 1);
        const uint32_t kept = order[i];

        order[i] = order[j];
        order[j] = kept;
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        numbers[order[i]] = send_push(t, order[i]);
    for (uint32_t m = 0; m < MEMBERS; m++)
        assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_OK);
    step_to_shadows(t);
}

static inline void again(struct training *t, const struct op_submission *first)
{
    *submission_of(&t->p.p.client, t->p.p.client.submitted) = *first;
    for (uint32_t m = 1; m < MEMBERS; m++)
        lay_rows_out(t, m, 50);
    push_all(t, EMBTIER_OK);
    step_to_shadows(t);
}

static inline struct training *begin_with(void **state, const struct lanes_shape *shape,
                                          struct op_submission *ret_first)
{
    struct training *const t = calloc(1, sizeof(*t));

    assert_non_null(t);
    training_start(t, *state, shape);
    take_step(t, 50, 4);
    lay_bags_push_out(t, 50, 4);
    *ret_first = *submission_of(&t->p.p.client, t->p.p.client.submitted);
    return t;
}

static inline struct training *begin(void **state, struct op_submission *ret_first)
{
    return begin_with(state, &shapes[1], ret_first);
}

static inline void end(struct training *t)
{
    assert_rows(&t->p);
    training_stop(t);
    free(t);
}

#endif
