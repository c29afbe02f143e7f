/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_file.h: writes and reads files of tensors, safetensors and NumPy's .npy, by streaming.
 *
 * A writer takes rows as they come. Its tensors have the same number of rows, which is known only
 * at the end. A reader takes any file of either format. The content is hostile until
 * tensor_reader_open() has checked it whole.
 * Thread: one per writer and per reader. Memory: a buffer of 1 MiB and the file's header. The
 * longest header takes some hundred MiB when parsed, one of a few tensors some KiB. */
#ifndef EMBTIER_CLIENT_FILES_TENSOR_FILE_H
#define EMBTIER_CLIENT_FILES_TENSOR_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"
#include "client/files/tensor_dtype.h"

/* Bytes of a tensor's name, as written and as read. */
#define TENSOR_NAME_MAX 255
/* Dimensions of a tensor that can be read. */
#define TENSOR_RANK_MAX 8
/* Tensors of one writer. */
#define TENSOR_WRITER_MAX 16
/* Tensors of a file that can be read. */
#define TENSOR_READER_MAX 65536
/* Bytes of a writer's metadata in the header (JSON). */
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
    const char *stem; /* copied, like the tensors */
    enum tensor_format format;
    const struct tensor *tensors; /* with different names */
    uint32_t tensor_count;        /* 1 to TENSOR_WRITER_MAX */
    /* Upper bound of the rows, at least 1. A safetensors file leaves room for this many rows of
     * each tensor. The next tensor is first written behind that room, in a file with holes. An
     * estimate far too high costs no space, but more copying at the end. It is an error if it
     * exceeds the file system's limit for a file. */
    uint64_t most_rows;
    /* Not NULL: messages name the file so. It is the safetensors file @fd, open for reading and
     * writing and empty, which is borrowed for the writer's life. The caller gives it its name, or
     * removes it. @folder and @stem do not matter. */
    const char *path;
    int fd;
};

/* The result of writing, for a manifest. */
struct tensor_written {
    uint64_t rows;
    uint64_t bytes; /* of all files */
    /* XXH3, 64 bits, of each tensor's data as stored in the file, without the header. */
    uint64_t sums[TENSOR_WRITER_MAX];
    uint32_t file_count; /* npy: one for each tensor, in their order; else 1 */
    struct {
        char name[TENSOR_FILE_NAME_MAX + 1]; /* empty: a file of the caller */
        uint64_t bytes;
    } files[TENSOR_WRITER_MAX];
};

/* Makes the files. EXISTS: one of them exists; none is overwritten. INVALID: a name is not allowed
 * or occurs twice; TOO_LARGE: more bytes than a file can have. */
MUST_CHECK enum embtier_err tensor_writer_new(const struct tensor_writer_opts *opts,
                                              struct tensor_writer **ret_writer,
                                              struct err_msg *msg);
/* Appends @rows rows to tensor @index. They lie @stride bytes apart in memory, at least a row's
 * bytes unless there is only one row. Calls for different tensors may come in any order. TOO_LARGE:
 * more than most_rows. After a failure only tensor_writer_free() may be called. */
MUST_CHECK enum embtier_err tensor_writer_add(struct tensor_writer *w, uint32_t index,
                                              const void *first, size_t stride, uint32_t rows,
                                              struct err_msg *msg);
/* Finishes the files: writes their headers, closes the holes, and syncs the files and their
 * names. @metadata: key, value, key, value, NULL, or NULL for none; UTF-8; npy has no place for
 * it. INTERNAL: tensors have different numbers of rows. TOO_LARGE: metadata over
 * TENSOR_METADATA_MAX. */
MUST_CHECK enum embtier_err tensor_writer_end(struct tensor_writer *w, const char *const *metadata,
                                              struct tensor_written *ret_written,
                                              struct err_msg *msg);
/* Frees the writer, and removes its files unless tensor_writer_end() succeeded. */
void tensor_writer_free(struct tensor_writer *w);
DEFINE_CLEANUP(struct tensor_writer, tensor_writer_free)

/* ---- Reading ---- */

struct tensor_info {
    const char *name; /* owned by the reader; plain; npy: "" */
    enum tensor_dtype dtype;
    uint32_t rank;
    uint64_t shape[TENSOR_RANK_MAX];
    uint64_t rows;      /* along the first dimension; 1 if the rank is 0 */
    uint64_t row_bytes; /* 0 if there are no rows */
    uint64_t bytes;     /* rows * row_bytes */
};

/* Opens and checks a file; the content tells its format. INVALID: not a regular file, neither
 * format, or against the format's rules. UNSUPPORTED: a valid file that is not read here (Fortran
 * order, big-endian, a dtype not in TENSOR_DTYPE_TABLE, a zip archive). TOO_LARGE: over one of the
 * limits above. Else the error of opening or reading. */
MUST_CHECK enum embtier_err tensor_reader_open(const char *path, struct tensor_reader **ret_reader,
                                               struct err_msg *msg);
uint32_t tensor_reader_count(const struct tensor_reader *r);
/* Returns tensors in the order of their data in the file. NULL: no such tensor. */
const struct tensor_info *tensor_reader_at(const struct tensor_reader *r, uint32_t index);
/* Returns a string of safetensors' __metadata__, or NULL. The reader owns it; it may hold any
 * characters but zero. */
const char *tensor_reader_metadata(const struct tensor_reader *r, const char *key);
/* Reads @rows rows of tensor @index from @first_row on to @dest. They are placed @stride bytes
 * apart, at least a row's bytes unless there is only one row. INTERNAL: out of range. CORRUPT: the
 * file has become shorter since it was opened; @dest is then undefined. */
MUST_CHECK enum embtier_err tensor_reader_read(struct tensor_reader *r, uint32_t index,
                                               uint64_t first_row, uint32_t rows, void *dest,
                                               size_t stride, struct err_msg *msg);
void tensor_reader_free(struct tensor_reader *r);
DEFINE_CLEANUP(struct tensor_reader, tensor_reader_free)

#endif
