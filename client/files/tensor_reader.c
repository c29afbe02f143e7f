/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/files/npy.h"
#include "client/files/safetensors.h"
#include "client/files/tensor_file.h"
#include "client/files/tensor_io.h"

#define BUFFER_BYTES (1 * MIB)
/* The start of files by np.savez and torch.save. */
#define ZIP_MAGIC     "PK\x03\x04"
#define PARQUET_MAGIC "PAR1"

struct tensor_reader {
    int fd;
    char *path;
    uint64_t file_bytes;
    struct safetensors parsed; /* npy: one place, no root */
    char *buffer;              /* for rows that lie apart in memory; made for the first of them */
};

static_assert(NPY_START_BYTES >= SAFETENSORS_START_BYTES + 1, "enough to tell one from the other");

/* ---- Opening ---- */

/* Opens without waiting: opening a FIFO would wait for a writer. */
static enum embtier_err open_file(struct tensor_reader *r, const char *path, struct err_msg *msg)
{
    struct stat info;

    r->path = strdup(path);
    if (!r->path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    r->fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (r->fd < 0 || fstat(r->fd, &info) != 0)
        return err_set_errno(msg, errno, "%s", path);
    if (!S_ISREG(info.st_mode))
        return err_set(msg, EMBTIER_INVALID, "%s: is %s, allowed: a file", path,
                       S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
    if (info.st_size == 0)
        return err_set(msg, EMBTIER_INVALID, "%s: is empty", path);
    r->file_bytes = (uint64_t)info.st_size;
    return EMBTIER_OK;
}

/* The caller has checked that @bytes lie within the file. */
static enum embtier_err read_header(struct tensor_reader *r, uint64_t at, size_t bytes,
                                    char **ret_header, struct err_msg *msg)
{
    _cleanup_(freep) char *header = malloc(bytes + 1); /* so that the pointer is never NULL */

    if (!header)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", r->path);
    TRY(tensor_io_read(r->fd, r->path, at, header, bytes, msg));
    *ret_header = TAKE(header);
    return EMBTIER_OK;
}

static enum embtier_err open_npy(struct tensor_reader *r,
                                 const unsigned char start[NPY_START_BYTES], struct err_msg *msg)
{
    _cleanup_(freep) char *header = NULL;
    uint32_t offset = 0, bytes = 0;
    uint64_t data_bytes;

    TRY(npy_find_header(r->path, start, r->file_bytes, &offset, &bytes, msg));
    TRY(read_header(r, offset, bytes, &header, msg));
    r->parsed.places = calloc(1, sizeof(r->parsed.places[0]));
    if (!r->parsed.places)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", r->path);
    data_bytes = r->file_bytes - offset - bytes;
    TRY(npy_parse(r->path, header, bytes, data_bytes, &r->parsed.places[0], msg));
    r->parsed.places[0].offset = offset + bytes;
    r->parsed.count = 1;
    return EMBTIER_OK;
}

static enum embtier_err open_safetensors(struct tensor_reader *r, uint64_t bytes,
                                         struct err_msg *msg)
{
    const uint64_t offset = SAFETENSORS_START_BYTES + bytes; /* of the data */
    _cleanup_(freep) char *header = NULL;

    TRY(read_header(r, SAFETENSORS_START_BYTES, bytes, &header, msg));
    TRY(safetensors_parse(r->path, header, bytes, r->file_bytes - offset, &r->parsed, msg));
    for (uint32_t i = 0; i < r->parsed.count; i++)
        r->parsed.places[i].offset += offset;
    return EMBTIER_OK;
}

static enum embtier_err check_length(const struct tensor_reader *r, uint64_t bytes,
                                     struct err_msg *msg)
{
    if (bytes > SAFETENSORS_HEADER_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "%s: the safetensors header claims to be %" PRIu64
                       " bytes long, at most %d are allowed",
                       r->path, bytes, SAFETENSORS_HEADER_MAX);
    if (bytes > r->file_bytes - SAFETENSORS_START_BYTES)
        return err_set(msg, EMBTIER_INVALID,
                       "%s: the safetensors header claims to be %" PRIu64
                       " bytes long, the file has %" PRIu64 " after its length",
                       r->path, bytes, r->file_bytes - SAFETENSORS_START_BYTES);
    return EMBTIER_OK;
}

/* Takes a file for safetensors if the first byte of the header fits even though the length is
 * wrong, and the other way round. The message then says which of them is wrong. */
static enum embtier_err open_format(struct tensor_reader *r, struct err_msg *msg)
{
    unsigned char start[NPY_START_BYTES] = { 0 };
    uint64_t length = 0;
    bool begins;

    TRY(tensor_io_read(r->fd, r->path, 0, start, MIN(r->file_bytes, (uint64_t)sizeof(start)), msg));
    if (memcmp(start, NPY_MAGIC, NPY_MAGIC_BYTES) == 0)
        return open_npy(r, start, msg);
    if (memcmp(start, ZIP_MAGIC, strlen(ZIP_MAGIC)) == 0)
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "%s: is a zip archive, as np.savez and torch.save make them; allowed: a "
                       "safetensors file or one that np.save made",
                       r->path);
    if (memcmp(start, PARQUET_MAGIC, strlen(PARQUET_MAGIC)) == 0)
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "%s: is a Parquet file, which the Python client reads where pyarrow is "
                       "installed: Server.import_table()",
                       r->path);
    for (uint32_t i = SAFETENSORS_START_BYTES; i-- > 0;)
        length = length << 8 | start[i];
    begins = start[SAFETENSORS_START_BYTES] == '{';
    if (r->file_bytes < SAFETENSORS_START_BYTES || (!begins && length > SAFETENSORS_HEADER_MAX))
        return err_set(msg, EMBTIER_INVALID,
                       "%s: is neither a safetensors file nor one that np.save made", r->path);
    TRY(check_length(r, length, msg));
    return open_safetensors(r, length, msg);
}

