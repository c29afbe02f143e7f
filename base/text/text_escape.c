/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text/text_escape.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define UTF16_ESCAPE_BYTES 6                        /* \uXXXX */
#define ESCAPE_BYTES_MAX   (2 * UTF16_ESCAPE_BYTES) /* for a character above U+FFFF */

struct range {
    uint32_t first;
    uint32_t last;
};

/* Sorted. Contains Cc, Zl, Zp, Default_Ignorable_Code_Point and the interlinear marks of Unicode
 * 15. */
static const struct range not_plain[] = {
    { 0x0, 0x1f },        { 0x7f, 0x9f },       { 0xad, 0xad },       { 0x34f, 0x34f },
    { 0x61c, 0x61c },     { 0x115f, 0x1160 },   { 0x17b4, 0x17b5 },   { 0x180b, 0x180f },
    { 0x200b, 0x200f },   { 0x2028, 0x202e },   { 0x2060, 0x206f },   { 0x3164, 0x3164 },
    { 0xfe00, 0xfe0f },   { 0xfeff, 0xfeff },   { 0xffa0, 0xffa0 },   { 0xfff0, 0xfffb },
    { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a }, { 0xe0000, 0xe0fff },
};

static bool is_plain(uint32_t point)
{
    for (size_t i = 0; i < ARRAY_LEN(not_plain) && point >= not_plain[i].first; i++)
        if (point <= not_plain[i].last)
            return false;
    return true;
}

/* Returns the length of the UTF-8 character at @in, which has @bytes bytes left; 0 if it is
 * invalid. */
