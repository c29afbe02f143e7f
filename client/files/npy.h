/* SPDX-License-Identifier: Apache-2.0 */
/* npy.h: headers of NumPy's .npy files, made and parsed.
 *
 * A file is the magic, a version of two bytes, the header's length, the header, and the array's
 * data. The length has two bytes in version 1.0, four in later ones. The header is a Python dict in
 * ASCII or UTF-8:
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * The format: NumPy's documentation, numpy.lib.format. */
#ifndef EMBTIER_CLIENT_FILES_NPY_H
#define EMBTIER_CLIENT_FILES_NPY_H

#include "client/files/tensor_place.h"

#define NPY_MAGIC       "\x93NUMPY"
#define NPY_MAGIC_BYTES 6
/* Magic, version and length field of the newest version. */
#define NPY_START_BYTES 12
/* Size of the header that npy_make() makes, and so the offset of the data: room for the longest
 * shape, a multiple of 64. */
#define NPY_HEADER_BYTES 128
/* Longest header that is read; version 1.0 allows no more. An array of plain numbers needs a
 * hundredth of it. */
#define NPY_HEADER_MAX 65535

/* Makes everything before the data of [rows, columns], or of [rows] if @columns is 0. */
void npy_make(enum tensor_dtype dtype, uint64_t rows, uint32_t columns,
              char ret_header[NPY_HEADER_BYTES]);
/* Finds the header from the file's first bytes. @path is for messages. */
MUST_CHECK enum embtier_err npy_find_header(const char *path,
                                            const unsigned char start[NPY_START_BYTES],
                                            uint64_t file_bytes, uint32_t *ret_offset,
                                            uint32_t *ret_bytes, struct err_msg *msg);
/* Parses a header. Errors are those of tensor_reader_open(). The name is ""; the caller sets the
 * offset. */
MUST_CHECK enum embtier_err npy_parse(const char *path, const char *header, size_t bytes,
                                      uint64_t data_bytes, struct tensor_place *ret_place,
                                      struct err_msg *msg);

#endif
