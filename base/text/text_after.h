/* SPDX-License-Identifier: Apache-2.0 */
/* text_after.h: the rest of a text behind its beginning. Thread: any. */
#ifndef EMBTIER_BASE_TEXT_TEXT_AFTER_H
#define EMBTIER_BASE_TEXT_TEXT_AFTER_H

#include <stddef.h>
#include <string.h>

/* Returns what follows @beginning in @text; NULL if @text does not begin with it. */
static inline const char *text_after(const char *text, const char *beginning)
{
    const size_t length = strlen(beginning);

    return strncmp(text, beginning, length) == 0 ? text + length : NULL;
}

#endif
