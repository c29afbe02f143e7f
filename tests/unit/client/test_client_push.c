/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the client library keeps account of tickets and prefetches, and sends the gradients
 * that it was given. */
#include "tests/unit/client/client_fixture.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/macros.h"

#define STEP_MAX ((UINT64_C(1) << 53) - 1)

/* Part 0: users with weights, 3 ids in 2 bags; part 1: words, 2 ids in 2 bags. */
static struct embtier_batch *new_bags(struct fixture *fixture)
{
    const struct embtier_bag_part parts[] = {
        { fixture->users, 3, 2, EMBTIER_POOL_SUM, 1 },
        { fixture->words, 2, 2, EMBTIER_POOL_MEAN, 0 },
    };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new_bags(fixture->server, parts, 2, &batch), EMBTIER_OK);
    for (uint32_t p = 0; p < 2; p++) {
        uint32_t *const offsets = embtier_batch_offsets(batch, p);

        for (uint32_t i = 0; i < parts[p].count; i++)
            embtier_batch_ids(batch, p)[i] = i;
        for (uint32_t b = 0; b <= parts[p].bag_count; b++)
            offsets[b] = MIN(b, parts[p].count);
        offsets[parts[p].bag_count] = parts[p].count;
    }
    for (uint32_t i = 0; i < 3; i++)
        embtier_batch_weights(batch, 0)[i] = 1;
    return batch;
}

static struct embtier_batch *new_bags_with_ticket(struct fixture *fixture)
{
    struct embtier_batch *batch = new_bags(fixture);

    assert_int_equal(embtier_get_pooled_ticket(batch), EMBTIER_OK);
    assert_true(embtier_batch_ticket(batch) != 0);
    return batch;
}

static struct embtier_batch *new_push(struct fixture *fixture)
{
    const struct embtier_part parts[] = { { fixture->words, 3 }, { fixture->users, 1 } };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new_push(fixture->server, parts, 2, &batch), EMBTIER_OK);
    for (uint32_t p = 0; p < 2; p++)
        for (uint32_t i = 0; i < parts[p].count; i++)
            embtier_batch_ids(batch, p)[i] = 5 + p;
    return batch;
}

static struct embtier_push_options at_step(uint64_t step)
{
    struct embtier_push_options options = EMBTIER_PUSH_OPTIONS_INIT;

    options.learning_rate = 0.5;
    options.step = step;
    return options;
}

static enum embtier_err push(struct embtier_batch *batch)
{
    const struct embtier_push_options options = at_step(1);

    return embtier_push(batch, &options);
}

static void assert_refused(struct fixture *fixture, enum embtier_err err, const char *message)
{
    assert_int_equal(err, EMBTIER_INVALID);
    if (!strstr(embtier_message(fixture->server), message))
        fail_msg("'%s' is not in '%s'", message, embtier_message(fixture->server));
}

/* ---- Tickets ---- */

static void test_a_ticket_is_there_from_its_lookup_to_its_push(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_bags(fixture);

    assert_int_equal(embtier_batch_ticket(batch), 0);
    assert_int_equal(embtier_get_pooled(batch), EMBTIER_OK);
    assert_int_equal(fixture->fake.submission.flags, 0);
    assert_int_equal(embtier_batch_ticket(batch), 0);
    assert_int_equal(embtier_get_pooled_ticket(batch), EMBTIER_OK);
    assert_int_equal(fixture->fake.submission.op, OP_POOL);
    assert_int_equal(fixture->fake.submission.flags, OP_FLAG_TICKET);
    assert_int_equal(embtier_batch_ticket(batch), FAKE_TICKET + 1);
    assert_int_equal(push(batch), EMBTIER_OK);
    assert_int_equal(fixture->fake.submission.ticket, FAKE_TICKET + 1);
    assert_int_equal(embtier_batch_ticket(batch), 0);
    assert_refused(fixture, push(batch), "has no ticket: look up with a ticket first");
    assert_int_equal(embtier_get_pooled_ticket(batch), EMBTIER_OK);
    assert_int_equal(embtier_batch_ticket(batch), FAKE_TICKET + 3);
}

static void test_a_batch_tells_the_step_of_its_last_push(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_bags_with_ticket(fixture);
    const struct embtier_push_options options = at_step(7);

    assert_int_equal(embtier_batch_pushed_step(batch), 0);
    fixture->fake.err = EMBTIER_NONFINITE;
    assert_int_equal(embtier_push(batch, &options), EMBTIER_NONFINITE);
    assert_int_equal(embtier_batch_pushed_step(batch), 0);
    fixture->fake.err = EMBTIER_OK;
    assert_int_equal(embtier_submit_push(batch, &options), EMBTIER_OK);
    assert_int_equal(embtier_batch_pushed_step(batch), 0);
    assert_int_equal(embtier_wait(batch, UINT32_MAX), EMBTIER_OK);
    assert_int_equal(embtier_batch_pushed_step(batch), 7);
    assert_int_equal(embtier_get_pooled(batch), EMBTIER_OK);
    assert_int_equal(embtier_batch_pushed_step(batch), 0);
}

