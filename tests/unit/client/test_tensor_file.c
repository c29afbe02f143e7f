/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that tensors come back from files as they were written, whatever the order of writing, and
 * that a failed file leaves nothing behind. */
#include "tests/unit/client/tensor_fixture.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <xxhash.h>

#define ROWS 1000

/* Narrow numbers first, so that the file has another order. */
static const struct tensor tensors[] = {
    { "flags", TENSOR_U8, 0 }, { "half", TENSOR_BF16, 3 }, { "weights", TENSOR_F32, 5 },
    { "ids", TENSOR_U64, 0 },  { "wide", TENSOR_F64, 2 },
};
#define TENSORS ARRAY_LEN(tensors)

static uint64_t row_bytes(uint32_t tensor)
{
    return (uint64_t)MAX(tensors[tensor].columns, 1u) * tensor_dtype_bytes(tensors[tensor].dtype);
}

/* Returns a byte of a row. */
static unsigned char byte_of(uint32_t tensor, uint64_t row, uint64_t byte)
{
    return (unsigned char)(row * 31 + byte * 7 + tensor * 101 + row / 251);
}

/* Makes rows @stride apart; the caller frees them. */
static unsigned char *make_rows(uint32_t tensor, uint64_t first, uint32_t rows, size_t stride)
{
    unsigned char *const bytes = malloc(rows * stride + 1);

    assert_non_null(bytes);
    memset(bytes, 0xee, rows * stride + 1);
    for (uint32_t i = 0; i < rows; i++)
        for (uint64_t b = 0; b < row_bytes(tensor); b++)
            bytes[i * stride + b] = byte_of(tensor, first + i, b);
    return bytes;
}

static enum embtier_err add(struct tensor_writer *w, uint32_t tensor, uint64_t first, uint32_t rows,
                            size_t gap, struct err_msg *msg)
{
    const size_t stride = row_bytes(tensor) + gap;
    _cleanup_(freep) unsigned char *bytes = make_rows(tensor, first, rows, stride);

    return tensor_writer_add(w, tensor, bytes, stride, rows, msg);
}

static struct tensor_writer *writer_of(struct tensor_fixture *f, enum tensor_format format,
                                       uint64_t most_rows)
{
    const struct tensor_writer_opts opts = {
        .folder = f->fd,
        .stem = "table",
        .format = format,
        .tensors = tensors,
        .tensor_count = TENSORS,
        .most_rows = most_rows,
    };
    struct tensor_writer *w = NULL;

    must(tensor_writer_new(&opts, &w, &f->msg), &f->msg);
    return w;
}

/* The orders in which rows may come. */
enum way {
    WHOLE,     /* each tensor at once */
    BACKWARDS, /* likewise, last tensor first */
    CHUNKS,    /* some rows of each, then more */
    SINGLE,    /* row by row */
    WAYS,
};

static void add_all(struct tensor_fixture *f, struct tensor_writer *w, enum way way, uint32_t rows,
                    size_t gap)
{
    const uint32_t most = way == CHUNKS ? 77 : way == SINGLE ? 1 : MAX(rows, 1u);

    for (uint32_t first = 0; first < rows; first += most)
        for (uint32_t i = 0; i < TENSORS; i++) {
            const uint32_t tensor = way == BACKWARDS ? TENSORS - 1 - i : i;

            must(add(w, tensor, first, MIN(most, rows - first), gap, &f->msg), &f->msg);
        }
}

static void check_tensor(struct tensor_fixture *f, struct tensor_reader *r, uint32_t index,
                         uint32_t tensor, uint32_t rows, uint64_t sum)
{
    const struct tensor_info *const info = tensor_reader_at(r, index);
    const size_t bytes = rows * row_bytes(tensor);
    _cleanup_(freep) unsigned char *expected = make_rows(tensor, 0, rows, row_bytes(tensor));
    _cleanup_(freep) unsigned char *got = malloc(bytes + 1);

    assert_non_null(got);
    assert_int_equal(info->rank, tensors[tensor].columns ? 2 : 1);
    assert_int_equal(info->shape[0], rows);
    if (info->rank == 2)
        assert_int_equal(info->shape[1], tensors[tensor].columns);
    assert_int_equal(info->bytes, bytes);
    must(tensor_reader_read(r, index, 0, rows, got, row_bytes(tensor), &f->msg), &f->msg);
    assert_memory_equal(got, expected, bytes);
    assert_int_equal(XXH3_64bits(got, bytes), sum);
}

