/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h: how a job answers its client. The control thread has the client's socket; a job fills a
 * reply and hands it over. Thread: the control thread. */
#ifndef EMBTIER_DAEMON_JOBS_ANSWER_H
#define EMBTIER_DAEMON_JOBS_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct Embtier__Reply;

struct job_client {
    uint32_t request_id;
    bool knows_pages; /* of lists: clients of before would take the first one for the whole */
    void (*send)(const struct job_client *client, const struct Embtier__Reply *reply);
};

/* Sends @reply, whose body is set, as the last one to the request. */
void answer(const struct job_client *client, struct Embtier__Reply *reply);

/* Items of a page, of at most some 350 bytes each on the wire. */
#define ANSWER_PAGE_MOST 128
/* What an answer that is a list is made of. None is longer than a page, so that no client has the
 * server keep more for it (ACCOUNT_ANSWER_BYTES); it asks again for what comes after the page. */
struct page {
    void *items; /* @count of @item_bytes */
    size_t item_bytes;
    size_t wire_bytes;
    void (*fill)(void *item, void *wire); /* the wire borrows from the item */
    uint32_t count;
    bool more; /* there are */
};
/* Its wires, filled, and pointers to them, to be freed with free(). VERSION: the client does not
 * know that lists have several pages. NO_MEMORY. */
MUST_CHECK enum embtier_err page_new(const struct page *page, bool knows_pages,
                                     void ***ret_pointers, struct err_msg *msg);

#endif