static void test_a_batch_that_has_a_ticket_stays_as_it_was_looked_up(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_bags_with_ticket(fixture);
    const uint32_t taken = fixture->fake.taken;

    assert_refused(fixture, embtier_get_pooled(batch),
                   "ticket has not been used: push or release it first");
    assert_refused(fixture, embtier_get_pooled_ticket(batch),
                   "ticket has not been used: push or release it first");
    assert_refused(fixture, embtier_batch_set_bags(batch, 0, 1, 1),
                   "a ticket for the bags it looked up");
    assert_int_equal(fixture->fake.taken, taken);
    assert_int_equal(embtier_release(batch), EMBTIER_OK);
    assert_int_equal(fixture->fake.submission.op, OP_RELEASE);
    assert_int_equal(fixture->fake.submission.ticket, FAKE_TICKET);
    assert_int_equal(fixture->fake.submission.segment_count, 0);
    assert_int_equal(embtier_batch_ticket(batch), 0);
    assert_int_equal(embtier_batch_set_bags(batch, 0, 1, 1), EMBTIER_OK);
    assert_int_equal(embtier_get_pooled(batch), EMBTIER_OK);
}

static void test_releasing_what_is_not_there_asks_nothing_of_the_server(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batches[] = { new_bags(fixture), new_push(fixture) };

    for (size_t i = 0; i < ARRAY_LEN(batches); i++) {
        assert_int_equal(embtier_release(batches[i]), EMBTIER_OK);
        assert_refused(fixture, embtier_submit(batches[i], EMBTIER_RELEASE), "has no ticket");
    }
    assert_int_equal(fixture->fake.taken, 0);
}

static void test_a_ticket_is_unusable_while_a_request_is_in_flight(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_bags(fixture);
    const struct embtier_push_options options = at_step(1);

    fixture->fake.hold = true;
    assert_int_equal(embtier_submit(batch, EMBTIER_GET_POOLED_TICKET), EMBTIER_OK);
    assert_int_equal(embtier_batch_ticket(batch), 0);
    assert_int_equal(embtier_release(batch), EMBTIER_BUSY);
    assert_int_equal(push(batch), EMBTIER_BUSY);
    assert_int_equal(embtier_batch_set_skipped(batch, 0, 1), EMBTIER_BUSY);
    fixture->fake.hold = false;
    assert_int_equal(embtier_wait(batch, UINT32_MAX), EMBTIER_OK);
    assert_int_equal(embtier_batch_ticket(batch), FAKE_TICKET);
    fixture->fake.hold = true;
    assert_int_equal(embtier_submit_push(batch, &options), EMBTIER_OK);
    assert_int_equal(embtier_batch_ticket(batch), 0);
    assert_int_equal(embtier_get_pooled(batch), EMBTIER_BUSY);
    assert_int_equal(embtier_batch_set_bags(batch, 0, 1, 1), EMBTIER_BUSY);
    fixture->fake.hold = false;
    assert_int_equal(embtier_wait(batch, UINT32_MAX), EMBTIER_OK);
    assert_int_equal(embtier_batch_ticket(batch), 0);
}

/* A refused push changed nothing, here or at the server. The effect of a failed one is unknown. */
static void test_a_refused_push_leaves_the_batch_its_ticket_and_a_failed_one_does_not(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        enum embtier_err err;
        bool kept;
    } cases[] = {
        { EMBTIER_NONFINITE, true },    { EMBTIER_SHAPE, true },
        { EMBTIER_UNSUPPORTED, true },  { EMBTIER_INVALID, true },
        { EMBTIER_DROPPED, true },      { EMBTIER_NO_TICKET, false },
        { EMBTIER_TICKET_USED, false }, { EMBTIER_TICKET_EXPIRED, false },
        { EMBTIER_IO, false },          { EMBTIER_NO_SPACE, false },
        { EMBTIER_CORRUPT, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct embtier_batch *batch = new_bags_with_ticket(fixture);
        const uint64_t ticket = embtier_batch_ticket(batch);

        fixture->fake.err = cases[i].err;
        assert_int_equal(push(batch), cases[i].err);
        assert_int_equal(embtier_batch_ticket(batch), cases[i].kept ? ticket : 0);
        fixture->fake.err = 0;
        if (cases[i].kept)
            assert_int_equal(push(batch), EMBTIER_OK);
        assert_int_equal(embtier_get_pooled(batch), EMBTIER_OK);
        assert_int_equal(embtier_batch_free(batch), EMBTIER_OK);
    }
}

