/* SPDX-License-Identifier: Apache-2.0 */
/* Do the pushes of a group's members give, bit for bit, what each of them reduced by itself and
 * added up in member order gives? Is a step that cannot be applied refused to all of them, without
 * one row changed, and does nobody wait for a member that is gone? */
#include "tests/unit/engine/ops/push_fixture.h"

#include "daemon/engine/ops/group.h"

/* The linker puts this in the place of the readers' call. */
enum embtier_err __real_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg);
enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg);

static _Atomic bool reads_wait;

enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg)
{
    while (atomic_load(&reads_wait))
        usleep(100);
    return __real_store_read(store, shard, rows, count, msg);
}

#define MEMBERS 3
#define ROW_IDS 600 /* of a push of rows, and table */

/* Member 0 is the fixture's client and pushes by ticket; the others push rows. */
struct training {
    struct pushing p;
    struct groups *groups;
    uint64_t waiting_bytes_max; /* 0: some */
    struct clock clock;
    _Atomic uint64_t clock_ns;
    struct client others[MEMBERS];
    uint64_t handles[MEMBERS];
    uint64_t ids[MEMBERS][TABLES][ROW_IDS]; /* of the last push of the others */
    float gradients[MEMBERS][TABLES][ROW_IDS * DIM];
};

static uint64_t clock_of(void *context)
{
    return atomic_load((_Atomic uint64_t *)context);
}

static struct client *member_client(struct training *t, uint32_t m)
{
    return m == 0 ? &t->p.p.client : &t->others[m];
}

static enum embtier_err join_as(struct training *t, const struct client *client, const char *name,
                                uint32_t size, uint32_t member, uint64_t step, uint64_t *ret_handle)
{
    struct group_joined joined = { 0 };
    struct err_msg msg = { { 0 } };
    const enum embtier_err err = groups_join(
        t->groups, client->session,
        &(struct group_join){
            .name = name, .uid = FIXTURE_UID, .size = size, .member = member, .step = step },
        &joined, &msg);

    if (err == EMBTIER_OK)
        assert_int_equal(joined.step, step);
    else
        assert_true(msg.text[0]);
    *ret_handle = joined.handle;
    return err;
}

static void join(struct training *t, uint32_t m, uint64_t step)
{
    assert_int_equal(join_as(t, member_client(t, m), "g", MEMBERS, m, step, &t->handles[m]),
                     EMBTIER_OK);
}

