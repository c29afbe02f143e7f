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

/* FORM(name, bit, operation, struct of its segments, description). A push has two forms, because
 * the meaning of its segments depends on a ticket. */
#define SHM_FORMS(FORM)                                                                            \
    FORM(GET, 0, GET, SEGMENT, "a GET")                                                            \
    FORM(SET, 1, SET, SEGMENT, "a SET")                                                            \
    FORM(POOL, 2, POOL, POOL_SEGMENT, "a pooled lookup")                                           \
    FORM(PUSH_BAGS, 3, PUSH, PUSH_SEGMENT, "a push by ticket")                                     \
    FORM(PUSH_ROWS, 4, PUSH, PUSH_SEGMENT, "a push of rows")                                       \
    FORM(RELEASE, 5, RELEASE, NO_SEGMENT, "a release")                                             \
    FORM(PREFETCH, 6, PREFETCH, PUSH_SEGMENT, "a prefetch")

enum shm_form {
#define FORM(name, bit, ...) SHM_FORM_##name = 1 << (bit),
    SHM_FORMS(FORM)
#undef FORM
        SHM_FORM_IN_GROUP = 1 << 7, /* added to a form: the request names a group */
};

/* Sets of forms, for the tables below. */
#define SHM_NO_FORM    0U
#define SHM_EVERY_FORM (~0U)
#define SHM_PUSHES     ((unsigned)SHM_FORM_PUSH_BAGS | SHM_FORM_PUSH_ROWS)
#define SHM_LOOKUPS    ((unsigned)SHM_FORM_GET | SHM_FORM_SET | SHM_FORM_POOL)
#define SHM_SEGMENTED  ((unsigned)SHM_LOOKUPS | SHM_PUSHES | SHM_FORM_PREFETCH)

/* FIELD(name, forms that use it, error of a request of another form that sets it). Lists all
 * fields, also those that no form uses yet. */
#define SHM_SUBMISSION_FIELDS(FIELD)                                                               \
    FIELD(op, SHM_EVERY_FORM, INVALID)                                                             \
    FIELD(flags, SHM_LOOKUPS, UNSUPPORTED)                                                         \
    FIELD(segment_count, SHM_SEGMENTED, INVALID)                                                   \
    FIELD(reserved, SHM_NO_FORM, INVALID)                                                          \
    FIELD(segments_offset, SHM_SEGMENTED, INVALID)                                                 \
    FIELD(step, SHM_PUSHES | SHM_FORM_IN_GROUP, INVALID)                                           \
    FIELD(ticket, (unsigned)SHM_FORM_PUSH_BAGS | SHM_FORM_RELEASE, INVALID)                        \
    FIELD(prefetch, SHM_PUSHES, INVALID)                                                           \
    FIELD(group, SHM_LOOKUPS | SHM_PUSHES, INVALID)                                                \
    FIELD(unused, SHM_NO_FORM, INVALID)

#define SHM_SEGMENT_FIELDS(FIELD)                                                                  \
    FIELD(table, SHM_EVERY_FORM, INVALID)                                                          \
    FIELD(ids_offset, SHM_EVERY_FORM, INVALID)                                                     \
    FIELD(rows_offset, SHM_EVERY_FORM, INVALID)                                                    \
    FIELD(id_count, SHM_EVERY_FORM, INVALID)                                                       \
    FIELD(flags, SHM_NO_FORM, UNSUPPORTED)

#define SHM_POOL_SEGMENT_FIELDS(FIELD)                                                             \
    FIELD(table, SHM_EVERY_FORM, INVALID)                                                          \
    FIELD(ids_offset, SHM_EVERY_FORM, INVALID)                                                     \
    FIELD(bags_offset, SHM_EVERY_FORM, INVALID)                                                    \
    FIELD(offsets_offset, SHM_EVERY_FORM, INVALID)                                                 \
    FIELD(weights_offset, SHM_EVERY_FORM, INVALID)                                                 \
    FIELD(id_count, SHM_EVERY_FORM, INVALID)                                                       \
    FIELD(bag_count, SHM_EVERY_FORM, INVALID)                                                      \
    FIELD(mode, SHM_EVERY_FORM, INVALID)                                                           \
    FIELD(flags, SHM_NO_FORM, UNSUPPORTED)                                                         \
    FIELD(unused, SHM_NO_FORM, INVALID)