static void test_a_lookup_that_is_refused_gives_no_ticket(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_bags(fixture);

    fixture->fake.err_segment = UINT32_MAX;
    fixture->fake.err = EMBTIER_TICKETS_FULL;
    assert_int_equal(embtier_get_pooled_ticket(batch), EMBTIER_TICKETS_FULL);
    assert_int_equal(embtier_batch_ticket(batch), 0);
    fixture->fake.err = 0;
    assert_int_equal(embtier_get_pooled_ticket(batch), EMBTIER_OK);
}

static void test_tickets_end_with_their_session(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_bags_with_ticket(fixture);

    drop_client(fixture);
    assert_int_equal(embtier_reconnect(fixture->server), EMBTIER_OK);
    assert_int_equal(embtier_batch_ticket(batch), 0);
    assert_int_equal(push(batch), EMBTIER_NO_TICKET);
    assert_non_null(strstr(embtier_message(fixture->server), "ended with its session"));
    assert_int_equal(embtier_batch_set_bags(batch, 0, 3, 2), EMBTIER_OK);
    assert_int_equal(embtier_get_pooled_ticket(batch), EMBTIER_OK);
    assert_int_equal(push(batch), EMBTIER_OK);
}

/* ---- Pushes ---- */

static void test_a_push_by_ticket_has_gradients_where_the_bags_were(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_bags_with_ticket(fixture);
    const struct op_push_segment *pushed = fixture->fake.pushed;
    const struct embtier_push_options options = at_step(STEP_MAX);

    assert_true(embtier_batch_bags(batch, 0)[7] == 2);
    for (uint32_t p = 0; p < 2; p++) {
        assert_ptr_equal(embtier_batch_gradients(batch, p), embtier_batch_bags(batch, p));
        embtier_batch_gradients(batch, p)[0] = 0.25f + (float)p;
    }
    assert_int_equal(embtier_push(batch, &options), EMBTIER_OK);
    assert_int_equal(fixture->fake.submission.op, OP_PUSH);
    assert_int_equal(fixture->fake.submission.flags, 0);
    assert_int_equal(fixture->fake.submission.step, STEP_MAX);
    assert_int_equal(fixture->fake.submission.segment_count, 2);
    for (uint32_t p = 0; p < 2; p++) {
        assert_int_equal(pushed[p].count, 2);
        assert_int_equal(pushed[p].dim, p == 0 ? 4 : 2);
        assert_int_equal(pushed[p].ids_offset, 0);
        assert_int_equal(pushed[p].weights_offset, 0);
        assert_int_equal(pushed[p].flags, 0);
        assert_true(pushed[p].learning_rate == 0.5);
        assert_true(fixture->fake.pushed_gradients[p] == 0.25f + (float)p);
    }
    assert_true(pushed[0].table != pushed[1].table);
}

static void test_a_skipped_part_has_no_gradients_until_the_next_lookup(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_bags(fixture);
    const struct op_push_segment *pushed = fixture->fake.pushed;

    assert_refused(fixture, embtier_batch_set_skipped(batch, 0, 1), "has no ticket");
    assert_int_equal(embtier_get_pooled_ticket(batch), EMBTIER_OK);
    assert_refused(fixture, embtier_batch_set_skipped(batch, 2, 1),
                   "there is no part 2 in a batch of 2 parts");
    assert_int_equal(embtier_batch_set_skipped(batch, 0, 1), EMBTIER_OK);
    assert_int_equal(embtier_batch_set_skipped(batch, 1, 1), EMBTIER_OK);
    assert_int_equal(embtier_batch_set_skipped(batch, 0, 0), EMBTIER_OK);
    assert_int_equal(push(batch), EMBTIER_OK);
    assert_true(pushed[0].gradients_offset != 0);
    assert_int_equal(pushed[1].gradients_offset, 0);
    assert_int_equal(pushed[1].count, 2);
    assert_int_equal(embtier_get_pooled_ticket(batch), EMBTIER_OK);
    assert_int_equal(push(batch), EMBTIER_OK);
    assert_true(pushed[1].gradients_offset != 0);
}

static void test_gradients_of_weights_are_written_over_them_when_asked_for(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_bags_with_ticket(fixture);
    struct embtier_push_options options = at_step(1);

    assert_int_equal(embtier_push(batch, &options), EMBTIER_OK);
    assert_true(embtier_batch_weights(batch, 0)[0] == 1);
    assert_int_equal(embtier_get_pooled_ticket(batch), EMBTIER_OK);
    options.weight_gradients = 1;
    assert_int_equal(embtier_push(batch, &options), EMBTIER_OK);
    assert_true(embtier_batch_weights(batch, 0)[0] == FAKE_WEIGHT);
    assert_int_equal(fixture->fake.pushed[1].weights_offset, 0); /* part 1 has no weights */
    embtier_batch_weights(batch, 0)[0] = 1;
    assert_int_equal(embtier_get_pooled_ticket(batch), EMBTIER_OK);
    assert_int_equal(embtier_batch_set_skipped(batch, 0, 1), EMBTIER_OK);
    assert_int_equal(embtier_push(batch, &options), EMBTIER_OK);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(embtier_batch_weights(batch, 0)[i] == 0);
}

