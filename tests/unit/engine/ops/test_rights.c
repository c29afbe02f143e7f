/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a lane does for a session what its user may do, and nothing else. A refused request
 * changes nothing, and holds no table. The table of operations decides: one build of this program
 * hides an operation from it. */
#include "tests/unit/engine/ops/forms_fixture.h"

#include "daemon/access/operations.h"
#include "daemon/access/rights.h"
#include "proto/quota.h"

#define DIM  8
#define ROWS 100
#define SLOT (64 * KIB)

/* ---- An operation without a rule ---- */

static _Atomic uint32_t hidden_op;

const struct operation *__real_operation_of_op(uint32_t op, uint32_t flags);
const struct operation *__wrap_operation_of_op(uint32_t op, uint32_t flags);

const struct operation *__wrap_operation_of_op(uint32_t op, uint32_t flags)
{
    return op == hidden_op ? NULL : __real_operation_of_op(op, flags);
}

/* ---- A session of a user ---- */

struct world {
    struct lanes_fixture x;
    struct client root, user;
    struct rights *rights;
    uint64_t mine, other; /* tables: the user is granted the first */
};

static void world_start(struct world *w, struct store_fixture *f)
{
    static const struct lanes_shape shape = {
        .lane_count = 2, .slabs_per_lane = 4, .readers = 1, .write_queue_bytes = 1 * MIB
    };

    memset(w, 0, sizeof(*w));
    hidden_op = 0;
    lanes_start(&w->x, f, &shape);
    w->mine = fixture_table(&w->x, "mine", ROWS, DIM, EMBTIER_OPTIMIZER_SGD);
    w->other = fixture_table(&w->x, "other", ROWS, DIM, EMBTIER_OPTIMIZER_SGD);
    w->root = client_attach(&w->x, SLOT);
    w->user = client_attach(&w->x, SLOT);
    w->rights = calloc(1, sizeof(*w->rights));
    assert_non_null(w->rights);
    w->user.session->rights = w->rights; /* no request has come yet */
    for (uint64_t id = 0; id < ROWS; id++) {
        assert_int_equal(client_set_one(&w->root, w->mine, id, DIM, 1), EMBTIER_OK);
        assert_int_equal(client_set_one(&w->root, w->other, id, DIM, 1), EMBTIER_OK);
    }
}

static void world_stop(struct world *w)
{
    client_detach(&w->user);
    client_detach(&w->root);
    lanes_stop(&w->x);
    free(w->rights);
}

static void become(struct world *w, enum role role)
{
    uint64_t granted[RIGHTS_WORDS] = { 0 };
    const uint16_t index = (uint16_t)w->mine;

    granted[index / 64] = UINT64_C(1) << (index % 64);
    rights_replace(w->rights, role, granted);
}

static struct form_shape shape_of(uint64_t table)
{
    return (struct form_shape){
        .table = table, .dim = DIM, .rows = ROWS, .segments = 1, .ids = 4, .bags = 2
    };
}

/* Asks for a request of @form, with a place of its own for each request. */
static const struct op_completion *ask(struct world *w, uint32_t form, uint64_t table,
                                       uint32_t flags, uint64_t ticket)
{
    const struct form_shape shape = shape_of(table);
    struct form_place places[2];
    struct op_submission submission = form_lay_out(
        &w->user, form, &shape, ticket, client_segment(&w->user, w->user.submitted), places);

    submission.flags = flags;
    return form_submit(&w->user, &submission);
}

static void assert_refused(struct world *w, const struct op_completion *done, uint32_t segment,
                           enum role role, enum role needed)
{
    assert_int_equal(done->err, EMBTIER_PERMISSION);
    assert_int_equal(done->segment, segment);
    assert_int_equal(done->value, role);
    assert_int_equal(done->limit, needed);
    for (uint64_t id = 0; id < ROWS; id++) {
        float mine = 0, other = 0;

        assert_int_equal(client_get_one(&w->root, w->mine, id, &mine), EMBTIER_OK);
        assert_int_equal(client_get_one(&w->root, w->other, id, &other), EMBTIER_OK);
        assert_true(mine == 1 && other == 1);
    }
    assert_int_equal(atomic_load(&tables_at(w->x.tables, (uint16_t)w->mine)->users), 0);
    assert_int_equal(atomic_load(&tables_at(w->x.tables, (uint16_t)w->other)->users), 0);
}

