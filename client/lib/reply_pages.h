/* SPDX-License-Identifier: Apache-2.0 */
/* reply_pages.h: the answers that a list is read from, page by page. They are kept as long as the
 * list, whose texts lie in them. Thread: the connection's. */
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

/* Takes @reply over, also when it fails. NO_MEMORY. */
MUST_CHECK enum embtier_err reply_pages_add(struct embtier *server, struct reply_pages *pages,
                                            Embtier__Reply **reply);
void reply_pages_clear(struct reply_pages *pages);
/* That @last, with which a page ends of which there are more, is behind @*after, which becomes it.
 * PROTOCOL: else the list would have no end. */
MUST_CHECK enum embtier_err reply_pages_go_on(struct embtier *server, uint64_t last,
                                              uint64_t *after);

#endif
