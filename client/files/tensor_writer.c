/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors file has its tensors one behind the other, but rows of all tensors come in turn,
 * and their final number is unknown. So each tensor gets room for the most rows; the unused part is
 * a hole in the file, which costs nothing. At the end the later tensors move down, front to back,
 * and the file is cut. Their old places are freed as they are copied. So a file never needs more
 * space than its data and one buffer.
 *
 * Each tensor begins at a multiple of its number's bytes, so that programs may use the data where
 * they are mapped. If all rows are multiples of 8 bytes, this holds in any order of tensors. Then
 * the longest rows lie first, so that little has to move. Else tensors of wide numbers lie before
 * those of narrower ones. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/text/text_escape.h"
#include "client/files/npy.h"
#include "client/files/safetensors.h"
#include "client/files/tensor_file.h"
#include "client/files/tensor_io.h"

#define BUFFER_BYTES (1 * MIB)

struct part {
    struct tensor tensor;
    uint64_t row_bytes;
    uint64_t rows;   /* written so far */
    uint32_t file;   /* index */
    uint64_t offset; /* of its data in the file */
    XXH3_state_t *sum;
};

struct made_file {
    int fd;
    char name[TENSOR_FILE_NAME_MAX + 1]; /* in the folder */
    char *path;                          /* NULL, or the caller's name for its file */
};

struct tensor_writer {
    int folder; /* -1: the caller names the file */
    enum tensor_format format;
    uint64_t most_rows;
    uint64_t header_bytes;
    struct part parts[TENSOR_WRITER_MAX]; /* in the caller's order */
    uint32_t part_count;
    uint8_t order[TENSOR_WRITER_MAX]; /* of the tensors in the file */
    struct made_file files[TENSOR_WRITER_MAX];
    uint32_t file_count;
    bool broken; /* after a failure the files' content is unknown */
    bool ended;
    char *buffer;
};

/* Returns the name of a file in messages. */
static const char *shown_name(const struct made_file *file)
{
    return file->path ? file->path : file->name;
}

/* ---- Making the files ---- */

static enum embtier_err check_name(const struct tensor_writer_opts *opts, uint32_t index,
                                   struct err_msg *msg)
{
    const char *const name = opts->tensors[index].name;
    const size_t bytes = strnlen(name, TENSOR_NAME_MAX + 1);
    struct text_shown shown;

    if (bytes == 0 || bytes > TENSOR_NAME_MAX || !text_is_plain(name, bytes) ||
        strcmp(name, SAFETENSORS_METADATA) == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "tensor name '%s' must be 1 to %d bytes of UTF-8 without control characters "
                       "and other invisible ones, and not " SAFETENSORS_METADATA,
                       text_show_bytes(&shown, name, bytes), TENSOR_NAME_MAX);
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(name, opts->tensors[i].name) == 0)
            return err_set(msg, EMBTIER_INVALID, "two tensors have the name '%s'",
                           text_show_bytes(&shown, name, bytes));
    return EMBTIER_OK;
}

static enum embtier_err check_opts(const struct tensor_writer_opts *opts, struct err_msg *msg)
{
    if (opts->tensor_count < 1 || opts->tensor_count > TENSOR_WRITER_MAX)
        return err_set(msg, EMBTIER_INTERNAL, "%" PRIu32 " tensors, allowed: 1 to %d",
                       opts->tensor_count, TENSOR_WRITER_MAX);
    if ((opts->format != TENSOR_SAFETENSORS && opts->format != TENSOR_NPY) ||
        (opts->path && opts->format != TENSOR_SAFETENSORS))
        return err_set(msg, EMBTIER_INTERNAL, "tensor format %d is not known", (int)opts->format);
    if (opts->most_rows < 1)
        return err_set(msg, EMBTIER_INTERNAL, "most_rows must be at least 1");
    for (uint32_t i = 0; i < opts->tensor_count; i++) {
        if (tensor_dtype_bytes(opts->tensors[i].dtype) == 0)
            return err_set(msg, EMBTIER_INTERNAL, "dtype %d is not known",
                           (int)opts->tensors[i].dtype);
        TRY(check_name(opts, i, msg));
    }
    return EMBTIER_OK;
}

/* Sets the order of the tensors in the file; see the head. Equal ones stay in the caller's
 * order. */
