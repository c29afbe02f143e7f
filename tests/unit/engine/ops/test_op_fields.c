/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that an operation uses each field of its request or refuses it by name, and that no used
 * field leads out of the client's arena. The test walks the tables of proto/op_fields.h, so a new
 * operation or field is covered by being there. Builds that lack a check of the fields
 * (meson.build) must fail this test. */
#include "tests/unit/engine/ops/forms_fixture.h"

#define DIM        16
#define ROWS       200
#define SLOT_BYTES (32 * KIB)
#define CANARY     0xa5

static const struct lanes_shape shapes[] = {
    { .lane_count = 1, .slabs_per_lane = 2, .readers = 1, .write_queue_bytes = 256 * KIB },
    { .lane_count = 3, .slabs_per_lane = 2, .readers = 1, .write_queue_bytes = 256 * KIB },
};

static const uint32_t forms[] = {
#define FORM(name, ...) OP_FORM_##name,
    OP_FORMS(FORM)
#undef FORM
};

struct walk {
    struct lanes_fixture x;
    struct client bad, good;
    struct form_shape shape;
    uint64_t other; /* no request of the bad client names it */
    uint8_t *canary;
    uint32_t form;
    uint64_t ticket; /* for the form's next request, or 0 */
};

static void walk_start(struct walk *w, struct store_fixture *f, const struct lanes_shape *shape)
{
    memset(w, 0, sizeof(*w));
    lanes_start(&w->x, f, shape);
    w->shape = (struct form_shape){
        .table = fixture_table(&w->x, "t", ROWS, DIM, EMBTIER_OPTIMIZER_ADAGRAD),
        .dim = DIM,
        .rows = ROWS,
        .segments = 2,
        .ids = 20,
        .bags = 4,
    };
    w->other = fixture_table(&w->x, "other", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
    w->bad = client_attach(&w->x, SLOT_BYTES);
    w->good = client_attach(&w->x, SLOT_BYTES);
    for (uint64_t id = 0; id < ROWS; id++)
        assert_int_equal(client_set_one(&w->good, w->other, id, DIM, 2), EMBTIER_OK);
    w->canary = (uint8_t *)client_segment(&w->good, FIXTURE_SLOTS - 1);
    memset(w->canary, CANARY, SLOT_BYTES);
}

/* Checks that another client still has its data, and is served. */
static void walk_look(struct walk *w)
{
    for (uint32_t i = 0; i < SLOT_BYTES; i++)
        assert_int_equal(w->canary[i], CANARY);
    for (uint64_t id = 0; id < ROWS; id++) {
        float value = 0;

        while (w->good.submitted % FIXTURE_SLOTS == FIXTURE_SLOTS - 1)
            assert_int_equal(
                form_submit(&w->good,
                            &(struct op_submission){ .op = OP_GET,
                                                     .segments_offset = client_offset(
                                                         &w->good, client_segment(&w->good, 0)) })
                    ->err,
                EMBTIER_OK);
        assert_int_equal(client_get_one(&w->good, w->other, id, &value), EMBTIER_OK);
        assert_true(value == 2);
    }
}

static void walk_stop(struct walk *w)
{
    client_detach(&w->bad);
    client_detach(&w->good);
    lanes_stop(&w->x);
}

/* Makes a valid request of the form, with its segments. */
static struct op_submission good_request(struct walk *w, uint8_t **ret_segments)
{
    struct form_place places[2];
    void *at;

    if (form_takes_ticket(w->form) && w->ticket == 0)
        w->ticket = form_look_up(&w->bad, &w->shape, client_segment(&w->bad, w->bad.submitted));
    at = client_segment(&w->bad, w->bad.submitted);
    *ret_segments = at;
    return form_lay_out(&w->bad, w->form, &w->shape, w->ticket, at, places);
}

/* Submits the request. Releases the ticket that it leaves, and forgets the one it used. */
static struct op_completion submit_it(struct walk *w, const struct op_submission *submission)
{
    const struct op_completion *const done = form_submit(&w->bad, submission);
    const struct op_completion answer = { .err = done->err,
                                          .segment = done->segment,
                                          .field = done->field,
                                          .value = done->value,
                                          .ticket = done->ticket };

    if (answer.err == EMBTIER_OK && form_takes_ticket(w->form))
        w->ticket = 0;
    if (answer.err == EMBTIER_OK && answer.ticket != 0)
        form_release(&w->bad, answer.ticket);
    return answer;
}

static void assert_good_request_is_served(struct walk *w)
{
    uint8_t *segments;
    const struct op_submission submission = good_request(w, &segments);
    const struct op_completion done = submit_it(w, &submission);

    if (done.err != EMBTIER_OK)
        fail_msg("%s is refused: %s, field at %u", op_form_words(w->form),
                 err_name((enum embtier_err)done.err), done.field);
}

/* True for errors that blame the client, and not a server in trouble. */
static bool is_refusal(uint32_t err)
{
    switch (err) {
    case EMBTIER_INVALID:
    case EMBTIER_NO_TABLE:
    case EMBTIER_ID_RANGE:
    case EMBTIER_OFFSET_RANGE:
    case EMBTIER_TOO_LARGE:
    case EMBTIER_MISMATCH:
    case EMBTIER_UNSUPPORTED:
    case EMBTIER_BAG_RANGE:
    case EMBTIER_NO_TICKET:
    case EMBTIER_SHAPE:
    case EMBTIER_NONFINITE:
    case EMBTIER_NO_GROUP:
        return true;
    default:
        return false;
    }
}

static void check_answer(const struct walk *w, const struct op_field *field, uint32_t segment,
                         uint64_t value, const struct op_completion *done)
{
    const char *const form = op_form_words(w->form);

    if (field->uses & w->form) {
        /* A too large segment count makes the server take the bytes behind the segments for more
         * segments. */
        const bool is_other_field =
            done->field != 0 && (done->segment == UINT32_MAX || done->segment < w->shape.segments);

        if (is_other_field || (done->err != EMBTIER_OK && !is_refusal(done->err)))
            fail_msg("%s with %s = %llu: %s", form, field->name, (unsigned long long)value,
                     err_name((enum embtier_err)done->err));
        return;
    }
    if (done->err != (uint32_t)field->err || done->field != field->offset + 1 ||
        done->segment != segment || done->value != value)
        fail_msg("%s with %s = %llu, which it does not use: %s, field at %u, segment %u", form,
                 field->name, (unsigned long long)value, err_name((enum embtier_err)done->err),
                 done->field, done->segment);
}

/* Sets one field, of segment @segment or of the submission, to one value. */
static void try_field(struct walk *w, const struct op_field *field, uint32_t segment,
                      uint64_t value)
{
    uint8_t *segments;
    struct op_submission submission = good_request(w, &segments);
    uint8_t *const place =
        (segment == UINT32_MAX ? (uint8_t *)&submission
                               : segments + (size_t)segment * op_segment_bytes(w->form)) +
        field->offset;
    struct op_completion done;
    uint64_t had = 0;

    memcpy(&had, place, field->bytes);
    if (field->bytes == 4)
        value = (uint32_t)value;
    if (value == had)
        return;
    memcpy(place, &value, field->bytes);
    if (segment == UINT32_MAX && !strcmp(field->name, "op") && op_form_of(&submission) != 0)
        return; /* another form, which is tested in its turn */
    if (segment == UINT32_MAX && !strcmp(field->name, "ticket") &&
        op_form_of(&submission) != w->form)
        return; /* likewise */
    done = submit_it(w, &submission);
    if (segment == UINT32_MAX && !strcmp(field->name, "group") && done.err == EMBTIER_NO_GROUP)
        return;
    check_answer(w, field, segment, value, &done);
}

static void try_fields(struct walk *w, const struct op_field *fields, uint32_t count,
                       uint32_t segment)
{
    const uint64_t end = w->bad.session->channel.region_bytes;
    const uint64_t values[] = {
        1,
        64,
        end - 64,
        end,
        end + 1,
        end + 64,
        UINT64_C(1) << 31,
        UINT64_C(1) << 62,
        UINT64_C(1) << 63,
        UINT64_MAX - 63,
        UINT64_MAX,
    };

    for (uint32_t f = 0; f < count; f++)
        for (size_t v = 0; v < ARRAY_LEN(values); v++)
            try_field(w, &fields[f], segment, values[v]);
}

static void test_fields_that_an_operation_does_not_use_are_refused_by_name(void **state)
{
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        struct walk w;

        walk_start(&w, *state, &shapes[s]);
        for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
            const struct op_field *fields;
            uint32_t count;

            w.form = forms[i];
            w.ticket = 0;
            assert_good_request_is_served(&w);
            fields = op_submission_fields(&count);
            try_fields(&w, fields, count, UINT32_MAX);
            fields = op_segment_fields(w.form, &count);
            for (uint32_t segment = 0; segment < w.shape.segments; segment++)
                try_fields(&w, fields, count, segment);
            assert_good_request_is_served(&w);
            if (w.ticket != 0)
                form_release(&w.bad, w.ticket);
            walk_look(&w);
        }
        walk_stop(&w);
    }
}