static void check_safetensors(struct tensor_fixture *f, const struct tensor_written *written,
                              uint32_t rows)
{
    _cleanup_(tensor_reader_freep) struct tensor_reader *r = open_of(f, "table.safetensors");
    uint64_t end = 0;

    assert_int_equal(written->file_count, 1);
    assert_string_equal(written->files[0].name, "table.safetensors");
    assert_int_equal(written->files[0].bytes, bytes_of(f, "table.safetensors"));
    assert_int_equal(written->bytes, written->files[0].bytes);
    assert_int_equal(tensor_reader_count(r), TENSORS);
    assert_string_equal(tensor_reader_metadata(r, "format"), "em\"b\n");
    assert_string_equal(tensor_reader_metadata(r, "\xc3\xa4"), "");
    assert_null(tensor_reader_metadata(r, "none"));
    for (uint32_t i = 0; i < TENSORS; i++) {
        const struct tensor_info *const info = tensor_reader_at(r, i);
        uint32_t tensor = 0;

        while (strcmp(tensors[tensor].name, info->name) != 0)
            assert_true(++tensor < TENSORS);
        assert_int_equal(info->dtype, tensors[tensor].dtype);
        assert_int_equal(end % tensor_dtype_bytes(info->dtype), 0); /* the data are aligned */
        end += info->bytes;
        check_tensor(f, r, i, tensor, rows, written->sums[tensor]);
    }
}

static void check_npy(struct tensor_fixture *f, const struct tensor_written *written, uint32_t rows)
{
    uint64_t bytes = 0;

    assert_int_equal(written->file_count, TENSORS);
    for (uint32_t i = 0; i < TENSORS; i++) {
        _cleanup_(tensor_reader_freep) struct tensor_reader *r = NULL;
        char name[64];

        snprintf(name, sizeof(name), "table.%.40s.npy", tensors[i].name);
        assert_string_equal(written->files[i].name, name);
        assert_int_equal(written->files[i].bytes, bytes_of(f, name));
        bytes += written->files[i].bytes;
        r = open_of(f, name);
        assert_int_equal(tensor_reader_count(r), 1);
        assert_string_equal(tensor_reader_at(r, 0)->name, "");
        assert_null(tensor_reader_metadata(r, "format"));
        assert_int_equal(tensor_reader_at(r, 0)->dtype,
                         tensors[i].dtype == TENSOR_BF16 ? TENSOR_U16 : tensors[i].dtype);
        check_tensor(f, r, 0, i, rows, written->sums[i]);
    }
    assert_int_equal(written->bytes, bytes);
}

static void check_round_trip(enum tensor_format format, enum way way, uint32_t rows,
                             uint64_t most_rows, size_t gap)
{
    static const char *const metadata[] = { "format", "em\"b\n", "\xc3\xa4", "", NULL };
    struct tensor_fixture *const f = fixture_new();
    _cleanup_(tensor_writer_freep) struct tensor_writer *w = writer_of(f, format, most_rows);
    struct tensor_written written;

    add_all(f, w, way, rows, gap);
    must(tensor_writer_end(w, metadata, &written, &f->msg), &f->msg);
    tensor_writer_free(TAKE(w));
    assert_int_equal(written.rows, rows);
    if (format == TENSOR_NPY)
        check_npy(f, &written, rows);
    else
        check_safetensors(f, &written, rows);
    fixture_free(f);
}

static void test_rows_come_back_in_whatever_order_they_were_added(void **state)
{
    static const struct {
        uint32_t rows;
        uint64_t most_rows;
    } counts[] = { { ROWS, ROWS }, { ROWS, 3 * ROWS }, { 1, UINT64_C(1) << 30 }, { 0, 1 } };

    (void)state;
    for (enum way way = 0; way < WAYS; way++)
        for (size_t i = 0; i < ARRAY_LEN(counts); i++)
            for (size_t gap = 0; gap < 6; gap += 5) {
                check_round_trip(TENSOR_SAFETENSORS, way, counts[i].rows, counts[i].most_rows, gap);
                check_round_trip(TENSOR_NPY, way, counts[i].rows, counts[i].most_rows, gap);
            }
}