static void training_start(struct training *t, struct store_fixture *f,
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

static void training_stop(struct training *t)
{
    for (uint32_t m = 1; m < MEMBERS; m++)
        if (t->others[m].session)
            client_detach(&t->others[m]);
    pushing_stop(&t->p);
    groups_free(t->groups);
}

static void leave(struct training *t, uint32_t m)
{
    client_detach(&t->others[m]);
    t->others[m].session = NULL;
}

/* ---- Pushes ---- */

static struct shm_submission *submission_of(const struct client *client, uint32_t number)
{
    return &shm_submissions(client->session->arena)[number % FIXTURE_SLOTS];
}

/* Lays out member @m's next push of rows, of ids below @rows, and returns its segments. */
static struct shm_push_segment *lay_rows_out(struct training *t, uint32_t m, uint32_t rows)
{
    struct client *const client = member_client(t, m);
    struct shm_push_segment *const segments = (void *)client_segment(client, client->submitted);
    uint8_t *place = (uint8_t *)(segments + TABLES);

    for (uint32_t n = 0; n < TABLES; n++) {
        segments[n] = (struct shm_push_segment){ .table = t->p.tables[n].handle,
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
        (struct shm_submission){ .op = SHM_OP_PUSH,
                                 .segment_count = TABLES,
                                 .segments_offset = client_offset(client, segments),
                                 .step = t->p.step,
                                 .group = t->handles[m] };
    return segments;
}

static uint32_t send(struct training *t, uint32_t m)
{
    struct client *const client = member_client(t, m);

    client_publish(client);
    return client->submitted - 1;
}

static const struct shm_completion *answer(struct training *t, uint32_t m, uint32_t number)
{
    return client_wait(member_client(t, m), number);
}

struct arrival {
    struct session *session;
    enum push_stage stage;
    bool arrived;
};

static void call_arrived(struct lane *lane, void *argument)
{
    struct arrival *const a = argument;
    const struct taking *const taking = &a->session->taking;

    (void)lane;
    a->arrived = taking->kind == TAKING_PUSH && taking->push->stage == a->stage &&
                 (a->stage != PUSH_TRYING || taking->push->under_way > 0);
}

/* Until what member @m has sent is there. */
static void await_stage(struct training *t, uint32_t m, enum push_stage stage)
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

/* Until the group has it. */
static void await_arrival(struct training *t, uint32_t m)
{
    await_stage(t, m, PUSH_ARRIVED);
}

/* Sends what all members have laid out; each is answered with @err. */
static void push_all(struct training *t, enum embtier_err err)
{
    uint32_t numbers[MEMBERS] = { 0 };

    for (uint32_t m = 0; m < MEMBERS; m++)
        numbers[m] = send(t, m);
    for (uint32_t m = 0; m < MEMBERS; m++)
        assert_int_equal(answer(t, m, numbers[m])->err, err);
}

/* Member 0's push of bags, laid out for step @t->p.step + 1, which it makes that. */
static struct shm_push_segment *lay_bags_push_out(struct training *t, uint32_t rows,
                                                  uint32_t bag_count)
{
    struct shm_pool_segment *segments, looked_up[SEGMENTS];
    uint64_t ticket;
    struct shm_push_segment *push;

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

static void add_rows(const struct training *t, uint32_t m, uint32_t n, float *sums, bool *is_there)
{
    for (uint32_t i = 0; i < ROW_IDS; i++) {
        const uint64_t id = t->ids[m][n][i];

        is_there[id] = true;
        for (uint32_t c = 0; c < DIM; c++)
            sums[id * DIM + c] += t->gradients[m][n][i * DIM + c];
    }
}

static void add_bags(struct training *t, uint32_t n, float *sums, bool *is_there)
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

/* What the step makes of the rows: each member's gradients by themselves, then added up. */
static void step_to_shadows(struct training *t)
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

/* ---- Tests ---- */

static void take_step(struct training *t, uint32_t rows, uint32_t bag_count)
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
        numbers[order[i]] = send(t, order[i]);
    for (uint32_t m = 0; m < MEMBERS; m++)
        assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_OK);
    step_to_shadows(t);
}

static void test_a_step_is_the_sum_of_its_members_reduced_one_by_one(void **state)
{
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        struct training *const t = calloc(1, sizeof(*t));
        struct group_stats stats;

        assert_non_null(t);
        training_start(t, *state, &shapes[s]);
        for (uint32_t step = 0; step < 12; step++)
            take_step(t, step % 3 ? TABLE_ROWS : 50, step % 4 ? 200 : 2);
        assert_rows(&t->p);
        groups_stats(t->groups, &stats);
        assert_int_equal(stats.steps, 12);
        assert_int_equal(stats.refused_steps, 0);
        training_stop(t);
        free(t);
    }
}

/* Nobody of the group but @m was at fault: the others are told that it was @m, and why. Then a step
 * goes well, by the ticket that member 0 has still. */
static void assert_refused_to_all(struct training *t, uint32_t m, enum embtier_err why,
                                  const uint32_t *numbers)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const struct shm_completion *const done = answer(t, i, numbers[i]);

        assert_int_equal(done->err, i == m ? why : EMBTIER_GROUP_REFUSED);
        if (i == m)
            continue;
        assert_int_equal(done->value, m);
        assert_int_equal(done->limit, why);
    }
}

static void again(struct training *t, const struct shm_submission *first)
{
    *submission_of(&t->p.p.client, t->p.p.client.submitted) = *first;
    for (uint32_t m = 1; m < MEMBERS; m++)
        lay_rows_out(t, m, 50);
    push_all(t, EMBTIER_OK);
    step_to_shadows(t);
}

static struct training *begin_with(void **state, const struct lanes_shape *shape,
                                   struct shm_submission *ret_first)
{
    struct training *const t = calloc(1, sizeof(*t));

    assert_non_null(t);
    training_start(t, *state, shape);
    take_step(t, 50, 4);
    lay_bags_push_out(t, 50, 4);
    *ret_first = *submission_of(&t->p.p.client, t->p.p.client.submitted);
    return t;
}

