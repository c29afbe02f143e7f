/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/reply_pages.h"

#include <stdlib.h>

#include "client/lib/connection.h"

enum embtier_err reply_pages_add(struct embtier *server, struct reply_pages *pages,
                                 Embtier__Reply **reply)
{
    _cleanup_(reply_freep) Embtier__Reply *added = TAKE(*reply);
    Embtier__Reply **const larger =
        realloc(pages->replies, (pages->count + 1) * sizeof(*pages->replies));

    if (!larger)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    pages->replies = larger;
    pages->replies[pages->count++] = TAKE(added);
    return EMBTIER_OK;
}

void reply_pages_clear(struct reply_pages *pages)
{
    for (size_t i = 0; i < pages->count; i++)
        reply_free(pages->replies[i]);
    free(pages->replies);
    *pages = (struct reply_pages){ 0 };
}

enum embtier_err reply_pages_go_on(struct embtier *server, uint64_t last, uint64_t *after)
{
    if (last <= *after)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server announced more of a list and sent none of it");
    *after = last;
    return EMBTIER_OK;
}