/* Too many rows for the buffer that they are gathered and moved in. */
static void test_many_rows_come_back(void **state)
{
    (void)state;
    for (size_t gap = 0; gap < 6; gap += 5) {
        check_round_trip(TENSOR_SAFETENSORS, WHOLE, 200000, 200000, gap);
        check_round_trip(TENSOR_SAFETENSORS, BACKWARDS, 200000, 210000, gap);
        check_round_trip(TENSOR_NPY, WHOLE, 200000, 210000, gap);
    }
}

static void test_ranges_are_read_apart_and_only_they(void **state)
{
    struct tensor_fixture *const f = fixture_new();
    _cleanup_(tensor_writer_freep) struct tensor_writer *w = writer_of(f, TENSOR_NPY, ROWS);
    _cleanup_(tensor_reader_freep) struct tensor_reader *r = NULL;
    const uint32_t tensor = 2, first = 13, rows = 300;
    const size_t stride = row_bytes(tensor) + 3;
    _cleanup_(freep) unsigned char *expected = make_rows(tensor, first, rows, stride);
    _cleanup_(freep) unsigned char *got = malloc(rows * stride + 1);
    struct tensor_written written;

    (void)state;
    add_all(f, w, CHUNKS, ROWS, 0);
    must(tensor_writer_end(w, NULL, &written, &f->msg), &f->msg);
    r = open_of(f, "table.weights.npy");
    assert_non_null(got);
    memset(got, 0xee, rows * stride + 1);
    must(tensor_reader_read(r, 0, first, rows, got, stride, &f->msg), &f->msg);
    assert_memory_equal(got, expected, rows * stride + 1);
    must(tensor_reader_read(r, 0, ROWS, 0, got, stride, &f->msg), &f->msg);
    must(tensor_reader_read(r, 0, ROWS - 1, 1, got, 0, &f->msg), &f->msg);
    assert_int_equal(got[4], byte_of(tensor, ROWS - 1, 4));
    assert_int_equal(tensor_reader_read(r, 0, ROWS, 1, got, stride, NULL), EMBTIER_INTERNAL);
    assert_int_equal(tensor_reader_read(r, 0, UINT64_MAX, 2, got, stride, NULL), EMBTIER_INTERNAL);
    assert_int_equal(tensor_reader_read(r, 1, 0, 1, got, stride, NULL), EMBTIER_INTERNAL);
    assert_int_equal(tensor_reader_read(r, 0, 0, 2, got, 19, NULL), EMBTIER_INTERNAL);
    assert_int_equal(truncate(path_of(f, "table.weights.npy"), 5000), 0);
    assert_int_equal(tensor_reader_read(r, 0, 0, rows, got, stride, &f->msg), EMBTIER_CORRUPT);
    assert_holds(&f->msg,
                 "table.weights.npy: was shortened while it was read and now ends at byte 5000");
    fixture_free(f);
}

/* A row longer than the buffer, written from and read into memory with gaps. */
static void test_rows_longer_than_the_buffer_come_back(void **state)
{
    static const struct tensor wide = { "wide", TENSOR_F32, 300000 };
    struct tensor_fixture *const f = fixture_new();
    const struct tensor_writer_opts opts = {
        f->fd, "t", TENSOR_SAFETENSORS, &wide, 1, 9, NULL, -1
    };
    const size_t bytes = 1200000, stride = bytes + 40;
    _cleanup_(freep) unsigned char *rows = malloc(3 * stride);
    _cleanup_(freep) unsigned char *got = calloc(3, stride);
    _cleanup_(tensor_writer_freep) struct tensor_writer *w = NULL;
    _cleanup_(tensor_reader_freep) struct tensor_reader *r = NULL;
    struct tensor_written written;

    (void)state;
    assert_non_null(rows);
    assert_non_null(got);
    for (size_t i = 0; i < 3 * stride; i++)
        rows[i] = (unsigned char)(i % 253);
    must(tensor_writer_new(&opts, &w, &f->msg), &f->msg);
    must(tensor_writer_add(w, 0, rows, stride, 3, &f->msg), &f->msg);
    must(tensor_writer_end(w, NULL, &written, &f->msg), &f->msg);
    r = open_of(f, "t.safetensors");
    must(tensor_reader_read(r, 0, 0, 3, got, stride, &f->msg), &f->msg);
    for (size_t i = 0; i < 3; i++) {
        assert_memory_equal(got + i * stride, rows + i * stride, bytes);
        assert_int_equal(got[i * stride + bytes], 0);
    }
    fixture_free(f);
}

/* ---- What fails ---- */