static struct training *begin(void **state, struct shm_submission *ret_first)
{
    return begin_with(state, &shapes[1], ret_first);
}

static void end(struct training *t)
{
    assert_rows(&t->p);
    training_stop(t);
    free(t);
}

static void test_a_push_that_is_refused_is_refused_to_all(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    uint32_t numbers[MEMBERS] = { 0 };

    for (uint32_t at = 0; at < 2; at++) { /* before the others, and after them */
        struct shm_push_segment *segments;

        if (at > 0)
            *submission_of(&t->p.p.client, t->p.p.client.submitted) = first;
        segments = lay_rows_out(t, 1, 50);
        ((float *)((uint8_t *)t->others[1].session->arena + segments[1].gradients_offset))[5] = NAN;
        if (at == 0) {
            numbers[1] = send(t, 1);
            assert_int_equal(answer(t, 1, numbers[1])->err, EMBTIER_NONFINITE);
        }
        lay_rows_out(t, 2, 50);
        numbers[2] = send(t, 2);
        numbers[0] = send(t, 0);
        if (at > 0)
            numbers[1] = send(t, 1);
        assert_refused_to_all(t, 1, EMBTIER_NONFINITE, numbers);
    }
    assert_rows(&t->p);
    again(t, &first);
    end(t);
}

/* What each member has of it is finite; what they have together is not. */
static void test_a_step_that_would_ruin_a_row_is_refused_to_all_and_not_made(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    const struct shadow *const shadow = &t->p.tables[1];
    uint32_t numbers[MEMBERS] = { 0 };

    for (uint32_t i = 0; i < 2; i++) {
        *submission_of(&t->p.p.client, t->p.p.client.submitted) = first;
        for (uint32_t m = 1; m < MEMBERS; m++) {
            const struct shm_push_segment *const segment = &lay_rows_out(t, m, 50)[1];
            uint8_t *const arena = (uint8_t *)t->others[m].session->arena;

            *(uint64_t *)(arena + segment->ids_offset) = 49;
            *(float *)(arena + segment->gradients_offset) = 3e38f;
        }
        for (uint32_t m = 0; m < MEMBERS; m++)
            numbers[m] = send(t, m);
        for (uint32_t m = 0; m < MEMBERS; m++) {
            const struct shm_completion *const done = answer(t, m, numbers[m]);

            assert_int_equal(done->err, EMBTIER_NONFINITE);
            assert_int_equal(done->segment, UINT32_MAX);
            assert_int_equal(done->value, shadow->handle >> 32);
            assert_int_equal(done->limit, 49);
        }
    }
    assert_rows(&t->p);
    again(t, &first);
    end(t);
}

static void call_nothing(struct lane *lane, void *argument)
{
    (void)lane;
    (void)argument;
}

/* Its process ends: its lane has heard of it, and finishes what it leads. */
static void die(struct training *t, const struct session *session)
{
    struct lane *const home = t->p.p.x.lanes[session->home];

    atomic_store(&((struct session *)session)->gone, true);
    lane_send(home, &((struct session *)session)->detach_message);
    lane_call(home, call_nothing, NULL);
}

/* A row of all members that has to be read to be tried; with what they add to it, it stays finite
 * or does not. The others are answered as if the leader were there still. */