/* ---- Tests ---- */

/* Each form of a request with the least role that may make it. */
static const struct {
    uint32_t form;
    uint32_t flags;
    enum role role;
} forms[] = {
    { OP_FORM_GET, 0, ROLE_READ },        { OP_FORM_SET, 0, ROLE_TRAIN },
    { OP_FORM_POOL, 0, ROLE_READ },       { OP_FORM_POOL, OP_FLAG_TICKET, ROLE_TRAIN },
    { OP_FORM_PUSH_ROWS, 0, ROLE_TRAIN }, { OP_FORM_PUSH_BAGS, 0, ROLE_TRAIN },
    { OP_FORM_PREFETCH, 0, ROLE_READ },
};

static void test_each_form_has_its_role(void **state)
{
    struct world w;

    world_start(&w, *state);
    for (enum role role = ROLE_NONE; role < ROLE_COUNT; role++) {
        for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
            const struct form_shape shape = shape_of(w.mine);
            const struct op_completion *done;
            uint64_t ticket = 0;

            if (forms[i].form == OP_FORM_PUSH_BAGS) { /* of a time when the user had the right */
                become(&w, ROLE_TRAIN);
                ticket = form_look_up(&w.user, &shape, client_segment(&w.user, w.user.submitted));
            }
            become(&w, role);
            done = ask(&w, forms[i].form, w.mine, forms[i].flags, ticket);
            if (role >= forms[i].role)
                assert_int_equal(done->err, EMBTIER_OK);
            else
                assert_refused(&w, done, UINT32_MAX, role, forms[i].role);
            if (done->err == EMBTIER_OK && done->ticket != 0)
                ticket = done->ticket;
            else if (done->err == EMBTIER_OK)
                ticket = 0;  /* it is used */
            if (ticket != 0) /* a ticket may always be given up */
                form_release(&w.user, ticket);
        }
    }
    world_stop(&w);
}

static void test_a_guessed_handle_of_another_table_is_of_no_use(void **state)
{
    struct world w;
    uint64_t refusals = 0;

    world_start(&w, *state);
    become(&w, ROLE_ADMIN);
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        const struct form_shape shape = shape_of(w.mine);
        const uint64_t ticket =
            forms[i].form == OP_FORM_PUSH_BAGS
                ? form_look_up(&w.user, &shape, client_segment(&w.user, w.user.submitted))
                : 0;

        assert_refused(&w, ask(&w, forms[i].form, w.other, forms[i].flags, ticket), 0, ROLE_ADMIN,
                       forms[i].role);
        assert_int_equal(atomic_load(&w.rights->refusals), ++refusals);
        if (ticket != 0)
            form_release(&w.user, ticket);
    }
    world_stop(&w);
}

/* The second segment is refused, and the first's table is left. */
static void test_one_table_too_many_refuses_the_whole_request(void **state)
{
    static const uint32_t two_segments[] = { OP_FORM_GET, OP_FORM_SET, OP_FORM_POOL,
                                             OP_FORM_PUSH_ROWS, OP_FORM_PREFETCH };
    struct world w;

    world_start(&w, *state);
    become(&w, ROLE_TRAIN);
    for (size_t i = 0; i < ARRAY_LEN(two_segments); i++) {
        const uint32_t form = two_segments[i];
        struct form_shape shape = shape_of(w.mine);
        uint8_t *const at = (uint8_t *)client_segment(&w.user, w.user.submitted);
        struct form_place places[2];
        struct op_submission submission;
        const struct op_completion *done;

        shape.segments = 2;
        submission = form_lay_out(&w.user, form, &shape, 0, at, places);
        *(uint64_t *)(at + op_segment_bytes(form)) = w.other; /* a segment begins with its table */
        done = form_submit(&w.user, &submission);
        assert_refused(&w, done, 1, ROLE_TRAIN,
                       form == OP_FORM_SET || form == OP_FORM_PUSH_ROWS ? ROLE_TRAIN : ROLE_READ);
    }
    world_stop(&w);
}

