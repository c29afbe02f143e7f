/* SPDX-License-Identifier: Apache-2.0 */
/* forms_fixture.h: lays out a valid request of each form (proto/op_fields.h), for tests that spoil
 * it. A form that this file does not know fails them. Each test program includes it once. */
#ifndef EMBTIER_TESTS_UNIT_ENGINE_OPS_FORMS_FIXTURE_H
#define EMBTIER_TESTS_UNIT_ENGINE_OPS_FORMS_FIXTURE_H

#include "tests/unit/engine/lane/lane_fixture.h"

#include "proto/op_fields.h"

/* Shape of a request: each segment asks for this many ids of a table in this many bags. */
struct form_shape {
    uint64_t table; /* with an optimizer and f32 weights; every row is all ones */
    uint32_t dim;
    uint32_t rows;
    uint32_t segments; /* 1 or 2, of the same table */
    uint32_t ids;
    uint32_t bags;
};

/* The places of a segment's parts in the client's arena. */
struct form_place {
    uint64_t *ids;
    uint32_t *offsets;
    float *numbers; /* rows, bags or gradients, all ones */
    float *weights; /* weights of the samples, all ones */
};

#define FORM_IS(form, name) (((form) & (uint32_t)OP_FORM_##name) != 0)

static inline uint32_t form_bag_end(const struct form_shape *shape, uint32_t bag)
{
    return bag * shape->ids / shape->bags;
}

/* Lays out the parts of @shape's segment @s at @at. Returns the end of these parts. */
static inline void *form_lay_parts_out(const struct form_shape *shape, uint32_t s, void *at,
                                       struct form_place *ret_place)
{
    const uint32_t numbers = shape->ids * 3 * shape->dim; /* at most: whole rows */

    ret_place->ids = at;
    ret_place->numbers = (float *)(ret_place->ids + shape->ids);
    ret_place->weights = ret_place->numbers + numbers;
    ret_place->offsets = (uint32_t *)(ret_place->weights + shape->ids);
    for (uint32_t i = 0; i < shape->ids; i++) {
        ret_place->ids[i] = (s * shape->ids + i * 7) % shape->rows;
        ret_place->weights[i] = 1;
    }
    for (uint32_t i = 0; i < numbers; i++)
        ret_place->numbers[i] = 1;
    for (uint32_t b = 0; b <= shape->bags; b++)
        ret_place->offsets[b] = form_bag_end(shape, b);
    return (void *)align_up((uintptr_t)(ret_place->offsets + shape->bags + 1), 8);
}

static inline void form_write_segment(const struct client *client, uint32_t form,
                                      const struct form_shape *shape,
                                      const struct form_place *place, void *segment)
{
    const uint64_t ids = client_offset(client, place->ids);
    const uint64_t numbers = client_offset(client, place->numbers);
    const uint64_t weights = client_offset(client, place->weights);

    if (FORM_IS(form, GET) || FORM_IS(form, SET))
        *(struct op_segment *)segment = (struct op_segment){
            .table = shape->table, .ids_offset = ids, .rows_offset = numbers, .id_count = shape->ids
        };
    else if (FORM_IS(form, POOL))
        *(struct op_pool_segment *)segment =
            (struct op_pool_segment){ .table = shape->table,
                                      .ids_offset = ids,
                                      .bags_offset = numbers,
                                      .offsets_offset = client_offset(client, place->offsets),
                                      .weights_offset = weights,
                                      .id_count = shape->ids,
                                      .bag_count = shape->bags,
                                      .mode = EMBTIER_POOL_SUM };
    else if (FORM_IS(form, PUSH_BAGS))
        *(struct op_push_segment *)segment = (struct op_push_segment){ .table = shape->table,
                                                                       .gradients_offset = numbers,
                                                                       .weights_offset = weights,
                                                                       .count = shape->bags,
                                                                       .dim = shape->dim };
    else if (FORM_IS(form, PUSH_ROWS))
        *(struct op_push_segment *)segment = (struct op_push_segment){ .table = shape->table,
                                                                       .ids_offset = ids,
                                                                       .gradients_offset = numbers,
                                                                       .count = shape->ids,
                                                                       .dim = shape->dim };
    else if (FORM_IS(form, PREFETCH))
        *(struct op_push_segment *)segment = (struct op_push_segment){ .table = shape->table,
                                                                       .ids_offset = ids,
                                                                       .count = shape->ids };
    else
        fail_msg("form %#x: forms_fixture.h has no segment of it", form);
}

/* Lays out a request of @form at @at, with its segments' parts in @ret_places. Returns its
 * submission. @ticket: for forms that take one. Pushes change nothing: their rate is 0. */
static inline struct op_submission form_lay_out(const struct client *client, uint32_t form,
                                                const struct form_shape *shape, uint64_t ticket,
                                                void *at, struct form_place *ret_places)
{
    const uint32_t bytes = op_segment_bytes(form);
    struct op_submission submission = { .ticket = ticket };
    uint8_t *behind = (uint8_t *)at + (size_t)shape->segments * bytes;
    bool known = false;

#define FORM(name, bit, op_name, tickets, kind, words)                                             \
    if (FORM_IS(form, name)) {                                                                     \
        submission.op = OP_##op_name;                                                              \
        known = true;                                                                              \
    }
    OP_FORMS(FORM)
#undef FORM
    if (!known)
        fail_msg("form %#x is none", form);
    if (FORM_IS(form, PUSH_BAGS) || FORM_IS(form, PUSH_ROWS))
        submission.step = 1;
    if (bytes == 0)
        return submission;
    submission.segment_count = shape->segments;
    submission.segments_offset = client_offset(client, at);
    for (uint32_t s = 0; s < shape->segments; s++) {
        behind = form_lay_parts_out(shape, s, behind, &ret_places[s]);
        form_write_segment(client, form, shape, &ret_places[s], (uint8_t *)at + (size_t)s * bytes);
    }
    assert_true(behind <= (uint8_t *)at + client->slot_bytes);
    return submission;
}

/* Submits @submission and waits for its answer. */
static inline const struct op_completion *form_submit(struct client *client,
                                                      const struct op_submission *submission)
{
    const uint32_t number = client->submitted;

    *client_submission(client, number) = *submission;
    client_publish(client);
    return client_wait(client, number);
}

/* True if a request of the form takes the ticket of a lookup. */
static inline bool form_takes_ticket(uint32_t form)
{
    return FORM_IS(form, PUSH_BAGS) || FORM_IS(form, RELEASE);
}

/* Makes a lookup for a push of @shape, laid out at @at. Returns its ticket. */
static inline uint64_t form_look_up(struct client *client, const struct form_shape *shape, void *at)
{
    struct form_place places[2];
    struct op_submission lookup = form_lay_out(client, OP_FORM_POOL, shape, 0, at, places);
    const struct op_completion *done;

    lookup.flags = OP_FLAG_TICKET;
    done = form_submit(client, &lookup);
    assert_int_equal(done->err, EMBTIER_OK);
    assert_int_not_equal(done->ticket, 0);
    return done->ticket;
}

static inline void form_release(struct client *client, uint64_t ticket)
{
    const struct op_submission release = { .op = OP_RELEASE, .ticket = ticket };

    assert_int_equal(form_submit(client, &release)->err, EMBTIER_OK);
}

#endif
