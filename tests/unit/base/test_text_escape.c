/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that escaped foreign text cannot move a cursor, forge a line, turn the direction of writing
 * or look like other text. An error's length must stay bounded, however long its input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/spec/table_spec.h"
#include "base/text/text_escape.h"

#define ESCAPE_BYTES 12 /* the longest escape */

/* Encodes any code point in UTF-8. Returns the number of bytes. */
static size_t encode(uint32_t point, char out[4])
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        out[0] = (char)(0xc0 | point >> 6);
        out[1] = (char)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (char)(0xe0 | point >> 12);
        out[1] = (char)(0x80 | (point >> 6 & 0x3f));
        out[2] = (char)(0x80 | (point & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | point >> 18);
    out[1] = (char)(0x80 | (point >> 12 & 0x3f));
    out[2] = (char)(0x80 | (point >> 6 & 0x3f));
    out[3] = (char)(0x80 | (point & 0x3f));
    return 4;
}

static const struct {
    uint32_t first;
    uint32_t last;
} harmful[] = {
    { 0x0, 0x1f },      { 0x7f, 0x9f },     { 0xad, 0xad },       { 0x61c, 0x61c },
    { 0x180e, 0x180e }, { 0x200b, 0x200f }, { 0x2028, 0x202e },   { 0x2060, 0x2069 },
    { 0x3164, 0x3164 }, { 0xfeff, 0xfeff }, { 0xe0001, 0xe007f },
};

static const uint32_t harmless[] = { 0x20,   '~',    0xa0,   0xac,   0xae,   0xe9,    0x3b1,
                                     0x61b,  0x61d,  0x200a, 0x2010, 0x2027, 0x202f,  0x205f,
                                     0x2070, 0x4e2d, 0xfffd, 0xfefe, 0xff00, 0x1f331, 0x10ffff };

static void test_every_harmful_character_is_escaped(void **state)
{
    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(harmful); r++) {
        for (uint32_t point = harmful[r].first; point <= harmful[r].last; point++) {
            char in[4];
            char out[32];
            size_t written;
            const size_t bytes = encode(point, in);

            assert_false(text_is_plain(in, bytes));
            for (enum text_style style = TEXT_PLAIN; style <= TEXT_MIXED; style++) {
                assert_int_equal(text_escape(style, in, bytes, out, sizeof(out), &written), bytes);
                assert_int_equal(strlen(out), written);
                assert_int_equal(out[0], '\\');
                for (size_t i = 0; i < written; i++)
                    assert_in_range(out[i], 0x21, 0x7e);
            }
        }
    }
}

static void test_what_is_harmless_stays(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(harmless); i++) {
        char in[5] = { 0 };
        char out[32];
        size_t written;
        const size_t bytes = encode(harmless[i], in);

        assert_true(text_is_plain(in, bytes));
        assert_int_equal(text_escape(TEXT_QUOTED, in, bytes, out, sizeof(out), &written), bytes);
        assert_string_equal(out, in);
    }
}

static void assert_escaped(enum text_style style, const char *text, const char *expected)
{
    char *const escaped = text_escape_new(style, text);

    assert_non_null(escaped);
    assert_string_equal(escaped, expected);
    free(escaped);
}

static void test_escapes_are_those_of_json_and_bytes(void **state)
{
    (void)state;
    assert_escaped(TEXT_PLAIN, "a\nb\tc\rd\x1b[2J", "a\\nb\\tc\\rd\\u001b[2J");
    assert_escaped(TEXT_PLAIN, "\xc2\x9b\xe2\x80\xae \xf3\xa0\x81\x81",
                   "\\u009b\\u202e \\udb40\\udc41");
    /* A lone byte, cut short, too long, a surrogate, above the last code point. */
    assert_escaped(TEXT_PLAIN, "\x9b \xe2\x80 \xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80",
                   "\\x9b \\xe2\\x80 \\xc0\\x80 \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80");
    assert_escaped(TEXT_PLAIN, "\xe2\x80", "\\xe2\\x80");
    assert_escaped(TEXT_PLAIN, "\\u009b \"", "\\\\u009b \"");
    assert_escaped(TEXT_QUOTED, "\\u009b \"", "\\\\u009b \\\"");
    assert_escaped(TEXT_MIXED, "{\"a\": \"\\u009b\xc2\x9b\"}", "{\"a\": \"\\u009b\\u009b\"}");
}

