/* SPDX-License-Identifier: Apache-2.0 */
/* test_yaml_edit.c: does a change of one value keep all else that people wrote? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/yaml/yaml_edit.h"

struct edit_case {
    const char *text;
    const char *key;
    const char *value;
    const char *wanted;
};

static void check(const struct edit_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        _cleanup_(freep) char *text = NULL;
        struct err_msg msg = { { 0 } };
        size_t bytes = 0;

        if (yaml_edit(cases[i].text, strlen(cases[i].text), cases[i].key, cases[i].value, &text,
                      &bytes, &msg) != EMBTIER_OK)
            fail_msg("%s\n%s: %s", cases[i].text, cases[i].key, msg.text);
        if (strcmp(text, cases[i].wanted) != 0 || bytes != strlen(cases[i].wanted))
            fail_msg("%s\n--- %s: %s gives\n%s\n--- not\n%s", cases[i].text, cases[i].key,
                     cases[i].value, text, cases[i].wanted);
    }
}

static void test_a_value_is_replaced_and_comments_stay(void **state)
{
    static const struct edit_case cases[] = {
        { "# top\nlanes:\n  count: 4   # four\n\n  # why\n  ticket_seconds: 9\n", "lanes.count",
          "8", "# top\nlanes:\n  count: 8   # four\n\n  # why\n  ticket_seconds: 9\n" },
        { "lanes:\n    count: '4'\nlog: {level: info}\n", "lanes.count", "8",
          "lanes:\n    count: 8\nlog: {level: info}\n" },
        { "lanes: {count: 4, group_seconds: 1} # x\n", "lanes.count", "8",
          "lanes: {count: 8, group_seconds: 1} # x\n" },
        { "{\n \"lanes\": {\n  \"count\": 4\n }\n}\n", "lanes.count", "8",
          "{\n \"lanes\": {\n  \"count\": 8\n }\n}\n" },
        { "a:\n  b: >\n    long\n    text\n\n  # of c\n  c: 1\n", "a.b", "short",
          "a:\n  b: short\n\n  # of c\n  c: 1\n" },
        { "a:\n  b: one\n    two # x\n  c: 1\n", "a.b", "3", "a:\n  b: 3 # x\n  c: 1\n" },
        { "a:\n  b: # default\n  c: 1\n", "a.b", "3", "a:\n  b: 3 # default\n  c: 1\n" },
        { "a:\n  b: ~\n", "a.b", "3", "a:\n  b: 3\n" },
        /* Letters of several bytes come before. */
        { "# Größe der Blöcke: ½\na:\n  b: é # für später\n  c: 1 # ä\n", "a.c", "2",
          "# Größe der Blöcke: ½\na:\n  b: é # für später\n  c: 2 # ä\n" },
        { "\xef\xbb\xbf# ü\na:\n  b: 1\n", "a.b", "2", "\xef\xbb\xbf# ü\na:\n  b: 2\n" },
    };

    (void)state;
    check(cases, ARRAY_LEN(cases));
}

static void test_keys_come_before_the_comments_of_a_flow_mapping(void **state)
{
    static const struct edit_case cases[] = {
        { "a: {\n  b: 1 # one\n}\n", "a.c", "2", "a: {\n  b: 1, c: 2 # one\n}\n" },
        { "a: {\n  b: 1, # one\n}\n", "a.c", "2", "a: {\n  b: 1, c: 2, # one\n}\n" },
        { "{a: {b: 1} # one\n}\n", "c.d", "2", "{a: {b: 1}, c: {d: 2} # one\n}\n" },
        { "{a: {b: [1, 2] # one\n}\n}\n", "a.c", "2", "{a: {b: [1, 2], c: 2 # one\n}\n}\n" },
    };

    (void)state;
    check(cases, ARRAY_LEN(cases));
}

static void test_items_of_lists_are_found(void **state)
{
    static const struct edit_case cases[] = {
        { "c:\n  tiers:\n    - name: x # 1\n      bytes: 1GiB\n    - bytes: 2GiB # two\n",
          "c.tiers[1].bytes", "3GiB",
          "c:\n  tiers:\n    - name: x # 1\n      bytes: 1GiB\n    - bytes: 3GiB # two\n" },
        { "c:\n  tiers:\n  - bytes: 1GiB\n# end\n", "c.tiers[0].kind", "dram",
          "c:\n  tiers:\n  - bytes: 1GiB\n    kind: dram\n# end\n" },
        { "d: {dirs: [/a, \"/b\"]}\n", "d.dirs[1]", "/c d", "d: {dirs: [/a, \"/c d\"]}\n" },
        { "d:\n  dirs:\n  - /a\n  - /b\n", "d.dirs[0]", "/c", "d:\n  dirs:\n  - /c\n  - /b\n" },
    };

    (void)state;
    check(cases, ARRAY_LEN(cases));
}