static void test_a_leader_that_dies_while_rows_are_tried(void **state)
{
    for (uint32_t fails = 0; fails < 2; fails++) {
        struct shm_submission first;
        struct training *const t = begin_with(state, &shapes[fails ? 1 : 3], &first);
        struct client *const leader = &t->p.p.client;
        const uint64_t slot_bytes = leader->slot_bytes;
        uint32_t numbers[MEMBERS] = { 0 };

        for (uint32_t m = 1; m < MEMBERS; m++) {
            const struct shm_push_segment *const segment = &lay_rows_out(t, m, 50)[1];
            uint8_t *const arena = (uint8_t *)t->others[m].session->arena;
            const float gradient = fails ? 3e38f : 1e38f;

            t->ids[m][1][0] = *(uint64_t *)(arena + segment->ids_offset) = TABLE_ROWS - 1;
            t->gradients[m][1][0] = *(float *)(arena + segment->gradients_offset) = gradient;
        }
        atomic_store(&reads_wait, true);
        for (uint32_t m = 0; m < MEMBERS; m++)
            numbers[m] = send(t, m);
        await_stage(t, 0, PUSH_TRYING);
        die(t, leader->session);
        for (uint32_t m = 1; m < MEMBERS; m++)
            assert_false(client_is_done(&t->others[m], numbers[m]));
        atomic_store(&reads_wait, false);
        for (uint32_t m = 1; m < MEMBERS; m++)
            assert_int_equal(answer(t, m, numbers[m])->err, fails ? EMBTIER_NONFINITE : EMBTIER_OK);
        fixture_await_mail(&t->p.p.x, &leader->session->gone_message);
        groups_forget(leader->session);
        session_free(leader->session);
        if (!fails)
            step_to_shadows(t);
        for (uint32_t m = 1; m < MEMBERS; m++) {
            lay_rows_out(t, m, 50);
            numbers[m] = send(t, m);
            assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_GROUP_BROKEN);
            assert_int_equal(answer(t, m, numbers[m])->value, 0);
        }
        *leader = client_attach(&t->p.p.x, slot_bytes);
        end(t);
    }
}

/* One member is refused three times before the others come for the first: each is a round. */
static void test_refusals_are_rounds(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    uint32_t numbers[MEMBERS] = { 0 };

    for (uint32_t i = 0; i < 3; i++) {
        lay_rows_out(t, 2, 50)->dim = DIM + 1;
        assert_int_equal(answer(t, 2, send(t, 2))->err, EMBTIER_SHAPE);
    }
    lay_rows_out(t, 2, 50);
    numbers[2] = send(t, 2);
    for (uint32_t i = 0; i < 3; i++) {
        *submission_of(&t->p.p.client, t->p.p.client.submitted) = first;
        lay_rows_out(t, 1, 50);
        numbers[0] = send(t, 0);
        numbers[1] = send(t, 1);
        for (uint32_t m = 0; m < 2; m++)
            assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_GROUP_REFUSED);
    }
    assert_rows(&t->p);
    assert_false(client_is_done(&t->others[2], numbers[2]));
    *submission_of(&t->p.p.client, t->p.p.client.submitted) = first;
    lay_rows_out(t, 1, 50);
    numbers[0] = send(t, 0);
    numbers[1] = send(t, 1);
    for (uint32_t m = 0; m < MEMBERS; m++)
        assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_OK);
    step_to_shadows(t);
    end(t);
}

/* One that is refused for ever, while the others do not come, is given up. */
static void test_a_member_far_ahead_of_the_others_breaks_the_group(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    const uint32_t waiting = send(t, 0);

    for (uint32_t i = 0; i < SHM_SLOTS_MAX; i++) {
        lay_rows_out(t, 2, 50)->dim = DIM + 1;
        assert_int_equal(answer(t, 2, send(t, 2))->err, EMBTIER_SHAPE);
    }
    assert_false(client_is_done(&t->p.p.client, waiting));
    lay_rows_out(t, 2, 50)->dim = DIM + 1;
    assert_int_equal(answer(t, 2, send(t, 2))->err, EMBTIER_SHAPE);
    assert_int_equal(answer(t, 0, waiting)->err, EMBTIER_GROUP_BROKEN);
    assert_int_equal(answer(t, 0, waiting)->value, 2);
    end(t);
}

static void test_members_who_disagree_are_refused(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    uint32_t numbers[MEMBERS] = { 0 };

    /* On the step: one that is too late, one that is too early. */
    for (uint32_t i = 0; i < 2; i++) {
        *submission_of(&t->p.p.client, t->p.p.client.submitted) = first;
        lay_rows_out(t, 1, 50);
        lay_rows_out(t, 2, 50);
        submission_of(&t->others[2], t->others[2].submitted)->step += i ? 1 : -1ull;
        for (uint32_t m = 0; m < MEMBERS; m++)
            numbers[m] = send(t, m);
        assert_refused_to_all(t, 2, EMBTIER_GROUP_STEP, numbers);
        assert_int_equal(answer(t, 2, numbers[2])->limit, t->p.step);
    }
    /* On the learning rate of a table. */
    *submission_of(&t->p.p.client, t->p.p.client.submitted) = first;
    lay_rows_out(t, 1, 50)[1].learning_rate = 0.02;
    lay_rows_out(t, 2, 50);
    push_all(t, EMBTIER_MISMATCH);
    assert_rows(&t->p);
    again(t, &first);
    end(t);
}

