/* SPDX-License-Identifier: Apache-2.0 */
/* session_text.h: whose a session is and whence it came, for people. Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_STATUS_SESSION_TEXT_H
#define EMBTIER_TOOLS_CLI_STATUS_SESSION_TEXT_H

#include "client/include/embtier.h"

struct session_text {
    char text[128];
};

/* Write into the caller's buffer and return it; "-": not known. */
const char *session_user(struct session_text *buffer, const struct embtier_session *session);
const char *session_origin(struct session_text *buffer, const struct embtier_session *session);

#endif