static void set_order(struct tensor_writer *w)
{
    bool any_order = true;

    for (uint32_t i = 0; i < w->part_count; i++)
        any_order = any_order && w->parts[i].row_bytes % sizeof(uint64_t) == 0;
    for (uint32_t i = 0; i < w->part_count; i++) {
        const struct part *const part = &w->parts[i];
        uint32_t at = i;

        for (; at > 0; at--) {
            const struct part *const before = &w->parts[w->order[at - 1]];

            if (any_order ? before->row_bytes >= part->row_bytes
                          : tensor_dtype_bytes(before->tensor.dtype) >=
                                tensor_dtype_bytes(part->tensor.dtype))
                break;
            w->order[at] = w->order[at - 1];
        }
        w->order[at] = (uint8_t)i;
    }
}

static enum embtier_err set_parts(struct tensor_writer *w, const struct tensor_writer_opts *opts,
                                  struct err_msg *msg)
{
    w->part_count = opts->tensor_count;
    for (uint32_t i = 0; i < w->part_count; i++) {
        struct part *const part = &w->parts[i];

        part->tensor = opts->tensors[i];
        part->row_bytes =
            (uint64_t)MAX(part->tensor.columns, 1u) * tensor_dtype_bytes(part->tensor.dtype);
        part->file = w->format == TENSOR_NPY ? i : 0;
        part->sum = XXH3_createState();
        if (!part->sum)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        (void)XXH3_64bits_reset(part->sum);
    }
    set_order(w);
    return EMBTIER_OK;
}

/* Fills in the headers' entries of all parts, in the file's order, at their offsets. */
static void fill_entries(const struct tensor_writer *w, struct safetensors_entry *entries)
{
    for (uint32_t i = 0; i < w->part_count; i++) {
        const struct part *const part = &w->parts[w->order[i]];

        entries[i] = (struct safetensors_entry){
            .tensor = &part->tensor,
            .row_bytes = part->row_bytes,
            .begin = part->offset - w->header_bytes,
        };
    }
}

/* Gives each part room for the most rows. */
static enum embtier_err set_offsets(struct tensor_writer *w, struct err_msg *msg)
{
    uint64_t end = w->header_bytes;

    for (uint32_t i = 0; i < w->part_count; i++) {
        struct part *const part = &w->parts[w->order[i]];
        uint64_t bytes = 0;

        part->offset = w->format == TENSOR_NPY ? w->header_bytes : end;
        if (__builtin_mul_overflow(w->most_rows, part->row_bytes, &bytes) ||
            __builtin_add_overflow(end, bytes, &end) || end > INT64_MAX)
            return err_set(msg, EMBTIER_TOO_LARGE,
                           "%" PRIu64 " rows need more bytes than a file can hold", w->most_rows);
    }
    return EMBTIER_OK;
}

static enum embtier_err lay_out(struct tensor_writer *w, struct err_msg *msg)
{
    struct safetensors_entry entries[TENSOR_WRITER_MAX];

    w->header_bytes = NPY_HEADER_BYTES;
    if (w->format == TENSOR_SAFETENSORS) {
        fill_entries(w, entries);
        TRY(safetensors_room(entries, w->part_count, &w->header_bytes, msg));
    }
    return set_offsets(w, msg);
}

static enum embtier_err create_file(struct tensor_writer *w, const char *stem, const char *name,
                                    struct err_msg *msg)
{
    struct made_file *const file = &w->files[w->file_count];
    const bool npy = w->format == TENSOR_NPY;
    const int bytes = snprintf(file->name, sizeof(file->name), "%s%s%s%s", stem, npy ? "." : "",
                               npy ? name : "", npy ? ".npy" : ".safetensors");

    if (bytes < 0 || (size_t)bytes >= sizeof(file->name) || stem[0] == '\0' ||
        strchr(file->name, '/'))
        return err_set(msg, EMBTIER_INVALID,
                       "'%.64s%s' cannot be a file's name: it must have 1 to %d bytes and no /",
                       file->name, bytes > 64 ? "..." : "", TENSOR_FILE_NAME_MAX);
    file->fd = openat(w->folder, file->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->fd < 0 && errno == EEXIST)
        return err_set(msg, EMBTIER_EXISTS, "%s: already exists; no file is overwritten",
                       file->name);
    if (file->fd < 0)
        return err_set_errno(msg, errno, "%s", file->name);
    w->file_count++; /* from here on tensor_writer_free() removes it */
    return EMBTIER_OK;
}

static enum embtier_err take_file(struct tensor_writer *w, const struct tensor_writer_opts *opts,
                                  struct err_msg *msg)
{
    struct made_file *const file = &w->files[0];

