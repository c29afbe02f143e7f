/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that each malformed file is refused with what is wrong. No file may make the reader read or
 * allocate more than it should (the sanitizers check that). */
#include "tests/unit/client/tensor_fixture.h"

/* ---- Files ---- */

struct content {
    char bytes[4096];
    size_t count;
};

/* Makes a safetensors file with a header and @data_bytes bytes of data. */
static struct content safetensors_of(const char *header, size_t data_bytes)
{
    struct content content = { .count = 8 + strlen(header) + data_bytes };

    assert_true(content.count <= sizeof(content.bytes));
    content.bytes[0] = (char)(strlen(header) & 0xff);
    content.bytes[1] = (char)(strlen(header) >> 8);
    memcpy(content.bytes + 8, header, strlen(header));
    for (size_t i = 0; i < data_bytes; i++)
        content.bytes[8 + strlen(header) + i] = (char)i;
    return content;
}

static struct content npy_of(unsigned major, const char *header, size_t data_bytes)
{
    const size_t start = major == 1 ? 10 : 12;
    struct content content = { .count = start + strlen(header) + data_bytes };

    assert_true(content.count <= sizeof(content.bytes));
    memcpy(content.bytes, "\x93NUMPY", 6);
    content.bytes[6] = (char)major;
    content.bytes[8] = (char)(strlen(header) & 0xff);
    content.bytes[9] = (char)(strlen(header) >> 8);
    memcpy(content.bytes + start, header, strlen(header));
    for (size_t i = 0; i < data_bytes; i++)
        content.bytes[start + strlen(header) + i] = (char)i;
    return content;
}

static enum embtier_err open_content(struct tensor_fixture *f, const struct content *content,
                                     struct tensor_reader **ret_reader)
{
    f->msg.text[0] = '\0';
    put_file(f, "file", content->bytes, content->count);
    return tensor_reader_open(path_of(f, "file"), ret_reader, &f->msg);
}

static void assert_refused(struct tensor_fixture *f, const struct content *content,
                           enum embtier_err expected, const char *reason)
{
    struct tensor_reader *r = NULL;
    const enum embtier_err err = open_content(f, content, &r);

    if (err != expected)
        fail_msg("%s instead of %s: `%s`, for `%s`", err_name(err), err_name(expected), f->msg.text,
                 reason);
    assert_holds(&f->msg, reason);
    assert_holds(&f->msg, f->path); /* names the file */
    assert_null(r);
    assert_int_equal(tensor_reader_open(path_of(f, "file"), &r, NULL), expected);
}

static struct tensor_reader *opened(struct tensor_fixture *f, const struct content *content)
{
    struct tensor_reader *r = NULL;

    must(open_content(f, content, &r), &f->msg);
    return r;
}

/* ---- Other kinds of files ---- */

static void test_what_is_no_file_is_refused_and_none_waited_for(void **state)
{
    struct tensor_fixture *const f = fixture_new();
    struct tensor_reader *r = NULL;

    (void)state;
    assert_int_equal(tensor_reader_open(f->folder, &r, &f->msg), EMBTIER_INVALID);
    assert_holds(&f->msg, "is a directory, allowed: a file");
    assert_int_equal(tensor_reader_open(path_of(f, "none"), &r, &f->msg), EMBTIER_NOT_FOUND);
    assert_holds(&f->msg, "none: No such file");
    assert_int_equal(mkfifo(path_of(f, "fifo"), 0600), 0);
    assert_int_equal(tensor_reader_open(path_of(f, "fifo"), &r, &f->msg), EMBTIER_INVALID);
    assert_holds(&f->msg, "is not a regular file");
    assert_int_equal(tensor_reader_open("/dev/null", &r, &f->msg), EMBTIER_INVALID);
    assert_null(r);
    fixture_free(f);
}

