/* SPDX-License-Identifier: Apache-2.0 */
/* text_escape.h: text of others (names, paths, metadata, a client's or a server's words) as a
 * terminal, a log line and a message can show it.
 *
 * A character is plain if it is valid UTF-8, is seen, and changes nothing beside itself. Not plain
 * are controls (C0, DEL, U+0080 to U+009F), which move the cursor and forge lines; the ends of line
 * and paragraph, U+2028 and U+2029; characters that turn the direction of writing, as U+202E
 * does; and those that are not seen, so that two names look alike: all that Unicode calls
 * Default_Ignorable_Code_Point, U+200B to U+200D, U+FEFF and the tags of U+E0000 among them. Emoji
 * joined by U+200D and words that need U+200C are therefore shown in pieces. That is the price of
 * names that do not lie.
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
    TEXT_PLAIN,  /* a backslash is doubled */
    TEXT_QUOTED, /* and a double quote has a backslash: for logfmt */
    TEXT_MIXED,  /* backslashes stay, and escapes are whole: a line with parts that are escaped
                    already; JSON */
};

/* The one rule for names: whether all of the @bytes at @text are plain. Such names are shown as
 * they are. */
MUST_CHECK bool text_is_plain(const char *text, size_t bytes);

/* Writes as much of the @bytes at @text as @out has room for, and a NUL; no character and no escape
 * is cut in two. Returns how many bytes of @text that were, and in @ret_written the bytes at @out
 * without the NUL. @room is at least 1. Not in place. */
size_t text_escape(enum text_style style, const char *text, size_t bytes, char *out, size_t room,
                   size_t *ret_written);

/* All of it, malloced; NULL when out of memory. */
MUST_CHECK char *text_escape_new(enum text_style style, const char *text);

/* An error's quotation of its input, in a buffer of the caller's statement: TEXT_SHOWN(argument).
 * At most TEXT_SHOWN_CHARACTERS characters, then "... (N bytes)" if there are more. */
struct text_shown {
    char text[TEXT_SHOWN_CHARACTERS * 12 + 40];
};
const char *text_show(struct text_shown *buffer, const char *text);
/* The same of text that does not end with a NUL. */
const char *text_show_bytes(struct text_shown *buffer, const char *text, size_t bytes);
#define TEXT_SHOWN(text) text_show(&(struct text_shown){ { 0 } }, (text))

/* A whole message, whose arguments may have been escaped (TEXT_MIXED), into @out. One that is too
 * long loses its middle: words of the message stand on both sides of the text it quotes. */
void text_fit(const char *text, char *out, size_t room);

/* printf() of one line: its output is escaped (TEXT_MIXED), and so cannot become a second line.
 * A newline at the end of @format stays. */
void text_print(FILE *file, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
