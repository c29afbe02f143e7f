/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the largest table.json of an export can be read again. A larger one, or one whose tree
 * would be larger, must be refused. */
#include "tests/unit/client/tensor_fixture.h"

#include "client/files/export_manifest.h"

/* Makes a manifest with the longest names. */
static void make_manifest(uint32_t parts, struct export_manifest *ret_manifest)
{
    struct export_manifest manifest = {
        .spec = { .dim = 64,
                  .dtype = EMBTIER_DTYPE_F32,
                  .optimizer = EMBTIER_OPTIMIZER_ADAM,
                  .init = EMBTIER_INIT_UNIFORM,
                  .init_params = { -1.0 / 3, 1.0 / 3 },
                  .seed = UINT64_MAX,
                  .durability = EMBTIER_DURABILITY_ASYNC },
        .with_state = true,
        .format = TENSOR_NPY,
        .checkpoint = UINT64_MAX,
        .has_step = true,
        .step = UINT64_MAX,
    };
    struct tensor_written written = { .rows = UINT64_MAX / EXPORT_PARTS_MAX, .file_count = 3 };

    memset(manifest.spec.name, 'x', EMBTIER_TABLE_NAME_MAX);
    table_spec_fill_defaults(&manifest.spec);
    memset(written.sums, 0xff, sizeof(written.sums));
    for (uint32_t i = 1; i <= parts; i++) {
        for (int c = 0; c < EXPORT_COLUMNS; c++)
            snprintf(written.files[c].name, sizeof(written.files[c].name),
                     "%s-%05" PRIu32 ".%s.npy", manifest.spec.name, i,
                     export_column_name((enum export_column)c));
        assert_int_equal(export_manifest_add(&manifest, &written, NULL), EMBTIER_OK);
    }
    *ret_manifest = manifest;
}

static void assert_corrupt(struct tensor_fixture *f, const char *reason)
{
    struct export_manifest found = { 0 };

    assert_int_equal(export_manifest_read(f->folder, &found, &f->msg), EMBTIER_CORRUPT);
    assert_holds(&f->msg, reason);
    assert_holds(&f->msg, path_of(f, EXPORT_MANIFEST_FILE));
    assert_null(found.parts);
}

static void test_the_largest_that_is_written_is_read(void **state)
{
    struct tensor_fixture *const f = fixture_new();
    struct export_manifest manifest, found = { 0 };

    (void)state;
    make_manifest(EXPORT_PARTS_MAX, &manifest);
    must(export_manifest_write(&manifest, f->fd, &f->msg), &f->msg);
    print_message("%" PRIu64 " bytes\n", bytes_of(f, EXPORT_MANIFEST_FILE));
    must(export_manifest_read(f->folder, &found, &f->msg), &f->msg);
    assert_int_equal(found.part_count, EXPORT_PARTS_MAX);
    assert_true(found.rows == manifest.rows);
    export_manifest_clear(&found);
    export_manifest_clear(&manifest);
    fixture_free(f);
}

static void test_one_of_more_parts_is_refused(void **state)
{
    static const struct tensor_written one_more = { .file_count = 1, .files = { { "a", 1 } } };
    struct tensor_fixture *const f = fixture_new();
    struct export_manifest manifest;

    (void)state;
    make_manifest(EXPORT_PARTS_MAX, &manifest);
    manifest.rows = 0;
    for (uint32_t i = 0; i < EXPORT_PARTS_MAX; i++)
        manifest.parts[i].rows = 0;
    assert_int_equal(export_manifest_add(&manifest, &one_more, NULL), EMBTIER_OK);
    must(export_manifest_write(&manifest, f->fd, &f->msg), &f->msg);
    assert_corrupt(f, "has 16385 parts, an export has at most 16384");
    export_manifest_clear(&manifest);
    fixture_free(f);
}

/* Writes @text, and then @piece repeatedly up to @bytes. */
static void put_filled(struct tensor_fixture *f, const char *text, const char *piece, size_t bytes)
{
    _cleanup_(freep) char *content = malloc(bytes);
    const size_t begin = strlen(text), each = strlen(piece);

    assert_non_null(content);
    for (size_t i = 0; i < bytes; i++)
        content[i] = i < begin ? text[i] : piece[(i - begin) % each];
    put_file(f, EXPORT_MANIFEST_FILE, content, bytes);
}

/* The size of the tree in memory is bounded before the file is parsed. These files are not JSON,
 * but no parser gets to see them. */
static void test_one_of_too_many_values_is_refused(void **state)
{
    struct tensor_fixture *const f = fixture_new();

    (void)state;
    put_filled(f, "{\"x\":[{}", ",{}", 12 * MIB);
    assert_corrupt(f, "has more entries than an export of 16384 parts can have");
    put_filled(f, "{", "\"\":", 12 * MIB);
    assert_corrupt(f, "has more entries than an export of 16384 parts can have");
    put_filled(f, "{\"x\":", "[", 12 * MIB);
    assert_corrupt(f, "is nested deeper than 8 at its byte 12");
    put_filled(f, "{", " ", 16 * MIB);
    assert_corrupt(f, "not a file of at most");
    put_filled(f, "{\"x\":\"\\\",,,,", ",", 12 * MIB); /* in a string these are not separators */
    assert_corrupt(f, EXPORT_MANIFEST_FILE ":1: ");
    fixture_free(f);
}

static void test_messages_have_no_control_characters_of_it(void **state)
{
    static const char text[] = "{\"x\": \x1b[2J\xc2\x9b";
    struct tensor_fixture *const f = fixture_new();
    struct export_manifest manifest;

    (void)state;
    put_file(f, EXPORT_MANIFEST_FILE, text, strlen(text));
    assert_corrupt(f, "json:1: invalid token near '\\u001b'");
    assert_int_equal(unlink(path_of(f, EXPORT_MANIFEST_FILE)), 0);
    make_manifest(1, &manifest);
    strcpy(manifest.parts[0].files[EXPORT_WEIGHT], "\xc2\x9b"
                                                   "2J.npy");
    must(export_manifest_write(&manifest, f->fd, &f->msg), &f->msg);
    assert_corrupt(f, "weight is missing or wrong");
    export_manifest_clear(&manifest);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_largest_that_is_written_is_read),
        cmocka_unit_test(test_one_of_more_parts_is_refused),
        cmocka_unit_test(test_one_of_too_many_values_is_refused),
        cmocka_unit_test(test_messages_have_no_control_characters_of_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