static void test_a_member_that_goes_breaks_the_group(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    uint32_t numbers[MEMBERS] = { 0 };

    lay_rows_out(t, 2, 50);
    numbers[0] = send(t, 0);
    numbers[2] = send(t, 2);
    leave(t, 1);
    for (uint32_t m = 0; m < MEMBERS; m += 2) {
        assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_GROUP_BROKEN);
        assert_int_equal(answer(t, m, numbers[m])->value, 1);
    }
    assert_rows(&t->p);
    lay_rows_out(t, 2, 50);
    assert_int_equal(answer(t, 2, send(t, 2))->err, EMBTIER_GROUP_BROKEN);
    /* The name is free, and the step is where it was. */
    t->others[1] = client_attach(&t->p.p.x, UINT64_C(1) << 20);
    for (uint32_t m = 0; m < MEMBERS; m++)
        join(t, m, t->p.step - 1);
    first.group = t->handles[0];
    again(t, &first);
    end(t);
}

static void test_a_member_that_leaves_keeps_its_session_and_joins_anew(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    const struct session *const session = member_client(t, 1)->session;
    struct err_msg msg = { { 0 } };
    struct group_joined left;
    uint32_t numbers[MEMBERS] = { 0 };

    lay_rows_out(t, 2, 50);
    numbers[0] = send(t, 0);
    numbers[2] = send(t, 2);
    assert_int_equal(groups_leave(t->groups, session, t->handles[2], &left, &msg),
                     EMBTIER_NO_GROUP);
    assert_true(msg.text[0]);
    for (uint32_t times = 0; times < 2; times++) {
        must(groups_leave(t->groups, session, t->handles[1], &left, &msg), &msg);
        assert_true(left.handle == t->handles[1] && left.step == t->p.step - 1);
    }
    for (uint32_t m = 0; m < MEMBERS; m += 2) {
        assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_GROUP_BROKEN);
        assert_int_equal(answer(t, m, numbers[m])->value, 1);
    }
    lay_rows_out(t, 1, 50);
    assert_int_equal(answer(t, 1, send(t, 1))->err, EMBTIER_GROUP_BROKEN);
    assert_rows(&t->p);
    for (uint32_t m = 0; m < MEMBERS; m++)
        join(t, m, t->p.step - 1);
    first.group = t->handles[0];
    again(t, &first);
    end(t);
}

/* The one that goes waits itself: what it has sent is not kept. Then the one that would lead. */
static void test_a_member_that_goes_while_it_waits(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    uint32_t numbers[MEMBERS] = { 0 };

    lay_rows_out(t, 1, 50);
    lay_rows_out(t, 2, 50);
    numbers[1] = send(t, 1);
    send(t, 2);
    leave(t, 2);
    assert_int_equal(answer(t, 1, numbers[1])->err, EMBTIER_GROUP_BROKEN);
    assert_int_equal(answer(t, 1, numbers[1])->value, 2);
    numbers[0] = send(t, 0);
    assert_int_equal(answer(t, 0, numbers[0])->err, EMBTIER_GROUP_BROKEN);
    end(t);
}

static void test_a_member_that_does_not_come_in_time_breaks_the_group(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    uint32_t numbers[MEMBERS] = { 0 };

    lay_rows_out(t, 1, 50);
    numbers[0] = send(t, 0);
    numbers[1] = send(t, 1);
    groups_expire(t->groups);
    await_arrival(t, 0); /* before time goes on */
    await_arrival(t, 1);
    t->clock_ns += 500;
    groups_expire(t->groups);
    assert_false(client_is_done(&t->others[1], numbers[1]));
    t->clock_ns += 501;
    groups_expire(t->groups);
    for (uint32_t m = 0; m < 2; m++) {
        assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_TIMEOUT);
        assert_int_equal(answer(t, m, numbers[m])->value, 2);
    }
    lay_rows_out(t, 2, 50);
    assert_int_equal(answer(t, 2, send(t, 2))->err, EMBTIER_GROUP_BROKEN);
    end(t);
}

