/* SPDX-License-Identifier: Apache-2.0 */
/* client_bytes.h: copies a client's words out of its region, and refuses a request that they
 * spoil. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_CLIENT_BYTES_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_CLIENT_BYTES_H

#include <sched.h>

#include "daemon/engine/sessions/request_checks.h"
#include "daemon/engine/sessions/session.h"
#include "proto/quota.h"

/* Reads a client's words once, into a copy. They are volatile, so that no compiler reads them again
 * behind a check. @bytes is a whole number of words. */
static inline void copy_once(void *dest, const volatile void *src, uint64_t bytes)
{
    uint64_t *out = dest;
    const volatile uint64_t *in = src;

    for (uint64_t i = 0; i < bytes / sizeof(*out); i++)
        out[i] = in[i];
}

/* Only for builds that lack a copy: reads checked words again, which may have changed. */
static inline void copy_again(void *dest, const volatile void *src, uint64_t bytes)
{
    sched_yield();
    copy_once(dest, src, bytes);
}

static inline bool in_region(const struct session *session, uint64_t offset, uint64_t bytes,
                             uint64_t align)
{
    return channel_holds(&session->channel, offset, bytes, align);
}

static inline enum embtier_err refuse(struct refusal *refusal, enum embtier_err err,
                                      uint32_t segment, uint64_t value, uint64_t limit)
{
    *refusal = (struct refusal){ .err = err, .segment = segment, .value = value, .limit = limit };
    return err;
}

/* Refuses a request that needs @value more of what the user's quota, @limit, limits. */
static inline enum embtier_err refuse_quota(struct refusal *refusal, enum quota quota,
                                            uint64_t value, uint64_t limit)
{
    (void)refuse(refusal, EMBTIER_BUSY, UINT32_MAX, value, limit);
    refusal->field = quota_to_field(quota);
    return EMBTIER_BUSY;
}

/* Refuses a request of @form because its submission at @place is not clean
 * (op_submission_is_clean() and so on); or because its segment number @segment, which is at
 * @place, is not. */
MUST_CHECK enum embtier_err refuse_unused(uint32_t form, uint32_t segment, const void *place,
                                          struct refusal *refusal);
/* Refuses a submission that uses a field that @form does not have. */
MUST_CHECK enum embtier_err check_fields(const struct op_submission *submission, uint32_t form,
                                         struct refusal *refusal);

#endif
