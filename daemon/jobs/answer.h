/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h: how a job answers its client. The control thread owns the client's socket; a job fills
 * a reply and hands it over. Thread: the control thread. */
#ifndef EMBTIER_DAEMON_JOBS_ANSWER_H
#define EMBTIER_DAEMON_JOBS_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct Embtier__Reply;

struct job_client {
    uint32_t request_id;
    bool knows_pages; /* of lists; older clients would take the first page for the whole list */
    void (*send)(const struct job_client *client, const struct Embtier__Reply *reply);
};

/* Sends @reply, whose body the caller has set, as the last reply to the request. */
void answer(const struct job_client *client, struct Embtier__Reply *reply);

/* Most items of a page; each takes at most about 350 bytes on the wire. */
#define ANSWER_PAGE_MOST 128
/* The content of an answer that is a list. No answer is longer than a page, so that no client makes
 * the server keep more for it (ACCOUNT_ANSWER_BYTES). The client asks again for the next page. */
struct page {
    void *items; /* @count of @item_bytes */
    size_t item_bytes;
    size_t wire_bytes;
    void (*fill)(void *item, void *wire); /* the wire borrows from the item */
    uint32_t count;
    bool more; /* items follow this page */
};
/* Makes the page's filled wire structs and an array of pointers to them, in one block that the
 * caller frees with free(). VERSION: the client does not know that lists have several pages.
 * NO_MEMORY. */
MUST_CHECK enum embtier_err page_new(const struct page *page, bool knows_pages,
                                     void ***ret_pointers, struct err_msg *msg);

#endif
