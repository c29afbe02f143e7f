/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the client library joins groups, names them in requests, reports why members are
 * refused, and coalesces gradients as the server does. */
#include "tests/unit/client/client_fixture.h"

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/connection.h"
#include "client/lib/group.h"

#define STEP_MAX ((UINT64_C(1) << 53) - 1)

static struct embtier_group_options options_of(const char *name, uint32_t size, uint32_t member,
                                               uint64_t step)
{
    struct embtier_group_options options = EMBTIER_GROUP_OPTIONS_INIT;

    options.name = name;
    options.size = size;
    options.member = member;
    options.step = step;
    return options;
}

static struct embtier_group *join(struct fixture *fixture, const char *name, uint64_t step)
{
    const struct embtier_group_options options = options_of(name, 4, 2, step);
    struct embtier_group *group = NULL;

    assert_int_equal(embtier_group_join(fixture->server, &options, &group), EMBTIER_OK);
    return group;
}

static struct embtier_batch *new_push(struct fixture *fixture)
{
    const struct embtier_part part = { fixture->users, 2 };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new_push(fixture->server, &part, 1, &batch), EMBTIER_OK);
    return batch;
}

static struct embtier_batch *new_rows(struct fixture *fixture)
{
    const struct embtier_part part = { fixture->users, 2 };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new(fixture->server, &part, 1, &batch), EMBTIER_OK);
    embtier_batch_ids(batch, 0)[0] = embtier_batch_ids(batch, 0)[1] = 3;
    return batch;
}

static struct embtier_batch *new_bags(struct fixture *fixture)
{
    const struct embtier_bag_part part = { fixture->users, 2, 1, EMBTIER_POOL_SUM, 0 };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new_bags(fixture->server, &part, 1, &batch), EMBTIER_OK);
    embtier_batch_offsets(batch, 0)[0] = 0;
    embtier_batch_offsets(batch, 0)[1] = 2;
    return batch;
}

static struct embtier_push_options of_group(struct embtier_group *group, uint64_t step)
{
    struct embtier_push_options options = EMBTIER_PUSH_OPTIONS_INIT;

    options.learning_rate = 0.5;
    options.step = step;
    options.group = group;
    return options;
}

static enum embtier_err push(struct embtier_batch *batch, struct embtier_group *group,
                             uint64_t step)
{
    const struct embtier_push_options options = of_group(group, step);

    return embtier_push(batch, &options);
}

static void assert_told(struct fixture *fixture, enum embtier_err err, enum embtier_err expected,
                        const char *message)
{
    assert_int_equal(err, expected);
    if (!strstr(embtier_message(fixture->server), message))
        fail_msg("'%s' is not in '%s'", message, embtier_message(fixture->server));
}

static void lose_session(struct fixture *fixture)
{
    drop_client(fixture);
    assert_int_equal(embtier_reconnect(fixture->server), EMBTIER_OK);
}

/* ---- Memberships ---- */

static void test_a_member_knows_its_group_and_its_step(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_group *group = join(fixture, "model.a", 41);
    struct embtier_batch *batch = new_push(fixture);

    assert_int_equal(fixture->fake.join_size, 4);
    assert_int_equal(fixture->fake.join_member, 2);
    assert_string_equal(embtier_group_name(group), "model.a");
    assert_int_equal(embtier_group_size(group), 4);
    assert_int_equal(embtier_group_member(group), 2);
    assert_int_equal(embtier_group_step(group), 41);
    assert_int_equal(push(batch, group, 42), EMBTIER_OK);
    assert_int_equal(embtier_group_step(group), 42);
    fixture->fake.err_segment = UINT32_MAX;
    fixture->fake.err = EMBTIER_GROUP_REFUSED;
    assert_int_equal(push(batch, group, 43), EMBTIER_GROUP_REFUSED);
    assert_int_equal(embtier_group_step(group), 42);
    fixture->fake.err = 0;
    assert_int_equal(push(batch, NULL, 77), EMBTIER_OK);
    assert_int_equal(embtier_group_step(group), 42);
}