/* Otherwise a terminal would get half a character, or an escape would be read as another. */
static void test_nothing_is_cut_in_two(void **state)
{
    static const char text[] = "\xe2\x80\xae\xf0\x9f\x8c\xb1\\\x9b\xf3\xa0\x81\x81x";
    char out[64];
    size_t written;

    (void)state;
    for (size_t room = 1; room <= sizeof(out); room++) {
        const size_t taken = text_escape(TEXT_PLAIN, text, strlen(text), out, room, &written);
        char *whole;
        char part[sizeof(text)];

        assert_true(written < room);
        memcpy(part, text, taken);
        part[taken] = '\0';
        whole = text_escape_new(TEXT_PLAIN, part);
        assert_string_equal(out, whole);
        free(whole);
    }
    assert_string_equal(out, "\\u202e\xf0\x9f\x8c\xb1\\\\\\x9b\\udb40\\udc41x");
}

/* Text that is never cut, and its escaped form. */
static const struct unit {
    const char *text;
    const char *shown;
} units[] = {
    { "a", "a" },
    { "\xc3\xa9", "\xc3\xa9" },
    { "\xf0\x9f\x8c\xb1", "\xf0\x9f\x8c\xb1" },
    { "\x1b", "\\u001b" },
    { "\xe2\x80\xae", "\\u202e" },
    { "\xf3\xa0\x81\x81", "\\udb40\\udc41" },
    { "\x9b", "\\x9b" },
    { "\xff", "\\xff" },
    /* Escaped before. */
    { "\\\\", "\\\\" },
    { "\\u202e", "\\u202e" },
    { "\\u001B", "\\u001B" },
    { "\\x1b", "\\x1b" },
    { "\\udb40\\udc41", "\\udb40\\udc41" },
    { "\\n", "\\n" },
    { "\\\"", "\\\"" },
    { "\\\\", "\\\\" }, /* what follows looks like an escape with it */
    { "u202e", NULL },
    { "\\\\", "\\\\" },
    { "x1b", NULL },
};

/* True if @length bytes at @shown are those of adjacent whole units, from the first on or up to the
 * last. */
static bool are_whole(const char *shown, size_t length, const struct unit *first, size_t count,
                      bool from_end)
{
    for (size_t i = 0; i < count && length > 0; i++) {
        const struct unit *const unit = &first[from_end ? count - 1 - i : i];
        const char *const text = unit->shown ? unit->shown : unit->text;
        size_t bytes = strlen(text);

        if (!unit->shown) /* letters may be cut anywhere */
            bytes = MIN(bytes, length);
        if (bytes > length || memcmp(from_end ? shown + length - bytes : shown,
                                     from_end ? text + strlen(text) - bytes : text, bytes) != 0)
            return false;
        if (!from_end)
            shown += bytes;
        length -= bytes;
    }
    return length == 0;
}

/* Wherever its middle lies, and however long it is. */
static void test_a_message_loses_whole_characters_and_escapes(void **state)
{
    static const char gap[] = " ... ";
    struct unit list[3 * ARRAY_LEN(units)];
    char text[512];
    char out[512];
    uint32_t cuts = 0;

    (void)state;
    for (size_t first = 0; first < ARRAY_LEN(units); first++) {
        size_t all = 0;

        if (!units[first].shown)
            continue;
        text[0] = '\0';
        for (size_t i = 0; i < ARRAY_LEN(list); i++) {
            list[i] = units[(first + i) % ARRAY_LEN(units)];
            strcat(text, list[i].text);
            all += strlen(list[i].shown ? list[i].shown : list[i].text);
        }
        assert_true(all + 1 < sizeof(out));
        for (size_t room = 1; room <= all + 1; room++) {
            const char *middle;
            size_t length;

            text_fit(text, out, room);
            length = strlen(out);
            assert_true(length < room && length + ESCAPE_BYTES + ESCAPE_BYTES + 2 > room);
            assert_true(text_is_plain(out, length));
            middle = strstr(out, gap);
            if (!middle) {
                assert_true(room < 4 * sizeof(gap) || room == all + 1);
                assert_true(are_whole(out, length, list, ARRAY_LEN(list), false));
                continue;
            }
            cuts++;
            assert_true(are_whole(out, (size_t)(middle - out), list, ARRAY_LEN(list), false));
            middle += sizeof(gap) - 1;
            assert_true(are_whole(middle, strlen(middle), list, ARRAY_LEN(list), true));
        }
    }
    assert_true(cuts > 1000);
}

