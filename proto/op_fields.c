/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/op_fields.h"

#include <stddef.h>

#include "base/macros.h"

/* The fields add up to the whole struct: no field is missing, and there is no padding between
 * them. */
#define FIELD_BYTES(field, uses, err) +sizeof(((struct PLACE *)0)->field)
#define PLACE                         op_submission
static_assert(0 OP_SUBMISSION_FIELDS(FIELD_BYTES) == sizeof(struct PLACE), "all fields");
#undef PLACE
#define PLACE op_segment
static_assert(0 OP_SEGMENT_FIELDS(FIELD_BYTES) == sizeof(struct PLACE), "all fields");
#undef PLACE
#define PLACE op_pool_segment
static_assert(0 OP_POOL_SEGMENT_FIELDS(FIELD_BYTES) == sizeof(struct PLACE), "all fields");
#undef PLACE
#define PLACE op_push_segment
static_assert(0 OP_PUSH_SEGMENT_FIELDS(FIELD_BYTES) == sizeof(struct PLACE), "all fields");
#undef PLACE

#define FIELD(field, uses, err)                                                                    \
    { #field, offsetof(struct PLACE, field), sizeof(((struct PLACE *)0)->field), uses,             \
      EMBTIER_##err },
#define PLACE op_submission
static const struct op_field submission_fields[] = { OP_SUBMISSION_FIELDS(FIELD) };
#undef PLACE
#define PLACE op_segment
static const struct op_field segment_fields[] = { OP_SEGMENT_FIELDS(FIELD) };
#undef PLACE
#define PLACE op_pool_segment
static const struct op_field pool_segment_fields[] = { OP_POOL_SEGMENT_FIELDS(FIELD) };
#undef PLACE
#define PLACE op_push_segment
static const struct op_field push_segment_fields[] = { OP_PUSH_SEGMENT_FIELDS(FIELD) };
#undef PLACE

static const struct {
    const struct op_field *fields;
    uint32_t count;
    uint32_t bytes;
} segments[] = {
    [OP_KIND_SEGMENT] = { segment_fields, ARRAY_LEN(segment_fields), sizeof(struct op_segment) },
    [OP_KIND_POOL_SEGMENT] = { pool_segment_fields, ARRAY_LEN(pool_segment_fields),
                               sizeof(struct op_pool_segment) },
    [OP_KIND_PUSH_SEGMENT] = { push_segment_fields, ARRAY_LEN(push_segment_fields),
                               sizeof(struct op_push_segment) },
    [OP_KIND_NO_SEGMENT] = { NULL, 0, 0 },
};

const char *op_form_words(uint32_t form)
{
#define FORM(name, bit, op, tickets, kind, words)                                                  \
    if (form & OP_FORM_##name)                                                                     \
        return words;
    OP_FORMS(FORM)
#undef FORM
    return "a request";
}

enum op_segment_kind op_segment_kind(uint32_t form)
{
#define FORM(name, bit, op, tickets, kind, words)                                                  \
    if (form & OP_FORM_##name)                                                                     \
        return OP_KIND_##kind;
    OP_FORMS(FORM)
#undef FORM
    return OP_KIND_NO_SEGMENT;
}

const struct op_field *op_submission_fields(uint32_t *ret_count)
{
    *ret_count = ARRAY_LEN(submission_fields);
    return submission_fields;
}

const struct op_field *op_segment_fields(uint32_t form, uint32_t *ret_count)
{
    *ret_count = segments[op_segment_kind(form)].count;
    return segments[op_segment_kind(form)].fields;
}

uint32_t op_segment_bytes(uint32_t form)
{
    return segments[op_segment_kind(form)].bytes;
}

const struct op_field *op_find_unused(const struct op_field *fields, uint32_t count,
                                      const void *place, uint32_t form, uint64_t *ret_bits)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bits = 0; /* of the field; little-endian, as on all processors that we know of */

        if (fields[i].uses & form)
            continue;
        memcpy(&bits, (const uint8_t *)place + fields[i].offset, fields[i].bytes);
        if (bits == 0)
            continue;
        *ret_bits = bits;
        return &fields[i];
    }
    return NULL;
}
