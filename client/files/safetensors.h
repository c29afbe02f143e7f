/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h: headers of safetensors files, made and parsed.
 *
 * A file is the header's length (8 bytes, little-endian), the header, and the tensors' data without
 * a hole. The header is JSON, padded with spaces:
 *     {"__metadata__":{"key":"value"},"NAME":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]}}
 * Offsets count from the data's begin. The format: https://github.com/huggingface/safetensors */
#ifndef EMBTIER_CLIENT_FILES_SAFETENSORS_H
#define EMBTIER_CLIENT_FILES_SAFETENSORS_H

#include <jansson.h>

#include "client/files/tensor_place.h"

/* The name that no tensor can have. */
#define SAFETENSORS_METADATA "__metadata__"
/* The header's length. */
#define SAFETENSORS_START_BYTES 8
/* Of a header: the format's limit. */
#define SAFETENSORS_HEADER_MAX 100000000

/* A header as it has been parsed. */
struct safetensors {
    json_t *root;                /* names and metadata point into it */
    struct tensor_place *places; /* in the order of their offsets */
    uint32_t count;
};

/* A tensor whose header is made; its data lie at @begin behind the header. */
struct safetensors_entry {
    const struct tensor *tensor;
    uint64_t row_bytes;
    uint64_t begin;
};

/* Bytes that are enough for everything before the data, whatever @entries' offsets, the number of
 * rows and the metadata will be. */
MUST_CHECK enum embtier_err safetensors_room(const struct safetensors_entry *entries,
                                             uint32_t count, uint64_t *ret_bytes,
                                             struct err_msg *msg);
/* A malloced header of exactly @bytes, as safetensors_room() said. @metadata as in
 * tensor_writer_end(). */
MUST_CHECK enum embtier_err safetensors_make(const struct safetensors_entry *entries,
                                             uint32_t count, uint64_t rows,
                                             const char *const *metadata, uint64_t bytes,
                                             char **ret_header, struct err_msg *msg);

/* @header: what follows the length. @path is for messages. Errors as tensor_reader_open() has
 * them. */
MUST_CHECK enum embtier_err safetensors_parse(const char *path, const char *header, size_t bytes,
                                              uint64_t data_bytes, struct safetensors *ret_parsed,
                                              struct err_msg *msg);
void safetensors_release(struct safetensors *parsed);

#endif