static void test_other_formats_are_told_apart(void **state)
{
    static const struct {
        const char *bytes;
        size_t count;
        enum embtier_err err;
        const char *reason;
    } others[] = {
        { "", 0, EMBTIER_INVALID, "is empty" },
        { "id,name", 7, EMBTIER_INVALID, "neither a safetensors file nor" },
        { "id,name,value\n1,2,3\n", 20, EMBTIER_INVALID, "neither a safetensors file nor" },
        { "{\"a\":{\"b\":1}}", 13, EMBTIER_INVALID, "neither a safetensors file nor" },
        { "PK\x03\x04 and so on", 13, EMBTIER_UNSUPPORTED, "is a zip archive" },
        { "\x93NUMP", 5, EMBTIER_INVALID, "neither a safetensors file nor" },
        { "\x93NUMPY", 6, EMBTIER_INVALID, "ends within the header of a NumPy array" },
        { "\x93NUMPY\x01\x00\x00", 9, EMBTIER_INVALID, "ends within the header" },
        { "\x93NUMPY\x02\x00\x00\x00\x00", 11, EMBTIER_INVALID, "ends within the header" },
        { "\x93NUMPY\x04\x00\x00\x00", 10, EMBTIER_INVALID, "ends within the header" },
        { "\x93NUMPY\x04\x00\x00\x00\x00\x00", 12, EMBTIER_UNSUPPORTED, "has version 4.0 of" },
        { "\x93NUMPY\x01\x01\x00\x00", 10, EMBTIER_UNSUPPORTED, "has version 1.1 of" },
        { "\x93NUMPY\x01\x00\x00\x00", 10, EMBTIER_INVALID, "expected { at its" },
        { "\x93NUMPY\x01\x00\x09\x00{}", 12, EMBTIER_INVALID,
          "claims to be 9 bytes long, the file has 2 after byte 10" },
        { "\x93NUMPY\x03\x00\xff\xff\xff\xff{}", 14, EMBTIER_INVALID,
          "claims to be 4294967295 bytes long, the file has 2" },
        { "\x03\0\0\0\0\0\0\0{}", 10, EMBTIER_INVALID,
          "claims to be 3 bytes long, the file has 2" },
        { "\x02\0\0\0\0\0\0\x80{}", 10, EMBTIER_INVALID,
          "claims to be 9223372036854775810 bytes long, at most 100000000" },
        { "\x01\xe1\xf5\x05\0\0\0\0{}", 10, EMBTIER_INVALID,
          "claims to be 100000001 bytes long, at most 100000000" },
        { "\0\0\0\0\0\0\0\0", 8, EMBTIER_INVALID, "does not begin with {" },
        { "\x02\0\0\0\0\0\0\0[]", 10, EMBTIER_INVALID, "does not begin with {" },
        { "\x02\0\0\0\0\0\0\0{}x", 11, EMBTIER_INVALID,
          "its tensors have 0 bytes, the file has 1" },
    };
    struct tensor_fixture *const f = fixture_new();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct content content = { .count = others[i].count };

        memcpy(content.bytes, others[i].bytes, others[i].count);
        assert_refused(f, &content, others[i].err, others[i].reason);
    }
    fixture_free(f);
}

/* ---- safetensors ---- */

static void test_right_safetensors_are_read(void **state)
{
    static const char *const none[] = { "{}", "{}   ", "{\"__metadata__\":{}}" };
    static const char header[] =
        "{\"b\":{\"data_offsets\":[8,14],\"shape\":[3,1,2],\"dtype\":\"F8_E4M3\"},"
        "\"none\":{\"dtype\":\"I64\",\"shape\":[0,9223372036854775807],\"data_offsets\":[8,8]},"
        "\"scalar\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"__metadata__\":{\"k\":\"v\\u001b\"}, \"\":{\"dtype\":\"BOOL\",\"shape\":[5,0],"
        "\"data_offsets\":[14,14]} }  \n ";
    struct tensor_fixture *const f = fixture_new();
    struct content content = safetensors_of(header, 14);
    struct tensor_reader *r = NULL;
    unsigned char got[8];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        const struct content empty = safetensors_of(none[i], 0);

        r = opened(f, &empty);
        assert_int_equal(tensor_reader_count(r), 0);
        assert_null(tensor_reader_at(r, 0));
        tensor_reader_free(r);
    }
    r = opened(f, &content);
    assert_int_equal(tensor_reader_count(r), 4);
    assert_string_equal(tensor_reader_at(r, 0)->name, "scalar");
    assert_string_equal(tensor_reader_at(r, 1)->name, "none");
    assert_string_equal(tensor_reader_at(r, 2)->name, "b");
    assert_string_equal(tensor_reader_at(r, 3)->name, "");
    assert_string_equal(tensor_reader_metadata(r, "k"), "v\x1b");
    assert_int_equal(tensor_reader_at(r, 0)->rank, 0);
    assert_int_equal(tensor_reader_at(r, 0)->rows, 1);
    assert_int_equal(tensor_reader_at(r, 0)->row_bytes, 8);
    assert_int_equal(tensor_reader_at(r, 1)->rows, 0);
    assert_int_equal(tensor_reader_at(r, 2)->dtype, TENSOR_F8_E4M3);
    assert_int_equal(tensor_reader_at(r, 2)->rank, 3);
    assert_int_equal(tensor_reader_at(r, 2)->row_bytes, 2);
    assert_int_equal(tensor_reader_at(r, 3)->rows, 5);
    must(tensor_reader_read(r, 0, 0, 1, got, 8, &f->msg), &f->msg);
    assert_int_equal(got[7], 7);
    must(tensor_reader_read(r, 2, 1, 2, got, 2, &f->msg), &f->msg);
    assert_int_equal(got[0], 10);
    assert_int_equal(got[3], 13);
    must(tensor_reader_read(r, 3, 0, 5, NULL, 0, &f->msg), &f->msg);
    tensor_reader_free(r);
    fixture_free(f);
}