static void test_a_push_by_rows_has_ids_and_a_gradient_for_each(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_push(fixture);
    const struct op_push_segment *pushed = fixture->fake.pushed;
    const double rates[] = { 0.25, -3 };
    struct embtier_push_options options = at_step(7);

    assert_null(embtier_batch_rows(batch, 0));
    assert_null(embtier_batch_bags(batch, 0));
    assert_null(embtier_batch_offsets(batch, 0));
    assert_null(embtier_batch_weights(batch, 0));
    assert_null(embtier_batch_gradients(batch, 2));
    assert_int_equal(embtier_batch_row_bytes(batch, 0), 0);
    assert_int_equal((uintptr_t)embtier_batch_gradients(batch, 0) % 64, 0);
    /* Gradients are f32, although the table is f16. */
    assert_true((char *)embtier_batch_gradients(batch, 1) -
                    (char *)embtier_batch_gradients(batch, 0) >=
                3 * 2 * (ptrdiff_t)sizeof(float));
    for (uint32_t p = 0; p < 2; p++)
        embtier_batch_gradients(batch, p)[0] = 0.25f + (float)p;
    options.learning_rates = rates;
    assert_int_equal(embtier_batch_set_count(batch, 0, 2), EMBTIER_OK);
    assert_int_equal(embtier_push(batch, &options), EMBTIER_OK);
    assert_int_equal(fixture->fake.submission.op, OP_PUSH);
    assert_int_equal(fixture->fake.submission.ticket, 0);
    assert_int_equal(fixture->fake.submission.step, 7);
    for (uint32_t p = 0; p < 2; p++) {
        assert_int_equal(pushed[p].count, p == 0 ? 2 : 1);
        assert_int_equal(pushed[p].dim, p == 0 ? 2 : 4);
        assert_int_equal(pushed[p].weights_offset, 0);
        assert_true(pushed[p].learning_rate == rates[p]);
        assert_int_equal(fixture->fake.pushed_ids[p], 5 + p);
        assert_true(fixture->fake.pushed_gradients[p] == 0.25f + (float)p);
    }
    assert_int_equal(push(batch), EMBTIER_OK); /* pushing again works */
}

/* ---- Mistakes ---- */

static void test_mistakes_in_options_are_told_without_asking_the_server(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_push(fixture);
    const double rates[] = { 1, INFINITY };
    struct embtier_push_options options = at_step(0);

    assert_refused(fixture, embtier_push(batch, &options),
                   "step is 0, allowed: 1 to 9007199254740991");
    options.step = STEP_MAX + 1;
    assert_refused(fixture, embtier_submit_push(batch, &options), "step is 9007199254740992");
    options.step = 1;
    options.learning_rate = NAN;
    assert_refused(fixture, embtier_push(batch, &options),
                   "nan is not finite (part 0, table 'words')");
    options.learning_rates = rates;
    assert_refused(fixture, embtier_push(batch, &options),
                   "inf is not finite (part 1, table 'users')");
    options = at_step(1);
    options.weight_gradients = 1;
    assert_refused(fixture, embtier_push(batch, &options), "only a push by ticket");
    options = at_step(1);
    options.struct_bytes = 0;
    assert_refused(fixture, embtier_push(batch, &options),
                   "initialise with EMBTIER_PUSH_OPTIONS_INIT");
    options.struct_bytes = sizeof(options) + 1;
    assert_refused(fixture, embtier_push(batch, &options),
                   "initialise with EMBTIER_PUSH_OPTIONS_INIT");
    options.struct_bytes = sizeof(options) - 1; /* half a pointer */
    assert_refused(fixture, embtier_push(batch, &options),
                   "initialise with EMBTIER_PUSH_OPTIONS_INIT");
    assert_refused(fixture, embtier_push(batch, NULL), "initialise with EMBTIER_PUSH_OPTIONS_INIT");
    assert_int_equal(fixture->fake.taken, 0);
}

static void test_a_batch_does_only_what_it_was_made_for(void **state)
{
    struct fixture *fixture = *state;
    const struct embtier_part part = { fixture->users, 1 };
    struct embtier_batch *rows = NULL, *bags = new_bags(fixture), *gradients = new_push(fixture);

    assert_int_equal(embtier_batch_new(fixture->server, &part, 1, &rows), EMBTIER_OK);
    assert_null(embtier_batch_gradients(rows, 0));
    assert_refused(fixture, push(rows), "one made by embtier_batch_new_push()");
    assert_refused(fixture, embtier_get_pooled_ticket(rows), "needs a batch of bags");
    assert_refused(fixture, embtier_get_pooled_ticket(gradients), "needs a batch of bags");
    assert_refused(fixture, embtier_get(gradients), "a batch of gradients is for pushes");
    assert_refused(fixture, embtier_set(gradients), "a batch of gradients is for pushes");
    assert_refused(fixture, embtier_set(bags), "a batch of bags is for pooled lookups");
    assert_refused(fixture, embtier_submit(gradients, EMBTIER_PUSH), "embtier_submit_push()");
    assert_refused(fixture, embtier_batch_set_bags(gradients, 0, 1, 1), "has no bags");
    assert_refused(fixture, embtier_batch_set_skipped(gradients, 0, 1), "has no ticket");
    assert_int_equal(fixture->fake.taken, 0);
}

