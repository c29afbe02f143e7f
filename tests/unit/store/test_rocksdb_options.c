/* SPDX-License-Identifier: Apache-2.0 */
/* test_rocksdb_options.c: tests that `rocksdb.options` cannot set an option that breaks the store's
 * promises. It tries all options of this RocksDB, so an option that a later version adds is covered
 * too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/rocksdb/rocksdb_ext.h"
#include "store/rocksdb/rocksdb_options.h"

static enum embtier_err apply(const char *text, bool also_try, struct err_msg *msg)
{
    struct config config = { .rocksdb.options = (char *)(uintptr_t)text };
    rocksdb_options_t *options = rocksdb_options_create();
    enum embtier_err err;

    memset(msg, 0, sizeof(*msg));
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    err = rocksdb_options_apply(&options, &config, msg);
    if (err == EMBTIER_OK && also_try)
        err = rocksdb_options_try(options, &config, msg);
    rocksdb_options_destroy(options);
    return err;
}

static const struct rocksdb_option *allowed(const char *name)
{
    for (uint32_t i = 0; i < rocksdb_options_allowed_count; i++)
        if (strcmp(rocksdb_options_allowed[i].name, name) == 0)
            return &rocksdb_options_allowed[i];
    return NULL;
}

struct seen {
    uint32_t options;
    uint32_t allowed;
};

/* An option that is not allowed is refused even with its present value. */
static bool must_be_refused(void *context, const char *name, const char *value)
{
    struct seen *const seen = context;
    struct err_msg msg;
    char *text = NULL;

    seen->options++;
    assert_true(asprintf(&text, strchr(value, ';') ? "%s={%s}" : "%s=%s", name, value) > 0);
    if (allowed(name)) {
        seen->allowed++;
    } else {
        assert_int_equal(apply(text, false, &msg), EMBTIER_CONFIG);
        if (!strstr(msg.text, name) || !strstr(msg.text, "cannot be set"))
            fail_msg("%s: %s", text, msg.text);
    }
    free(text);
    return true;
}

static void test_every_option_that_is_not_on_the_list_is_refused(void **state)
{
    rocksdb_options_t *const options = rocksdb_options_create();
    struct seen seen = { 0 };

    (void)state;
    assert_true(rocksdb_ext_each_option(options, must_be_refused, &seen));
    rocksdb_options_destroy(options);
    printf("%u options, %u may be set\n", seen.options, seen.allowed);
    assert_true(seen.options > 100);
    assert_int_equal(seen.allowed, rocksdb_options_allowed_count); /* each one exists in RocksDB */
}

static void test_those_that_only_a_string_can_name_are_refused(void **state)
{
    static const char *const texts[] = {
        "block_based_table_factory={block_size=16384}",
        "plain_table_factory={user_key_len=12}",
        "memtable=vector:16",
        "comparator=leveldb.ReverseBytewiseComparator",
        "compression=kNoCompression;compaction_style=kCompactionStyleFIFO",
        "env=default",
        "rate_limiter_bytes_per_sec=1",
        "no_such_option=1",
    };
    struct err_msg msg;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (apply(texts[i], false, &msg) != EMBTIER_CONFIG || !strstr(msg.text, "cannot be set"))
            fail_msg("%s: %s", texts[i], msg.text);
    }
}

static void test_numbers_are_taken_within_their_bounds_only(void **state)
{
    struct err_msg msg;
    char text[100];

    (void)state;
    for (uint32_t i = 0; i < rocksdb_options_allowed_count; i++) {
        const struct rocksdb_option *const option = &rocksdb_options_allowed[i];

        if (option->most == 0)
            continue;
        snprintf(text, sizeof(text), "%s=%.0f", option->name, option->least);
        if (apply(text, true, &msg) != EMBTIER_OK)
            fail_msg("%s: %s", text, msg.text);
        snprintf(text, sizeof(text), "%s=%.0f", option->name, option->most);
        if (apply(text, true, &msg) != EMBTIER_OK)
            fail_msg("%s: %s", text, msg.text);
        snprintf(text, sizeof(text), "%s=%.0f", option->name, option->most + 1);
        assert_int_equal(apply(text, false, &msg), EMBTIER_CONFIG);
        assert_non_null(strstr(msg.text, option->name));
        snprintf(text, sizeof(text), "%s=%.0f", option->name, option->least - 1);
        assert_int_equal(apply(text, false, &msg), EMBTIER_CONFIG);
    }
}