#define T(dtype, shape, offsets)                                                                   \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_wrong_safetensors_are_refused(void **state)
{
    static const struct {
        const char *header;
        const char *reason;
        enum embtier_err err;
    } wrong[] = {
        { "{", "is not JSON, at its byte", 0 },
        { "{}}", "is not JSON, at its byte", 0 },
        { "{\"t\":\x1b}", "is not JSON, at its byte 6: invalid token near '\\u001b'", 0 },
        { "{\"\xff\":1}", "is not JSON", 0 },
        { "{\"\\u0000\":1}", "is not JSON", 0 },
        { "{\"a\":1,\"a\":1}", "duplicate object key", 0 },
        { "{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", "duplicate object key", 0 },
        { "{\"a\":[[[[]]]]}", "is nested deeper than 3 at its byte 7", 0 },
        { "{\"__metadata__\":[]}", "__metadata__ is not an object", 0 },
        { "{\"__metadata__\":null}", "__metadata__ is not an object", 0 },
        { "{\"__metadata__\":{\"a\":1}}", "__metadata__: 'a' is not a string", 0 },
        { "{\"t\":[]}", "tensor 't': is not an object of dtype, shape", 0 },
        { "{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", "is not an object of dtype, shape", 0 },
        { "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"more\":1}}",
          "is not an object of dtype, shape", 0 },
        { "{\"t\\u001b\":{}}", "tensor 't\\u001b': its name has control characters", 0 },
        { "{\"t\\u202e\":{}}", "tensor 't\\u202e': its name has control characters", 0 },
        { "{\"t\xc2\x9b\":{}}", "\\u009b': its name has control characters", 0 },
        { T("7", "[1]", "[0,4]"), "dtype is not a string", 0 },
        { T("\"F4\"", "[8]", "[0,4]"), "dtype 'F4' is not supported; allowed: BOOL U8 I8",
          EMBTIER_UNSUPPORTED },
        { T("\"f32\"", "[1]", "[0,4]"), "dtype 'f32' is not supported", EMBTIER_UNSUPPORTED },
        { T("\"\"", "[1]", "[0,4]"), "dtype '' is not supported", EMBTIER_UNSUPPORTED },
        { T("\"F32\"", "1", "[0,4]"), "shape is not a list", 0 },
        { T("\"F32\"", "[-1]", "[0,4]"), "shape has an entry that is not a whole number", 0 },
        { T("\"F32\"", "[1.0]", "[0,4]"), "shape has an entry that is not a whole number", 0 },
        { T("\"F32\"", "[null]", "[0,4]"), "shape has an entry that is not a whole number", 0 },
        { T("\"F32\"", "[9223372036854775808]", "[0,4]"), "is not JSON", 0 },
        { T("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), "has 9 dimensions, at most 8",
          EMBTIER_TOO_LARGE },
        { T("\"F32\"", "[4611686018427387904]", "[0,4]"), "more bytes than 64 bits", 0 },
        { T("\"F32\"", "[4294967296,4294967296,0]", "[0,4]"), "more bytes than 64 bits", 0 },
        { T("\"F32\"", "[2]", "[0,4]"), "its shape needs 8 bytes, data_offsets give it 4", 0 },
        { T("\"F32\"", "[1]", "[0]"), "data_offsets is not a list of begin and end", 0 },
        { T("\"F32\"", "[1]", "[0,4,4]"), "data_offsets is not a list of begin and end", 0 },
        { T("\"F32\"", "[1]", "[4,0]"), "data_offsets is not a list of begin and end", 0 },
        { T("\"F32\"", "[1]", "[-4,0]"), "data_offsets is not a list of begin and end", 0 },
        { T("\"F32\"", "[1]", "[0,\"4\"]"), "data_offsets is not a list of begin and end", 0 },
        { T("\"F32\"", "[1]", "\"04\""), "data_offsets is not a list of begin and end", 0 },
        { T("\"F32\"", "[2]", "[0,8]"), "its data end at byte 8, the file has 4", 0 },
        { T("\"U8\"", "[3]", "[0,3]"), "its tensors have 3 bytes, the file has 4", 0 },
        { T("\"U8\"", "[3]", "[1,4]"), "its data begin at byte 1, those before end at 0", 0 },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
          "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
          "tensor 'b': its data begin at byte 2, those before end at 3", 0 },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
          "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}",
          "tensor 'b': its data begin at byte 2, those before end at 4", 0 },
    };
    struct tensor_fixture *const f = fixture_new();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        const struct content content = safetensors_of(wrong[i].header, 4);

        assert_refused(f, &content, wrong[i].err ? wrong[i].err : EMBTIER_INVALID, wrong[i].reason);
    }
    fixture_free(f);
}

