/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/answer.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/macros.h"
#include "proto/control.pb-c.h"

void answer(const struct job_client *client, Embtier__Reply *reply)
{
    reply->id = client->request_id;
    reply->last = true;
    client->send(client, reply);
}

enum embtier_err page_new(const struct page *page, bool knows_pages, void ***ret_pointers,
                          struct err_msg *msg)
{
    const size_t pointer_bytes = align_up(page->count * sizeof(void *) + 1, _Alignof(max_align_t));
    void **pointers;

    if (page->more && !knows_pages)
        return err_set(msg, EMBTIER_VERSION,
                       "the list does not fit into one answer, and this version of the client "
                       "cannot ask for the rest: use a newer client");
    pointers = calloc(1, pointer_bytes + page->count * page->wire_bytes);
    if (!pointers)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < page->count; i++) {
        pointers[i] = (char *)pointers + pointer_bytes + i * page->wire_bytes;
        page->fill((char *)page->items + i * page->item_bytes, pointers[i]);
    }
    *ret_pointers = pointers;
    return EMBTIER_OK;
}