static void test_words_are_rocksdbs(void **state)
{
    struct err_msg msg;

    (void)state;
    assert_int_equal(apply("compression=kLZ4Compression;bottommost_compression=kZSTD;"
                           "compaction_pri=kOldestSmallestSeqFirst;optimize_filters_for_hits=true",
                           true, &msg),
                     EMBTIER_OK);
    assert_int_equal(apply("wal_recovery_mode=kPointInTimeRecovery", true, &msg), EMBTIER_OK);
    assert_int_equal(apply("wal_recovery_mode=kSkipAnyCorruptedRecords", false, &msg),
                     EMBTIER_CONFIG);
    assert_non_null(strstr(msg.text, "loses updates"));
    assert_int_equal(apply("compression=kNone", false, &msg), EMBTIER_CONFIG);
    assert_non_null(strstr(msg.text, "compression"));
    assert_int_equal(apply("compression", false, &msg), EMBTIER_CONFIG);
    assert_int_equal(apply("{compression=kLZ4Compression", false, &msg), EMBTIER_CONFIG);
    assert_int_equal(apply(NULL, true, &msg), EMBTIER_OK);
}

/* Some compressions that RocksDB knows but this build lacks end the process. Others fail only once
 * files of the last level are written. */
static void test_compressions_are_those_that_rocksdb_can_write(void **state)
{
    static const char *const names[] = {
        "kNoCompression",           "kSnappyCompression", "kZlibCompression",   "kBZip2Compression",
        "kLZ4Compression",          "kLZ4HCCompression",  "kXpressCompression", "kZSTD",
        "kZSTDNotFinalCompression",
    };
    struct err_msg msg;
    char text[100];
    size_t taken = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        bool can = false;

        for (size_t j = 0; rocksdb_ext_compression(j); j++)
            can |= strcmp(rocksdb_ext_compression(j), names[i]) == 0;
        taken += can;
        for (int bottommost = 0; bottommost < 2; bottommost++) {
            snprintf(text, sizeof(text), "%scompression=%s", bottommost ? "bottommost_" : "",
                     names[i]);
            assert_int_equal(apply(text, can, &msg), can ? EMBTIER_OK : EMBTIER_CONFIG);
            if (!can && (!strstr(msg.text, names[i]) || !strstr(msg.text, "kNoCompression")))
                fail_msg("%s: %s", text, msg.text);
        }
    }
    assert_in_range(taken, 2, ARRAY_LEN(names) - 1);
    assert_null(rocksdb_ext_compression(taken));
    assert_int_equal(apply("compression=kDisableCompressionOption", false, &msg), EMBTIER_CONFIG);
    assert_null(strstr(strstr(msg.text, "allowed"), "kDisable"));
    assert_int_equal(apply("bottommost_compression=kDisableCompressionOption", true, &msg),
                     EMBTIER_OK);
}

/* This RocksDB checks its options with assertions, each of which ends the process. */
static void test_other_words_are_taken_or_refused(void **state)
{
    static const char *const texts[] = {
        "compaction_pri=kByCompensatedSize",
        "compaction_pri=kOldestLargestSeqFirst",
        "compaction_pri=kOldestSmallestSeqFirst",
        "compaction_pri=kMinOverlappingRatio",
        "compaction_pri=kRoundRobin",
        "wal_recovery_mode=kTolerateCorruptedTailRecords",
        "wal_recovery_mode=kAbsoluteConsistency",
        "optimize_filters_for_hits=false",
        "compression_per_level=kXpressCompression:kDisableCompressionOption",
        "compression_opts={level=9}",
        "compaction_pri=0x7f",
        "compaction_pri=",
        "compression=",
        "bottommost_compression=255",
        "wal_recovery_mode=9",
        "optimize_filters_for_hits=2",
    };
    struct err_msg msg;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        assert_int_equal(apply(texts[i], true, &msg), i < 8 ? EMBTIER_OK : EMBTIER_CONFIG);
}

static void test_the_manual_lists_them(void **state)
{
    static char page[100000];
    FILE *const file = fopen(SOURCE_ROOT "/docs/man/embtierd.yaml.5.in", "r");
    char line[100];

    (void)state;
    assert_non_null(file);
    page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
    fclose(file);
    for (uint32_t i = 0; i < rocksdb_options_allowed_count; i++) {
        snprintf(line, sizeof(line), ".It Ic %s", rocksdb_options_allowed[i].name);
        if (!strstr(page, line))
            fail_msg("embtierd.yaml(5) lacks %s", rocksdb_options_allowed[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_option_that_is_not_on_the_list_is_refused),
        cmocka_unit_test(test_those_that_only_a_string_can_name_are_refused),
        cmocka_unit_test(test_numbers_are_taken_within_their_bounds_only),
        cmocka_unit_test(test_words_are_rocksdbs),
        cmocka_unit_test(test_compressions_are_those_that_rocksdb_can_write),
        cmocka_unit_test(test_other_words_are_taken_or_refused),
        cmocka_unit_test(test_the_manual_lists_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
