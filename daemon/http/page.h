/* SPDX-License-Identifier: Apache-2.0 */
/* page.h: text that grows as it is written, up to a limit. Thread: one at a time. */
#ifndef EMBTIER_DAEMON_HTTP_PAGE_H
#define EMBTIER_DAEMON_HTTP_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

/* No answer is longer. */
#define PAGE_BYTES_MAX (256 * KIB)

/* Zeroed at first. */
struct page {
    char *text; /* malloced; NULL: nothing was written */
    size_t bytes;
    size_t room;
    bool is_cut; /* something did not fit, or there was no memory: the text is of no use */
};

void page_add(struct page *page, const char *text, size_t bytes);
PRINTF_LIKE(2, 3)
void page_printf(struct page *page, const char *format, ...);
/* Frees the text. */
void page_free(struct page *page);

#endif