static void test_a_refusal_is_told_with_what_was_wrong(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        enum embtier_err err;
        uint32_t segment;
        const char *message;
    } cases[] = {
        { EMBTIER_NO_TICKET, UINT32_MAX, "this client has no ticket 57" },
        { EMBTIER_TICKET_USED, UINT32_MAX, "ticket 57 has been used or released" },
        { EMBTIER_TICKET_EXPIRED, UINT32_MAX,
          "ticket 57 has expired: the server keeps tickets for 10 ms" },
        { EMBTIER_TICKETS_FULL, UINT32_MAX,
          "no room for a push by rows of 57 bytes: all together may use 10 (lanes.ticket_bytes); "
          "push or release tickets first" },
        { EMBTIER_TICKET_USED, 1, "ticket 57 has been used or released" },
        { EMBTIER_SHAPE, UINT32_MAX, "push of 57 parts with the ticket of a lookup of 10" },
        { EMBTIER_SHAPE, 0,
          "gradients have the wrong shape: 57 where 10 is needed (part 0, table 'users')" },
        { EMBTIER_NONFINITE, 1,
          "table 'words' refuses gradients with NaN or infinity, and the gradient of bag 57 has "
          "one (part 1)" },
        { EMBTIER_UNSUPPORTED, 0,
          "table 'users' has no optimizer for a push (part 0): set its rows, or make a table with "
          "one" },
        { EMBTIER_UNSUPPORTED, UINT32_MAX, "not supported here" },
        { EMBTIER_INVALID, UINT32_MAX,
          "the server refused the push; steps are 1 to 9007199254740991" },
        { EMBTIER_INVALID, 1,
          "the learning rate is not finite, or differs from that of other parts of table 'words' "
          "(part 1)" },
        { EMBTIER_TOO_LARGE, UINT32_MAX,
          "batch of 57 ids or bags is over the server's limit of 10" },
        { EMBTIER_DROPPED, 1, "table 'words' was dropped (part 1)" },
    };

    fixture->fake.err_value = 57;
    fixture->fake.err_limit = 10;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct embtier_batch *batch = new_bags_with_ticket(fixture);

        fixture->fake.err_segment = cases[i].segment;
        fixture->fake.err = cases[i].err;
        assert_int_equal(push(batch), cases[i].err);
        assert_string_equal(embtier_message(fixture->server), cases[i].message);
        fixture->fake.err = 0;
    }
    fixture->fake.err_segment = 0;
    fixture->fake.err = EMBTIER_NONFINITE;
    assert_int_equal(push(new_push(fixture)), EMBTIER_NONFINITE);
    assert_non_null(
        strstr(embtier_message(fixture->server), "the gradient of the id at 57 has one"));
}

static void test_a_refused_lookup_is_told_for_what_it_is(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        enum embtier_err err;
        uint32_t segment;
        uint64_t limit;
        const char *message;
    } cases[] = {
        { EMBTIER_TICKETS_FULL, UINT32_MAX, 10,
          "no room for a ticket of 57 bytes: all together may use 10 (lanes.ticket_bytes); push or "
          "release tickets first" },
        { EMBTIER_TICKETS_FULL, UINT32_MAX, 0,
          "a client may hold at most 57 tickets; push or release some first" },
        { EMBTIER_UNSUPPORTED, 1, 0,
          "in a lookup with a ticket, all parts of table 'words' must be maxima, or none (part "
          "1)" },
        { EMBTIER_INVALID, 0, 0, "invalid argument (part 0, table 'users')" },
        { EMBTIER_INVALID, UINT32_MAX, 0, "invalid argument" },
    };
    struct embtier_batch *batch = new_bags(fixture);

    fixture->fake.err_value = 57;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fixture->fake.err_segment = cases[i].segment;
        fixture->fake.err_limit = cases[i].limit;
        fixture->fake.err = cases[i].err;
        assert_int_equal(embtier_get_pooled_ticket(batch), cases[i].err);
        assert_string_equal(embtier_message(fixture->server), cases[i].message);
    }
}

/* ---- Prefetches ---- */

