/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h: headers of safetensors files, made and parsed.
 *
 * A file is the header's length (8 bytes, little-endian), the header, and the tensors' data
 * without holes. The header is JSON, padded with spaces:
 *     {"__metadata__":{"key":"value"},"NAME":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]}}
 * Offsets count from where the data begin. The format:
 * https://github.com/huggingface/safetensors */
#ifndef EMBTIER_CLIENT_FILES_SAFETENSORS_H
#define EMBTIER_CLIENT_FILES_SAFETENSORS_H

#include <jansson.h>

#include "client/files/tensor_place.h"

/* The key that no tensor can have as its name. */
#define SAFETENSORS_METADATA "__metadata__"
/* Size of the field with the header's length. */
#define SAFETENSORS_START_BYTES 8
/* Longest header: the format's limit. */
#define SAFETENSORS_HEADER_MAX 100000000

/* A parsed header. */
struct safetensors {
    json_t *root;                /* names and metadata point into it */
    struct tensor_place *places; /* in the order of their offsets */
    uint32_t count;
};

/* A tensor for whose file a header is made; its data begin at @begin, counted from the header's
 * end. */
struct safetensors_entry {
    const struct tensor *tensor;
    uint64_t row_bytes;
    uint64_t begin;
};

/* Returns a size that suffices for everything before the data, for any offsets of @entries, number
 * of rows and metadata. */
MUST_CHECK enum embtier_err safetensors_room(const struct safetensors_entry *entries,
                                             uint32_t count, uint64_t *ret_bytes,
                                             struct err_msg *msg);
/* Makes a malloced header of exactly @bytes, the size that safetensors_room() returned. @metadata
 * as in tensor_writer_end(). */
MUST_CHECK enum embtier_err safetensors_make(const struct safetensors_entry *entries,
                                             uint32_t count, uint64_t rows,
                                             const char *const *metadata, uint64_t bytes,
                                             char **ret_header, struct err_msg *msg);

/* Parses @header, the bytes after the length field. @path is for messages. Errors are those of
 * tensor_reader_open(). */
MUST_CHECK enum embtier_err safetensors_parse(const char *path, const char *header, size_t bytes,
                                              uint64_t data_bytes, struct safetensors *ret_parsed,
                                              struct err_msg *msg);
void safetensors_release(struct safetensors *parsed);

#endif