static void test_a_name_that_is_too_long_is_refused(void **state)
{
    struct tensor_fixture *const f = fixture_new();
    char header[1024];

    (void)state;
    for (int bytes = TENSOR_NAME_MAX; bytes <= TENSOR_NAME_MAX + 1; bytes++) {
        struct content content;

        snprintf(header, sizeof(header),
                 "{\"%0*d\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", bytes, 7);
        content = safetensors_of(header, 4);
        if (bytes <= TENSOR_NAME_MAX)
            tensor_reader_free(opened(f, &content));
        else
            assert_refused(f, &content, EMBTIER_TOO_LARGE, "its name is 256 bytes long, at most");
    }
    fixture_free(f);
}

/* The header is long. Its size in memory is bounded before it is parsed. */
static void test_a_header_of_too_many_values_is_refused(void **state)
{
    const size_t length = 4000000;
    struct tensor_fixture *const f = fixture_new();
    _cleanup_(freep) char *bytes = malloc(8 + length);
    struct tensor_reader *r = NULL;

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (char)(length >> (8 * i));
    strcpy(bytes + 8, "{\"t\":[0");
    for (size_t i = 15; i < 8 + length; i++)
        bytes[i] = i % 2 ? ',' : '0';
    put_file(f, "long", bytes, 8 + length);
    assert_int_equal(tensor_reader_open(path_of(f, "long"), &r, &f->msg), EMBTIER_TOO_LARGE);
    assert_holds(&f->msg, "has too many entries; files of up to 65536 tensors are supported");
    fixture_free(f);
}

/* ---- npy ---- */

static void test_right_arrays_are_read(void **state)
{
    static const struct {
        unsigned major;
        const char *header;
        enum tensor_dtype dtype;
        uint32_t rank;
        uint64_t shape[3];
    } right[] = {
        { 1,
          "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }  \n",
          TENSOR_F32,
          1,
          { 3 } },
        { 2,
          "{'descr': '<i2', 'fortran_order': False, 'shape': (3, 2), }\n",
          TENSOR_I16,
          2,
          { 3, 2 } },
        { 3,
          "{'shape':(2,3,2),\"fortran_order\":False,'descr':\"|u1\"}",
          TENSOR_U8,
          3,
          { 2, 3, 2 } },
        { 1,
          " {\t'descr' : '|b1' , 'shape' : ( 12 , 1 , ) , 'fortran_order' : False }",
          TENSOR_BOOL,
          2,
          { 12, 1 } },
        { 1,
          "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }\n",
          TENSOR_U16,
          2,
          { 2, 3 } },
    };
    static const char scalar[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n";
    static const char none[] =
        "{'descr': '<c8', 'fortran_order': False, 'shape': (0, 18446744073709551615), }";
    struct tensor_fixture *const f = fixture_new();
    struct content content;
    struct tensor_reader *r;
    unsigned char got[12];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(right); i++) {
        const struct tensor_info *info;

        content = npy_of(right[i].major, right[i].header, 12);
        r = opened(f, &content);
        info = tensor_reader_at(r, 0);
        assert_int_equal(info->dtype, right[i].dtype);
        assert_int_equal(info->rank, right[i].rank);
        assert_memory_equal(info->shape, right[i].shape, info->rank * sizeof(uint64_t));
        must(tensor_reader_read(r, 0, 0, (uint32_t)info->rows, got, info->row_bytes, &f->msg),
             &f->msg);
        assert_int_equal(got[11], 11);
        tensor_reader_free(r);
    }
    content = npy_of(1, scalar, 8);
    r = opened(f, &content);
    assert_int_equal(tensor_reader_at(r, 0)->rank, 0);
    assert_int_equal(tensor_reader_at(r, 0)->rows, 1);
    tensor_reader_free(r);
    content = npy_of(1, none, 0);
    r = opened(f, &content);
    assert_int_equal(tensor_reader_at(r, 0)->rows, 0);
    tensor_reader_free(r);
    fixture_free(f);
}

