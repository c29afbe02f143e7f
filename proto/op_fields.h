/* SPDX-License-Identifier: Apache-2.0 */
/* op_fields.h: which operation uses which field of a submission and of a segment.
 *
 * A field that an operation does not use must be 0, or the request is refused. So stray bytes from
 * a client cannot gain a meaning, now or when a later version uses the field.
 *
 * The tables here are the only list of these fields. The server's check is made from them, and so
 * is the test that walks all fields of all operations. A new operation or field in the tables is
 * checked and tested; one missing from them does not compile. */
#ifndef EMBTIER_PROTO_OP_FIELDS_H
#define EMBTIER_PROTO_OP_FIELDS_H

#include <stdbool.h>
#include <string.h>

#include "base/embtier_err.h"
#include "proto/ops.h"

/* FORM(name, bit, operation, requests with which tickets, struct of its segments, description). A
 * push has two forms, because the meaning of its segments depends on a ticket. */
#define OP_FORMS(FORM)                                                                             \
    FORM(GET, 0, GET, ANY, SEGMENT, "a GET")                                                       \
    FORM(SET, 1, SET, ANY, SEGMENT, "a SET")                                                       \
    FORM(POOL, 2, POOL, ANY, POOL_SEGMENT, "a pooled lookup")                                      \
    FORM(PUSH_BAGS, 3, PUSH, GIVEN, PUSH_SEGMENT, "a push by ticket")                              \
    FORM(PUSH_ROWS, 4, PUSH, NONE, PUSH_SEGMENT, "a push of rows")                                 \
    FORM(RELEASE, 5, RELEASE, ANY, NO_SEGMENT, "a release")                                        \
    FORM(PREFETCH, 6, PREFETCH, ANY, PUSH_SEGMENT, "a prefetch")

enum op_form {
#define FORM(name, bit, ...) OP_FORM_##name = 1 << (bit),
    OP_FORMS(FORM)
#undef FORM
        OP_FORM_IN_GROUP = 1 << 7, /* added to a form: the request names a group */
};

enum op_ticket { OP_TICKET_NONE = 1, OP_TICKET_GIVEN = 2, OP_TICKET_ANY = 3 };

/* Sets of forms, for the tables below. */
#define OP_NO_FORM             0U
#define OP_EVERY_FORM          (~0U)
#define OP_PUSH_FORMS          ((unsigned)OP_FORM_PUSH_BAGS | OP_FORM_PUSH_ROWS)
#define OP_LOOKUP_OR_SET_FORMS ((unsigned)OP_FORM_GET | OP_FORM_SET | OP_FORM_POOL)
#define OP_SEGMENTED_FORMS     ((unsigned)OP_LOOKUP_OR_SET_FORMS | OP_PUSH_FORMS | OP_FORM_PREFETCH)

/* FIELD(name, forms that use it, error of a request of another form that sets it). Lists all
 * fields, also those that no form uses yet. */
#define OP_SUBMISSION_FIELDS(FIELD)                                                                \
    FIELD(op, OP_EVERY_FORM, INVALID)                                                              \
    FIELD(flags, OP_LOOKUP_OR_SET_FORMS, UNSUPPORTED)                                              \
    FIELD(segment_count, OP_SEGMENTED_FORMS, INVALID)                                              \
    FIELD(reserved, OP_NO_FORM, INVALID)                                                           \
    FIELD(segments_offset, OP_SEGMENTED_FORMS, INVALID)                                            \
    FIELD(step, OP_PUSH_FORMS | OP_FORM_IN_GROUP, INVALID)                                         \
    FIELD(ticket, (unsigned)OP_FORM_PUSH_BAGS | OP_FORM_RELEASE, INVALID)                          \
    FIELD(prefetch, OP_PUSH_FORMS, INVALID)                                                        \
    FIELD(group, OP_LOOKUP_OR_SET_FORMS | OP_PUSH_FORMS, INVALID)                                  \
    FIELD(unused, OP_NO_FORM, INVALID)

#define OP_SEGMENT_FIELDS(FIELD)                                                                   \
    FIELD(table, OP_EVERY_FORM, INVALID)                                                           \
    FIELD(ids_offset, OP_EVERY_FORM, INVALID)                                                      \
    FIELD(rows_offset, OP_EVERY_FORM, INVALID)                                                     \
    FIELD(id_count, OP_EVERY_FORM, INVALID)                                                        \
    FIELD(flags, OP_NO_FORM, UNSUPPORTED)

#define OP_POOL_SEGMENT_FIELDS(FIELD)                                                              \
    FIELD(table, OP_EVERY_FORM, INVALID)                                                           \
    FIELD(ids_offset, OP_EVERY_FORM, INVALID)                                                      \
    FIELD(bags_offset, OP_EVERY_FORM, INVALID)                                                     \
    FIELD(offsets_offset, OP_EVERY_FORM, INVALID)                                                  \
    FIELD(weights_offset, OP_EVERY_FORM, INVALID)                                                  \
    FIELD(id_count, OP_EVERY_FORM, INVALID)                                                        \
    FIELD(bag_count, OP_EVERY_FORM, INVALID)                                                       \
    FIELD(mode, OP_EVERY_FORM, INVALID)                                                            \
    FIELD(flags, OP_NO_FORM, UNSUPPORTED)                                                          \
    FIELD(unused, OP_NO_FORM, INVALID)