    w->folder = -1;
    file->path = strdup(opts->path);
    if (!file->path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", opts->path);
    w->file_count = 1; /* from here on tensor_writer_free() frees it */
    file->fd = fcntl(opts->fd, F_DUPFD_CLOEXEC, 3);
    if (file->fd < 0)
        return err_set_errno(msg, errno, "%s", opts->path);
    return EMBTIER_OK;
}

static enum embtier_err create_files(struct tensor_writer *w, const struct tensor_writer_opts *opts,
                                     struct err_msg *msg)
{
    if (opts->path)
        return take_file(w, opts, msg);
    for (uint32_t i = 0; i < (w->format == TENSOR_NPY ? w->part_count : 1); i++)
        TRY(create_file(w, opts->stem, w->parts[i].tensor.name, msg));
    return EMBTIER_OK;
}

enum embtier_err tensor_writer_new(const struct tensor_writer_opts *opts,
                                   struct tensor_writer **ret_writer, struct err_msg *msg)
{
    _cleanup_(tensor_writer_freep) struct tensor_writer *w = NULL;

    TRY(check_opts(opts, msg));
    w = calloc(1, sizeof(*w));
    if (!w)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    w->folder = opts->folder;
    w->format = opts->format;
    w->most_rows = opts->most_rows;
    w->buffer = malloc(BUFFER_BYTES);
    if (!w->buffer)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(set_parts(w, opts, msg));
    TRY(lay_out(w, msg));
    TRY(create_files(w, opts, msg));
    *ret_writer = TAKE(w);
    return EMBTIER_OK;
}

void tensor_writer_free(struct tensor_writer *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; i < w->file_count; i++) {
        closep(&w->files[i].fd);
        if (!w->ended && w->folder >= 0)
            unlinkat(w->folder, w->files[i].name, 0);
        free(w->files[i].path);
    }
    for (uint32_t i = 0; i < w->part_count; i++)
        XXH3_freeState(w->parts[i].sum);
    free(w->buffer);
    free(w);
}

/* ---- Rows ---- */

/* Appends @rows rows that lie one behind the other. */
static enum embtier_err append(struct tensor_writer *w, struct part *part, const void *bytes,
                               uint32_t rows, struct err_msg *msg)
{
    const struct made_file *const file = &w->files[part->file];
    const uint64_t at = part->offset + part->rows * part->row_bytes;
    const size_t count = rows * part->row_bytes;

    (void)XXH3_64bits_update(part->sum, bytes, count);
    TRY(tensor_io_write(file->fd, shown_name(file), at, bytes, count, msg));
    tensor_io_begin_sync(file->fd, at, count);
    part->rows += rows;
    return EMBTIER_OK;
}

/* Gathers rows that lie apart in the buffer, as many at a time as it holds. A row longer than the
 * buffer is written from its place. */
static enum embtier_err append_apart(struct tensor_writer *w, struct part *part, const char *first,
                                     size_t stride, uint32_t rows, struct err_msg *msg)
{
    const uint64_t most = BUFFER_BYTES / part->row_bytes;

    while (rows > 0) {
        const uint32_t count = (uint32_t)MIN((uint64_t)rows, MAX(most, UINT64_C(1)));

        for (uint32_t i = 0; i < count && most > 0; i++)
            memcpy(w->buffer + i * part->row_bytes, first + i * stride, part->row_bytes);
        TRY(append(w, part, most > 0 ? w->buffer : first, count, msg));
        first += count * stride;
        rows -= count;
    }
    return EMBTIER_OK;
}

enum embtier_err tensor_writer_add(struct tensor_writer *w, uint32_t index, const void *first,
                                   size_t stride, uint32_t rows, struct err_msg *msg)
{
    struct part *const part = index < w->part_count ? &w->parts[index] : NULL;
    enum embtier_err err;

    if (!part || w->broken || w->ended || (rows > 1 && stride < part->row_bytes))
        return err_set(msg, EMBTIER_INTERNAL,
                       "rows %zu bytes apart for tensor %" PRIu32 " of %" PRIu32
                       ", or after a failure or the end",
                       stride, index, w->part_count);
    if (rows > w->most_rows - part->rows)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%s: more than the %" PRIu64 " rows that there is room for",
                       shown_name(&w->files[part->file]), w->most_rows);
    if (rows == 0)
        return EMBTIER_OK;
    if (rows == 1 || stride == part->row_bytes)
        err = append(w, part, first, rows, msg);
    else
        err = append_apart(w, part, first, stride, rows, msg);
    w->broken = err != EMBTIER_OK;
    return err;
}

/* ---- The end ---- */