static void test_input_that_is_quoted_is_cut(void **state)
{
    char text[5001];
    struct text_shown shown;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    text_show(&shown, text);
    assert_int_equal(strspn(shown.text, "x"), TEXT_SHOWN_CHARACTERS);
    assert_string_equal(shown.text + TEXT_SHOWN_CHARACTERS, "... (5000 bytes)");
    memset(text, '\x9b', sizeof(text) - 1); /* the longest escape of a byte */
    text_show(&shown, text);
    assert_string_equal(shown.text + (size_t)TEXT_SHOWN_CHARACTERS * 4, "... (5000 bytes)");
    for (size_t i = 0; i + 4 < sizeof(text); i += 4)
        memcpy(text + i, "\xf3\xa0\x81\x81", 4); /* the longest escape of a character */
    text_show(&shown, text);
    assert_string_equal(shown.text + (size_t)TEXT_SHOWN_CHARACTERS * 12, "... (5000 bytes)");
    text[TEXT_SHOWN_CHARACTERS * 4] = '\0';
    assert_null(strchr(text_show(&shown, text), '.'));
}

/* Protects against a caller that forgot to quote a part of a message. */
static void test_no_error_has_more_than_plain_text(void **state)
{
    struct err_msg msg;

    (void)state;
    err_write(&msg, "no such table: '%s'", "a\x1b[2J\nb\xc2\x9b\xe2\x80\xae\xff\\");
    assert_string_equal(msg.text, "no such table: 'a\\u001b[2J\\nb\\u009b\\u202e\\xff\\'");
    err_append(&msg, "; see %s", "\x07");
    assert_string_equal(msg.text,
                        "no such table: 'a\\u001b[2J\\nb\\u009b\\u202e\\xff\\'; see \\u0007");
    err_write_errno(&msg, 2, "%s", "\n");
    assert_string_equal(msg.text, "\\n: No such file or directory");
}

/* The reason stands behind the quoted text as often as before it. */
static void test_a_long_error_keeps_its_reason(void **state)
{
    const size_t bytes = 50000000;
    char *text = malloc(bytes + 1);
    struct err_msg msg;

    (void)state;
    assert_non_null(text);
    memset(text, 'x', bytes);
    text[bytes] = '\0';
    err_write(&msg, "path %s cannot be opened", text);
    assert_in_range(strlen(msg.text), sizeof(msg.text) - 8, sizeof(msg.text) - 1);
    assert_int_equal(strncmp(msg.text, "path xxx", 8), 0);
    assert_non_null(strstr(msg.text, " ... "));
    assert_non_null(strstr(msg.text, "xxx cannot be opened"));
    err_append(&msg, ": %s", "really");
    assert_non_null(strstr(msg.text, "xxx cannot be opened: really"));
    err_write_errno(&msg, 2, "%s", text);
    assert_non_null(strstr(msg.text, "xxx: No such file or directory"));
    for (size_t i = 0; i + 3 < bytes; i += 3)
        memcpy(text + i, "\xe2\x80\xae", 3);
    err_write(&msg, "path %s cannot be opened", text);
    assert_in_range(strlen(msg.text), sizeof(msg.text) - 24, sizeof(msg.text) - 1);
    assert_true(text_is_plain(msg.text, strlen(msg.text)));
    assert_null(strstr(msg.text, "\\x"));
    assert_non_null(strstr(msg.text, " cannot be opened"));
    free(text);
}

static void test_a_line_that_is_printed_stays_one(void **state)
{
    FILE *const file = tmpfile();
    char line[256] = { 0 };

    (void)state;
    assert_non_null(file);
    text_print(file, "table '%s'\n", "a\nforged\x1b[2J");
    rewind(file);
    assert_true(fread(line, 1, sizeof(line) - 1, file) > 0);
    assert_string_equal(line, "table 'a\\nforged\\u001b[2J'\n");
    fclose(file);
}

static void test_names_hold_no_such_characters(void **state)
{
    (void)state;
    assert_true(table_name_is_valid("users"));
    for (size_t r = 0; r < ARRAY_LEN(harmful); r++) {
        char name[16] = "users";

        if (harmful[r].last == 0)
            continue;
        (void)encode(harmful[r].last, name + 5);
        assert_false(table_name_is_valid(name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_harmful_character_is_escaped),
        cmocka_unit_test(test_what_is_harmless_stays),
        cmocka_unit_test(test_escapes_are_those_of_json_and_bytes),
        cmocka_unit_test(test_nothing_is_cut_in_two),
        cmocka_unit_test(test_a_message_loses_whole_characters_and_escapes),
        cmocka_unit_test(test_input_that_is_quoted_is_cut),
        cmocka_unit_test(test_no_error_has_more_than_plain_text),
        cmocka_unit_test(test_a_long_error_keeps_its_reason),
        cmocka_unit_test(test_a_line_that_is_printed_stays_one),
        cmocka_unit_test(test_names_hold_no_such_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