#define OP_PUSH_SEGMENT_FIELDS(FIELD)                                                              \
    FIELD(table, OP_EVERY_FORM, INVALID)                                                           \
    FIELD(ids_offset, (unsigned)OP_FORM_PUSH_ROWS | OP_FORM_PREFETCH, INVALID)                     \
    FIELD(gradients_offset, OP_PUSH_FORMS, INVALID)                                                \
    FIELD(weights_offset, OP_FORM_PUSH_BAGS, UNSUPPORTED)                                          \
    FIELD(learning_rate, OP_PUSH_FORMS, INVALID)                                                   \
    FIELD(count, OP_EVERY_FORM, INVALID)                                                           \
    FIELD(dim, OP_PUSH_FORMS, INVALID)                                                             \
    FIELD(flags, OP_NO_FORM, UNSUPPORTED)                                                          \
    FIELD(reserved, OP_NO_FORM, INVALID)                                                           \
    FIELD(unused, OP_NO_FORM, INVALID)

#define OP_NO_SEGMENT_FIELDS(FIELD)

/* Return a field's bits, whatever its type: -0.0 is not zero here. */
static inline uint64_t op_integer_bits(uint64_t value)
{
    return value;
}

static inline uint64_t op_double_bits(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* The bits of @place's @field if @form does not use it, else 0. Has no branch, and costs nothing
 * for a field that every form uses. */
#define OP_UNUSED_BITS(place, field, uses, form)                                                   \
    ((uses) == OP_EVERY_FORM ? 0                                                                   \
                             : _Generic((place)->field, double                                     \
                                        : op_double_bits, default                                  \
                                        : op_integer_bits)((place)->field) &                       \
                                   -(uint64_t)(((uses) & (form)) == 0))

/* True if all fields that @form (a set of enum op_form) does not use are 0. */
#define OP_DEFINE_IS_CLEAN(name, fields)                                                           \
    static inline bool name##_is_clean(const struct name *place, uint32_t form)                    \
    {                                                                                              \
        return (0 fields(OP_OR_UNUSED_BITS)) == 0;                                                 \
    }
#define OP_OR_UNUSED_BITS(field, uses, err) | OP_UNUSED_BITS(place, field, uses, form)
OP_DEFINE_IS_CLEAN(op_submission, OP_SUBMISSION_FIELDS)
OP_DEFINE_IS_CLEAN(op_segment, OP_SEGMENT_FIELDS)
OP_DEFINE_IS_CLEAN(op_pool_segment, OP_POOL_SEGMENT_FIELDS)
OP_DEFINE_IS_CLEAN(op_push_segment, OP_PUSH_SEGMENT_FIELDS)

/* Returns the form of a submission; 0 if its operation does not exist. */
static inline uint32_t op_form_of(const struct op_submission *submission)
{
    const uint32_t ticket = submission->ticket != 0 ? OP_TICKET_GIVEN : OP_TICKET_NONE;
    uint32_t form = 0;

#define FORM(name, bit, op_name, tickets, kind, words)                                             \
    if (submission->op == OP_##op_name && ((uint32_t)OP_TICKET_##tickets & ticket))                \
        form = OP_FORM_##name;
    OP_FORMS(FORM)
#undef FORM
    return form != 0 && submission->group != 0 ? form | OP_FORM_IN_GROUP : form;
}

/* The structs of segments. */
enum op_segment_kind {
    OP_KIND_SEGMENT,
    OP_KIND_POOL_SEGMENT,
    OP_KIND_PUSH_SEGMENT,
    OP_KIND_NO_SEGMENT,
};

/* Returns the form's description, with an article. */
const char *op_form_words(uint32_t form);

/* A field as data. */
struct op_field {
    const char *name;
    uint32_t offset;
    uint32_t bytes; /* 4 or 8 */
    uint32_t uses;  /* forms that use it */
    enum embtier_err err;
};

/* Return all fields of a submission, or of the segments that a request of @form has. */
const struct op_field *op_submission_fields(uint32_t *ret_count);
const struct op_field *op_segment_fields(uint32_t form, uint32_t *ret_count);
/* Return the struct of such a segment, and its length; 0 if the form has none. */
enum op_segment_kind op_segment_kind(uint32_t form);
uint32_t op_segment_bytes(uint32_t form);

/* Returns the first field of @place that is not 0 although @form does not use it, and its bits.
 * NULL if there is none. */
const struct op_field *op_find_unused(const struct op_field *fields, uint32_t count,
                                      const void *place, uint32_t form, uint64_t *ret_bits);

#endif