/* Moves bytes to an earlier place, front to back, because the new place may overlap the old one. */
static enum embtier_err move_down(struct tensor_writer *w, const struct made_file *file,
                                  uint64_t from, uint64_t to, uint64_t bytes, struct err_msg *msg)
{
    while (bytes > 0 && from != to) {
        const size_t count = (size_t)MIN(bytes, (uint64_t)BUFFER_BYTES);
        const uint64_t copied = MAX(from, to + count); /* from here on copied and not reused */

        TRY(tensor_io_read(file->fd, shown_name(file), from, w->buffer, count, msg));
        TRY(tensor_io_write(file->fd, shown_name(file), to, w->buffer, count, msg));
        from += count;
        to += count;
        bytes -= count;
        /* If the file system cannot do this, the file takes more space until it is cut. */
        if (copied < from)
            (void)fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)copied,
                            (off_t)(from - copied));
    }
    return EMBTIER_OK;
}

static enum embtier_err end_safetensors(struct tensor_writer *w, const char *const *metadata,
                                        struct err_msg *msg)
{
    struct safetensors_entry entries[TENSOR_WRITER_MAX];
    const struct made_file *const file = &w->files[0];
    _cleanup_(freep) char *header = NULL;
    uint64_t end = w->header_bytes;

    for (uint32_t i = 0; i < w->part_count; i++) {
        struct part *const part = &w->parts[w->order[i]];
        const uint64_t bytes = part->rows * part->row_bytes;

        TRY(move_down(w, file, part->offset, end, bytes, msg));
        part->offset = end;
        end += bytes;
    }
    if (ftruncate(file->fd, (off_t)end) != 0)
        return err_set_errno(msg, errno, "%s", shown_name(file));
    fill_entries(w, entries);
    TRY(safetensors_make(entries, w->part_count, w->parts[0].rows, metadata, w->header_bytes,
                         &header, msg));
    return tensor_io_write(file->fd, shown_name(file), 0, header, w->header_bytes, msg);
}

static enum embtier_err end_npy(struct tensor_writer *w, struct err_msg *msg)
{
    for (uint32_t i = 0; i < w->part_count; i++) {
        const struct part *const part = &w->parts[i];
        const struct made_file *const file = &w->files[part->file];
        char header[NPY_HEADER_BYTES];

        npy_make(part->tensor.dtype, part->rows, part->tensor.columns, header);
        TRY(tensor_io_write(file->fd, shown_name(file), 0, header, sizeof(header), msg));
    }
    return EMBTIER_OK;
}

static enum embtier_err sync_all(struct tensor_writer *w, struct err_msg *msg)
{
    for (uint32_t i = 0; i < w->file_count; i++)
        TRY(tensor_io_sync(w->files[i].fd, shown_name(&w->files[i]), msg));
    return w->folder < 0 ? EMBTIER_OK
                         : tensor_io_sync(w->folder, "the folder of a tensor file", msg);
}

static void describe(const struct tensor_writer *w, struct tensor_written *ret_written)
{
    *ret_written = (struct tensor_written){
        .rows = w->parts[0].rows,
        .file_count = w->file_count,
        .bytes = w->file_count * w->header_bytes,
    };
    for (uint32_t i = 0; i < w->file_count; i++) {
        memcpy(ret_written->files[i].name, w->files[i].name, sizeof(w->files[i].name));
        ret_written->files[i].bytes = w->header_bytes;
    }
    for (uint32_t i = 0; i < w->part_count; i++) {
        const struct part *const part = &w->parts[i];

        ret_written->sums[i] = XXH3_64bits_digest(part->sum);
        ret_written->files[part->file].bytes += part->rows * part->row_bytes;
        ret_written->bytes += part->rows * part->row_bytes;
    }
}

static enum embtier_err check_end(const struct tensor_writer *w, struct err_msg *msg)
{
    if (w->broken || w->ended)
        return err_set(msg, EMBTIER_INTERNAL, "%s: ended twice, or after a failure",
                       shown_name(&w->files[0]));
    for (uint32_t i = 1; i < w->part_count; i++)
        if (w->parts[i].rows != w->parts[0].rows)
            return err_set(msg, EMBTIER_INTERNAL,
                           "%s: tensor '%s' has %" PRIu64 " rows, '%s' has %" PRIu64,
                           shown_name(&w->files[0]), w->parts[i].tensor.name, w->parts[i].rows,
                           w->parts[0].tensor.name, w->parts[0].rows);
    return EMBTIER_OK;
}

enum embtier_err tensor_writer_end(struct tensor_writer *w, const char *const *metadata,
                                   struct tensor_written *ret_written, struct err_msg *msg)
{
    TRY(check_end(w, msg));
    w->broken = true;
    if (w->format == TENSOR_NPY)
        TRY(end_npy(w, msg));
    else
        TRY(end_safetensors(w, metadata, msg));
    TRY(sync_all(w, msg));
    w->ended = true;
    w->broken = false;
    describe(w, ret_written);
    return EMBTIER_OK;
}