/* What is sent behind a push waits for the step, and sees it. */
static void test_a_lookup_of_the_next_step_waits_for_this_one(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    struct client *const client = &t->others[1];
    const struct shadow *const shadow = &t->p.tables[1];
    uint32_t numbers[MEMBERS] = { 0 }, get;

    lay_rows_out(t, 1, 50);
    numbers[1] = send(t, 1);
    *client_ids(client, client->submitted) = t->ids[1][1][0];
    client_fill(client, client->submitted, SHM_OP_GET, 0, shadow->handle, 1);
    submission_of(client, client->submitted)->group = t->handles[1];
    submission_of(client, client->submitted)->step = t->p.step + 1;
    get = send(t, 1);
    lay_rows_out(t, 2, 50);
    numbers[2] = send(t, 2);
    usleep(20000);
    assert_false(client_is_done(client, get));
    numbers[0] = send(t, 0);
    for (uint32_t m = 0; m < MEMBERS; m++)
        assert_int_equal(answer(t, m, numbers[m])->err, EMBTIER_OK);
    step_to_shadows(t);
    assert_int_equal(answer(t, 1, get)->err, EMBTIER_OK);
    assert_memory_equal(client_rows(client, get, 1), row_of(shadow, t->ids[1][1][0]),
                        DIM * sizeof(float));
    /* One before its push would wait for ever. */
    *client_ids(client, client->submitted) = 1;
    client_fill(client, client->submitted, SHM_OP_GET, 0, shadow->handle, 1);
    submission_of(client, client->submitted)->group = t->handles[1];
    submission_of(client, client->submitted)->step = t->p.step + 2;
    get = send(t, 1);
    assert_int_equal(answer(t, 1, get)->err, EMBTIER_GROUP_STEP);
    assert_int_equal(answer(t, 1, get)->limit, t->p.step + 1);
    end(t);
}

static void test_a_group_is_its_members_only(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    struct client guest = client_attach(&t->p.p.x, 4096);
    const struct client *const client = &t->others[1];
    uint64_t handle;

    /* Another's handle, and none at all. */
    for (uint32_t i = 0; i < 2; i++) {
        lay_rows_out(t, 1, 50);
        submission_of(client, client->submitted)->group = i ? t->handles[2] : 12;
        assert_int_equal(answer(t, 1, send(t, 1))->err, EMBTIER_NO_GROUP);
    }
    assert_int_equal(join_as(t, &guest, "g", MEMBERS, 2, 1, &handle), EMBTIER_GROUP_FULL);
    assert_int_equal(join_as(t, client, "g", MEMBERS, 2, 1, &handle), EMBTIER_EXISTS);
    assert_int_equal(join_as(t, client, "h", 2, 1, 4, &handle), EMBTIER_OK);
    assert_int_equal(join_as(t, &guest, "h", 2, 1, 4, &handle), EMBTIER_EXISTS);
    assert_int_equal(join_as(t, &guest, "h", 3, 0, 4, &handle), EMBTIER_MISMATCH);
    assert_int_equal(join_as(t, &guest, "h", 2, 0, 3, &handle), EMBTIER_MISMATCH);
    assert_int_equal(join_as(t, &guest, "h", 2, 2, 4, &handle), EMBTIER_INVALID);
    assert_int_equal(join_as(t, &guest, "i", 0, 0, 0, &handle), EMBTIER_INVALID);
    assert_int_equal(join_as(t, &guest, "i", 257, 0, 0, &handle), EMBTIER_INVALID);
    assert_int_equal(join_as(t, &guest, "a b", 2, 0, 0, &handle), EMBTIER_INVALID);
    assert_int_equal(join_as(t, &guest, "i", 2, 0, UINT64_MAX, &handle), EMBTIER_INVALID);
    for (uint32_t i = 0; i < SESSION_GROUPS_MAX; i++) {
        char name[16];

        snprintf(name, sizeof(name), "many-%u", i);
        assert_int_equal(join_as(t, &guest, name, 2, 0, 0, &handle), EMBTIER_OK);
    }
    assert_int_equal(join_as(t, &guest, "h", 2, 0, 4, &handle), EMBTIER_TOO_LARGE);
    client_detach(&guest);
    again(t, &first);
    end(t);
}

