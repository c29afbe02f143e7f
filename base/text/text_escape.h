/* SPDX-License-Identifier: Apache-2.0 */
/* text_escape.h: makes foreign text (names, paths, metadata, a client's or a server's words) safe
 * for a terminal, a log line or a message.
 *
 * A character is plain if it is valid UTF-8, visible, and changes nothing but itself. These are not
 * plain:
 * - Controls (C0, DEL, U+0080 to U+009F): they move the cursor and forge lines.
 * - The ends of line and paragraph, U+2028 and U+2029.
 * - Characters that turn the direction of writing, such as U+202E.
 * - Invisible characters, which make two names look alike: all of Unicode's
 *   Default_Ignorable_Code_Point, among them U+200B to U+200D, U+FEFF and the tags of U+E0000.
 *
 * So emoji joined by U+200D, and words that need U+200C, are shown in pieces. That is the price of
 * names that cannot deceive.
 *
 * Escapes are \n, \r, \t, \uXXXX (above U+FFFF two of them, as in JSON) and \xXX for a byte that is
 * not UTF-8. So JSON that is escaped again is the same JSON. Thread: any. */
#ifndef EMBTIER_BASE_TEXT_TEXT_ESCAPE_H
#define EMBTIER_BASE_TEXT_TEXT_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/macros.h"

#define TEXT_SHOWN_CHARACTERS 64

enum text_style {
    TEXT_PLAIN,  /* doubles a backslash */
    TEXT_QUOTED, /* also puts a backslash before a double quote: for logfmt */
    TEXT_MIXED, /* keeps backslashes, and keeps escapes whole: for JSON and lines with parts already
                   escaped */
};

/* The one rule for names: true if all @bytes at @text are plain. Such names are shown unchanged. */
MUST_CHECK bool text_is_plain(const char *text, size_t bytes);

/* Writes as much of the @bytes at @text as fits into @out, and a NUL; never cuts a character or an
 * escape in two. Returns the bytes of @text taken, and in @ret_written the bytes written, without
 * the NUL. @room is at least 1. @text and @out must not overlap. */
size_t text_escape(enum text_style style, const char *text, size_t bytes, char *out, size_t room,
                   size_t *ret_written);

/* Returns all of @text escaped, malloced; NULL when out of memory. */
MUST_CHECK char *text_escape_new(enum text_style style, const char *text);

/* Returns an error's quotation of its input, in a buffer that lives as long as the caller's block:
 * TEXT_SHOWN(argument). Shows at most TEXT_SHOWN_CHARACTERS characters, then "... (N bytes)" if
 * there are more. */
struct text_shown {
    char text[TEXT_SHOWN_CHARACTERS * 12 + 40];
};
const char *text_show(struct text_shown *buffer, const char *text);
/* The same for text without a final NUL. */
const char *text_show_bytes(struct text_shown *buffer, const char *text, size_t bytes);
#define TEXT_SHOWN(text) text_show(&(struct text_shown){ { 0 } }, (text))

/* Writes a whole message into @out; its arguments may be escaped already (TEXT_MIXED). A message
 * that is too long loses its middle, because the message's own words stand on both sides of the
 * text it quotes. */
void text_fit(const char *text, char *out, size_t room);

/* Prints one line like printf(). Its output is escaped (TEXT_MIXED), so it cannot become a second
 * line. A newline at the end of @format stays; there may be no other in it. */
void text_print(FILE *file, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