static void test_a_missing_key_is_added_where_its_section_is(void **state)
{
    static const struct edit_case cases[] = {
        { "a:\n  b: 1 # x\n\n# of c\nc:\n  d: 1\n", "a.e", "2",
          "a:\n  b: 1 # x\n  e: 2\n\n# of c\nc:\n  d: 1\n" },
        { "a:\n    l:\n      - x: 1\n        y: [1,\n          2]\nc:\n    d: 1\n", "a.e", "2",
          "a:\n    l:\n      - x: 1\n        y: [1,\n          2]\n    e: 2\nc:\n    d: 1\n" },
        { "a: {b: 1}\n", "a.e", "2", "a: {b: 1, e: 2}\n" },
        { "a: {}\n", "a.e", "2", "a: {e: 2}\n" },
        { "a: # of a\nc:\n  d: 1\n", "a.e", "2", "a: # of a\n  e: 2\nc:\n  d: 1\n" },
        { "{\"a\": {\"b\": 1}\n}\n", "c.d", "2", "{\"a\": {\"b\": 1}, c: {d: 2}\n}\n" },
        { "{a: , b: {c: 1}}\n", "a.e", "2", "{a: {e: 2}, b: {c: 1}}\n" },
    };

    (void)state;
    check(cases, ARRAY_LEN(cases));
}

static void test_a_missing_section_is_added_at_the_end(void **state)
{
    static const struct edit_case cases[] = {
        { "a:\n  b: 1\n# the end\n", "c.d", "2", "a:\n  b: 1\n# the end\nc:\n  d: 2\n" },
        { "", "c.d", "2", "c:\n  d: 2\n" },
        { "# only words\n", "c.d", "2", "# only words\nc:\n  d: 2\n" },
        { "---\n", "c.d", "2", "---\nc:\n  d: 2\n" },
        { "---\na:\n  b: 1\n...\n", "c.d", "2", "---\na:\n  b: 1\nc:\n  d: 2\n...\n" },
    };

    (void)state;
    check(cases, ARRAY_LEN(cases));
}

static void test_line_ends_stay_as_they_are(void **state)
{
    static const struct edit_case cases[] = {
        { "a:\r\n  b: 1 # x\r\n", "a.b", "2", "a:\r\n  b: 2 # x\r\n" },
        { "a:\r\n  b: 1 # x\r\nc:\r\n  d: 1\r\n", "a.e", "2",
          "a:\r\n  b: 1 # x\r\n  e: 2\r\nc:\r\n  d: 1\r\n" },
        { "a:\r\n  b: 1\r\n", "c.d", "2", "a:\r\n  b: 1\r\nc:\r\n  d: 2\r\n" },
        { "a:\n  b: 1", "a.b", "2", "a:\n  b: 2" },
        { "a:\n  b: 1", "a.c", "2", "a:\n  b: 1\n  c: 2" },
        { "a:\n  b: 1 # x", "c.d", "2", "a:\n  b: 1 # x\nc:\n  d: 2" },
        { "a:", "a.b", "2", "a:\n  b: 2" },
    };

    (void)state;
    check(cases, ARRAY_LEN(cases));
}

static void test_values_are_quoted_where_yaml_needs_it(void **state)
{
    static const struct edit_case cases[] = {
        { "a:\n  b: 1\n", "a.b", "x: y # z", "a:\n  b: \"x: y # z\"\n" },
        { "a:\n  b: 1\n", "a.b", "null", "a:\n  b: null\n" },
        { "a:\n  b: 1\n", "a.b", "say \"hi\\\"", "a:\n  b: \"say \\\"hi\\\\\\\"\"\n" },
        { "a:\n  b: 1\n", "a.b", "/var/lib/x-1_2", "a:\n  b: /var/lib/x-1_2\n" },
    };

    (void)state;
    check(cases, ARRAY_LEN(cases));
}

static void test_texts_without_a_place_for_the_key_are_refused(void **state)
{
    static const struct {
        const char *text;
        const char *key;
        enum embtier_err err;
    } cases[] = {
        { "a: 1\n", "a.b", EMBTIER_INVALID },
        { "- a\n", "a.b", EMBTIER_INVALID },
        { "a:\n  b: [1]\n", "a.b", EMBTIER_INVALID },
        { "a: {b: }\n", "a.b[0].c", EMBTIER_NOT_FOUND },
        { "a:\n  b: [1]\n", "a.b[1]", EMBTIER_NOT_FOUND },
        { "a:\n\tb: 1\n", "a.b", EMBTIER_INVALID },
        { "c: 1\n", "a.b[0]", EMBTIER_NOT_FOUND },
        { "a: 1\n", "", EMBTIER_INVALID },
        { "a: 1\n", "a[x]", EMBTIER_INVALID },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err_msg msg = { { 0 } };
        char *text = NULL;
        size_t bytes = 0;

        assert_int_equal(
            yaml_edit(cases[i].text, strlen(cases[i].text), cases[i].key, "2", &text, &bytes, &msg),
            cases[i].err);
        assert_null(text);
        assert_string_not_equal(msg.text, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_value_is_replaced_and_comments_stay),
        cmocka_unit_test(test_keys_come_before_the_comments_of_a_flow_mapping),
        cmocka_unit_test(test_items_of_lists_are_found),
        cmocka_unit_test(test_a_missing_key_is_added_where_its_section_is),
        cmocka_unit_test(test_a_missing_section_is_added_at_the_end),
        cmocka_unit_test(test_line_ends_stay_as_they_are),
        cmocka_unit_test(test_values_are_quoted_where_yaml_needs_it),
        cmocka_unit_test(test_texts_without_a_place_for_the_key_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