static struct embtier_batch *new_prefetch(struct fixture *fixture)
{
    const struct embtier_part parts[] = { { fixture->words, 3 }, { fixture->users, 2 } };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new_prefetch(fixture->server, parts, 2, &batch), EMBTIER_OK);
    for (uint32_t p = 0; p < 2; p++)
        for (uint32_t i = 0; i < parts[p].count; i++)
            embtier_batch_ids(batch, p)[i] = 5 + p;
    return batch;
}

static struct embtier_batch *prefetched(struct fixture *fixture)
{
    struct embtier_batch *batch = new_prefetch(fixture);

    assert_int_equal(embtier_prefetch(batch), EMBTIER_OK);
    assert_true(embtier_batch_ticket(batch) != 0);
    return batch;
}

static enum embtier_err push_naming(struct embtier_batch *batch, struct embtier_batch *prefetch)
{
    struct embtier_push_options options = at_step(1);

    options.prefetch = prefetch;
    return embtier_push(batch, &options);
}

static void test_a_prefetch_sends_ids_and_is_there_until_it_is_released(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_prefetch(fixture);
    const struct op_push_segment *sent = fixture->fake.pushed;

    assert_null(embtier_batch_rows(batch, 0));
    assert_null(embtier_batch_bags(batch, 0));
    assert_null(embtier_batch_gradients(batch, 0));
    assert_null(embtier_batch_state(batch, 0));
    assert_int_equal(embtier_batch_row_bytes(batch, 0), 0);
    assert_int_equal(embtier_batch_ticket(batch), 0);
    assert_int_equal(embtier_batch_set_count(batch, 0, 1), EMBTIER_OK);
    assert_int_equal(embtier_prefetch(batch), EMBTIER_OK);
    assert_int_equal(embtier_batch_ticket(batch), FAKE_TICKET);
    assert_int_equal(fixture->fake.submission.op, OP_PREFETCH);
    assert_int_equal(fixture->fake.submission.flags, 0);
    assert_int_equal(fixture->fake.submission.segment_count, 2);
    for (uint32_t p = 0; p < 2; p++) {
        assert_int_equal(sent[p].count, 1 + p);
        assert_int_equal(sent[p].gradients_offset, 0);
        assert_int_equal(sent[p].weights_offset, 0);
        assert_int_equal(fixture->fake.pushed_ids[p], 5 + p);
    }
    assert_true(sent[0].table != sent[1].table);
    assert_refused(fixture, embtier_prefetch(batch), "has a prefetch: release it first");
    assert_refused(fixture, embtier_submit(batch, EMBTIER_PREFETCH), "release it first");
    assert_refused(fixture, embtier_batch_set_count(batch, 0, 3), "release it first");
    assert_int_equal(embtier_release(batch), EMBTIER_OK);
    assert_int_equal(fixture->fake.submission.op, OP_RELEASE);
    assert_int_equal(fixture->fake.submission.ticket, FAKE_TICKET);
    assert_int_equal(embtier_batch_ticket(batch), 0);
    assert_int_equal(embtier_release(batch), EMBTIER_OK);
    assert_refused(fixture, embtier_submit(batch, EMBTIER_RELEASE), "has no prefetch");
    assert_int_equal(embtier_batch_set_count(batch, 0, 3), EMBTIER_OK);
    assert_int_equal(embtier_submit(batch, EMBTIER_PREFETCH), EMBTIER_OK);
    assert_int_equal(embtier_wait(batch, UINT32_MAX), EMBTIER_OK);
    assert_int_equal(embtier_batch_ticket(batch), FAKE_TICKET + 2);
}

static void test_a_push_takes_the_prefetch_along_that_it_names(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batches[] = { new_push(fixture), new_bags_with_ticket(fixture) };

    for (size_t i = 0; i < ARRAY_LEN(batches); i++) {
        struct embtier_batch *prefetch = prefetched(fixture);
        const uint64_t number = embtier_batch_ticket(prefetch);

        assert_int_equal(push_naming(batches[i], prefetch), EMBTIER_OK);
        assert_int_equal(fixture->fake.submission.prefetch, number);
        assert_int_equal(embtier_batch_ticket(prefetch), 0);
        assert_int_equal(embtier_batch_ticket(batches[i]), 0);
        assert_int_equal(embtier_prefetch(prefetch), EMBTIER_OK);
    }
    assert_int_equal(push(batches[0]), EMBTIER_OK);
    assert_int_equal(fixture->fake.submission.prefetch, 0);
}