/* A table that comes into the place of another has the bit that it was given. */
static void test_rights_count_from_the_moment_they_change(void **state)
{
    struct world w;
    float value = 0;

    world_start(&w, *state);
    become(&w, ROLE_READ);
    for (uint32_t round = 0; round < 3; round++) {
        rights_set(w.rights, (uint16_t)w.other, true);
        assert_int_equal(client_get_one(&w.user, w.other, 1, &value), EMBTIER_OK);
        assert_int_equal(client_set_one(&w.user, w.other, 1, DIM, 2), EMBTIER_PERMISSION);
        rights_set(w.rights, (uint16_t)w.other, false);
        assert_int_equal(client_get_one(&w.user, w.other, 1, &value), EMBTIER_PERMISSION);
        assert_int_equal(client_get_one(&w.user, w.mine, 1, &value), EMBTIER_OK);
    }
    rights_replace(w.rights, ROLE_NONE, NULL);
    assert_int_equal(client_get_one(&w.user, w.mine, 1, &value), EMBTIER_PERMISSION);
    assert_int_equal(client_get_one(&w.root, w.mine, 1, &value), EMBTIER_OK);
    world_stop(&w);
}

/* Not even a client that may do all may do what has no rule. */
static void test_an_operation_without_a_rule_is_refused(void **state)
{
    struct world w;
    float value = 0;

    world_start(&w, *state);
    hidden_op = OP_GET;
    assert_int_equal(client_get_one(&w.root, w.mine, 1, &value), EMBTIER_PERMISSION);
    assert_int_equal(client_set_one(&w.root, w.mine, 1, DIM, 1), EMBTIER_OK);
    hidden_op = OP_RELEASE; /* which has no segments */
    assert_int_equal(
        form_submit(&w.root, &(struct op_submission){ .op = OP_RELEASE, .ticket = 1 })->err,
        EMBTIER_PERMISSION);
    hidden_op = 0;
    assert_int_equal(client_get_one(&w.root, w.mine, 1, &value), EMBTIER_OK);
    world_stop(&w);
}

/* The clock goes on meanwhile, so a slow client may begin some more. */
static void test_no_more_requests_begin_than_a_second_has(void **state)
{
    enum { PER_SECOND = 5 };
    const struct op_completion *done = NULL;
    struct world w;
    uint32_t begun = 0;
    float value = 0;

    world_start(&w, *state);
    become(&w, ROLE_READ);
    rights_pace(w.rights, PER_SECOND);
    while (!done || done->err == EMBTIER_OK) {
        done = ask(&w, OP_FORM_GET, w.mine, 0, 0);
        assert_true(++begun < 1000);
    }
    assert_true(begun > PER_SECOND);
    assert_int_equal(done->err, EMBTIER_BUSY);
    assert_int_equal(done->segment, UINT32_MAX);
    assert_int_equal(done->field, quota_to_field(QUOTA_requests_per_second));
    assert_int_equal(done->value, 1);
    assert_int_equal(done->limit, PER_SECOND);
    assert_int_equal(client_get_one(&w.root, w.mine, 1, &value), EMBTIER_OK);
    rights_pace(w.rights, 0);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(client_get_one(&w.user, w.mine, 1, &value), EMBTIER_OK);
    world_stop(&w);
}

