/* SPDX-License-Identifier: Apache-2.0 */
/* reply_pages.h: the answers that a list is read from, page by page. The list's texts lie in the
 * answers, so they live as long as the list. Thread: the connection's. */
#ifndef EMBTIER_CLIENT_LIB_REPLY_PAGES_H
#define EMBTIER_CLIENT_LIB_REPLY_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "client/transport/control_socket.h"

struct embtier;

struct reply_pages {
    Embtier__Reply **replies;
    size_t count;
};

/* Takes @reply over, even on failure. NO_MEMORY. */
MUST_CHECK enum embtier_err reply_pages_add(struct embtier *server, struct reply_pages *pages,
                                            Embtier__Reply **reply);
void reply_pages_clear(struct reply_pages *pages);
/* Moves @*after on to @last, the end of a page that is not the last one. PROTOCOL: @last is not
 * behind @*after, so the list would never end. */
MUST_CHECK enum embtier_err reply_pages_go_on(struct embtier *server, uint64_t last,
                                              uint64_t *after);

#endif