static void test_a_prefetch_is_unusable_while_its_push_is_in_flight(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_push(fixture), *other = new_push(fixture);
    struct embtier_batch *prefetch = prefetched(fixture);
    struct embtier_push_options options = at_step(1);

    options.prefetch = prefetch;
    fixture->fake.hold = true;
    assert_int_equal(embtier_submit_push(batch, &options), EMBTIER_OK);
    assert_int_equal(embtier_batch_ticket(prefetch), 0);
    assert_int_equal(embtier_submit_push(other, &options), EMBTIER_BUSY);
    assert_int_equal(embtier_submit(prefetch, EMBTIER_RELEASE), EMBTIER_BUSY);
    assert_int_equal(embtier_release(prefetch), EMBTIER_BUSY);
    assert_int_equal(embtier_batch_set_count(prefetch, 0, 1), EMBTIER_BUSY);
    assert_int_equal(embtier_batch_free(prefetch), EMBTIER_BUSY);
    fixture->fake.hold = false;
    assert_int_equal(embtier_wait(batch, UINT32_MAX), EMBTIER_OK);
    assert_refused(fixture, embtier_submit_push(other, &options), "has no prefetch");
    assert_int_equal(embtier_batch_free(prefetch), EMBTIER_OK);
}

static void test_a_refused_push_leaves_the_prefetch_where_it_was(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        enum embtier_err err;
        bool is_about_prefetch;
        bool keeps_ticket;
        bool keeps_prefetch;
    } cases[] = {
        { EMBTIER_NONFINITE, false, true, true },
        { EMBTIER_SHAPE, false, true, true },
        { EMBTIER_INVALID, false, true, true },
        { EMBTIER_TICKET_EXPIRED, false, false, true },
        { EMBTIER_TICKET_USED, false, false, true },
        { EMBTIER_NO_TICKET, false, false, true },
        { EMBTIER_TICKET_EXPIRED, true, true, false },
        { EMBTIER_TICKET_USED, true, true, false },
        { EMBTIER_NO_TICKET, true, true, false },
        { EMBTIER_IO, false, false, false },
        { EMBTIER_NO_SPACE, false, false, false },
        { EMBTIER_CORRUPT, false, false, false },
    };

    fixture->fake.err_segment = UINT32_MAX;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct embtier_batch *batch = new_bags_with_ticket(fixture);
        struct embtier_batch *prefetch = prefetched(fixture);
        const uint64_t ticket = embtier_batch_ticket(batch);
        const uint64_t number = embtier_batch_ticket(prefetch);

        fixture->fake.err = cases[i].err;
        fixture->fake.err_value = cases[i].is_about_prefetch ? number : ticket;
        assert_int_equal(push_naming(batch, prefetch), cases[i].err);
        if (cases[i].is_about_prefetch)
            assert_non_null(strstr(embtier_message(fixture->server), "prefetch "));
        assert_int_equal(embtier_batch_ticket(batch), cases[i].keeps_ticket ? ticket : 0);
        assert_int_equal(embtier_batch_ticket(prefetch), cases[i].keeps_prefetch ? number : 0);
        fixture->fake.err = 0;
        if (cases[i].keeps_ticket && !cases[i].keeps_prefetch)
            assert_int_equal(push(batch), EMBTIER_OK);
        assert_int_equal(embtier_release(prefetch), EMBTIER_OK);
        assert_int_equal(embtier_batch_free(prefetch), EMBTIER_OK);
        assert_int_equal(embtier_batch_free(batch), EMBTIER_OK);
    }
}

static void test_prefetches_end_with_their_session(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_push(fixture);
    struct embtier_batch *kept = prefetched(fixture), *lent = prefetched(fixture);
    struct embtier_push_options options = at_step(1);

    options.prefetch = lent;
    fixture->fake.hold = true;
    assert_int_equal(embtier_submit_push(batch, &options), EMBTIER_OK);
    fixture->fake.drop_client = true;
    assert_int_equal(embtier_wait(batch, UINT32_MAX), EMBTIER_DISCONNECTED);
    fixture->fake.hold = false;
    assert_int_equal(embtier_batch_ticket(lent), 0);
    assert_int_equal(embtier_reconnect(fixture->server), EMBTIER_OK);
    assert_int_equal(embtier_batch_ticket(kept), 0);
    assert_int_equal(embtier_prefetch(lent), EMBTIER_OK);
    assert_int_equal(embtier_prefetch(kept), EMBTIER_OK);
}

static void test_mistakes_with_prefetches_are_told_without_asking_the_server(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_batch *batch = new_prefetch(fixture), *rows = new_push(fixture);
    struct embtier_batch *bags = new_bags(fixture);
    struct embtier_push_options options = at_step(1);

    assert_refused(fixture, embtier_prefetch(rows), "made by embtier_batch_new_prefetch()");
    assert_refused(fixture, embtier_prefetch(bags), "made by embtier_batch_new_prefetch()");
    assert_refused(fixture, embtier_get(batch), "it is for prefetches");
    assert_refused(fixture, embtier_set(batch), "it is for prefetches");
    assert_refused(fixture, embtier_get_pooled(batch), "needs a batch of bags");
    assert_refused(fixture, push(batch), "one made by embtier_batch_new_push()");
    assert_refused(fixture, embtier_batch_set_bags(batch, 0, 1, 1), "has no bags");
    assert_refused(fixture, embtier_batch_set_skipped(batch, 0, 1), "has no ticket");
    assert_refused(fixture, push_naming(rows, batch), "has no prefetch");
    assert_refused(fixture, push_naming(rows, bags), "was not made by embtier_batch_new_prefetch");
    assert_int_equal(fixture->fake.taken, 0);
    options.struct_bytes = offsetof(struct embtier_push_options, prefetch);
    options.prefetch = bags; /* a caller that does not know this field */
    assert_int_equal(embtier_push(rows, &options), EMBTIER_OK);
}