static void test_mistakes_in_joining_are_told_without_asking_the_server(void **state)
{
    struct fixture *fixture = *state;
    char name[EMBTIER_GROUP_NAME_MAX + 2];
    const struct {
        struct embtier_group_options options;
        const char *message;
    } cases[] = {
        { options_of(NULL, 2, 0, 0), "group name is missing" },
        { options_of("", 2, 0, 0), "group name must be 1 to 127 of" },
        { options_of("a b", 2, 0, 0), "group name must be" },
        { options_of("-a", 2, 0, 0), "group name must be" },
        { options_of(name, 2, 0, 0), "group name must be" },
        { options_of("a", 0, 0, 0), "a group of 0 members, allowed: 1 to 256" },
        { options_of("a", 257, 0, 0), "a group of 257 members" },
        { options_of("a", 2, 2, 0), "member 2 of a group of 2, numbered from 0" },
        { options_of("a", 2, 1, STEP_MAX + 1), "step is 9007199254740992, allowed: 0 to" },
    };
    struct embtier_group_options bad = options_of("a", 2, 0, 0);
    struct embtier_group *group = NULL;

    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_told(fixture, embtier_group_join(fixture->server, &cases[i].options, &group),
                    EMBTIER_INVALID, cases[i].message);
    bad.struct_bytes = 0;
    assert_told(fixture, embtier_group_join(fixture->server, &bad, &group), EMBTIER_INVALID,
                "initialise with EMBTIER_GROUP_OPTIONS_INIT");
    assert_told(fixture, embtier_group_join(fixture->server, NULL, &group), EMBTIER_INVALID,
                "initialise with EMBTIER_GROUP_OPTIONS_INIT");
    assert_int_equal(fixture->fake.joined, 0);
    bad = options_of("a", 2, 1, 0);
    fixture->fake.join_err = EMBTIER_GROUP_FULL;
    assert_told(fixture, embtier_group_join(fixture->server, &bad, &group), EMBTIER_GROUP_FULL,
                "the fake server lets no client in");
    assert_null(group);
    fixture->fake.join_err = 0;
    name[EMBTIER_GROUP_NAME_MAX] = '\0';
    group = join(fixture, name, 0);
    assert_string_equal(embtier_group_name(group), name);
}

static void test_memberships_end_with_their_session(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_group *group = join(fixture, "g", 0), *anew;
    struct embtier_batch *batch = new_push(fixture), *rows = new_rows(fixture);
    uint32_t taken;

    assert_int_equal(embtier_batch_set_group(rows, group, 1), EMBTIER_OK);
    assert_int_equal(push(batch, group, 1), EMBTIER_OK);
    lose_session(fixture);
    taken = fixture->fake.taken;
    assert_told(fixture, push(batch, group, 2), EMBTIER_NO_GROUP,
                "the membership in group 'g' ended with its session; join it again");
    assert_told(fixture, embtier_get(rows), EMBTIER_NO_GROUP, "join it again");
    assert_told(fixture, embtier_batch_set_group(rows, group, 2), EMBTIER_NO_GROUP,
                "join it again");
    assert_int_equal(fixture->fake.taken, taken);
    assert_int_equal(embtier_group_step(group), 1);
    anew = join(fixture, "g", embtier_group_step(group));
    assert_int_equal(embtier_batch_set_group(rows, anew, 2), EMBTIER_OK);
    assert_int_equal(embtier_get(rows), EMBTIER_OK);
    assert_int_equal(push(batch, anew, 2), EMBTIER_OK);
    assert_int_equal(fixture->fake.submission.group, FAKE_GROUP + 1);
}

/* Batches may outlive their group, since their messages name it. */
static void test_a_group_that_is_freed_lives_on_for_its_batches(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_group *groups[] = { join(fixture, "a", 0), join(fixture, "b", 0),
                                       join(fixture, "c", 0) };
    const struct embtier_push_options options = of_group(groups[1], 1);
    struct embtier_batch *batch = new_push(fixture), *rows = new_rows(fixture);

    assert_int_equal(embtier_batch_set_group(rows, groups[1], 1), EMBTIER_OK);
    fixture->fake.err_segment = UINT32_MAX;
    fixture->fake.err = EMBTIER_GROUP_BROKEN;
    assert_int_equal(embtier_submit_push(batch, &options), EMBTIER_OK);
    embtier_group_free(NULL);
    embtier_group_free(groups[1]);
    assert_told(fixture, embtier_wait(batch, UINT32_MAX), EMBTIER_GROUP_BROKEN,
                "group 'b' is over: member 0 has gone");
    assert_int_equal(embtier_batch_free(batch), EMBTIER_OK);
    fixture->fake.err = 0;
    assert_int_equal(embtier_get(rows), EMBTIER_OK);
    assert_int_equal(fixture->fake.submission.group, FAKE_GROUP + 1);
    assert_int_equal(embtier_batch_set_group(rows, groups[0], 1), EMBTIER_OK);
    assert_int_equal(embtier_batch_free(rows), EMBTIER_OK);
    embtier_group_free(groups[2]);
    embtier_group_free(groups[0]);
}