enum embtier_err tensor_reader_open(const char *path, struct tensor_reader **ret_reader,
                                    struct err_msg *msg)
{
    _cleanup_(tensor_reader_freep) struct tensor_reader *r = calloc(1, sizeof(*r));

    if (!r)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    r->fd = -1;
    TRY(open_file(r, path, msg));
    TRY(open_format(r, msg));
    *ret_reader = TAKE(r);
    return EMBTIER_OK;
}

void tensor_reader_free(struct tensor_reader *r)
{
    if (!r)
        return;
    safetensors_release(&r->parsed);
    closep(&r->fd);
    free(r->buffer);
    free(r->path);
    free(r);
}

/* ---- Content ---- */

uint32_t tensor_reader_count(const struct tensor_reader *r)
{
    return r->parsed.count;
}

const struct tensor_info *tensor_reader_at(const struct tensor_reader *r, uint32_t index)
{
    return index < r->parsed.count ? &r->parsed.places[index].info : NULL;
}

const char *tensor_reader_metadata(const struct tensor_reader *r, const char *key)
{
    return json_string_value(
        json_object_get(json_object_get(r->parsed.root, SAFETENSORS_METADATA), key));
}

/* ---- Reading ---- */

/* Reads rows that lie apart in memory through the buffer, as many at a time as it holds. A row
 * longer than the buffer is read to its place directly. */
static enum embtier_err read_apart(struct tensor_reader *r, uint64_t at, uint64_t row_bytes,
                                   uint32_t rows, char *dest, size_t stride, struct err_msg *msg)
{
    const uint64_t most = BUFFER_BYTES / row_bytes;

    if (!r->buffer)
        r->buffer = malloc(BUFFER_BYTES);
    if (!r->buffer)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", r->path);
    while (rows > 0) {
        const uint32_t count = (uint32_t)MIN((uint64_t)rows, MAX(most, UINT64_C(1)));
        char *const to = most > 0 ? r->buffer : dest;

        TRY(tensor_io_read(r->fd, r->path, at, to, count * row_bytes, msg));
        for (uint32_t i = 0; i < count && most > 0; i++)
            memcpy(dest + i * stride, r->buffer + i * row_bytes, row_bytes);
        dest += count * stride;
        at += count * row_bytes;
        rows -= count;
    }
    return EMBTIER_OK;
}

enum embtier_err tensor_reader_read(struct tensor_reader *r, uint32_t index, uint64_t first_row,
                                    uint32_t rows, void *dest, size_t stride, struct err_msg *msg)
{
    const struct tensor_info *const info = tensor_reader_at(r, index);
    uint64_t at;

    if (!info || first_row > info->rows || rows > info->rows - first_row)
        return err_set(msg, EMBTIER_INTERNAL,
                       "%s: rows %" PRIu64 " to %" PRIu64 " of tensor %" PRIu32
                       " are not in the file",
                       r->path, first_row, first_row + rows, index);
    if (rows > 1 && stride < info->row_bytes)
        return err_set(msg, EMBTIER_INTERNAL, "%s: rows of %" PRIu64 " bytes, %zu apart", r->path,
                       info->row_bytes, stride);
    if (rows == 0 || info->row_bytes == 0)
        return EMBTIER_OK;
    at = r->parsed.places[index].offset + first_row * info->row_bytes;
    if (rows == 1 || stride == info->row_bytes)
        return tensor_io_read(r->fd, r->path, at, dest, rows * info->row_bytes, msg);
    return read_apart(r, at, info->row_bytes, rows, dest, stride, msg);
}
