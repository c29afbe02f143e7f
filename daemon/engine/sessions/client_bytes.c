/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/sessions/client_bytes.h"

#include "proto/op_fields.h"

enum embtier_err refuse_unused(uint32_t form, uint32_t segment, const void *place,
                               struct refusal *refusal)
{
    const struct op_field *fields, *field;
    uint64_t bits = 0;
    uint32_t count;

    fields = segment == UINT32_MAX ? op_submission_fields(&count) : op_segment_fields(form, &count);
    field = op_find_unused(fields, count, place, form, &bits);
    if (!field) /* cannot happen: the caller has found one */
        return refuse(refusal, EMBTIER_INTERNAL, segment, 0, 0);
    (void)refuse(refusal, field->err, segment, bits, 0);
    refusal->field = field->offset + 1;
    return field->err;
}

enum embtier_err check_fields(const struct op_submission *submission, uint32_t form,
                              struct refusal *refusal)
{
    if (IS_BAD(CHECK_FIELDS, !op_submission_is_clean(submission, form)))
        return refuse_unused(form, UINT32_MAX, submission, refusal);
    return EMBTIER_OK;
}