/* With many wrong fields at once, the first is named and the whole request is refused. */
static void test_a_prefetch_of_gradients_is_refused_wherever_they_are(void **state)
{
    struct walk w;

    walk_start(&w, *state, &shapes[0]);
    w.form = OP_FORM_PREFETCH;
    for (uint32_t i = 0; i < 64; i++) {
        uint8_t *segments;
        const struct op_submission submission = good_request(&w, &segments);
        struct op_push_segment *const second = (struct op_push_segment *)segments + 1;
        struct op_completion done;

        second->gradients_offset = UINT64_C(1) << i;
        second->dim = i % 2 ? DIM : 0;
        second->unused = UINT64_MAX - i;
        done = submit_it(&w, &submission);
        assert_int_equal(done.err, EMBTIER_INVALID);
        assert_int_equal(done.segment, 1);
        assert_int_equal(done.field, 1 + offsetof(struct op_push_segment, gradients_offset));
    }
    assert_good_request_is_served(&w);
    walk_stop(&w);
}

/* All other tests here rest on these tables. */
static void test_every_operation_has_a_form(void **state)
{
    uint32_t met = 0;

    (void)state;
    for (uint32_t op = 1; op <= OP_LAST; op++) {
        const struct op_submission by_ticket = { .op = op, .ticket = 1 }, without = { .op = op };

        assert_int_not_equal(op_form_of(&by_ticket), 0);
        assert_int_not_equal(op_form_of(&without), 0);
        met |= op_form_of(&by_ticket) | op_form_of(&without);
    }
    assert_int_equal(op_form_of(&(struct op_submission){ .op = 0 }), 0);
    assert_int_equal(op_form_of(&(struct op_submission){ .op = OP_LAST + 1 }), 0);
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        assert_true(met & forms[i]);
        met &= ~forms[i];
    }
    assert_int_equal(met, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        cmocka_unit_test(test_every_operation_has_a_form),
        T(test_fields_that_an_operation_does_not_use_are_refused_by_name),
        T(test_a_prefetch_of_gradients_is_refused_wherever_they_are),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