#define SHM_PUSH_SEGMENT_FIELDS(FIELD)                                                             \
    FIELD(table, SHM_EVERY_FORM, INVALID)                                                          \
    FIELD(ids_offset, (unsigned)SHM_FORM_PUSH_ROWS | SHM_FORM_PREFETCH, INVALID)                   \
    FIELD(gradients_offset, SHM_PUSHES, INVALID)                                                   \
    FIELD(weights_offset, SHM_FORM_PUSH_BAGS, UNSUPPORTED)                                         \
    FIELD(learning_rate, SHM_PUSHES, INVALID)                                                      \
    FIELD(count, SHM_EVERY_FORM, INVALID)                                                          \
    FIELD(dim, SHM_PUSHES, INVALID)                                                                \
    FIELD(flags, SHM_NO_FORM, UNSUPPORTED)                                                         \
    FIELD(reserved, SHM_NO_FORM, INVALID)                                                          \
    FIELD(unused, SHM_NO_FORM, INVALID)

#define SHM_NO_SEGMENT_FIELDS(FIELD)

/* Return a field's bits, whatever its type: -0.0 is not zero here. */
static inline uint64_t shm_integer_bits(uint64_t value)
{
    return value;
}

static inline uint64_t shm_double_bits(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* The bits of @place's @field if @form does not use it, else 0. Has no branch, and costs nothing
 * for a field that every form uses. */
#define SHM_UNUSED_BITS(place, field, uses, form)                                                  \
    ((uses) == SHM_EVERY_FORM ? 0                                                                  \
                              : _Generic((place)->field, double                                    \
                                         : shm_double_bits, default                                \
                                         : shm_integer_bits)((place)->field) &                     \
                                    -(uint64_t)(((uses) & (form)) == 0))

/* True if all fields that @form (a set of enum shm_form) does not use are 0. */
#define SHM_DEFINE_IS_CLEAN(name, fields)                                                          \
    static inline bool name##_is_clean(const struct name *place, uint32_t form)                    \
    {                                                                                              \
        return (0 fields(SHM_OR_UNUSED_BITS)) == 0;                                                \
    }
#define SHM_OR_UNUSED_BITS(field, uses, err) | SHM_UNUSED_BITS(place, field, uses, form)
SHM_DEFINE_IS_CLEAN(shm_submission, SHM_SUBMISSION_FIELDS)
SHM_DEFINE_IS_CLEAN(shm_segment, SHM_SEGMENT_FIELDS)
SHM_DEFINE_IS_CLEAN(shm_pool_segment, SHM_POOL_SEGMENT_FIELDS)
SHM_DEFINE_IS_CLEAN(shm_push_segment, SHM_PUSH_SEGMENT_FIELDS)

/* Returns the form of a submission; 0 if its operation does not exist. */
static inline uint32_t shm_form_of(const struct shm_submission *submission)
{
    const uint32_t group = submission->group != 0 ? SHM_FORM_IN_GROUP : 0;

    switch ((enum shm_op)submission->op) {
    case SHM_OP_GET:
        return SHM_FORM_GET | group;
    case SHM_OP_SET:
        return SHM_FORM_SET | group;
    case SHM_OP_POOL:
        return SHM_FORM_POOL | group;
    case SHM_OP_PUSH:
        return (submission->ticket != 0 ? SHM_FORM_PUSH_BAGS : SHM_FORM_PUSH_ROWS) | group;
    case SHM_OP_RELEASE:
        return SHM_FORM_RELEASE | group;
    case SHM_OP_PREFETCH:
        return SHM_FORM_PREFETCH | group;
    }
    return 0;
}

/* Returns the form's description, with an article. */
const char *shm_form_words(uint32_t form);

/* A field as data. */
struct shm_field {
    const char *name;
    uint32_t offset;
    uint32_t bytes; /* 4 or 8 */
    uint32_t uses;  /* forms that use it */
    enum embtier_err err;
};

/* Return all fields of a submission, or of the segments that a request of @form has. */
const struct shm_field *shm_submission_fields(uint32_t *ret_count);
const struct shm_field *shm_segment_fields(uint32_t form, uint32_t *ret_count);
/* Returns the length of such a segment; 0 if the form has none. */
uint32_t shm_segment_bytes(uint32_t form);

/* Returns the first field of @place that is not 0 although @form does not use it, and its bits.
 * NULL if there is none. */
const struct shm_field *shm_find_unused(const struct shm_field *fields, uint32_t count,
                                        const void *place, uint32_t form, uint64_t *ret_bits);

#endif