#define A(descr, order, shape)                                                                     \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"

static void test_wrong_arrays_are_refused(void **state)
{
    static const struct {
        const char *header;
        const char *reason;
        enum embtier_err err;
    } wrong[] = {
        { "", "expected { at its byte 0", 0 },
        { "[]", "expected {", 0 },
        { "{", "expected key at its byte 1", 0 },
        { "{}", "lacks one of descr, fortran_order and shape", 0 },
        { "{'descr': '<f4', 'shape': (1,)}", "lacks one of descr", 0 },
        { "{'descr: ", "expected key", 0 },
        { "{'descr' '<f4'}", "expected colon at its byte 9", 0 },
        { "{'descr': '<f4' 'shape': (1,)}", "expected comma or }", 0 },
        { "{'descr': '<f4', 'descr': '<f4'}", "has the key 'descr' twice", 0 },
        { "{'b\x1b': 1}", "has the key 'b\\u001b'; allowed: descr, fortran_order, shape", 0 },
        { A("'<f4'", "False", "(1,)") "x", "expected end", 0 },
        { A("'<f4'", "True", "(1,)"), "fortran_order is True); save np.ascontiguousarray(array)",
          EMBTIER_UNSUPPORTED },
        { A("'<f4'", "0", "(1,)"), "expected False or True", 0 },
        { A("'<f4'", "Falsey", "(1,)"), "expected comma or }", 0 },
        { A("'>f4'", "False", "(1,)"), "holds big-endian numbers (dtype '>f4'); save",
          EMBTIER_UNSUPPORTED },
        { A("'|O'", "False", "(1,)"), "holds Python objects (dtype '|O')", EMBTIER_UNSUPPORTED },
        { A("[('a', '<f4')]", "False", "(1,)"), "holds records (a structured dtype)",
          EMBTIER_UNSUPPORTED },
        { A("'<U8'", "False", "(1,)"), "dtype '<U8' is not supported; allowed: little-endian",
          EMBTIER_UNSUPPORTED },
        { A("''", "False", "(1,)"), "dtype '' is not supported", EMBTIER_UNSUPPORTED },
        { A("'<f4", "False", "(1,)"), "dtype '<f4, ' is not supported", EMBTIER_UNSUPPORTED },
        { A("4", "False", "(1,)"), "expected dtype", 0 },
        { A("'<f4'", "False", "1"), "expected shape", 0 },
        { A("'<f4'", "False", "(1)"), "expected comma or end of the shape", 0 },
        { A("'<f4'", "False", "(,)"), "expected number", 0 },
        { A("'<f4'", "False", "(1,,)"), "expected number", 0 },
        { A("'<f4'", "False", "(-1,)"), "expected number", 0 },
        { A("'<f4'", "False", "(01,)"), "expected number", 0 },
        { A("'<f4'", "False", "(1 1,)"), "expected comma or end of the shape", 0 },
        { A("'<f4'", "False", "(1,"), "expected number", 0 },
        { "{'shape': (1, 2", "expected comma or end of the shape", 0 },
        { A("'<f4'", "False", "(1L,)"), "expected comma or end of the shape", 0 },
        { A("'<f4'", "False", "(18446744073709551616,)"), "expected number of 64 bits", 0 },
        { A("'<f4'", "False", "(99999999999999999999999,)"), "expected number of 64 bits", 0 },
        { A("'<f4'", "False", "(4611686018427387905,)"), "more bytes than 64 bits can count", 0 },
        { A("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)"), "has more than 8 dimensions",
          EMBTIER_TOO_LARGE },
        { A("'<f4'", "False", "(2,)"), "its shape needs 8 bytes of data, the file has 4", 0 },
        { A("'<f4'", "False", "(0,)"), "its shape needs 0 bytes of data, the file has 4", 0 },
    };
    struct tensor_fixture *const f = fixture_new();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        for (unsigned major = 1; major <= 3; major++) {
            const struct content content = npy_of(major, wrong[i].header, 4);

            assert_refused(f, &content, wrong[i].err ? wrong[i].err : EMBTIER_INVALID,
                           wrong[i].reason);
        }
    fixture_free(f);
}