/* ---- Requests ---- */

static void test_requests_name_the_group_they_are_told_to(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_group *group = join(fixture, "g", 6);
    struct embtier_batch *rows = new_rows(fixture), *bags = new_bags(fixture);
    struct embtier_batch *pushed = new_push(fixture);
    const struct op_submission *sent = &fixture->fake.submission;

    assert_int_equal(embtier_batch_set_group(rows, group, 7), EMBTIER_OK);
    assert_int_equal(embtier_batch_set_group(bags, group, 7), EMBTIER_OK);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(embtier_get(rows), EMBTIER_OK);
        assert_true(sent->group == FAKE_GROUP && sent->step == 7 && sent->op == OP_GET);
        assert_int_equal(embtier_set(rows), EMBTIER_OK);
        assert_true(sent->group == FAKE_GROUP && sent->step == 7 && sent->op == OP_SET);
        assert_int_equal(embtier_get_pooled(bags), EMBTIER_OK);
        assert_true(sent->group == FAKE_GROUP && sent->step == 7 && sent->op == OP_POOL);
        assert_int_equal(embtier_get_pooled_ticket(bags), EMBTIER_OK);
        assert_true(sent->group == FAKE_GROUP && sent->step == 7);
        assert_int_equal(embtier_release(bags), EMBTIER_OK);
        assert_true(sent->group == 0 && sent->step == 0);
    }
    assert_int_equal(embtier_get_pooled_ticket(bags), EMBTIER_OK);
    assert_int_equal(push(bags, NULL, 9), EMBTIER_OK); /* without the group */
    assert_true(sent->group == 0 && sent->step == 9 && sent->op == OP_PUSH);
    assert_int_equal(push(pushed, group, 7), EMBTIER_OK);
    assert_true(sent->group == FAKE_GROUP && sent->step == 7 && sent->op == OP_PUSH);
    assert_int_equal(embtier_batch_set_group(rows, NULL, 5), EMBTIER_OK);
    assert_int_equal(embtier_get(rows), EMBTIER_OK);
    assert_true(sent->group == 0 && sent->step == 0);
}

static void test_mistakes_with_groups_are_told_without_asking_the_server(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_group *group = join(fixture, "g", 0);
    struct embtier_batch *rows = new_rows(fixture);
    struct embtier_push_options options = of_group(group, 1);
    struct embtier other = { 0 };
    struct embtier *const server = fixture->server;
    const uint32_t taken = fixture->fake.taken;

    assert_told(fixture, embtier_batch_set_group(rows, group, STEP_MAX + 1), EMBTIER_INVALID,
                "step is 9007199254740992, allowed: 0 to 9007199254740991");
    group->server = &other;
    assert_told(fixture, embtier_batch_set_group(rows, group, 1), EMBTIER_INVALID,
                "group 'g' was joined by another connection");
    assert_told(fixture, push(new_push(fixture), group, 1), EMBTIER_INVALID,
                "group 'g' was joined by another connection");
    group->server = server;
    assert_int_equal(fixture->fake.taken, taken);
    fixture->fake.hold = true;
    assert_int_equal(embtier_submit(rows, EMBTIER_GET), EMBTIER_OK);
    assert_int_equal(embtier_batch_set_group(rows, group, 1), EMBTIER_BUSY);
    fixture->fake.hold = false;
    assert_int_equal(embtier_wait(rows, UINT32_MAX), EMBTIER_OK);
    options.struct_bytes = offsetof(struct embtier_push_options, group);
    options.group = (void *)rows; /* a caller that does not know this field */
    assert_int_equal(embtier_push(new_push(fixture), &options), EMBTIER_OK);
    assert_int_equal(fixture->fake.submission.group, 0);
}

