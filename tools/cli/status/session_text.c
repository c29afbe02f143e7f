/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/status/session_text.h"

#include <inttypes.h>
#include <stdio.h>

const char *session_user(struct session_text *buffer, const struct embtier_session *session)
{
    if (session->user[0] != '\0')
        (void)snprintf(buffer->text, sizeof(buffer->text), "%s", session->user);
    else if (session->uid != UINT32_MAX)
        (void)snprintf(buffer->text, sizeof(buffer->text), "%" PRIu32, session->uid);
    else
        (void)snprintf(buffer->text, sizeof(buffer->text), "-");
    return buffer->text;
}

const char *session_origin(struct session_text *buffer, const struct embtier_session *session)
{
    if (session->address[0] != '\0')
        (void)snprintf(buffer->text, sizeof(buffer->text), "%s", session->address);
    else if (session->pid != 0)
        (void)snprintf(buffer->text, sizeof(buffer->text), "pid %" PRIu64, session->pid);
    else
        (void)snprintf(buffer->text, sizeof(buffer->text), "-");
    return buffer->text;
}
