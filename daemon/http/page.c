/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/page.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM (4 * KIB)

/* Makes room for @bytes more and a NUL. */
static bool make_room(struct page *page, size_t bytes)
{
    size_t room = MAX(page->room, (size_t)FIRST_ROOM);
    char *text;

    if (page->is_cut || bytes > PAGE_BYTES_MAX - page->bytes) {
        page->is_cut = true;
        return false;
    }
    while (room < page->bytes + bytes + 1)
        room *= 2;
    if (room == page->room)
        return true;
    text = realloc(page->text, room);
    if (!text) {
        page->is_cut = true;
        return false;
    }
    page->text = text;
    page->room = room;
    return true;
}

void page_add(struct page *page, const char *text, size_t bytes)
{
    if (!make_room(page, bytes))
        return;
    memcpy(page->text + page->bytes, text, bytes);
    page->bytes += bytes;
    page->text[page->bytes] = '\0';
}

void page_printf(struct page *page, const char *format, ...)
{
    char line[512];
    va_list args;
    int bytes;

    va_start(args, format);
    bytes = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (bytes < 0 || (size_t)bytes >= sizeof(line))
        page->is_cut = true;
    else
        page_add(page, line, (size_t)bytes);
}

void page_free(struct page *page)
{
    free(page->text);
    *page = (struct page){ 0 };
}