static void test_a_refusal_names_the_member_it_is_about(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_group *group = join(fixture, "g", 4);
    const struct {
        enum embtier_err err;
        uint64_t limit;
        uint32_t member;
        enum embtier_err why;
        const char *message;
    } cases[] = {
        { EMBTIER_GROUP_REFUSED, EMBTIER_NONFINITE, 3, EMBTIER_NONFINITE,
          "member 3's push of step 5 of group 'g' was refused (NONFINITE: a gradient is not "
          "finite); nothing was applied" },
        { EMBTIER_GROUP_BROKEN, 0, 3, EMBTIER_OK,
          "group 'g' is over: member 3 has gone; nothing was applied, and all members must join "
          "again" },
        { EMBTIER_TIMEOUT, 0, 3, EMBTIER_OK,
          "group 'g' is over: member 3 has not pushed step 5 in time (lanes.group_seconds); "
          "nothing was applied, and all members must join again" },
        { EMBTIER_GROUP_BROKEN, EMBTIER_TIMEOUT, 3, EMBTIER_OK,
          "group 'g' is over: member 3 did not push in time (lanes.group_seconds); nothing was "
          "applied, and all members must join again" },
        { EMBTIER_GROUP_BROKEN, EMBTIER_IO, 3, EMBTIER_OK,
          "group 'g' is over: member 3 led a step that failed after a part of it was applied; "
          "nothing was applied, and all members must join again" },
        { EMBTIER_GROUP_STEP, 8, UINT32_MAX, EMBTIER_OK,
          "step 3 of group 'g' is out of order: the next step is 8; nothing was applied" },
        { EMBTIER_NO_GROUP, 0, UINT32_MAX, EMBTIER_OK,
          "this client is not a member of group 'g'; join it first" },
        { EMBTIER_MISMATCH, 0, UINT32_MAX, EMBTIER_OK,
          "the members of group 'g' gave a table different learning rates; nothing was applied" },
        { EMBTIER_NO_TABLE, 0, UINT32_MAX, EMBTIER_OK,
          "a table was dropped before all members of group 'g' had pushed step 5; nothing was "
          "applied" },
        { EMBTIER_BUSY, 64, UINT32_MAX, EMBTIER_OK,
          "pushes that wait for their groups fill the memory they may use, 64 bytes (a quarter of "
          "lanes.request_bytes); nothing was applied" },
    };

    fixture->fake.err_segment = UINT32_MAX;
    fixture->fake.err_value = 3;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct embtier_batch *batch = new_bags(fixture);
        uint64_t ticket;

        fixture->fake.err = 0;
        assert_int_equal(embtier_get_pooled_ticket(batch), EMBTIER_OK);
        assert_int_equal(embtier_batch_blamed_member(batch), UINT32_MAX);
        ticket = embtier_batch_ticket(batch);
        fixture->fake.err_limit = cases[i].limit;
        fixture->fake.err = cases[i].err;
        assert_int_equal(push(batch, group, 5), cases[i].err);
        assert_string_equal(embtier_message(fixture->server), cases[i].message);
        assert_int_equal(embtier_batch_blamed_member(batch), cases[i].member);
        assert_int_equal(embtier_batch_blamed_err(batch), cases[i].why);
        assert_int_equal(embtier_batch_ticket(batch), ticket);
    }
    assert_int_equal(embtier_group_step(group), 4);
}

static void test_a_lookup_ahead_of_its_step_is_told_so(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *rows = new_rows(fixture);

    assert_int_equal(embtier_batch_set_group(rows, join(fixture, "g", 4), 6), EMBTIER_OK);
    fixture->fake.err_segment = UINT32_MAX;
    fixture->fake.err_value = 6;
    fixture->fake.err_limit = 5;
    fixture->fake.err = EMBTIER_GROUP_STEP;
    assert_told(
        fixture, embtier_get(rows), EMBTIER_GROUP_STEP,
        "step 6 of group 'g' is out of order: the next step is 5, which must be pushed first");
}

/* A wait that ends, and a push that has ended: both give TIMEOUT. */
static void test_a_push_that_waited_too_long_is_done_and_a_wait_is_not(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_group *group = join(fixture, "g", 0);
    const struct embtier_push_options options = of_group(group, 1);
    struct embtier_batch *batch = new_push(fixture);

    fixture->fake.hold = true;
    assert_int_equal(embtier_submit_push(batch, &options), EMBTIER_OK);
    assert_told(fixture, embtier_wait(batch, 5), EMBTIER_TIMEOUT, "the request continues");
    assert_int_equal(embtier_poll(batch), EMBTIER_AGAIN);
    assert_int_equal(embtier_batch_blamed_member(batch), UINT32_MAX);
    fixture->fake.err_segment = UINT32_MAX;
    fixture->fake.err_value = 1;
    fixture->fake.err = EMBTIER_TIMEOUT;
    fixture->fake.hold = false;
    assert_told(fixture, embtier_wait(batch, UINT32_MAX), EMBTIER_TIMEOUT,
                "group 'g' is over: member 1 has");
    assert_told(fixture, embtier_poll(batch), EMBTIER_TIMEOUT, "group 'g' is over: member 1 has");
    assert_int_equal(embtier_batch_blamed_member(batch), 1);
}

