/* SPDX-License-Identifier: Apache-2.0 */
/* session_secret.h: shows that a connection is of the client that has a certain session.
 *
 * The server tells it to that client alone, in the answer to the hello. No log has it. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_SESSION_SECRET_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_SESSION_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/control_limits.h"

#define SESSION_SECRET_BYTES 32

struct session_secret {
    uint8_t bytes[SESSION_SECRET_BYTES];
};
_Static_assert(SESSION_SECRET_BYTES <= SECRET_BYTES_MAX, "clients keep it");

/* Makes one that nobody can guess. */
MUST_CHECK enum embtier_err session_secret_make(struct session_secret *ret_secret,
                                                struct err_msg *msg);
/* Takes the same time for all bytes. */
bool session_secret_is(const struct session_secret *secret, const uint8_t *bytes, size_t count);

#endif