static void test_a_refused_prefetch_is_told_for_what_it_is(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        enum embtier_err err;
        uint32_t segment;
        uint64_t limit;
        const char *message;
    } cases[] = {
        { EMBTIER_PINS_FULL, 0, 0,
          "no room in DRAM for row id 57 of table 'words': prefetched rows may use half of the "
          "first tier; push or release prefetches first, or prefetch fewer rows at a time (part "
          "0)" },
        { EMBTIER_PINS_FULL, UINT32_MAX, 10,
          "no room in DRAM for a prefetch of 57 bytes of rows: your user's prefetches may use 10, "
          "three quarters of what other users leave of half of the first tier; push or release "
          "prefetches first, or prefetch fewer rows at a time" },
        { EMBTIER_TICKETS_FULL, UINT32_MAX, 10,
          "no room for a prefetch of 57 bytes: all together may use 10 (lanes.ticket_bytes); push "
          "or release tickets first" },
        { EMBTIER_TICKETS_FULL, UINT32_MAX, 0,
          "a client may hold at most 57 tickets; push or release some first" },
        { EMBTIER_ID_RANGE, 1, 10,
          "row id 57 is out of range: table 'users' has 10 rows; allowed: 0 to 9 (part 1)" },
    };
    struct embtier_batch *batch = new_prefetch(fixture);

    fixture->fake.err_value = 57;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fixture->fake.err_segment = cases[i].segment;
        fixture->fake.err_limit = cases[i].limit;
        fixture->fake.err = cases[i].err;
        assert_int_equal(embtier_prefetch(batch), cases[i].err);
        assert_string_equal(embtier_message(fixture->server), cases[i].message);
        assert_int_equal(embtier_batch_ticket(batch), 0);
    }
    fixture->fake.err = 0;
    assert_int_equal(embtier_prefetch(batch), EMBTIER_OK);
    fixture->fake.err = EMBTIER_TICKET_EXPIRED;
    fixture->fake.err_segment = UINT32_MAX;
    assert_int_equal(embtier_release(batch), EMBTIER_TICKET_EXPIRED);
    assert_string_equal(embtier_message(fixture->server),
                        "prefetch 57 has expired: the server keeps tickets for 10 ms");
    assert_int_equal(embtier_batch_ticket(batch), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
        WITH_SERVER(test_a_ticket_is_there_from_its_lookup_to_its_push),
        WITH_SERVER(test_a_batch_tells_the_step_of_its_last_push),
        WITH_SERVER(test_a_batch_that_has_a_ticket_stays_as_it_was_looked_up),
        WITH_SERVER(test_releasing_what_is_not_there_asks_nothing_of_the_server),
        WITH_SERVER(test_a_ticket_is_unusable_while_a_request_is_in_flight),
        WITH_SERVER(test_a_refused_push_leaves_the_batch_its_ticket_and_a_failed_one_does_not),
        WITH_SERVER(test_a_lookup_that_is_refused_gives_no_ticket),
        WITH_SERVER(test_tickets_end_with_their_session),
        WITH_SERVER(test_a_push_by_ticket_has_gradients_where_the_bags_were),
        WITH_SERVER(test_a_skipped_part_has_no_gradients_until_the_next_lookup),
        WITH_SERVER(test_gradients_of_weights_are_written_over_them_when_asked_for),
        WITH_SERVER(test_a_push_by_rows_has_ids_and_a_gradient_for_each),
        WITH_SERVER(test_mistakes_in_options_are_told_without_asking_the_server),
        WITH_SERVER(test_a_batch_does_only_what_it_was_made_for),
        WITH_SERVER(test_a_refusal_is_told_with_what_was_wrong),
        WITH_SERVER(test_a_refused_lookup_is_told_for_what_it_is),
        WITH_SERVER(test_a_prefetch_sends_ids_and_is_there_until_it_is_released),
        WITH_SERVER(test_a_push_takes_the_prefetch_along_that_it_names),
        WITH_SERVER(test_a_prefetch_is_unusable_while_its_push_is_in_flight),
        WITH_SERVER(test_a_refused_push_leaves_the_prefetch_where_it_was),
        WITH_SERVER(test_prefetches_end_with_their_session),
        WITH_SERVER(test_mistakes_with_prefetches_are_told_without_asking_the_server),
        WITH_SERVER(test_a_refused_prefetch_is_told_for_what_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