/* ---- Coalescing ---- */

static void fill(struct embtier_batch *batch, uint32_t part, const uint64_t *ids,
                 const float *firsts, uint32_t count, uint32_t dim)
{
    for (uint32_t i = 0; i < count; i++) {
        embtier_batch_ids(batch, part)[i] = ids[i];
        for (uint32_t d = 0; d < dim; d++)
            embtier_batch_gradients(batch, part)[i * dim + d] = firsts[i] * (float)(d + 1);
    }
}

static void assert_holds(struct embtier_batch *batch, uint32_t part, const uint64_t *ids,
                         const float *firsts, uint32_t count, uint32_t dim)
{
    assert_int_equal(embtier_batch_count(batch, part), count);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(embtier_batch_ids(batch, part)[i] == ids[i]);
        for (uint32_t d = 0; d < dim; d++)
            assert_true(embtier_batch_gradients(batch, part)[i * dim + d] ==
                        firsts[i] * (float)(d + 1));
    }
}

static void test_each_id_stands_once_after_coalescing_with_the_sum_of_its_gradients(void **state)
{
    struct fixture *fixture = *state;
    const struct embtier_part parts[] = {
        { fixture->words, 5 }, { fixture->users, 2 }, { fixture->words, 4 }, { fixture->users, 0 }
    };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new_push(fixture->server, parts, 4, &batch), EMBTIER_OK);
    fill(batch, 0, (uint64_t[]){ UINT64_MAX, 2, 7, 2, 2 }, (float[]){ 1, 2, 4, 8, 16 }, 5, 2);
    fill(batch, 1, (uint64_t[]){ 7, 7 }, (float[]){ 32, 64 }, 2, 4);
    fill(batch, 2, (uint64_t[]){ 9, 2, 3, 9 }, (float[]){ 128, 256, 512, 1024 }, 4, 2);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(embtier_batch_coalesce(batch), EMBTIER_OK);
        assert_holds(batch, 0, (uint64_t[]){ 2, 7, UINT64_MAX }, (float[]){ 282, 4, 1 }, 3, 2);
        assert_holds(batch, 1, (uint64_t[]){ 7 }, (float[]){ 96 }, 1, 4);
        assert_holds(batch, 2, (uint64_t[]){ 3, 9 }, (float[]){ 512, 1152 }, 2, 2);
        assert_int_equal(embtier_batch_count(batch, 3), 0);
    }
    assert_int_equal(push(batch, NULL, 1), EMBTIER_OK);
    assert_int_equal(fixture->fake.pushed[0].count, 3);
    assert_int_equal(fixture->fake.pushed[1].count, 1);
    assert_int_equal(fixture->fake.pushed[2].count, 2);
    assert_int_equal(embtier_batch_set_count(batch, 0, 5), EMBTIER_OK);
    assert_int_equal(embtier_batch_set_count(batch, 0, 6), EMBTIER_TOO_LARGE);
}

/* Sums are rounded after each addition: 2^24 + 1 + 1 is 2^24, and 1 + 1 + 2^24 is not. */
static void test_gradients_are_added_up_in_their_order(void **state)
{
    struct fixture *fixture = *state;
    const struct embtier_part parts[] = { { fixture->users, 4 }, { fixture->users, 2 } };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new_push(fixture->server, parts, 2, &batch), EMBTIER_OK);
    fill(batch, 0, (uint64_t[]){ 5, 1, 5, 1 }, (float[]){ 0x1p24f, 1, 1, 1 }, 4, 1);
    memset(embtier_batch_gradients(batch, 0), 0, 16 * sizeof(float));
    memset(embtier_batch_gradients(batch, 1), 0, 8 * sizeof(float));
    for (uint32_t i = 0; i < 4; i++)
        embtier_batch_gradients(batch, 0)[i * 4] = i == 0 ? 0x1p24f : 1;
    embtier_batch_ids(batch, 1)[0] = 5;
    embtier_batch_ids(batch, 1)[1] = 1;
    embtier_batch_gradients(batch, 1)[0] = 1;
    embtier_batch_gradients(batch, 1)[4] = 0x1p24f;
    embtier_batch_gradients(batch, 1)[5] = -0.0f;
    assert_int_equal(embtier_batch_coalesce(batch), EMBTIER_OK);
    assert_int_equal(embtier_batch_count(batch, 0), 2);
    assert_int_equal(embtier_batch_count(batch, 1), 0);
    assert_true(embtier_batch_ids(batch, 0)[0] == 1 && embtier_batch_ids(batch, 0)[1] == 5);
    assert_true(embtier_batch_gradients(batch, 0)[0] == 0x1p24f + 2);
    assert_true(embtier_batch_gradients(batch, 0)[4] == 0x1p24f);
}