static void assert_new_refused(struct tensor_fixture *f, const struct tensor_writer_opts *opts,
                               enum embtier_err err, const char *reason)
{
    struct tensor_writer *w = NULL;

    assert_int_equal(tensor_writer_new(opts, &w, &f->msg), err);
    assert_holds(&f->msg, reason);
    assert_null(w);
}

static void test_wrong_names_and_numbers_are_refused(void **state)
{
    struct tensor_fixture *const f = fixture_new();
    struct tensor two[2] = { { "a", TENSOR_F32, 1 }, { "b", TENSOR_F32, 1 } };
    struct tensor_writer_opts opts = { f->fd, "t", TENSOR_NPY, two, 2, 10, NULL, -1 };

    (void)state;
    strcpy(two[1].name, "a");
    assert_new_refused(f, &opts, EMBTIER_INVALID, "two tensors have the name 'a'");
    strcpy(two[1].name, "");
    assert_new_refused(f, &opts, EMBTIER_INVALID, "tensor name '' must be 1 to 255 bytes");
    strcpy(two[1].name, "__metadata__");
    assert_new_refused(f, &opts, EMBTIER_INVALID, "tensor name '__metadata__'");
    strcpy(two[1].name, "b\x1b");
    assert_new_refused(f, &opts, EMBTIER_INVALID, "tensor name 'b\\u001b'");
    memset(two[1].name, 'b', sizeof(two[1].name));
    assert_new_refused(f, &opts, EMBTIER_INVALID, "bbb... (256 bytes)' must be");
    two[1].name[TENSOR_NAME_MAX] = '\0';
    assert_new_refused(f, &opts, EMBTIER_INVALID, "bbb...' cannot be a file's name");
    strcpy(two[1].name, "b/c");
    assert_new_refused(f, &opts, EMBTIER_INVALID, "'t.b/c.npy' cannot be a file's name");
    strcpy(two[1].name, "b\xff");
    opts.format = TENSOR_SAFETENSORS;
    assert_new_refused(f, &opts, EMBTIER_INVALID, "tensor name 'b\\xff' must be");
    strcpy(two[1].name, "b");
    opts.most_rows = UINT64_C(1) << 60;
    assert_new_refused(f, &opts, EMBTIER_TOO_LARGE, "rows need more bytes than a file can hold");
    opts.most_rows = UINT64_MAX;
    assert_new_refused(f, &opts, EMBTIER_TOO_LARGE, "rows need more bytes than a file can hold");
    opts.most_rows = 0;
    assert_new_refused(f, &opts, EMBTIER_INTERNAL, "most_rows");
    opts.most_rows = 1;
    opts.stem = "";
    assert_new_refused(f, &opts, EMBTIER_INVALID, "cannot be a file's name");
    opts.stem = "../t";
    assert_new_refused(f, &opts, EMBTIER_INVALID, "cannot be a file's name");
    opts.stem = "t";
    opts.folder = -1;
    assert_new_refused(f, &opts, EMBTIER_IO, "t.safetensors: Bad file descriptor");
    two[0].dtype = 99;
    assert_new_refused(f, &opts, EMBTIER_INTERNAL, "dtype 99 is not known");
    assert_int_equal(files_in(f), 0);
    fixture_free(f);
}