static void test_an_array_with_a_huge_header_is_refused(void **state)
{
    static char bytes[70000] = "\x93NUMPY\x02\x00\x00\x00\x01\x00{";
    struct tensor_fixture *const f = fixture_new();
    struct tensor_reader *r = NULL;

    (void)state;
    put_file(f, "huge", bytes, sizeof(bytes));
    assert_int_equal(tensor_reader_open(path_of(f, "huge"), &r, &f->msg), EMBTIER_TOO_LARGE);
    assert_holds(&f->msg, "its header is 65536 bytes long");
    fixture_free(f);
}

/* ---- Any bytes ---- */

/* An accepted file must be well-formed: all that it announces can be read, and lies within the
 * file. */
static bool is_read(struct tensor_fixture *f, const struct content *content)
{
    _cleanup_(tensor_reader_freep) struct tensor_reader *r = NULL;
    uint64_t bytes = 0;

    if (open_content(f, content, &r) != EMBTIER_OK) {
        for (const char *at = f->msg.text; *at; at++)
            assert_in_range(*at, 0x20, 0x7e);
        assert_true(f->msg.text[0] != '\0');
        return false;
    }
    for (uint32_t i = 0; i < tensor_reader_count(r); i++) {
        const struct tensor_info *const info = tensor_reader_at(r, i);
        unsigned char got[sizeof(content->bytes)];

        bytes += info->bytes;
        assert_true(bytes <= content->count);
        assert_int_equal(info->rows * info->row_bytes, info->bytes);
        assert_true(tensor_dtype_bytes(info->dtype) > 0);
        if (info->bytes > 0)
            must(tensor_reader_read(r, i, 0, (uint32_t)info->rows, got, info->row_bytes, &f->msg),
                 &f->msg);
    }
    return true;
}

static const char small_safetensors[] =
    "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,"
    "16]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[16,19]}}  ";
static const char small_npy[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }    \n";

static void check_truncations(struct tensor_fixture *f, const struct content *whole)
{
    assert_true(is_read(f, whole));
    for (size_t count = 0; count < whole->count; count++) {
        struct content content = *whole;

        content.count = count;
        assert_false(is_read(f, &content));
    }
}

static void test_no_truncation_is_read(void **state)
{
    struct tensor_fixture *const f = fixture_new();
    struct content content = safetensors_of(small_safetensors, 19);

    (void)state;
    check_truncations(f, &content);
    content = npy_of(1, small_npy, 16);
    check_truncations(f, &content);
    content = npy_of(3, small_npy, 16);
    check_truncations(f, &content);
    fixture_free(f);
}

static void check_changes(struct tensor_fixture *f, const struct content *whole, size_t header)
{
    uint32_t read = 0;

    for (size_t at = 0; at < header; at++)
        for (unsigned change = 1; change < 256; change++) {
            struct content content = *whole;

            content.bytes[at] = (char)((unsigned char)content.bytes[at] ^ change);
            read += is_read(f, &content);
        }
    assert_true(read > 0); /* changed names are valid too */
    assert_true(read < header * 255);
}

static void test_every_change_of_one_byte_is_refused_or_well_formed(void **state)
{
    struct tensor_fixture *const f = fixture_new();
    struct content content = safetensors_of(small_safetensors, 19);

    (void)state;
    check_changes(f, &content, content.count - 19);
    content = npy_of(1, small_npy, 16);
    check_changes(f, &content, content.count - 16);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_no_file_is_refused_and_none_waited_for),
        cmocka_unit_test(test_other_formats_are_told_apart),
        cmocka_unit_test(test_right_safetensors_are_read),
        cmocka_unit_test(test_wrong_safetensors_are_refused),
        cmocka_unit_test(test_a_name_that_is_too_long_is_refused),
        cmocka_unit_test(test_a_header_of_too_many_values_is_refused),
        cmocka_unit_test(test_right_arrays_are_read),
        cmocka_unit_test(test_wrong_arrays_are_refused),
        cmocka_unit_test(test_an_array_with_a_huge_header_is_refused),
        cmocka_unit_test(test_no_truncation_is_read),
        cmocka_unit_test(test_every_change_of_one_byte_is_refused_or_well_formed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