static void test_many_ids_are_coalesced_as_a_loop_would(void **state)
{
    struct fixture *fixture = *state;
    const struct embtier_part parts[] = { { fixture->words, 600 }, { fixture->users, 300 } };
    struct embtier_batch *batch = NULL;
    float sums[2][8] = { { 0 } };
    uint32_t seed = 1;

    assert_int_equal(embtier_batch_new_push(fixture->server, parts, 2, &batch), EMBTIER_OK);
    for (uint32_t p = 0; p < 2; p++) {
        const uint32_t dim = p == 0 ? 2 : 4;

        for (uint32_t i = 0; i < parts[p].count; i++) {
            const uint32_t id = (seed = seed * 1664525u + 1013904223u) >> 29;
            const float gradient = (float)(int32_t)(seed = seed * 1664525u + 1013904223u);

            embtier_batch_ids(batch, p)[i] = id;
            for (uint32_t d = 0; d < dim; d++)
                embtier_batch_gradients(batch, p)[i * dim + d] = gradient;
            sums[p][id] += gradient;
        }
    }
    assert_int_equal(embtier_batch_coalesce(batch), EMBTIER_OK);
    for (uint32_t p = 0; p < 2; p++) {
        const uint32_t dim = p == 0 ? 2 : 4;

        assert_int_equal(embtier_batch_count(batch, p), 8);
        for (uint32_t i = 0; i < 8 * dim; i++) {
            assert_int_equal(embtier_batch_ids(batch, p)[i / dim], i / dim);
            assert_true(embtier_batch_gradients(batch, p)[i] == sums[p][i / dim]);
        }
    }
}

static void test_what_cannot_be_coalesced_is_told(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_push(fixture);
    const struct embtier_push_options options = of_group(NULL, 1);

    assert_told(fixture, embtier_batch_coalesce(new_rows(fixture)), EMBTIER_INVALID,
                "not made by embtier_batch_new_push()");
    assert_told(fixture, embtier_batch_coalesce(new_bags(fixture)), EMBTIER_INVALID,
                "not made by embtier_batch_new_push()");
    fixture->fake.hold = true;
    assert_int_equal(embtier_submit_push(batch, &options), EMBTIER_OK);
    assert_int_equal(embtier_batch_coalesce(batch), EMBTIER_BUSY);
    fixture->fake.hold = false;
    assert_int_equal(embtier_wait(batch, UINT32_MAX), EMBTIER_OK);
    assert_int_equal(embtier_batch_coalesce(batch), EMBTIER_OK);
    assert_int_equal(embtier_batch_set_count(batch, 0, 0), EMBTIER_OK);
    assert_int_equal(embtier_batch_coalesce(batch), EMBTIER_OK);
    assert_int_equal(embtier_batch_count(batch, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
        WITH_SERVER(test_a_member_knows_its_group_and_its_step),
        WITH_SERVER(test_mistakes_in_joining_are_told_without_asking_the_server),
        WITH_SERVER(test_memberships_end_with_their_session),
        WITH_SERVER(test_a_group_that_is_freed_lives_on_for_its_batches),
        WITH_SERVER(test_requests_name_the_group_they_are_told_to),
        WITH_SERVER(test_mistakes_with_groups_are_told_without_asking_the_server),
        WITH_SERVER(test_a_refusal_names_the_member_it_is_about),
        WITH_SERVER(test_a_lookup_ahead_of_its_step_is_told_so),
        WITH_SERVER(test_a_push_that_waited_too_long_is_done_and_a_wait_is_not),
        WITH_SERVER(test_each_id_stands_once_after_coalescing_with_the_sum_of_its_gradients),
        WITH_SERVER(test_gradients_are_added_up_in_their_order),
        WITH_SERVER(test_many_ids_are_coalesced_as_a_loop_would),
        WITH_SERVER(test_what_cannot_be_coalesced_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
