/* SPDX-License-Identifier: Apache-2.0 */
/* cast_line.h: a session's groups of ticket pairs that wait for one caster. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_CAST_LINE_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_CAST_LINE_H

#include "daemon/engine/mail/inbox.h"
#include "daemon/engine/turns/turns.h"

/* Initially zero, and empty at last. The caster's queue owns it in between (cast_queue.h). */
struct cast_line {
    struct turn_flow flow;
    struct message *first;
    struct message *last;
};

#endif