/* Nobody has gradients of anything, and members whose pushes are of nothing. */
static void test_empty_pushes(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);

    for (uint32_t m = 0; m < MEMBERS; m++) {
        const struct client *const client = member_client(t, m);

        *submission_of(client, client->submitted) = (struct shm_submission){
            .op = SHM_OP_PUSH,
            .segments_offset = client_offset(client, client_segment(client, client->submitted)),
            .step = t->p.step,
            .group = t->handles[m]
        };
    }
    push_all(t, EMBTIER_OK);
    assert_rows(&t->p);
    first.step = ++t->p.step;
    again(t, &first);
    end(t);
}

/* A push that waits keeps no table from being dropped, and the step is refused then. */
static void test_a_table_is_dropped_while_a_push_waits(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    struct err_msg msg = { { 0 } };
    struct table_info info;
    uint32_t numbers[MEMBERS] = { 0 };

    for (uint32_t i = 0; i < 2; i++) {
        if (i == 0)
            numbers[0] = send(t, 0);
        else
            lay_rows_out(t, 0, 50);
        submission_of(&t->p.p.client, t->p.p.client.submitted)->segment_count = 1;
        for (uint32_t m = 1; m < MEMBERS; m++) {
            lay_rows_out(t, m, 50);
            submission_of(&t->others[m], t->others[m].submitted)->segment_count = 1;
        }
        if (i == 0) { /* when its push has arrived, or this waits for it */
            await_arrival(t, 0);
            must(tables_drop(t->p.p.x.tables, t->p.tables[1].spec.name, NULL, &info, &msg), &msg);
        } else {
            numbers[0] = send(t, 0);
        }
        for (uint32_t m = 1; m < MEMBERS; m++)
            numbers[m] = send(t, m);
        for (uint32_t m = 0; m < MEMBERS; m++)
            assert_int_equal(answer(t, m, numbers[m])->err, i ? EMBTIER_OK : EMBTIER_NO_TABLE);
    }
    training_stop(t);
    free(t);
}

static void test_no_more_waits_than_there_is_room_for(void **state)
{
    struct training *const t = calloc(1, sizeof(*t));
    uint32_t number;

    assert_non_null(t);
    t->waiting_bytes_max = 1;
    training_start(t, *state, &shapes[0]);
    t->p.step = 1;
    lay_rows_out(t, 1, 50);
    number = send(t, 1);
    assert_int_equal(answer(t, 1, number)->err, EMBTIER_BUSY);
    training_stop(t);
    free(t);
}

static void test_nobody_waits_when_the_server_stops(void **state)
{
    struct shm_submission first;
    struct training *const t = begin(state, &first);
    const uint32_t number = send(t, 0);

    await_arrival(t, 0);
    groups_stop(t->groups);
    assert_int_not_equal(answer(t, 0, number)->err, EMBTIER_OK);
    end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_a_step_is_the_sum_of_its_members_reduced_one_by_one),
        T(test_a_push_that_is_refused_is_refused_to_all),
        T(test_a_step_that_would_ruin_a_row_is_refused_to_all_and_not_made),
        T(test_a_leader_that_dies_while_rows_are_tried),
        T(test_refusals_are_rounds),
        T(test_a_member_far_ahead_of_the_others_breaks_the_group),
        T(test_members_who_disagree_are_refused),
        T(test_a_member_that_goes_breaks_the_group),
        T(test_a_member_that_leaves_keeps_its_session_and_joins_anew),
        T(test_a_member_that_goes_while_it_waits),
        T(test_a_member_that_does_not_come_in_time_breaks_the_group),
        T(test_a_lookup_of_the_next_step_waits_for_this_one),
        T(test_a_group_is_its_members_only),
        T(test_empty_pushes),
        T(test_a_table_is_dropped_while_a_push_waits),
        T(test_no_more_waits_than_there_is_room_for),
        T(test_nobody_waits_when_the_server_stops),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