static size_t decode(const unsigned char *in, size_t bytes, uint32_t *ret_point)
{
    const size_t length = in[0] < 0x80   ? 1
                          : in[0] < 0xc2 ? 0
                          : in[0] < 0xe0 ? 2
                          : in[0] < 0xf0 ? 3
                                         : 4;
    uint32_t point = in[0];

    if (in[0] > 0xf4 || length > bytes)
        return 0;
    if (length > 1)
        point = in[0] & (0x7fU >> length);
    for (size_t i = 1; i < length; i++) {
        if ((in[i] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (in[i] & 0x3fU);
    }
    /* An overlong form, a surrogate, or above the last code point. */
    if ((length == 3 && (point < 0x800 || (point >= 0xd800 && point < 0xe000))) ||
        (length == 4 && (point < 0x10000 || point > 0x10ffff)))
        return 0;
    *ret_point = point;
    return length;
}

bool text_is_plain(const char *text, size_t bytes)
{
    const unsigned char *in = (const unsigned char *)text;

    while (bytes > 0) {
        uint32_t point = 0;
        const size_t length = decode(in, bytes, &point);

        if (length == 0 || !is_plain(point))
            return false;
        in += length;
        bytes -= length;
    }
    return true;
}

static size_t count_hex(const unsigned char *in, size_t bytes)
{
    size_t count = 0;

    while (count < bytes && isxdigit(in[count]))
        count++;
    return count;
}

/* True if @in is the escape of half a character above U+FFFF: \ud8XX to \udbXX, or \udcXX to \udfXX
 * (@nibbles). */
static bool is_half(const unsigned char *in, size_t bytes, const char *nibbles)
{
    return bytes >= UTF16_ESCAPE_BYTES && in[0] == '\\' && in[1] == 'u' && (in[2] | 0x20) == 'd' &&
           strchr(nibbles, in[3] | 0x20) && count_hex(in + 2, 4) == 4;
}

/* Returns the length of the escape that begins with the backslash at @in; 1 if none begins
 * there. */
static size_t escape_bytes(const unsigned char *in, size_t bytes)
{
    if (bytes < 2 || in[1] == '\0')
        return 1;
    if (strchr("\\\"/bfnrt", in[1]))
        return 2;
    if (in[1] == 'x' && count_hex(in + 2, MIN(bytes - 2, (size_t)2)) == 2)
        return 4;
    if (in[1] != 'u' || count_hex(in + 2, MIN(bytes - 2, (size_t)4)) < 4)
        return 1;
    if (is_half(in, bytes, "89ab") &&
        is_half(in + UTF16_ESCAPE_BYTES, bytes - UTF16_ESCAPE_BYTES, "cdef"))
        return ESCAPE_BYTES_MAX;
    return UTF16_ESCAPE_BYTES;
}

/* Writes the escape of a character that is not plain. */
static size_t write_escape(uint32_t point, char out[ESCAPE_BYTES_MAX + 1])
{
    static const char letters[] = { ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't' };
    const size_t room = ESCAPE_BYTES_MAX + 1;

    if (point < sizeof(letters) && letters[point])
        return (size_t)snprintf(out, room, "\\%c", letters[point]);
    if (point < 0x10000)
        return (size_t)snprintf(out, room, "\\u%04x", point & 0xffff);
    point -= 0x10000;
    return (size_t)snprintf(out, room, "\\u%04x\\u%04x", 0xd800 | (point >> 10 & 0x3ff),
                            0xdc00 | (point & 0x3ff));
}

/* Writes one character of @in as it is shown, or an escape that stays as it is. Returns how many
 * bytes of @in that is. */
static size_t show_character(enum text_style style, const unsigned char *in, size_t bytes,
                             char out[ESCAPE_BYTES_MAX + 1], size_t *ret_written)
{
    uint32_t point = 0;
    const size_t length = decode(in, bytes, &point);

    if (length == 0) {
        *ret_written = (size_t)snprintf(out, ESCAPE_BYTES_MAX + 1, "\\x%02x", in[0]);
        return 1;
    }
    if (!is_plain(point)) {
        *ret_written = write_escape(point, out);
        return length;
    }
    if (point == '\\' && style == TEXT_MIXED) {
        *ret_written = escape_bytes(in, bytes);
        memcpy(out, in, *ret_written);
        return *ret_written;
    }
    *ret_written = 0;
    if (point == '\\' || (point == '"' && style == TEXT_QUOTED))
        out[(*ret_written)++] = '\\';
    memcpy(out + *ret_written, in, length);
    *ret_written += length;
    return length;
}

/* Like text_escape(), but takes at most @characters_max characters of @text. */
static size_t escape(enum text_style style, const char *text, size_t bytes, size_t characters_max,
                     char *out, size_t room, size_t *ret_written)
{
    const unsigned char *const in = (const unsigned char *)text;
    size_t taken = 0;
    size_t used = 0;

    for (size_t i = 0; i < characters_max && taken < bytes; i++) {
        char shown[ESCAPE_BYTES_MAX + 1];
        size_t written = 0;
        const size_t length = show_character(style, in + taken, bytes - taken, shown, &written);

        if (used + written >= room)
            break;
        memcpy(out + used, shown, written);
        used += written;
        taken += length;
    }
    out[used] = '\0';
    *ret_written = used;
    return taken;
}

size_t text_escape(enum text_style style, const char *text, size_t bytes, char *out, size_t room,
                   size_t *ret_written)
{
    return escape(style, text, bytes, SIZE_MAX, out, room, ret_written);
}

char *text_escape_new(enum text_style style, const char *text)
{
    const size_t bytes = strlen(text);
    /* A byte becomes six at most: a character whose escape is longer has at least three bytes. */
    const size_t room = bytes * 6 + 1;
    char *const escaped = malloc(room);
    size_t written = 0;

    if (escaped)
        (void)text_escape(style, text, bytes, escaped, room, &written);
    return escaped;
}

const char *text_show_bytes(struct text_shown *buffer, const char *text, size_t bytes)
{
    size_t used = 0;
    const size_t taken = escape(TEXT_PLAIN, text, bytes, TEXT_SHOWN_CHARACTERS, buffer->text,
                                sizeof(buffer->text), &used);

    if (taken < bytes)
        snprintf(buffer->text + used, sizeof(buffer->text) - used, "... (%zu bytes)", bytes);
    return buffer->text;
}

const char *text_show(struct text_shown *buffer, const char *text)
{
    return text_show_bytes(buffer, text, strlen(text));
}

/* Returns the length of the first unit: a character, an invalid byte, or an escape. */
static size_t unit_bytes(const unsigned char *in, size_t bytes)
{
    uint32_t point;
    size_t length;

    if (in[0] == '\\')
        return escape_bytes(in, bytes);
    length = decode(in, bytes, &point);
    return MAX(length, (size_t)1);
}

/* Writes as much of @text's end as fits into @out once escaped. Scans all of @text, because only
 * the front tells where an escape begins. */
static void fit_end(const char *text, size_t bytes, char *out, size_t room)
{
    const unsigned char *const in = (const unsigned char *)text;
    size_t at = 0;
    size_t written = 0;

    while (bytes - at >= room) /* escaping never shortens a text */
        at += unit_bytes(in + at, bytes - at);
    while (text_escape(TEXT_MIXED, text + at, bytes - at, out, room, &written) < bytes - at)
        at += unit_bytes(in + at, bytes - at);
}

void text_fit(const char *text, char *out, size_t room)
{
    static const char gap[] = " ... ";
    const size_t bytes = strlen(text);
    size_t used = 0;

    if (text_escape(TEXT_MIXED, text, bytes, out, room, &used) == bytes || room < 4 * sizeof(gap))
        return;
    (void)text_escape(TEXT_MIXED, text, bytes, out, (room - sizeof(gap)) / 2, &used);
    memcpy(out + used, gap, sizeof(gap));
    used += sizeof(gap) - 1;
    fit_end(text, bytes, out + used, room - used);
}

void text_print(FILE *file, const char *format, ...)
{
    const size_t format_bytes = strlen(format);
    const bool ends_line = format_bytes > 0 && format[format_bytes - 1] == '\n';
    _cleanup_(freep) char *escaped = NULL;
    _cleanup_(freep) char *text = NULL;
    va_list args;
    int length;

    assert(!memchr(format, '\n', format_bytes - ends_line)); /* it would be printed as "\\n" */
    va_start(args, format);
    length = vasprintf(&text, format, args);
    va_end(args);
    if (length < 0)
        text = NULL;
    else if (ends_line)
        text[length - 1] = '\0';
    if (text)
        escaped = text_escape_new(TEXT_MIXED, text);
    fprintf(file, "%s%s", escaped ? escaped : "(out of memory)", ends_line ? "\n" : "");
}
