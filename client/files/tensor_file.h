/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_file.h: files of tensors, safetensors and NumPy's .npy, written and read by streaming.
 *
 * A writer takes rows as they come, of tensors that have the same number of rows, known only at the
 * end. A reader takes any file of either format: its content is hostile until it has been checked,
 * which tensor_reader_open() does whole.
 * Thread: one per writer and per reader. Memory: a buffer of 1 MiB and the file's header; parsed,
 * the longest header that is taken is some hundred MiB, one of a few tensors some KiB. */
#ifndef EMBTIER_CLIENT_FILES_TENSOR_FILE_H
#define EMBTIER_CLIENT_FILES_TENSOR_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"
#include "client/files/tensor_dtype.h"

/* Bytes of a tensor's name, as written and as read. */
#define TENSOR_NAME_MAX 255
/* Dimensions of a tensor that is read. */
#define TENSOR_RANK_MAX 8
/* Tensors of one writer. */
#define TENSOR_WRITER_MAX 16
/* Tensors of a file that is read. */
#define TENSOR_READER_MAX 65536
/* Bytes of a writer's metadata, as they stand in the header (JSON). */
#define TENSOR_METADATA_MAX 16384
/* Bytes of a file's name. */
#define TENSOR_FILE_NAME_MAX 255

struct tensor_writer;
struct tensor_reader;

enum tensor_format {
    TENSOR_SAFETENSORS, /* all tensors in STEM.safetensors */
    TENSOR_NPY,         /* each in STEM.NAME.npy */
};

/* ---- Writing ---- */

struct tensor {
    char name[TENSOR_NAME_MAX + 1]; /* plain (base/text/text_escape.h); for npy no "/" */
    enum tensor_dtype dtype;
    uint32_t columns; /* numbers in a row; 0: one, and the shape is [rows], not [rows, columns] */
};

struct tensor_writer_opts {
    int folder;       /* open for reading; borrowed for the writer's life */
    const char *stem; /* copied, as the tensors are */
    enum tensor_format format;
    const struct tensor *tensors; /* names differ */
    uint32_t tensor_count;        /* 1 to TENSOR_WRITER_MAX */
    /* At least 1. With safetensors the later tensors are first written behind the room that this
     * leaves, in a file with holes: an estimate far too high costs no space, but more copying at
     * the end, and beyond what the file system allows in a file it is an error. */
    uint64_t most_rows;
};

/* What has been written, for a manifest. */
struct tensor_written {
    uint64_t rows;
    uint64_t bytes; /* of all files */
    /* XXH3, 64 bits, of each tensor's data as they lie in the file, without the header. */
    uint64_t sums[TENSOR_WRITER_MAX];
    uint32_t file_count; /* npy: one for each tensor, in their order; else 1 */
    struct {
        char name[TENSOR_FILE_NAME_MAX + 1];
        uint64_t bytes;
    } files[TENSOR_WRITER_MAX];
};

/* Makes the files. EXISTS when one is there already: none is overwritten. INVALID: a name that
 * cannot be one, or twice the same; TOO_LARGE: more bytes than a file can have. */
MUST_CHECK enum embtier_err tensor_writer_new(const struct tensor_writer_opts *opts,
                                              struct tensor_writer **ret_writer,
                                              struct err_msg *msg);
/* Appends @rows rows to tensor @index, which lie @stride bytes apart in memory (at least a row's
 * bytes, unless there is one row only). Any tensor's turn at any time. TOO_LARGE: more than
 * most_rows. After a failure nothing but tensor_writer_free() is of use. */
MUST_CHECK enum embtier_err tensor_writer_add(struct tensor_writer *w, uint32_t index,
                                              const void *first, size_t stride, uint32_t rows,
                                              struct err_msg *msg);
/* Ends the files: their headers, no holes, and on the disk they and their names. @metadata: key,
 * value, key, value, NULL, or NULL for none; UTF-8; npy has no place for it. INTERNAL: tensors have
 * different numbers of rows. TOO_LARGE: metadata over TENSOR_METADATA_MAX. */
MUST_CHECK enum embtier_err tensor_writer_end(struct tensor_writer *w, const char *const *metadata,
                                              struct tensor_written *ret_written,
                                              struct err_msg *msg);
/* The files of a writer that was not ended are removed. */
void tensor_writer_free(struct tensor_writer *w);
DEFINE_CLEANUP(struct tensor_writer, tensor_writer_free)

/* ---- Reading ---- */

struct tensor_info {
    const char *name; /* the reader's; plain; npy: "" */
    enum tensor_dtype dtype;
    uint32_t rank;
    uint64_t shape[TENSOR_RANK_MAX];
    uint64_t rows;      /* along the first dimension; 1 if the rank is 0 */
    uint64_t row_bytes; /* 0 if there are no rows */
    uint64_t bytes;     /* rows * row_bytes */
};

/* Which format it is the content says. INVALID: not a regular file, neither format, or not as the
 * format demands; UNSUPPORTED: a right file that is not read here (Fortran order, big-endian, a
 * dtype not in TENSOR_DTYPE_TABLE, a zip archive); TOO_LARGE: over one of the limits above;
 * otherwise what opening and reading ran into. */
MUST_CHECK enum embtier_err tensor_reader_open(const char *path, struct tensor_reader **ret_reader,
                                               struct err_msg *msg);
uint32_t tensor_reader_count(const struct tensor_reader *r);
/* In the order in which their data lie in the file. NULL: no such tensor. */
const struct tensor_info *tensor_reader_at(const struct tensor_reader *r, uint32_t index);
/* A string of safetensors' __metadata__, the reader's, which may hold any characters but zero.
 * NULL: none. */
const char *tensor_reader_metadata(const struct tensor_reader *r, const char *key);
/* Rows @first_row and on of tensor @index, to be @stride bytes apart at @dest (at least a row's
 * bytes, unless there is one row only). INTERNAL: out of range. CORRUPT: the file has become
 * shorter since it was opened; @dest is then undefined. */
MUST_CHECK enum embtier_err tensor_reader_read(struct tensor_reader *r, uint32_t index,
                                               uint64_t first_row, uint32_t rows, void *dest,
                                               size_t stride, struct err_msg *msg);
void tensor_reader_free(struct tensor_reader *r);
DEFINE_CLEANUP(struct tensor_reader, tensor_reader_free)

#endif