/* The bytes of each form's request of one segment with 4 ids of rows of 8 numbers in 2 bags. */
static const struct {
    uint32_t form;
    uint32_t flags;
    uint64_t bytes;
} sizes[] = {
    { OP_FORM_GET, 0, 32 + 4 * (8 + 32) },
    { OP_FORM_SET, 0, 32 + 4 * (8 + 32) },
    { OP_FORM_GET, OP_FLAG_STATE, 32 + 4 * (8 + 32) }, /* SGD has no state */
    { OP_FORM_POOL, 0, 64 + 4 * (8 + 4) + 3 * 4 + 2 * 32 },
    { OP_FORM_PUSH_ROWS, 0, 64 + 4 * (8 + 32) },
    { OP_FORM_PUSH_BAGS, 0, 64 + 2 * 32 + 4 * 4 },
    { OP_FORM_PREFETCH, 0, 64 + 4 * 8 },
};

static void assert_over_quota(const struct op_completion *done, uint64_t bytes, uint64_t most)
{
    assert_int_equal(done->err, EMBTIER_BUSY);
    assert_int_equal(done->segment, UINT32_MAX);
    assert_int_equal(done->field, quota_to_field(QUOTA_bytes_in_flight));
    assert_int_equal(done->value, bytes);
    assert_int_equal(done->limit, most);
}

/* Each request takes its bytes while it is under way, a refused one none. */
static void test_no_more_bytes_are_under_way_than_the_quota(void **state)
{
    struct world w;

    world_start(&w, *state);
    become(&w, ROLE_TRAIN);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const struct form_shape shape = shape_of(w.mine);
        const uint64_t whole = align_up(sizes[i].bytes, OP_ALIGN);
        const struct op_completion *done;
        uint64_t ticket = 0;

        rights_limit_bytes(w.rights, 0);
        if (sizes[i].form == OP_FORM_PUSH_BAGS)
            ticket = form_look_up(&w.user, &shape, client_segment(&w.user, w.user.submitted));
        rights_limit_bytes(w.rights, whole);
        assert_true(rights_take_bytes(w.rights, 1)); /* another session's */
        assert_over_quota(ask(&w, sizes[i].form, w.mine, sizes[i].flags, ticket), sizes[i].bytes,
                          whole);
        assert_int_equal(atomic_load(&w.rights->bytes), 1);
        rights_give_bytes(w.rights, 1);
        done = ask(&w, sizes[i].form, w.mine, sizes[i].flags, ticket);
        assert_int_equal(done->err, EMBTIER_OK);
        assert_int_equal(atomic_load(&w.rights->bytes), 0);
        if (sizes[i].form == OP_FORM_PREFETCH)
            form_release(&w.user, done->ticket);
    }
    world_stop(&w);
}

/* A clock of the test's own. */
static void test_the_pace_is_kept_over_time(void **state)
{
    const uint64_t second_ns = UINT64_C(1000000000);
    struct rights *const rights = calloc(1, sizeof(*rights));
    uint64_t now_ns = 5 * second_ns;
    uint32_t begun = 0;

    (void)state;
    assert_non_null(rights);
    assert_false(rights_are_paced(rights));
    rights_pace(rights, 10);
    assert_int_equal(rights_per_second(rights), 10);
    while (rights_begin(rights, now_ns))
        begun++;
    assert_int_equal(begun, 10); /* those of a second at once, after a pause */
    for (uint32_t i = 0; i < 100; i++) {
        now_ns += second_ns / 10;
        assert_true(rights_begin(rights, now_ns));
        assert_false(rights_begin(rights, now_ns));
    }
    now_ns += 100 * second_ns;
    for (begun = 0; rights_begin(rights, now_ns);)
        begun++;
    assert_int_equal(begun, 10); /* a long pause gives no more */
    free(rights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_each_form_has_its_role),
        T(test_a_guessed_handle_of_another_table_is_of_no_use),
        T(test_one_table_too_many_refuses_the_whole_request),
        T(test_rights_count_from_the_moment_they_change),
        T(test_an_operation_without_a_rule_is_refused),
        T(test_no_more_requests_begin_than_a_second_has),
        T(test_no_more_bytes_are_under_way_than_the_quota),
        cmocka_unit_test(test_the_pace_is_kept_over_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