/* Such as one that gets its name when it is whole. */
static void test_a_file_of_the_caller_is_its_own(void **state)
{
    static const struct tensor narrow = { "narrow", TENSOR_U64, 0 };
    static const uint64_t rows[] = { 7, 8, 9 };
    struct tensor_fixture *const f = fixture_new();
    struct tensor_writer_opts opts = { -1, NULL, TENSOR_NPY, &narrow, 1, 9, "the file", -1 };

    (void)state;
    opts.fd = open(path_of(f, "t.partial"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    assert_true(opts.fd >= 0);
    assert_new_refused(f, &opts, EMBTIER_INTERNAL, "tensor format 1");
    opts.format = TENSOR_SAFETENSORS;
    for (uint32_t ends = 0; ends < 2; ends++) {
        _cleanup_(tensor_writer_freep) struct tensor_writer *w = NULL;
        struct tensor_written written;

        must(tensor_writer_new(&opts, &w, &f->msg), &f->msg);
        must(tensor_writer_add(w, 0, rows, sizeof(*rows), 3, &f->msg), &f->msg);
        if (ends)
            must(tensor_writer_end(w, NULL, &written, &f->msg), &f->msg);
    }
    {
        _cleanup_(tensor_writer_freep) struct tensor_writer *w = NULL;
        char path[400];

        snprintf(path, sizeof(path), "%0390d", 7); /* a message has all of it */
        opts.path = path;
        opts.most_rows = 2;
        must(tensor_writer_new(&opts, &w, &f->msg), &f->msg);
        assert_int_equal(tensor_writer_add(w, 0, rows, sizeof(*rows), 3, &f->msg),
                         EMBTIER_TOO_LARGE);
        assert_non_null(strstr(f->msg.text, path));
    }
    assert_int_equal(files_in(f), 1);
    {
        _cleanup_(tensor_reader_freep) struct tensor_reader *r = open_of(f, "t.partial");
        uint64_t got[3] = { 0 };

        must(tensor_reader_read(r, 0, 0, 3, got, sizeof(*got), &f->msg), &f->msg);
        assert_memory_equal(got, rows, sizeof(rows));
    }
    close(opts.fd);
    fixture_free(f);
}

static void test_no_file_is_overwritten(void **state)
{
    struct tensor_fixture *const f = fixture_new();
    const struct tensor_writer_opts opts = {
        f->fd, "t", TENSOR_NPY, tensors, TENSORS, 10, NULL, -1
    };

    (void)state;
    put_file(f, "t.ids.npy", "mine", 4); /* the fourth: the three before it are made and removed */
    assert_new_refused(f, &opts, EMBTIER_EXISTS, "t.ids.npy: already exists");
    assert_int_equal(files_in(f), 1);
    assert_int_equal(bytes_of(f, "t.ids.npy"), 4);
    fixture_free(f);
}

static void test_a_folder_that_is_gone_is_not_found(void **state)
{
    struct tensor_fixture *const f = fixture_new();
    const struct tensor_writer_opts opts = {
        f->fd, "t", TENSOR_NPY, tensors, TENSORS, 10, NULL, -1
    };

    (void)state;
    assert_int_equal(rmdir(f->folder), 0);
    assert_new_refused(f, &opts, EMBTIER_NOT_FOUND, "t.flags.npy: No such file");
    assert_int_equal(mkdir(f->folder, 0700), 0);
    fixture_free(f);
}

static void test_what_is_not_ended_is_removed(void **state)
{
    (void)state;
    for (enum tensor_format format = TENSOR_SAFETENSORS; format <= TENSOR_NPY; format++) {
        struct tensor_fixture *const f = fixture_new();
        struct tensor_writer *w = writer_of(f, format, ROWS);
        struct tensor_written written;

        add_all(f, w, WHOLE, 10, 0);
        assert_int_equal(files_in(f), format == TENSOR_NPY ? TENSORS : 1);
        must(add(w, 2, 10, 1, 0, &f->msg), &f->msg);
        assert_int_equal(tensor_writer_end(w, NULL, &written, &f->msg), EMBTIER_INTERNAL);
        assert_holds(&f->msg, "tensor 'weights' has 11 rows, 'flags' has 10");
        assert_int_equal(add(w, 2, 11, ROWS, 0, &f->msg), EMBTIER_TOO_LARGE);
        assert_holds(&f->msg, "more than the 1000 rows that there is room for");
        assert_int_equal(add(w, TENSORS - 1, 0, 0, 0, NULL), EMBTIER_OK);
        assert_int_equal(tensor_writer_add(w, TENSORS, &written, 1, 1, NULL), EMBTIER_INTERNAL);
        assert_int_equal(tensor_writer_add(w, 2, &written, 19, 2, NULL), EMBTIER_INTERNAL);
        tensor_writer_free(w);
        assert_int_equal(files_in(f), 0);
        fixture_free(f);
    }
}

static void test_metadata_that_do_not_fit_are_refused(void **state)
{
    static char text[TENSOR_METADATA_MAX + 1];
    const char *metadata[] = { "k", text, NULL, NULL };
    struct tensor_fixture *const f = fixture_new();
    struct tensor_written written;

    (void)state;
    memset(text, 'x', TENSOR_METADATA_MAX);
    for (uint32_t most = 0; most < 4; most++) {
        struct tensor_writer *w = writer_of(f, TENSOR_SAFETENSORS, 1);
        const enum embtier_err errors[] = { EMBTIER_TOO_LARGE, EMBTIER_OK, EMBTIER_INVALID,
                                            EMBTIER_INTERNAL };
        static const char *const reasons[] = { "metadata are 16392 bytes long as JSON", "",
                                               "metadata 'k' is not UTF-8",
                                               "metadata 'l' has no value" };

        f->msg.text[0] = '\0';
        assert_int_equal(tensor_writer_end(w, metadata, &written, &f->msg), errors[most]);
        assert_holds(&f->msg, reasons[most]);
        tensor_writer_free(w);
        if (most == 0)
            text[TENSOR_METADATA_MAX - 8] = '\0'; /* {"k":""} */
        else if (most == 1)
            strcpy(text, "\xff");
        else
            strcpy(text, "x");
        metadata[2] = most == 2 ? "l" : NULL;
        assert_int_equal(files_in(f), most == 1 ? 1 : 0);
        if (most == 1)
            assert_int_equal(unlink(path_of(f, "table.safetensors")), 0);
    }
    fixture_free(f);
}

/* A limit on the file's length cuts short the write that reaches past it, and the next write
 * fails. */
static void test_a_write_that_fails_is_reported_and_nothing_stays(void **state)
{
    const struct rlimit old = { RLIM_INFINITY, RLIM_INFINITY };
    const struct rlimit low = { 20000, RLIM_INFINITY };

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    for (enum tensor_format format = TENSOR_SAFETENSORS; format <= TENSOR_NPY; format++) {
        struct tensor_fixture *const f = fixture_new();
        struct tensor_writer *w = writer_of(f, format, 2 * ROWS);
        struct tensor_written written;
        enum embtier_err err;

        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        err = add(w, 2, 0, 2 * ROWS, 0, &f->msg);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(err, EMBTIER_NO_SPACE);
        assert_holds(&f->msg, ": File too large");
        assert_int_equal(add(w, 2, 0, 1, 0, &f->msg), EMBTIER_INTERNAL);
        assert_int_equal(tensor_writer_end(w, NULL, &written, &f->msg), EMBTIER_INTERNAL);
        assert_holds(&f->msg, "ended twice, or after a failure");
        tensor_writer_free(w);
        assert_int_equal(files_in(f), 0);
        fixture_free(f);
    }
}

/* Uses a file system of its own, where the test may mount one. 3 MiB of data do not fit into 2 MiB.
 * They fit into 4 MiB, also while they are moved down. */
static void test_a_full_disk_is_reported_and_what_fits_is_moved_in_place(void **state)
{
    for (uint32_t megabytes = 2; megabytes <= 4; megabytes += 2) {
        struct tensor_fixture *const f = fixture_new();
        char size[32];
        enum embtier_err err = EMBTIER_OK;
        struct tensor_writer *w;
        struct tensor_written written;

        snprintf(size, sizeof(size), "size=%um", megabytes);
        if (mount("none", f->folder, "tmpfs", 0, size) != 0) {
            fixture_free(f);
            skip();
        }
        fixture_reopen(f);
        w = writer_of(f, TENSOR_SAFETENSORS, 10000000);
        for (uint32_t i = 0; i < TENSORS && err == EMBTIER_OK; i++)
            err = add(w, i, 0, 60000, 0, &f->msg);
        if (megabytes == 2) {
            assert_int_equal(err, EMBTIER_NO_SPACE);
            assert_holds(&f->msg, "table.safetensors: No space left on device");
        } else {
            must(err, &f->msg);
            must(tensor_writer_end(w, NULL, &written, &f->msg), &f->msg);
            assert_int_equal(written.rows, 60000);
        }
        tensor_writer_free(w);
        assert_int_equal(files_in(f), megabytes == 2 ? 0 : 1);
        fixture_free(f);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_come_back_in_whatever_order_they_were_added),
        cmocka_unit_test(test_many_rows_come_back),
        cmocka_unit_test(test_ranges_are_read_apart_and_only_they),
        cmocka_unit_test(test_rows_longer_than_the_buffer_come_back),
        cmocka_unit_test(test_wrong_names_and_numbers_are_refused),
        cmocka_unit_test(test_a_file_of_the_caller_is_its_own),
        cmocka_unit_test(test_no_file_is_overwritten),
        cmocka_unit_test(test_a_folder_that_is_gone_is_not_found),
        cmocka_unit_test(test_what_is_not_ended_is_removed),
        cmocka_unit_test(test_metadata_that_do_not_fit_are_refused),
        cmocka_unit_test(test_a_write_that_fails_is_reported_and_nothing_stays),
        cmocka_unit_test(test_a_full_disk_is_reported_and_what_fits_is_moved_in_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
